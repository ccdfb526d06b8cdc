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
//! [`Core::make_room`] gets back what ADMIT-1 asks for, and a full database can be emptied.
//! ADMIT-3: a commit that only deletes is admitted with less than one that puts, so that puts can't
//! use up what deletes need. ADMIT-4: room is counted before a commit does anything, and what other
//! threads were admitted for is not counted twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::DbmError;
use crate::core::Core;
use crate::entry::BODY;
use crate::space::SEGMENT;

/// Pages of a checkpoint beyond the counted ones, for rounding up.
pub(crate) const ENDS: u64 = 4;
/// Segments that hold no live pages of their own: the superblock's, those that the log and the
/// images are filling, and the log's next one.
const OPEN: u64 = 4;
/// Pages that only commits that put something leave free.
const MARGIN: u64 = SEGMENT;
/// Most segments that stay free for the cleaner.
const MOST_CLEANER: u64 = 8;
/// Most rounds of checkpoints and cleaning for one commit.
const ROUNDS: usize = 64;

/// The space that a commit takes in the log, including the checkpoint after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub bytes: usize,
    /// Records and ranges, each of which may change a page.
    pub changes: usize,
    pub only_deletes: bool,
}

impl Size {
    /// A commit of nothing, with the room that others keep free for it.
    const SMALL: Size = Size {
        bytes: 0,
        changes: 1,
        only_deletes: false,
    };

    /// Entries of the log.
    fn entries(&self) -> u64 {
        (self.bytes.div_ceil(BODY) + 1) as u64
    }
}

/// How many segments there are for what.
struct Segments {
    free: u64,
    /// With storage, for live pages, in use or not.
    data: u64,
    /// Of the free ones, those that the cleaner needs.
    cleaner: u64,
}

/// Room for a commit; given back when the commit has been written, or has failed.
pub(crate) struct Admitted {
    core: Arc<Core>,
    pages: u64,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.core.admitted.fetch_sub(self.pages, Ordering::AcqRel);
    }
}

impl Core {
    /// Pages of a checkpoint that writes only what it must. Its pages and the log each end in their
    /// own segment.
    pub fn least_checkpoint(&self) -> u64 {
        let unlogged = self.unlogged.load(Ordering::Relaxed) as u64;
        let shaped = self.shaped.load(Ordering::Relaxed) as u64;
        self.empty_checkpoint() + unlogged.div_ceil(BODY as u64) + shaped
    }

    /// Pages of a checkpoint that writes the translation table alone.
    fn empty_checkpoint(&self) -> u64 {
        let parts = self.map_parts.load(Ordering::Relaxed) as u64 + 2;
        parts + (parts * 8).div_ceil(BODY as u64) + ENDS + SEGMENT
    }

    /// The segments as they are now.
    fn segments(&self) -> Segments {
        let (free, stored) = self.space.free_and_stored();
        let other = OPEN + self.empty_checkpoint().div_ceil(SEGMENT);
        let data = u64::from(stored).saturating_sub(other);
        let cleaner = (data + 1).isqrt().saturating_sub(1);
        Segments {
            free: u64::from(free),
            data,
            cleaner: cleaner.clamp(1, MOST_CLEANER),
        }
    }

    /// Data segments that are missing for this many more live pages, and those that there are
    /// beyond (ADMIT-2).
    fn live_room(&self, segments: &Segments, more: u64) -> (u64, u64) {
        let live = self.space.needed() + self.shaped.load(Ordering::Relaxed) as u64 + more;
        let cleaner = segments.cleaner;
        let wanted =
            (live * (cleaner + 1)).div_ceil(cleaner * SEGMENT) + cleaner + MARGIN / SEGMENT;
        let data = segments.data;
        (wanted.saturating_sub(data), data.saturating_sub(wanted))
    }

    /// Changed pages that a checkpoint may leave out.
    fn others(&self) -> usize {
        let shaped = self.shaped.load(Ordering::Relaxed);
        self.dirty.load(Ordering::Relaxed).saturating_sub(shaped)
    }

    /// Pages that must be free before a commit. While the device can grow, the next checkpoint must
    /// fit. On a full one, a checkpoint of everything must: it frees all of the log.
    fn need(&self, segments: &Segments, size: &Size) -> u64 {
        let pages = self.pages.load(Ordering::Relaxed);
        // Pages that split or merge, and those above them.
        let shaped = match size.only_deletes {
            true => size.changes.min(pages / 2) + 4,
            false => 2 * size.bytes / crate::node::ROOM + 4,
        };
        let due = self.due.load(Ordering::Relaxed);
        let (others, cleaner) = (self.others(), segments.cleaner * SEGMENT);
        let written = match self.space.is_full() {
            true => cleaner + (others + size.changes.min(pages)) as u64,
            false if size.only_deletes => cleaner,
            false => cleaner.max(others.min(self.step()) as u64),
        };
        let margin = if size.only_deletes { 0 } else { MARGIN };
        size.entries() + (shaped + due) as u64 + self.least_checkpoint() + written + margin
    }

    /// Pages that are kept free for the next commits and their checkpoint.
    pub fn reserve(&self) -> u64 {
        self.need(&self.segments(), &Size::SMALL)
    }

    /// Free pages beyond those that the next commits and checkpoints need.
    pub fn spare_pages(&self) -> u64 {
        let segments = self.segments();
        let ahead = (3 * SEGMENT).max(self.space.needed() / 48);
        let step = self.least_checkpoint() + self.step() as u64 + MARGIN;
        let kept = self.need(&segments, &Size::SMALL).max(step) + ahead;
        let (_, beyond) = self.live_room(&segments, 0);
        (segments.free * SEGMENT)
            .saturating_sub(kept)
            .min(beyond * SEGMENT)
    }

    /// Free pages that are missing for a commit, beside what others were admitted for.
    fn missing(&self, size: &Size, admitted: u64) -> u64 {
        let segments = self.segments();
        let need = self.need(&segments, size) + admitted;
        let pages = need.saturating_sub(segments.free * SEGMENT);
        if size.only_deletes {
            return pages;
        }
        let more = size.entries() + (2 * size.bytes / crate::node::ROOM) as u64;
        let (missing, _) = self.live_room(&segments, more);
        pages.max(missing * SEGMENT)
    }

    /// Makes sure that there is room for a commit, before anything of it happens. The room is kept
    /// until the result is dropped.
    pub fn admit(self: &Arc<Core>, size: &Size) -> Result<Admitted, DbmError> {
        self.check()?;
        let pages = size.entries();
        let others = self.admitted.fetch_add(pages, Ordering::AcqRel);
        let admitted = Admitted {
            core: Arc::clone(self),
            pages,
        };
        let missing = self.missing(size, others);
        if missing == 0 {
            return Ok(admitted);
        }
        match self.space.grow(missing.div_ceil(SEGMENT)) {
            Err(DbmError::NoSpace(_)) => {}
            done => return done.map(|()| admitted),
        }
        // The device is full. Checkpoints and cleaning free the space of the log and of dead pages.
        for _ in 0..ROUNDS {
            if self.missing(size, others) == 0 || !self.make_room()? {
                break;
            }
        }
        match self.missing(size, others) {
            0 => Ok(admitted),
            missing => Err(DbmError::NoSpace(missing)),
        }
    }

    /// Frees what can be freed without a longer device. Returns whether that was anything.
    fn make_room(self: &Arc<Core>) -> Result<bool, DbmError> {
        let mut maps = self.maintenance.lock();
        let state = || {
            let free = self.space.free() as u64 * SEGMENT;
            (
                free,
                self.dirty.load(Ordering::Relaxed),
                self.space.needed(),
            )
        };
        let before = state();
        let room = before.0.saturating_sub(self.least_checkpoint());
        let cleaner = self.segments().cleaner * SEGMENT;
        // All changed pages, or as many as leave the cleaner its segments.
        let most = match self.others() as u64 {
            others if others <= room => others,
            _ => room.saturating_sub(cleaner).max(room / 2),
        };
        self.checkpoint_held(&mut maps, most as usize)?;
        if self.clean_greedily(&maps)? > 0 {
            self.checkpoint_held(&mut maps, 0)?;
        }
        let after = state();
        Ok(after.0 > before.0 || after.1 < before.1 || after.2 < before.2)
    }
}
