// SPDX-License-Identifier: Apache-2.0
//! The ASCII format of gdbm's `gdbm_dump` and `gdbm_load`: a head, each key and each value as its
//! length and base64 in lines of 76 letters, and the count of records at the end.

use std::io::{self, Write};

use super::rows::{Lines, Row};
use crate::store::text::{Encoding, shorten};
use crate::units::counted;

/// Letters of a line.
const LETTERS: usize = 76;

/// Reads the records of a dump.
pub struct Reader {
    lines: Lines,
    /// The last line read, if it is still to be parsed.
    ahead: Option<Vec<u8>>,
    begun: bool,
    ended: bool,
    records: u64,
}

impl Reader {
    pub fn new(lines: Lines) -> Reader {
        Reader {
            lines,
            ahead: None,
            begun: false,
            ended: false,
            records: 0,
        }
    }

    pub fn line(&self) -> u64 {
        self.lines.count()
    }

    fn take(&mut self) -> Result<Vec<u8>, String> {
        if let Some(line) = self.ahead.take() {
            return Ok(line);
        }
        let line = self.lines.next()?;
        let line = line.ok_or("the input ends before \"# End of data\"")?;
        Ok(line.to_vec())
    }

    fn head(&mut self) -> Result<(), String> {
        let first = self.take()?;
        if first.starts_with(b"!") {
            return Err(
                "it is a binary dump of gdbm; write it with gdbm_dump --format=ascii".to_owned(),
            );
        }
        if !first.starts_with(b"# GDBM dump file") {
            let found = shorten(&first);
            return Err(format!(
                "\"# GDBM dump file\" was expected, not \"{found}\""
            ));
        }
        loop {
            let line = self.take()?;
            if line == b"# End of header" {
                return Ok(());
            }
            if let Some(version) = line.strip_prefix(b"#:version=")
                && !version.starts_with(b"1.")
            {
                let found = shorten(version);
                return Err(format!("versions 1.x of the format are known, not {found}"));
            }
            if line.starts_with(b"#:len=") || line.starts_with(b"#:count=") {
                return Err("there is data before \"# End of header\"".to_owned());
            }
            if !line.starts_with(b"#") {
                let found = shorten(&line);
                return Err(format!("\"{found}\" is not a line of a head"));
            }
        }
    }

    /// The number after `#:NAME=`.
    fn number(line: &[u8], name: &str) -> Option<Result<u64, String>> {
        let value = line.strip_prefix(format!("#:{name}=").as_bytes())?;
        let number = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        Some(number.ok_or_else(|| {
            let found = shorten(value);
            format!("\"{found}\" is not a number")
        }))
    }

    /// A key or a value; `None` at the end of the records.
    fn bytes(&mut self) -> Result<Option<Vec<u8>>, String> {
        let line = self.take()?;
        let Some(length) = Reader::number(&line, "len") else {
            self.ahead = Some(line);
            return Ok(None);
        };
        let length = length?;
        let mut letters = Vec::new();
        loop {
            let line = self.take()?;
            if line.starts_with(b"#") {
                self.ahead = Some(line);
                break;
            }
            letters.extend_from_slice(line.trim_ascii());
        }
        let bytes = Encoding::Base64.decode(&letters);
        let bytes = bytes.map_err(|error| format!("before the line, {error}"))?;
        if bytes.len() as u64 != length {
            let found = bytes.len();
            return Err(format!(
                "before the line comes data of {}, whose \"len\" says {length}",
                counted(found, "byte")
            ));
        }
        Ok(Some(bytes))
    }

    pub fn next(&mut self) -> Result<Option<Row>, String> {
        if self.ended {
            return Ok(None);
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.head()?;
        }
        if let Some(key) = self.bytes()? {
            let value = self.bytes()?;
            let value = value.ok_or("a key before the line has no value")?;
            self.records += 1;
            let table = None;
            return Ok(Some(Row {
                table,
                key,
                value,
                expires: false,
            }));
        }
        let line = self.take()?;
        let Some(count) = Reader::number(&line, "count") else {
            let found = shorten(&line);
            return Err(format!(
                "\"#:len=\" or \"#:count=\" was expected, not \"{found}\""
            ));
        };
        let (count, records) = (count?, self.records);
        if count != records {
            return Err(format!(
                "the count is {count}, behind {}",
                counted(records, "record")
            ));
        }
        let line = self.take()?;
        if line != b"# End of data" {
            let found = shorten(&line);
            return Err(format!("\"# End of data\" was expected, not \"{found}\""));
        }
        if let Some(line) = self.lines.next()? {
            let found = shorten(line);
            return Err(format!("after the end of the data comes \"{found}\""));
        }
        self.ended = true;
        Ok(None)
    }
}

pub fn head(out: &mut impl Write, table: &str) -> io::Result<()> {
    // A line end in a name would end the line.
    let name: String = table.chars().filter(|c| !c.is_control()).collect();
    writeln!(
        out,
        "# GDBM dump file created by Senko\n#:version=1.1\n#:file={name}\n#:format=standard\n# End of header"
    )
}

/// Writes a key or a value.
pub fn bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    writeln!(out, "#:len={}", bytes.len())?;
    let mut letters = Vec::new();
    Encoding::Base64.encode(bytes, &mut letters);
    for line in letters.chunks(LETTERS) {
        out.write_all(line)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Ends a table.
pub fn tail(out: &mut impl Write, records: u64) -> io::Result<()> {
    writeln!(out, "#:count={records}\n# End of data")
}
