// SPDX-License-Identifier: Apache-2.0
//! No files of a crate import each other in a circle, except for those listed in
//! `crates/xtask/circles/`.

use std::process::Command;

#[test]
fn no_crate_has_a_new_circle_of_files() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("circles")
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = said
        .lines()
        .filter(|line| !line.starts_with("  ") && !line.contains(": a circle of "));
    let error = String::from_utf8_lossy(&output.stderr);
    crate::complain(
        "circles of files",
        complaints.chain(error.lines()).map(str::to_owned).collect(),
    );
    assert!(output.status.success(), "{said}");
}
