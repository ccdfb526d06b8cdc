// SPDX-License-Identifier: Apache-2.0
//! Experiments on the Python package: programs in `python/` measure, and print their results as a
//! line of JSON. Each figure is a ratio of two rates or times that were measured in turns.
//!
//! The interpreter is `SENKO_PYTHON`, or `python3`. It must have the wheel that
//! `cargo xtask python` builds; otherwise the figures are missing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use crate::rig::median;
use crate::{Outcome, Table};

/// The result of a program: pairs for each figure, or the reason why there are none.
#[derive(Deserialize)]
struct Reply {
    figures: std::collections::BTreeMap<String, Vec<(f64, f64)>>,
    missing: std::collections::BTreeMap<String, String>,
}

/// The interpreter that programs run in.
pub fn interpreter() -> PathBuf {
    std::env::var_os("SENKO_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// Runs a program, and adds its figures to the outcome. `keys` are the expected figures.
/// If the interpreter has no such package, the figures are missing.
pub fn measure(
    python: &PathBuf,
    program: &str,
    arguments: &[String],
    keys: &[&str],
    outcome: &mut Outcome,
) -> Result<()> {
    let mut look = Command::new(python);
    look.args(["-c", "import senko_flash.dbm"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !look.status().is_ok_and(|status| status.success()) {
        let why = format!(
            "{} has no senko_flash: `cargo xtask python` builds its wheel, and SENKO_PYTHON names an interpreter that has it",
            python.display()
        );
        keys.iter().for_each(|key| outcome.miss(*key, &why));
        return Ok(());
    }
    let output = Command::new(python)
        .args(["-c", program])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", python.display()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.lines().rev().find(|line| !line.trim().is_empty());
        return Err(anyhow!(
            "the program in Python failed: {}",
            last.unwrap_or("it said nothing")
        ));
    }
    let found: Reply = serde_json::from_slice(&output.stdout)
        .context("what the program in Python said has an unknown form")?;
    let mut table = Table::titled("Medians");
    for (key, pairs) in &found.figures {
        let middle = |of: fn(&(f64, f64)) -> f64| median(pairs.iter().map(of).collect());
        let ratio = middle(|pair| pair.0 / pair.1).context("a figure without a value")?;
        outcome.bar(key.as_str(), ratio);
        let shown = |number: Option<f64>| number.map_or(String::new(), |n| format!("{n:.4}"));
        table.add([
            ("figure", key.clone()),
            ("ours", shown(middle(|pair| pair.0))),
            ("other", shown(middle(|pair| pair.1))),
            ("ratio", format!("{ratio:.3}")),
        ]);
    }
    for (key, why) in found.missing {
        outcome.miss(key, why);
    }
    outcome.tables.push(table);
    Ok(())
}
