// SPDX-License-Identifier: Apache-2.0
//! Experiments on the Python package, with an interpreter that the test makes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use senko_lab::Outcome;
use senko_lab::python::measure;

/// A script instead of the interpreter.
fn interpreter(name: &str, script: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("senko-lab-{name}-{}", std::process::id()));
    // Another process writes it. A fork of this one at a bad moment would keep the file open for
    // writing, and then it could not be executed.
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = install.stdin.take().unwrap();
    stdin
        .write_all(format!("#!/bin/sh\n{script}\n").as_bytes())
        .unwrap();
    drop(stdin);
    assert!(install.wait().unwrap().success());
    path
}

#[test]
fn figures_are_medians_of_ratios_and_missing_ones_are_told() {
    let line = r#"{"figures":{"a":[[1,2],[9,3],[4,4]]},"missing":{"b":"no b"}}"#;
    let python = interpreter(
        "found",
        &format!("[ $2 = program ] && echo '{line}'; exit 0"),
    );
    let mut outcome = Outcome::new();
    measure(&python, "program", &[], &["a", "b"], &mut outcome).unwrap();
    std::fs::remove_file(&python).unwrap();
    assert_eq!(outcome.bars()["a"], 1.0);
    assert_eq!(outcome.missing()["b"], "no b");
    assert_eq!(outcome.tables.len(), 1);
}

#[test]
fn without_the_package_every_figure_is_missing() {
    for python in [
        interpreter("empty", "exit 1"),
        PathBuf::from("no-such-python"),
    ] {
        let mut outcome = Outcome::new();
        measure(&python, "program", &[], &["a", "b"], &mut outcome).unwrap();
        drop(std::fs::remove_file(&python));
        assert!(outcome.bars().is_empty());
        for key in ["a", "b"] {
            let why = &outcome.missing()[key];
            assert!(why.contains("has no senko_flash"), "{why}");
        }
    }
}

#[test]
fn a_program_that_fails_is_an_error_with_its_last_words() {
    let python = interpreter(
        "fails",
        "[ $2 = program ] || exit 0; echo 'a\nlast' >&2; exit 1",
    );
    let mut outcome = Outcome::new();
    let error = measure(&python, "program", &[], &["a"], &mut outcome).unwrap_err();
    std::fs::remove_file(&python).unwrap();
    assert_eq!(error.to_string(), "the program in Python failed: last");
}
