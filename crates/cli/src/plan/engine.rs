// SPDX-License-Identifier: Apache-2.0
//! `senko plan --engine`: what a store or a DBM writes to its drive, and how long that lives.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use senko_plan::short;
use senko_plan::wear::{Engine, KEY_BYTES, Load, MOST_BYTES};
use senko_ssd::chart::Unit;
use serde_json::json;

use super::{DAY, PlanArgs, Writes, YEARS, check_bytes};
use crate::units::counted;

/// Puts that become durable together, if no other number is asked for.
const BATCH: u64 = 100;
/// DRAM for pages, as by default.
const CACHE: u64 = 64 << 20;
const LEAST_CACHE: u64 = 1 << 20;

pub fn main(args: &PlanArgs, engine: Engine) -> Result<()> {
    let records = match args.items {
        Some(0) => bail!("--items 0: there is nothing to keep"),
        Some(records) => records,
        None => bail!("give --items N, the records that are kept"),
    };
    ensure!(
        (KEY_BYTES..=MOST_BYTES).contains(&args.bytes),
        "--bytes {}: with an engine an item has {KEY_BYTES} to {MOST_BYTES} bytes",
        args.bytes
    );
    let live = records as f64 * args.bytes as f64;
    check_bytes(live)?;
    let cache = args.cache.unwrap_or(CACHE);
    ensure!(
        cache >= LEAST_CACHE,
        "--cache {cache}: the DBM has at least {LEAST_CACHE} bytes for pages"
    );
    let batch = args.batch.unwrap_or(BATCH);
    let load = Load {
        records,
        bytes: args.bytes,
        exponent: args.zipf,
        together: batch,
        cache,
    };
    let wear = load.wear(engine)?;
    let file = live * wear.file_over_records;
    let drive = args.drive.map_or(file, |bytes| bytes as f64);
    if drive < file {
        bail!(
            "--drive: a drive of {} is too small for the file, which has {} at its largest",
            Unit::Bytes.show(drive),
            Unit::Bytes.show(file)
        );
    }
    let put = args.rate * args.bytes as f64 * DAY;
    let writes = Writes::of(put * wear.written_over_put, drive, args);
    let endurance = writes.endurance();
    let lasting = (endurance / args.cycles).max(file);
    let name = match engine {
        Engine::Store => "store",
        Engine::Dbm => "dbm",
    };
    let mut out = crate::out::stdout();
    if args.json {
        let line = json!({
            "engine": name, "records": records, "record_bytes": args.bytes, "batch": batch,
            "written_over_put": wear.written_over_put, "file_over_records": wear.file_over_records,
            "file_bytes": file, "drive_bytes": drive, "put_bytes_a_day": put,
            "host_bytes_a_day": writes.host_a_day, "written_bytes_a_day": writes.written_a_day,
            "years": writes.years, "years_missing": writes.years_missing(),
            "five_years_drive_bytes": lasting,
            "five_years_host_bytes": endurance / args.write_amplification,
            "records_counted": wear.records,
        });
        return writeln!(out, "{line}").context("cannot write to stdout");
    }
    let bytes = |value: f64| Unit::Bytes.show(value);
    writeln!(
        out,
        "{} of {}, {} in all:\n  \
         puts    {} a second, {batch} at a time\n  \
         writes  {:.2} bytes for a byte put, {} a day ({} to its cells)\n  \
         file    {} at its largest, {:.2} times the records\n  \
         life    {} for a drive of {} at {} cycles a block\n  \
         for {YEARS:.0} years: a drive of {}, or one rated for {} of writes\n\
         counted with {} on a device in memory",
        counted(records, "record"),
        bytes(args.bytes as f64),
        bytes(live),
        short(args.rate),
        wear.written_over_put,
        bytes(writes.host_a_day),
        bytes(writes.written_a_day),
        bytes(file),
        wear.file_over_records,
        writes.life(),
        bytes(drive),
        short(args.cycles),
        bytes(lasting),
        bytes(endurance / args.write_amplification),
        counted(wear.records, "record"),
    )
    .context("cannot write to stdout")
}
