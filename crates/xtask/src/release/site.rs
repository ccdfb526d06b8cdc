// SPDX-License-Identifier: Apache-2.0
//! The documents as a site with a search, and beside it the reference of the Rust libraries.
//!
//! Documents name each other as `docs/cache/sizing.md`; here these names become links. MkDocs,
//! which fails on a dead link, makes the pages. The release and `cargo xtask site` call it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Workspace, run};

/// Pages of the root, and their names in the site.
const ROOT: [(&str, &str); 4] = [
    ("README.md", "index.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("CONTRIBUTING.md", "CONTRIBUTING.md"),
    ("SECURITY.md", "SECURITY.md"),
];
/// Libraries whose reference is in the site.
const LIBRARIES: [&str; 3] = ["senko_store", "senko_dbm", "senko_ssd"];
const SETTINGS: &str = "\
site_name: Senko
theme: {name: readthedocs, highlightjs: false}
use_directory_urls: false
markdown_extensions: [tables, fenced_code]
plugins: [search]
validation: {omitted_files: ignore, absolute_links: warn, unrecognized_links: warn, anchors: warn}
extra_css: [site.css]
";
const STYLE: &str =
    ".wy-nav-content { max-width: 60rem } .wy-table-responsive table td { white-space: normal }\n";

/// Builds the documents as a site below `work`, and gives its folder.
pub fn pages(workspace: &Workspace, python: &Path, work: &Path) -> Result<PathBuf> {
    let (pages, site) = (work.join("pages"), work.join("site"));
    let mut names = Vec::new();
    documents(&workspace.root.join("docs"), Path::new(""), &mut names)?;
    for (from, to) in ROOT {
        put(workspace, &pages, from, Path::new(to))?;
    }
    for name in &names {
        put(workspace, &pages, &format!("docs/{}", name.display()), name)?;
    }
    fs::write(pages.join("site.css"), STYLE)?;
    let settings = work.join("mkdocs.yml");
    let folders = format!(
        "docs_dir: {}\nsite_dir: {}\n",
        pages.display(),
        site.display()
    );
    fs::write(&settings, SETTINGS.to_owned() + &folders)?;
    let mut build = Command::new(python);
    build.args([
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--config-file",
    ]);
    if !run::show(build.arg(&settings))?.ok {
        bail!("the site was not built");
    }
    Ok(site)
}

/// Builds the reference of the libraries into a site.
pub fn reference(workspace: &Workspace, site: &Path) -> Result<()> {
    let line = format!("doc --no-deps --locked -p {}", LIBRARIES.join(" -p "));
    if !run::show(&mut workspace.cargo(&line))?.ok {
        bail!("the reference of the libraries was not built");
    }
    let copied = Command::new("cp")
        .arg("-r")
        .arg(workspace.target.join("doc"))
        .arg(site.join("rust"))
        .status()?;
    if !copied.success() {
        bail!("the reference of the libraries was not copied");
    }
    Ok(())
}

/// The files below a folder, as paths from it.
fn documents(folder: &Path, below: &Path, names: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => documents(&entry.path(), &name, names)?,
            false => names.push(name),
        }
    }
    Ok(())
}

/// Copies a file to the pages, documents with links.
fn put(workspace: &Workspace, pages: &Path, from: &str, to: &Path) -> Result<()> {
    let source = workspace.root.join(from);
    let target = pages.join(to);
    fs::create_dir_all(target.parent().context("a page is in a folder")?)?;
    if to.extension().is_none_or(|end| end != "md") {
        fs::copy(source, target)?;
        return Ok(());
    }
    let text = fs::read_to_string(&source).with_context(|| format!("cannot read {from}"))?;
    let up = "../".repeat(to.components().count() - 1);
    fs::write(target, linked(&text, &up, &workspace.root))?;
    Ok(())
}

/// A document in which names of documents are links. `up` leads to the site's root.
fn linked(text: &str, up: &str, root: &Path) -> String {
    let mut whole = String::new();
    let (mut fenced, mut before) = (false, "");
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        // A list is a list for MkDocs only behind an empty line.
        let item = |line: &str| line.starts_with("- ");
        if !fenced && item(line) && !before.is_empty() && !item(before) && !before.starts_with(' ')
        {
            whole.push('\n');
        }
        before = line;
        let code = fenced || line.starts_with("    ");
        let mut parts = line.split('`').enumerate().peekable();
        while let Some((at, part)) = parts.next() {
            let place =
                page_of(part, root).filter(|_| at % 2 == 1 && !code && parts.peek().is_some());
            match (place, at % 2) {
                (Some(place), _) => whole += &format!("[`{part}`]({up}{place})"),
                (None, 1) => {
                    whole += &format!("`{part}");
                    if parts.peek().is_some() {
                        whole.push('`');
                    }
                }
                _ => whole += part,
            }
        }
        whole.push('\n');
    }
    whole
}

/// The page of a name in the text.
fn page_of(name: &str, root: &Path) -> Option<String> {
    if let Some((_, page)) = ROOT.iter().find(|(from, _)| *from == name) {
        return Some((*page).to_owned());
    }
    let page = name
        .strip_prefix("docs/")
        .filter(|page| page.ends_with(".md"))?;
    root.join(name).is_file().then(|| page.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_documents_become_links() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = "See `docs/cache/sizing.md`, `docs/no.md` and `README.md`.\n    `docs/cache/sizing.md`\nAn odd ` stays.\n";
        let wanted = "See [`docs/cache/sizing.md`](../cache/sizing.md), `docs/no.md` and \
                      [`README.md`](../index.md).\n    `docs/cache/sizing.md`\nAn odd ` stays.\n";
        assert_eq!(linked(text, "../", &root), wanted);
        assert_eq!(
            linked("Some:\n- one\n- two\n", "", &root),
            "Some:\n\n- one\n- two\n"
        );
    }
}
