// SPDX-License-Identifier: Apache-2.0
//! `senko store stats`, `compact`, `verify`, `repair` and `backup`: maintenance of a store.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use senko_store::{Options, RepairReport, Stats, Store};
use serde_json::{Map, Value, json};

use super::progress::Bar;
use super::{
    FileArgs, IndexName, SpaceArgs, close, open_to_read, print, tell_of_clock, times, told,
    told_of_copy,
};
use crate::process::{Interrupted, stop_on_signals};
use crate::units::{counted, show_size};

/// Problems that are listed for people; further ones are counted.
const LISTED: usize = 100;

/// Arguments of `senko store stats`.
#[derive(Args, Debug)]
#[command(
    after_help = "Counts of elements and bytes are from the last merge of the maps: an estimate if keys were overwritten since. A ratio is null while there is nothing to divide by.\n\n\
    Examples:\n  \
    senko store stats data.kv\n  \
    senko store stats data.kv --json | jq .dram_bytes_per_key"
)]
pub struct StatsArgs {
    #[command(flatten)]
    file: FileArgs,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// The settings that a store was created with.
fn settings(options: &Options) -> Vec<(&'static str, Value)> {
    vec![
        ("page_bytes", json!(options.page_bytes)),
        ("block_bytes_most", json!(options.block_bytes)),
        ("log_bytes_each", json!(options.log_bytes)),
        ("keep_versions", json!(options.keep_versions)),
        ("inline_max", json!(options.inline_max)),
        ("index", json!(IndexName::of(options.index))),
        ("fingerprint_bits", json!(options.fingerprint_bits)),
    ]
}

/// Figures derived from the counts, as names and values; null if there is nothing to divide by.
fn derived(stats: &Stats) -> [(&'static str, Value); 3] {
    let ratio = |of: u64, by: u64| (by > 0).then(|| of as f64 / by as f64);
    let growing = stats.map_dram_bytes + stats.page_index_dram_bytes;
    [
        (
            "dram_bytes_per_key",
            json!(ratio(growing, stats.live_elements)),
        ),
        (
            "used_over_live_bytes",
            json!(ratio(stats.block_bytes, stats.live_bytes)),
        ),
        (
            "written_over_put",
            json!(ratio(stats.bytes_written, stats.bytes_put)),
        ),
    ]
}

/// Settings, counts and derived figures, in the order in which they are printed.
pub fn stats_fields(store: &Store) -> Vec<(&'static str, Value)> {
    let stats = store.stats();
    let counts = stats.named().into_iter().map(|(name, count)| match name {
        "read_only" => (name, json!(count != 0)),
        _ => (name, json!(count)),
    });
    settings(store.options())
        .into_iter()
        .chain(counts)
        .chain(derived(&stats))
        .collect()
}

/// Runs `senko store stats`.
pub fn stats(args: &StatsArgs) -> Result<bool> {
    let store = open_to_read(&args.file.store)?;
    // The work of a process that has only just opened the store says nothing about the store.
    let of_the_process = [
        "puts",
        "deletes",
        "gets",
        "hits",
        "cache_hits",
        "cache_fills",
        "cache_records",
        "cache_dram_bytes",
        "seals",
        "sealed_elements",
        "compactions",
        "compacted_elements",
        "dropped_elements",
        "merges",
        "merged_elements",
        "snapshots_expired",
        "throttled_us",
        "open_us",
        "read_only",
    ];
    let fields = stats_fields(&store)
        .into_iter()
        .filter(|(name, _)| !of_the_process.contains(name));
    let mut out = crate::out::stdout();
    if args.json {
        let object: Map<String, Value> = fields
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        writeln!(out, "{}", Value::Object(object))?;
    } else {
        for (name, value) in fields.filter(|(_, value)| !value.is_null()) {
            let text = match (value.as_u64(), value.as_f64(), value.as_str()) {
                (Some(bytes), ..) if name.contains("bytes") || name == "inline_max" => {
                    format!("{bytes} ({})", show_size(bytes))
                }
                (Some(count), ..) => count.to_string(),
                (_, Some(ratio), _) => format!("{ratio:.2}"),
                (.., Some(text)) => text.to_owned(),
                _ => value.to_string(),
            };
            writeln!(out, "{name:<24}{text}")?;
        }
    }
    out.flush()?;
    Ok(true)
}

/// Arguments of `senko store compact`.
#[derive(Args, Debug)]
#[command(
    after_help = "Seals logs, drops deleted and overwritten elements, and merges the maps of all blocks into one. The store does \
    this in the background as far as --space-ratio requires; this command does all of it now. Free space stays in the file for later \
    writes, unless --shrink returns it to the file system. An open store returns space that has been free for a minute.\n\n\
    Examples:\n  \
    senko store compact data.kv\n  \
    senko store compact data.kv --shrink           the file takes less of the disk"
)]
pub struct CompactArgs {
    #[command(flatten)]
    file: FileArgs,
    /// Returns free space to the file system: truncates the file, and makes holes elsewhere
    #[arg(long)]
    shrink: bool,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    space: SpaceArgs,
}

/// Runs `senko store compact`.
pub fn compact(args: &CompactArgs) -> Result<bool> {
    let path = &args.file.store;
    let store = Store::open(path, args.space.options()).map_err(told(path))?;
    tell_of_clock(path, &store)?;
    let before = store.stats();
    let done = std::thread::scope(|scope| {
        let working = store.clone();
        let work = scope.spawn(move || {
            working.compact()?;
            match args.shrink {
                true => working.shrink().map(Some),
                false => Ok(None),
            }
        });
        let mut bar = Bar::new("compacting");
        while !work.is_finished() {
            let stats = store.stats();
            bar.show(None, || {
                let moved = stats.sealed_elements + stats.compacted_elements;
                let moved = counted(moved, "element");
                format!("{moved} moved, {} dropped", stats.dropped_elements)
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        work.join().expect("compaction does not panic")
    });
    let after = store.stats();
    let log = its_log(after.file_bytes - after.hole_bytes, store.options());
    let shrunk = close(path, store, done.map_err(told(path)))?;
    let mut line = json!({
        "used_bytes_before": before.used_bytes, "used_bytes": after.used_bytes, "file_bytes": after.file_bytes,
        "sealed_elements": after.sealed_elements, "compacted_elements": after.compacted_elements,
        "dropped_elements": after.dropped_elements, "blocks": after.blocks, "generations": after.generations,
    });
    let mut text = format!(
        "{} in use, before {}; {} dropped; {}",
        show_size(after.used_bytes),
        show_size(before.used_bytes),
        counted(after.dropped_elements, "element"),
        counted(after.blocks, "block")
    );
    if let Some(shrunk) = shrunk {
        line["cut_bytes"] = json!(shrunk.cut);
        line["punched_bytes"] = json!(shrunk.punched);
        text += &format!(
            "\n{} given back: {} off the file's end, {} in holes",
            show_size(shrunk.cut + shrunk.punched),
            show_size(shrunk.cut),
            show_size(shrunk.punched)
        );
        text += &log;
    }
    print(args.json, &line, &text)?;
    Ok(true)
}

/// Why a small store has a large file, as the end of a sentence.
fn its_log(file_bytes: u64, options: &Options) -> String {
    match file_bytes < 2 * options.log_bytes {
        false => String::new(),
        true => format!(
            "; of the file's {}, {} are its log (--log-size), which every store has",
            show_size(file_bytes),
            show_size(options.log_bytes)
        ),
    }
}

/// Arguments of `senko store verify`.
#[derive(Args, Debug)]
#[command(
    after_help = "Reads everything: superblock, manifest, every page of every block and log, every large value, the saved maps. Exit code 1 if \
    anything is wrong, with the byte in the file. Changes nothing.\n\n\
    Examples:\n  \
    senko store verify data.kv\n  \
    senko store verify data.kv --json\n      \
      a line a problem, then one with the counts"
)]
pub struct VerifyArgs {
    #[command(flatten)]
    file: FileArgs,
    /// One JSON object a problem, then one with the counts
    #[arg(long)]
    json: bool,
}

/// Runs `senko store verify`.
pub fn verify(args: &VerifyArgs) -> Result<bool> {
    let path = &args.file.store;
    let mut bar = Bar::new("verifying");
    let report = senko_store::verify(path, |done, total| {
        let part = done as f64 / total.max(1) as f64;
        bar.show(Some(part), || show_size(done));
    });
    drop(bar);
    let report = report.map_err(told(path))?;
    let mut out = crate::prose::stdout();
    if args.json {
        for problem in &report.problems {
            let line = json!({ "problem": problem.what, "offset": problem.offset });
            writeln!(out, "{line}")?;
        }
        let line = json!({
            "problems": report.problems.len(), "pages": report.pages, "elements": report.elements,
            "blocks": report.blocks, "logs": report.logs, "large_values": report.large_values,
        });
        writeln!(out, "{line}")?;
    } else {
        for problem in report.problems.iter().take(LISTED) {
            writeln!(out, "byte {}: {}", problem.offset, problem.what)?;
        }
        if report.problems.len() > LISTED {
            writeln!(out, "and {} more", report.problems.len() - LISTED)?;
        }
        let what = match report.problems.len() {
            0 => "no problem found".to_owned(),
            count => counted(count, "problem"),
        };
        writeln!(
            out,
            "{what} in {}, {}, {}: {}, {}",
            counted(report.blocks, "block"),
            counted(report.logs, "log"),
            counted(report.large_values, "large value"),
            counted(report.pages, "page"),
            counted(report.elements, "element")
        )?;
    }
    out.flush()?;
    Ok(report.problems.is_empty())
}

/// Arguments of `senko store repair`.
#[derive(Args, Debug)]
#[command(
    after_help = "The command only reads the damaged store. It writes every intact element into a new store, page by page, \
    also after damaged pages. If superblock and manifest are lost, it searches the whole file for blocks and logs. \
    Exit code 1 if anything was lost; each loss is listed with its bytes in the file. Older values and deleted keys come back \
    if what replaced or deleted them was lost.\n\n\
    Examples:\n  \
    senko store repair data.kv saved.kv\n  \
    senko store repair /dev/nvme1n1 saved.kv --json\n      \
      a line a loss, then one with the counts"
)]
pub struct RepairArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The new store; it must not exist
    to: PathBuf,
    /// One JSON object a loss, then one with the counts
    #[arg(long)]
    json: bool,
}

/// Runs `senko store repair`.
pub fn repair(args: &RepairArgs) -> Result<bool> {
    let path = &args.file.store;
    stop_on_signals();
    let mut bar = Bar::new("repairing");
    let report = senko_store::repair(path, &args.to, |done, total| {
        let part = done as f64 / total.max(1) as f64;
        bar.show(Some(part), || show_size(done));
        Interrupted::now().is_none()
    });
    drop(bar);
    let report = report.map_err(told(path))?;
    let mut out = crate::prose::stdout();
    if args.json {
        repair_json(&report, &mut out)?;
    } else {
        repair_text(&report, &args.to, &mut out)?;
    }
    out.flush()?;
    Ok(report.lost.is_empty())
}

fn repair_json(report: &RepairReport, out: &mut impl Write) -> Result<()> {
    for loss in &report.lost {
        let line = json!({ "lost": loss.what, "offset": loss.offset, "bytes": loss.bytes });
        writeln!(out, "{line}")?;
    }
    let line = json!({
        "salvaged": report.salvaged, "bytes": report.bytes, "losses": report.lost.len(), "lost_bytes": report.lost_bytes(),
        "blocks": report.blocks, "logs": report.logs, "manifest_lost": report.manifest_lost,
        "secret_lost": report.secret_lost,
    });
    writeln!(out, "{line}")?;
    Ok(())
}

fn repair_text(report: &RepairReport, to: &Path, out: &mut impl Write) -> Result<()> {
    for loss in report.lost.iter().take(LISTED) {
        let (first, bytes) = (loss.offset, counted(loss.bytes, "byte"));
        writeln!(out, "lost {bytes} from byte {first} on: {}", loss.what)?;
    }
    if report.lost.len() > LISTED {
        writeln!(out, "and {} more", report.lost.len() - LISTED)?;
    }
    if report.manifest_lost {
        writeln!(
            out,
            "the list of blocks and logs was lost: the whole file was searched for them"
        )?;
    }
    if report.manifest_lost || !report.lost.is_empty() {
        writeln!(
            out,
            "older values and deleted keys may have come back, if what was lost had replaced or deleted them"
        )?;
    }
    writeln!(
        out,
        "{}, {} of keys and values, from {} and {} into {}; lost: {}",
        counted(report.salvaged, "element"),
        show_size(report.bytes),
        counted(report.blocks, "block"),
        counted(report.logs, "log"),
        to.display(),
        match report.lost_bytes() {
            0 if report.lost.is_empty() => "nothing".to_owned(),
            bytes => {
                let places = counted(report.lost.len() as u64, "place");
                format!("{} in {places}", show_size(bytes))
            }
        }
    )?;
    Ok(())
}

/// Arguments of `senko store backup`.
#[derive(Args, Debug)]
#[command(
    after_help = "The copy is a separate store, compacted, with the same settings. It is named TO.part until it is complete.\n\n\
    Examples:\n  \
    senko store backup data.kv /backup/data-today.kv"
)]
pub struct BackupArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The new store; it must not exist
    to: PathBuf,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs `senko store backup`.
pub fn backup(args: &BackupArgs) -> Result<bool> {
    let path = &args.file.store;
    let store = open_to_read(path)?;
    let stats = store.stats();
    let most = stats.live_elements + stats.log_elements;
    stop_on_signals();
    let mut bar = Bar::new("copying");
    let report = store.backup(&args.to, |done| {
        bar.count(done, Some(most.max(done)), "elements");
        Interrupted::now().is_none()
    });
    drop(bar);
    let report = report.map_err(told_of_copy(path))?;
    let line = json!({ "elements": report.elements, "bytes": report.bytes, "time": report.time });
    let file_bytes = args.to.metadata().map_or(u64::MAX, |made| made.len());
    let text = format!(
        "{}, {} of keys and values, as of {}{}",
        counted(report.elements, "element"),
        show_size(report.bytes),
        times::show(report.time),
        its_log(file_bytes, store.options())
    );
    print(args.json, &line, &text)?;
    Ok(true)
}
