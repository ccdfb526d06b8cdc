// SPDX-License-Identifier: Apache-2.0
//! The device's own rate: reads of 4 KiB of the engine's own file, one at a time or many at once.
//!
//! [`super::child`] calls it between an engine's windows, since the rate of a shared device
//! changes. It runs in the engine's own process with its open file, so the engine itself is the
//! only difference from a get. One thread submits many reads at once through the same ring as the
//! engine's; [`crate::rig::fio`] measures that from outside, and the better of the two is the
//! limit.
//!
//! The file system answers reads of pages that were never written without the device, and a file
//! has some: they do not count. A page of an engine begins with its checksum and names, so a page
//! that begins with zeros was not written.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use senko_io::{AlignedBuf, Device, Engine, IoError, PAGE_SIZE, Purpose, ReadStream, Tag};
use senko_workload::{Histogram, Rng};
use serde::{Deserialize, Serialize};

use super::driver::{Times, Worked};

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Lookup,
};

/// Reads that are under way at depth.
pub const DEPTH: u32 = 64;

/// Bytes at the start of a page that are not all zero if the page was written.
const HEAD: usize = 16;

/// Random reads of the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceReads {
    /// Bytes from the file's start that are read.
    pub span: u64,
    pub seconds: f64,
    /// Many at once; else one at a time.
    pub many: bool,
    pub seed: u64,
}

/// Reads the device. Every page counts as a get. Pages that were ever written count as found, and
/// only they are timed, one at a time.
pub fn reads(device: &dyn Device, reads: &DeviceReads) -> Result<Worked> {
    let pages = device.pages().min(reads.span / PAGE_SIZE as u64);
    ensure!(pages > 0, "there is nothing to read");
    if reads.many {
        many(device, reads, pages)
    } else {
        one(device, reads, pages)
    }
}

fn written(page: &[u8]) -> bool {
    page[..HEAD].iter().any(|byte| *byte != 0)
}

fn one(device: &dyn Device, reads: &DeviceReads, pages: u64) -> Result<Worked> {
    let time = Duration::from_secs_f64(reads.seconds);
    let mut rng = Rng::new(reads.seed);
    let mut buffer = AlignedBuf::new(1);
    let mut times = Histogram::new();
    let (start, mut count, mut found) = (Instant::now(), 0, 0);
    let mut between = Duration::ZERO;
    while start.elapsed() < time {
        let before = Instant::now();
        device
            .read(rng.below(pages), &mut buffer, TAG)
            .map_err(|error| anyhow!("a read of the device failed: {error}"))?;
        let took = before.elapsed();
        count += 1;
        if written(&buffer) {
            found += 1;
            times.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        } else {
            between += took;
        }
    }
    Ok(Worked {
        gets: count,
        found,
        seconds: (start.elapsed() - between).as_secs_f64(),
        get: Times::of(&times),
        ..Worked::default()
    })
}

/// Random pages, as many at a time as there are slots.
struct Random {
    rng: Rng,
    pages: u64,
    end: Instant,
    count: u64,
    found: u64,
    failed: Option<IoError>,
}

impl ReadStream for Random {
    fn next(&mut self, _: usize) -> Option<(u64, usize)> {
        let more = self.failed.is_none() && Instant::now() < self.end;
        more.then(|| (self.rng.below(self.pages), 1))
    }

    fn done(&mut self, _: usize, result: Result<&[u8], IoError>) {
        match result {
            Ok(page) => {
                self.count += 1;
                self.found += u64::from(written(page));
            }
            Err(error) => self.failed = Some(error),
        }
    }
}

fn many(device: &dyn Device, reads: &DeviceReads, pages: u64) -> Result<Worked> {
    let start = Instant::now();
    let mut random = Random {
        rng: Rng::new(reads.seed),
        pages,
        end: start + Duration::from_secs_f64(reads.seconds),
        count: 0,
        found: 0,
        failed: None,
    };
    let depth = DEPTH as usize;
    device.read_stream(2 * depth, depth, &mut random, TAG);
    match random.failed {
        Some(error) => Err(anyhow!("a read of the device failed: {error}")),
        None => Ok(Worked {
            gets: random.count,
            found: random.found,
            seconds: start.elapsed().as_secs_f64(),
            ..Worked::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_io::{FileOptions, FlashFile};

    /// Gets and found gets; enough of them to measure a share, however slow the disk is.
    fn some_reads(file: &FlashFile, wanted: &DeviceReads) -> (u64, u64) {
        let (mut gets, mut found) = (0, 0);
        for seed in 1.. {
            let shown = reads(file, &DeviceReads { seed, ..*wanted }).unwrap();
            gets += shown.gets;
            found += shown.found;
            if gets >= 100 {
                break;
            }
        }
        (gets, found)
    }

    #[test]
    fn only_what_was_written_counts() {
        let path = std::env::temp_dir().join(format!("senko-limit-{}", std::process::id()));
        let options = FileOptions {
            bytes: 1 << 20,
            ..FileOptions::default()
        };
        let file = FlashFile::open(&path, &options).unwrap();
        let mut half = AlignedBuf::new(128);
        half.fill(7);
        file.write(0, &half, TAG).unwrap();
        for many in [false, true] {
            let wanted = DeviceReads {
                span: 1 << 20,
                seconds: 0.02,
                many,
                seed: 1,
            };
            let (gets, found) = some_reads(&file, &wanted);
            assert!(found * 10 < gets * 9, "{found} of {gets}");
            let wanted = DeviceReads {
                span: 1 << 19,
                ..wanted
            };
            let (gets, found) = some_reads(&file, &wanted);
            assert_eq!(found, gets);
        }
        drop(file);
        std::fs::remove_file(&path).unwrap();
    }
}
