// SPDX-License-Identifier: Apache-2.0
//! Makes sure that a commit has room, before anything of it happens (`room.rs`).

use std::sync::Arc;

use crate::core::Core;
use crate::disk::maps::Maps;
use crate::disk::space::SEGMENT;
use crate::error::DbmError;
use crate::upkeep::checkpoint::{checkpoint, has_room_for_all};
use crate::upkeep::cleaner::clean_greedily;
use crate::writer::room::{Admitted, Size};

/// Most rounds of checkpoints and cleaning for one commit.
const ROUNDS: usize = 64;

/// Admits a commit. The room is kept until the result is dropped.
pub(crate) fn admit<'a>(core: &'a Arc<Core>, size: &Size) -> Result<Admitted<'a>, DbmError> {
    core.latch.check()?;
    let (room, space) = (&core.room, &core.space);
    let mut admitted = room.admit(size);
    let lacking = room.missing(space, size, &mut admitted);
    if lacking == 0 {
        return Ok(admitted);
    }
    if space.grow_if_room(lacking.div_ceil(SEGMENT))? {
        // Whether the device should grow again is as of now.
        room.missing(space, size, &mut admitted);
        return Ok(admitted);
    }
    // It waits, so what it needs is nobody else's loss.
    drop(admitted);
    // The device is full. Checkpoints and cleaning free the space of the log and of dead pages.
    // While the maps are locked, no maintenance claims pages, which it might give back at once.
    let mut maps = core.maps.lock();
    for _ in 0..ROUNDS {
        let mut admitted = room.admit(size);
        if room.missing(space, size, &mut admitted) == 0 {
            return Ok(admitted);
        }
        drop(admitted);
        // Commits under way keep room that they give back when they end.
        let others = room.admitted() > 0;
        if !make_room(core, &mut maps)? && !others {
            break;
        }
    }
    // A checkpoint may have made holes.
    let mut admitted = room.admit(size);
    let lacking = room.missing(space, size, &mut admitted);
    if lacking > 0 && space.holes() > 0 {
        space.grow_if_room(lacking.div_ceil(SEGMENT))?;
    }
    match room.missing(space, size, &mut admitted) {
        0 => Ok(admitted),
        missing => Err(DbmError::NoSpace(missing)),
    }
}

/// Frees what can be freed without a longer device. Returns whether that was anything.
pub(crate) fn make_room(core: &Arc<Core>, maps: &mut Maps) -> Result<bool, DbmError> {
    let (room, space) = (&core.room, &core.space);
    let state = || (space.free(), room.changed().0, space.needed());
    let before = state();
    let (left, cleaner) = (room.beyond_checkpoint(space), room.cleaner(space));
    // What other threads write meanwhile may take the room that there was.
    let mut lost = false;
    let mut write = |maps: &mut Maps, most, kept| match checkpoint(core, maps, most, kept) {
        Err(DbmError::NoSpace(_)) => {
            lost = true;
            Ok(())
        }
        done => done.map(|_| ()),
    };
    // All changed pages, which frees the log, if the cleaner has its segments then.
    let frees_log = has_room_for_all(core, left, cleaner);
    if frees_log {
        write(maps, usize::MAX, cleaner)?;
    }
    if clean_greedily(core, maps)? > 0 {
        write(maps, 0, 0)?;
    } else if !frees_log {
        // Their old places are what the cleaner gains next.
        write(maps, usize::MAX, cleaner.min(left / 2))?;
    }
    room.set_due(0);
    let after = state();
    Ok(lost || after.0 > before.0 || after.1 < before.1 || after.2 < before.2)
}
