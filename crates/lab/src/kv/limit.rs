// SPDX-License-Identifier: Apache-2.0
//! What the device itself gives: reads of 4 KiB of the engine's own file with O_DIRECT, one at a time or many at once.
//!
//! Called by experiments between an engine's windows, since a shared device has good and bad minutes. One at a time goes by `pread`, which nothing is
//! faster than; many at once by [`crate::rig::fio`] and by our own ring of reads, and the better of the two is the limit. Only what was
//! written may be read: a hole is answered by the file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use senko_io::{AlignedBuf, PAGE_SIZE};
use senko_workload::{Histogram, Rng};

/// The file.
pub struct Limit {
    file: File,
    pages: u64,
}

/// Reads one at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneByOne {
    /// How many.
    pub count: u64,
    /// Mean, in microseconds.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

impl Limit {
    /// Opens a file of which the first `span` bytes were written.
    ///
    /// # Errors
    /// One sentence, if it cannot be read past the page cache.
    pub fn open(path: &Path, span: u64) -> Result<Limit, String> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path)
            .map_err(|error| {
                format!(
                    "{} cannot be read with O_DIRECT: {error}",
                    path.display()
                )
            })?;
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let pages = bytes.min(span) / PAGE_SIZE as u64;
        if pages == 0 {
            return Err(format!("{} has nothing to read", path.display()));
        }
        Ok(Limit { file, pages })
    }

    /// Bytes that are read from.
    pub fn span(&self) -> u64 {
        self.pages * PAGE_SIZE as u64
    }

    /// Reads pages at random, one at a time, for so long.
    ///
    /// # Errors
    /// If a read fails.
    pub fn one_by_one(&self, time: Duration, seed: u64) -> io::Result<OneByOne> {
        let mut page = AlignedBuf::new(1);
        let mut rng = Rng::new(seed);
        let mut times = Histogram::new();
        let start = Instant::now();
        while start.elapsed() < time {
            let at = rng.below(self.pages) * PAGE_SIZE as u64;
            let before = Instant::now();
            self.file.read_exact_at(&mut page, at)?;
            times.record(u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        let us = |ns: u64| ns as f64 / 1e3;
        Ok(OneByOne {
            count: times.len(),
            mean_us: times.mean() / 1e3,
            p50_us: us(times.quantile(0.5)),
            p99_us: us(times.quantile(0.99)),
        })
    }
}
