// SPDX-License-Identifier: Apache-2.0
//! `senko store`: the unordered store on the command line. It parses arguments, calls
//! `senko_store`, and prints text, JSON lines and CSV.
//!
//! Exit codes for scripts: 0 done; 1 the answer is no (no such key, a problem found, something
//! lost); 2 it could not be done, with one sentence on stderr. `out` has the code for a closed
//! stdout.

mod bench; // loads, runs mixes, measures
mod bulk; // load, dump, scan
mod care; // stats, compact, verify, repair, backup
pub mod csv; // comma-separated values over bytes
mod one; // put, get, delete, history
mod progress; // one line on a terminal
mod rows; // what load reads and dump writes
pub mod text; // bytes as text
mod times; // moments and spans

use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use senko_store::{Durability, IndexKind, Options, Store, StoreError, WriteOptions};
use senko_workload::{SpecError, units};
use serde_json::Value;

use crate::process::Interrupted;
use crate::units::{ByteRate, Bytes, some_bytes};

/// Arguments of `senko store`.
#[derive(Args, Debug)]
#[command(
    after_help = "A store is one file or a block device, used by one process that writes or by several that read. put, load and bench create a missing store.\n\
    Keys and values can be any bytes: use --hex on the command line. In JSON, bytes that are not text are base64.\n\
    Exit codes: 0 done; 1 the answer is no (no such key, problems found, something lost); 2 it could not be done, and stderr says why;\n\
    141 the reader closed stdout early, as head does.\n\
    A backup, a repaired store and a dump are named NAME.part until they are complete.\n\n\
    Examples:\n  \
    senko store put data.kv colour green\n  \
    senko store get data.kv colour\n  \
    senko store load data.kv rows.jsonl --synced\n  \
    senko store dump data.kv > rows.jsonl\n  \
    senko store stats data.kv --json\n  \
    senko store verify data.kv || senko store repair data.kv saved.kv\n  \
    senko store bench /mnt/nvme/bench.kv --keys 4m --mix ycsb-b --threads 4"
)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Puts a value
    Put(Box<one::PutArgs>),
    /// Prints the value of a key, now or at an earlier time
    Get(one::GetArgs),
    /// Deletes keys
    Delete(one::DeleteArgs),
    /// Prints the versions of a key that are kept
    History(one::HistoryArgs),
    /// Lists keys and values, in no order
    Scan(bulk::ScanArgs),
    /// Puts the rows of a file of JSON lines or CSV
    Load(Box<bulk::LoadArgs>),
    /// Writes everything as JSON lines or CSV, which load reads
    Dump(bulk::DumpArgs),
    /// Prints settings, counts and sizes
    Stats(care::StatsArgs),
    /// Drops dead elements, and merges the maps of all blocks into one
    Compact(care::CompactArgs),
    /// Checks every page and every value
    Verify(care::VerifyArgs),
    /// Saves the intact elements of a damaged store into a new one
    Repair(care::RepairArgs),
    /// Copies the store into a new one
    Backup(care::BackupArgs),
    /// Measures: YCSB and other mixes of gets and puts
    Bench(Box<bench::BenchArgs>),
}

/// Runs `senko store`. A command that did its work returns whether the answer is yes.
pub fn main(args: StoreArgs) -> ExitCode {
    let done = match args.command {
        StoreCommand::Put(args) => one::put(&args),
        StoreCommand::Get(args) => one::get(&args),
        StoreCommand::Delete(args) => one::delete(&args),
        StoreCommand::History(args) => one::history(&args),
        StoreCommand::Scan(args) => bulk::scan(&args),
        StoreCommand::Load(args) => bulk::load(&args),
        StoreCommand::Dump(args) => bulk::dump(&args),
        StoreCommand::Stats(args) => care::stats(&args),
        StoreCommand::Compact(args) => care::compact(&args),
        StoreCommand::Verify(args) => care::verify(&args),
        StoreCommand::Repair(args) => care::repair(&args),
        StoreCommand::Backup(args) => care::backup(&args),
        StoreCommand::Bench(args) => bench::main(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => crate::failed(error),
    }
}

/// A size on the command line.
fn size(text: &str) -> Result<Bytes, SpecError> {
    units::size(text, 1).map(Bytes)
}

/// A whole number from a range.
fn count_in<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: TryFrom<u64> + PartialOrd + Display,
{
    let number = units::count(text).map_err(|error| error.to_string())?;
    if range.contains(&number) {
        return Ok(number);
    }
    let (least, most) = range.into_inner();
    Err(format!("it must lie between {least} and {most}"))
}

/// The error with the file's name before it, unless it names a file itself.
fn told(path: &Path) -> impl Fn(StoreError) -> anyhow::Error {
    let (name, path) = (path.display().to_string(), path.to_owned());
    move |error| {
        if matches!(error, StoreError::Foreign(_)) && crate::begins_with(&path, b"SENKODB\0") {
            return anyhow!("{name} is a database of the ordered kind: use `senko dbm`");
        }
        if matches!(error, StoreError::Stopped)
            && let Some(interrupted) = Interrupted::now()
        {
            return interrupted.into();
        }
        let text = error.to_string();
        let named = match error {
            StoreError::Copy { .. } => true,
            StoreError::Open(_) | StoreError::Invalid(_) => text.contains(&name),
            _ => false,
        };
        if named {
            anyhow!(text)
        } else {
            anyhow!("{name}: {text}")
        }
    }
}

/// As [`told`], for a copy of an open store. If a file can't be opened, it is the new one, which
/// the error names.
fn told_of_copy(path: &Path) -> impl Fn(StoreError) -> anyhow::Error {
    let told = told(path);
    move |error| match error {
        StoreError::Open(error) => anyhow!(error.to_string()),
        error => told(error),
    }
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Nothing: in memory, and on the device when enough has gathered
    None,
    /// Until the device has it: a killed process loses nothing
    Buffered,
    /// Until the write is durable: a power failure loses nothing
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IndexName {
    /// A static map: block and fingerprint, in about two bytes a key
    Static,
    /// The Bloom Filter Map: 16 bits a key
    Bloom,
}

impl IndexName {
    fn kind(self) -> IndexKind {
        match self {
            IndexName::Static => IndexKind::Static,
            IndexName::Bloom => IndexKind::BloomMap,
        }
    }

    fn of(kind: IndexKind) -> &'static str {
        match kind {
            IndexKind::Static => "static",
            IndexKind::BloomMap => "bloom",
        }
    }
}

/// How a new store is made, and how its space is kept.
#[derive(Args, Clone, Debug, Default)]
struct MakeArgs {
    /// Bytes of a page of a sorted block: 4k, 8k, 16k or 32k [default: 4k]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "A new store")]
    page_size: Option<Bytes>,
    /// Bytes of a sorted block, 1m to 1g [default: 64m]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "A new store")]
    block_size: Option<Bytes>,
    /// Bytes of a log, 1m to 1g [default: as a block]
    #[arg(long, value_name = "SIZE", value_parser = some_bytes, help_heading = "A new store")]
    log_size: Option<Bytes>,
    /// Versions of a key to keep, for history and get --at [default: 1]
    #[arg(long, value_name = "N", value_parser = units::count::<u32>, help_heading = "A new store")]
    keep_versions: Option<u32>,
    /// Larger values are stored outside logs and blocks; with a small log also those above an
    /// eighth of it [default: 512k]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "A new store")]
    inline_max: Option<Bytes>,
    /// The map in memory from a key to its block [default: static]
    #[arg(long, value_name = "NAME", help_heading = "A new store")]
    index: Option<IndexName>,
    /// Fingerprint bits a key in memory: a get of an absent key reads in vain with probability
    /// 2^-bits [default: 7]
    #[arg(long, value_name = "BITS", value_parser = units::count::<u32>, help_heading = "A new store")]
    fingerprint_bits: Option<u32>,
    #[command(flatten)]
    space: SpaceArgs,
}

/// How the space of a store is kept, at each opening.
#[derive(Args, Clone, Debug, Default)]
struct SpaceArgs {
    /// Largest size of the file; must not be less than the size in use
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Space")]
    max_size: Option<Bytes>,
    /// Compaction keeps the used space below this multiple of the live data [default: 1.3]
    #[arg(long, value_name = "RATIO", value_parser = units::number, help_heading = "Space")]
    space_ratio: Option<f64>,
    /// Bytes a second that compaction may write while no write waits for it, such as 20m/s
    #[arg(long, value_name = "SIZE/TIME", help_heading = "Space")]
    compaction_rate: Option<ByteRate>,
}

impl SpaceArgs {
    fn options(&self) -> Options {
        let default = Options::default();
        Options {
            create: false,
            max_bytes: self.max_size.map(|size| size.0),
            space_ratio: self.space_ratio.unwrap_or(default.space_ratio),
            compaction_rate: self.compaction_rate.map(|rate| rate.0),
            ..default
        }
    }
}

impl MakeArgs {
    fn options(&self) -> Options {
        let default = Options::default();
        let or = |size: Option<Bytes>, default: u64| size.map_or(default, |size| size.0);
        Options {
            create: true,
            page_bytes: or(self.page_size, default.page_bytes as u64) as usize,
            block_bytes: or(self.block_size, default.block_bytes),
            log_bytes: or(self.log_size, default.log_bytes),
            keep_versions: self.keep_versions.unwrap_or(default.keep_versions),
            inline_max: or(self.inline_max, default.inline_max as u64) as usize,
            index: self.index.map_or(default.index, IndexName::kind),
            fingerprint_bits: self.fingerprint_bits.unwrap_or(default.fingerprint_bits),
            ..self.space.options()
        }
    }

    /// Names the options that cannot change for an existing store.
    fn check(&self, path: &Path, has: &Options) -> Result<()> {
        let bytes = |size: Option<Bytes>| size.map(|size| size.0);
        let number = |name, asked: Option<u64>, has: u64| {
            let asked = asked.map(|number| number.to_string());
            (name, asked, has.to_string())
        };
        let versions = self.keep_versions.map(u64::from);
        let bits = self.fingerprint_bits.map(u64::from);
        let index = self.index.map(|index| IndexName::of(index.kind()));
        let asked = [
            number("--page-size", bytes(self.page_size), has.page_bytes as u64),
            number("--block-size", bytes(self.block_size), has.block_bytes),
            number("--log-size", bytes(self.log_size), has.log_bytes),
            number("--keep-versions", versions, has.keep_versions.into()),
            number(
                "--inline-max",
                bytes(self.inline_max),
                has.inline_max as u64,
            ),
            (
                "--index",
                index.map(str::to_owned),
                IndexName::of(has.index).to_owned(),
            ),
            number("--fingerprint-bits", bits, has.fingerprint_bits.into()),
        ];
        for (name, asked, has) in asked {
            // The bound on inline values depends on the sizes of block and log, which may have
            // lowered it.
            let lowered = name == "--inline-max";
            if let Some(asked) = asked
                && asked != has
                && !(lowered && asked.parse::<u64>().ok() > has.parse::<u64>().ok())
            {
                return Err(anyhow!(
                    "{} was made with {name} {has}, which cannot be changed to {asked}",
                    path.display()
                ));
            }
        }
        Ok(())
    }

    /// Opens the store for writing, or makes it.
    fn open(&self, path: &Path) -> Result<Opened> {
        let lay_there = path.symlink_metadata().is_ok();
        let store = Store::open(path, self.options()).map_err(told(path))?;
        tell_of_clock(path, &store)?;
        match self.check(path, store.options()) {
            Ok(()) => Ok(Opened {
                made: store.is_new() && !lay_there,
                path: path.to_path_buf(),
                store,
            }),
            Err(error) => {
                store.close().map_err(told(path))?;
                Err(error)
            }
        }
    }
}

/// A store that is open for writing.
struct Opened {
    store: Store,
    path: PathBuf,
    /// Whether its file was made for this command.
    made: bool,
}

impl Opened {
    /// Closes the store, and returns the first error. If the store was made for a command that
    /// failed and put nothing into it, it is removed.
    fn end<T>(self, done: Result<T>, put_something: bool) -> Result<T> {
        if done.is_err() && self.made && !put_something {
            // It is still open, so no other process can have opened it.
            let _ = std::fs::remove_file(&self.path);
            drop(self.store);
            return done;
        }
        close(&self.path, self.store, done)
    }
}

/// Closes the store, and returns the first error.
fn close<T>(path: &Path, store: Store, done: Result<T>) -> Result<T> {
    let closed = store.close().map_err(told(path));
    done.and_then(|done| closed.map(|()| done))
}

/// How a command writes, which waits for the device, or until the write is durable.
fn writing(synced: bool) -> WriteOptions {
    match synced {
        true => WriteOptions::synced(),
        false => WriteOptions::default(),
    }
}

/// Prints one line: JSON, or text for people.
fn print(json: bool, line: &Value, text: &str) -> Result<()> {
    let mut out = crate::prose::stdout();
    match json {
        true => writeln!(out, "{line}")?,
        false => writeln!(out, "{text}")?,
    }
    Ok(out.flush()?)
}

/// Opens an existing store for reading.
fn open_to_read(path: &Path) -> Result<Store> {
    let options = Options {
        read_only: true,
        create: false,
        ..Options::default()
    };
    let store = Store::open(path, options).map_err(told(path))?;
    tell_of_clock(path, &store)?;
    Ok(store)
}

/// Says that the newest write is of a time that the clock has not reached by far. The times of
/// further writes go on from there, and what expires went while the clock was ahead.
fn tell_of_clock(path: &Path, store: &Store) -> Result<()> {
    const FAR: std::time::Duration = std::time::Duration::from_secs(86_400);
    let newest = store.snapshot()?.time();
    if u128::from(newest) > (times::now() + FAR).as_micros() {
        senko_io::tell!(
            "senko: {}: its newest write has the time {}, but this machine's clock shows {}; further \
             writes get times after the former",
            path.display(),
            times::show(newest),
            times::show(times::now().as_micros() as u64)
        );
    }
    Ok(())
}

/// The file of the store, which every command takes first.
#[derive(Args, Clone, Debug)]
struct FileArgs {
    /// The store: a file or a block device
    #[arg(value_name = "STORE")]
    store: PathBuf,
}
