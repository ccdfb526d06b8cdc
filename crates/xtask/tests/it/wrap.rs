// SPDX-License-Identifier: Apache-2.0
//! Comments and prose wrap at 100 columns.

use std::process::Command;

#[test]
fn comments_and_prose_wrap_at_100_columns() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["wrap", "--check"])
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    let complaints = said.lines().chain(error.lines()).map(str::to_owned);
    crate::complain("files that are not wrapped", complaints.collect());
    assert!(output.status.success());
}
