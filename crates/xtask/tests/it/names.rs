// SPDX-License-Identifier: Apache-2.0
//! Every path and every `file.rs::symbol` that README.md and docs/*.md name exists. So a wrong
//! document fails the next test run.

use crate::complain;
use crate::tree::{File, files, read, root, rust_files};

/// Folders and files at the root that a document's path may start with.
const ROOTS: [&str; 10] = [
    "crates/",
    "docs/",
    "tests/",
    "fuzz/",
    ".ci/",
    ".cargo/",
    "bindings/",
    "lab/",
    "contrib/",
    "README.md",
];

/// Every word in backticks of the documents: (document, line, word).
fn words() -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    let document = |f: &File| {
        f.path == "README.md" || (f.path.starts_with("docs/") && f.path.ends_with(".md"))
    };
    for file in files().into_iter().filter(document) {
        let mut in_block = false;
        for (number, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            if !in_block {
                let parts = line.split('`').skip(1).step_by(2);
                found.extend(parts.map(|w| (file.path.clone(), number + 1, w.to_owned())));
            }
        }
    }
    found
}

/// The code map of the server left out files, and who looked for one there did not find it.
#[test]
fn the_map_of_the_server_has_each_file_once() {
    let map = read("docs/architecture/overview.md");
    let start = "**`crates/server`.**";
    let (_, map) = map.split_once(start).expect("there is a map of the server");
    let (map, _) = map.split_once("\n**").expect("another crate follows");
    let mut complaints = Vec::new();
    for file in files() {
        let Some(name) = file.path.strip_prefix("crates/server/src/") else {
            continue;
        };
        let times = map.matches(&format!("`{name}`")).count();
        if name.ends_with(".rs") && times != 1 {
            complaints.push(format!("{name} is there {times} times"));
        }
    }
    complain("the map of crates/server", complaints);
}

#[test]
fn paths_exist() {
    let mut complaints = Vec::new();
    for (document, line, word) in words() {
        let path = word.split("::").next().unwrap_or(&word);
        let path = path
            .split_once(':')
            .map_or(path, |(p, _)| p)
            .trim_end_matches('/');
        let is_path =
            ROOTS.iter().any(|r| path.starts_with(r)) && !path.contains([' ', '*', '<', '{', '$']);
        if is_path && !root().join(path).exists() {
            complaints.push(format!("{document}:{line}: there is no {path}"));
        }
    }
    complain("paths", complaints);
}

#[test]
fn symbols_exist() {
    let sources = rust_files();
    let mut complaints = Vec::new();
    for (document, line, word) in words()
        .into_iter()
        .filter(|(_, _, w)| w.contains("::") && !w.contains(' '))
    {
        let word = word.split(['(', '<']).next().unwrap_or(&word);
        let mut parts = word.split("::");
        let first = parts.next().unwrap_or_default();
        let symbols: Vec<&str> = parts.filter(|s| !s.is_empty()).collect();
        // `flash/region.rs::seal` or `region::seal` name a file; `Shard::lookup` a type.
        let is_type = first.starts_with(char::is_uppercase);
        let file = if first.ends_with(".rs") {
            first.to_owned()
        } else {
            format!("{first}.rs")
        };
        let of_file = |f: &&File| f.path.ends_with(&format!("/{file}")) || f.path == file;
        let defines = |f: &&File| {
            ["struct", "enum", "trait", "type"]
                .iter()
                .any(|k| has_words(&f.text, &format!("{k} {first}")))
        };
        let places: Vec<&File> = if is_type {
            sources.iter().filter(defines).collect()
        } else {
            sources.iter().filter(of_file).collect()
        };
        if places.is_empty() {
            // Names from other crates (`std::mem`) are not checked.
            if first.ends_with(".rs") || is_type {
                complaints.push(format!("{document}:{line}: nothing here is named {first}"));
            }
            continue;
        }
        for symbol in symbols {
            // A type's methods may be in another file of its crate.
            let crates: Vec<&str> = places
                .iter()
                .filter_map(|f| f.path.split("/src/").next())
                .collect();
            let near = |f: &&File| {
                places.iter().any(|p| p.path == f.path)
                    || (is_type && crates.iter().any(|c| f.path.starts_with(*c)))
            };
            if !sources
                .iter()
                .filter(near)
                .any(|f| has_words(&f.text, symbol))
            {
                complaints.push(format!("{document}:{line}: {first} has no {symbol}"));
            }
        }
    }
    complain("symbols", complaints);
}

/// Whether `text` has `words` as whole words.
fn has_words(text: &str, words: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(words)
        .any(|(at, _)| !text[..at].ends_with(inner) && !text[at + words.len()..].starts_with(inner))
}

#[test]
fn the_readme_has_the_two_commands() {
    let readme = read("README.md");
    for command in ["cargo run --release -- serve", "cargo xtask test"] {
        assert!(
            readme.contains(command),
            "README.md does not say {command:?}"
        );
    }
}

/// The page of statistics explains each name that memcached's `stats` does not have.
#[test]
fn the_statistics_page_explains_ours() {
    let stats = read("crates/server/src/commands/stats.rs");
    let general = stats
        .split("\nfn settings")
        .next()
        .expect("there is a first part");
    let tables = read("crates/server/src/counters.rs");
    let rows = tables.lines().filter_map(|line| line.split_once("\" = "));
    let rows = rows.filter_map(|(row, _)| row.trim().strip_prefix('"'));
    let ours = ["flash_", "tag_", "senko_", "dram_"];
    let names: Vec<&str> = general
        .split("sink.stat(\"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'))
        .map(|(name, _)| name)
        .chain(rows)
        .filter(|name| ours.iter().any(|o| name.starts_with(o)))
        .collect();
    assert!(names.len() > 20, "only {} names were found", names.len());
    let page = read("docs/cache/statistics.md");
    let missing = names
        .iter()
        .filter(|n| !has_words(&page, n))
        .map(|n| format!("docs/cache/statistics.md does not explain {n}"));
    complain("statistics", missing.collect());
}
