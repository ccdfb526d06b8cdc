// SPDX-License-Identifier: Apache-2.0
//! The state that all threads of a run share: the plan, the versions, the clock.
//!
//! [`crate::run`] makes it; each [`crate::engine`] and its connections read it.

use std::ops::RangeInclusive;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::changes::Change;
use crate::ledger::{Ledger, SetEnd};
use crate::plan::Plan;
use crate::request::Writer;
use crate::settings::Step;
use crate::tracks::{ChangeEnd, Mark, Track, Tracks};

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// The state that all threads of a run share.
pub struct Shared<'a> {
    pub plan: &'a Plan,
    /// Versions, if answers are compared with earlier requests.
    pub ledger: Option<&'a Ledger>,
    /// How many changes values may have, if a mix has changes.
    pub tracks: Option<&'a Tracks>,
    /// The correct versions if there is no ledger.
    pub versions: RangeInclusive<u32>,
    /// When the run began; all times are nanoseconds since then.
    pub epoch: Instant,
    /// The date at that moment, in Unix seconds.
    pub unix_at_epoch: u32,
    /// Set when a thread gives up, so that the others end too.
    pub abort: &'a AtomicBool,
    /// Set from outside when the run is to end early.
    pub stop: &'a AtomicBool,
}

impl Shared<'_> {
    /// Nanoseconds since the run began.
    #[inline]
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Whether the run must end early, for any reason.
    pub fn ends_early(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.abort.load(Ordering::Relaxed)
    }

    /// Notes a set of the key that is about to be sent, and returns the version to write; `None` if
    /// the ledger cannot count one more.
    pub fn begin_set(&self, key_id: u64, step: Step) -> Option<u32> {
        let generation = self.plan.settings.generation;
        let Some(ledger) = self.ledger else {
            return Some(generation);
        };
        let track = self.track(key_id);
        // Both change under the track's lock. Otherwise a change could be sent between them.
        let begins = track.is_some() && ledger.is_quiet(key_id);
        let version = ledger.begin_set(key_id, (step == Step::Load).then_some(generation))?;
        if let Some(mut track) = track {
            if begins {
                track.begin_version(version);
            }
            track.settle(false);
        }
        Some(version)
    }

    /// Notes the result of a set.
    #[inline]
    pub fn end_set(&self, key_id: u64, end: SetEnd, now: u64) {
        if let Some(ledger) = self.ledger {
            let track = self.track(key_id);
            ledger.end_set(key_id, end, (now / SECOND_NS) as u32);
            if let Some(mut track) = track {
                track.settle(ledger.is_settled(key_id));
            }
        }
    }

    /// The changes of a key, if it is one with changes.
    #[inline]
    pub fn track(&self, key_id: u64) -> Option<MutexGuard<'_, Track>> {
        let tracks = self.tracks?;
        Some(tracks.of(self.plan.classes.changed(key_id)?))
    }

    /// Notes a read of the key that is about to be sent: returns the proven changes.
    #[inline]
    pub fn mark(&self, key_id: u64) -> Mark {
        match self.tracks {
            // Most runs have no changes.
            None => Mark::default(),
            Some(_) => self.mark_of_changed(key_id),
        }
    }

    fn mark_of_changed(&self, key_id: u64) -> Mark {
        self.track(key_id)
            .map_or(Mark::default(), |track| track.mark())
    }

    /// Notes a change of the key that is about to be sent; `None` if a set must be sent instead.
    pub fn begin_change(&self, key_id: u64, change: Change) -> Option<Mark> {
        let Some(mut track) = self.track(key_id) else {
            return Some(Mark::default());
        };
        if track.is_full(change.class()) {
            return None;
        }
        let mark = track.mark();
        track.begin(change);
        Some(mark)
    }

    /// Notes the result of a change that was sent at `mark`.
    pub fn end_change(&self, key_id: u64, change: Change, mark: Mark, end: ChangeEnd) {
        if let Some(mut track) = self.track(key_id) {
            track.end(change, mark, end);
        }
    }

    /// Writes requests.
    #[inline]
    pub fn writer(&self) -> Writer<'_> {
        let settings = &self.plan.settings;
        Writer {
            wire: settings.wire,
            space: &self.plan.space,
            with_key: settings.verify,
        }
    }

    /// The oldest version that the answer to a get sent now may hold.
    pub fn floor(&self, key_id: u64) -> u32 {
        self.ledger.map_or(0, |ledger| ledger.floor(key_id))
    }

    /// The correct versions for an answer.
    pub fn admissible(&self, key_id: u64, floor: u32) -> RangeInclusive<u32> {
        self.ledger.map_or(self.versions.clone(), |ledger| {
            ledger.admissible(key_id, floor)
        })
    }

    /// Whether a read sent at `sent` should have missed because the item had expired.
    pub fn must_have_expired(&self, key_id: u64, sent: u64) -> bool {
        let life = self.plan.settings.expire;
        life > 0
            && self.ledger.is_some_and(|ledger| {
                ledger.must_have_expired(key_id, life, (sent / SECOND_NS) as u32)
            })
    }
}
