// SPDX-License-Identifier: Apache-2.0
//! Formats of rows: `load` reads and `dump` writes them as JSON lines or CSV.
//!
//! ```text
//! JSON  {"key":"a","value":"1","expires_at":1893456000}      key_base64, value_base64, key_hex, value_hex; "value":null deletes; "ttl":60
//! CSV   key,value,expires_at                                 a first line with the columns, in any order; key_hex and so on as above
//! ```
//!
//! A row has its key once and its value once. A row with two fields for the same thing is refused,
//! with its line and column, because it is ambiguous.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use senko_store::Entry;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::csv;
use super::text::{self, Encoding};

/// Bytes at the beginning that are searched for the first that is not white space.
const MOST_START: usize = 4096;

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
    /// The format by the end of a file's name, if that says anything.
    pub fn of_path(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "csv" => Some(Format::Csv),
            "json" | "jsonl" | "ndjson" => Some(Format::Json),
            _ => None,
        }
    }
}

/// One key and its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Vec<u8>,
    /// The value; `None` deletes the key.
    pub value: Option<Vec<u8>>,
    /// Seconds since 1970; 0 for never.
    pub expires_at: u64,
}

/// Counts the bytes that are read through it.
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

/// The meaning of each column.
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
    /// Seconds since 1970, the start of each `ttl`.
    now: u64,
    read: Arc<AtomicU64>,
    /// Bytes of the file, if they are known.
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
                crate::stdin::check(path)?;
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
            _ => Box::new(crate::stdin::open()?),
        };
        let read = Arc::new(AtomicU64::new(0));
        let counted = Counted {
            from,
            bytes: Arc::clone(&read),
        };
        let mut from: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 18, counted));
        let start = beginning(&mut from).with_context(|| format!("cannot read {name}"))?;
        let start =
            text::without_mark(start).map_err(|error| anyhow!("{name}, line 1: {error}"))?;
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        let format = match (format.or_else(|| path.and_then(Format::of_path)), first) {
            (Some(format), _) => format,
            (None, None | Some(b'{' | b'[')) => Format::Json,
            (None, Some(_)) => Format::Csv,
        };
        let from: Box<dyn BufRead> = Box::new(io::Cursor::new(start).chain(from));
        let lines = match format {
            Format::Json => Lines::Json(from, 0),
            Format::Csv => {
                let mut reader = csv::Reader::new(from);
                let mut head = Vec::new();
                let some = reader
                    .record(&mut head)
                    .map_err(|error| anyhow!("{name}, line {}: {error}", reader.line()))?;
                if !some {
                    // Nothing follows either.
                    head = vec![b"key".to_vec(), b"value".to_vec()];
                }
                let columns = Columns::of(&head)
                    .map_err(|error| anyhow!(at(&format!("{name}, line 1"), &error)))?;
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

    /// The place of the last row, for messages.
    pub fn place(&self) -> String {
        let line = match &self.lines {
            Lines::Json(_, line) => *line,
            Lines::Csv(reader, _) => reader.line(),
        };
        format!("{}, line {line}", self.name)
    }

    /// The next row; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Row>> {
        let now = self.now;
        let row = match &mut self.lines {
            Lines::Json(from, line) => json_row(from, line, now),
            Lines::Csv(reader, columns) => csv_row(reader, columns, now),
        };
        row.map_err(|error| anyhow!(at(&self.place(), &error)))
    }
}

/// The error after its place, which it may continue with a column.
fn at(place: &str, error: &str) -> String {
    match error.starts_with("column ") {
        true => format!("{place}, {error}"),
        false => format!("{place}: {error}"),
    }
}

/// The first bytes: at least the length of a byte order mark, up to the first that is not white
/// space.
fn beginning(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    loop {
        let mut byte = [0];
        let known = start.len() >= 3 && start[3..].iter().any(|b: &u8| !b.is_ascii_whitespace());
        if known || start.len() >= MOST_START || from.read(&mut byte)? == 0 {
            return Ok(start);
        }
        start.push(byte[0]);
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
    if line.trim_ascii_start().starts_with(b"[") {
        return Err(
            "it is not a JSON object but an array: `jq -c '.[]'` makes a line of each".to_owned(),
        );
    }
    let fields: Fields = serde_json::from_slice(line.trim_ascii_end()).map_err(|error| {
        let column = error.column();
        match error.classify() {
            Category::Data => {
                // The reader adds its own line, which is always 1 here.
                let text = error.to_string();
                let text = text
                    .rsplit_once(" at line ")
                    .map_or(&*text, |(text, _)| text);
                match text.starts_with("invalid type") {
                    true => "it is not a JSON object".to_owned(),
                    false => format!("column {column}: {text}"),
                }
            }
            Category::Eof => format!("column {column}: it is not JSON, since it ends too early"),
            Category::Syntax | Category::Io => format!("column {column}: it is not JSON"),
        }
    })?;
    let key = fields.key.ok_or("there is no field \"key\"")?;
    let value = fields.value.ok_or("there is no field \"value\"")?;
    let expires_at = expiry(fields.expires_at, fields.ttl, now)?;
    Ok(Some(Row {
        key,
        value,
        expires_at,
    }))
}

/// The fields of a row in a JSON object. They are read one by one, so a message can name the
/// column.
#[derive(Default)]
struct Fields {
    key: Option<Vec<u8>>,
    /// Null deletes.
    value: Option<Option<Vec<u8>>>,
    expires_at: u64,
    ttl: u64,
}

/// Whether a field's name means the key or value, in an encoding.
fn encoding_of(field: &str, name: &str) -> Option<Encoding> {
    let encodings = [Encoding::Raw, Encoding::Base64, Encoding::Hex];
    let suffix = field.strip_prefix(name)?;
    encodings
        .into_iter()
        .find(|encoding| encoding.suffix() == suffix)
}

impl<'de> serde::Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Fields, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = Fields;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                // For the key, the value and each time: the field that has it.
                let mut said: [Option<String>; 4] = Default::default();
                while let Some(field) = from.next_key::<String>()? {
                    let key = encoding_of(&field, "key");
                    let value = encoding_of(&field, "value");
                    let what = match (&*field, key, value) {
                        (_, Some(_), _) => 0,
                        (_, _, Some(_)) => 1,
                        ("expires_at", ..) => 2,
                        ("ttl", ..) => 3,
                        _ => {
                            from.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    if let Some(before) = &said[what] {
                        return Err(A::Error::custom(match *before == field {
                            true => format!("the field \"{field}\" is there twice"),
                            false => format!(
                                "\"{before}\" and \"{field}\" say the same thing, and only one of them may be there"
                            ),
                        }));
                    }
                    let found = from.next_value::<Value>()?;
                    match (key, value) {
                        (Some(encoding), _) => {
                            fields.key = Some(bytes_of(&field, &found, encoding)?);
                        }
                        (_, Some(Encoding::Raw)) if found.is_null() => fields.value = Some(None),
                        (_, Some(encoding)) => {
                            fields.value = Some(Some(bytes_of(&field, &found, encoding)?));
                        }
                        _ => {
                            let seconds = seconds_of(&field, &found)?;
                            let time = match what {
                                2 => &mut fields.expires_at,
                                _ => &mut fields.ttl,
                            };
                            *time = seconds;
                        }
                    }
                    said[what] = Some(field);
                }
                if fields.expires_at != 0 && fields.ttl != 0 {
                    return Err(A::Error::custom(BOTH_TIMES));
                }
                if fields.value == Some(None) && (fields.expires_at | fields.ttl) != 0 {
                    return Err(A::Error::custom(
                        "\"value\":null deletes the key, and a deletion does not expire",
                    ));
                }
                Ok(fields)
            }
        }
        from.deserialize_any(Reading)
    }
}

fn bytes_of<E: serde::de::Error>(field: &str, found: &Value, by: Encoding) -> Result<Vec<u8>, E> {
    let text = found
        .as_str()
        .ok_or_else(|| E::custom(format!("the field \"{field}\" is not a string")))?;
    by.decode(text.as_bytes())
        .map_err(|error| E::custom(format!("in the field \"{field}\", {error}")))
}

fn seconds_of<E: serde::de::Error>(field: &str, found: &Value) -> Result<u64, E> {
    if found.is_null() {
        return Ok(0);
    }
    let wrong = |text: String| E::custom(format!("the field \"{field}\" {text}"));
    let seconds = found.as_u64();
    let seconds = seconds.ok_or_else(|| wrong("is not a whole number of seconds".to_owned()))?;
    check_seconds(field, seconds).map_err(wrong)?;
    Ok(seconds)
}

const BOTH_TIMES: &str = "there are both \"expires_at\" and \"ttl\"";

/// The last second that a store can keep (in the year 36812): milliseconds since 1970 are larger.
const LAST_SECOND: u64 = (1 << 40) - 1;

/// Checks a time; `Err` is the end of a sentence about its field.
fn check_seconds(field: &str, seconds: u64) -> Result<(), String> {
    match (field, seconds) {
        // Other programs understand it as never, or as at once.
        ("ttl", 0) => {
            Err("is 0, which is not a time: leave it out for a key that stays".to_owned())
        }
        (_, ..=LAST_SECOND) => Ok(()),
        _ => Err(format!(
            "is {seconds}, and seconds are meant, {LAST_SECOND} at most"
        )),
    }
}

fn expiry(expires_at: u64, ttl: u64, now: u64) -> Result<u64, String> {
    match (expires_at, ttl) {
        (at, 0) => Ok(at),
        (0, ttl) => Ok(now.saturating_add(ttl).min(LAST_SECOND)),
        _ => Err(BOTH_TIMES.to_owned()),
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
        return Err(text::wrong_width(fields.len(), columns.count));
    }
    let seconds = |name: &str, column: Option<usize>| {
        let Some((nth, text)) = column.map(|nth| (nth, fields[nth].as_slice())) else {
            return Ok(0);
        };
        if text.is_empty() {
            return Ok(0);
        }
        let number = std::str::from_utf8(text).map(|text| text.trim().parse());
        let Ok(Ok(seconds)) = number else {
            let (text, nth) = (text::shorten(text), nth + 1);
            return Err(format!(
                "column {nth}: \"{text}\" is not a whole number of seconds"
            ));
        };
        check_seconds(name, seconds)
            .map_err(|error| format!("column {}: \"{name}\" {error}", nth + 1))?;
        Ok(seconds)
    };
    let expires_at = seconds("expires_at", columns.expires_at)?;
    let expires_at = expiry(expires_at, seconds("ttl", columns.ttl)?, now).map_err(|error| {
        let later = columns.expires_at.max(columns.ttl).unwrap_or(0);
        format!("column {}: {error}", later + 1)
    })?;
    let decoded = |(nth, encoding): (usize, Encoding)| {
        let bytes = encoding.decode(&fields[nth]);
        bytes.map_err(|error| format!("column {}: {error}", nth + 1))
    };
    Ok(Some(Row {
        key: decoded(columns.key)?,
        value: Some(decoded(columns.value)?),
        expires_at,
    }))
}

impl Columns {
    fn of(head: &[Vec<u8>]) -> Result<Columns, String> {
        // The column of each thing, and its encoding if it has one.
        let only = |names: &[(String, Encoding)]| {
            let mut found: Option<(usize, Encoding)> = None;
            for (nth, column) in head.iter().enumerate() {
                let known = names.iter().find(|(name, _)| name.as_bytes() == column);
                let Some((name, encoding)) = known else {
                    continue;
                };
                if let Some((before, _)) = found {
                    let before_name = text::shorten(&head[before]);
                    return Err(format!(
                        "column {}: \"{name}\" says the same thing as column {}, \"{before_name}\", and only one of them may be there",
                        nth + 1,
                        before + 1
                    ));
                }
                found = Some((nth, *encoding));
            }
            Ok(found)
        };
        let encoded = |name: &str| {
            let names = [Encoding::Raw, Encoding::Hex, Encoding::Base64]
                .map(|encoding| (format!("{name}{}", encoding.suffix()), encoding));
            only(&names)?.ok_or_else(|| {
                let head: Vec<String> = head.iter().map(|name| text::shorten(name)).collect();
                format!(
                    "the first line names the columns, and there is no \"{name}\" among \"{}\"",
                    head.join(",")
                )
            })
        };
        let plain = |name: &str| {
            let found = only(&[(name.to_owned(), Encoding::Raw)])?;
            Ok::<_, String>(found.map(|(nth, _)| nth))
        };
        Ok(Columns {
            key: encoded("key")?,
            value: encoded("value")?,
            expires_at: plain("expires_at")?,
            ttl: plain("ttl")?,
            count: head.len(),
        })
    }
}

/// An entry as a JSON object.
pub fn entry_json(entry: &Entry) -> Map<String, Value> {
    version_json(&entry.key, Some(&entry.value), entry.time, entry.expires_at)
}

/// A version as a JSON object, with null for an absent value.
pub fn version_json(
    key: &[u8],
    value: Option<&[u8]>,
    time: u64,
    expires_at: u64,
) -> Map<String, Value> {
    let mut object = Map::new();
    text::put_json(&mut object, "key", key);
    match value {
        Some(value) => text::put_json(&mut object, "value", value),
        None => drop(object.insert("value".to_owned(), Value::Null)),
    }
    object.insert("time".to_owned(), time.into());
    if expires_at != 0 {
        object.insert("expires_at".to_owned(), expires_at.into());
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
