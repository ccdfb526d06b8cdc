// SPDX-License-Identifier: Apache-2.0
//! Targets: a file or a raw device by the machine's clock, a simulated drive by its own.

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use senko_io::{
    AlignedBuf, Device, Engine, FileOptions, FileSystem, FlashFile, PAGE_SIZE, Purpose,
    ReadRequest, Tag, discard_bytes, exact_size,
};
use senko_ssd::Op;
use senko_ssd::engine_device::SimulatedDevice;
use senko_workload::Rng;

use super::Flags;

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};

/// The smallest access of hosts, in bytes.
const SECTOR: u64 = 512;

/// Writes and reads of a page for each choice of flags.
const FLAGGED: u64 = 256;

/// Something with storage and a clock. Times are nanoseconds.
pub trait Target {
    /// Bytes that may be used.
    fn bytes(&self) -> u64;
    /// The smallest access, in bytes.
    fn smallest(&self) -> u64;
    /// Reads, and returns the time it took.
    fn read(&mut self, offset: u64, bytes: u64) -> Result<u64>;
    /// Writes, durably if the device can, and returns the time it took.
    fn write(&mut self, offset: u64, bytes: u64) -> Result<u64>;
    /// Makes all writes durable, and returns the time it took.
    fn flush(&mut self) -> Result<u64>;
    /// Tells the device that nothing is stored any more; returns whether it can be told.
    fn forget_all(&mut self) -> Result<bool>;
    /// Reads pages with this many under way at once, and returns the total time.
    fn read_at_once(&mut self, offsets: &[u64], depth: usize) -> Result<u64>;
    /// Times with and without the flags of an open file; empty if there is no file.
    fn by_flags(&mut self) -> Result<Vec<Flags>> {
        Ok(Vec::new())
    }
}

/// What was at a target's name before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the file was made.
    Nothing,
    /// An empty file.
    Empty,
    /// A file with data, or a device.
    Data,
}

/// A file or a raw device, past the page cache.
pub struct FileTarget {
    /// Its handles, closed before the lock is given up: the first for all accesses, then those of
    /// [`Target::by_flags`].
    handles: Vec<File>,
    /// Keeps other processes out.
    locked: FlashFile,
    path: PathBuf,
    bytes: u64,
    found: Found,
    raw: bool,
    buf: AlignedBuf,
    /// What is written: random, so that no drive or file system can compress it or leave it out.
    data: Rng,
}

impl FileTarget {
    /// Opens what is to be measured, and locks it before anything is changed. `destroy` is the name
    /// that the user typed to allow the loss of its data. A missing file is made with `bytes`.
    ///
    /// # Errors
    /// If it holds data and its name was not typed, if it is in use, if it lies in memory, if the
    /// name is a link to a file, or if it cannot be opened without the page cache.
    pub fn open(path: &Path, destroy: Option<&str>, bytes: u64) -> Result<Self> {
        let name = path.display();
        let meta = std::fs::metadata(path).ok();
        let raw = meta
            .as_ref()
            .is_some_and(|meta| meta.file_type().is_block_device());
        // Links in /dev lead to devices, and have the names that stay.
        if let Ok(end) = std::fs::read_link(path)
            && !(raw && path.starts_with("/dev"))
        {
            bail!(
                "{name} is a link to {}: name what is to be measured itself",
                end.display()
            );
        }
        let found = match &meta {
            None => Found::Nothing,
            Some(meta) if meta.is_file() && meta.len() == 0 => Found::Empty,
            Some(_) => Found::Data,
        };
        if let Some(meta) = &meta {
            ensure!(
                !meta.is_dir(),
                "{name} is a folder; name a file in it, which is made for the measurement"
            );
            ensure!(
                raw || meta.is_file(),
                "{name} is neither a file nor a block device"
            );
        }
        if found == Found::Data {
            let allowed = destroy == path.to_str();
            ensure!(
                allowed,
                "the measurement overwrites {name}; if its data may be lost, add --destroy-data {name}"
            );
        }
        let options = FileOptions {
            bytes: if raw { 0 } else { bytes },
            mode: Some(0o600),
            ..FileOptions::default()
        };
        if !raw {
            check_size(path, bytes)?;
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            let place = if meta.is_some() { path } else { folder };
            // Names in /dev have a reason of their own.
            let in_memory = FileSystem::of(place).is_ok_and(|system| system.in_memory);
            if in_memory
                && !matches!(std::fs::canonicalize(folder), Ok(it) if it == Path::new("/dev"))
            {
                bail!(
                    "{name} lies in memory, so its times would be those of memory: name a file on \
                     the drive to measure"
                );
            }
        }
        let locked = FlashFile::open(path, &options)?;
        let first = locked
            .second_handle(libc::O_DIRECT | libc::O_DSYNC)
            .with_context(|| {
                format!("cannot open {name} for reading and writing past the page cache")
            });
        let first = first.inspect_err(|_| {
            if found == Found::Nothing {
                drop(std::fs::remove_file(path));
            }
        })?;
        let page = PAGE_SIZE as u64;
        let bytes = bytes.min(locked.pages() * page) / page * page;
        check_size(path, bytes)?;
        Ok(Self {
            handles: vec![first],
            locked,
            path: path.to_owned(),
            bytes,
            found,
            raw,
            buf: AlignedBuf::new((super::LARGEST / page) as usize),
            data: Rng::new(bytes),
        })
    }

    fn file(&self) -> &File {
        &self.handles[0]
    }

    /// What was at the name before.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Mean times of a second handle with these flags. At the end its pages in the cache are
    /// written out, so the next one finds a clean cache.
    fn with_flags(&mut self, direct: bool, durable: bool) -> Result<Flags> {
        let name = self.path.display();
        let flags =
            if direct { libc::O_DIRECT } else { 0 } | if durable { libc::O_DSYNC } else { 0 };
        let file = self
            .locked
            .second_handle(flags)
            .with_context(|| format!("cannot open {name} once more"))?;
        let mut totals = [0, 0];
        for at in 0..FLAGGED {
            let page = &mut self.buf[..PAGE_SIZE];
            self.data.fill(page);
            let offset = at * PAGE_SIZE as u64;
            totals[1] += timed(|| file.write_all_at(page, offset))
                .with_context(|| format!("cannot write a page of {name} at {offset}"))?;
            totals[0] += timed(|| file.read_exact_at(page, offset))
                .with_context(|| format!("cannot read a page of {name} at {offset}"))?;
        }
        file.sync_data()
            .with_context(|| format!("cannot flush {name}"))?;
        self.handles.push(file);
        let [read_ns, write_ns] = totals.map(|total| total as f64 / FLAGGED as f64);
        Ok(Flags {
            direct,
            durable,
            read_ns,
            write_ns,
        })
    }

    /// Whether it is a raw device.
    pub fn is_raw(&self) -> bool {
        self.raw
    }
}

/// Refuses what is too small to be measured.
fn check_size(path: &Path, bytes: u64) -> Result<()> {
    ensure!(
        bytes >= super::LEAST,
        "{} has {}, and the measurement needs at least {}",
        path.display(),
        exact_size(bytes),
        exact_size(super::LEAST)
    );
    Ok(())
}

fn timed(work: impl FnOnce() -> std::io::Result<()>) -> Result<u64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as u64)
}

impl Target for FileTarget {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A drive whose sectors are 4 KiB refuses smaller accesses past the page cache.
    fn smallest(&self) -> u64 {
        let mut buf = AlignedBuf::new(1);
        match self.file().read_at(&mut buf[..SECTOR as usize], SECTOR) {
            Ok(_) => SECTOR,
            Err(_) => PAGE_SIZE as u64,
        }
    }

    fn read(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        let buf = &mut self.buf[..bytes as usize];
        timed(|| self.handles[0].read_exact_at(buf, offset)).with_context(|| {
            format!(
                "cannot read {bytes} bytes of {} at {offset}",
                self.path.display()
            )
        })
    }

    fn write(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        let buf = &mut self.buf[..bytes as usize];
        self.data.fill(buf);
        timed(|| self.handles[0].write_all_at(buf, offset)).with_context(|| {
            format!(
                "cannot write {bytes} bytes of {} at {offset}",
                self.path.display()
            )
        })
    }

    fn flush(&mut self) -> Result<u64> {
        timed(|| self.file().sync_data())
            .with_context(|| format!("cannot flush {}", self.path.display()))
    }

    /// A file becomes a hole, and its file system discards that space if it is mounted so. On a
    /// device the measured bytes are discarded.
    fn forget_all(&mut self) -> Result<bool> {
        discard_bytes(self.file(), 0..self.bytes)
            .with_context(|| format!("cannot discard what {} holds", self.path.display()))
    }

    fn read_at_once(&mut self, offsets: &[u64], depth: usize) -> Result<u64> {
        let part = offsets.len().div_ceil(depth.max(1));
        let file = self.file();
        let start = Instant::now();
        std::thread::scope(|scope| -> std::io::Result<()> {
            let threads: Vec<_> = offsets
                .chunks(part)
                .map(|offsets| {
                    scope.spawn(move || {
                        let mut buf = AlignedBuf::new(1);
                        offsets
                            .iter()
                            .try_for_each(|offset| file.read_exact_at(&mut buf, *offset))
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(std::io::Error::other("a reading thread ended")))
            })
        })
        .with_context(|| format!("cannot read {}", self.path.display()))?;
        Ok(start.elapsed().as_nanos() as u64)
    }

    fn by_flags(&mut self) -> Result<Vec<Flags>> {
        let ways = [(true, true), (true, false), (false, true), (false, false)];
        let ways = ways.into_iter();
        ways.map(|(direct, durable)| self.with_flags(direct, durable))
            .collect()
    }
}

/// A simulated drive. Nothing waits; times are its own.
pub struct SimulatedTarget {
    device: SimulatedDevice,
    bytes: u64,
}

impl SimulatedTarget {
    /// This drive, of which at most `bytes` are used.
    pub fn new(device: SimulatedDevice, bytes: u64) -> Self {
        let bytes =
            bytes.min(device.pages() * PAGE_SIZE as u64) / PAGE_SIZE as u64 * PAGE_SIZE as u64;
        Self { device, bytes }
    }

    fn since(&self, start: u64) -> u64 {
        self.device.now() - start
    }

    fn account(&self, op: Op, offset: u64, bytes: u64) -> Result<u64> {
        let start = self.device.now();
        self.device.account(op, offset, bytes)?;
        Ok(self.since(start))
    }
}

impl Target for SimulatedTarget {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn smallest(&self) -> u64 {
        SECTOR
    }

    fn read(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.account(Op::Read, offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.account(Op::Write, offset, bytes)
    }

    fn flush(&mut self) -> Result<u64> {
        let start = self.device.now();
        self.device.flush(TAG)?;
        Ok(self.since(start))
    }

    fn forget_all(&mut self) -> Result<bool> {
        self.device.discard(0, self.bytes / PAGE_SIZE as u64, TAG)?;
        Ok(true)
    }

    fn read_at_once(&mut self, offsets: &[u64], depth: usize) -> Result<u64> {
        let start = self.device.now();
        for part in offsets.chunks(depth.max(1)) {
            let mut buf = AlignedBuf::new(part.len());
            let pages = buf.chunks_mut(PAGE_SIZE).zip(part);
            let mut requests: Vec<ReadRequest<'_>> = pages
                .map(|(buf, offset)| ReadRequest::new(offset / PAGE_SIZE as u64, buf))
                .collect();
            self.device.read_batch(&mut requests, TAG)?;
        }
        Ok(self.since(start))
    }
}
