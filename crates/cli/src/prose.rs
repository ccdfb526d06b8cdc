// SPDX-License-Identifier: Apache-2.0
//! Stdout for the commands that print prose, with long lines folded in a terminal.

use std::io::{self, Write};

use senko_io::out::{self, Out};

/// The columns of a terminal, at least.
pub const COLUMNS: usize = 80;

/// Stdout for lines that people read. A terminal gets long lines in several, broken between words;
/// a pipe or a file gets them as they are.
#[derive(Debug)]
pub struct Prose {
    to: Out,
    folds: bool,
    /// The beginning of a line.
    begun: Vec<u8>,
}

/// Stdout for prose.
pub fn stdout() -> Prose {
    let to = out::stdout();
    Prose {
        folds: to.is_terminal(),
        begun: Vec::new(),
        to,
    }
}

impl Write for Prose {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.folds {
            return self.to.write(bytes);
        }
        self.begun.extend_from_slice(bytes);
        if let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') {
            let lines: Vec<u8> = self.begun.drain(..=end).collect();
            let text = folded(&String::from_utf8_lossy(&lines));
            self.to.write_all(text.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        self.to.write_all(&begun)?;
        self.to.flush()
    }
}

impl Drop for Prose {
    fn drop(&mut self) {
        // What was not flushed has no error to tell.
        let _ = self.flush();
    }
}

/// The text with lines of at most [`COLUMNS`] letters, except rows of tables, objects and long
/// words. What follows a line begins under the line's last column of text.
fn folded(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        if line.trim_end().chars().count() <= COLUMNS || line.starts_with(['|', '{']) {
            out.push_str(line);
            continue;
        }
        let first = line.len() - line.trim_start().len();
        let begins = |&column: &usize| {
            line.is_char_boundary(column)
                && line[..column].ends_with("  ")
                && !line[column..].starts_with(' ')
        };
        let mut under = (2..=COLUMNS / 2).filter(begins);
        let under = under.next_back().unwrap_or(first).max(first);
        let (head, rest) = line.split_at(under);
        let (indent, mut column) = (head.chars().count(), head.chars().count());
        out.push_str(head);
        for (nth, word) in rest.split(' ').enumerate() {
            let letters = word.trim_end().chars().count();
            if column > indent && column + 1 + letters > COLUMNS {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                column = indent;
            } else if nth > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += letters;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terminals broke lines of `senko ssd parts` and `senko plan` inside words.
    #[test]
    fn long_lines_break_between_words_and_keep_their_column() {
        let line = format!(
            "kind     name    {}\nshort  line\n",
            "word ".repeat(30).trim_end()
        );
        let text = folded(&line);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(lines.iter().all(|line| !line.ends_with(' ')), "{text:?}");
        assert!(lines[0].starts_with("kind     name    word word"), "{text}");
        let [.., last, short] = &lines[..] else {
            panic!("{text}");
        };
        assert!(
            last.starts_with(&format!("{}word", " ".repeat(17))),
            "{text}"
        );
        assert_eq!((*short, text.matches("word").count()), ("short  line", 30));
        let table = format!("| {} |\n", "cell ".repeat(30));
        let plain = format!("{}\n", "letters".repeat(30));
        for whole in [&table, &plain, &"fits  \n".to_owned(), &String::new()] {
            assert_eq!(folded(whole), **whole);
        }
        let deep = folded(&format!("  {}\n", "one two ".repeat(20).trim_end()));
        assert!(
            deep.lines()
                .all(|line| line.starts_with("  o") || line.starts_with("  t")),
            "{deep}"
        );
    }
}
