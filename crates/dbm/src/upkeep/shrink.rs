// SPDX-License-Identifier: Apache-2.0
//! Gives storage back: an end of the device that stayed free, and free segments between live ones.

use crate::core::Core;
use crate::disk::space::SEGMENT;
use crate::error::DbmError;
use crate::writer::room::LEAST_STEP;

/// The newest checkpoint whose free segments no reader may need.
fn settled(core: &Core) -> u64 {
    let checkpoint = core.log.lock().checkpoint;
    let pinned = core.device.oldest_pin(checkpoint);
    let pinned = pinned.unwrap_or(checkpoint);
    pinned.min(checkpoint.saturating_sub(1))
}

/// Free segments that may be given back: those that the next commits do not need, and of these
/// `idle` pages.
pub(crate) fn spare_segments(core: &Core, idle: u64) -> u32 {
    (core.room.spare_pages(&core.space).min(idle) / SEGMENT) as u32
}

/// Leaves out an end of the device that stayed free for a checkpoint; the next checkpoint cuts it.
/// Returns whether there was one. At most `idle` spare pages are given back.
pub(crate) fn cut_end(core: &Core, idle: u64) -> Result<bool, DbmError> {
    let (space, settled) = (&core.space, settled(core));
    let spare = || spare_segments(core, idle);
    let lacking = space.lacking_for_cut(settled, spare());
    if lacking > 0 && !space.grow_if_room(u64::from(lacking))? {
        return Ok(false);
    }
    Ok(space.leave_end(settled, spare()))
}

/// Gives back the storage of free segments that the next commits do not need, if that is more than
/// a sixteenth of the live bytes. Half of that stays, so that not every checkpoint punches what the
/// next commits fill again. So do segments near the beginning, into which the cleaner moves what
/// lies near the end. At most `idle` pages are given back.
pub(crate) fn punch(core: &Core, idle: u64) {
    let (room, space) = (&core.room, &core.space);
    let (spare, live) = (room.spare_pages(space).min(idle), space.needed());
    if spare > live / 16 + LEAST_STEP {
        let most = (spare - live / 32) / SEGMENT;
        let first = space.used_segments() + (room.reserve(space) / SEGMENT) as u32;
        space.punch(first, settled(core), most as usize);
    }
}

/// Gives back the storage of free segments between live ones, if that is more than a quarter of the
/// live bytes. The file system gets back small pieces, so upkeep does not do that: the cleaner
/// empties whole erase units.
pub(crate) fn punch_loose(core: &Core) {
    let space = &core.space;
    if space.loose() as u64 * SEGMENT > space.needed() / 4 + LEAST_STEP {
        space.punch_loose(settled(core));
    }
}
