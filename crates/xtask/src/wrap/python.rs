// SPDX-License-Identifier: Apache-2.0
//! Wraps comments and docstrings of Python (called by `wrap.rs`). Examples in docstrings and other
//! strings are not changed. Code is broken by hand: [`long_line`] finds it.

use super::{WIDTH, indent, paragraphs};

const QUOTES: &str = "\"\"\"";

/// A file's text, wrapped.
pub fn wrapped(text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    // A docstring stands at the beginning of a file, and behind a colon.
    let mut may_document = true;
    while at < lines.len() {
        let line = lines[at];
        let code = line.trim_start();
        let count = if let Some(prefix) = comment(line) {
            let same = |line: &&&str| comment(line) == Some(prefix);
            let count = lines[at..].iter().take_while(same).count();
            let contents: Vec<&str> = lines[at..at + count]
                .iter()
                .map(|l| &l[prefix.len()..])
                .collect();
            out.extend(paragraphs(&contents, prefix));
            count
        } else if code.is_empty() || code.starts_with('#') {
            out.push(line.to_owned());
            1
        } else if let Some(count) = docstring(&lines[at..]).filter(|_| may_document) {
            out.extend(document(&lines[at..at + count]));
            may_document = false;
            count
        } else {
            let (count, last) = statement(&lines[at..]);
            out.extend(lines[at..at + count].iter().map(|line| (*line).to_owned()));
            may_document = last == Some(':');
            count
        };
        at += count;
    }
    out.join("\n")
}

/// The first line that is longer than a line may be, counted from 1.
pub fn long_line(text: &str) -> Option<usize> {
    let is_long = |line: &str| line.chars().count() > WIDTH;
    text.lines().position(is_long).map(|nth| nth + 1)
}

/// The blanks and the mark that a line of comment begins with.
fn comment(line: &str) -> Option<&str> {
    let end = indent(line) + 1;
    let is = line[end - 1..].starts_with("# ") || &line[end - 1..] == "#";
    (is && !line.contains("SPDX") && !line.contains("# type:")).then(|| &line[..end])
}

/// How many lines a docstring has that begins with the first of these.
fn docstring(lines: &[&str]) -> Option<usize> {
    let first = lines[0].trim_start();
    let text = first.strip_prefix('r').unwrap_or(first);
    let mut text = text.strip_prefix(QUOTES)?;
    for (nth, line) in lines.iter().enumerate() {
        if nth > 0 {
            text = line;
        }
        if let Some((_, behind)) = text.split_once(QUOTES) {
            return behind.is_empty().then_some(nth + 1);
        }
    }
    None
}

/// A docstring, wrapped. Examples stay as they are.
fn document(lines: &[&str]) -> Vec<String> {
    // `paragraphs` expects a blank behind what stands before each line.
    let prefix = " ".repeat(indent(lines[0]).saturating_sub(1));
    let part = |line: &str| line.strip_prefix(&prefix).unwrap_or(line).to_owned();
    let parts: Vec<String> = lines.iter().map(|line| part(line)).collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < parts.len() {
        let is_example = parts[at].trim_start().starts_with(">>>");
        let ends = |line: &String| match is_example {
            true => line.trim().is_empty(),
            // The quotes that stand alone are not words of the text before them.
            false => line.trim_start().starts_with(">>>") || line.trim() == QUOTES,
        };
        let rest = parts[at + 1..].iter().take_while(|line| !ends(line));
        let count = 1 + rest.count();
        let chunk: Vec<&str> = parts[at..at + count].iter().map(String::as_str).collect();
        match is_example {
            true => out.extend(lines[at..at + count].iter().map(|line| (*line).to_owned())),
            false => out.extend(paragraphs(&chunk, &prefix).iter().map(|line| trimmed(line))),
        }
        at += count;
    }
    if lines.len() == 1 && out.len() > 1 {
        // The quotes of a text of several lines stand alone.
        let last = out.pop().unwrap_or_default();
        out.push(last.trim_end_matches('"').to_owned());
        out.push(format!("{}{QUOTES}", " ".repeat(indent(lines[0]))));
    }
    out
}

/// Nothing stands on a line without words.
fn trimmed(line: &str) -> String {
    line.trim_end().to_owned()
}

/// How many lines a line of code has with the strings that begin on it, and its last character
/// that is not a comment.
fn statement(lines: &[&str]) -> (usize, Option<char>) {
    let mut open: Option<&str> = None;
    let mut last = None;
    for (nth, line) in lines.iter().enumerate() {
        let mut rest = *line;
        while let Some(letter) = rest.chars().next() {
            let mut taken = letter.len_utf8();
            match open {
                Some(quotes) if rest.starts_with(quotes) => {
                    (taken, last, open) = (quotes.len(), Some('"'), None);
                }
                None if letter == '#' => break,
                None if letter == '"' || letter == '\'' => {
                    let quotes = ["\"\"\"", "'''", "\"", "'"];
                    let quotes = quotes.into_iter().find(|q| rest.starts_with(q));
                    taken = quotes.map_or(1, str::len);
                    open = quotes;
                }
                _ if letter == '\\' => taken += rest[1..].chars().next().map_or(0, char::len_utf8),
                None if !letter.is_whitespace() => last = Some(letter),
                _ => {}
            }
            rest = &rest[taken..];
        }
        // Only three quotes hold a text of several lines.
        if open.is_none_or(|quotes| quotes.len() == 1) {
            return (nth + 1, last);
        }
    }
    (lines.len(), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(word: &str) -> String {
        vec![word; 140 / (word.len() + 1)].join(" ")
    }

    #[test]
    fn comments_and_docstrings_are_wrapped() {
        let text = format!(
            "\"\"\"{}.\"\"\"\nclass A:\n    def f(self):\n        \"\"\"First.\n\n        {}.\n        \
             \"\"\"\n        # {}\n        return 1\n",
            long("one"),
            long("two"),
            long("three")
        );
        let wrapped = wrapped(&text);
        assert_eq!(long_line(&wrapped), None, "{wrapped}");
        assert!(wrapped.contains("one.\n\"\"\"\nclass A:"), "{wrapped}");
        assert!(wrapped.contains("\n        two two"), "{wrapped}");
        assert!(wrapped.contains("two.\n        \"\"\"\n"), "{wrapped}");
        assert!(wrapped.contains("\n        # three three"), "{wrapped}");
        for (word, text) in [("one", &text), ("two", &text), ("three", &text)] {
            assert_eq!(wrapped.matches(word).count(), text.matches(word).count());
        }
        assert_eq!(super::wrapped(&wrapped), wrapped);
    }

    #[test]
    fn examples_strings_and_code_stay() {
        let long = long("word");
        for text in [
            format!("\"\"\"Short.\n\n>>> {long}\n{long}\n\"\"\"\n"),
            format!("def f():\n    \"\"\"Short.\n\n    >>> f()\n    {long}\n    \"\"\"\n"),
            format!("PROGRAM = \"\"\"\n# {long}\n\"\"\"\nf(\n    \"\"\"{long}\"\"\"\n)\n"),
            format!("x = ':'  # {long}\n\"\"\"{long}\"\"\"\n"),
            format!("x = '''\n\"\"\"{long}\"\"\"\n# {long}'''\n"),
            format!("x = \"\\\"\"\nf(a, # {long}:\n\"\"\"{long}\"\"\")\n"),
        ] {
            assert_eq!(wrapped(&text), text);
            assert!(long_line(&text).is_some());
        }
    }
}
