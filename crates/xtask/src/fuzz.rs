// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask fuzz` runs each target of `fuzz/` for some minutes; `cargo xtask bench` runs the
//! benchmarks.
//!
//! The targets are plain programs over libfuzzer-sys. They are built here without cargo-fuzz's
//! sanitizers, which need a nightly compiler; the coverage that guides libFuzzer is a stable option
//! of the compiler's code generator.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{Workspace, run};

/// Runs the fuzz targets.
pub fn fuzz(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let (mut minutes, mut only) = (10.0_f64, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args
            .next()
            .with_context(|| format!("{arg} takes a value"))?;
        match arg.as_str() {
            "--minutes" => minutes = value.parse().context("--minutes takes a number")?,
            "--only" => only = Some(value.clone()),
            _ => bail!("`cargo xtask fuzz` takes no {arg:?}"),
        }
    }
    let folder = workspace.root.join("fuzz");
    if !run::succeeds(Command::new(run::cargo()).args(["fuzz", "--version"])) {
        tell!("installing cargo-fuzz");
        if !run::show(&mut workspace.cargo("install --locked cargo-fuzz"))?.ok {
            bail!("cargo-fuzz could not be installed");
        }
    }
    let names: Vec<String> = targets(&folder)?
        .into_iter()
        .filter(|t| only.as_ref().is_none_or(|o| o == t))
        .collect();
    if names.is_empty() {
        bail!("no fuzz target of that name");
    }
    let mut failed = Vec::new();
    for name in &names {
        tell!("\n== fuzz {name}: {minutes} minutes");
        let seconds = format!("-max_total_time={}", (minutes * 60.0) as u64);
        let line = format!("fuzz run --sanitizer none {name} -- {seconds} -rss_limit_mb=4096");
        let mut command = workspace.cargo(&line);
        let patience = Duration::from_secs_f64(minutes * 60.0 + 600.0); // the build comes in addition
        if !run::show_for(&mut command, patience)?.ok {
            failed.push(name.clone());
        }
    }
    tell!(
        "\n{} passed, {} failed",
        names.len() - failed.len(),
        failed.len()
    );
    if !failed.is_empty() {
        tell!(
            "failed: {}; the inputs that crashed them are in fuzz/artifacts",
            failed.join(", ")
        );
    }
    Ok(failed.is_empty())
}

/// The names of the targets: the files of `fuzz/targets`.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("targets");
    let mut names = Vec::new();
    for entry in
        std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "rs")
            && let Some(stem) = path.file_stem()
        {
            names.push(stem.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Runs the benchmarks, or those whose name contains a word.
pub fn bench(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let mut command = workspace.cargo("bench --workspace");
    if let Some(name) = args.first() {
        command.arg("--").arg(name);
    }
    Ok(run::show(&mut command)?.ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list was once empty: it looked into the folder that cargo-fuzz makes by itself, where
    /// there is no target.
    #[test]
    fn every_program_of_the_fuzz_workspace_is_a_target() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("it is there");
        let names = targets(&folder).expect("it can be listed");
        assert_eq!(
            manifest.matches("[[bin]]").count(),
            names.len(),
            "{names:?}"
        );
        for name in names {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        }
    }
}
