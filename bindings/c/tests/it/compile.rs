// SPDX-License-Identifier: Apache-2.0
//! Programs in C and C++ against a library, for the tests of both C libraries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use senko_dbm::example::Folder;

/// A library that cargo built for this test.
pub fn built(library: &str) -> PathBuf {
    // It lies beside the test. The one a folder above is of the last `cargo build`.
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().to_path_buf();
    assert!(folder.join(library).exists(), "{}", folder.display());
    folder.join(library)
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Whether a compiler can make programs with the address sanitizer. With CI=true it must.
pub fn has(compiler: &str, folder: &Folder) -> bool {
    let (probe, program) = (folder.path().join("probe.c"), folder.path().join("probe"));
    std::fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let mut command = Command::new(compiler);
    let output = command
        .arg("-fsanitize=address")
        .arg(&probe)
        .arg("-o")
        .arg(&program);
    if output.output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert_ne!(
        std::env::var("CI").as_deref(),
        Ok("true"),
        "{compiler} makes no such program"
    );
    println!("skipped: {compiler} makes no program with the address sanitizer");
    false
}

pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The symbols that a library shows.
pub fn symbols(library: &Path) -> BTreeSet<String> {
    let shown = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library));
    let names = shown.lines().map(|line| line.rsplit(' ').next().unwrap());
    names.map(str::to_owned).collect()
}

/// Its dynamic section as text.
pub fn dynamic(library: &Path) -> String {
    run(Command::new("readelf").arg("-d").arg(library))
}
