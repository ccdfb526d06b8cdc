// SPDX-License-Identifier: Apache-2.0
//! `senko store load`, `dump` and `scan`: many keys, in and out.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use senko_io::Unfinished;
use senko_store::{Batch, Store};
use serde_json::{Value, json};

use super::progress::Bar;
use super::rows::{self, Format, Reader};
use super::text::{self, Encoding};
use super::{FileArgs, MakeArgs, count_in, open_to_read, print, times, told, writing};
use crate::process::{Interrupted, stop_on_signals};
use crate::units::{counted, show_size};

/// Most bytes of keys and values in one batch; less if the log is small.
const BATCH_BYTES: u64 = 1 << 20;

/// Arguments of `senko store load`.
#[derive(Args, Debug)]
#[command(
    after_help = "JSON lines have the fields key and value, or key_base64, value_base64, key_hex, value_hex; \
    \"value\":null deletes the key. CSV has a first line with the columns' names, the same ones. Both may have expires_at \
    (seconds since 1970) or ttl (seconds). Other fields are ignored; two fields for the same thing are an error.\n\n\
    Rows are put in the file's order, in batches; batches loaded before an error stay.\n\n\
    Examples:\n  \
    senko store load data.kv rows.jsonl\n  \
    zcat rows.csv.gz | senko store load data.kv --format csv --synced\n  \
    senko store dump old.kv | senko store load new.kv --keep-versions 3"
)]
pub struct LoadArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The rows; - or nothing for stdin
    #[arg(value_name = "FILE")]
    from: Option<PathBuf>,
    /// json or csv [default: what the file's name or its first character says]
    #[arg(long)]
    format: Option<Format>,
    /// Most rows of a batch, which also ends at 1 MiB (with a small log, at an eighth of it); a
    /// crash leaves each batch complete or absent
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = |text: &str| count_in(text, 1..=1_000_000_u64))]
    batch: u64,
    /// Waits until each batch is durable before the next begins
    #[arg(long)]
    synced: bool,
    /// One JSON object on stdout at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    make: MakeArgs,
}

#[derive(Default)]
struct Loaded {
    rows: u64,
    deletes: u64,
    bytes: u64,
    batches: u64,
}

/// Runs `senko store load`.
pub fn load(args: &LoadArgs) -> Result<bool> {
    let path = &args.file.store;
    let started = Instant::now();
    // An unreadable input must not leave an empty store.
    let now = times::now().as_secs();
    let mut reader = Reader::open(args.from.as_deref(), args.format, now)?;
    // A read from a terminal or a pipe may take forever, so a signal ends it in the usual way.
    if reader.total.is_some() {
        stop_on_signals();
    }
    let opened = args.make.open(path)?;
    let mut loaded = Loaded::default();
    let done = put_rows(args, &opened.store, &mut reader, &mut loaded);
    let rows = loaded.rows + loaded.deletes;
    // A signal ends it between two rows, and the work until then is reported as usual.
    let (done, interrupted) = match done {
        Err(error) if error.is::<Interrupted>() => (Ok(()), Some(error)),
        done => (done, None),
    };
    let done = done.map_err(|error| {
        let note = match rows {
            0 => "nothing was loaded before it".to_owned(),
            1 => "1 row was loaded before it".to_owned(),
            rows => format!("{rows} rows were loaded before it"),
        };
        anyhow!("{error:#}; {note}")
    });
    opened.end(done, rows > 0)?;
    let seconds = started.elapsed().as_secs_f64();
    let line = json!({
        "rows": loaded.rows, "deletes": loaded.deletes, "bytes": loaded.bytes, "batches": loaded.batches,
        "seconds": seconds, "rows_per_second": rows as f64 / seconds.max(1e-9),
    });
    let size = show_size(loaded.bytes);
    let counted = counted(rows, "row");
    let text = format!("{counted}, {size} of keys and values, in {seconds:.1} s");
    print(args.json, &line, &text)?;
    interrupted.map_or(Ok(true), Err)
}

fn put_rows(
    args: &LoadArgs,
    store: &Store,
    reader: &mut Reader,
    loaded: &mut Loaded,
) -> Result<()> {
    let path = &args.file.store;
    let most = BATCH_BYTES.min(store.options().log_bytes / 8);
    let mut bar = Bar::new("loading");
    let mut batch = Batch::new();
    let (mut puts, mut deletes) = (0, 0);
    loop {
        if let Some(interrupted) = Interrupted::now() {
            return Err(interrupted.into());
        }
        let row = reader.next()?;
        if let Some(row) = &row {
            match &row.value {
                Some(value) => {
                    batch.put_expiring(&row.key, value, row.expires_at);
                    puts += 1;
                }
                None => {
                    batch.delete(&row.key);
                    deletes += 1;
                }
            }
        }
        let full = batch.len() as u64 >= args.batch || batch.bytes() >= most;
        if !batch.is_empty() && (full || row.is_none()) {
            store
                .write(&batch, writing(args.synced))
                .map_err(told(path))
                .with_context(|| format!("up to {}", reader.place()))?;
            loaded.rows += puts;
            loaded.deletes += deletes;
            loaded.bytes += batch.bytes();
            loaded.batches += 1;
            (puts, deletes) = (0, 0);
            batch.clear();
            let part = reader
                .total
                .map(|total| reader.bytes() as f64 / total.max(1) as f64);
            bar.show(part, || {
                let rows = counted(loaded.rows, "row");
                format!("{rows}, {}", show_size(loaded.bytes))
            });
        }
        if row.is_none() {
            return Ok(());
        }
    }
}

/// Arguments of `senko store dump`.
#[derive(Args, Debug)]
#[command(
    after_help = "A dump has the store at one moment, with keys in no particular order. load reads it back.\n\n\
    Examples:\n  \
    senko store dump data.kv > rows.jsonl\n  \
    senko store dump data.kv --to rows.csv\n  \
    senko store dump data.kv --format csv --encoding base64 | gzip > rows.csv.gz"
)]
pub struct DumpArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Writes to this file, which must not exist, instead of stdout; it is FILE.part until it is
    /// complete
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// json or csv [default: what the file's name says, else json]
    #[arg(long)]
    format: Option<Format>,
    /// Form of keys and values in CSV: raw (any bytes, quoted if necessary), hex or base64
    #[arg(long, value_name = "HOW", default_value = "raw")]
    encoding: Encoding,
    /// The same as --format json, which is the default
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// Runs `senko store dump`.
pub fn dump(args: &DumpArgs) -> Result<bool> {
    let path = &args.file.store;
    let by_name = || args.to.as_deref().and_then(Format::of_path);
    let format = match args.format {
        Some(format) => format,
        None if args.json => Format::Json,
        None => by_name().unwrap_or(Format::Json),
    };
    let store = open_to_read(path)?;
    let Some(to) = &args.to else {
        let mut out = BufWriter::with_capacity(1 << 18, crate::out::stdout());
        write_rows(path, &store, format, args.encoding, &mut out)?;
        return Ok(true);
    };
    stop_on_signals();
    let (unfinished, file) = Unfinished::create(to)?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    write_rows(path, &store, format, args.encoding, &mut out).map_err(|error| {
        // An error of the store names the store. An error of the system is about the new file.
        match error.downcast_ref::<std::io::Error>() {
            Some(_) => error.context(format!("cannot write {}", to.display())),
            None => error,
        }
    })?;
    unfinished.finish()?;
    Ok(true)
}

fn write_rows(
    path: &Path,
    store: &Store,
    format: Format,
    encoding: Encoding,
    out: &mut impl Write,
) -> Result<()> {
    let stats = store.stats();
    let most = stats.live_elements + stats.log_elements;
    let mut bar = Bar::new("dumping");
    if format == Format::Csv {
        rows::write_csv_head(out, encoding)?;
    }
    for (nth, entry) in (1..).zip(store.scan().map_err(told(path))?) {
        let entry = entry.map_err(told(path))?;
        match format {
            Format::Json => writeln!(out, "{}", Value::Object(rows::entry_json(&entry)))?,
            Format::Csv => rows::write_csv(out, &entry, encoding)?,
        }
        if nth % 1024 == 0 {
            bar.count(nth, Some(most.max(nth)), "rows");
            if let Some(interrupted) = Interrupted::now() {
                return Err(interrupted.into());
            }
        }
    }
    Ok(out.flush()?)
}

/// Arguments of `senko store scan`.
#[derive(Args, Debug)]
#[command(
    after_help = "Keys come in no particular order. A line has the key, a tab and the value; bytes that are not text are escaped. \
    Use dump for output that load can read.\n\n\
    Examples:\n  \
    senko store scan data.kv --limit 10\n  \
    senko store scan data.kv --prefix session: --keys-only\n  \
    senko store scan data.kv --count"
)]
pub struct ScanArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Prints only keys with this prefix; the command still reads all keys
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Prints at most this many
    #[arg(long, value_name = "N", value_parser = crate::units::limit)]
    limit: Option<u64>,
    /// Without the values
    #[arg(long)]
    keys_only: bool,
    /// Prints only the number of keys
    #[arg(long, conflicts_with = "keys_only")]
    count: bool,
    /// One JSON object a line: key, value, time of the write, expiry
    #[arg(long)]
    json: bool,
}

/// Runs `senko store scan`.
pub fn scan(args: &ScanArgs) -> Result<bool> {
    let path = &args.file.store;
    let store = open_to_read(path)?;
    let mut out = BufWriter::new(crate::out::stdout());
    let mut found = 0;
    let limit = args.limit.unwrap_or(u64::MAX);
    let prefix = args.prefix.as_deref().unwrap_or_default().as_bytes();
    let mut bar = Bar::new("scanning");
    let entries = store.scan().map_err(told(path))?;
    for (nth, entry) in (1_u64..).zip(entries) {
        if found >= limit {
            break;
        }
        let entry = entry.map_err(told(path))?;
        if args.count && nth % 4096 == 0 {
            bar.count(nth, None, "keys");
        }
        if !entry.key.starts_with(prefix) {
            continue;
        }
        found += 1;
        if args.count {
            continue;
        }
        if args.json {
            let mut object = rows::entry_json(&entry);
            if args.keys_only {
                object.retain(|name, _| !name.starts_with("value"));
            }
            writeln!(out, "{}", Value::Object(object))?;
        } else if args.keys_only {
            writeln!(out, "{}", text::shown(&entry.key))?;
        } else {
            let value = text::shown(&entry.value);
            writeln!(out, "{}\t{value}", text::shown(&entry.key))?;
        }
    }
    drop(bar);
    out.flush()?;
    if args.count {
        print(args.json, &json!({ "keys": found }), &found.to_string())?;
    }
    Ok(true)
}
