// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask lines`: the lines of Rust of each crate, tests included, and how they changed since
//! the counts in `lines.txt` were stored, which is done at a release (`--store`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Workspace;

/// The folders of crates, and what each group is.
const GROUPS: [(&str, &str); 3] = [
    ("crates", "product"),
    ("bindings", "product"),
    ("lab", "laboratory"),
];
/// The stored counts: a line `folder lines` for each crate.
const STORED: &str = "crates/xtask/lines.txt";

type Counts = BTreeMap<String, u64>;

/// Prints the counts, or stores them.
pub fn lines(workspace: &Workspace, args: &[String]) -> Result<bool> {
    let stored = workspace.root.join(STORED);
    let now = count(&workspace.root)?;
    match args {
        [] => {
            let text = fs::read_to_string(&stored)
                .with_context(|| format!("cannot read {}", stored.display()))?;
            table(&now, &parse(&text)?);
        }
        [word] if word == "--store" => {
            let text: String = now.iter().map(|(at, n)| format!("{at} {n}\n")).collect();
            fs::write(&stored, text)
                .with_context(|| format!("cannot write {}", stored.display()))?;
        }
        _ => bail!("lines takes --store, or nothing"),
    }
    Ok(true)
}

fn count(root: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for (group, _) in GROUPS {
        let folder = root.join(group);
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.join("Cargo.toml").is_file() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                counts.insert(format!("{group}/{name}"), below(&path)?);
            }
        }
    }
    Ok(counts)
}

/// The lines of the Rust files below a folder.
fn below(folder: &Path) -> Result<u64> {
    let mut lines = 0;
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            lines += match path.file_name() {
                Some(name) if name == "target" => 0,
                _ => below(&path)?,
            };
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            lines += text.lines().count() as u64;
        }
    }
    Ok(lines)
}

fn parse(text: &str) -> Result<Counts> {
    let row = |line: &str| {
        let (name, lines) = line.split_once(' ')?;
        Some((name.to_owned(), lines.parse().ok()?))
    };
    text.lines()
        .map(|line| row(line).with_context(|| format!("{STORED} has no count in {line:?}")))
        .collect()
}

fn table(now: &Counts, before: &Counts) {
    for (name, lines, change) in rows(now, before) {
        tell!("{name:<20} {lines:>8} {change:>+8}");
    }
}

/// Every crate, then the sums of the product and of the laboratory: lines, and their change.
fn rows(now: &Counts, before: &Counts) -> Vec<(String, u64, i64)> {
    let row =
        |name: &str, now: u64, before: u64| (name.to_owned(), now, now as i64 - before as i64);
    let of = |counts: &Counts, name: &str| counts.get(name).copied().unwrap_or(0);
    let mut names: Vec<&String> = now.keys().chain(before.keys()).collect();
    names.sort();
    names.dedup();
    let mut rows: Vec<_> = names
        .into_iter()
        .map(|name| row(name, of(now, name), of(before, name)))
        .collect();
    for what in ["product", "laboratory"] {
        let sum = |counts: &Counts| {
            let inside = |name: &str| {
                GROUPS
                    .iter()
                    .any(|(group, is)| *is == what && name.starts_with(&format!("{group}/")))
            };
            counts
                .iter()
                .filter(|(name, _)| inside(name))
                .map(|(_, n)| n)
                .sum()
        };
        rows.push(row(what, sum(now), sum(before)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_changes_have_crates_that_came_and_went() {
        let now = parse("bindings/c 10\ncrates/io 100\nlab/thesis 7\n").expect("parsed");
        let before = parse("crates/io 90\ncrates/lab 50\n").expect("parsed");
        let rows = rows(&now, &before);
        let rows: Vec<(&str, u64, i64)> = rows.iter().map(|(n, l, c)| (&**n, *l, *c)).collect();
        assert_eq!(
            rows,
            [
                ("bindings/c", 10, 10),
                ("crates/io", 100, 10),
                ("crates/lab", 0, -50),
                ("lab/thesis", 7, 7),
                ("product", 110, -30),
                ("laboratory", 7, 7),
            ]
        );
        assert!(parse("crates/io many\n").is_err());
    }
}
