// SPDX-License-Identifier: Apache-2.0
//! No files of a crate import each other in a circle.

use std::process::Command;

#[test]
fn no_crate_has_a_circle_of_files() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("circles")
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}{error}");
}
