// SPDX-License-Identifier: Apache-2.0
//! The segments of the device: which are in use, when one may be written again, and how the device
//! grows and shrinks.
//!
//! SEGMENT-1: a free segment holds no page version and nothing that the newest durable checkpoint
//! needs: no named page, and no part of the log. Versions and names are counted separately: a page
//! that changed since the checkpoint has a name and no version. SEGMENT-2: it is reused, punched or
//! cut only when no other process reads from a checkpoint older than the time when the segment
//! became free. SEGMENT-3: a free segment has storage, so that no write into it meets a full disk.
//! For the log of small commits it was written before, so that they do not wait for the file
//! system's journal. A segment that was punched is a *hole* and not free; [`Space::grow`] fills
//! holes before it makes the device longer. SEGMENT-4: while a large device can grow, a free
//! segment is part of an erase unit that is free as a whole; other free ones are *loose*. So a unit
//! is written in order, by the log or with pages, and freed as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use senko_io::{AlignedBuf, Device, IoError, PAGE_SIZE, Purpose, Tag};

use crate::disk::entry::page_of;
use crate::disk::wear::Wear;
use crate::error::DbmError;
use crate::growing::Growing;
pub(crate) use crate::options::UNIT;
use crate::options::{Options, Units};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard};

/// Pages of a segment.
pub(crate) const SEGMENT: u64 = 16;
/// The least and the most segments by which the device grows or shrinks at a time. In between it is
/// a thirty-second, so that unused space stays a small part.
const STEP: std::ops::RangeInclusive<u32> = 4..=1024;

/// What a segment is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Of the log.
    Log,
    /// Of the log, and one group of entries fills it. Who waits for so long a write hardly waits
    /// longer for the file system's journal.
    Group,
    Pages,
}

#[derive(Default)]
pub(crate) struct Segment {
    /// Pages that are places of versions and of parts of long values.
    pub live: AtomicU32,
    /// Pages that the newest durable checkpoint names, or the one about to become durable.
    pub named: AtomicU32,
    /// Number of the log's last entry here; 0 if it has none here.
    pub last: AtomicU64,
    /// The log's newest entry at the last write here.
    pub stamp: AtomicU64,
    /// Whether it was taken for the log; true until it is free again.
    taken: AtomicU32,
    /// Whether its storage was never written.
    raw: AtomicBool,
}

impl Segment {
    fn is_unused(&self) -> bool {
        self.live.load(Ordering::Acquire) == 0 && self.named.load(Ordering::Acquire) == 0
    }

    /// The same, with those that the next checkpoints write anyway counted twice.
    pub fn cost(&self) -> u32 {
        let live = self.live.load(Ordering::Acquire);
        let named = self.named.load(Ordering::Acquire);
        live.max(named) + named.saturating_sub(live)
    }

    /// Approximate number of pages that must move before it is free.
    pub fn used(&self) -> u32 {
        let live = self.live.load(Ordering::Acquire);
        live.max(self.named.load(Ordering::Acquire))
    }
}

#[derive(Default)]
struct Map {
    /// Free segments, each with the checkpoint that made it free. While the device can grow, those
    /// of whole erase units only.
    free: BTreeMap<u32, u64>,
    /// The other free ones ([`Map::sort`]).
    loose: BTreeMap<u32, u64>,
    /// The same for those that a reader of an older checkpoint may need (SEGMENT-2).
    held: BTreeMap<u32, u64>,
    /// The same for free segments without storage.
    holes: BTreeMap<u32, u64>,
    segments: u32,
    units: Units,
}

impl Units {
    /// Segments of an erase unit.
    fn segments(self) -> u32 {
        (self.pages / SEGMENT) as u32
    }

    /// A device of fewer segments uses the first free one and is written with zeros where it grows:
    /// units would leave it larger.
    fn least_segments(self) -> u32 {
        self.least as u32 * self.segments()
    }
}

impl Map {
    fn unit(&self) -> u64 {
        match self.segments < self.units.least_segments() {
            true => SEGMENT,
            false => self.units.pages,
        }
    }

    /// The first segment of a free erase unit whose segments all `suit`.
    fn free_unit(&self, unit: u32, suits: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut first, mut next) = (0, 0);
        for number in self.free.keys().copied().filter(|number| suits(*number)) {
            if number != next || number % unit == 0 {
                first = number;
            }
            next = number + 1;
            if first % unit == 0 && next == first + unit {
                return Some(first);
            }
        }
        None
    }

    /// Keeps only whole erase units free, so that what is written together is erased together. If
    /// the device is full, every free segment counts.
    fn sort(&mut self, is_full: bool) {
        self.free.append(&mut self.loose);
        let unit = (self.unit() / SEGMENT) as u32;
        if is_full || unit == 1 {
            return;
        }
        let (free, loose) = (&mut self.free, &mut self.loose);
        let mut run: Vec<(u32, u64)> = Vec::new();
        for (number, since) in std::mem::take(free) {
            if run
                .first()
                .is_some_and(|(first, _)| first / unit != number / unit)
            {
                loose.extend(run.drain(..));
            }
            run.push((number, since));
            if run.len() == unit as usize {
                free.extend(run.drain(..));
            }
        }
        loose.extend(run);
    }

    /// Where an end of unused segments begins that is worth cutting. See [`Space::leave_end`].
    fn idle_end(&self, settled: u64, mut spare: u32) -> Option<u32> {
        let mut end = self.segments;
        while end > 1 {
            let since = match self.free.get(&(end - 1)) {
                Some(since) if spare > 0 => {
                    spare -= 1;
                    Some(since)
                }
                Some(_) => None,
                None => self.holes.get(&(end - 1)),
            };
            if since.is_none_or(|since| *since > settled) {
                break;
            }
            end -= 1;
        }
        let unit = (self.unit() / SEGMENT) as u32;
        end = end.next_multiple_of(unit).min(self.segments);
        (self.segments - end >= step_of(self.segments)).then_some(end)
    }
}

pub(crate) struct Space {
    device: Arc<dyn Device>,
    /// The most segments that the device may have.
    most: u32,
    /// Whether the device has a length of its own, as a block device has, as far as is known.
    fixed: AtomicBool,
    segments: Growing<Segment>,
    units: Units,
    map: Mutex<Map>,
    /// Held while the device grows, shrinks or is punched.
    growth: Mutex<()>,
    /// Whether the device cannot grow, as far as is known.
    full: AtomicBool,
    /// Whether no free segment but such that were never written was left for the log.
    lacks_zeros: AtomicBool,
    /// The newest checkpoint that has begun.
    pub started: AtomicU64,
    /// All pages that are places of versions and of parts of long values.
    pub live: AtomicU64,
    /// All pages that the newest durable checkpoint names.
    pub named: AtomicU64,
    /// Bytes that were written to the device, and those given back, since the database was made.
    written: AtomicU64,
    discarded: AtomicU64,
    /// The log's entry from which a replay would begin.
    replay: AtomicU64,
    /// Approximate number of pages in the log's segments that are not in use.
    waste: AtomicU64,
}

impl Space {
    /// The space of a device. All segments but the first are free.
    pub fn new(device: Arc<dyn Device>, options: &Options) -> Space {
        let segments_of = |bytes: u64| bytes / PAGE_SIZE as u64 / SEGMENT;
        let most = options.max_bytes.map_or(u32::MAX, |most| {
            u32::try_from(segments_of(most)).unwrap_or(u32::MAX)
        });
        let fixed = device.room() == Some(0);
        let map = Map {
            units: options.units,
            ..Map::default()
        };
        let space = Space {
            device,
            most,
            fixed: AtomicBool::new(fixed),
            segments: Growing::new(),
            units: options.units,
            map: Mutex::new(map),
            growth: Mutex::default(),
            full: AtomicBool::new(fixed),
            lacks_zeros: AtomicBool::new(false),
            started: AtomicU64::new(0),
            live: AtomicU64::new(0),
            named: AtomicU64::new(0),
            written: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            replay: AtomicU64::new(0),
            waste: AtomicU64::new(0),
        };
        space.add_end(0);
        space
    }

    /// Continues to count from what the superblock says.
    pub fn count_from(&self, wear: Wear) {
        self.written.store(wear.written, Ordering::Relaxed);
        self.discarded.store(wear.discarded, Ordering::Relaxed);
    }

    /// Counts pages that are written.
    pub fn wrote(&self, pages: u64) {
        let bytes = pages * PAGE_SIZE as u64;
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    fn discard(&self, pages: u64) {
        let bytes = pages * PAGE_SIZE as u64;
        self.discarded.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counts of bytes, with `put` bytes put.
    pub fn wear(&self, put: u64) -> Wear {
        Wear {
            put,
            written: self.written.load(Ordering::Relaxed),
            discarded: self.discarded.load(Ordering::Relaxed),
        }
    }

    pub fn of(&self, place: u64) -> &Segment {
        self.segments.at((page_of(place) / SEGMENT) as u32)
    }

    pub fn segment(&self, number: u32) -> &Segment {
        self.segments.at(number)
    }

    pub fn hold(&self, place: u64) {
        self.of(place).live.fetch_add(1, Ordering::AcqRel);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub fn release(&self, place: u64) {
        if place == 0 {
            return;
        }
        let segment = self.of(place);
        segment.live.fetch_sub(1, Ordering::AcqRel);
        self.live.fetch_sub(1, Ordering::Relaxed);
        if self.is_in_log(segment) {
            self.waste(1);
        }
    }

    /// Whether a replay would read entries of the segment, so that it is not free before the next
    /// checkpoints, whatever else is in it.
    fn is_in_log(&self, segment: &Segment) -> bool {
        segment.last.load(Ordering::Acquire) >= self.replay.load(Ordering::Relaxed)
    }

    /// Counts pages of the log that hold nothing but entries.
    pub fn waste(&self, pages: u64) {
        self.waste.fetch_add(pages, Ordering::Relaxed);
    }

    /// Approximate number of pages of the log's segments that are not in use, and that only
    /// checkpoints free.
    pub fn wasted(&self) -> u64 {
        self.waste.load(Ordering::Relaxed)
    }

    /// Segments that are free when no replay needs the log until now. The log keeps two: the one
    /// that it fills, and the next.
    pub fn freed_with_log(&self) -> u64 {
        let map = self.map.lock();
        let segments = (1..map.segments).map(|number| self.segment(number));
        let is_freed = |segment: &&Segment| {
            segment.taken.load(Ordering::Acquire) == 1
                && segment.is_unused()
                && self.is_in_log(segment)
        };
        (segments.filter(is_freed).count() as u64).saturating_sub(2)
    }

    /// Whether moving the pages of a segment away makes it free.
    pub fn can_be_emptied(&self, number: u32) -> bool {
        !self.is_in_log(self.segment(number))
    }

    /// Notes that a checkpoint names a page; 0 is none.
    pub fn name(&self, place: u64) {
        if place > 0 {
            self.of(place).named.fetch_add(1, Ordering::AcqRel);
            self.named.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that no valid checkpoint names it any more.
    pub fn unname(&self, place: u64) {
        if place > 0 {
            self.of(place).named.fetch_sub(1, Ordering::AcqRel);
            self.named.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Approximate number of pages with live contents.
    pub fn needed(&self) -> u64 {
        let live = self.live.load(Ordering::Relaxed);
        live.max(self.named.load(Ordering::Relaxed))
    }

    /// Adds the segments behind the known ones: as free ones from segment `stored` on, and as holes
    /// before it.
    fn add_end(&self, stored: u32) {
        let mut map = self.map.lock();
        let segments = u32::try_from(self.device.pages() / SEGMENT).unwrap_or(u32::MAX);
        for number in map.segments.max(1)..segments {
            match number >= stored {
                true => map.free.insert(number, 0),
                false => map.holes.insert(number, 0),
            };
        }
        map.segments = map.segments.max(segments);
    }

    /// Removes all segments in use from the free ones, when a database is opened, and finds holes.
    /// A replay would begin with entry `replay` of the log.
    pub fn settle(&self, durable: u64, replay: u64, in_log: &dyn Fn(u32) -> bool) {
        self.replay.store(replay, Ordering::Relaxed);
        self.settle_held(durable, in_log);
        self.release_held(durable);
    }

    fn settle_held(&self, durable: u64, in_log: &dyn Fn(u32) -> bool) {
        let mut map = self.map.lock();
        map.free.clear();
        map.loose.clear();
        let mut stored = 0..0;
        for number in 1..map.segments {
            let segment = self.segment(number);
            if !segment.is_unused() || in_log(number) {
                segment.taken.store(1, Ordering::Release);
                if self.is_in_log(segment) {
                    self.waste(SEGMENT - u64::from(segment.used()).min(SEGMENT));
                }
                continue;
            }
            let pages = u64::from(number) * SEGMENT..(u64::from(number) + 1) * SEGMENT;
            if stored.end <= pages.start {
                stored = self
                    .device
                    .extent(pages.start)
                    .unwrap_or(u64::MAX..u64::MAX);
            }
            if stored.start <= pages.start && pages.end <= stored.end {
                map.held.insert(number, durable);
            } else {
                map.holes.insert(number, durable);
            }
        }
    }

    pub fn segments(&self) -> u32 {
        self.map.lock().segments
    }

    /// Pages that are written and freed together.
    pub fn unit(&self) -> u64 {
        self.map.lock().unit()
    }

    pub fn free(&self) -> usize {
        self.map.lock().free.len()
    }

    /// Free segments that are no part of a free erase unit.
    pub fn loose(&self) -> usize {
        self.map.lock().loose.len()
    }

    /// Segments with contents, without the superblock's.
    pub fn used_segments(&self) -> u32 {
        let map = self.map.lock();
        let unused = map.free.len() + map.held.len() + map.holes.len();
        (map.segments - 1).saturating_sub(unused as u32)
    }

    /// Free segments without storage.
    pub fn holes(&self) -> usize {
        self.map.lock().holes.len()
    }

    /// Pages of the device that have storage.
    pub fn stored_pages(&self) -> u64 {
        self.device.pages() - self.holes() as u64 * SEGMENT
    }

    /// Free segments, and all segments with storage.
    pub fn free_and_stored(&self) -> (u32, u32) {
        let map = self.map.lock();
        (map.free.len() as u32, map.segments - map.holes.len() as u32)
    }

    /// Whether the device cannot grow, as far as is known.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Takes the free segment behind segment `last` in its erase unit, or else the first of a free
    /// unit, or on a full device the first that is free. So what is written together is erased
    /// together, and the end of the device tends to stay free, and is given back. `checkpoint` is
    /// the newest durable one.
    pub fn take(&self, last: u32, checkpoint: u64, of: Use) -> Result<u32, DbmError> {
        loop {
            if let Some(segment) = self.take_free(last, of)? {
                return Ok(segment);
            }
            // A reader may have ended since the last checkpoint.
            self.release_held(checkpoint);
            if let Some(segment) = self.take_free(last, of)? {
                return Ok(segment);
            }
            if let Err(error) = self.grow(1) {
                // Now every free segment counts.
                return self.take_free(last, of)?.ok_or(error);
            }
        }
    }

    /// Frees the segments that no reader needs any more. A new reader pins the newest durable
    /// checkpoint, so it never needs an older segment.
    fn release_held(&self, checkpoint: u64) {
        let pinned = self.device.oldest_pin(checkpoint).unwrap_or(checkpoint);
        let mut map = self.map.lock();
        let Map { free, held, .. } = &mut *map;
        held.retain(|number, since| {
            let is_held = *since > pinned;
            if !is_held {
                free.insert(*number, *since);
            }
            is_held
        });
        map.sort(self.is_full());
    }

    fn take_free(&self, last: u32, of: Use) -> Result<Option<u32>, DbmError> {
        let number = {
            let mut map = self.map.lock();
            let (next, unit) = (last + 1, (map.unit() / SEGMENT) as u32);
            let suits = |number: u32| self.is_raw(number) != (of == Use::Log);
            let is_free = map.free.contains_key(&next) || map.loose.contains_key(&next);
            let number = match next % unit > 0 && is_free {
                true => Some(next),
                false => map
                    .free_unit(unit, suits)
                    .or_else(|| map.free_unit(unit, |_| true))
                    .or_else(|| map.free.keys().next().copied().filter(|_| self.is_full())),
            };
            let Some(number) = number else {
                return Ok(None);
            };
            map.free.remove(&number);
            map.loose.remove(&number);
            if of == Use::Log {
                let lacks = map.free.keys().all(|number| self.is_raw(*number));
                self.lacks_zeros.store(lacks, Ordering::Relaxed);
            }
            number
        };
        let segment = self.segment(number);
        segment.last.store(0, Ordering::Release);
        segment.taken.store(1, Ordering::Release);
        if segment.raw.swap(false, Ordering::AcqRel) && of == Use::Log {
            let page = u64::from(number) * SEGMENT;
            write_zeros(&*self.device, page, SEGMENT)
                .map_err(DbmError::io("writing zeros for the log"))?;
            self.wrote(SEGMENT);
        }
        Ok(Some(number))
    }

    fn is_raw(&self, number: u32) -> bool {
        self.segment(number).raw.load(Ordering::Acquire)
    }

    /// Whether the log will soon need a segment that was never written ([`Space::zero`]).
    pub fn lacks_zeros(&self) -> bool {
        self.lacks_zeros.load(Ordering::Relaxed)
    }

    /// Writes zeros to a free erase unit that was never written, so that a commit that fills it
    /// waits for no journal (SEGMENT-3). Nobody else may count on it meanwhile.
    pub fn zero(&self) -> Result<(), DbmError> {
        let _growth = self.growth.lock();
        self.lacks_zeros.store(false, Ordering::Relaxed);
        let (unit, taken) = {
            let mut map = self.map.lock();
            let in_unit = (map.unit() / SEGMENT) as u32;
            let Some(first) = map.free_unit(in_unit, |number| self.is_raw(number)) else {
                return Ok(());
            };
            let unit = first..first + in_unit;
            let entry = |number| map.free.remove_entry(&number);
            let taken: Vec<(u32, u64)> = unit.clone().filter_map(entry).collect();
            (unit, taken)
        };
        let pages = unit.len() as u64 * SEGMENT;
        let done = write_zeros(&*self.device, u64::from(unit.start) * SEGMENT, pages)
            .and_then(|()| self.device.flush(Tag::dbm(Purpose::Meta)));
        if done.is_ok() {
            self.wrote(pages);
            for number in unit {
                self.segment(number).raw.store(false, Ordering::Release);
            }
        }
        self.map.lock().free.extend(taken);
        done.map_err(DbmError::io("writing zeros for the log"))
    }

    /// Frees what SEGMENT-1 allows once checkpoint `durable`, whose log begins with entry `replay`,
    /// is durable.
    pub fn reclaim(&self, durable: u64, replay: u64, open: &[u32]) {
        self.reclaim_held(durable, replay, open);
        self.release_held(durable);
    }

    fn reclaim_held(&self, durable: u64, replay: u64, open: &[u32]) {
        let mut map = self.map.lock();
        self.replay.store(replay, Ordering::Relaxed);
        let mut waste = 0;
        for number in 1..map.segments {
            let segment = self.segment(number);
            if self.is_in_log(segment) && !open.contains(&number) {
                waste += SEGMENT - u64::from(segment.used()).min(SEGMENT);
            }
            let idle = segment.taken.load(Ordering::Acquire) == 1
                && segment.is_unused()
                && segment.last.load(Ordering::Acquire) < replay
                && !open.contains(&number);
            if idle {
                segment.taken.store(0, Ordering::Release);
                map.held.insert(number, durable);
            }
        }
        self.waste.store(waste, Ordering::Relaxed);
    }

    /// Gets at least `segments` more free segments: from an end that was about to be cut, from
    /// holes, or by a longer device. On failure as many as there was room for are free.
    pub fn grow(&self, segments: u64) -> Result<(), DbmError> {
        let _growth = self.growth.lock();
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        let grown = self.grow_held(segments);
        let full = matches!(grown, Err(DbmError::NoSpace(_)));
        self.full.store(full, Ordering::Relaxed);
        self.map.lock().sort(full);
        grown
    }

    /// As [`Space::grow`]. False if there is no room for that.
    pub fn grow_if_room(&self, segments: u64) -> Result<bool, DbmError> {
        match self.grow(segments) {
            Err(DbmError::NoSpace(_)) => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn grow_held(&self, mut segments: u32) -> Result<(), DbmError> {
        // An end that was about to be cut may have holes.
        self.add_end(u32::MAX);
        let have = self.segments();
        let mut step = step_of(have).max(segments);
        if have + step >= self.units.least_segments() {
            // The file system tends to place whole units where they begin an erase block.
            step = (have + step).next_multiple_of(self.units.segments()) - have;
        }
        let room = self.most.saturating_sub(have);
        while segments > 0 {
            match self.fill_holes(step) {
                Ok(0) => break,
                Ok(filled) => segments = segments.saturating_sub(filled),
                Err(error) if error.no_space() => return Err(no_space(segments)),
                Err(error) => return Err(DbmError::io("filling a hole of the file")(error)),
            }
        }
        if segments == 0 {
            return Ok(());
        }
        if room < segments {
            return Err(no_space(segments));
        }
        let lengthened = match self.lengthen(step.min(room)) {
            Err(error) if error.no_space() && step > segments => self.lengthen(segments),
            done => done,
        };
        match lengthened {
            Err(error) if error.no_space() => Err(no_space(segments)),
            done => done.map_err(DbmError::io("growing the file")),
        }
    }

    fn lengthen(&self, segments: u32) -> Result<(), IoError> {
        let have = self.device.pages();
        let end = (have / SEGMENT + u64::from(segments)) * SEGMENT;
        self.device.grow(end)?;
        // A device with coarse steps may be longer now.
        let new = self.device.pages() - have;
        let stored = (have / SEGMENT) as u32;
        self.give_storage(stored, (new / SEGMENT) as u32)?;
        self.device.flush(Tag::dbm(Purpose::Meta))?;
        // An end that was left out meanwhile may have holes.
        self.add_end(stored);
        Ok(())
    }

    /// Notes that segments have storage that was never written. Those of a small device are written
    /// at once.
    fn give_storage(&self, first: u32, count: u32) -> Result<(), IoError> {
        if first + count < self.units.least_segments() {
            let pages = u64::from(count) * SEGMENT;
            write_zeros(&*self.device, u64::from(first) * SEGMENT, pages)?;
            self.wrote(pages);
            return Ok(());
        }
        for number in first..first + count {
            self.segment(number).raw.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Gives storage to the first holes, `most` of them. Returns how many.
    fn fill_holes(&self, most: u32) -> Result<u32, IoError> {
        // In neither map, they stay a part of the device: no end that has one of them is left out.
        let mut holes = Vec::new();
        {
            let mut map = self.map.lock();
            while holes.len() < most as usize
                && let Some(hole) = map.holes.pop_first()
            {
                holes.push(hole);
            }
        }
        let (filled, done) = self.fill(&holes);
        let mut map = self.map.lock();
        map.free.extend(holes.drain(..filled));
        map.holes.extend(holes);
        done.map(|()| filled as u32)
    }

    /// Gives storage to these segments, of which the first so many have it then. A full disk is an
    /// error only if no segment has storage.
    fn fill(&self, holes: &[(u32, u64)]) -> (usize, Result<(), IoError>) {
        let mut filled = 0;
        for (first, count) in runs(holes.iter().map(|(number, _)| *number)) {
            let fill = |first: u32, count: u32| {
                let (page, pages) = (u64::from(first) * SEGMENT, u64::from(count) * SEGMENT);
                self.device.fill(page, pages)?;
                self.give_storage(first, count)
            };
            match fill(first, count) {
                Ok(()) => filled += count as usize,
                Err(error) if !error.no_space() => return (0, Err(error)),
                Err(error) => {
                    let fits = |number: &u32| fill(*number, 1).is_ok();
                    filled += (first..first + count).take_while(fits).count();
                    if filled == 0 {
                        return (0, Err(error));
                    }
                    break;
                }
            }
        }
        if filled > 0
            && let Err(error) = self.device.flush(Tag::dbm(Purpose::Meta))
        {
            return (0, Err(error));
        }
        (filled, Ok(()))
    }

    /// The fewest segments by which the device is made shorter; `None` if it can't be.
    pub fn least_cut(&self) -> Option<u32> {
        (!self.is_fixed()).then(|| step_of(self.segments()))
    }

    /// Whether there is an end for [`Space::leave_end`].
    pub fn has_idle_end(&self, settled: u64, spare: u32) -> bool {
        !self.is_fixed() && self.map.lock().idle_end(settled, spare).is_some()
    }

    /// How many holes must be filled before an end can be left out: it has free segments that the
    /// next commits need, and the first holes can take their place. 0 if there is no such end.
    pub fn lacking_for_cut(&self, settled: u64, spare: u32) -> u32 {
        let map = self.map.lock();
        let end = map.idle_end(settled, u32::MAX);
        let Some(end) = end.filter(|_| !self.is_fixed()) else {
            return 0;
        };
        let lacking = (map.free.range(end..).count() as u32).saturating_sub(spare);
        match map.holes.len() as u32 >= lacking + step_of(map.segments) {
            true => lacking,
            false => 0,
        }
    }

    /// Leaves out the unused segments at the end that became free with checkpoint `settled` or
    /// before; at most `spare` of them have storage. True if there are enough of them to be worth
    /// it. The next checkpoint's superblock leaves them out too, and then [`Space::remove_end`]
    /// cuts them.
    pub fn leave_end(&self, settled: u64, spare: u32) -> bool {
        let mut map = self.map.lock();
        let Some(end) = map.idle_end(settled, spare).filter(|_| !self.is_fixed()) else {
            return false;
        };
        map.free.split_off(&end);
        map.holes.split_off(&end);
        map.segments = end;
        true
    }

    /// Cuts off the end of the device that [`Space::leave_end`] left out.
    pub fn remove_end(&self) {
        let _growth = self.growth.lock();
        let end = u64::from(self.segments()) * SEGMENT;
        let before = self.device.pages();
        if end < before {
            let shrunk = self.device.shrink(end);
            self.discard(before.saturating_sub(self.device.pages()));
            if shrunk.is_ok() && end < self.device.pages() {
                self.fixed.store(true, Ordering::Relaxed);
                self.add_end(0);
            }
            // After an error, the end is free space at the next growth.
        }
    }

    fn is_fixed(&self) -> bool {
        self.fixed.load(Ordering::Relaxed)
    }

    /// Gives back the storage of up to `most` free segments from `first` on, those nearest to the
    /// end first, in whole erase units. Segments that became free after checkpoint `settled` keep
    /// theirs.
    pub fn punch(&self, first: u32, settled: u64, most: usize) {
        let _growth = self.growth.lock();
        let map = self.map.lock();
        let unit = (map.unit() / SEGMENT) as u32;
        let is_idle = |number: u32| {
            let since = map.free.get(&number).filter(|_| number >= first);
            since.is_some_and(|since| *since <= settled)
        };
        let is_whole = |number: u32| {
            let first = number - number % unit;
            (first..first + unit).all(|other| is_idle(other) || map.holes.contains_key(&other))
        };
        let idle = map.free.range(first..).rev().map(|(number, _)| *number);
        let idle = idle.filter(|number| is_idle(*number) && is_whole(*number));
        let mut idle: Vec<u32> = idle.take(most - most % unit as usize).collect();
        idle.reverse();
        self.punch_free(map, &idle);
    }

    /// The same of all free segments that are no part of a free erase unit.
    pub fn punch_loose(&self, settled: u64) {
        let _growth = self.growth.lock();
        let mut map = self.map.lock();
        let idle = map.loose.iter().filter(|(_, since)| **since <= settled);
        let idle: Vec<(u32, u64)> = idle.map(|(number, since)| (*number, *since)).collect();
        let numbers: Vec<u32> = idle.iter().map(|(number, _)| *number).collect();
        map.loose.retain(|_, since| *since > settled);
        map.free.extend(idle);
        self.punch_free(map, &numbers);
        self.map.lock().sort(self.is_full());
    }

    fn punch_free(&self, mut map: MutexGuard<'_, Map>, numbers: &[u32]) {
        let runs = runs(numbers.iter().copied());
        // Nobody may take them meanwhile.
        let taken: Vec<Vec<(u32, u64)>> = runs
            .iter()
            .map(|(first, count)| {
                let numbers = *first..*first + *count;
                numbers
                    .filter_map(|number| map.free.remove_entry(&number))
                    .collect()
            })
            .collect();
        drop(map);
        for ((first, count), segments) in runs.into_iter().zip(taken) {
            let (page, pages) = (u64::from(first) * SEGMENT, u64::from(count) * SEGMENT);
            let punched = self.device.punch(page, pages, Tag::dbm(Purpose::Reclaim));
            let mut map = self.map.lock();
            match punched {
                Ok(false) => map.free.extend(segments),
                // After an error a part may be a hole.
                Ok(true) | Err(_) => {
                    map.holes.extend(segments);
                    self.discard(pages);
                }
            }
        }
    }
}

/// Neighbouring numbers, given in ascending order: the first of each run, and how many.
fn runs(numbers: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}

/// By how many segments a device of `segments` segments grows or shrinks.
fn step_of(segments: u32) -> u32 {
    (segments / 32).clamp(*STEP.start(), *STEP.end())
}

fn no_space(segments: u32) -> DbmError {
    DbmError::NoSpace(u64::from(segments) * SEGMENT)
}

/// Pages of zeros written at a time.
const ZERO_PAGES: u64 = 256;

/// Writes zeros to pages that were never written.
pub(crate) fn write_zeros(device: &dyn Device, first: u64, pages: u64) -> Result<(), IoError> {
    let zeros = AlignedBuf::new(pages.min(ZERO_PAGES) as usize);
    for done in (0..pages).step_by(ZERO_PAGES as usize) {
        let bytes = (pages - done).min(ZERO_PAGES) as usize * PAGE_SIZE;
        device.write(first + done, &zeros[..bytes], Tag::dbm(Purpose::Meta))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{OnceLock, Weak};

    use super::*;

    /// Segments of an erase unit, and of the smallest device that has them.
    const IN_UNIT: u32 = (UNIT / SEGMENT) as u32;
    const SMALL: u32 = 32 * IN_UNIT;

    fn space_of(device: &Arc<Meanwhile>, max_bytes: Option<u64>) -> Space {
        let options = Options {
            max_bytes,
            ..Options::default()
        };
        Space::new(Arc::clone(device) as Arc<dyn Device>, &options)
    }

    /// Leaves out the space's end whenever storage is asked for, as a checkpoint of another thread
    /// may.
    #[derive(Default)]
    struct Meanwhile {
        pages: AtomicU64,
        written: AtomicU64,
        space: OnceLock<Weak<Space>>,
    }

    impl Meanwhile {
        fn leave_end(&self) {
            if let Some(space) = self.space.get().and_then(Weak::upgrade) {
                space.leave_end(u64::MAX, u32::MAX);
            }
        }
    }

    impl Device for Meanwhile {
        fn pages(&self) -> u64 {
            self.pages.load(Ordering::Relaxed)
        }

        fn grow(&self, pages: u64) -> Result<(), IoError> {
            self.leave_end();
            self.pages.store(pages, Ordering::Relaxed);
            Ok(())
        }

        fn shrink(&self, pages: u64) -> Result<(), IoError> {
            self.pages.store(pages, Ordering::Relaxed);
            Ok(())
        }

        fn punch(&self, _: u64, _: u64, _: Tag) -> Result<bool, IoError> {
            self.leave_end();
            Ok(true)
        }

        fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
            self.leave_end();
            assert!(page + pages <= self.pages());
            Ok(())
        }

        fn read(&self, _: u64, _: &mut [u8], _: Tag) -> Result<(), IoError> {
            unreachable!("a space reads nothing")
        }

        fn write(&self, page: u64, buf: &[u8], _: Tag) -> Result<(), IoError> {
            let pages = (buf.len() / PAGE_SIZE) as u64;
            assert!(page + pages <= self.pages());
            self.written.fetch_add(pages, Ordering::Relaxed);
            Ok(())
        }

        fn flush(&self, _: Tag) -> Result<(), IoError> {
            Ok(())
        }

        fn discard(&self, _: u64, _: u64, _: Tag) -> Result<(), IoError> {
            Ok(())
        }
    }

    /// SEGMENT-4, SEGMENT-3: segments of a large device come in whole units, loose ones only when
    /// it is full. Pages and long groups go to storage that was never written, the rest of the log
    /// does not.
    #[test]
    fn a_large_device_gives_whole_units() {
        let device = Arc::new(Meanwhile::default());
        let units = SMALL / IN_UNIT;
        device
            .pages
            .store(u64::from(units) * UNIT, Ordering::Relaxed);
        let most = u64::from(units + 3) * UNIT * PAGE_SIZE as u64;
        let space = space_of(&device, Some(most));
        space.release_held(0);
        assert_eq!(space.free() as u32, (units - 1) * IN_UNIT);
        assert_eq!(space.loose() as u32, IN_UNIT - 1, "beside the superblock");
        let take = |last, of| space.take(last, 0, of).unwrap();
        assert_eq!(take(7, Use::Pages), 8, "the unit goes on");
        let mut last = take(IN_UNIT - 1, Use::Pages);
        let first = last;
        assert_eq!(first % IN_UNIT, 0);
        while space.free() > 0 {
            last = take(last, Use::Log);
        }
        assert_eq!(last, SMALL - 1, "all in order");
        assert_eq!(device.written.load(Ordering::Relaxed), 0);
        // One of them is free again, and nobody takes it while the device can grow.
        space.segment(first + 3).taken.store(0, Ordering::Release);
        space.map.lock().free.insert(first + 3, 0);
        space.release_held(0);
        assert_eq!((space.free(), space.loose() as u32), (0, IN_UNIT - 1));
        let unit = |number| SMALL + number * IN_UNIT;
        assert_eq!(take(last, Use::Pages), unit(0));
        assert_eq!(take(unit(1) - 1, Use::Group), unit(1));
        assert_eq!(device.written.load(Ordering::Relaxed), 0);
        assert_eq!(take(unit(2) - 1, Use::Log), unit(2));
        assert_eq!(device.written.load(Ordering::Relaxed), SEGMENT);
        // The rest of the three units goes on where it was begun.
        for number in (unit(0)..unit(3)).filter(|number| number % IN_UNIT > 0) {
            assert_eq!(take(number - 1, Use::Pages), number);
        }
        assert!(!space.is_full());
        for _ in 1..IN_UNIT {
            take(last, Use::Pages);
            assert!(space.is_full());
        }
        assert!(space.take(last, 0, Use::Pages).is_err());
    }

    /// What the log needs next is written with zeros before, as a whole unit.
    #[test]
    fn a_unit_gets_zeros_before_the_log_takes_it() {
        let device = Arc::new(Meanwhile::default());
        let space = space_of(&device, None);
        space.grow(2 * u64::from(SMALL)).unwrap();
        assert_eq!(device.written.load(Ordering::Relaxed), 0);
        let first = space.take(0, 0, Use::Log).unwrap();
        assert_eq!(device.written.load(Ordering::Relaxed), SEGMENT);
        assert!(space.lacks_zeros());
        space.zero().unwrap();
        assert!(!space.lacks_zeros());
        let before = device.written.load(Ordering::Relaxed);
        assert_eq!(before, SEGMENT + UNIT);
        let last = first - first % IN_UNIT + IN_UNIT - 1;
        assert!(!space.is_raw(space.take(last, 0, Use::Log).unwrap()));
        assert_eq!(device.written.load(Ordering::Relaxed), before);
    }

    /// SEGMENT-2: a loose segment keeps what a reader may need.
    #[test]
    fn a_loose_segment_is_punched_when_no_reader_needs_it() {
        let device = Arc::new(Meanwhile::default());
        let pages = u64::from(SMALL) * SEGMENT;
        device.pages.store(pages, Ordering::Relaxed);
        let space = space_of(&device, None);
        space.release_held(0);
        space.map.lock().loose.insert(1, 5);
        space.punch_loose(4);
        assert_eq!((space.loose(), space.holes() as u32), (1, IN_UNIT - 2));
        space.punch_loose(5);
        assert_eq!((space.loose(), space.holes() as u32), (0, IN_UNIT - 1));
    }

    /// A hole that got storage while a checkpoint left out the end that it was in became free
    /// beyond the end. It was given out, and given out again after the device had grown.
    #[test]
    fn no_segment_has_two_users_when_the_end_is_left_out_meanwhile() {
        let units = Units {
            pages: 64,
            least: 8,
        };
        for units in [Units::default(), units] {
            let device = Arc::new(Meanwhile::default());
            device.pages.store(64 * SEGMENT, Ordering::Relaxed);
            let options = Options {
                units,
                ..Options::default()
            };
            let space = Arc::new(Space::new(Arc::clone(&device) as Arc<dyn Device>, &options));
            device.space.set(Arc::downgrade(&space)).unwrap();
            take_and_free(&space);
        }
    }

    fn take_and_free(space: &Space) {
        let mut used = BTreeSet::new();
        for round in 0..1000 {
            // Some segments come back, and all that are free become holes.
            for _ in 0..round % 7 {
                if let Some(segment) = used.pop_last() {
                    space.segment(segment).taken.store(0, Ordering::Release);
                    space.map.lock().free.insert(segment, 0);
                }
            }
            if round % 2 == 0 {
                space.release_held(0);
            }
            space.punch(1, u64::MAX, usize::MAX);
            if round % 3 == 0 {
                space.leave_end(u64::MAX, u32::MAX);
                space.remove_end();
            }
            for _ in 0..round % 5 {
                let segment = space.take(round % 64, 0, Use::Pages).unwrap();
                assert!(used.insert(segment), "{segment} has two users");
                assert!(segment < space.segments(), "{segment} is beyond the end");
            }
        }
    }
}
