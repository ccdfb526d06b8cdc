// SPDX-License-Identifier: Apache-2.0
//! The files of the tree, without those that builds and runs leave in it.

use std::path::{Path, PathBuf};

/// Folders and files that are not part of the tree.
const LEFT_OUT: [&str; 8] = [
    ".git",
    "target",
    "senko-data",
    ".venv",
    "__pycache__",
    "corpus",
    "artifacts",
    "node_modules",
];

/// A text file: its path from the root, with `/`, and its text.
pub struct File {
    pub path: String,
    pub text: String,
}

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/xtask is two levels below the root")
        .to_path_buf()
}

/// All text files.
pub fn files() -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), "", &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        found.len() > 50,
        "only {} files were found below {}",
        found.len(),
        root().display()
    );
    found
}

/// The Rust files of the crates.
pub fn rust_files() -> Vec<File> {
    files()
        .into_iter()
        .filter(|f| f.path.ends_with(".rs"))
        .collect()
}

/// One file, which must exist.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<File>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let entry = entry.expect("the folder can be listed");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}/{name}")
        };
        let kind = entry.file_type().expect("the file has a type");
        if kind.is_dir() {
            // A build folder may have any name; cargo marks it.
            if !LEFT_OUT.contains(&name.as_str()) && !entry.path().join("CACHEDIR.TAG").exists() {
                walk(&entry.path(), &path, found);
            }
        } else if kind.is_file()
            // In a worktree of git, `.git` is a file.
            && !LEFT_OUT.contains(&name.as_str())
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            found.push(File { path, text });
        }
    }
}
