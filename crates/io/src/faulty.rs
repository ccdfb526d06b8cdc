// SPDX-License-Identifier: Apache-2.0
//! The in-memory device that loses, tears, reorders, corrupts and fails from a seed; both
//! interfaces.
//!
//! [`FaultyDevice`] is the blocking interface and the state. It knows what reads see now, what
//! would survive a power loss for certain, and the writes since the last flush. [`FaultyQueue`] is
//! the queued interface over one or more devices. It holds operations back until the test asks for
//! a completion. The same seed and the same calls give the same run.
//!
//! The model of a power loss ([`FaultyDevice::crash`]): each write since the last flush is,
//! independently of its order, kept, lost, or torn into sectors of 512 bytes or into pages. An
//! earlier write never overtakes a later one to the same place. Flushed data survives. A failed
//! flush leaves each write either durable or lost for good, although reads still see it. Linux
//! behaves like this, so a flush must never be retried.

mod queue;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use queue::FaultyQueue;

use crate::stats::DiskStats;
use crate::{AlignedBuf, Device, IoError, Op, PAGE_SIZE, SharedFile, Tag};

/// The unit that a device never tears.
pub const SECTOR: usize = 512;

/// Shared until it is written, so that copying a device costs little.
type Page = Arc<[u8; PAGE_SIZE]>;

/// Chances of faults, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A read fails with EIO.
    pub read_error: f64,
    /// A read delivers fewer pages than asked.
    pub short_read: f64,
    /// A read delivers one flipped bit (the device still has the right one).
    pub flipped_read: f64,
    /// A write fails with EIO; some of it may have reached the device.
    pub write_error: f64,
    /// A write fails with ENOSPC; nothing of it reached the device.
    pub no_space: f64,
    /// A flush fails with EIO.
    pub flush_error: f64,
}

/// The effect of a crash on the writes since the last flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashReport {
    /// Writes that survived whole.
    pub kept: usize,
    /// Writes of which nothing survived.
    pub lost: usize,
    /// Writes of which a part survived.
    pub torn: usize,
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough to draw faults from a seed.
#[derive(Clone, Debug)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
    fn chance(&mut self, probability: f64) -> bool {
        // Draws only if a fault is possible, so that turning one kind on does not change the draws
        // of the others.
        probability > 0.0 && (self.next() >> 11) as f64 / ((1u64 << 53) as f64) < probability
    }
}

/// A write (or, without data, a discard) since the last flush.
#[derive(Clone)]
struct Unflushed {
    number: u64,
    page: u64,
    pages: u64,
    data: Option<Vec<u8>>,
    /// Whether a failed flush gave it up: no later flush makes it durable, and a crash loses it.
    doomed: bool,
    /// Whether it was written durably: a crash keeps it whole, whatever happens to the writes
    /// before it.
    sure: bool,
}

struct Planned {
    op: Op,
    /// Calls of the operation until the fault.
    left: u64,
    errno: i32,
    for_ever: bool,
}

#[derive(Clone, Default)]
struct Content(HashMap<u64, Page>);

impl Content {
    fn read(&self, page: u64, to: &mut [u8]) {
        match self.0.get(&page) {
            Some(bytes) => to.copy_from_slice(&bytes[..]),
            None => to.fill(0),
        }
    }

    fn write(&mut self, page: u64, at: usize, from: &[u8]) {
        let bytes = self
            .0
            .entry(page)
            .or_insert_with(|| Arc::new([0; PAGE_SIZE]));
        Arc::make_mut(bytes)[at..at + from.len()].copy_from_slice(from);
    }

    fn apply(&mut self, write: &Unflushed) {
        for nth in 0..write.pages {
            self.apply_part(write, nth, 0, PAGE_SIZE);
        }
    }

    /// Applies `bytes` bytes at `at` of the write's `nth` page.
    fn apply_part(&mut self, write: &Unflushed, nth: u64, at: usize, bytes: usize) {
        match &write.data {
            Some(data) => {
                let from = nth as usize * PAGE_SIZE + at;
                self.write(write.page + nth, at, &data[from..from + bytes]);
            }
            None if bytes == PAGE_SIZE => {
                self.0.remove(&(write.page + nth));
            }
            None => self.write(write.page + nth, at, &vec![0; bytes]),
        }
    }
}

/// Pages that somebody has mapped, and the file that backs that memory.
struct Mapped {
    page: u64,
    pages: usize,
    file: File,
}

struct State {
    rng: Rng,
    faults: Faults,
    planned: Vec<Planned>,
    /// What reads see.
    now: Content,
    /// Data that survives a crash for certain.
    durable: Content,
    unflushed: Vec<Unflushed>,
    writes: u64,
    stalled: bool,
    mapped: Vec<Mapped>,
    stats: DiskStats,
    /// Another after each loss of power.
    boot: u128,
}

/// The number of a boot that no device had before.
fn next_boot() -> u128 {
    static BOOTS: AtomicU64 = AtomicU64::new(1);
    u128::from(BOOTS.fetch_add(1, Ordering::Relaxed))
}

/// A device in memory that fails on request, or at random from its seed. It is shared by `Arc` and
/// used from any thread.
pub struct FaultyDevice {
    pages: u64,
    state: Mutex<State>,
}

impl FaultyDevice {
    /// A device of `pages` zeroed pages, which take memory only when they are written.
    pub fn new(pages: u64, seed: u64) -> Arc<FaultyDevice> {
        FaultyDevice::with_content(pages, seed, Content::default())
    }

    fn with_content(pages: u64, seed: u64, content: Content) -> Arc<FaultyDevice> {
        let state = State {
            rng: Rng(seed),
            faults: Faults::default(),
            planned: Vec::new(),
            now: content.clone(),
            durable: content,
            unflushed: Vec::new(),
            writes: 0,
            stalled: false,
            mapped: Vec::new(),
            stats: DiskStats::default(),
            boot: next_boot(),
        };
        Arc::new(FaultyDevice {
            pages,
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere has its own report.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the chances of faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Makes the `nth` call of `op` from now (1 is the next) fail with `errno`.
    pub fn fail_nth(&self, op: Op, nth: u64, errno: i32) {
        self.plan(op, nth, errno, false);
    }

    /// Makes the `nth` call of `op` from now, and all after it, fail with `errno`, like a device
    /// that dies.
    pub fn fail_from(&self, op: Op, nth: u64, errno: i32) {
        self.plan(op, nth, errno, true);
    }

    fn plan(&self, op: Op, nth: u64, errno: i32, for_ever: bool) {
        assert!(nth > 0, "calls count from 1");
        self.lock().planned.push(Planned {
            op,
            left: nth,
            errno,
            for_ever,
        });
    }

    /// Drops all planned faults and sets all chances to 0.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.planned.clear();
        state.faults = Faults::default();
    }

    /// Flips bit `bit` of `page` for good.
    pub fn flip_bit(&self, page: u64, bit: usize) {
        assert!(page < self.pages && bit < PAGE_SIZE * 8);
        let mut state = self.lock();
        let State { now, durable, .. } = &mut *state;
        for content in [now, durable] {
            let mut bytes = [0; PAGE_SIZE];
            content.read(page, &mut bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
            content.write(page, 0, &bytes);
        }
        // Otherwise the next flush would undo it.
        for write in &mut state.unflushed {
            let offset = page.wrapping_sub(write.page);
            if offset < write.pages
                && let Some(data) = &mut write.data
            {
                data[offset as usize * PAGE_SIZE + bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// Holds back (true) or releases the completions of this device in a [`FaultyQueue`].
    pub fn set_stalled(&self, stalled: bool) {
        self.lock().stalled = stalled;
    }

    fn stalled(&self) -> bool {
        self.lock().stalled
    }

    /// Writes since the last flush.
    pub fn unflushed(&self) -> usize {
        self.lock().unflushed.len()
    }

    /// Counts of requested operations, by purpose.
    pub fn stats(&self) -> DiskStats {
        self.lock().stats.clone()
    }

    /// Loses power: from now on the device holds what survived. Planned faults and chances stay.
    pub fn crash(&self) -> CrashReport {
        let mut state = self.lock();
        let mut rng = Rng(state.rng.next());
        let (content, report) = state.after_crash(&mut rng);
        state.now = content.clone();
        state.durable = content;
        state.unflushed.clear();
        state.boot = next_boot();
        report
    }

    /// Another device that holds what a crash at this moment, drawn from `seed`, would leave; this
    /// one continues. It is for tests that crash at every write of one run.
    pub fn crashed_copy(&self, seed: u64) -> Arc<FaultyDevice> {
        let mut rng = Rng(seed);
        let (content, _) = self.lock().after_crash(&mut rng);
        FaultyDevice::with_content(self.pages, rng.next(), content)
    }

    /// Another device that holds what reads see now, all of it durable, as after a kill of the
    /// process.
    pub fn copy(&self, seed: u64) -> Arc<FaultyDevice> {
        let mut state = self.lock();
        state.settle();
        let copy = FaultyDevice::with_content(self.pages, seed, state.now.clone());
        copy.lock().boot = state.boot;
        copy
    }

    /// Another device in the same state, with the same unflushed writes. Another process finds such
    /// a device after the writer died: it can still lose the unflushed writes.
    pub fn fork(&self, seed: u64) -> Arc<FaultyDevice> {
        let mut state = self.lock();
        state.settle();
        let fork = FaultyDevice::with_content(self.pages, seed, state.now.clone());
        {
            let mut of_fork = fork.lock();
            of_fork.durable = state.durable.clone();
            of_fork.unflushed = state.unflushed.clone();
            of_fork.writes = state.writes;
            of_fork.boot = state.boot;
        }
        fork
    }

    /// Number of the next write.
    fn next_write(&self) -> u64 {
        self.lock().writes
    }

    fn check(&self, page: u64, bytes: usize) -> Result<u64, IoError> {
        let pages = (bytes / PAGE_SIZE) as u64;
        let inside = page.checked_add(pages).is_some_and(|end| end <= self.pages);
        if inside && bytes.is_multiple_of(PAGE_SIZE) {
            Ok(pages)
        } else {
            Err(IoError::Os(libc::EINVAL))
        }
    }

    /// Makes the writes numbered below `before` durable.
    fn flush_before(&self, before: u64, tag: Tag) -> Result<(), IoError> {
        let mut state = self.lock();
        let state = &mut *state;
        state.stats.submitted(tag, Op::Flush, 0);
        let chance = state.faults.flush_error;
        let fault = state
            .planned_fault(Op::Flush)
            .or_else(|| state.rng.chance(chance).then_some(libc::EIO));
        let (rng, durable) = (&mut state.rng, &mut state.durable);
        state.unflushed.retain_mut(|write| {
            if write.number >= before || write.doomed {
                return true;
            }
            if fault.is_some() && !write.sure && rng.below(2) == 0 {
                write.doomed = true;
                return true;
            }
            durable.apply(write);
            false
        });
        state.ended(tag, Op::Flush, fault)
    }

    /// Lets a part of a write reach the device, as a write that failed or was cut off may leave it.
    fn write_part(&self, page: u64, data: &[u8]) {
        let mut state = self.lock();
        let sectors = data.len() / SECTOR;
        let whole = state.rng.below(sectors as u64 + 1) as usize;
        // The rest of the last page keeps what it held.
        let pages = (whole * SECTOR).div_ceil(PAGE_SIZE);
        let mut mixed = vec![0; pages * PAGE_SIZE];
        for (nth, bytes) in mixed.chunks_mut(PAGE_SIZE).enumerate() {
            state.now.read(page + nth as u64, bytes);
        }
        mixed[..whole * SECTOR].copy_from_slice(&data[..whole * SECTOR]);
        state.take_write(page, pages as u64, Some(mixed));
    }
}

impl Mapped {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.pages * PAGE_SIZE];
        let read = self.file.read_exact_at(&mut bytes, 0);
        read.expect("the file is this device's own");
        bytes
    }
}

impl State {
    /// Copies the contents of mapped memory to what reads see, as they are at one moment, although
    /// other threads may store there.
    fn settle(&mut self) {
        let look = |mapped: &[Mapped]| mapped.iter().map(Mapped::bytes).collect::<Vec<_>>();
        let mut bytes = look(&self.mapped);
        loop {
            let again = look(&self.mapped);
            if again == bytes {
                break;
            }
            bytes = again;
        }
        for (mapped, bytes) in self.mapped.iter().zip(bytes) {
            for (nth, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
                self.now.write(mapped.page + nth as u64, 0, bytes);
            }
        }
    }

    fn planned_fault(&mut self, op: Op) -> Option<i32> {
        let mut fault = None;
        self.planned.retain_mut(|planned| {
            if planned.op != op {
                return true;
            }
            planned.left = planned.left.saturating_sub(1);
            if planned.left == 0 {
                fault = fault.or(Some(planned.errno));
            }
            planned.left > 0 || planned.for_ever
        });
        fault
    }

    fn ended(&mut self, tag: Tag, op: Op, fault: Option<i32>) -> Result<(), IoError> {
        let Some(errno) = fault else { return Ok(()) };
        self.stats.failed(tag, op);
        Err(IoError::Os(errno))
    }

    fn take_write(&mut self, page: u64, pages: u64, data: Option<Vec<u8>>) {
        let write = Unflushed {
            number: self.writes,
            page,
            pages,
            data,
            doomed: false,
            sure: false,
        };
        self.writes += 1;
        self.now.apply(&write);
        self.unflushed.push(write);
    }

    fn after_crash(&self, rng: &mut Rng) -> (Content, CrashReport) {
        let mut content = self.durable.clone();
        let mut report = CrashReport::default();
        // Now and then all writes are kept, or all lost. Random draws would rarely give that, and
        // it is worth testing.
        let all = rng.below(16);
        for write in &self.unflushed {
            let fate = match all {
                0 => 0,
                1 => 1,
                _ => rng.below(3),
            };
            if write.sure {
                content.apply(write);
            } else if write.doomed || fate == 1 {
                report.lost += 1;
            } else if fate == 0 {
                content.apply(write);
                report.kept += 1;
            } else {
                tear(&mut content, write, rng);
                report.torn += 1;
            }
        }
        // The system writes mapped memory at any time. So each sector on the device has its present
        // contents or its old ones.
        for mapped in &self.mapped {
            for (nth, sector) in mapped.bytes().chunks(SECTOR).enumerate() {
                if all == 0 || (all > 1 && rng.below(4) > 0) {
                    let at = nth * SECTOR;
                    let page = mapped.page + (at / PAGE_SIZE) as u64;
                    content.write(page, at % PAGE_SIZE, sector);
                }
            }
        }
        (content, report)
    }
}

/// Applies some sectors or pages of a write: a first part of it, or any of them.
fn tear(content: &mut Content, write: &Unflushed, rng: &mut Rng) {
    let unit = if rng.below(2) == 0 { SECTOR } else { PAGE_SIZE };
    let units = write.pages * (PAGE_SIZE / unit) as u64;
    let prefix = (rng.below(2) == 0).then(|| rng.below(units + 1));
    for nth in 0..units {
        let survives = match prefix {
            Some(prefix) => nth < prefix,
            None => rng.below(2) == 0,
        };
        if survives {
            let at = nth as usize * unit;
            content.apply_part(write, (at / PAGE_SIZE) as u64, at % PAGE_SIZE, unit);
        }
    }
}

impl Device for FaultyDevice {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        let pages = self.check(page, buf.len())?;
        let mut state = self.lock();
        let state = &mut *state;
        state.stats.submitted(tag, Op::Read, pages);
        let faults = state.faults;
        let fault = state
            .planned_fault(Op::Read)
            .or_else(|| state.rng.chance(faults.read_error).then_some(libc::EIO));
        if fault.is_some() {
            return state.ended(tag, Op::Read, fault);
        }
        let short = pages > 0 && state.rng.chance(faults.short_read);
        let delivered = if short {
            state.rng.below(pages) as usize
        } else {
            pages as usize
        };
        if state
            .mapped
            .iter()
            .any(|m| m.page < page + pages && page < m.page + m.pages as u64)
        {
            state.settle();
        }
        for (nth, bytes) in buf.chunks_mut(PAGE_SIZE).take(delivered).enumerate() {
            state.now.read(page + nth as u64, bytes);
        }
        if short {
            state.stats.failed(tag, Op::Read);
            return Err(IoError::Short {
                want: buf.len(),
                got: delivered * PAGE_SIZE,
            });
        }
        if !buf.is_empty() && state.rng.chance(faults.flipped_read) {
            let bit = state.rng.below(buf.len() as u64 * 8) as usize;
            buf[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        let pages = self.check(page, buf.len())?;
        let fault = {
            let mut state = self.lock();
            let state = &mut *state;
            state.stats.submitted(tag, Op::Write, pages);
            let faults = state.faults;
            let fault = state
                .planned_fault(Op::Write)
                .or_else(|| state.rng.chance(faults.no_space).then_some(libc::ENOSPC))
                .or_else(|| state.rng.chance(faults.write_error).then_some(libc::EIO));
            if fault.is_none() {
                state.take_write(page, pages, Some(buf.to_vec()));
                return Ok(());
            }
            fault
        };
        if fault != Some(libc::ENOSPC) {
            self.write_part(page, buf);
        }
        self.lock().ended(tag, Op::Write, fault)
    }

    fn map(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("senko-faulty-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let shared = SharedFile::create(&path)?;
        let file = File::options().read(true).write(true).open(&path);
        SharedFile::remove(&path)?;
        let file = file?;
        let mut state = self.lock();
        let mut bytes = vec![0; pages * PAGE_SIZE];
        for (nth, bytes) in bytes.chunks_mut(PAGE_SIZE).enumerate() {
            state.now.read(page + nth as u64, bytes);
        }
        file.write_all_at(&bytes, 0)?;
        // Earlier mappings of these pages are gone, as after a kill of the process.
        state.mapped.retain(|mapped| mapped.page != page);
        state.mapped.push(Mapped { page, pages, file });
        drop(state);
        shared.map(pages).map(Some)
    }

    /// Works like forced unit access on a device: only this write becomes durable, not earlier
    /// ones. Its flush can fail, which loses it.
    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.write(page, buf, tag)?;
        let mut state = self.lock();
        let state = &mut *state;
        state.stats.submitted(tag, Op::Flush, 0);
        let chance = state.faults.flush_error;
        let fault = state
            .planned_fault(Op::Flush)
            .or_else(|| state.rng.chance(chance).then_some(libc::EIO));
        let lost = fault.is_some() && state.rng.below(2) == 0;
        if let Some(write) = state.unflushed.last_mut() {
            (write.sure, write.doomed) = (!lost, lost);
        }
        state.ended(tag, Op::Flush, fault)
    }

    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.flush_before(u64::MAX, tag)
    }

    fn boot(&self) -> Option<u128> {
        Some(self.lock().boot)
    }

    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        if page.checked_add(pages).is_none_or(|end| end > self.pages) {
            return Err(IoError::Os(libc::EINVAL));
        }
        let mut state = self.lock();
        state.stats.submitted(tag, Op::Discard, pages);
        let fault = state.planned_fault(Op::Discard);
        if fault.is_none() {
            state.take_write(page, pages, None);
        }
        state.ended(tag, Op::Discard, fault)
    }
}

impl std::fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "FaultyDevice({} pages, {} writes unflushed)",
            self.pages,
            self.unflushed()
        )
    }
}
