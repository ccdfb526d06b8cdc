// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask circles`: finds files of a crate that import each other in a circle.
//!
//! [`modules`] reads a crate's sources and says which file imports which. This file finds the
//! circles. A test runs the same command, so a circle fails.

mod modules; // which file of a crate imports which

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use modules::Imports;

/// Files that import each other in a circle.
type Circle = BTreeSet<String>;

/// Runs the command: prints the circles of the crates named, or of all. True if there are none.
pub fn circles(names: &[String]) -> Result<bool> {
    let root = crate::root()?;
    let mut crates = crates(root)?;
    for name in names {
        if !crates.iter().any(|c| c.name == *name) {
            bail!("there is no crate {name:?} below crates/, bindings/ or lab/");
        }
    }
    if !names.is_empty() {
        crates.retain(|c| names.contains(&c.name));
    }
    let mut ok = true;
    for a_crate in &crates {
        let imports = Imports::of(&a_crate.sources)?;
        let found = found(&imports);
        show(&a_crate.name, &imports, &found);
        ok &= found.is_empty();
    }
    Ok(ok)
}

/// A crate: the name of its folder, and the root of its sources.
struct Crate {
    name: String,
    sources: PathBuf,
}

fn crates(root: &Path) -> Result<Vec<Crate>> {
    let mut found = Vec::new();
    for folder in ["crates", "bindings", "lab"] {
        let folder = root.join(folder);
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let roots = ["src/lib.rs", "src/main.rs"].map(|file| entry.path().join(file));
            found.extend(
                roots
                    .into_iter()
                    .filter(|file| file.exists())
                    .map(|file| Crate {
                        name: entry.file_name().to_string_lossy().into_owned(),
                        sources: file,
                    }),
            );
        }
    }
    found.sort_by(|a, b| a.sources.cmp(&b.sources));
    Ok(found)
}

/// The circles: sets of files of which each reaches each other.
fn found(imports: &Imports) -> Vec<Circle> {
    let count = imports.files.len();
    let reached: Vec<BTreeSet<usize>> = (0..count).map(|from| imports.reached(from)).collect();
    let mut circles = BTreeSet::new();
    for file in 0..count {
        let circle: BTreeSet<String> = reached[file]
            .iter()
            .filter(|other| reached[**other].contains(&file))
            .map(|other| imports.files[*other].clone())
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// Prints the circles with the imports that make them.
fn show(name: &str, imports: &Imports, found: &[Circle]) {
    for circle in found {
        tell!("{name}: a circle of {} files", circle.len());
        for (from, to, what) in imports.within(circle) {
            tell!("  {from} -> {to}: {}", what.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(files: &[&str]) -> Circle {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    fn of(files: &[(&str, &str)]) -> Vec<Circle> {
        let folder = std::env::temp_dir().join(format!(
            "senko-circles-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        for (path, text) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let imports = Imports::of(&folder.join("lib.rs")).expect("the sources can be read");
        std::fs::remove_dir_all(&folder).expect("removed");
        found(&imports)
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let lib = "mod a; mod b; mod c;";
        let found = of(&[
            ("lib.rs", lib),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "use super::a; use crate::c::C; pub struct B(Vec<a::A>, C);",
            ),
            ("c.rs", "pub struct C;"),
        ]);
        assert_eq!(found, [circle(&["a.rs", "b.rs"])]);
    }

    #[test]
    fn a_child_may_use_its_parent_and_a_parent_its_child() {
        let found = of(&[
            ("lib.rs", "mod a; pub struct Error; use a::A;"),
            (
                "a.rs",
                "mod inner; use crate::Error; pub struct A; pub use inner::I;",
            ),
            (
                "a/inner.rs",
                "use super::A; use crate::Error; pub struct I(A);",
            ),
        ]);
        assert_eq!(found, Vec::<Circle>::new());
    }

    #[test]
    fn a_name_that_a_parent_hands_on_leads_to_the_file_that_defines_it() {
        let found = of(&[
            ("lib.rs", "mod a; mod b; pub use a::A; use b::B as Bee;"),
            ("a.rs", "use crate::Bee; pub struct A(Bee);"),
            ("b.rs", "use crate::A; pub struct B(Box<A>);"),
        ]);
        assert_eq!(found, [circle(&["a.rs", "b.rs"])]);
        let through_glob = of(&[
            ("lib.rs", "mod a; mod b; pub use a::*; pub use b::*;"),
            ("a.rs", "use crate::B; pub struct A(B);"),
            ("b.rs", "use crate::A; pub struct B(Box<A>);"),
        ]);
        assert_eq!(through_glob, [circle(&["a.rs", "b.rs"])]);
    }

    #[test]
    fn a_path_in_code_or_in_a_macro_is_an_import_too() {
        let found = of(&[
            ("lib.rs", "mod a; mod b; mod c { pub mod d; }"),
            ("a.rs", "pub fn a() { crate::b::b() }"),
            ("b.rs", "pub fn b() { assert!(crate::c::d::d()); }"),
            (
                "c/d.rs",
                "use super::super::a::{self}; pub fn d() -> bool { a::a(); true }",
            ),
        ]);
        assert_eq!(found, [circle(&["a.rs", "b.rs", "c/d.rs"])]);
    }

    #[test]
    fn what_only_tests_import_and_what_comments_name_does_not_count() {
        let found = of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b; pub struct A(b::B);"),
            (
                "b.rs",
                "//! Used by [`crate::a`].\n pub struct B; // crate::a::A\n
                 #[cfg(test)] mod tests { use crate::a::A; }
                 #[cfg(test)] use crate::a::A;",
            ),
        ]);
        assert_eq!(found, Vec::<Circle>::new());
    }
}
