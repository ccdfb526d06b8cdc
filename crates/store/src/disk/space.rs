// SPDX-License-Identifier: Apache-2.0
//! Allocates the space of the file.
//!
//! The file is cut into units of 64 KiB. An [`Extent`] is a run of them; its users share a
//! [`Held`]. The extent becomes free when the last of them drops it. So a reader, a snapshot or a
//! version in use keeps the extents that it can reach, without a list of readers.
//!
//! What always holds:
//! - SPACE-1: an extent that the manifest on flash names is held: its holder is dropped only after
//!   a manifest without it is durable.
//! - SPACE-2: nothing is written to an extent that the writer does not hold.
//! - SPACE-3: an extent that is held has storage. A free part may be a *hole*, without storage.
//!   Like the space after the file's end, it gets storage before it is allocated.
//! - SPACE-4: every part without storage is among the holes that the manifest on flash names. A
//!   part enters the list before it is punched. It leaves the list after it got storage; until then
//!   it counts as a hole after a crash. The reserve for deletes is not kept in such a part.
//! - SPACE-5: the space that deletes and compaction need is never punched.
//! - SPACE-6: after any write, the free space with storage is enough to seal all logs one after the
//!   other, however their elements are packed, and then to go on in a log and compact any block.
//!   Puts leave more: space for the deletes between two compactions, and what blocks may waste
//!   without a compaction freeing it. So a delete always finds space (`reserve.rs`, `room.rs`).
//! - SPACE-7: while there is no log to go on in, the place of a log that is let go is kept for the
//!   next one. Blocks take space in pieces, a log takes it whole.
//!
//! `docs/architecture/store.md` says how a store becomes smaller.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use senko_io::{Device, exact_size};

mod release; // gives free space back to the file system
mod runs; // a set of units

use runs::Runs;

use crate::StoreError;
use crate::extent::{Extent, UNIT_BYTES, UNIT_PAGES};
use crate::options::MAX_FROZEN;

/// The fewest units by which the file grows: 4 MiB.
const GROWTH: u64 = 64;

/// Units of a usual erase unit of drives: 1 MiB.
const ERASE_UNITS: u64 = 16;

/// If one in this many units of the file is free in pieces, a piece is taken before the file grows.
pub(crate) const PIECES: u64 = 25;

/// The most extents that are kept for logs: as many as there are logs at a time.
const MOST_LOGS: usize = MAX_FROZEN + 2;

/// The shortest piece, as a fraction of the requested space and in units. Shorter pieces would
/// waste space on heads and rounding.
const SHORTEST_PIECE: u64 = 4;
const LEAST_PIECE: u64 = 32;

/// The file system must have this many times the needed space free, or the store keeps free space
/// in its file.
const PLENTY: u64 = 4;

/// Units for the manifests of changes under way.
const MANIFESTS: u64 = 4;

/// Units that are free and of no use to blocks: some of each piece, and some of all.
#[derive(Clone, Copy, Default)]
struct Lost {
    of_piece: u64,
    in_all: u64,
}

/// The free units, and the file's length.
#[derive(Debug, Default)]
struct Free {
    /// Free units with storage.
    runs: Runs,
    /// Free units that may have no storage: a write there could find the file system full
    /// (SPACE-3).
    holes: Runs,
    /// Units that are being punched; they cannot be allocated meanwhile.
    punching: Runs,
    /// Units of the file, free or not.
    units: u64,
    /// Units in use.
    used: u64,
    /// Free extents of logs: their first units and lengths. The next log takes one of them. Blocks
    /// have all lengths, and would otherwise leave no space that fits a log.
    logs: Vec<u64>,
    log_units: u64,
    /// There is no log to go on in, and none is ready (SPACE-7).
    no_log: bool,
    /// The manifest on flash may name holes that have storage by now (SPACE-4).
    unrecorded: bool,
    /// The fewest free units with storage since the window began.
    least: u64,
    window: Option<Instant>,
}

impl Free {
    /// Free units that have storage.
    fn stored(&self) -> u64 {
        self.units - self.used - self.holes.total() - self.punching.total()
    }

    /// How many of `wanted` units blocks can use: of each piece that they take, they lose some.
    /// Some units are to be left in any case.
    fn useful(&self, wanted: u64, lost: Lost) -> u64 {
        let pieces = self.runs.iter().map(|(_, length)| length);
        let logs = self.logs.iter().map(|_| self.log_units);
        let mut pieces: Vec<u64> = pieces.chain(logs).collect();
        pieces.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
        let (mut useful, mut taken) = (0, 0);
        for length in pieces {
            if useful >= wanted || length <= lost.of_piece {
                break;
            }
            let part = (wanted - useful).min(length - lost.of_piece);
            useful += part;
            taken += part + lost.of_piece;
        }
        let left = self.stored().saturating_sub(taken);
        useful.saturating_sub(lost.in_all.saturating_sub(left))
    }

    /// Removes units from the free ones.
    fn take_units(&mut self, first: u64, units: u64) {
        self.runs.remove(first, units);
        self.used += units;
        self.least = self.least.min(self.stored());
    }

    /// The shortest run that is long enough, and the first of several. So long runs stay whole for
    /// blocks, and the end of the file stays free. What is as long as an erase unit begins with
    /// one, if it can: a drive then erases little of it together with others.
    fn take(&mut self, units: u64) -> Option<u64> {
        let begin = |first: u64| match units >= ERASE_UNITS {
            true => first.next_multiple_of(ERASE_UNITS),
            false => first,
        };
        let fit = self
            .runs
            .iter()
            .filter(|(first, length)| begin(*first) + units <= first + length);
        let first = match fit.min_by_key(|(_, length)| *length) {
            Some((first, _)) => begin(first),
            None => self.runs.shortest(units)?.0,
        };
        self.take_units(first, units);
        Some(first)
    }

    /// Releases the extents kept for logs to all users, except the next log's place (SPACE-7);
    /// false if there were none.
    fn give_up_logs(&mut self) -> bool {
        let kept = self.logs.len().min(usize::from(self.no_log));
        let logs = self.logs.split_off(kept);
        for &first in &logs {
            self.runs.add(first, self.log_units);
        }
        !logs.is_empty()
    }

    /// The units of the next log's place, while there is no log (SPACE-7).
    fn kept_for_log(&self) -> u64 {
        let kept = self.no_log && !self.logs.is_empty();
        if kept { self.log_units } else { 0 }
    }

    /// Looks for a piece to use instead of growing, if enough of the file is free. It is the
    /// longest run, if it has at least `least` units and is not much shorter than `most`.
    fn take_piece(&mut self, most: u64, least: u64) -> Option<(u64, u64)> {
        let stored = self.stored();
        if stored * PIECES < self.used + stored {
            return None;
        }
        let shortest = most.div_ceil(SHORTEST_PIECE).max(LEAST_PIECE);
        self.take_longest(least.max(shortest))
    }

    /// The longest run, whole, if it has at least this many units.
    fn take_longest(&mut self, least: u64) -> Option<(u64, u64)> {
        let (first, length) = self.runs.longest()?;
        if length < least {
            return None;
        }
        self.take_units(first, length);
        Some((first, length))
    }

    /// Takes a given run when the store is opened.
    fn claim(&mut self, first: u64, units: u64) -> bool {
        let there = self.runs.remove(first, units);
        if there {
            self.used += units;
        }
        there
    }

    /// The first of this many units in a row, in parts without storage.
    fn place_with_holes(&self, units: u64) -> Option<u64> {
        if self.holes.total() == 0 {
            return None;
        }
        let all = self.runs.joined(&self.holes);
        all.shortest(units).map(|(first, _)| first)
    }
}

/// Free space of one store.
pub struct Space {
    free: Mutex<Free>,
    device: Arc<dyn Device>,
    /// The most units that the file may have.
    limit: u64,
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("free", &*self.free.lock())
            .finish()
    }
}

/// An extent in use. It becomes free when the last clone of its `Arc` is dropped.
#[derive(Debug)]
pub struct Held {
    extent: Extent,
    space: Arc<Space>,
    /// Whether the extent is kept for the next log when it becomes free.
    log: bool,
}

impl Held {
    /// The pages of the extent.
    pub fn extent(&self) -> Extent {
        self.extent
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let units = u64::from(self.extent.pages) / UNIT_PAGES;
        let mut free = self.space.free.lock();
        free.used -= units;
        let first = self.extent.first / UNIT_PAGES;
        if self.log && units == free.log_units && free.logs.len() < MOST_LOGS {
            free.logs.push(first);
        } else {
            free.runs.add(first, units);
        }
    }
}

impl Space {
    /// The space of `device`. Everything is free except the first unit, which has the superblock.
    /// The file may grow to `max_bytes`.
    pub fn new(device: Arc<dyn Device>, max_bytes: Option<u64>) -> Arc<Space> {
        let units = device.pages() / UNIT_PAGES;
        let limit = max_bytes.map_or(u64::MAX, |bytes| bytes / UNIT_BYTES);
        let mut free = Free {
            units,
            used: 1,
            ..Free::default()
        };
        if units > 1 {
            free.runs.add(1, units - 1);
            free.least = free.stored();
        }
        Arc::new(Space {
            free: Mutex::new(free),
            device,
            limit,
        })
    }

    /// Marks an extent that the manifest names as used.
    ///
    /// # Errors
    /// If it lies beyond the end, or overlaps an extent in use.
    pub fn claim(self: &Arc<Space>, extent: Extent) -> Result<Held, StoreError> {
        let (first, units) = (
            extent.first / UNIT_PAGES,
            u64::from(extent.pages) / UNIT_PAGES,
        );
        let whole = extent.first.is_multiple_of(UNIT_PAGES)
            && u64::from(extent.pages).is_multiple_of(UNIT_PAGES)
            && units > 0;
        if !whole || !self.free.lock().claim(first, units) {
            return Err(StoreError::damaged(
                extent.offset(),
                format!(
                    "the manifest names an extent of {} pages that overlaps another or lies beyond the end of the file ({} pages)",
                    extent.pages,
                    self.device.pages()
                ),
            ));
        }
        Ok(self.held(extent))
    }

    /// As [`Space::claim`], for a log of `bytes`.
    ///
    /// # Errors
    /// As [`Space::claim`].
    pub fn claim_log(self: &Arc<Space>, extent: Extent, bytes: u64) -> Result<Held, StoreError> {
        let mut held = self.claim(extent)?;
        held.log = true;
        self.free.lock().log_units = bytes.div_ceil(UNIT_BYTES).max(1);
        Ok(held)
    }

    /// The last log is about to be let go, and none is ready: the place that it leaves is kept
    /// until [`Space::allocate_log`] takes it (SPACE-7).
    pub fn keep_place_for_log(&self) {
        self.free.lock().no_log = true;
    }

    /// Allocates `bytes` for a log. When the log releases them, they are kept for the next log.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate_log(self: &Arc<Space>, bytes: u64) -> Result<Held, StoreError> {
        let held = self.find_log(bytes)?;
        self.free.lock().no_log = false;
        Ok(held)
    }

    fn find_log(self: &Arc<Space>, bytes: u64) -> Result<Held, StoreError> {
        let units = bytes.div_ceil(UNIT_BYTES).max(1);
        let mut free = self.free.lock();
        if free.log_units == units
            && free.used + units <= self.limit
            && let Some(first) = free.logs.pop()
        {
            free.used += units;
            free.least = free.least.min(free.stored());
            let pages = (units * UNIT_PAGES) as u32;
            let mut held = self.held(Extent::new(first * UNIT_PAGES, pages));
            held.log = true;
            return Ok(held);
        }
        free.give_up_logs();
        free.log_units = units;
        let holes = free.holes.total();
        drop(free);
        let mut held = self.allocate(bytes)?;
        held.log = true;
        let mut free = self.free.lock();
        free.unrecorded |= free.holes.total() < holes;
        drop(free);
        Ok(held)
    }

    /// Allocates `bytes`, rounded up to units. The file grows if necessary.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] at the bound or when the device is full.
    pub fn allocate(self: &Arc<Space>, bytes: u64) -> Result<Held, StoreError> {
        self.allocate_between(bytes, bytes)
    }

    /// Allocates `most` bytes in one piece, or a shorter piece of at least `least`. If much of the
    /// file is free in pieces, a piece that is not much too short is preferred to growth. If the
    /// file cannot grow, any piece of at least `least` is taken. So a file with enough free space
    /// does not grow, and its free pieces join again.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] at the bound or when the device is full.
    pub fn allocate_between(self: &Arc<Space>, most: u64, least: u64) -> Result<Held, StoreError> {
        let units = |bytes: u64| bytes.div_ceil(UNIT_BYTES).max(1);
        let (mut most, least) = (units(most.max(least)), units(least));
        let mut free = self.free.lock();
        let room = self.limit.saturating_sub(free.used + free.kept_for_log());
        if room < least {
            return Err(self.at_limit(&free));
        }
        most = most.min(room);
        let (first, units) = loop {
            if let Some(first) = free.take(most) {
                break (first, most);
            }
            if let Some(taken) = free.take_piece(most, least) {
                break taken;
            }
            match self.fill_or_grow(&mut free, most) {
                Ok(()) => {}
                Err(StoreError::NoSpace(why)) => {
                    // Try the extents kept for logs, or the file's new end.
                    if free.give_up_logs() {
                        continue;
                    }
                    if let Some(taken) = free.take_longest(least) {
                        break taken;
                    }
                    if most == least {
                        return Err(StoreError::NoSpace(why));
                    }
                    most = (most / 2).max(least);
                }
                Err(error) => return Err(error),
            }
        };
        let pages = u32::try_from(units * UNIT_PAGES)
            .map_err(|_| StoreError::Invalid(format!("an extent of {units} units is too large")))?;
        Ok(self.held(Extent::new(first * UNIT_PAGES, pages)))
    }

    fn held(self: &Arc<Space>, extent: Extent) -> Held {
        Held {
            extent,
            space: Arc::clone(self),
            log: false,
        }
    }

    /// Whether the next log finds `bytes` in one piece. The free space may be large enough in
    /// total, but in shorter pieces between blocks. The file grows for the piece, or a hole gets
    /// storage.
    pub fn has_place_for_log(&self, bytes: u64) -> bool {
        let units = bytes.div_ceil(UNIT_BYTES).max(1);
        let mut free = self.free.lock();
        let kept = free.log_units == units && !free.logs.is_empty();
        if kept || free.runs.shortest(units).is_some() {
            return true;
        }
        let holes = free.holes.total();
        let made = self.fill_or_grow(&mut free, units).is_ok();
        free.unrecorded |= free.holes.total() < holes;
        made
    }

    /// Makes `units` successive units free with storage, in holes or at the file's end.
    fn fill_or_grow(&self, free: &mut Free, units: u64) -> Result<(), StoreError> {
        if let Some(first) = free.place_with_holes(units) {
            for (hole, length) in free.holes.within(first, units) {
                self.fill(free, hole, length)?;
            }
            return Ok(());
        }
        let tail = free.runs.ending_at(free.units);
        let tail = tail.map_or(0, |(_, length)| length);
        self.lengthen(free, units - tail)
    }

    /// Gets storage for a hole.
    fn fill(&self, free: &mut Free, first: u64, units: u64) -> Result<(), StoreError> {
        self.device
            .fill(first * UNIT_PAGES, units * UNIT_PAGES)
            .map_err(|error| match error {
                error if error.no_space() => StoreError::NoSpace(format!(
                    "the file system has no room for {} more of the file",
                    exact_size(units * UNIT_BYTES)
                )),
                source => StoreError::Io {
                    what: "allocating space in the file",
                    source,
                },
            })?;
        free.holes.remove(first, units);
        free.runs.add(first, units);
        Ok(())
    }

    /// Gets storage for up to `units` more units: in holes first, then at the file's end.
    fn store_more(&self, free: &mut Free, units: u64) {
        let mut left = units;
        let holes: Vec<_> = free.holes.iter().collect();
        for (first, length) in holes {
            let part = length.min(left);
            if part == 0 || self.fill(free, first, part).is_err() {
                break;
            }
            free.unrecorded = true;
            left -= part;
        }
        if left > 0 && self.lengthen(free, left).is_err() {
            let _ = self.lengthen(free, left / 2);
        }
    }

    /// Makes the file longer by `units` or more.
    fn lengthen(&self, free: &mut Free, units: u64) -> Result<(), StoreError> {
        let least = free.units + units;
        if least > self.limit {
            return Err(self.at_limit(free));
        }
        let wanted = (least + (free.units / 64).max(GROWTH))
            .next_multiple_of(ERASE_UNITS)
            .min(self.limit)
            .max(least);
        let grown = match self.device.grow(wanted * UNIT_PAGES) {
            Ok(()) => wanted,
            // There is not that much space; perhaps there is just enough.
            Err(_) => {
                self.device
                    .grow(least * UNIT_PAGES)
                    .map_err(|error| match error {
                        error if error.too_long() => StoreError::NoSpace(format!(
                            "the file may not have more than {} here (ulimit -f, or the file system)",
                            exact_size(free.units * UNIT_BYTES)
                        )),
                        error if error.no_space() => StoreError::NoSpace(format!(
                            "the device cannot grow beyond {}",
                            exact_size(free.units * UNIT_BYTES)
                        )),
                        source => StoreError::Io {
                            what: "growing the file",
                            source,
                        },
                    })?;
                least
            }
        };
        let old = free.units;
        free.units = grown;
        free.runs.add(old, grown - old);
        Ok(())
    }

    fn at_limit(&self, free: &Free) -> StoreError {
        StoreError::NoSpace(format!(
            "{} of at most {} are in use",
            exact_size(free.used * UNIT_BYTES),
            exact_size(self.limit.saturating_mul(UNIT_BYTES))
        ))
    }

    /// Gives back the end of an extent that turned out too large; `bytes` stay in use.
    pub fn shorten(&self, held: &mut Held, bytes: u64) {
        let units = u64::from(held.extent.pages) / UNIT_PAGES;
        let keep = bytes.div_ceil(UNIT_BYTES).max(1);
        if keep >= units {
            return;
        }
        let mut free = self.free.lock();
        free.used -= units - keep;
        free.runs
            .add(held.extent.first / UNIT_PAGES + keep, units - keep);
        held.extent.pages = (keep * UNIT_PAGES) as u32;
    }

    /// Whether the file system has [`PLENTY`] times `bytes` free. Then no free space need be kept
    /// in the file.
    fn plenty(&self, bytes: u64) -> bool {
        let room = self.device.room().unwrap_or(0);
        room / PLENTY >= bytes
    }

    /// How many of `wanted` bytes can be allocated within the bound. If the file system may become
    /// full first, the file grows for them now, so that no other program can take that space.
    pub fn left(&self, wanted: u64) -> u64 {
        let lost = (!self.plenty(wanted)).then(Lost::default);
        self.left_of(wanted, lost)
    }

    /// As [`Space::left`], with all of it already in the file, because other programs may fill the
    /// file system at any time. Counts what blocks can use, with elements of up to `longest` bytes:
    /// each piece of free space has a head, and an end that is too short for the next element. The
    /// next manifests find space as well.
    pub fn left_in_file(&self, wanted: u64, longest: u64) -> u64 {
        let lost = Lost {
            of_piece: 1 + longest / UNIT_BYTES + u64::from(longest % UNIT_BYTES > UNIT_BYTES / 8),
            in_all: MANIFESTS,
        };
        self.left_of(wanted, Some(lost))
    }

    /// How much of `wanted` is left. With `lost`, it is in the file.
    fn left_of(&self, wanted: u64, lost: Option<Lost>) -> u64 {
        let units = wanted.div_ceil(UNIT_BYTES);
        let mut free = self.free.lock();
        let mut left = units.min(self.limit.saturating_sub(free.used));
        if let Some(lost) = lost {
            let lacks = left.saturating_sub(free.useful(left, lost));
            // If it does not get the space, the code below sees that.
            self.store_more(&mut free, lacks);
            left = free.useful(left, lost);
        }
        wanted.min(left * UNIT_BYTES)
    }

    /// Bytes in use, and bytes of the file.
    pub fn bytes(&self) -> (u64, u64) {
        let free = self.free.lock();
        let bytes = UNIT_BYTES;
        (free.used * bytes, free.units * bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use senko_io::faulty::FaultyDevice;

    const UNIT: u64 = UNIT_BYTES;

    fn space(pages: u64, max_bytes: Option<u64>) -> Arc<Space> {
        Space::new(FaultyDevice::new(pages, 1), max_bytes)
    }

    #[test]
    fn what_is_let_go_is_used_again_and_joined() {
        let space = space(16 * 9, None);
        let held: Vec<Held> = (0..8).map(|_| space.allocate(65_536).unwrap()).collect();
        assert!(matches!(space.allocate(1), Err(StoreError::NoSpace(_))));
        assert_eq!(space.bytes().0, 9 * 65_536);
        drop(held);
        let whole = space.allocate(8 * 65_536).unwrap();
        assert_eq!(whole.extent(), Extent::new(16, 128));
    }

    #[test]
    fn what_is_kept_for_logs_is_given_up_at_need() {
        let space = space(16 * 9, None);
        let log = space.allocate_log(3 * UNIT).unwrap();
        let place = log.extent();
        let block = space.allocate(2 * UNIT).unwrap();
        drop(log);
        assert_eq!(space.allocate_log(3 * UNIT).unwrap().extent(), place);
        // Three units before the block, three after it.
        let piece = space.allocate_between(6 * UNIT, 2 * UNIT).unwrap();
        assert_eq!(piece.extent().pages, 48);
        drop(piece);
        drop(block);
        let whole = space.allocate(8 * UNIT).unwrap();
        assert_eq!(space.bytes().0, 9 * UNIT);
        drop(whole);
        assert_eq!(space.bytes().0, UNIT);
    }

    /// Without a log to go on in, the last one's place is kept, whoever had it, in the file and
    /// within the bound.
    #[test]
    fn the_place_of_the_last_log_is_kept() {
        for max_bytes in [None, Some(9 * UNIT)] {
            let pages = if max_bytes.is_some() { 16 * 12 } else { 16 * 9 };
            let space = space(pages, max_bytes);
            let place = Extent::new(16, 48);
            let found = space.claim_log(place, 3 * UNIT).unwrap();
            let next = space.allocate_log(3 * UNIT).unwrap();
            space.keep_place_for_log();
            drop((found, next));
            let held = space.allocate_between(8 * UNIT, UNIT).unwrap();
            assert!(held.extent().pages <= 5 * 16, "{held:?}");
            while space.allocate_between(8 * UNIT, UNIT).is_ok_and(|held| {
                std::mem::forget(held);
                true
            }) {}
            let log = space.allocate_log(3 * UNIT).unwrap();
            assert_eq!(log.extent().pages, 48);
            drop(log);
            // There was a log again, so its place is anybody's.
            assert!(space.allocate(UNIT).is_ok());
        }
    }

    #[test]
    fn pieces_are_no_place_for_a_log() {
        let space = space(16 * 9, None);
        let held: Vec<Held> = (0..8).map(|_| space.allocate(UNIT).unwrap()).collect();
        // Every other unit is free: four in total.
        let mut nth = 0;
        let others: Vec<Held> = held
            .into_iter()
            .filter(|_| {
                nth += 1;
                nth % 2 == 0
            })
            .collect();
        assert_eq!(space.left(4 * UNIT), 4 * UNIT);
        assert!(space.has_place_for_log(UNIT));
        assert!(!space.has_place_for_log(2 * UNIT));
        drop(others);
        assert!(space.has_place_for_log(8 * UNIT));
        // If the file may grow, it grows.
        let growing = Space::new(senko_io::faulty::FaultyDevice::new(1 << 10, 1), None);
        assert!(growing.has_place_for_log(2 * UNIT));
    }

    #[test]
    fn an_extent_is_claimed_once() {
        let space = space(16 * 9, None);
        let extent = Extent::new(32, 32);
        let held = space.claim(extent).unwrap();
        for (first, pages) in [(48, 32), (0, 16), (128, 32), (130, 16)] {
            assert!(space.claim(Extent::new(first, pages)).is_err(), "{first}");
        }
        drop(held);
        assert!(space.claim(extent).is_ok());
    }

    #[test]
    fn the_end_is_given_back() {
        let space = space(16 * 9, None);
        let mut held = space.allocate(8 * 65_536).unwrap();
        space.shorten(&mut held, 65_537);
        assert_eq!(held.extent().pages, 32);
        assert_eq!(space.allocate(6 * 65_536).unwrap().extent().first, 48);
    }

    /// Where there is room, also in the midst of free space; elsewhere what is free is taken.
    #[test]
    fn what_is_long_begins_with_an_erase_unit() {
        let space = space(16 * 64, None);
        let take = |units: u64| space.allocate(units * 65_536).unwrap();
        let held = [1, 20, 20, 12].map(take);
        let first = held.each_ref().map(|held| held.extent().first / 16);
        assert_eq!(first, [1, 16, 36, 2]);
        drop(held);
        assert_eq!(space.bytes().0, UNIT, "the superblock's");
        assert_eq!(take(40).extent().first / 16, 16);
    }

    #[test]
    fn the_bound_holds() {
        let space = space(1 << 20, Some(4 * 65_536));
        // The device is larger than the bound; the superblock's unit counts.
        let held: Vec<Held> = (0..3).map(|_| space.allocate(65_536).unwrap()).collect();
        assert!(matches!(space.allocate(1), Err(StoreError::NoSpace(_))));
        drop(held);
        assert!(space.allocate(3 * 65_536).is_ok());
    }
}
