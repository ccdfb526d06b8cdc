// SPDX-License-Identifier: Apache-2.0
//! `senko dbm`: the transactional DBM on the command line. Arguments in, calls of `senko_dbm`, text
//! and JSON lines out.
//!
//! Exit codes are those of `senko store`: 0 done, 1 the answer is no (no such key, problems found,
//! something lost), 2 it could not be done, with one sentence on stderr. Commands that only read
//! open the database while another process may write to it.

use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use senko_dbm::{
    CopyReport, Database, DbmError, Durability, MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES, Options,
    Table, VerifyReport,
};
use senko_workload::units::count;
use serde_json::{Value, json};

use self::formats::Format;
use crate::process::{Interrupted, stop_on_signals};
use crate::progress::Bar;
use crate::store::text;
use crate::units::{counted, limit, within};
mod formats; // what load reads and dump writes
mod rows; // a record, and the lines that readers share
mod berkeley; // db_dump's
mod gdbm; // gdbm_dump's
mod bulk; // load and dump

/// The table of commands that name no table.
const MAIN: &str = "main";

/// Arguments of `senko dbm`.
#[derive(Args, Debug)]
#[command(
    after_help = "A database is one file. One process can write while others read.\n\
    put, load and bench create a missing database. Keys and values are text, or any bytes with --hex.\n\
    Exit codes: 0 done; 1 the answer is no (no such key, problems found, something lost); 2 it could not be done, and stderr says why;\n\
    141 the reader closed stdout early, as head does.\n\n\
    Examples:\n  \
    senko dbm put data.db colour green\n  \
    senko dbm get data.db colour\n  \
    senko dbm range data.db --from a --to c --limit 10\n  \
    senko dbm load data.db rows.jsonl\n  \
    senko dbm dump data.db > rows.jsonl\n  \
    senko dbm dump data.db --format db_dump > rows.dump\n  \
    senko dbm backup data.db copy.db\n  \
    senko dbm verify data.db\n  \
    senko dbm bench /mnt/nvme/bench.db --transactions 10000 --records 100"
)]
pub struct DbmArgs {
    #[command(subcommand)]
    command: Command,
}

/// A database as a whole.
#[derive(Args, Debug)]
struct Whole {
    /// The database's file
    file: PathBuf,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// A table of a database.
#[derive(Args, Debug)]
struct Place {
    #[command(flatten)]
    whole: Whole,
    /// Table [default: main; all tables for dump]; put, load and bench create a missing table
    #[arg(long, short)]
    table: Option<String>,
    /// Keys and values are given and printed as hexadecimal digits
    #[arg(long)]
    hex: bool,
}

impl std::ops::Deref for Place {
    type Target = Whole;
    fn deref(&self) -> &Whole {
        &self.whole
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Wait {
    /// Nothing
    None,
    /// Until a killed process would lose nothing
    Buffered,
    /// Until a power failure would lose nothing
    Synced,
}

impl Wait {
    fn durability(self) -> Durability {
        match self {
            Wait::None => Durability::None,
            Wait::Buffered => Durability::Buffered,
            Wait::Synced => Durability::Synced,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Puts a record
    #[command(after_help = "Examples:\n  \
        senko dbm put data.db colour green\n  \
        senko dbm put data.db --table shapes ball round")]
    Put {
        #[command(flatten)]
        place: Place,
        key: String,
        value: String,
    },
    /// Prints the value of a key
    #[command(after_help = "Examples:\n  \
        senko dbm get data.db colour\n  \
        senko dbm get data.db --hex 636f6c6f7572")]
    Get {
        #[command(flatten)]
        place: Place,
        key: String,
    },
    /// Deletes keys; ends with 1 if one of them was not there
    #[command(after_help = "Examples:\n  \
        senko dbm delete data.db colour")]
    Delete {
        #[command(flatten)]
        place: Place,
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Prints the records of a range, in the order of their keys
    #[command(after_help = "Examples:\n  \
        senko dbm range data.db --from a --to d --limit 10\n  \
        senko dbm range data.db --reverse --json")]
    Range {
        #[command(flatten)]
        place: Place,
        /// The first key
        #[arg(long)]
        from: Option<String>,
        /// The first key behind the range
        #[arg(long)]
        to: Option<String>,
        /// From the last to the first
        #[arg(long)]
        reverse: bool,
        /// At most this many records
        #[arg(value_name = "N", value_parser = limit, long)]
        limit: Option<u64>,
    },
    /// Lists the tables with their records
    #[command(after_help = "Examples:\n  \
        senko dbm tables data.db")]
    Tables(Whole),
    /// Puts the records of a dump into their tables
    #[command(
        after_help = "JSON lines have the fields key and value, or key_hex, value_hex, key_base64, value_base64, and may have table. CSV has a first \
        line with the columns' names, the same ones. A dump of db_dump or mdb_dump may have several tables; one of gdbm_dump has one.\n\
        A record without a table goes into --table. Without --whole, records loaded before an error stay, and the message counts them.\n\n\
        Examples:\n  \
        senko dbm load data.db rows.jsonl\n  \
        zcat rows.csv.gz | senko dbm load data.db --format csv --whole"
    )]
    Load {
        #[command(flatten)]
        place: Place,
        /// The records; - or nothing for stdin
        input: Option<PathBuf>,
        /// [default: what the file's name or its first line says]
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// All records are one transaction, which is held in memory: all are loaded or none
        #[arg(long, conflicts_with = "batch")]
        whole: bool,
        /// Most records of a transaction, which also ends at 1 MiB
        #[arg(value_name = "N", long, default_value_t = 1000, value_parser = |text: &str| within(text, 1, u32::MAX))]
        batch: u32,
        /// Loads records that expire, as senko store dump writes them, as records that stay
        #[arg(long)]
        drop_expiry: bool,
    },
    /// Writes the records of all tables, or of one, as of one moment
    #[command(after_help = "Examples:\n  \
        senko dbm dump data.db --to rows.csv\n  \
        senko dbm dump data.db --format db_dump > rows.dump")]
    Dump {
        #[command(flatten)]
        place: Place,
        /// [default: what the name of --to says, else json]
        #[arg(long, value_enum)]
        format: Option<Format>,
        /// Writes to this file, which must not exist, instead of stdout; it is FILE.part until it
        /// is complete
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Copies a database, which may be in use, to a new one
    #[command(after_help = "Examples:\n  \
        senko dbm backup data.db copy.db")]
    Backup {
        #[command(flatten)]
        whole: Whole,
        /// The new database; it is TO.part until it is complete
        to: PathBuf,
    },
    /// Writes a database again, without dead pages
    #[command(after_help = "Examples:\n  \
        senko dbm compact data.db")]
    Compact(Whole),
    /// Saves every record that can be read into a new database, and lists what is lost
    #[command(after_help = "Examples:\n  \
        senko dbm repair data.db --to saved.db")]
    Repair {
        #[command(flatten)]
        whole: Whole,
        /// The new database
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Checks every page and every long value, the superblocks, the checkpoint and the log
    #[command(after_help = "Examples:\n  \
        senko dbm verify data.db")]
    Verify(Whole),
    /// Prints counts and sizes
    #[command(after_help = "Examples:\n  \
        senko dbm stats data.db --json")]
    Stats(Whole),
    /// Measures: ascending keys of 4 bytes, values of 8
    #[command(after_help = "Examples:\n  \
        senko dbm bench /mnt/nvme/bench.db --transactions 10000 --records 100")]
    Bench {
        #[command(flatten)]
        place: Place,
        #[arg(value_name = "N", value_parser = count::<u32>, long, default_value_t = 10_000)]
        transactions: u32,
        /// Records a transaction
        #[arg(value_name = "N", value_parser = count::<u32>, long, default_value_t = 1)]
        records: u32,
        /// What a commit waits for
        #[arg(long, value_enum, default_value = "synced")]
        durability: Wait,
        /// Runs on a table that has records; those with the same keys are overwritten
        #[arg(long)]
        existing: bool,
    },
}

/// Runs `senko dbm`.
pub fn main(args: &DbmArgs) -> ExitCode {
    match run(&args.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => crate::failed(error),
    }
}

impl Whole {
    fn told(&self, error: &DbmError) -> anyhow::Error {
        let (name, text) = (self.file.display().to_string(), error.to_string());
        if matches!(error, DbmError::Foreign(_)) && crate::begins_with(&self.file, b"SENKOKV\0") {
            return anyhow!("{name} is a store of the unordered kind: use `senko store`");
        }
        match text.contains(&name) {
            true => anyhow!(text),
            false => anyhow!("{name}: {text}"),
        }
    }

    /// The error of a copy to `to`. A file that can't be opened, or is full, is mostly the new one.
    fn told_of_copy(&self, error: &DbmError, to: &Path) -> anyhow::Error {
        match error {
            DbmError::Open(_) => anyhow!(error.to_string()),
            DbmError::NoSpace(pages) => {
                let (to, bytes) = (to.display(), pages * senko_io::PAGE_SIZE as u64);
                anyhow!("{to}: no space left for {bytes} bytes more; nothing was changed")
            }
            error => self.told(error),
        }
    }

    /// Whether there is no file yet.
    fn is_absent(&self) -> bool {
        self.file.symlink_metadata().is_err()
    }

    /// Removes a database that was made for nothing, while it is locked. If it can't be removed, it
    /// stays: a failure is reported anyway.
    fn remove(&self) {
        let _ = std::fs::remove_file(&self.file);
    }

    fn options(&self, create: bool) -> Options {
        Options {
            create,
            ..Options::default()
        }
    }

    fn write(&self, create: bool) -> Result<Database> {
        refuse_kind(&self.file)?;
        Database::open(&self.file, self.options(create)).map_err(|error| self.told(&error))
    }

    fn read(&self) -> Result<Database> {
        Database::open_to_read(&self.file, Options::default()).map_err(|error| self.told(&error))
    }
}

impl Place {
    /// The table's name.
    fn name(&self) -> &str {
        self.table.as_deref().unwrap_or(MAIN)
    }

    /// Checked before a database is made.
    fn check_name(&self) -> Result<()> {
        let bytes = self.name().len();
        if bytes == 0 || bytes > MAX_TABLE_NAME_BYTES {
            bail!("a table's name has 1 to {MAX_TABLE_NAME_BYTES} bytes, not {bytes}");
        }
        Ok(())
    }

    fn found(&self, db: &Database) -> Result<Table> {
        db.table(self.name()).map_err(|error| self.told(&error))
    }

    /// Bytes of an argument.
    fn bytes(&self, text: &str) -> Result<Vec<u8>> {
        if !self.hex {
            return Ok(text.as_bytes().to_vec());
        }
        from_hex(text)
            .with_context(|| format!("{text:?} is not an even number of hexadecimal digits"))
    }

    fn text(&self, bytes: &[u8]) -> Vec<u8> {
        match self.hex {
            true => to_hex(bytes).into_bytes(),
            false => bytes.to_vec(),
        }
    }
}

/// Refuses a path that is neither a file nor a device.
fn refuse_kind(path: &Path) -> Result<()> {
    let Ok(there) = path.metadata() else {
        // It does not exist, or opening the database reports the reason.
        return Ok(());
    };
    if !there.is_file() && !there.file_type().is_block_device() {
        bail!(
            "{} is neither a regular file nor a block device",
            path.display()
        );
    }
    Ok(())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

fn run(command: &Command) -> Result<bool> {
    let mut out = std::io::BufWriter::new(crate::out::stdout());
    let answer = match command {
        Command::Put { place, key, value } => {
            let (key, value) = (place.bytes(key)?, place.bytes(value)?);
            // A refused key or table makes no database.
            place.check_name()?;
            if key.len() > MAX_KEY_BYTES {
                bail!("{}", DbmError::KeyTooLong(key.len()));
            }
            let absent = place.is_absent();
            let db = place.write(true)?;
            // Another process may have made it meanwhile.
            let is_new = absent && db.tables().is_empty();
            let put = db
                .create_table(place.name())
                .and_then(|table| db.run(Durability::Synced, |tx| tx.put(&table, &key, &value)));
            if put.is_err() && is_new {
                place.remove();
            }
            put.and_then(|()| db.close())
                .map_err(|error| place.told(&error))?;
            true
        }
        Command::Get { place, key } => get(place, &place.bytes(key)?, &mut out)?,
        Command::Delete { place, keys } => delete(place, keys)?,
        Command::Range {
            place,
            from,
            to,
            reverse,
            limit,
        } => {
            let bound = |key: &Option<String>| key.as_ref().map(|k| place.bytes(k)).transpose();
            let (from, to) = (bound(from)?, bound(to)?);
            range(
                place,
                from,
                to,
                *reverse,
                limit.unwrap_or(u64::MAX),
                &mut out,
            )?
        }
        Command::Tables(whole) => tables(whole, &mut out)?,
        Command::Load {
            place,
            input,
            format,
            whole,
            batch,
            drop_expiry,
        } => {
            let batch = (!whole).then_some(*batch as usize);
            let input = input.as_deref();
            bulk::load(place, input, *format, batch, *drop_expiry, &mut out)?
        }
        Command::Dump { place, format, to } => bulk::dump(place, *format, to.as_deref(), &mut out)?,
        Command::Backup { whole, to } => copied(whole, Some(to), &mut out, |progress| {
            whole
                .read()?
                .backup(to, progress)
                .map_err(|e| whole.told_of_copy(&e, to))
        })?,
        Command::Compact(whole) => copied(whole, None, &mut out, |progress| {
            Database::compact(&whole.file, Options::default(), progress).map_err(|e| whole.told(&e))
        })?,
        Command::Repair { whole, to } => copied(whole, Some(to), &mut out, |progress| {
            match Database::open_to_read(&whole.file, Options::default()) {
                Ok(db) => db.repair(to, progress),
                // It does not open, for example because it has no checkpoint, or because its first
                // pages are those of something else. Its other pages say whether it is a database.
                Err(DbmError::Damaged { .. } | DbmError::Foreign(_)) => {
                    Database::salvage(&whole.file, to, progress)
                }
                Err(error) => Err(error),
            }
            .map_err(|error| whole.told_of_copy(&error, to))
        })?,
        Command::Verify(whole) => verify(whole, &mut out)?,
        Command::Stats(whole) => stats(whole, &mut out)?,
        Command::Bench {
            place,
            transactions,
            records,
            durability,
            existing,
        } => {
            if transactions == &0 || records == &0 {
                bail!("bench runs at least one transaction of one record");
            }
            let wait = durability.durability();
            bench(place, (*transactions, *records), wait, *existing, &mut out)?
        }
    };
    out.flush()?;
    Ok(answer)
}

fn get(place: &Place, key: &[u8], out: &mut impl Write) -> Result<bool> {
    let db = place.read()?;
    let table = place.found(&db)?;
    let found = db.snapshot().get(&table, key);
    let Some(value) = found.map_err(|error| place.told(&error))? else {
        return Ok(false);
    };
    if place.json {
        writeln!(
            out,
            "{}",
            formats::json(place.name(), key, &value, place.hex)
        )?;
    } else {
        out.write_all(&place.text(&value))?;
        writeln!(out)?;
    }
    Ok(true)
}

fn delete(place: &Place, keys: &[String]) -> Result<bool> {
    let keys = keys
        .iter()
        .map(|key| place.bytes(key))
        .collect::<Result<Vec<_>>>()?;
    let db = place.write(false)?;
    let table = place.found(&db)?;
    let all = db.run(Durability::Synced, |tx| {
        let mut all = true;
        for key in &keys {
            all &= tx.get(&table, key)?.is_some();
            tx.delete(&table, key)?;
        }
        Ok(all)
    });
    let all = all.and_then(|all| db.close().map(|()| all));
    all.map_err(|error| place.told(&error))
}

fn range(
    place: &Place,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    reverse: bool,
    limit: u64,
    out: &mut impl Write,
) -> Result<bool> {
    use std::ops::Bound;
    let db = place.read()?;
    let table = place.found(&db)?;
    let bounds = (
        from.as_deref().map_or(Bound::Unbounded, Bound::Included),
        to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
    );
    let cursor = db.snapshot().cursor(&table, bounds);
    let mut cursor = cursor.map_err(|error| place.told(&error))?;
    for _ in 0..limit {
        let record = if reverse {
            cursor.previous()
        } else {
            cursor.next()
        };
        let Some((key, value)) = record.map_err(|error| place.told(&error))? else {
            break;
        };
        if place.json {
            writeln!(
                out,
                "{}",
                formats::json(place.name(), &key, &value, place.hex)
            )?;
        } else {
            out.write_all(&place.text(&key))?;
            out.write_all(b"\t")?;
            out.write_all(&place.text(&value))?;
            writeln!(out)?;
        }
    }
    Ok(true)
}

fn tables(whole: &Whole, out: &mut impl Write) -> Result<bool> {
    let db = whole.read()?;
    let snapshot = db.snapshot();
    for table in db.tables() {
        let records = snapshot.count(&table).map_err(|error| whole.told(&error))?;
        let name = table.name();
        match whole.json {
            true => writeln!(out, "{}", json!({ "table": name, "records": records }))?,
            false => writeln!(out, "{records:>12}  {}", text::shown(name.as_bytes()))?,
        }
    }
    Ok(true)
}

/// Runs a copy, shows its progress, and prints what it copied. False if something is lost.
fn copied(
    whole: &Whole,
    to: Option<&PathBuf>,
    out: &mut impl Write,
    work: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Result<CopyReport>,
) -> Result<bool> {
    stop_on_signals();
    let all = whole.read().map_or(0, |db| {
        let snapshot = db.snapshot();
        let counts = db.tables().into_iter().map(|table| snapshot.count(&table));
        counts.map(|count| count.unwrap_or(0)).sum()
    });
    let mut bar = Bar::new("copying", "records", all);
    let report = work(&mut |records| {
        bar.done(records);
        Interrupted::now().is_none()
    });
    drop(bar);
    if let Some(interrupted) = Interrupted::now() {
        return Err(interrupted.into());
    }
    let report = report?;
    let shown = |key: &Option<Vec<u8>>| key.as_ref().map(|key| to_hex(key));
    for lost in &report.lost {
        let (from, to) = (shown(&lost.from), shown(&lost.to));
        let (table, why) = (&lost.table, lost.why.to_string());
        if whole.json {
            let line = json!({ "lost": table, "from_hex": from, "to_hex": to, "missing": lost.missing, "why": why });
            writeln!(out, "{line}")?;
            continue;
        }
        let from = from.unwrap_or("the first key".to_owned());
        let to = to.unwrap_or("the end".to_owned());
        let missing = lost.missing;
        match &**table {
            "" => writeln!(out, "lost: {why}")?,
            _ => writeln!(
                out,
                "lost in table {table:?}, which misses {}: from {from} to {to}: {why}",
                counted(missing, "record")
            )?,
        }
    }
    let (tables, records, bytes) = (report.tables, report.records, report.bytes);
    if whole.json {
        writeln!(
            out,
            "{}",
            json!({ "tables": tables, "records": records, "bytes": bytes })
        )?;
    } else {
        let to = to.map_or(String::new(), |to| format!(" to {}", to.display()));
        writeln!(
            out,
            "{}, {}, {} written{to}",
            counted(tables, "table"),
            counted(records, "record"),
            counted(bytes, "byte")
        )?;
    }
    Ok(report.lost.is_empty())
}

fn verify(whole: &Whole, out: &mut impl Write) -> Result<bool> {
    let opened = Database::open_to_read(&whole.file, Options::default());
    let report = opened.and_then(|db| db.verify());
    let report = match report {
        // It does not open because of its damage, which is a problem found.
        Err(error @ DbmError::Damaged { .. }) => {
            let mut report = VerifyReport::default();
            report.problems.push((String::new(), error));
            report
        }
        report => report.map_err(|error| whole.told(&error))?,
    };
    let problems = report.problems.len();
    if whole.json {
        let list: Vec<Value> = report
            .problems
            .iter()
            .map(|(table, error)| json!({ "table": table, "problem": error.to_string() }))
            .collect();
        let (tables, pages, records) = (report.tables, report.pages, report.records);
        let line =
            json!({ "tables": tables, "pages": pages, "records": records, "problems": list });
        writeln!(out, "{line}")?;
    } else {
        for (table, error) in &report.problems {
            match &**table {
                "" => writeln!(out, "{error}")?,
                table => writeln!(out, "table {table:?}: {error}")?,
            }
        }
        let (tables, pages, records) = (report.tables, report.pages, report.records);
        writeln!(
            out,
            "{}, {} and {} read, {}",
            counted(tables, "table"),
            counted(pages, "page"),
            counted(records, "record"),
            counted(problems as u64, "problem")
        )?;
    }
    Ok(problems == 0)
}

fn stats(whole: &Whole, out: &mut impl Write) -> Result<bool> {
    let stats = whole.read()?.stats();
    let mut rows = vec![
        ("file_bytes", stats.file_bytes),
        ("live_bytes", stats.live_bytes),
        ("free_bytes", stats.free_bytes),
        ("bytes_put", stats.bytes_put),
        ("bytes_written", stats.bytes_written),
        ("bytes_discarded", stats.bytes_discarded),
        ("commit", stats.commit),
        ("checkpoint", stats.checkpoint),
    ];
    if let Some(pinned) = stats.pinned_checkpoint {
        // Another process reads, and holds the space of that checkpoint.
        rows.push(("pinned_checkpoint", pinned));
    }
    let ratio = (stats.bytes_put > 0).then(|| {
        (
            "written_over_put",
            stats.bytes_written as f64 / stats.bytes_put as f64,
        )
    });
    if whole.json {
        let all: serde_json::Map<String, Value> = rows
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .chain(ratio.map(|(name, ratio)| (name.to_owned(), ratio.into())))
            .collect();
        writeln!(out, "{}", Value::from(all))?;
    } else {
        for (name, value) in rows {
            writeln!(out, "{name:<17} {value}")?;
        }
        if let Some((name, ratio)) = ratio {
            writeln!(out, "{name:<17} {ratio:.2}")?;
        }
    }
    Ok(true)
}

fn bench(
    place: &Place,
    (transactions, records): (u32, u32),
    durability: Durability,
    existing: bool,
    out: &mut impl Write,
) -> Result<bool> {
    let told = |error| place.told(&error);
    place.check_name()?;
    let db = place.write(true)?;
    if let Some(table) = db.tables().iter().find(|it| it.name() == place.name())
        && !existing
        && db.snapshot().count(table).map_err(told)? > 0
    {
        bail!(
            "the table {:?} of {} has records; --existing runs on it, and overwrites those with its keys",
            place.name(),
            place.file.display()
        );
    }
    let table = db.create_table(place.name()).map_err(told)?;
    let mut nanoseconds = Vec::with_capacity((transactions as usize).min(1 << 20));
    let mut bar = Bar::new("committing", "transactions", u64::from(transactions));
    stop_on_signals();
    let started = Instant::now();
    for nth in 0..transactions {
        if Interrupted::now().is_some() && nth > 0 {
            break;
        }
        let began = Instant::now();
        let mut tx = db.begin();
        for record in 0..records {
            let key = nth.wrapping_mul(records).wrapping_add(record).to_be_bytes();
            tx.put(&table, &key, &[7; 8]).map_err(told)?;
        }
        tx.commit(durability).map_err(told)?;
        nanoseconds.push(began.elapsed().as_nanos() as u64);
        bar.done(u64::from(nth) + 1);
    }
    drop(bar);
    let transactions = nanoseconds.len() as u32;
    let seconds = started.elapsed().as_secs_f64();
    db.close().map_err(told)?;
    nanoseconds.sort_unstable();
    let at = |share: f64| {
        let nth = (nanoseconds.len() as f64 * share) as usize;
        nanoseconds[nth.min(nanoseconds.len() - 1)] as f64 / 1000.0
    };
    let rate = f64::from(transactions) / seconds;
    if place.json {
        let line = json!({
            "transactions": transactions, "records": records, "seconds": seconds,
            "transactions_per_second": rate, "p50_us": at(0.5), "p99_us": at(0.99),
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "{rate:.0} transactions a second of {}; 50% within {:.1} us, 99% within {:.1} us",
            counted(records, "record"),
            at(0.5),
            at(0.99)
        )?;
    }
    out.flush()?;
    match Interrupted::now() {
        Some(interrupted) => Err(interrupted.into()),
        None => Ok(true),
    }
}
