// SPDX-License-Identifier: Apache-2.0
//! Finds the examples: every `senko` command in a document's code and in a help text's Examples.
//!
//! The binary's own tests parse each, and `super` runs them.

use std::path::{Path, PathBuf};

/// Commands that belong together: one uses the results of those before it.
pub struct Block {
    /// The file with the line, or the command with the help text.
    pub place: String,
    /// The commands, without prompts and comments.
    pub commands: Vec<String>,
}

/// Whether a shell line calls senko.
fn calls_senko(line: &str) -> bool {
    line.split(['|', ';', '&']).any(|part| {
        let mut words = part
            .split_whitespace()
            .skip_while(|word| matches!(*word, "sudo" | "taskset" | "-c" | "0" | "1"));
        words.next() == Some("senko")
    })
}

/// A command up to its explanation, which begins after two or more spaces outside of quotes.
fn command_of(line: &str) -> String {
    let (mut quoted, mut spaces) = (None, 0);
    for (at, letter) in line.char_indices() {
        match (letter, quoted) {
            ('\'' | '"', None) => quoted = Some(letter),
            (letter, Some(open)) if letter == open => quoted = None,
            (' ', None) => {
                spaces += 1;
                if spaces == 2 {
                    return line[..at].trim_end().to_owned();
                }
                continue;
            }
            ('#', None) if spaces > 0 => return line[..at].trim_end().to_owned(),
            _ => {}
        }
        spaces = 0;
    }
    line.trim_end().to_owned()
}

/// A text in which commands that go on behind a backslash are lines.
fn joined(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| whole + part.trim_start())
}

/// The examples of a document: the lines of its code blocks, grouped by block. `[--quick]` marks an
/// optional option.
pub fn of_document(name: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut commands = Vec::new();
    let mut fenced = false;
    let text = joined(text);
    for (number, line) in text.lines().chain([""]).enumerate() {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let code = if fenced {
            Some(line)
        } else {
            line.strip_prefix("    ")
        };
        let Some(code) = code else {
            if !commands.is_empty() && !line.trim().is_empty() || line.is_empty() && number > 0 {
                end(&mut blocks, &mut commands, name, number);
            }
            continue;
        };
        let code = code.strip_prefix("$ ").unwrap_or(code);
        if calls_senko(code) {
            commands.push(command_of(&code.replace(['[', ']'], "")));
        }
    }
    end(&mut blocks, &mut commands, name, text.lines().count());
    blocks
}

fn end(blocks: &mut Vec<Block>, commands: &mut Vec<String>, name: &str, line: usize) {
    if !commands.is_empty() {
        blocks.push(Block {
            place: format!("{name}, above line {}", line + 1),
            commands: std::mem::take(commands),
        });
    }
}

/// The examples of a help text: the lines after `Examples:` that are indented by two.
pub fn of_help(name: &str, text: &str) -> Option<Block> {
    let (_, examples) = text.split_once("Examples:\n")?;
    let examples = joined(examples);
    let commands: Vec<String> = examples
        .lines()
        .filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '))
        })
        .map(command_of)
        .collect();
    Some(Block {
        place: format!("the help of {name}"),
        commands,
    })
}

/// README and all documents, with the folder of the sources.
pub fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    let mut folders: Vec<PathBuf> = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    };
    files.iter().map(read).collect()
}
