// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask lab ARGS`: builds `senko`, `senko-lab`, minimal servers, the ndbm library and the
//! rivals, and becomes `senko-lab ARGS`.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{Workspace, run};

/// Rivals whose libraries cargo builds from source.
const RIVALS: &str = "senko_rivals/lmdb,senko_rivals/fjall,senko_rivals/redb";

/// Builds and runs; returns only if that is impossible.
pub fn lab(workspace: &Workspace, args: &[String]) -> Result<bool> {
    // Lines on stdout are the experiment's alone. Each is built by itself: together their features
    // would be unified, and the product's binary would not be the one that users build.
    let build = |package: &[&str]| {
        let mut command = workspace.cargo("build --release -p");
        Ok::<bool, std::io::Error>(command.args(package).status()?.success())
    };
    if !build(&["senko"])? || !build(&["senko_lab"])? {
        bail!("the release build failed");
    }
    // A list or a report needs no rival.
    if args.first().is_some_and(|task| task == "run") {
        if !build(&["senko_lab", "--examples"])? {
            eprintln!(
                "the minimal servers do not build here, so figures over them will be missing"
            );
        }
        if !build(&["senko_ndbm"])? {
            eprintln!("the ndbm library does not build here, so figures of it will be missing");
        }
        let mut features = RIVALS.to_owned();
        if links("rocksdb") {
            features.push_str(",senko_rivals/rocksdb");
        }
        if !build(&["senko_rivals", "--features", &features])? {
            eprintln!("the rivals do not build here, so figures against them will be missing");
        }
    }
    let program = workspace.target.join("release/senko-lab");
    let error = Command::new(&program).args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Whether a program can be linked with this C library.
fn links(library: &str) -> bool {
    run::installed("cc")
        && Command::new("cc")
            .args(["-shared", "-o", "/dev/null", "-x", "c", "/dev/null"])
            .arg(format!("-l{library}"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}
