// SPDX-License-Identifier: Apache-2.0
//! Tests of the ndbm library from C, under the address sanitizer, and of its list of symbols. The
//! programs of others run in the step `ndbm` of `cargo xtask test`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::process::Command;

use senko_dbm::example::Folder;

#[path = "../../../c/tests/it/compile.rs"]
mod compile; // programs against a library

use compile::{built, dynamic, has, run, source, symbols};

/// Compiles a program of tests/c and runs it in an empty folder, in which it leaves `data`. None if
/// it could not be compiled.
fn program(name: &str, sanitizer: &[&str]) -> Option<Folder> {
    let folder = Folder::new();
    let compiler = if name.ends_with(".cc") { "g++" } else { "gcc" };
    if !has(compiler, &folder) {
        return None;
    }
    let library = folder.path().join("libsenko_ndbm.so.0");
    std::os::unix::fs::symlink(built("libsenko_ndbm.so"), &library).unwrap();
    let program = folder.path().join("program");
    let mut compile = Command::new(compiler);
    compile
        .args(["-g", "-Wall", "-Wextra", "-Werror"])
        .args(sanitizer)
        .arg("-I")
        .arg(source("include/senko"))
        .arg(source("tests/c").join(name))
        .arg(&library)
        .arg("-o")
        .arg(&program);
    run(&mut compile);
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let mut command = Command::new(&program);
    command
        .current_dir(&data)
        .env("LD_LIBRARY_PATH", folder.path())
        .env("SENKO_NDBM_MESSAGES", "1")
        .env_remove("SENKO_NDBM_SYNC");
    run(&mut command);
    Some(folder)
}

const SANITIZER: &[&str] = &["-fsanitize=address"];

#[test]
fn what_a_call_gave_is_used_in_the_next() {
    program("buffers.c", SANITIZER);
}

#[test]
fn empty_keys_and_values() {
    program("empties.c", SANITIZER);
}

#[test]
fn errors_and_their_numbers() {
    program("errors.c", SANITIZER);
}

#[test]
fn names_modes_and_descriptors() {
    program("files.c", SANITIZER);
}

#[test]
fn handles_of_one_process_and_of_several() {
    program("handles.c", SANITIZER);
}

#[test]
fn transactions_of_a_handle() {
    program("transactions.c", SANITIZER);
}

#[test]
fn transactions_conflict_and_are_run_again() {
    program("conflicts.c", SANITIZER);
}

/// It stands between the library and the system, as a full device.
#[test]
fn a_transaction_on_a_full_device() {
    program("full.c", &[]);
}

#[test]
fn forks() {
    program("forks.c", SANITIZER);
}

/// Its own pwrite and fdatasync are not those that the sanitizer wants to see.
#[test]
fn what_stores_wait_for_and_what_emptying_takes() {
    program("durable.c", &[]);
}

#[test]
fn berkeleys_names_from_cxx() {
    let Some(folder) = program("berkeley.cc", SANITIZER) else {
        return;
    };
    // It is a database like any other, with the table that `senko dbm` takes without being told.
    let path = folder.path().join("data/data.pag");
    let db = senko_dbm::Database::open_to_read(&path, senko_dbm::Options::default()).unwrap();
    let now = db.snapshot();
    let table = db.table("main").unwrap();
    assert_eq!(now.get(&table, b"b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(now.count(&table).unwrap(), 1);
}

/// The library shows the symbols of the list, and gives them no version: so a reference to a
/// versioned name of Berkeley DB finds them. The header declares all but Berkeley's names.
/// Transactions have no name of Berkeley's.
#[test]
fn the_symbols_are_those_of_the_list() {
    let lines = include_str!("../../symbols.txt").lines();
    let listed: BTreeSet<String> = lines.map(str::to_owned).collect();
    let shown = symbols(&built("libsenko_ndbm.so"));
    assert_eq!(shown, listed);
    let header = include_str!("../../include/senko/ndbm.h");
    let plain: Vec<&String> = listed
        .iter()
        .filter(|name| name.starts_with("dbm_"))
        .collect();
    assert_eq!(plain.len(), 15);
    for name in plain {
        assert!(
            header.contains(&format!("{name}(")),
            "{name} is not declared"
        );
        if ["dbm_abort", "dbm_begin", "dbm_commit"].contains(&&**name) {
            continue;
        }
        let alias = name.replacen("dbm_", "__db_ndbm_", 1);
        assert!(
            listed.contains(&alias),
            "{name} has no name of Berkeley DB's"
        );
    }
    let dynamic = dynamic(&built("libsenko_ndbm.so"));
    assert!(
        dynamic.contains("soname: [libsenko_ndbm.so.0]"),
        "{dynamic}"
    );
    assert!(!dynamic.contains("VERDEF"), "{dynamic}");
}
