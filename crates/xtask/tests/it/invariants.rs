// SPDX-License-Identifier: Apache-2.0
//! Names of invariants (a word and a number): docs/architecture/invariants.md lists each one that
//! the code cites, once, and no others.

use std::collections::{BTreeMap, BTreeSet};

use crate::complain;
use crate::tree::{read, rust_files};

const PAGE: &str = "docs/architecture/invariants.md";

/// Words before a hyphen and a number that do not name an invariant.
const OTHERS: [&str; 2] = ["UTF", "SBC"];

/// The names in a text: the word, the number, and where the number ends.
fn names(text: &str) -> Vec<(&str, u32, usize)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    for piece in text.split(|c| !is_part(c)) {
        let start = at;
        at += piece.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
        let Some((word, number)) = piece.split_once('-') else {
            continue;
        };
        let is_word = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        match number.parse() {
            Ok(number) if is_word => found.push((word, number, start + piece.len())),
            _ => {}
        }
    }
    found
}

/// How often each name is in a text; `A-1 to A-3` counts as three names.
fn with_ranges(text: &str) -> BTreeMap<(String, u32), usize> {
    let mut counts = BTreeMap::new();
    let mut range: Option<(String, u32)> = None;
    for (word, number, end) in names(text) {
        let from = match range.take() {
            Some((first, from)) if first == word => from + 1,
            _ => number,
        };
        for nth in from..=number {
            *counts.entry((word.to_owned(), nth)).or_default() += 1;
        }
        if text[end..].starts_with(" to ") {
            range = Some((word.to_owned(), number));
        }
    }
    counts
}

#[test]
fn the_page_has_each_invariant_once() {
    let page = with_ranges(&read(PAGE));
    let mut cited: BTreeMap<(String, u32), String> = BTreeMap::new();
    let is_source = |path: &str| {
        let ours = path.starts_with("crates/") || path.starts_with("lab/");
        ours && path.contains("/src/")
    };
    for file in rust_files() {
        if !is_source(&file.path) || file.path.starts_with("crates/xtask/") {
            continue;
        }
        for (word, number, _) in names(&file.text) {
            cited
                .entry((word.to_owned(), number))
                .or_insert_with(|| file.path.clone());
        }
    }
    let mut complaints = Vec::new();
    for ((word, number), count) in &page {
        if *count > 1 {
            complaints.push(format!("{PAGE} has {word}-{number} {count} times"));
        }
        if !cited.contains_key(&(word.clone(), *number)) {
            complaints.push(format!("no source cites {word}-{number}"));
        }
    }
    for ((word, number), path) in &cited {
        if !page.contains_key(&(word.clone(), *number)) && !OTHERS.contains(&word.as_str()) {
            complaints.push(format!("{path} cites {word}-{number}, {PAGE} has no such"));
        }
    }
    complain("invariants", complaints);
}

#[test]
fn names_and_ranges_are_found() {
    let text = "LOG-1 to LOG-3, (MAP-7) to MAPS-8; x-1, A-2, S3-FIFO, 2-WAY";
    let found: BTreeSet<String> = with_ranges(text)
        .into_iter()
        .map(|((word, number), count)| format!("{word}-{number} {count}"))
        .collect();
    let wanted = ["LOG-1 1", "LOG-2 1", "LOG-3 1", "MAP-7 1", "MAPS-8 1"];
    assert_eq!(found, wanted.map(str::to_owned).into());
}
