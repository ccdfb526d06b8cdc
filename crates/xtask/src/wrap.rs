// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask wrap`: wraps comments of Rust and Python, docstrings, and paragraphs of Markdown at
//! 100 columns.
//!
//! Only a paragraph with a line that is too long is wrapped again, so a change stays small. Tables,
//! code, headings and drawings in fences are not changed. Python's code is broken by hand: the
//! command names a line of it that is too long. A test runs `--check`, which changes nothing.

mod python; // comments and docstrings of Python

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Columns of a line.
const WIDTH: usize = 100;

/// Folders and files that were not wrapped yet. Remove an entry when you wrap its files.
const NOT_YET: &[&str] = &[];

/// Where Python's code has lines that are too long. Remove a folder when you break its lines.
const CODE_NOT_YET: &[&str] = &["tests/"];

/// Folders that are not part of the tree.
const LEFT_OUT: [&str; 4] = ["target", "senko-data", "corpus", "artifacts"];

/// Runs the command on these files and folders, or on all that were wrapped before. With `--check`
/// it prints the files that are not wrapped, and is true if there are none.
pub fn wrap(args: &[String]) -> Result<bool> {
    let root = crate::root()?;
    let (options, paths): (Vec<&String>, Vec<&String>) =
        args.iter().partition(|arg| arg.starts_with('-'));
    if let Some(option) = options.iter().find(|option| **option != "--check") {
        bail!("`cargo xtask wrap` takes no {option:?}");
    }
    let check = !options.is_empty();
    let mut files = Vec::new();
    if paths.is_empty() {
        find(root, &mut files)?;
    }
    for path in &paths {
        find(&root.join(path), &mut files)?;
    }
    files.sort();
    let mut ok = true;
    for file in files {
        let shown = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let wrapped = wrapped(&shown, &text);
        let is_code =
            is_python(&shown) && !CODE_NOT_YET.iter().any(|start| shown.starts_with(start));
        if let Some(line) = python::long_line(&wrapped).filter(|_| is_code) {
            tell!("{shown}:{line}: break this line of more than {WIDTH} columns");
            ok = false;
        }
        if wrapped == text {
            continue;
        }
        if paths.is_empty() && NOT_YET.iter().any(|start| shown.starts_with(start)) {
            continue;
        }
        if check {
            let first = text.lines().zip(wrapped.lines()).position(|(a, b)| a != b);
            tell!(
                "{shown}:{}: `cargo xtask wrap` wraps it",
                first.unwrap_or(0) + 1
            );
            ok = false;
        } else {
            std::fs::write(&file, wrapped)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(ok)
}

fn is_python(path: &str) -> bool {
    [".py", ".pyi"].iter().any(|end| path.ends_with(end))
}

/// The files of Rust, Python and Markdown at a path, or below it.
fn find(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        let name = path.to_string_lossy();
        if [".rs", ".md"].iter().any(|end| name.ends_with(end)) || is_python(&name) {
            files.push(path.to_path_buf());
        }
        return Ok(());
    }
    for entry in
        std::fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?
    {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_build = entry.path().join("CACHEDIR.TAG").exists();
        if !name.starts_with('.') && !LEFT_OUT.contains(&name.as_str()) && !is_build {
            find(&entry.path(), files)?;
        }
    }
    Ok(())
}

/// A file's text, wrapped.
fn wrapped(path: &str, text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    if path.ends_with(".md") {
        return paragraphs(&lines, "").join("\n");
    }
    if is_python(path) {
        return python::wrapped(text);
    }
    let mut out = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(prefix) = comment(lines[at]) else {
            out.push(lines[at].to_owned());
            at += 1;
            continue;
        };
        let same = |line: &&&str| comment(line) == Some(prefix);
        let count = lines[at..].iter().take_while(same).count();
        let contents: Vec<&str> = lines[at..at + count]
            .iter()
            .map(|l| &l[prefix.len()..])
            .collect();
        out.extend(paragraphs(&contents, prefix));
        at += count;
    }
    out.join("\n")
}

/// The blanks and slashes that a line of comment begins with.
fn comment(line: &str) -> Option<&str> {
    let start = line.len() - line.trim_start().len();
    let marks = ["//!", "///", "//"];
    let mark = marks
        .iter()
        .find(|mark| line[start..].starts_with(**mark))?;
    let end = start + mark.len();
    (!line[end..].starts_with('/') && !line.contains("SPDX")).then_some(&line[..end])
}

/// Wraps the paragraphs of a document or a comment; `prefix` stands before each line.
fn paragraphs(lines: &[&str], prefix: &str) -> Vec<String> {
    let mut out = Vec::new();
    let (mut at, mut fenced) = (0, false);
    while at < lines.len() {
        let line = lines[at];
        // In a comment a blank stands before the text.
        let blank = if prefix.is_empty() { "" } else { " " };
        let text = line.strip_prefix(blank).unwrap_or(line);
        let start = indent(text);
        let item = item(text);
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if is_fence || fenced || ends_paragraph(line) || (start >= 4 && item.is_none()) {
            out.push(format!("{prefix}{line}"));
            at += 1;
            continue;
        }
        let first = item.unwrap_or(start);
        let belongs = |next: &str| {
            let next = next.strip_prefix(blank).unwrap_or(next);
            let fits = match item {
                Some(hang) => indent(next) == hang,
                None => indent(next) == start,
            };
            fits && self::item(next).is_none() && !is_card(next)
        };
        let mut end = at + 1;
        while end < lines.len() && !ends_paragraph(lines[end]) && belongs(lines[end]) {
            end += 1;
        }
        let paragraph = &lines[at..end];
        let is_long = |line: &&str| prefix.len() + line.chars().count() > WIDTH;
        if paragraph.iter().any(is_long) {
            let rest = paragraph[1..].iter().map(|line| line.trim().to_owned());
            let joined: Vec<String> = [text[first..].to_owned()].into_iter().chain(rest).collect();
            let head = format!("{prefix}{blank}{}", &text[..first]);
            let hang = format!("{prefix}{blank}{}", " ".repeat(first));
            out.extend(fill(&joined.join(" "), head, &hang));
        } else {
            out.extend(paragraph.iter().map(|line| format!("{prefix}{line}")));
        }
        at = end;
    }
    out
}

/// Whether a line is not a line of a paragraph: empty, of a table, a heading, HTML or a link's
/// target.
fn ends_paragraph(line: &str) -> bool {
    let line = line.trim();
    line.is_empty()
        || ["|", "#", "<", "```"]
            .iter()
            .any(|start| line.starts_with(start))
        || (line.starts_with('[') && line.contains("]: "))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Where the text of a list's item begins, if this is one.
fn item(line: &str) -> Option<usize> {
    let start = indent(line);
    let mark = line[start..].split(' ').next()?;
    let number = mark.strip_suffix(['.', ')']).unwrap_or_default();
    let numbered = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let end = start + mark.len();
    let text = end + indent(&line[end..]);
    ((["-", "*", "+"].contains(&mark) || numbered) && text > end).then_some(text)
}

/// Whether a line begins as those of an algorithm's card do: `Idea: ...`.
fn is_card(line: &str) -> bool {
    let Some((word, rest)) = line.split_once(':') else {
        return false;
    };
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_uppercase)
        && word.len() > 1
        && letters.all(char::is_lowercase)
        && rest.starts_with(' ')
}

/// Words, filled into lines. Text between backticks is one word.
fn fill(text: &str, head: String, hang: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    for part in text.split(' ') {
        match words.last_mut() {
            Some(word) if open => {
                word.push(' ');
                word.push_str(part);
            }
            _ if part.is_empty() => {}
            _ => words.push(part.to_owned()),
        }
        open ^= part.matches('`').count() % 2 == 1;
    }
    let mut lines = Vec::new();
    let (mut line, mut is_new) = (head, true);
    for word in words {
        let columns = line.chars().count() + 1 + word.chars().count();
        // A word that would begin an item or a heading never begins a line.
        let begins = item(&format!("{word} x")).is_some() || word.starts_with(['#', '|', '>', '<']);
        if columns > WIDTH && !is_new && !begins {
            lines.push(std::mem::replace(&mut line, hang.to_owned()));
            is_new = true;
        }
        if !is_new {
            line.push(' ');
        }
        line.push_str(&word);
        is_new = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sentences of 140 columns.
    fn long(word: &str) -> String {
        vec![word; 140 / (word.len() + 1)].join(" ")
    }

    #[test]
    fn a_long_paragraph_is_wrapped_and_a_short_one_stays() {
        let text = format!(
            "    /// {}\n    /// more.\n    fn f() {{}}\n// a\n// b\n",
            long("word")
        );
        let wrapped = wrapped("a.rs", &text);
        assert!(
            wrapped.lines().all(|line| line.chars().count() <= WIDTH),
            "{wrapped}"
        );
        assert!(
            wrapped.ends_with("word more.\n    fn f() {}\n// a\n// b\n"),
            "{wrapped}"
        );
        assert_eq!(
            wrapped.matches("word").count(),
            text.matches("word").count()
        );
        assert_eq!(super::wrapped("a.rs", &wrapped), wrapped);
    }

    #[test]
    fn items_hang_and_cards_stay_apart() {
        let text = format!(
            "- {}\n- short\n\nIdea: {}\nSource: it.\n",
            long("one"),
            long("two")
        );
        let wrapped = wrapped("a.md", &text);
        let lines: Vec<&str> = wrapped.lines().collect();
        assert!(
            lines[1].starts_with("  one") && lines[2] == "- short",
            "{wrapped}"
        );
        assert_eq!(lines.last(), Some(&"Source: it."));
    }

    #[test]
    fn tables_code_and_headings_stay() {
        let long = long("cell");
        for text in [
            format!("| {long} |\n"),
            format!("# {long}\n"),
            format!("```text\n{long}\n```\n"),
            format!("    {long}\n"),
            format!("[a]: {long}\n"),
        ] {
            assert_eq!(wrapped("a.md", &text), text);
        }
    }

    #[test]
    fn no_line_begins_as_an_item_and_no_code_is_cut() {
        let text = format!("{} - and `some code with blanks` 3. end\n", "x".repeat(96));
        let wrapped = wrapped("a.md", &text);
        let expected = format!("{} -\nand `some code with blanks` 3. end\n", "x".repeat(96));
        assert_eq!(wrapped, expected);
    }
}
