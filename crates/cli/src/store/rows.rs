// SPDX-License-Identifier: Apache-2.0
//! Rows in and out: what `load` reads and `dump` writes, as JSON lines or CSV.
//!
//! ```text
//! JSON  {"key":"a","value":"1","expires_at":1893456000}      key_base64, value_base64, key_hex, value_hex; "value":null deletes; "ttl":60
//! CSV   key,value,expires_at                                 a first line with the columns, in any order; key_hex and so on as above
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use senko_store::Entry;
use serde_json::{Map, Value};

use super::csv;
use super::text::{self, Encoding};

/// The most bytes of a line.
const MOST_LINE: u64 = 2 << 30;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object a line
    Json,
    /// Comma-separated values behind a line with the columns' names
    Csv,
}

impl Format {
    /// By the end of a file's name, if that says anything.
    pub fn of_path(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "csv" => Some(Format::Csv),
            "json" | "jsonl" | "ndjson" => Some(Format::Json),
            _ => None,
        }
    }
}

/// One key and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Vec<u8>,
    /// None deletes the key.
    pub value: Option<Vec<u8>>,
    /// Seconds since 1970; 0 for never.
    pub expires_at: u64,
}

/// Counts what is read through it.
struct Counted<R> {
    from: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.from.read(buf)?;
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

enum Lines {
    Json(Box<dyn BufRead>, u64),
    Csv(csv::Reader<Box<dyn BufRead>>, Columns),
}

/// Which column is what.
struct Columns {
    key: (usize, Encoding),
    value: (usize, Encoding),
    expires_at: Option<usize>,
    ttl: Option<usize>,
    count: usize,
}

/// Reads rows from a file or from stdin.
pub struct Reader {
    name: String,
    lines: Lines,
    /// Seconds since 1970, from which a `ttl` counts.
    now: u64,
    read: Arc<AtomicU64>,
    /// Bytes of the file, where that is known.
    pub total: Option<u64>,
}

impl Reader {
    /// `-` or nothing for stdin.
    pub fn open(path: Option<&Path>, format: Option<Format>, now: u64) -> Result<Reader> {
        let stdin = path.is_none_or(|path| path == Path::new("-"));
        let name = match path {
            Some(path) if !stdin => path.display().to_string(),
            _ => "stdin".to_owned(),
        };
        let mut total = None;
        let from: Box<dyn Read> = match path {
            Some(path) if !stdin => {
                let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
                let meta = file
                    .metadata()
                    .with_context(|| format!("cannot open {name}"))?;
                if meta.is_dir() {
                    bail!("{name} is a folder");
                }
                total = meta.is_file().then_some(meta.len());
                Box::new(file)
            }
            _ => Box::new(io::stdin()),
        };
        let read = Arc::new(AtomicU64::new(0));
        let counted = Counted {
            from,
            bytes: Arc::clone(&read),
        };
        let mut from: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 18, counted));
        let format = match format.or_else(|| path.and_then(Format::of_path)) {
            Some(format) => format,
            None => {
                let start = from
                    .fill_buf()
                    .with_context(|| format!("cannot read {name}"))?;
                let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
                match first {
                    None | Some(b'{') => Format::Json,
                    Some(_) => Format::Csv,
                }
            }
        };
        let lines = match format {
            Format::Json => Lines::Json(from, 0),
            Format::Csv => {
                let mut reader = csv::Reader::new(from);
                let mut head = Vec::new();
                let some = reader
                    .record(&mut head)
                    .map_err(|error| anyhow!("{name}, line {}: {error}", reader.line()))?;
                let columns = if some {
                    Columns::of(&head).map_err(|error| anyhow!("{name}, line 1: {error}"))?
                } else {
                    Columns::empty()
                };
                Lines::Csv(reader, columns)
            }
        };
        Ok(Reader {
            name,
            lines,
            now,
            read,
            total,
        })
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Where the last row was read, for messages.
    pub fn place(&self) -> String {
        let line = match &self.lines {
            Lines::Json(_, line) => *line,
            Lines::Csv(reader, _) => reader.line(),
        };
        format!("{}, line {line}", self.name)
    }

    /// The next row; none at the end.
    pub fn next(&mut self) -> Result<Option<Row>> {
        let now = self.now;
        let row = match &mut self.lines {
            Lines::Json(from, line) => json_row(from, line, now),
            Lines::Csv(reader, columns) => csv_row(reader, columns, now),
        };
        row.map_err(|error| anyhow!("{}: {error}", self.place()))
    }
}

fn json_row(from: &mut Box<dyn BufRead>, lines: &mut u64, now: u64) -> Result<Option<Row>, String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut **from).take(MOST_LINE);
        let read = limited.read_until(b'\n', &mut line);
        if read.map_err(|error| format!("cannot read: {error}"))? == 0 {
            return Ok(None);
        }
        *lines += 1;
        if line.len() as u64 == MOST_LINE && line.last() != Some(&b'\n') {
            return Err("the line is longer than 2 GiB".to_owned());
        }
        if !line.trim_ascii().is_empty() {
            break;
        }
    }
    let value: Value = serde_json::from_slice(&line).map_err(|error| {
        // The reader's own line number is always 1 here.
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or_default();
        format!("it is no JSON: {text} (column {})", error.column())
    })?;
    let Value::Object(object) = value else {
        return Err("it is no JSON object".to_owned());
    };
    let key = text::take_json(&object, "key")?.ok_or("there is no field \"key\"")?;
    let value = if object.get("value").is_some_and(Value::is_null) {
        None
    } else {
        let value = text::take_json(&object, "value")?;
        Some(value.ok_or("there is no field \"value\"")?)
    };
    let seconds = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value
            .as_u64()
            .ok_or_else(|| format!("the field \"{name}\" is no whole number of seconds")),
    };
    let expires_at = expiry(seconds("expires_at")?, seconds("ttl")?, now)?;
    Ok(Some(Row {
        key,
        value,
        expires_at,
    }))
}

fn expiry(expires_at: u64, ttl: u64, now: u64) -> Result<u64, String> {
    match (expires_at, ttl) {
        (at, 0) => Ok(at),
        (0, ttl) => Ok(now.saturating_add(ttl)),
        _ => Err("there are both \"expires_at\" and \"ttl\"".to_owned()),
    }
}

fn csv_row(
    reader: &mut csv::Reader<Box<dyn BufRead>>,
    columns: &Columns,
    now: u64,
) -> Result<Option<Row>, String> {
    let mut fields = Vec::new();
    if !reader.record(&mut fields)? {
        return Ok(None);
    }
    if fields.len() != columns.count {
        return Err(format!(
            "there are {} fields where the first line has {}",
            fields.len(),
            columns.count
        ));
    }
    let seconds = |column: Option<usize>| match column.map(|nth| fields[nth].as_slice()) {
        None | Some(b"") => Ok(0),
        Some(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| format!("\"{}\" is no whole number of seconds", text::shorten(text))),
    };
    let expires_at = expiry(seconds(columns.expires_at)?, seconds(columns.ttl)?, now)?;
    let (key, encoding) = columns.key;
    let key = encoding.decode(&fields[key])?;
    let (value, encoding) = columns.value;
    let value = encoding.decode(&fields[value])?;
    Ok(Some(Row {
        key,
        value: Some(value),
        expires_at,
    }))
}

impl Columns {
    fn empty() -> Columns {
        Columns {
            key: (0, Encoding::Raw),
            value: (1, Encoding::Raw),
            expires_at: None,
            ttl: None,
            count: 2,
        }
    }

    fn of(head: &[Vec<u8>]) -> Result<Columns, String> {
        let place = |name: &str| head.iter().position(|column| column == name.as_bytes());
        let encoded = |name: &str| {
            [Encoding::Raw, Encoding::Hex, Encoding::Base64]
                .into_iter()
                .find_map(|encoding| {
                    let nth = place(&format!("{name}{}", encoding.suffix()))?;
                    Some((nth, encoding))
                })
                .ok_or_else(|| {
                    let head: Vec<String> = head.iter().map(|name| text::shorten(name)).collect();
                    format!(
                        "the first line names the columns, and there is no \"{name}\" among \"{}\"",
                        head.join(",")
                    )
                })
        };
        Ok(Columns {
            key: encoded("key")?,
            value: encoded("value")?,
            expires_at: place("expires_at"),
            ttl: place("ttl"),
            count: head.len(),
        })
    }
}

/// An entry as a JSON object.
pub fn entry_json(entry: &Entry) -> Map<String, Value> {
    let mut object = Map::new();
    text::put_json(&mut object, "key", &entry.key);
    text::put_json(&mut object, "value", &entry.value);
    object.insert("time".to_owned(), entry.time.into());
    if entry.expires_at != 0 {
        object.insert("expires_at".to_owned(), entry.expires_at.into());
    }
    object
}

/// Writes the line with the columns' names.
pub fn write_csv_head(out: &mut impl Write, encoding: Encoding) -> io::Result<()> {
    let suffix = encoding.suffix();
    writeln!(out, "key{suffix},value{suffix},expires_at")
}

/// Writes an entry as a line of CSV.
pub fn write_csv(out: &mut impl Write, entry: &Entry, encoding: Encoding) -> io::Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let fields = match encoding {
        Encoding::Raw => [&entry.key[..], &entry.value[..]],
        encoding => {
            encoding.encode(&entry.key, &mut key);
            encoding.encode(&entry.value, &mut value);
            [&key[..], &value[..]]
        }
    };
    let expires_at = match entry.expires_at {
        0 => String::new(),
        at => at.to_string(),
    };
    csv::write_record(out, &[fields[0], fields[1], expires_at.as_bytes()])
}
