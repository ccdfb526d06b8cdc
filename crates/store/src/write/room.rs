// SPDX-License-Identifier: Apache-2.0
//! The work of a writer that finds no space. It takes the turns of the background until there is
//! space or nothing is left to do.
//!
//! ```text
//! seal all logs -> compact what wastes space -> merge all maps -> end snapshots -> wait for readers
//!      ^                    |                         |                |                |
//!      +--------------------+-------------------------+----------------+----------------+
//! ```
//! A merge finds dead elements, and drops deletes below which nothing is left. So the next
//! compaction frees more.
//!
//! ROOM-1: each step is done only if it changes something, and blocks have finitely many dead
//! elements. Maps are merged once, so readers can leave finitely many versions. So the work ends.
//! ROOM-2: a put that was refused is refused again without work, unless something was written or
//! released meanwhile.
//! ROOM-3: a delete is refused only after a move of each block with a dead element was tried, and
//! none freed anything. One that fails, or frees nothing, is no reason not to try the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::StoreError;
use crate::core::Core;
use crate::core::reserve::Wish;
use crate::core::state::counters::Counters;
use crate::core::state::logs::Writer;
use crate::core::version::{Life, LogHandle};
use crate::options::MAX_FROZEN;

/// The longest waits for the readers of an earlier version: before a snapshot is ended, and before
/// a write is refused.
const BRIEFLY: Duration = Duration::from_millis(50);
const READERS: Duration = Duration::from_secs(10);

impl Core {
    /// Goes on in another log, or makes room in this one's place, for a write that the active log
    /// does not take.
    pub fn rotate(&self, writer: &mut Writer, wish: Wish) -> Result<(), StoreError> {
        self.health.check_writable()?;
        while self.current().logs.len() > MAX_FROZEN && self.work_off()? {}
        let active = writer.active();
        let used = active.is_none_or(|active| !active.log.is_empty());
        if used && self.current().logs.len() <= MAX_FROZEN && self.room_for_next(wish) {
            match self.next_log(writer) {
                // All of its space may be in pieces.
                Err(StoreError::NoSpace(_)) => {}
                other => return other,
            }
        }
        self.make_room(writer, wish.deletes, |core, writer, enough| {
            let ready = |active: Arc<LogHandle>| active.log.is_empty();
            let wanted = match enough {
                true => wish.sealed,
                false => wish.sealed.max(core.options.log_bytes / 8),
            };
            let ready = writer.active().is_some_and(ready);
            if ready && core.grant(writer, wish.deletes, wanted) {
                return Ok(());
            }
            Err(core.full())
        })
    }

    /// Freezes the active log and continues in the next one.
    pub fn next_log(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let fresh = {
            let mut manifests = self.manifests.lock();
            // A log that was prepared comes first. Logs must be used in the manifest's order;
            // otherwise a recovery would take a later log for the end.
            match self.spare.take() {
                Some(spare) => spare,
                None => self.make_log(&mut manifests)?,
            }
        };
        if let Some(old) = writer.active() {
            // Writes acknowledged from now on must not survive a kill that loses an end of this log
            // (WRITE-3).
            let written = old.log.commit(old.log.end(), crate::Durability::Buffered);
            if let Err(error) = written {
                self.spare.put(fresh);
                return Err(self.failed(error));
            }
            old.log.freeze();
            fresh.log.follow(old.log.chain());
            self.pace.froze(old.log.bytes_used());
        }
        self.view
            .publish(|next| next.logs.insert(0, Arc::clone(&fresh)));
        writer.turn_to(fresh);
        self.requests.ask();
        Ok(())
    }

    /// Makes space until `take` gets it. `take` is told whether just enough will do. First there is
    /// to be more, so that the next write need not do all this again.
    pub fn make_room<T>(
        &self,
        writer: &mut Writer,
        deletes: bool,
        take: impl Fn(&Core, &mut Writer, bool) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let take = |writer: &mut Writer, enough| match take(self, writer, enough) {
            Err(StoreError::NoSpace(_)) => Ok(None),
            other => other.map(Some),
        };
        if let Some(taken) = take(writer, true)? {
            return Ok(taken);
        }
        if !deletes && writer.is_refused(self.space.bytes().0) {
            return Err(self.full());
        }
        let _blocks = self.requests.block_work();
        // The maps of the last close, and logs that recovery dropped, keep their space until a
        // commit.
        self.unless_full(self.commit())?;
        let mut merged = false;
        loop {
            if writer.active().is_none() {
                self.unless_full(self.next_log(writer))?;
            }
            if let Some(taken) = take(writer, false)? {
                return Ok(taken);
            }
            if self.seal_in_place(writer)? || self.compact_waste(deletes)? {
                continue;
            }
            // A merge in the background has blocks that were compacted away since it began.
            drop(self.requests.map_work());
            // Whoever leaves one of these after this look is not overlooked.
            let replaced = self.view.replaced();
            if let Some(taken) = take(writer, true)? {
                return Ok(taken);
            }
            if !merged && (deletes || self.generations().len() > 1) {
                merged = true;
                self.merge_all()?;
                continue;
            }
            if wait_for_readers(&replaced, BRIEFLY)
                || self.end_oldest_snapshot()
                || wait_for_readers(&replaced, READERS)
            {
                continue;
            }
            writer.refuse(self.space.bytes().0);
            return Err(self.full());
        }
    }

    /// Passes an error on, except that there is no space; then false.
    fn unless_full(&self, result: Result<(), StoreError>) -> Result<bool, StoreError> {
        match result {
            Err(StoreError::NoSpace(_)) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Seals all logs, also the active one, and goes on in a log that takes the space of one of
    /// them. False if there is nothing to seal, or no space. The caller holds `block_work`.
    fn seal_in_place(&self, writer: &mut Writer) -> Result<bool, StoreError> {
        if self.current().logs.len() > 1 {
            let sealed = self.seal_one().map(drop);
            return self.unless_full(sealed);
        }
        let Some(active) = writer.active().filter(|active| !active.log.is_empty()) else {
            return Ok(false);
        };
        active.log.freeze();
        let (version, sealed) = (self.current(), self.seal(&self.current(), &active));
        drop((active, version));
        if !self.unless_full(sealed)? {
            return Ok(false);
        }
        if !self.spare.is_there() {
            self.space.keep_place_for_log();
        }
        writer.let_go();
        // Before a compaction takes the log's space.
        self.unless_full(self.next_log(writer))?;
        Ok(true)
    }

    /// Seals all logs, in the background's turn if another log can take over meanwhile.
    pub fn seal_everything(&self) -> Result<(), StoreError> {
        let any = Wish {
            deletes: true,
            sealed: 0,
        };
        {
            let mut writer = self.writer.lock();
            self.health.check_takes_writes()?;
            if writer.active().is_some_and(|active| !active.log.is_empty()) {
                // Few elements are sealed at once, and the file does not grow by a second log.
                let many = writer
                    .active()
                    .is_some_and(|active| self.soon_full(&active));
                if (many || self.spare.is_there()) && self.room_for_next(any) {
                    self.unless_full(self.next_log(&mut writer))?;
                }
                if writer.active().is_some_and(|active| !active.log.is_empty()) {
                    let _blocks = self.requests.block_work();
                    while self.seal_in_place(&mut writer)? {}
                    if writer.active().is_some_and(|active| !active.log.is_empty()) {
                        return Err(self.full());
                    }
                }
            }
        }
        self.seal_frozen()
    }

    /// Seals the frozen logs.
    pub fn seal_frozen(&self) -> Result<(), StoreError> {
        let _blocks = self.requests.block_work();
        while self.seal_one()? {}
        Ok(())
    }

    /// One map for all blocks.
    pub fn merge_all(&self) -> Result<(), StoreError> {
        let _maps = self.requests.map_work();
        let generations = self.generations();
        self.merge(&generations).map(drop)
    }

    /// Ends the oldest snapshot; false if there is none.
    fn end_oldest_snapshot(&self) -> bool {
        let ended = self.pins.end_oldest();
        if ended {
            Counters::add(&self.counters.snapshots_expired, 1);
        }
        ended
    }
}

/// Waits until readers have left one of these replaced versions; false if none was left. The space
/// that only such a version has is free then.
fn wait_for_readers(replaced: &[Life], most: Duration) -> bool {
    let is_left = || replaced.iter().any(Life::is_over);
    let until = Instant::now() + most;
    while !replaced.is_empty() && !is_left() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    is_left()
}
