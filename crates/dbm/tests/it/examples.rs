// SPDX-License-Identifier: Apache-2.0
//! The programs that the guide to embedding shows: they are those of `examples`, and they print
//! what it says. The tests of the bindings run those in C and Python.

use senko_dbm::example::Folder;

use crate::accounts;

const GUIDE: &str = include_str!("../../../../docs/embedding.md");

#[test]
fn the_example_of_the_guide_moves_money() {
    let folder = Folder::new();
    let path = folder.path().join("accounts.db");
    assert_eq!(accounts::run(&path).unwrap(), ["ann has 70", "ben has 130"]);
    assert!(path.with_extension("backup").exists());
}

#[test]
fn the_guide_shows_the_programs_as_they_are() {
    for program in [
        include_str!("../../../../examples/accounts.rs"),
        include_str!("../../../../examples/sessions.rs"),
        include_str!("../../../../examples/accounts.c"),
        include_str!("../../../../examples/accounts.py"),
    ] {
        // Without the comment at its beginning.
        let begins = ["use std::path", "#include <senko", "import os\n"];
        let from = begins.iter().find_map(|begin| program.find(begin)).unwrap();
        assert!(GUIDE.contains(&program[from..]), "{}", &program[from..]);
    }
}
