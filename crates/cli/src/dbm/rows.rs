// SPDX-License-Identifier: Apache-2.0
//! A record of an input, and the lines that readers of records share.

use std::io::{BufRead, Read};

use senko_dbm::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, MAX_VALUE_BYTES};

/// The most bytes of a line: a value of the greatest size as hexadecimal digits, and a little more.
const MOST_LINE: u64 = 2 * MAX_VALUE_BYTES as u64 + (1 << 20);

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place in the input.
    pub table: Option<String>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// It has a time after which it is gone, which no table keeps.
    pub expires: bool,
}

impl Row {
    /// Refuses a name, key or value that no table accepts, while the line is known.
    pub fn checked(self) -> Result<Row, String> {
        let name = self.table.as_deref().map_or(1, str::len);
        if name == 0 || name > MAX_TABLE_NAME_BYTES {
            return Err(format!(
                "a table's name has 1 to {MAX_TABLE_NAME_BYTES} bytes, not {name}"
            ));
        }
        for (what, bytes, most) in [
            ("key", self.key.len(), MAX_KEY_BYTES),
            ("value", self.value.len(), MAX_VALUE_BYTES),
        ] {
            if bytes > most {
                let text = format!("the {what} has {bytes} bytes; {what}s have at most {most}");
                return Err(text);
            }
        }
        Ok(self)
    }
}

/// Reads lines and counts them.
pub struct Lines {
    from: Box<dyn BufRead>,
    line: Vec<u8>,
    count: u64,
}

impl Lines {
    pub fn new(from: Box<dyn BufRead>) -> Lines {
        Lines {
            from,
            line: Vec::new(),
            count: 0,
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next line, without its end; `None` after the last.
    pub fn next(&mut self) -> Result<Option<&[u8]>, String> {
        self.line.clear();
        let mut limited = (&mut self.from).take(MOST_LINE);
        let read = limited.read_until(b'\n', &mut self.line);
        if read.map_err(|error| format!("cannot read: {error}"))? == 0 {
            return Ok(None);
        }
        self.count += 1;
        if self.line.len() as u64 == MOST_LINE && self.line.last() != Some(&b'\n') {
            return Err("the line is longer than any record".to_owned());
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }
}
