// SPDX-License-Identifier: Apache-2.0
//! `senko store put`, `get`, `delete` and `history`: single keys.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use senko_store::{Entry, MAX_VALUE_BYTES, Store, WriteOptions};
use serde_json::{Map, Value};

use super::text::{self, Encoding};
use super::times::{self, Moment};
use super::{FileArgs, MakeArgs, SpaceArgs, close, open_to_read, print, rows, told, writing};

/// The form of keys and values on the command line.
#[derive(Args, Clone, Debug)]
struct BytesArgs {
    /// Keys and values are hexadecimal, on the command line and on stdout
    #[arg(long)]
    hex: bool,
}

impl BytesArgs {
    fn encoding(&self) -> Encoding {
        if self.hex {
            Encoding::Hex
        } else {
            Encoding::Raw
        }
    }

    fn key(&self, text: &std::ffi::OsStr) -> Result<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let decoded = self.encoding().decode(text.as_bytes());
        decoded.map_err(|error| anyhow!("the key {error}"))
    }
}

/// Arguments of `senko store put`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    senko store put data.kv colour green\n  \
    senko store put data.kv session:17 '{\"user\":4}' --ttl 30m --synced\n  \
    senko store put data.kv picture --from cat.jpg\n  \
    date | senko store put data.kv today\n  \
    senko store put versions.kv --hex 00ff 0102 --keep-versions 5")]
pub struct PutArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The key, 1 to 65536 bytes
    key: std::ffi::OsString,
    /// The value; without it (and without --from) it is read from stdin
    value: Option<std::ffi::OsString>,
    /// Reads the value from a file, unchanged; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    from: Option<PathBuf>,
    #[command(flatten)]
    bytes: BytesArgs,
    /// The value is gone after this time: a number with a suffix s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = senko_workload::units::time_above_zero)]
    ttl: Option<Duration>,
    /// Returns when the value is durable
    #[arg(long)]
    synced: bool,
    /// One JSON object on stdout: the key, and the time of the write
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    make: MakeArgs,
}

impl PutArgs {
    fn value(&self) -> Result<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        if let Some(value) = &self.value {
            let decoded = self.bytes.encoding().decode(value.as_bytes());
            return decoded.map_err(|error| anyhow!("the value {error}"));
        }
        let value = match self.from.as_deref().filter(|path| *path != Path::new("-")) {
            Some(path) => {
                crate::stdin::check(path)?;
                let name = path.display();
                let file = std::fs::File::open(path);
                let file = file.with_context(|| format!("cannot open {name}"))?;
                read_value(file).with_context(|| format!("cannot read {name}"))?
            }
            None => {
                // It has its own descriptor, so that the length of a redirected file is known and
                // nothing is buffered in between.
                let stdin = crate::stdin::open()?.as_fd().try_clone_to_owned();
                let read = stdin.and_then(|stdin| read_value(std::fs::File::from(stdin)));
                read.context("cannot read the value from stdin")?
            }
        };
        if value.len() as u64 > MAX_VALUE_BYTES {
            bail!("the value has more than {MAX_VALUE_BYTES} bytes");
        }
        Ok(value)
    }
}

/// Reads what a file, or a pipe, has left. The buffer has room for the whole value from the
/// beginning, because a growing buffer is copied, and values have up to a gigabyte. Its capacity is
/// the file's length, or that of the longest value. Only the filled part takes memory. One byte
/// more than allowed is read, so that a too long value is noticed.
fn read_value(file: std::fs::File) -> std::io::Result<Vec<u8>> {
    let most = MAX_VALUE_BYTES + 1;
    let left = match file.metadata() {
        Ok(meta) if meta.is_file() => meta.len().min(most),
        _ => most,
    };
    let mut value = Vec::new();
    // One byte more, for detecting the end of the file. If there is no such room, the buffer grows
    // after all.
    let _ = value.try_reserve_exact(left as usize + 1);
    file.take(most).read_to_end(&mut value)?;
    Ok(value)
}

/// Prints what was written, and when, as JSON.
fn print_written(key: &[u8], time: u64) -> Result<()> {
    let mut object = Map::new();
    text::put_json(&mut object, "key", key);
    object.insert("time".to_owned(), time.into());
    print(true, &Value::Object(object), "")
}

/// Runs `senko store put`.
pub fn put(args: &PutArgs) -> Result<bool> {
    let path = &args.file.store;
    let key = args.bytes.key(&args.key)?;
    let value = args.value()?;
    let opened = args.make.open(path)?;
    let options = WriteOptions {
        ttl: args.ttl,
        ..writing(args.synced)
    };
    let put = opened.store.put_with(&key, &value, options);
    let time = opened.end(put.map_err(told(path)), false)?;
    if args.json {
        print_written(&key, time)?;
    }
    Ok(true)
}

/// Arguments of `senko store get`.
#[derive(Args, Debug)]
#[command(
    after_help = "The value of a single key is printed unchanged, with a newline only on a terminal. Several keys print a line each: \
    the key, a tab, the value; bytes that are not text are escaped. An absent key prints nothing, and the exit code is 1.\n\n\
    Examples:\n  \
    senko store get data.kv picture > cat.jpg\n  \
    senko store get data.kv colour shape --json\n  \
    senko store get data.kv colour --at 2h                 two hours ago\n  \
    senko store get data.kv colour --at 2026-01-31T12:00:00Z"
)]
pub struct GetArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<std::ffi::OsString>,
    #[command(flatten)]
    bytes: BytesArgs,
    /// The value at this time: microseconds since 1970, a date in UTC, or how long ago, such as 15m
    #[arg(long, value_name = "TIME")]
    at: Option<Moment>,
    /// One JSON object for each key found: key, value, time of the write, expiry
    #[arg(long)]
    json: bool,
}

/// The version of a key that was the newest at a time.
fn entry_at(
    store: &Store,
    key: &[u8],
    at: Option<Moment>,
) -> Result<Option<Entry>, senko_store::StoreError> {
    let Some(Moment(at)) = at else {
        return store.get_entry(key);
    };
    // The value is read at that time, because a value that expired later still existed then. The
    // times are the version's own.
    let Some(value) = store.get_at(key, at)? else {
        return Ok(None);
    };
    let history = store.history(key)?;
    let version = history.iter().find(|version| version.time <= at);
    Ok(Some(Entry {
        key: key.to_vec(),
        value,
        time: version.map_or(0, |version| version.time),
        expires_at: version.map_or(0, |version| version.expires_at),
    }))
}

/// Runs `senko store get`.
pub fn get(args: &GetArgs) -> Result<bool> {
    let path = &args.file.store;
    let keys = args
        .keys
        .iter()
        .map(|key| args.bytes.key(key))
        .collect::<Result<Vec<_>>>()?;
    let store = open_to_read(path)?;
    let mut out = crate::out::stdout();
    let mut all = true;
    for key in &keys {
        let Some(entry) = entry_at(&store, key, args.at).map_err(told(path))? else {
            all = false;
            continue;
        };
        if args.json {
            writeln!(out, "{}", Value::Object(rows::entry_json(&entry)))?;
            continue;
        }
        if keys.len() == 1 {
            write_value(&args.bytes, &entry.value, &mut out)?;
            if args.bytes.hex || out.is_terminal() {
                out.write_all(b"\n")?;
            }
        } else {
            let mut shown = Vec::new();
            show_pair(&args.bytes, &entry.key, &entry.value, &mut shown);
            out.write_all(&shown)?;
        }
    }
    out.flush()?;
    Ok(all)
}

/// Writes a value in the requested form, without another copy of all of it.
fn write_value(bytes: &BytesArgs, value: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    if !bytes.hex {
        return out.write_all(value);
    }
    let mut shown = Vec::new();
    for piece in value.chunks(1 << 20) {
        shown.clear();
        Encoding::Hex.encode(piece, &mut shown);
        out.write_all(&shown)?;
    }
    Ok(())
}

fn show_pair(bytes: &BytesArgs, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for (part, end) in [(key, b'\t'), (value, b'\n')] {
        if bytes.hex {
            Encoding::Hex.encode(part, out);
        } else {
            out.extend(text::shown(part).into_bytes());
        }
        out.push(end);
    }
}

/// Arguments of `senko store delete`.
#[derive(Args, Debug)]
#[command(after_help = "An absent key is not an error.\n\n\
    Examples:\n  \
    senko store delete data.kv colour shape\n  \
    senko store delete data.kv --hex 00ff --synced")]
pub struct DeleteArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The keys; all are deleted, or none
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<std::ffi::OsString>,
    #[command(flatten)]
    bytes: BytesArgs,
    /// Returns when the deletion is durable
    #[arg(long)]
    synced: bool,
    /// One JSON object a key on stdout, with the time of the deletion
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    space: SpaceArgs,
}

/// Runs `senko store delete`.
pub fn delete(args: &DeleteArgs) -> Result<bool> {
    let path = &args.file.store;
    let mut batch = senko_store::Batch::new();
    let mut keys = Vec::with_capacity(args.keys.len());
    for key in &args.keys {
        let key = args.bytes.key(key)?;
        batch.delete(&key);
        keys.push(key);
    }
    let store = Store::open(path, args.space.options()).map_err(told(path))?;
    let done = store.write(&batch, writing(args.synced));
    let time = close(path, store, done.map_err(told(path)))?;
    if args.json {
        for key in keys {
            print_written(&key, time)?;
        }
    }
    Ok(true)
}

/// Arguments of `senko store history`.
#[derive(Args, Debug)]
#[command(
    after_help = "Newest first, including deletions; as many as the store keeps (--keep-versions when it is created).\n\n\
    Examples:\n  \
    senko store history data.kv colour\n  \
    senko store history data.kv colour --json"
)]
pub struct HistoryArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The key
    key: std::ffi::OsString,
    #[command(flatten)]
    bytes: BytesArgs,
    /// One JSON object a version: time, value (null: deleted, or expired where it has an expiry),
    /// expiry
    #[arg(long)]
    json: bool,
}

/// Runs `senko store history`.
pub fn history(args: &HistoryArgs) -> Result<bool> {
    let path = &args.file.store;
    let key = args.bytes.key(&args.key)?;
    let store = open_to_read(path)?;
    let history = store.history(&key).map_err(told(path))?;
    let mut out = crate::out::stdout();
    for version in &history {
        if args.json {
            let value = version.value.as_deref();
            let object = rows::version_json(&key, value, version.time, version.expires_at);
            writeln!(out, "{}", Value::Object(object))?;
            continue;
        }
        let value = match &version.value {
            // An expired value whose space was reclaimed.
            None if version.expires_at != 0 => "(expired)".to_owned(),
            None => "(deleted)".to_owned(),
            Some(value) if args.bytes.hex => {
                let mut shown = Vec::new();
                Encoding::Hex.encode(value, &mut shown);
                String::from_utf8_lossy(&shown).into_owned()
            }
            Some(value) => text::shown(value),
        };
        let expiry = match version.expires_at {
            0 => String::new(),
            at => format!("  (until {})", times::show_seconds(at)),
        };
        writeln!(out, "{}  {value}{expiry}", times::show(version.time))?;
    }
    out.flush()?;
    Ok(!history.is_empty())
}
