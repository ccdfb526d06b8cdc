// SPDX-License-Identifier: Apache-2.0
//! How source files begin, and where `unsafe` is.

use crate::complain;
use crate::tree::{File, files, read, rust_files};

const LICENCE: &str = "SPDX-License-Identifier: Apache-2.0";

#[test]
fn every_source_file_says_what_it_is() {
    let mut complaints = Vec::new();
    for file in rust_files() {
        let mut lines = file.text.lines();
        if lines.next() != Some(&format!("// {LICENCE}")) {
            complaints.push(format!("{} does not open with the licence line", file.path));
        }
        // A fuzz target begins with an attribute that must come first.
        if !lines.take(3).any(|l| l.starts_with("//! ")) {
            complaints.push(format!(
                "{} has no //! line that says what it is",
                file.path
            ));
        }
    }
    for file in files().iter().filter(|f| f.path.ends_with(".py")) {
        let mut lines = file.text.lines();
        if lines.next() != Some(&format!("# {LICENCE}"))
            || !lines.next().is_some_and(|l| l.starts_with("\"\"\""))
        {
            complaints.push(format!(
                "{} does not open with the licence line and a docstring",
                file.path
            ));
        }
    }
    let c = |f: &&File| [".c", ".cc", ".h"].iter().any(|end| f.path.ends_with(end));
    for file in files().iter().filter(c) {
        if !file
            .text
            .lines()
            .next()
            .is_some_and(|l| l.contains(LICENCE))
        {
            complaints.push(format!("{} does not open with the licence line", file.path));
        }
    }
    complain("how files open", complaints);
}

#[test]
fn a_module_with_children_is_a_file_beside_their_folder() {
    let complaints = rust_files()
        .into_iter()
        .filter_map(|f| Some(f.path.strip_suffix("/mod.rs")?.to_owned()))
        .map(|folder| format!("{folder}/mod.rs should be {folder}.rs"));
    complain("module layout", complaints.collect());
}

/// A comment above a module begins a group of several.
#[test]
fn a_gloss_stands_behind_its_module() {
    let is_module = |line: &str| {
        let item = line.trim_start().strip_suffix(';').unwrap_or_default();
        item.starts_with("mod ") || item.starts_with("pub") && item.contains(" mod ")
    };
    let mut complaints = Vec::new();
    for file in rust_files() {
        let lines: Vec<&str> = file.text.lines().collect();
        for (number, three) in lines.windows(3).enumerate() {
            let alone = three[2].is_empty() || three[2].trim_start().starts_with("// ");
            if three[0].trim_start().starts_with("// ") && is_module(three[1]) && alone {
                let module = three[1].trim();
                complaints.push(format!("{}:{}: {module}", file.path, number + 2));
            }
        }
    }
    complain("glosses above their module", complaints);
}

#[test]
fn nothing_names_a_machine() {
    // Assembled here, so that this file does not match.
    let roots = ["work", "farm", "root", "home"].map(|r| format!("/{r}/"));
    let mut complaints = Vec::new();
    for file in files().iter().filter(|f| f.path != "Cargo.lock") {
        for (number, line) in file.text.lines().enumerate() {
            let named = roots.iter().any(|root| {
                line.match_indices(root.as_str()).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-*>})".contains(c))
                })
            });
            if named {
                complaints.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    complain("paths of a machine", complaints);
}

/// Calls that write to stderr or stdout and panic or wait if nobody reads.
const PRINTS: [&str; 5] = [
    "println!(",
    "print!(",
    "dbg!(",
    "io::stdout()",
    "io::stderr()",
];

/// Files that may use them anyway.
const MAY_PRINT: [&str; 4] = [
    "crates/io/src/say.rs",
    "crates/io/src/out.rs",
    // There stdout is the pipe to the experiment.
    "lab/experiments/src/kv/child.rs",
    // Uses only the lab of our crates; an error of the write is ignored.
    "lab/rivals/src/main.rs",
];

/// `senko serve 2>/dev/full` used to end with a panic at the first warning, and so did
/// `senko ssd run ... 2>&1 | head -1`: `eprintln!` panics if stderr cannot be written to.
#[test]
fn what_is_said_goes_through_say_and_out() {
    let programs = |f: &File| {
        (f.path.starts_with("crates/") || f.path.starts_with("lab/"))
            && f.path.contains("/src/")
            && !f.path.starts_with("crates/xtask/")
            && !f.path.contains("tests")
            && !MAY_PRINT.contains(&f.path.as_str())
    };
    let mut complaints = Vec::new();
    for file in rust_files().into_iter().filter(programs) {
        let code = file
            .text
            .split("#[cfg(test)]\nmod")
            .next()
            .unwrap_or_default();
        for (number, line) in code
            .split("#[cfg(test)]\n#[allow")
            .next()
            .unwrap_or_default()
            .lines()
            .enumerate()
        {
            let line = line.split("//").next().unwrap_or(line);
            if PRINTS.iter().any(|print| line.contains(print)) {
                complaints.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    complain(
        "prints that can panic: senko_io::{note, tell, bar} and out::stdout() do not",
        complaints,
    );
}

/// The section of docs/architecture/overview.md that lists the modules that may be unsafe, one path
/// for each bullet.
const SECTION: &str = "Where unsafe is allowed";

#[test]
fn unsafe_stands_only_where_the_architecture_allows_it() {
    let architecture = read("docs/architecture/overview.md");
    let section = architecture
        .split("\n#")
        .find(|s| s.trim_start_matches('#').trim_start().starts_with(SECTION))
        .unwrap_or_else(|| panic!("docs/architecture/overview.md has no section {SECTION:?}"));
    let allowed: Vec<&str> = section
        .lines()
        .filter_map(|l| l.trim_start().strip_prefix("- `"))
        .filter_map(|l| l.split_once('`'))
        .map(|(p, _)| p)
        .collect();
    let unsafe_files: Vec<String> = rust_files()
        .into_iter()
        // This file has the word in its own test texts.
        .filter(|f| {
            ["crates/", "bindings/", "lab/"]
                .iter()
                .any(|at| f.path.starts_with(at))
        })
        .filter(|f| f.path != file!())
        .filter(uses_unsafe)
        .map(|f| f.path)
        .collect();
    let mut complaints = Vec::new();
    for path in unsafe_files
        .iter()
        .filter(|p| !allowed.contains(&p.as_str()))
    {
        complaints.push(format!("{path} is unsafe and not listed"));
    }
    for path in allowed
        .iter()
        .filter(|p| !unsafe_files.iter().any(|f| f == *p))
    {
        complaints.push(format!("{path} is listed and not unsafe"));
    }
    complain(
        &format!("docs/architecture/overview.md, {SECTION:?}"),
        complaints,
    );
}

/// Whether the keyword is in code: outside comments, and not as a part of the names of lints.
fn uses_unsafe(file: &File) -> bool {
    file.text
        .lines()
        .map(|l| l.split("//").next().unwrap_or(l))
        .any(|code| {
            code.match_indices("unsafe").any(|(at, word)| {
                let after = &code[at + word.len()..];
                let before = &code[..at];
                !before.ends_with(|c: char| c.is_alphanumeric() || "_\"".contains(c))
                    && after.trim_start().starts_with(['{', 'f', 'i', 'e', 't'])
                    && after.starts_with(' ')
            })
        })
}

#[test]
fn the_keyword_is_told_from_words() {
    let uses = |text: &str| {
        uses_unsafe(&File {
            path: String::new(),
            text: text.to_owned(),
        })
    };
    assert!(uses("let x = unsafe { f() };"));
    assert!(uses("pub unsafe fn f() {}"));
    assert!(uses("unsafe impl Send for X {}"));
    assert!(!uses("#![deny(unsafe_code)]"));
    assert!(!uses("// unsafe { here }"));
    assert!(!uses("//! unsafe fn in words"));
}
