// SPDX-License-Identifier: Apache-2.0
//! The flat text format of Berkeley DB's `db_dump` and `db_load`, and of LMDB's `mdb_dump` and
//! `mdb_load`.
//!
//! A table is a head of `name=value` lines from `VERSION=3` to `HEADER=END`. Then come a line for
//! each key and one for its value, each after a space, and `DATA=END`. Bytes are hexadecimal digits
//! (`format=bytevalue`), or text with `\xx` for unprintable bytes (`format=print`). Several tables
//! follow each other, each with its `database=NAME`.

use std::io::{self, Write};

use super::rows::{Lines, Row};
use crate::store::text::{Encoding, shorten};

/// The head of a table.
struct Head {
    table: Option<String>,
    text: bool,
}

/// Reads tables one after the other.
pub struct Reader {
    lines: Lines,
    /// The head of the table that is being read.
    head: Option<Head>,
    tables: Vec<Option<String>>,
    last: Option<Vec<u8>>,
}

fn from_text(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        if text.get(at) == Some(&b'\\') {
            bytes.push(b'\\');
            at += 1;
            continue;
        }
        let digits = text.get(at..at + 2).unwrap_or_default();
        match Encoding::Hex.decode(digits).as_deref() {
            Ok([byte]) => bytes.push(*byte),
            _ => return Err("after a backslash comes neither another nor two digits".to_owned()),
        }
        at += 2;
    }
    Ok(bytes)
}

impl Reader {
    pub fn new(lines: Lines) -> Reader {
        Reader {
            lines,
            head: None,
            tables: Vec::new(),
            last: None,
        }
    }

    pub fn line(&self) -> u64 {
        self.lines.count()
    }

    pub fn tables(&self) -> &[Option<String>] {
        &self.tables
    }

    /// Reads a head; `None` at the end of the input.
    fn head(&mut self) -> Result<Option<Head>, String> {
        let Some(line) = self.lines.next()? else {
            return match self.tables.is_empty() {
                true => Err("the input is empty, and has no VERSION=".to_owned()),
                false => Ok(None),
            };
        };
        if line != b"VERSION=3" {
            let found = shorten(line);
            return Err(format!("VERSION=3 was expected, not \"{found}\""));
        }
        let mut seen: Vec<Vec<u8>> = vec![b"VERSION".to_vec()];
        let (mut table, mut text) = (None, false);
        loop {
            let Some(line) = self.lines.next()? else {
                return Err("the input ends before HEADER=END".to_owned());
            };
            if line == b"HEADER=END" {
                break;
            }
            let Some(split) = line.iter().position(|byte| *byte == b'=') else {
                let found = shorten(line);
                return Err(format!("\"{found}\" is not a line NAME=VALUE of a head"));
            };
            let (name, value) = (line[..split].to_vec(), &line[split + 1..]);
            match (&name[..], value) {
                (b"database" | b"subdatabase", _) => {
                    let name = String::from_utf8(from_text(value)?);
                    table = Some(name.map_err(|_| "the table's name is not UTF-8".to_owned())?);
                }
                (b"format", b"print") => text = true,
                (b"format", b"bytevalue") => {}
                (b"type", b"btree" | b"hash") | (b"keys", b"1") => {}
                (b"format" | b"type" | b"keys", _) => {
                    let found = shorten(line);
                    return Err(format!("{found}: only tables with keys can be loaded"));
                }
                // Page sizes and the like, which have no meaning here.
                _ => {}
            }
            if seen.contains(&name) {
                return Err(format!("\"{}\" is there twice", shorten(&name)));
            }
            seen.push(name);
        }
        if self.tables.contains(&table) {
            return Err(match table {
                Some(name) => format!("the table {name:?} is there twice"),
                None => "there are two tables without a name".to_owned(),
            });
        }
        self.tables.push(table.clone());
        self.last = None;
        Ok(Some(Head { table, text }))
    }

    fn bytes(&mut self, text: bool) -> Result<Option<Vec<u8>>, String> {
        let line = self.lines.next()?;
        match line {
            None => Err("the input ends before DATA=END".to_owned()),
            Some(b"DATA=END") => Ok(None),
            Some([b' ', line @ ..]) if text => from_text(line).map(Some),
            Some([b' ', line @ ..]) => Encoding::Hex.decode(line).map(Some),
            Some(line) => {
                let found = shorten(line);
                Err(format!("a line of data begins with a space: \"{found}\""))
            }
        }
    }

    pub fn next(&mut self) -> Result<Option<Row>, String> {
        loop {
            if self.head.is_none() {
                self.head = self.head()?;
            }
            let Some(head) = &self.head else {
                return Ok(None);
            };
            let (text, table) = (head.text, head.table.clone());
            let Some(key) = self.bytes(text)? else {
                self.head = None;
                continue;
            };
            let line = self.line();
            let Some(value) = self.bytes(text)? else {
                return Err(format!("the key of line {line} has no value"));
            };
            if self.last.as_ref() == Some(&key) {
                return Err(format!(
                    "the key of line {line} has a second value, and a table holds one for each key"
                ));
            }
            self.last = Some(key.clone());
            return Ok(Some(Row {
                table,
                key,
                value,
                expires: false,
            }));
        }
    }
}

pub fn head(out: &mut impl Write, table: Option<&str>, text: bool) -> io::Result<()> {
    let format = if text { "print" } else { "bytevalue" };
    write!(out, "VERSION=3\nformat={format}\n")?;
    if let Some(table) = table {
        write!(out, "database=")?;
        escaped(out, table.as_bytes())?;
        writeln!(out)?;
    }
    out.write_all(b"type=btree\nHEADER=END\n")
}

fn escaped(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for &byte in bytes {
        match byte {
            b'\\' => out.write_all(b"\\\\")?,
            b' '..=b'~' => out.write_all(&[byte])?,
            byte => write!(out, "\\{byte:02x}")?,
        }
    }
    Ok(())
}

/// Writes a key or a value.
pub fn bytes(out: &mut impl Write, bytes: &[u8], text: bool) -> io::Result<()> {
    out.write_all(b" ")?;
    if text {
        escaped(out, bytes)?;
    } else {
        let mut digits = Vec::with_capacity(2 * bytes.len());
        Encoding::Hex.encode(bytes, &mut digits);
        out.write_all(&digits)?;
    }
    out.write_all(b"\n")
}

/// Ends a table.
pub fn tail(out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"DATA=END\n")
}
