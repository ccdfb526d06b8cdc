// SPDX-License-Identifier: Apache-2.0
//! Tests of the C library from C and C++, with the shared library and with the static one, under
//! the address sanitizer; and of its list of symbols.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use senko_dbm::example::Folder;

mod compile; // programs against a library

use compile::{built, dynamic, has, run, source, symbols};

/// Compiles a program and runs it, with each of the two libraries.
fn program(source_file: &Path) {
    let folder = Folder::new();
    let compiler = if source_file.extension().unwrap() == "cc" {
        "g++"
    } else {
        "gcc"
    };
    if !has(compiler, &folder) {
        return;
    }
    let shared = folder.path().join("libsenko_dbm.so.0");
    std::os::unix::fs::symlink(built("libsenko_c.so"), &shared).unwrap();
    let of_static = built("libsenko_c.a");
    for (kind, library) in [("shared", &shared), ("static", &of_static)] {
        let program = folder.path().join(kind);
        let mut compile = Command::new(compiler);
        compile
            .args(["-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address"])
            .arg("-I")
            .arg(source("include"))
            .arg(source_file)
            .arg(library)
            .args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-o"])
            .arg(&program);
        run(&mut compile);
        let data = folder.path().join(format!("data-{kind}"));
        std::fs::create_dir(&data).unwrap();
        let mut command = Command::new(&program);
        command
            .arg(&data)
            .current_dir(&data)
            .env("LD_LIBRARY_PATH", folder.path());
        run(&mut command);
    }
}

#[test]
fn every_call_from_c() {
    program(&source("tests/c/whole.c"));
}

#[test]
fn batches_and_loads_from_c() {
    program(&source("tests/c/bulk.c"));
}

#[test]
fn refusals_from_c() {
    program(&source("tests/c/refusals.c"));
}

#[test]
fn other_folders_from_c() {
    program(&source("tests/c/folders.c"));
}

#[test]
fn threads_from_cxx() {
    program(&source("tests/c/threads.cc"));
}

#[test]
fn forks_from_c() {
    program(&source("tests/c/fork.c"));
}

#[test]
fn the_program_of_the_guide() {
    let guide = std::fs::read_to_string(source("../../docs/dbm/c.md")).unwrap();
    let (_, rest) = guide.split_once("```c\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let folder = Folder::new();
    let file = folder.path().join("guide.c");
    std::fs::write(&file, text).unwrap();
    program(&file);
}

#[test]
fn the_example_of_the_guide_to_embedding() {
    program(&source("../../examples/accounts.c"));
}

/// The shared library shows the symbols of the list, and the header declares the same.
#[test]
fn the_symbols_are_those_of_the_list() {
    let listed: BTreeSet<String> = include_str!("../../symbols.txt")
        .lines()
        .map(str::to_owned)
        .collect();
    let shown = symbols(&built("libsenko_c.so"));
    assert_eq!(shown, listed);
    let header = include_str!("../../include/senko_dbm.h");
    let declared: BTreeSet<String> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '/']) && !line.starts_with("typedef"))
        .filter_map(|line| {
            let (before, _) = line.split_once('(')?;
            Some(before.rsplit([' ', '*']).next()?.to_owned())
        })
        .collect();
    assert_eq!(declared, listed);
    let dynamic = dynamic(&built("libsenko_c.so"));
    assert!(dynamic.contains("soname: [libsenko_dbm.so.0]"), "{dynamic}");
}
