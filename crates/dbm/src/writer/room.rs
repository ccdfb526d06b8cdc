// SPDX-License-Identifier: Apache-2.0
//! Room for commits: how many free pages a commit needs, and how a full database gets them.
//!
//! Card: greedy cleaning with a bound on the live share, as in a log-structured file system
//! (Rosenblum and Ousterhout, SOSP 1991). With f free segments the cleaner can empty f + 1 segments
//! whose pages in use fit f. There are such segments if the average is at most f / (f + 1) of a
//! segment. So a bound on the live share makes sure that cleaning always gains. In a small database
//! the f that leaves most room for live pages is about the root of the number of segments. In a
//! large one it is eight, because the cleaner keeps an eighth of dead pages anyway.
//!
//! ADMIT-1: after an admitted commit, the free pages suffice for a checkpoint that writes only what
//! it must, and for the f segments of the cleaner. ADMIT-2: a commit that puts something is
//! admitted only if the live pages stay below the bound. So while nothing holds old versions,
//! [`crate::upkeep::admit`] gets back what ADMIT-1 asks for, and a full database can be emptied.
//! ADMIT-3: a commit that only deletes is admitted with less than one that puts, so that puts can't
//! use up what deletes need. ADMIT-4: room is counted before a commit does anything, and no page is
//! counted for two: what an admitted commit may take belongs to it, and what maintenance is about
//! to write is *due*. Each side first says what it takes and then looks at what the other side
//! took. A page may be counted for two while it passes from one number to the next, and never for
//! none: the admitted ones are read first, what is free last. A checkpoint for which too little is
//! left lets the device grow first, where it can.
//!
//! Another file may take the rest of the disk at any time. ADMIT-5: so on a device that can still
//! grow, a commit is admitted only if a full one would get room for the next. Either there is room
//! for all changed pages, which frees the log. Or the bound of ADMIT-2 holds for the segments
//! without the log, which the cleaner can't empty. ADMIT-6: maintenance leaves what the next
//! commits need ([`Room::beyond`]). On a device without room for that, it does as a commit
//! does.

use std::sync::atomic::Ordering;

use senko_io::PAGE_SIZE;

use crate::disk::entry::BODY;
use crate::disk::log::Behind;
use crate::disk::space::{SEGMENT, Space};
use crate::options::Options;
use crate::records::table::TableInfo;
use crate::sync::{AtomicU64, AtomicUsize};

/// Pages of a checkpoint beyond the counted ones, for rounding up.
pub(crate) const ENDS: u64 = 4;
/// Segments that hold no live pages of their own: the superblock's, those that the log and the
/// images are filling, and the log's next one.
const OPEN: u64 = 4;
/// Pages that only commits that put something leave free.
const MARGIN: u64 = SEGMENT;
/// Most segments that stay free for the cleaner.
const MOST_CLEANER: u64 = 8;
/// The number of checkpoints that write a database all of whose pages changed.
const PARTS: u64 = 32;
/// Changes that a leaf gets, on average, before a checkpoint writes it: numerator and denominator.
/// With 2.4 random ones, 9 leaves of 10 have changed.
const CHANGES: (u64, u64) = (12, 5);
/// Parts of which a share is counted.
const WHOLE: u64 = 1024;
/// The least and the most that the log may have of the live pages.
const LOG_SHARE: (u64, u64) = (WHOLE * 27 / 100, WHOLE * 60 / 100);
/// The least in a database of erase units, which is large.
const LARGE_LOG_SHARE: u64 = WHOLE * 45 / 100;
/// The least pages that a checkpoint writes, if this many changed.
pub(crate) const LEAST_STEP: u64 = 64;
/// The most pages of a checkpoint that a commit waits for.
const MOST_STEP: u64 = 256;

/// The space that a commit takes in the log, including the checkpoint after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Without long values.
    pub bytes: usize,
    /// Pages of long values.
    pub parts: usize,
    /// Records and ranges, each of which may change a page.
    pub changes: usize,
    pub only_deletes: bool,
}

impl Size {
    /// A commit of nothing, with the room that others keep free for it.
    const SMALL: Size = Size {
        bytes: 0,
        parts: 0,
        changes: 1,
        only_deletes: false,
    };

    /// Entries of the log.
    fn entries(&self) -> u64 {
        (self.bytes.div_ceil(BODY) + 1 + self.parts) as u64
    }

    /// Pages that its records may add to the trees.
    fn leaves(&self) -> usize {
        2 * self.bytes / crate::pages::node::ROOM
    }
}

struct Segments {
    free: u64,
    /// With storage.
    stored: u64,
    /// Of those, for live pages, in use or not.
    data: u64,
    /// Of the free ones, those that the cleaner needs.
    cleaner: u64,
}

/// Pages that must be free before a commit.
struct Need {
    /// While the device can grow: the next checkpoint must fit.
    part: u64,
    /// On a full one: a checkpoint of everything must, because that frees all of the log.
    all: u64,
}

/// Room for a commit; given back when the commit has been applied, or has failed.
pub(crate) struct Admitted<'a> {
    room: &'a Room,
    /// Pages of the log, and those that its checkpoint must write.
    pages: u64,
    /// Pages for which others were admitted before.
    others: u64,
    /// Whether the device should grow before the next commit ([`Room::is_short`]).
    pub is_short: bool,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.room.admitted.fetch_sub(self.pages, Ordering::SeqCst);
    }
}

/// What commits and checkpoints need, as numbers that are read without a lock. The writer and the
/// checkpoints set them.
pub(crate) struct Room {
    /// Approximate number of pages that changed since a checkpoint wrote them.
    dirty: AtomicUsize,
    /// Those of them that the next checkpoint must write.
    shaped: AtomicUsize,
    /// The most pages that maintenance under way must still write.
    due: AtomicUsize,
    /// Approximate number of pages of all trees.
    pages: AtomicUsize,
    /// The part of the live pages that the log may take, of [`WHOLE`].
    log_share: AtomicU64,
    /// Most parts of the translation table that a checkpoint may have to write.
    map_parts: AtomicUsize,
    /// Bytes of changes that wait for the log.
    unlogged: AtomicUsize,
    /// Bytes that are being written to the log.
    writing: AtomicUsize,
    /// Pages for which commits under way were admitted.
    admitted: AtomicU64,
    log_bytes: u64,
    most_dirty: usize,
    most_step: u64,
}

impl Room {
    pub fn new(options: &Options) -> Room {
        Room {
            dirty: AtomicUsize::new(0),
            shaped: AtomicUsize::new(0),
            due: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            log_share: AtomicU64::new(LOG_SHARE.0),
            map_parts: AtomicUsize::new(0),
            unlogged: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
            admitted: AtomicU64::new(0),
            log_bytes: options.log_bytes,
            most_dirty: options.cache_bytes / PAGE_SIZE,
            // Without a thread, a commit waits for the checkpoint.
            most_step: if options.threads == 0 {
                MOST_STEP
            } else {
                u64::MAX
            },
        }
    }

    /// Changed pages, and those of them that the next checkpoint must write.
    pub fn changed(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        (count(&self.dirty), count(&self.shaped))
    }

    /// Approximate number of pages of all trees.
    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Bytes of changes that are not in the log yet.
    pub fn unlogged(&self) -> usize {
        self.unlogged.load(Ordering::Relaxed) + self.writing.load(Ordering::Relaxed)
    }

    /// These bytes are being written to the log; 0: they are written.
    pub fn set_writing(&self, bytes: usize) {
        self.writing.store(bytes, Ordering::Relaxed);
    }

    pub fn set_unlogged(&self, bytes: usize) {
        self.unlogged.store(bytes, Ordering::Relaxed);
    }

    pub fn set_changed(&self, (dirty, shaped): (usize, usize)) {
        self.dirty.store(dirty, Ordering::Relaxed);
        self.shaped.store(shaped, Ordering::Relaxed);
    }

    pub fn set_trees(&self, changed: (usize, usize), pages: usize, map_parts: usize) {
        self.set_changed(changed);
        self.pages.store(pages, Ordering::Relaxed);
        self.map_parts.store(map_parts, Ordering::Relaxed);
    }

    /// Notes how many records there are. A checkpoint empties erase units whole, so that a leaf
    /// that did not change since is moved in vain. If its records are few and large, the log is as
    /// long as it takes for [`CHANGES`] of each leaf.
    pub fn set_records(&self, tables: &[TableInfo]) {
        // A damaged checkpoint may count any number.
        let counts = tables.iter().map(|table| table.count);
        let records = counts.fold(0, u64::saturating_add);
        let (changes, of) = CHANGES;
        let share = WHOLE * changes * self.pages() as u64 / of.saturating_mul(records).max(1);
        let (least, most) = LOG_SHARE;
        let share = if records > 0 { share } else { least };
        self.log_share
            .store(share.clamp(least, most), Ordering::Relaxed);
    }

    /// A checkpoint is about to write this many pages; 0: it ended.
    pub fn set_due(&self, pages: usize) {
        self.due.store(pages, Ordering::SeqCst);
    }

    /// Counts a commit. Whether there is room for it says [`Room::missing`].
    pub fn admit(&self, size: &Size) -> Admitted<'_> {
        let pages = size.entries() + self.shaped_by(size);
        let others = self.admitted.fetch_add(pages, Ordering::SeqCst);
        Admitted {
            room: self,
            pages,
            others,
            is_short: false,
        }
    }

    /// Pages for which commits under way were admitted.
    pub fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::SeqCst)
    }

    /// Pages that a commit splits or merges, and those above them.
    fn shaped_by(&self, size: &Size) -> u64 {
        let shaped = match size.only_deletes {
            true => size.changes.min(self.pages() / 2) + 4,
            false => size.leaves() + 4,
        };
        shaped as u64
    }

    /// Pages that maintenance is about to write.
    fn due(&self) -> u64 {
        self.due.load(Ordering::SeqCst) as u64
    }

    /// Pages that a checkpoint takes in addition to those that it must write.
    pub fn step(&self, space: &Space) -> usize {
        let step = (space.needed() / PARTS).max(LEAST_STEP);
        step.min(self.most_step) as usize
    }

    /// Most entries of changes after the log's replay position. With fewer, pages would be written
    /// more often; with more, they would take more space.
    pub fn log_limit(&self, space: &Space) -> u64 {
        let mut share = self.log_share.load(Ordering::Relaxed);
        if space.unit() > SEGMENT {
            share = share.max(LARGE_LOG_SHARE);
        }
        (self.log_bytes / PAGE_SIZE as u64).max(space.needed() * share / WHOLE)
    }

    /// Whether a checkpoint is due (PACE-1).
    pub fn is_checkpoint_due(&self, space: &Space, behind: Behind) -> bool {
        let limit = self.log_limit(space);
        // Each checkpoint writes all shaped pages.
        let parts = self.others().div_ceil(self.step(space)).max(1) as u64;
        let is_late = behind.replay > limit || behind.checkpoint > limit / parts;
        is_late || self.changed().0 > self.most_dirty
    }

    /// Whether free space is below what the next commits need, and the device can grow. Not in an
    /// empty database, which should stay small.
    pub fn is_short(&self, space: &Space) -> bool {
        if space.is_full() {
            return false;
        }
        let segments = self.segments(space);
        let need = self.need(space, &segments, &Size::SMALL);
        self.is_short_of(space, &segments, need.part)
    }

    fn is_short_of(&self, space: &Space, segments: &Segments, need: u64) -> bool {
        let least = need + SEGMENT.max(space.needed() / 128);
        segments.free * SEGMENT < least && segments.stored > 3
    }

    /// Free pages above what admitted commits and a checkpoint need.
    pub fn beyond_checkpoint(&self, space: &Space) -> u64 {
        let kept = self.admitted() + self.least_checkpoint();
        (space.free() as u64 * SEGMENT).saturating_sub(kept)
    }

    /// Pages that the cleaner needs.
    pub fn cleaner(&self, space: &Space) -> u64 {
        self.segments(space).cleaner * SEGMENT
    }

    /// Pages of a checkpoint that writes only what it must. Its pages and the log each end in their
    /// own segment.
    pub fn least_checkpoint(&self) -> u64 {
        let unlogged = self.unlogged() as u64;
        let shaped = self.changed().1 as u64;
        self.empty_checkpoint() + unlogged.div_ceil(BODY as u64) + shaped
    }

    /// Pages of a checkpoint that writes the translation table alone.
    fn empty_checkpoint(&self) -> u64 {
        let parts = self.map_parts.load(Ordering::Relaxed) as u64 + 2;
        parts + (parts * 8).div_ceil(BODY as u64) + ENDS + SEGMENT
    }

    /// The segments as they are now.
    fn segments(&self, space: &Space) -> Segments {
        let (free, stored) = space.free_and_stored();
        let other = OPEN + self.empty_checkpoint().div_ceil(SEGMENT);
        let data = u64::from(stored).saturating_sub(other);
        let cleaner = match data > MOST_CLEANER * (MOST_CLEANER + 2) {
            true => MOST_CLEANER,
            false => ((data + 1).isqrt() - 1).max(1),
        };
        Segments {
            free: u64::from(free),
            stored: u64::from(stored),
            data,
            cleaner,
        }
    }

    /// Data segments that are missing for this many more live pages and a margin, and those that
    /// there are beyond (ADMIT-2).
    fn live_room(&self, space: &Space, segments: &Segments, more: u64, margin: u64) -> (u64, u64) {
        let live = space.needed() + self.changed().1 as u64 + more;
        let cleaner = segments.cleaner;
        let wanted =
            (live * (cleaner + 1)).div_ceil(cleaner * SEGMENT) + margin.div_ceil(SEGMENT) + cleaner;
        let data = segments.data;
        (wanted.saturating_sub(data), data.saturating_sub(wanted))
    }

    /// Pages in the log's segments that only checkpoints free.
    fn wasted(&self, space: &Space) -> u64 {
        space.wasted() + self.unlogged().div_ceil(BODY) as u64
    }

    /// Changed pages that a checkpoint may leave out.
    pub fn others(&self) -> usize {
        let (dirty, shaped) = self.changed();
        dirty.saturating_sub(shaped)
    }

    /// What must be free before a commit.
    fn need(&self, space: &Space, segments: &Segments, size: &Size) -> Need {
        let (others, cleaner) = (self.others(), segments.cleaner * SEGMENT);
        let (step, margin) = match size.only_deletes {
            true => (0, 0),
            false => (others.min(self.step(space)) as u64, MARGIN),
        };
        let own = size.entries() + self.shaped_by(size);
        let least = own + self.due() + self.least_checkpoint() + margin;
        Need {
            part: least + cleaner.max(step),
            all: least + cleaner + (others + size.changes.min(self.pages())) as u64,
        }
    }

    /// Pages that are kept free for the next commits and their checkpoint.
    pub fn reserve(&self, space: &Space) -> u64 {
        self.needed(space, &self.segments(space))
    }

    /// Pages that a checkpoint of a part of the changed pages takes beside what the next commits
    /// need. That has a checkpoint in it, and on a full device all changed pages.
    pub fn part(&self, space: &Space) -> usize {
        match space.is_full() {
            true => self.least_checkpoint() as usize,
            false => self.step(space),
        }
    }

    /// Free pages beyond those that admitted and the next commits need, and that are due; `None` if
    /// there are too few.
    pub fn beyond(&self, space: &Space) -> Option<u64> {
        let kept = self.admitted() + self.reserve(space);
        (space.free() as u64 * SEGMENT).checked_sub(kept)
    }

    /// Free pages that are missing for what admitted and the next commits need, and what is due.
    pub fn lacking(&self, space: &Space) -> u64 {
        let kept = self.admitted() + self.reserve(space);
        kept.saturating_sub(space.free() as u64 * SEGMENT)
    }

    /// Makes more pages due, so that no commit counts on them: up to `most` of those beyond.
    /// Returns how many.
    pub fn claim(&self, space: &Space, most: u64) -> u64 {
        self.claim_of(most, || self.beyond(space))
    }

    /// As [`Room::claim`], of what no checkpoint and no admitted commit needs. The next commits
    /// wait until the cleaner is done.
    pub fn claim_for_cleaner(&self, space: &Space) -> u64 {
        self.claim_of(u64::MAX, || {
            let kept = self.admitted() + self.least_checkpoint() + self.due();
            (space.free() as u64 * SEGMENT).checked_sub(kept)
        })
    }

    /// Makes up to `most` of the pages due that `beyond` counts, which leaves out what is due.
    fn claim_of(&self, most: u64, beyond: impl Fn() -> Option<u64>) -> u64 {
        loop {
            let claimed = beyond().unwrap_or(0).min(most);
            self.due.fetch_add(claimed as usize, Ordering::SeqCst);
            if claimed == 0 || beyond().is_some() {
                return claimed;
            }
            // A commit was admitted meanwhile.
            self.unclaim(claimed);
        }
    }

    /// Gives back some of what was claimed.
    pub fn unclaim(&self, pages: u64) {
        self.due.fetch_sub(pages as usize, Ordering::SeqCst);
    }

    /// As [`Room::need`], for a small commit on the device as it is.
    fn needed(&self, space: &Space, segments: &Segments) -> u64 {
        let need = self.need(space, segments, &Size::SMALL);
        match space.is_full() {
            true => need.all,
            false => need.part,
        }
    }

    /// Free pages beyond those that the next commits and checkpoints need.
    pub fn spare_pages(&self, space: &Space) -> u64 {
        let admitted = self.admitted();
        let segments = self.segments(space);
        let ahead = (3 * SEGMENT).max(space.needed() / 48);
        let step = self.least_checkpoint() + self.step(space) as u64 + MARGIN;
        // The caller has what is due.
        let needed = self.needed(space, &segments).saturating_sub(self.due());
        let kept = needed.max(step) + admitted + ahead;
        let (_, beyond) = self.live_room(space, &segments, 0, MARGIN + self.wasted(space));
        (space.free() as u64 * SEGMENT)
            .saturating_sub(kept)
            .min(beyond * SEGMENT)
    }

    /// Free pages that are missing for a commit, beside what others were admitted for.
    pub fn missing(&self, space: &Space, size: &Size, admitted: &mut Admitted<'_>) -> u64 {
        let segments = self.segments(space);
        let need = self.need(space, &segments, size);
        let free = space.free() as u64 * SEGMENT;
        let all = (need.all + admitted.others).saturating_sub(free);
        let is_full = space.is_full();
        admitted.is_short = !is_full && self.is_short_of(space, &segments, need.part);
        let mut missing = match is_full {
            true => all,
            false => (need.part + admitted.others).saturating_sub(free),
        };
        if !size.only_deletes {
            let more = size.entries() + size.leaves() as u64;
            let (live, _) = self.live_room(space, &segments, more, MARGIN);
            missing = missing.max(live * SEGMENT);
        }
        // ADMIT-5
        if all > missing {
            let (live, _) = self.live_room(space, &segments, 0, self.wasted(space));
            missing = missing.max(all.min(live * SEGMENT));
        }
        missing
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use senko_io::faulty::FaultyDevice;

    use super::*;

    const SEGMENTS: u64 = 32;

    /// ADMIT-4: the cleaner of a full device took pages for which a commit was admitted before.
    #[test]
    fn what_one_counts_on_is_not_counted_by_another() {
        let space = Space::new(
            FaultyDevice::new(SEGMENTS * SEGMENT, 1),
            &Options::default(),
        );
        assert!(!space.grow_if_room(1).unwrap());
        let room = Room::new(&Options::default());
        room.set_trees((0, 0), 40, 1);
        let free = space.free() as u64 * SEGMENT;
        assert_eq!(free, (SEGMENTS - 1) * SEGMENT);
        let size = Size {
            bytes: 30 * BODY,
            ..Size::SMALL
        };
        let own = size.entries() + room.shaped_by(&size);
        let mut admitted = room.admit(&size);
        assert_eq!(room.missing(&space, &size, &mut admitted), 0);
        let claimed = room.claim_for_cleaner(&space);
        assert_eq!(claimed, free - own - room.least_checkpoint());
        // It has all, so nobody else has any.
        assert_eq!(room.claim_for_cleaner(&space), 0);
        assert_eq!(room.claim(&space, u64::MAX), 0);
        let mut next = room.admit(&Size::SMALL);
        assert!(room.missing(&space, &Size::SMALL, &mut next) > 0);
        drop(next);
        room.unclaim(claimed);
        // The first commit ends, and its pages are free again.
        drop(admitted);
        assert_eq!(room.claim_for_cleaner(&space), claimed + own);
    }
}
