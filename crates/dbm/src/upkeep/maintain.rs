// SPDX-License-Identifier: Apache-2.0
//! Maintenance beside commits. Checkpoints are written when the log is long, and segments cleaned
//! when dead pages hold too many. The device grows in advance, and becomes shorter if its end stays
//! free.
//!
//! Each call does a bounded part of the work: one checkpoint of a part of the database, and one
//! round of the cleaner. So a commit that does the work itself (`Options::threads` of 0) never
//! waits for all of it.
//!
//! PACE-1: while the log grows to its limit, checkpoints begin at equal distances, as many as it
//! takes to write all changed pages. So each page is written once in that time, and the device and
//! the space never have to take all of them at once.

use std::sync::{Arc, Weak};

use crate::core::Core;
use crate::disk::log::Behind;
use crate::disk::maps::Maps;
use crate::disk::space::{SEGMENT, Space};
use crate::error::DbmError;
use crate::sync::Mutex;
use crate::upkeep::admit::make_room;
use crate::upkeep::checkpoint::checkpoint;
use crate::upkeep::cleaner::{clean, clean_end};
use crate::upkeep::shrink::{cut_end, punch};

/// Whether dead pages hold more than a thirty-second of the live pages, four erase units, and what
/// the log leaves of its `share`. If DRAM is small, changed pages are written before the log is
/// long, and dead pages take its space: to clean them would only cost writes.
fn should_clean(space: &Space, share: u64) -> bool {
    let used = u64::from(space.used_segments()) * SEGMENT;
    let live = space.needed();
    used > live + live / 32 + share + 4 * space.unit()
}

/// Does a part of the work that is due. Returns whether there is more.
fn maintain(core: &Arc<Core>) -> Result<bool, DbmError> {
    let (room, space) = (&core.room, &core.space);
    let mut maps = core.maps.lock();
    let behind = core.log.lock().behind();
    if room.is_checkpoint_due(space, behind) {
        // Commits leave room for it from now on (ADMIT-6).
        room.set_due(room.part(space));
        let lacking = room.lacking(space).div_ceil(SEGMENT);
        let has_room = lacking == 0 || !space.is_full() && space.grow_if_room(lacking)?;
        let done = has_room.then(|| write_part(core, &mut maps, behind));
        room.set_due(0);
        match done {
            Some(done) => done?,
            None => return make_room(core, &mut maps),
        }
    }
    if room.is_short(space) {
        space.grow_if_room(1)?;
    }
    if space.lacks_zeros() {
        let unit = core.options.units.pages;
        let pages = room.claim(space, unit);
        let done = (pages == unit).then(|| space.zero());
        room.unclaim(pages);
        done.transpose()?;
    }
    let behind = core.log.lock().behind();
    Ok(room.is_checkpoint_due(space, behind) || room.is_short(space))
}

/// Cuts or cleans, and writes a checkpoint of a part of the changed pages.
fn write_part(core: &Arc<Core>, maps: &mut Maps, behind: Behind) -> Result<(), DbmError> {
    let (room, space) = (&core.room, &core.space);
    let (changes, limit) = (core.log.lock().changes, room.log_limit(space));
    let idle = core.idle.see(room.spare_pages(space), changes, limit);
    let moved = match cut_end(core, idle)? {
        true => 0,
        false => clean_end(core, maps, idle)?,
    };
    if moved == 0 && should_clean(space, behind.replay.max(limit)) {
        clean(core, maps)?;
    }
    checkpoint(core, maps, room.step(space), room.cleaner(space))?;
    punch(core, idle);
    Ok(())
}

/// Asks the thread to make commits durable. Without a thread, the waiting caller does it.
pub(crate) fn ask_for_sync(core: &Core) {
    if core.options.threads > 0 {
        core.signal.sync();
    }
}

/// Tells the thread that there is work, or does it.
pub(crate) fn nudge(core: &Arc<Core>) {
    match core.options.threads {
        // A failure latches, and the next commit reports it.
        0 => _ = maintain(core),
        _ => core.signal.work(),
    }
}

/// The thread that maintains a database, until it is told to end.
pub(crate) struct Keeper {
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Keeper {
    pub fn start(core: &Arc<Core>) -> Result<Keeper, DbmError> {
        if core.options.threads == 0 {
            let thread = Mutex::new(None);
            return Ok(Keeper { thread });
        }
        let weak = Arc::downgrade(core);
        let thread = std::thread::Builder::new()
            .name("senko-dbm".to_owned())
            .spawn(move || keep(&weak))
            .map_err(|error| DbmError::Open(Arc::new(error)))?;
        Ok(Keeper {
            thread: Mutex::new(Some(thread)),
        })
    }

    pub fn end(&self, core: &Core) {
        core.signal.end();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn keep(weak: &Weak<Core>) {
    while let Some(core) = weak.upgrade() {
        let Some((sync, work)) = core.signal.wait() else {
            return;
        };
        // A failure latches, and the next commit reports it.
        if sync {
            let _ = core.write_until(core.readers.commit());
        }
        if work && maintain(&core).unwrap_or(false) {
            core.signal.work();
        }
    }
}
