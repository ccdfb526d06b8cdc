// SPDX-License-Identifier: Apache-2.0
//! docs/dependencies.md has a sentence for each dependency of the manifests, and none for others.

use std::collections::BTreeSet;

use crate::complain;
use crate::tree::{files, read};

/// A shorter sentence does not say what for, why this one and what instead.
const LEAST_CHARACTERS: usize = 60;

#[test]
fn each_dependency_has_its_sentence() {
    let mut used = BTreeSet::new();
    for file in files().iter().filter(|f| f.path.ends_with("Cargo.toml")) {
        let mut in_dependencies = false;
        for line in file.text.lines() {
            if let Some(section) = line.strip_prefix('[') {
                in_dependencies = section.contains("dependencies");
                // `[dependencies.name]`
                if let Some((_, name)) = section.trim_end_matches(']').split_once("dependencies.") {
                    used.insert(name.to_owned());
                    in_dependencies = false;
                }
            } else if in_dependencies && let Some((name, _)) = line.split_once(['=', '.']) {
                let name = name.trim();
                if !name.starts_with('#') && !name.starts_with("senko") {
                    used.insert(name.to_owned());
                }
            }
        }
    }
    assert!(
        used.contains("libc"),
        "the manifests were not read: {used:?}"
    );
    let python = read("tests/requirements.txt") + &read("bindings/python/requirements.txt");
    for line in python.lines().filter(|l| !l.starts_with('#')) {
        if let Some((name, _)) = line.split_once("==") {
            used.insert(name.to_owned());
        }
    }
    // A Go program that the tests build, and a client; their own dependencies do not count.
    let programs = read("tests/exporter/go.mod") + &read("tests/chunks/go.mod");
    let named = |line| {
        ["tool ", "require "]
            .iter()
            .find_map(|word| str::strip_prefix(line, word))
    };
    for line in programs
        .lines()
        .filter_map(named)
        .filter(|line| *line != "(")
    {
        let line = line.split(' ').next().expect("a part");
        let module: Vec<&str> = line.splitn(4, '/').take(3).collect();
        used.insert(module.join("/"));
    }
    let document = read("docs/dependencies.md");
    let mut listed = BTreeSet::new();
    let mut complaints = Vec::new();
    // An entry continues in indented lines.
    for row in document
        .replace("\n  ", " ")
        .lines()
        .filter_map(|l| l.strip_prefix("- `"))
    {
        let Some((name, sentence)) = row.split_once('`') else {
            continue;
        };
        if sentence.trim_start_matches(':').trim().len() < LEAST_CHARACTERS {
            complaints.push(format!("the sentence on {name} is too short to say what for, why this one, and what instead"));
        }
        listed.insert(name.to_owned());
    }
    complaints.extend(
        used.difference(&listed)
            .map(|n| format!("{n} has no sentence")),
    );
    complaints.extend(listed.difference(&used).map(|n| format!("{n} is not used")));
    complain("docs/dependencies.md", complaints);
}
