// SPDX-License-Identifier: Apache-2.0
//! CSV as in RFC 4180, over bytes. Fields may be quoted, quoted fields may have any bytes, and
//! lines end in LF or CR LF.
//!
//! A single CR is a byte like any other. [`Reader`] reads back everything that [`write_record`]
//! writes, for any bytes.

use std::io::{self, BufRead, Write};

/// The most bytes of one record.
const MOST: usize = 2 << 30;

/// Reads records one after the other.
pub struct Reader<R> {
    from: R,
    /// Lines begun so far.
    lines: u64,
}

enum State {
    /// At the start of a field.
    Start,
    /// In a field without quotes.
    Bare,
    /// Between quotes.
    Quoted,
    /// After a quote in a quoted field: the field's end, or half of a doubled quote.
    Closed,
}

impl<R: BufRead> Reader<R> {
    pub fn new(from: R) -> Reader<R> {
        Reader { from, lines: 0 }
    }

    /// The line in which the last record ended.
    pub fn line(&self) -> u64 {
        self.lines
    }

    /// Reads a record's fields into `fields`; false at the end. It skips empty lines.
    pub fn record(&mut self, fields: &mut Vec<Vec<u8>>) -> Result<bool, String> {
        fields.clear();
        let mut line = Vec::new();
        let mut state = State::Start;
        let mut field = Vec::new();
        let mut taken = 0;
        loop {
            line.clear();
            let read = self.from.read_until(b'\n', &mut line);
            let read = read.map_err(|error| format!("cannot read: {error}"))?;
            taken += read;
            if taken > MOST {
                return Err("a record is longer than 2 GiB".to_owned());
            }
            if read == 0 {
                return match state {
                    State::Quoted => Err("a quoted field has no end".to_owned()),
                    _ => Ok(false),
                };
            }
            self.lines += 1;
            let inside = matches!(state, State::Quoted);
            let end = line_end(&line);
            if !inside && end == 0 {
                continue;
            }
            for (at, &byte) in line.iter().enumerate() {
                // The end of the line ends the record, unless a quote is open.
                if at >= end && !matches!(state, State::Quoted) {
                    break;
                }
                state = match (state, byte) {
                    (State::Start, b'"') => State::Quoted,
                    (State::Quoted, b'"') => State::Closed,
                    (State::Closed, b'"') => {
                        field.push(b'"');
                        State::Quoted
                    }
                    (State::Quoted, byte) => {
                        field.push(byte);
                        State::Quoted
                    }
                    (_, b',') => {
                        fields.push(std::mem::take(&mut field));
                        State::Start
                    }
                    (State::Closed, _) => {
                        return Err("there is text after a closing quote".to_owned());
                    }
                    (_, byte) => {
                        field.push(byte);
                        State::Bare
                    }
                };
            }
            if matches!(state, State::Quoted) {
                continue;
            }
            fields.push(field);
            return Ok(true);
        }
    }
}

/// Where the line's content ends.
fn line_end(line: &[u8]) -> usize {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line).len()
}

/// Writes a record. Fields are quoted if necessary.
pub fn write_record(out: &mut impl Write, fields: &[&[u8]]) -> io::Result<()> {
    for (nth, field) in fields.iter().enumerate() {
        if nth > 0 {
            out.write_all(b",")?;
        }
        let special = |byte: &u8| matches!(byte, b'"' | b',' | b'\n' | b'\r');
        let alone = fields.len() == 1 && field.is_empty();
        if alone || field.iter().any(special) {
            out.write_all(b"\"")?;
            for part in field.split_inclusive(|&byte| byte == b'"') {
                out.write_all(part)?;
                if part.ends_with(b"\"") {
                    out.write_all(b"\"")?;
                }
            }
            out.write_all(b"\"")?;
        } else {
            out.write_all(field)?;
        }
    }
    out.write_all(b"\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use senko_workload::Rng;

    fn read(text: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, String> {
        let mut reader = Reader::new(text);
        let mut records = Vec::new();
        let mut fields = Vec::new();
        while reader.record(&mut fields)? {
            records.push(fields.clone());
        }
        Ok(records)
    }

    fn fields(record: &[&str]) -> Vec<Vec<u8>> {
        record
            .iter()
            .map(|field| field.as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn the_usual_forms_are_read() {
        let text = b"a,b\r\n\n\"x,\"\"y\"\"\",\n,\"two\r\nlines\"\nlast,one";
        let expected = [
            fields(&["a", "b"]),
            fields(&["x,\"y\"", ""]),
            fields(&["", "two\r\nlines"]),
            fields(&["last", "one"]),
        ];
        assert_eq!(read(text).unwrap(), expected);
        assert!(read(b"\"open").is_err());
        assert!(read(b"\"a\"b").is_err());
        assert_eq!(read(b"").unwrap(), Vec::<Vec<Vec<u8>>>::new());
    }

    #[test]
    fn any_bytes_survive() {
        let mut rng = Rng::new(5);
        let alphabet = b"\",\r\nab\x00\xff";
        let mut records = Vec::new();
        let mut text = Vec::new();
        for _ in 0..2000 {
            let record: Vec<Vec<u8>> = (0..1 + rng.below(3))
                .map(|_| {
                    let length = rng.below(6);
                    (0..length)
                        .map(|_| alphabet[rng.below(8) as usize])
                        .collect()
                })
                .collect();
            let borrowed: Vec<&[u8]> = record.iter().map(Vec::as_slice).collect();
            write_record(&mut text, &borrowed).unwrap();
            records.push(record);
        }
        assert_eq!(read(&text).unwrap(), records);
    }
}
