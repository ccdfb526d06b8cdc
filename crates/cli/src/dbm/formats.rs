// SPDX-License-Identifier: Apache-2.0
//! Formats of records: what `load` reads and `dump` writes.
//!
//! ```text
//! json       {"table":"main","key":"a","value":"1"}       key_hex, value_hex, key_base64, value_base64
//! csv        table,key,value                               a first line with the columns, in any order
//! db_dump    VERSION=3 ... DATA=END, once a table          of Berkeley DB and LMDB
//! gdbm_dump  # GDBM dump file ... # End of data            one table
//! ```
//!
//! A record has its key once and its value once. Two fields for the same thing are an error.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::rows::{Lines, Row};
use super::{berkeley, gdbm};
use crate::store::csv;
use crate::store::text::{Encoding, shorten, without_mark, wrong_width};

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line
    Json,
    /// Comma-separated values behind a line with the columns' names
    Csv,
    /// The text of db_dump and db_load, mdb_dump and mdb_load, as hexadecimal digits
    #[value(name = "db_dump")]
    DbDump,
    /// The same as text, as db_dump -p writes it
    #[value(name = "db_dump-p")]
    DbDumpText,
    /// The text of gdbm_dump and gdbm_load
    #[value(name = "gdbm_dump")]
    GdbmDump,
}

impl Format {
    /// The format by the end of a file's name, if that says anything.
    pub fn of_path(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "json" | "jsonl" | "ndjson" => Some(Format::Json),
            _ => None,
        }
    }

    fn of_start(start: &[u8]) -> Format {
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            None | Some(b'{' | b'[') => Format::Json,
            _ if start.starts_with(b"VERSION") => Format::DbDump,
            Some(b'#' | b'!') => Format::GdbmDump,
            Some(_) => Format::Csv,
        }
    }
}

/// Fields of a record of the store that a database can't keep.
const EXPIRY: [&str; 2] = ["expires_at", "ttl"];
const NO_EXPIRY: &str = "the record has an expiry, which a database can't keep: --drop-expiry \
                         loads it as one that stays";

enum Source {
    Json(Lines),
    Csv(csv::Reader<Box<dyn BufRead>>, Option<Columns>),
    Berkeley(berkeley::Reader),
    Gdbm(gdbm::Reader),
}

/// Reads records from a file or from stdin.
pub struct Input {
    name: String,
    source: Source,
    /// Whether it is a regular file, from which a read never waits long.
    pub file: bool,
    /// The records so far that lost their expiry; `None` if such a record is an error.
    pub lost_expiries: Option<u64>,
}

impl Input {
    /// `-` or nothing for stdin.
    pub fn open(path: Option<&Path>, format: Option<Format>) -> Result<Input> {
        let path = path.filter(|path| *path != Path::new("-"));
        let name = path.map_or("stdin".to_owned(), |path| path.display().to_string());
        let mut regular = false;
        let from: Box<dyn Read> = match path {
            Some(path) => {
                crate::stdin::check(path)?;
                let file =
                    std::fs::File::open(path).with_context(|| format!("cannot open {name}"))?;
                let meta = file.metadata();
                if meta.as_ref().is_ok_and(|meta| meta.is_dir()) {
                    bail!("{name} is a folder");
                }
                regular = meta.is_ok_and(|meta| meta.is_file());
                Box::new(file)
            }
            None => Box::new(crate::stdin::open()?),
        };
        let mut from = BufReader::with_capacity(1 << 18, from);
        let mut start = Vec::new();
        let read = (&mut from).take(4096).read_to_end(&mut start);
        read.with_context(|| format!("cannot read {name}"))?;
        let start = without_mark(start).map_err(|error| anyhow!("{name}, line 1: {error}"))?;
        let by_name = || path.and_then(Format::of_path);
        let format = format.or_else(by_name);
        let format = format.unwrap_or_else(|| Format::of_start(&start));
        let from: Box<dyn BufRead> = Box::new(io::Cursor::new(start).chain(from));
        let source = match format {
            Format::Json => Source::Json(Lines::new(from)),
            Format::Csv => Source::Csv(csv::Reader::new(from), None),
            Format::DbDump | Format::DbDumpText => {
                Source::Berkeley(berkeley::Reader::new(Lines::new(from)))
            }
            Format::GdbmDump => Source::Gdbm(gdbm::Reader::new(Lines::new(from))),
        };
        Ok(Input {
            name,
            source,
            file: regular,
            lost_expiries: None,
        })
    }

    /// The place of the last record, for messages.
    pub fn place(&self) -> String {
        let line = match &self.source {
            Source::Json(lines) => lines.count(),
            Source::Csv(reader, _) => reader.line(),
            Source::Berkeley(reader) => reader.line(),
            Source::Gdbm(reader) => reader.line(),
        };
        format!("{}, line {line}", self.name)
    }

    /// The tables that the input names besides those of records. A table without a name is not
    /// among them.
    pub fn tables(&self) -> &[Option<String>] {
        match &self.source {
            Source::Berkeley(reader) => reader.tables(),
            Source::Gdbm(_) => &[None],
            Source::Json(_) | Source::Csv(..) => &[],
        }
    }

    /// The next record; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Row>> {
        let row = match &mut self.source {
            Source::Json(lines) => json_row(lines),
            Source::Csv(reader, columns) => csv_row(reader, columns),
            Source::Berkeley(reader) => reader.next(),
            Source::Gdbm(reader) => reader.next(),
        };
        let row = row.and_then(|row| row.map(Row::checked).transpose());
        let row = match (row, &mut self.lost_expiries) {
            (Ok(Some(row)), None) if row.expires => Err(NO_EXPIRY.to_owned()),
            (Ok(Some(row)), Some(lost)) => {
                *lost += u64::from(row.expires);
                Ok(Some(row))
            }
            (row, _) => row,
        };
        let at_column = |error: &str| {
            let place = error.split_once(": ").map_or("", |(place, _)| place);
            let column = place.strip_prefix("column ");
            column.is_some_and(|column| column.parse::<usize>().is_ok())
        };
        row.map_err(|error| match at_column(&error) {
            true => anyhow!("{}, {error}", self.place()),
            false => anyhow!("{}: {error}", self.place()),
        })
    }
}

/// The members of a JSON object, including those whose names occur twice.
struct Members(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = Members;
            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Members, A::Error> {
                let mut members: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = from.next_entry::<String, Value>()? {
                    if members.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom(format!("{name:?} is there twice")));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reading)
    }
}

const ENCODINGS: [Encoding; 3] = [Encoding::Raw, Encoding::Hex, Encoding::Base64];

/// The only one of several fields that has a key or a value.
fn the_one(name: &str, has: impl Fn(&str) -> Option<usize>) -> Result<(usize, Encoding), String> {
    let found = ENCODINGS.map(|encoding| {
        let name = format!("{name}{}", encoding.suffix());
        has(&name).map(|nth| (nth, encoding, name))
    });
    let mut found = found.into_iter().flatten();
    let (nth, encoding, first) = found
        .next()
        .ok_or_else(|| format!("there is no {name:?} (nor \"{name}_hex\", \"{name}_base64\")"))?;
    if let Some((.., second)) = found.next() {
        return Err(format!(
            "{first:?} and {second:?} say the same thing, and only one of them may be there"
        ));
    }
    Ok((nth, encoding))
}

fn json_row(lines: &mut Lines) -> Result<Option<Row>, String> {
    let members = loop {
        let Some(line) = lines.next()? else {
            return Ok(None);
        };
        if line.trim_ascii().is_empty() {
            continue;
        }
        let members: Result<Members, _> = serde_json::from_slice(line);
        break members.map_err(|error| {
            let (column, text) = (error.column(), error.to_string());
            // The reader's own line is always 1.
            let text = text
                .rsplit_once(" at line ")
                .map_or(&*text, |(text, _)| text);
            match error.classify() {
                // The library's words, which name its own types.
                Category::Data if text.starts_with("invalid type") => {
                    "it is not a JSON object".to_owned()
                }
                Category::Data => format!("column {column}: {text}"),
                Category::Eof => {
                    format!("column {column}: it is not JSON, since it ends too early")
                }
                Category::Syntax | Category::Io => format!("column {column}: it is not JSON"),
            }
        })?;
    };
    let members = members.0;
    let at = |name: &str| members.iter().position(|(known, _)| known == name);
    let field = |name: &str| {
        let (nth, encoding) = the_one(name, at)?;
        let (name, value) = &members[nth];
        let text = value.as_str();
        let text = text.ok_or_else(|| format!("the field {name:?} is not a string"))?;
        encoding.decode(text.as_bytes())
    };
    let table = match at("table") {
        None => None,
        Some(nth) => match members[nth].1.as_str() {
            Some(name) => Some(name.to_owned()),
            None => return Err("the field \"table\" is not a string".to_owned()),
        },
    };
    Ok(Some(Row {
        table,
        key: field("key")?,
        value: field("value")?,
        expires: EXPIRY.iter().filter_map(|name| at(name)).any(|nth| {
            let value = &members[nth].1;
            !value.is_null() && value.as_u64() != Some(0)
        }),
    }))
}

/// The meaning of each column.
struct Columns {
    table: Option<usize>,
    key: (usize, Encoding),
    value: (usize, Encoding),
    expiry: [Option<usize>; 2],
    count: usize,
}

impl Columns {
    fn of(head: &[Vec<u8>]) -> Result<Columns, String> {
        if let Some((nth, twice)) = head
            .iter()
            .enumerate()
            .find(|(nth, name)| head[..*nth].contains(name))
        {
            let name = shorten(twice);
            return Err(format!("column {} is a second \"{name}\"", nth + 1));
        }
        let at = |name: &str| head.iter().position(|column| column == name.as_bytes());
        let of = |name: &str| {
            the_one(name, at).map_err(|error| format!("the line names the columns, and {error}"))
        };
        Ok(Columns {
            table: at("table"),
            key: of("key")?,
            value: of("value")?,
            expiry: EXPIRY.map(at),
            count: head.len(),
        })
    }
}

fn csv_row(
    reader: &mut csv::Reader<Box<dyn BufRead>>,
    columns: &mut Option<Columns>,
) -> Result<Option<Row>, String> {
    let mut fields = Vec::new();
    let columns = match columns {
        Some(columns) => columns,
        None => {
            if !reader.record(&mut fields)? {
                return Ok(None);
            }
            columns.insert(Columns::of(&fields)?)
        }
    };
    if !reader.record(&mut fields)? {
        return Ok(None);
    }
    if fields.len() != columns.count {
        return Err(wrong_width(fields.len(), columns.count));
    }
    let decoded = |(nth, encoding): (usize, Encoding)| {
        let bytes = encoding.decode(&fields[nth]);
        bytes.map_err(|error| format!("column {}: {error}", nth + 1))
    };
    let table = match columns.table {
        None => None,
        Some(nth) => {
            let name = String::from_utf8(fields[nth].clone());
            Some(name.map_err(|_| format!("column {}: the table's name is not UTF-8", nth + 1))?)
        }
    };
    Ok(Some(Row {
        table,
        key: decoded(columns.key)?,
        value: decoded(columns.value)?,
        expires: columns.expiry.iter().flatten().any(|nth| {
            let field = &fields[*nth];
            !field.is_empty() && field != b"0"
        }),
    }))
}

/// A record as a JSON object: text if the bytes are text, otherwise hexadecimal digits under
/// another name.
pub fn json(table: &str, key: &[u8], value: &[u8], hex: bool) -> Value {
    let mut row = Map::new();
    row.insert("table".to_owned(), table.into());
    for (name, bytes) in [("key", key), ("value", value)] {
        match std::str::from_utf8(bytes) {
            Ok(text) if !hex => row.insert(name.to_owned(), text.into()),
            _ => row.insert(format!("{name}_hex"), super::to_hex(bytes).into()),
        };
    }
    Value::Object(row)
}

/// Writes tables one after the other.
pub enum Output {
    Json { hex: bool },
    Csv(Encoding),
    Berkeley { text: bool },
    Gdbm { records: u64 },
}

impl Output {
    pub fn new(format: Format, hex: bool) -> Output {
        match format {
            Format::Json => Output::Json { hex },
            Format::Csv if hex => Output::Csv(Encoding::Hex),
            Format::Csv => Output::Csv(Encoding::Raw),
            Format::DbDump => Output::Berkeley { text: false },
            Format::DbDumpText => Output::Berkeley { text: true },
            Format::GdbmDump => Output::Gdbm { records: 0 },
        }
    }

    /// Written before everything else.
    pub fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Output::Csv(encoding) => {
                let suffix = encoding.suffix();
                writeln!(out, "table,key{suffix},value{suffix}")
            }
            _ => Ok(()),
        }
    }

    /// Written before a table; `alone`: there is no other table.
    pub fn table(&mut self, out: &mut impl Write, name: &str, alone: bool) -> io::Result<()> {
        match self {
            Output::Json { .. } | Output::Csv(_) => Ok(()),
            Output::Berkeley { text } => {
                let name = Some(name).filter(|name| !alone || *name != super::MAIN);
                berkeley::head(out, name, *text)
            }
            Output::Gdbm { records } => {
                *records = 0;
                gdbm::head(out, name)
            }
        }
    }

    pub fn record(
        &mut self,
        out: &mut impl Write,
        table: &str,
        key: &[u8],
        value: &[u8],
    ) -> io::Result<()> {
        match self {
            Output::Json { hex } => writeln!(out, "{}", json(table, key, value, *hex)),
            Output::Csv(encoding) => {
                let (mut shown_key, mut shown_value) = (Vec::new(), Vec::new());
                encoding.encode(key, &mut shown_key);
                encoding.encode(value, &mut shown_value);
                csv::write_record(out, &[table.as_bytes(), &shown_key, &shown_value])
            }
            Output::Berkeley { text } => {
                berkeley::bytes(out, key, *text)?;
                berkeley::bytes(out, value, *text)
            }
            Output::Gdbm { records } => {
                *records += 1;
                gdbm::bytes(out, key)?;
                gdbm::bytes(out, value)
            }
        }
    }

    /// Written after a table.
    pub fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Output::Json { .. } | Output::Csv(_) => Ok(()),
            Output::Berkeley { .. } => berkeley::tail(out),
            Output::Gdbm { records } => gdbm::tail(out, *records),
        }
    }
}
