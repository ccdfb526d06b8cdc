// SPDX-License-Identifier: Apache-2.0
//! What the device itself gives: reads of 4 KiB of the engine's own file with O_DIRECT, one at a time or many at once.
//!
//! Called by experiments between an engine's windows, since a shared device has good and bad minutes. One at a time goes by `pread`, which nothing is
//! faster than; many at once by [`crate::rig::fio`], on that file, and by our own [`Ring`], on a file of its own, since an open engine keeps
//! other writers and rings from its file; the better of the two is the limit. Only what was written may be read: a hole is answered by
//! the file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result as Anyhow, anyhow};
use senko_io::{
    AlignedBuf, Device, Engine, FileOptions, FlashFile, PAGE_SIZE, Purpose, ReadRequest, Tag,
};
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
            .map_err(|error| format!("{} cannot be read with O_DIRECT: {error}", path.display()))?;
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

/// Our own way to read many pages at once, on a file of its own.
pub struct Ring {
    file: FlashFile,
    pages: u64,
}

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Lookup,
};

/// Pages of one batch; 64 of them are under way at a time.
const BATCH: usize = 1024;

impl Ring {
    /// Writes the file that is read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(path: &Path, bytes: u64) -> Anyhow<Ring> {
        let options = FileOptions {
            bytes,
            ..FileOptions::default()
        };
        let file = FlashFile::open(path, &options)?;
        let pages = file.pages();
        let mut chunk = AlignedBuf::new(256);
        let mut rng = Rng::new(3);
        for page in (0..pages / 256 * 256).step_by(256) {
            for word in chunk.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            Device::write(&file, page, &chunk, TAG)
                .map_err(|error| anyhow!("{} cannot be written: {error}", path.display()))?;
        }
        Device::flush(&file, TAG)
            .map_err(|error| anyhow!("{} cannot be flushed: {error}", path.display()))?;
        Ok(Ring {
            file,
            pages: pages / 256 * 256,
        })
    }

    /// Reads a second, at random, for so long.
    ///
    /// # Errors
    /// If a read fails.
    pub fn reads(&self, time: Duration, seed: u64) -> Anyhow<f64> {
        let mut buffer = AlignedBuf::new(BATCH);
        let mut rng = Rng::new(seed);
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < time {
            let mut requests: Vec<ReadRequest<'_>> = buffer
                .chunks_exact_mut(PAGE_SIZE)
                .map(|page| ReadRequest::new(rng.below(self.pages), page))
                .collect();
            self.file
                .read_batch(&mut requests, TAG)
                .map_err(|error| anyhow!("a read of the device failed: {error}"))?;
            count += BATCH;
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted() {
        let path = std::env::temp_dir().join(format!("senko-limit-{}", std::process::id()));
        let time = Duration::from_millis(20);
        let ring = Ring::new(&path, 4 << 20).unwrap();
        assert!(ring.reads(time, 1).unwrap() > 0.0);
        match Limit::open(&path, 2 << 20) {
            Ok(limit) => {
                assert_eq!(limit.span(), 2 << 20);
                assert!(limit.one_by_one(time, 1).unwrap().count > 0);
            }
            Err(why) => eprintln!("skipped: {why}"),
        }
        assert!(Limit::open(Path::new("/no/such/file"), 1).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
