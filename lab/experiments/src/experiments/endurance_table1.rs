// SPDX-License-Identifier: Apache-2.0
//! Paper C, table 1: the effect of a 2 MB LRU write buffer before BAST on Financial1 and on an MSN
//! server.
//!
//! Claim: 65.3 % of the page writes hit, 66.5 % fewer blocks are erased, writes are 3.0 times as
//! fast. Expected shape: erases fall by about the share of hits or a little more, since absorbed
//! writes need no log page. The exact number depends on the number of log blocks, which the paper
//! does not state.
//!
//! The paper ran the whole trace, of which only the first 10,000 requests are available (its figure
//! 2). So the hits include a cold phase of the buffer. The number of log blocks is the one that
//! fits the other two numbers best. The experiment sweeps and shows the paper's other open points:
//! which log block is the victim, whether the drive was full before, and how time is counted.
//!
//! The trace of the second row, MSNStorageCFS, is not available: 77.8 % hits, 80.6 % fewer erases,
//! 4.7 times as fast. Microsoft's MSN file server (MSN-FS) replaces it, in the setting that
//! Financial1 chose. Its figures are named `msn_fs_*`, and the row's own figures are missing.
//! MSN-FS hardly writes an address twice, so the buffer gains nothing, and nothing follows for the
//! row itself.

use std::path::Path;

use anyhow::Result;
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::profile::Profile;
use senko_ssd::report::Report;
use senko_ssd::source::Workload;
use senko_ssd::spec::Spec;
use senko_ssd::trace::{Fold, Range, TraceSpec};
use serde_json::json;

use crate::{Bar, Claim, Experiment, Options, Outcome, Paper, Progress, Table};

/// The experiment.
pub struct EnduranceTable1;

const TRACE: &str = "block/Financial1_first10k.spc";

/// What replaces MSNStorageCFS.
const STAND_IN: &str = "block/MSN-FS_150k.disksim_ms";

/// The figures of a row of the table.
const KEYS: [&str; 3] = ["hit_percent", "erase_reduction_percent", "write_speedup"];

/// The paper's numbers: hits and fewer erases in percent, and how many times as fast writes are.
const PAPER: (f64, f64, f64) = (65.3, 66.5, 3.0);

/// And those of its second row.
const PAPER_MSN: (f64, f64, f64) = (77.8, 80.6, 4.7);

/// Numbers of log blocks. The drive has room for 254.
const LOG_BLOCKS: [u32; 16] = [1, 2, 4, 6, 8, 12, 16, 20, 24, 26, 28, 30, 32, 48, 64, 96];

const VICTIMS: [&str; 2] = ["lru", "round-robin"];

/// The buffer with the paper's other open point: reads take room in it, too.
const READS_FILL: &str = "lru:fill-reads=true";

/// Shares of the drive that were written before.
const FILLS: [f64; 2] = [0.0, 1.0];

/// The results of a setting.
struct Row {
    log_blocks: u32,
    victim: &'static str,
    fill: f64,
    /// Erases without and with the buffer, and with the pages that it still held at the end written
    /// too.
    erases: [u64; 3],
    hit_percent: f64,
    /// Mean response of writes without and with the buffer, one request at a time.
    write_us: [f64; 2],
    /// The same at the times of the trace.
    open_write_us: [f64; 2],
    /// With a buffer that reads fill too: erases, and hits of writes in percent.
    reads_fill: (u64, f64),
}

impl Row {
    /// How many fewer blocks are erased, in percent.
    fn reduction(&self, with: u64) -> f64 {
        (1.0 - with as f64 / self.erases[0] as f64) * 100.0
    }

    /// The same at the end of the run, without writing the buffer's remaining pages, because the
    /// paper does not mention draining it.
    fn erase_reduction(&self) -> f64 {
        self.reduction(self.erases[1])
    }

    fn speedup(&self) -> f64 {
        self.write_us[0] / self.write_us[1]
    }

    /// The distance from the paper's numbers, as far as they depend on the setting.
    fn distance(&self) -> f64 {
        (self.erase_reduction() / PAPER.1 - 1.0).abs() + (self.speedup() / PAPER.2 - 1.0).abs()
    }
}

impl Experiment for EnduranceTable1 {
    fn name(&self) -> &'static str {
        "endurance-table1"
    }

    fn claim(&self) -> Claim {
        Claim {
            paper: Paper::C,
            source: "paper C, table 1",
            text: "a 2 MB LRU buffer before BAST: 65.3 % hits, 66.5 % fewer erases and writes 3.0 times as fast on Financial1; 77.8 %, 80.6 % and 4.7 times on MSNStorageCFS",
            bars: const {
                &[
                    Bar::more("hit_percent", 50.0, 65.3),
                    Bar::more("erase_reduction_percent", 50.0, 66.5),
                    Bar::more("write_speedup", 2.0, 3.0),
                ]
            },
            published: &[
                ("hit_percent", 65.3),
                ("erase_reduction_percent", 66.5),
                ("write_speedup", 3.0),
                ("msn_storage_cfs_hit_percent", 77.8),
                ("msn_storage_cfs_erase_reduction_percent", 80.6),
                ("msn_storage_cfs_write_speedup", 4.7),
            ],
        }
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Outcome> {
        let mut outcome = Outcome::new();
        for key in KEYS {
            outcome.miss(
                format!("msn_storage_cfs_{key}"),
                "MSNStorageCFS is not here; the figures msn_fs_* are of another server, which stands in for it",
            );
        }
        let path = options.traces.join(TRACE);
        if !path.exists() {
            for key in KEYS {
                let why = format!("there is no {}", path.display());
                outcome.miss(key, why.clone());
                outcome.miss(format!("msn_fs_{key}"), why);
            }
            return Ok(outcome);
        }
        let workload = folded(&path)?;
        let profile = Profile::find("paper-1gb")?;
        let total = (LOG_BLOCKS.len() * VICTIMS.len() * FILLS.len()) as u64;
        let mut rows = Vec::new();
        for fill in FILLS {
            for victim in VICTIMS {
                for log_blocks in LOG_BLOCKS {
                    progress.step(
                        rows.len() as u64,
                        total,
                        &format!("{log_blocks} log blocks"),
                    );
                    rows.push(measure(&workload, &profile, log_blocks, victim, fill)?);
                }
            }
        }
        let best = report(&mut outcome, &rows, &profile);
        stand_in(options, best, &profile, &mut outcome)?;
        Ok(outcome)
    }
}

/// A trace, folded into the drive.
fn folded(path: &Path) -> Result<Workload> {
    Ok(Workload {
        fold: Fold {
            range: Range::Modulo,
            ..Fold::default()
        },
        ..Workload::named(&path.to_string_lossy(), &TraceSpec::default())?
    })
}

/// The second row, by another trace, in the setting of the first.
fn stand_in(
    options: &Options,
    best: Option<&Row>,
    profile: &Profile,
    outcome: &mut Outcome,
) -> Result<()> {
    let path = options.traces.join(STAND_IN);
    let why = match best {
        Some(_) if path.exists() => None,
        Some(_) => Some(format!("there is no {}", path.display())),
        None => Some("no setting of Financial1 erased anything".to_owned()),
    };
    let (None, Some(best)) = (&why, best) else {
        for key in KEYS {
            outcome.miss(format!("msn_fs_{key}"), why.clone().unwrap_or_default());
        }
        return Ok(());
    };
    let row = measure(
        &folded(&path)?,
        profile,
        best.log_blocks,
        best.victim,
        best.fill,
    )?;
    let mut table = Table::new(
        "Table 1, with MSN-FS in place of MSNStorageCFS",
        &[
            "trace",
            "paper hits",
            "hits",
            "paper fewer",
            "fewer erases",
            "paper speedup",
            "speedup",
        ],
    );
    for (name, paper, row) in [
        ("Financial1", PAPER, best),
        ("MSN-FS for MSNStorageCFS", PAPER_MSN, &row),
    ] {
        table.row(vec![
            name.to_owned(),
            format!("{:.1} %", paper.0),
            format!("{:.1} %", row.hit_percent),
            format!("{:.1} %", paper.1),
            format!("{:.1} %", row.erase_reduction()),
            format!("{:.1}", paper.2),
            format!("{:.2}", row.speedup()),
        ]);
    }
    outcome.tables.insert(0, table);
    outcome.bar("msn_fs_hit_percent", row.hit_percent);
    outcome.bar("msn_fs_erase_reduction_percent", row.erase_reduction());
    outcome.bar("msn_fs_write_speedup", row.speedup());
    Ok(())
}

/// One run: the report, and the erases once the buffer is drained.
fn simulate(
    workload: &Workload,
    profile: &Profile,
    ftl: &Spec,
    buffer: &str,
    fill: f64,
    load: Load,
) -> Result<(Report, u64)> {
    let parts = Parts {
        ftl: Some(ftl.clone()),
        buffer: Some(buffer.parse()?),
        ..Parts::default()
    };
    let mut drive = Drive::new(profile, &parts)?;
    drive.precondition(fill)?;
    let before = drive.devices()[0].nand().counts().all_erases();
    let report = drive.run(workload.requests(drive.capacity_bytes())?, load)?;
    drive.devices_mut()[0].flush(0);
    let drained = drive.devices()[0].nand().counts().all_erases() - before;
    Ok((report, drained))
}

fn measure(
    workload: &Workload,
    profile: &Profile,
    log_blocks: u32,
    victim: &'static str,
    fill: f64,
) -> Result<Row> {
    let ftl = Spec::plain("bast")
        .with("log-blocks", log_blocks)
        .with("victim", victim);
    let one = Load::Closed { depth: 1 };
    let open = Load::Open { speed: 1.0 };
    let run = |buffer, load| simulate(workload, profile, &ftl, buffer, fill, load);
    let (without, _) = run("none", one)?;
    let (with, drained) = run("lru", one)?;
    let (filled, _) = run(READS_FILL, one)?;
    Ok(Row {
        log_blocks,
        victim,
        fill,
        erases: [without.flash.all_erases(), with.flash.all_erases(), drained],
        hit_percent: with.write_hit_ratio().unwrap_or(f64::NAN) * 100.0,
        write_us: [without.writes.mean_us, with.writes.mean_us],
        open_write_us: [
            run("none", open)?.0.writes.mean_us,
            run("lru", open)?.0.writes.mean_us,
        ],
        reads_fill: (
            filled.flash.all_erases(),
            filled.write_hit_ratio().unwrap_or(f64::NAN) * 100.0,
        ),
    })
}

/// The rows as a table, and the row nearest to the paper as figures.
fn report<'r>(outcome: &mut Outcome, rows: &'r [Row], profile: &Profile) -> Option<&'r Row> {
    let mut table = Table::new(
        "Financial1's first 10,000 requests on paper-1gb: BAST without and with a 2 MiB page LRU (reads do not touch)",
        &[
            "victim",
            "drive",
            "log blocks",
            "erases, without",
            "erases, with LRU",
            "fewer",
            "drained",
            "hits",
            "write us",
            "write us, with LRU",
            "speedup",
            "at trace times",
            "fewer, reads fill",
            "hits, reads fill",
        ],
    );
    for row in rows {
        table.row(vec![
            row.victim.to_owned(),
            if row.fill > 0.0 { "full" } else { "new" }.to_owned(),
            row.log_blocks.to_string(),
            row.erases[0].to_string(),
            row.erases[1].to_string(),
            format!("{:.1} %", row.erase_reduction()),
            format!("{:.1} %", row.reduction(row.erases[2])),
            format!("{:.1} %", row.hit_percent),
            format!("{:.0}", row.write_us[0]),
            format!("{:.0}", row.write_us[1]),
            format!("{:.2}", row.speedup()),
            format!("{:.2}", row.open_write_us[0] / row.open_write_us[1]),
            format!("{:.1} %", row.reduction(row.reads_fill.0)),
            format!("{:.1} %", row.reads_fill.1),
        ]);
    }
    outcome.tables.push(table);
    let best = rows
        .iter()
        .filter(|row| row.erases[0] > 0)
        .min_by(|a, b| a.distance().total_cmp(&b.distance()));
    let Some(best) = best else {
        for key in KEYS {
            outcome.miss(key, "no setting erased anything");
        }
        return None;
    };
    outcome.bar("hit_percent", best.hit_percent);
    outcome.bar("erase_reduction_percent", best.erase_reduction());
    outcome.bar("write_speedup", best.speedup());
    outcome.bar("reads_fill_hit_percent", best.reads_fill.1);
    outcome.bar(
        "reads_fill_erase_reduction_percent",
        best.reduction(best.reads_fill.0),
    );
    outcome.setting("log_blocks", best.log_blocks);
    outcome.setting("victim", best.victim);
    outcome.setting("drive_was_full", best.fill > 0.0);
    outcome.setting(
        "buffer",
        "lru, 2 MiB, reads do not touch, not drained at the end",
    );
    outcome.setting("time", "one request at a time");
    outcome.setting("profile", json!(profile));
    outcome.setting("folding", "addresses modulo 1 GiB, ASU ignored");
    Some(best)
}
