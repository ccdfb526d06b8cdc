// SPDX-License-Identifier: Apache-2.0
//! What a drive makes of several logs: each log writes its own part of the drive in order, again
//! and again, and the drive mixes their writes in its blocks.
//!
//! If logs differ in speed, the pages of a block die at different times. A drive without trim then
//! copies those that still live, unless its spare blocks bridge the difference.

use anyhow::{Context, Result};
use senko_server::server::plan::memory_plan;
use senko_server::settings::{FlashSpec, Settings};
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::profile::{DEFAULT, Profile};
use senko_ssd::spec::Spec;
use senko_ssd::{Error, Op, Request};

use crate::experiments::endurance_loads::request;
use crate::{Outcome, Table};

const LOGS: [usize; 6] = [1, 2, 4, 8, 16, 64];
const THREADS: [usize; 4] = [1, 8, 16, 64];
/// How much faster the fastest log is than the slowest. The first counts for the figures: a hash
/// deals keys evenly.
const SPREADS: [f64; 3] = [0.05, 0.1, 0.25];
/// The share of the drive that the logs take: nearly all.
const USED: f64 = 0.993;
/// Bytes of a write: a write buffer of a log.
const CHUNK: u64 = 256 << 10;
/// Laps of the slowest log before the drive's writes count, and while they count.
const LAPS: (u64, u64) = (4, 4);

/// Adds the table, and the factor for servers with several threads.
pub fn measure(outcome: &mut Outcome) -> Result<()> {
    let mut table = Table::new(
        "Pages that a simulated drive writes for each page of the logs, without trim",
        &["logs", "speeds differ by 5 %", "by 10 %", "by 25 %"],
    );
    let mut factors = Vec::new();
    for logs in LOGS {
        let mut cells = vec![logs.to_string()];
        for spread in SPREADS {
            let factor = factor(logs, spread, LAPS)?;
            cells.push(format!("{factor:.3}"));
            if spread == SPREADS[0] {
                factors.push((logs, factor));
            }
        }
        table.row(cells);
    }
    outcome.tables.push(table);
    for threads in THREADS {
        let logs = logs_of(threads)?;
        let found = factors.iter().find(|(of, _)| *of == logs);
        let (_, factor) = found.with_context(|| format!("{logs} logs were not simulated"))?;
        outcome.bar(format!("drive_factor_t{threads}"), *factor);
    }
    outcome.setting("logs_differ_in_speed_by", SPREADS[0]);
    outcome.setting("logs_share_of_the_drive", USED);
    Ok(())
}

/// The logs on a drive of a server with so many threads.
fn logs_of(threads: usize) -> Result<usize> {
    let settings = Settings {
        threads,
        memory: 16 << 30,
        flash: vec![FlashSpec {
            path: "flash".into(),
            bytes: 400 << 30,
        }],
        ..Settings::default()
    };
    let plan = memory_plan(&settings, &[400 << 30]).map_err(anyhow::Error::msg)?;
    Ok(plan.shards)
}

/// Pages that the drive writes for each page of the logs.
fn factor(logs: usize, spread: f64, laps: (u64, u64)) -> Result<f64> {
    let parts = Parts {
        buffer: Some(Spec::plain("none")),
        untimed: true,
        ..Parts::default()
    };
    let mut drive = Drive::new(&Profile::find(DEFAULT)?, &parts)?;
    let chunks = (drive.capacity_bytes() as f64 * USED) as u64 / CHUNK / logs as u64;
    let mut writer = Writer::new(logs, spread, chunks);
    let all = chunks * logs as u64;
    let mut run = |laps| {
        let requests = (0..laps * all).map(|_| Ok::<_, Error>(writer.next()));
        drive.run(requests, Load::Closed { depth: 1 })
    };
    run(laps.0)?;
    let report = run(laps.1)?;
    report
        .page_write_amplification()
        .context("the drive wrote nothing")
}

/// Logs that write in turn, the faster ones more often.
struct Writer {
    /// Of each log: its speed, when it writes next, and its next chunk.
    logs: Vec<(f64, f64, u64)>,
    /// Chunks of a log.
    chunks: u64,
}

impl Writer {
    fn new(logs: usize, spread: f64, chunks: u64) -> Writer {
        let faster = |n: usize| spread * n as f64 / (logs.max(2) - 1) as f64;
        Writer {
            logs: (0..logs).map(|n| (1.0 + faster(n), 0.0, 0)).collect(),
            chunks,
        }
    }

    fn next(&mut self) -> Request {
        let due = |log: &(f64, f64, u64)| log.1;
        let logs = self.logs.iter_mut().enumerate();
        let (n, log) = logs
            .min_by(|a, b| due(a.1).total_cmp(&due(b.1)))
            .expect("there is a log");
        let chunk = n as u64 * self.chunks + log.2;
        log.1 += 1.0 / log.0;
        log.2 = (log.2 + 1) % self.chunks;
        request(Op::Write, chunk * CHUNK, CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_do_not_multiply_what_a_drive_writes() {
        assert_eq!(
            THREADS.map(|threads| logs_of(threads).unwrap()),
            [1, 8, 8, 8]
        );
        assert!(factor(8, SPREADS[0], (2, 1)).unwrap() <= 1.02);
        // The simulation sees it if speeds differ much.
        assert!(factor(2, SPREADS[2], (2, 2)).unwrap() > 1.02);
    }
}
