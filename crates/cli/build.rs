// SPDX-License-Identifier: Apache-2.0
//! Tells the binary its commit, for `senko --version`. Without git, or outside of a checkout, there
//! is none. Cargo calls it.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A new commit changes one of these.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && std::path::Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])
        .filter(|hash| !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let commit = commit.map_or(String::new(), |hash| format!(" ({hash})"));
    println!("cargo::rustc-env=SENKO_COMMIT={commit}");
}
