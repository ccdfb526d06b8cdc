// SPDX-License-Identifier: Apache-2.0
//! Methods of one type that call each other across files in a circle. Such files are one file in
//! several pieces: each of them may change any of the type's fields.
//!
//! An edge leads from file A to file B if a method in A calls a method of the same type that B
//! defines: `self.name(`, `Self::name(`, `Type::name(` or `type.name(`. Files
//! that reach each other are a circle. The sources are read as text, so a call through another
//! variable is not seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::complain;
use crate::tree::{File, rust_files};

/// The circles that are still there: the crate's folder, the type, and the most lines that its
/// `impl` blocks in them may have. The list only shrinks.
const KNOWN: [(&str, &str, usize); 1] = [("crates/server", "Worker", 1682)];

/// A type's `impl` blocks of one file.
#[derive(Default)]
struct Piece {
    lines: usize,
    methods: BTreeSet<String>,
    calls: BTreeSet<String>,
}

/// A circle: the crate's folder, the type, the files, and the lines of their `impl` blocks.
type Circle = (String, String, Vec<String>, usize);

/// The identifier at the beginning of a text.
fn word(text: &str) -> &str {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.next().unwrap_or("")
}

/// The type of a line that opens an inherent `impl` block.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let at = rest.find("> ").filter(|_| rest.starts_with('<'));
    let name = at.map_or(&rest[1..], |at| &rest[at + 2..]);
    (rest.ends_with('{') && !rest.contains(" for ")).then(|| word(name))
}

/// The type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let open = line.strip_prefix("pub").map(|rest| rest.split_once(' '));
    let item = open.map_or(Some(line), |open| Some(open?.1))?;
    let name = ["struct ", "enum "].map(|kind| item.strip_prefix(kind));
    name.into_iter().flatten().next().map(word)
}

/// The methods that a line of an `impl` block of `name` calls.
fn called(line: &str, name: &str) -> Vec<String> {
    let (of_type, of_value) = (format!("{name}::"), format!("{}.", name.to_lowercase()));
    let ways = ["self.", "Self::", &of_type, &of_value];
    let places = ways.iter().flat_map(|way| line.match_indices(way));
    let calls = places.filter_map(|(at, way)| {
        let (before, rest) = (&line[..at], &line[at + way.len()..]);
        let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || "_.".contains(c));
        let called = word(rest);
        (is_whole && rest[called.len()..].starts_with(['(', ':'])).then(|| called.to_owned())
    });
    calls.collect()
}

/// The crate's folder of a source file: `crates/dbm`.
fn folder_of(path: &str) -> Option<&str> {
    path.find("/src/").map(|end| &path[..end])
}

/// The pieces of each type by file. A type is known by its crate, its name and its file.
fn types(files: &[File]) -> BTreeMap<(&str, &str, &str), BTreeMap<&str, Piece>> {
    let mut homes: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for file in files {
        for name in file.text.lines().filter_map(defined) {
            let homes = homes.entry((folder_of(&file.path), name)).or_default();
            homes.push(&file.path);
        }
    }
    let mut found: BTreeMap<_, BTreeMap<&str, Piece>> = BTreeMap::new();
    let files = files
        .iter()
        .filter_map(|file| Some((file, folder_of(&file.path)?)));
    for (file, folder) in files {
        // Of several types with the name, the one of this file, or of the nearest.
        let common = |home: &str| {
            let pairs = file.path.bytes().zip(home.bytes());
            pairs.take_while(|(a, b)| a == b).count()
        };
        let (mut at, mut before) = (None, "");
        for line in file.text.lines() {
            if let Some(name) = implemented(line) {
                let homes = homes.get(&(Some(folder), name)).into_iter().flatten();
                let home = homes.max_by_key(|home| (**home == file.path, common(home)));
                at = home.map(|home| (folder, name, *home));
            }
            let Some(key) = at else { continue };
            let pieces = found.entry(key).or_default();
            let piece = pieces.entry(&*file.path).or_default();
            piece.lines += 1;
            let code = line.trim_start();
            // rustfmt may break a chain of calls before the dot.
            let chain = if before.ends_with("self") { "self" } else { "" };
            before = line;
            let outer = line.len() == code.len() + 4;
            match code.split_once("fn ").filter(|_| outer) {
                Some((_, name)) => _ = piece.methods.insert(word(name).to_owned()),
                None if code.starts_with("//") => {}
                None => piece.calls.extend(called(&format!("{chain}{code}"), key.1)),
            }
            at = at.filter(|_| line != "}");
        }
    }
    found
}

fn circles(files: &[File]) -> Vec<Circle> {
    let mut found = Vec::new();
    for ((folder, name, _), pieces) in types(files) {
        let pairs = || pieces.keys().flat_map(|a| pieces.keys().map(|b| (*a, *b)));
        let calls = |a, b| !pieces[a].calls.is_disjoint(&pieces[b].methods);
        let mut reach: BTreeSet<_> = pairs().filter(|(a, b)| calls(*a, *b)).collect();
        for via in pieces.keys() {
            let through = |(a, b): &_| reach.contains(&(*a, *via)) && reach.contains(&(*via, *b));
            let more: Vec<_> = pairs().filter(through).collect();
            reach.extend(more);
        }
        for first in pieces.keys() {
            let both = |b: &str| reach.contains(&(*first, b)) && reach.contains(&(b, *first));
            let circle = pieces.keys().filter(|file| *file == first || both(file));
            let circle: Vec<&str> = circle.copied().collect();
            if circle.len() > 1 && circle[0] == *first {
                let lines = circle.iter().map(|file| pieces[file].lines).sum();
                let files = circle.into_iter().map(str::to_owned).collect();
                found.push((folder.to_owned(), name.to_owned(), files, lines));
            }
        }
    }
    found
}

#[test]
fn methods_of_one_type_form_no_circle_of_files() {
    let found = circles(&rust_files());
    let mut complaints = Vec::new();
    for (folder, name, files, lines) in &found {
        let said = format!("{folder}: {name}, {lines} lines: {}", files.join(" "));
        println!("{said}");
        let mut known = KNOWN
            .iter()
            .filter(|known| (known.0, known.1) == (folder, name));
        if !known.any(|known| *lines <= known.2) {
            complaints.push(said);
        }
    }
    for (folder, name, _) in KNOWN {
        if !found
            .iter()
            .any(|circle| (&*circle.0, &*circle.1) == (folder, name))
        {
            complaints.push(format!("{folder}: {name} is no circle any more"));
        }
    }
    complain("circles of methods", complaints);
}

#[test]
fn files_that_call_back_and_forth_are_found() {
    let file = |path: &str, name: &str, body: &str| File {
        path: format!("crates/a/src/{path}"),
        text: format!("impl X {{\n    pub fn {name}(&self) {{\n        {body}\n    }}\n}}\n"),
    };
    let mut files = [
        file("x.rs", "one", "self.two();"),
        file("x/y.rs", "two", "X::three(self);"),
        file("x/z.rs", "three", "self\n            .one();"),
        file("x/down.rs", "two", "// self.one();"),
        file("other.rs", "two", "self.one();"),
    ];
    files[0].text += "pub struct X;\n";
    files[4].text += "struct X;\n"; // another type of that name
    let names = ["x.rs", "x/y.rs", "x/z.rs"].map(|path| format!("crates/a/src/{path}"));
    let circle = ("crates/a".to_owned(), "X".to_owned(), names.to_vec(), 16);
    assert_eq!(circles(&files), [circle]);
}
