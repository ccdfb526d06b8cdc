// SPDX-License-Identifier: Apache-2.0
//! Makes sure that a commit has room, before anything of it happens (`room.rs`).

use std::sync::Arc;

use crate::core::Core;
use crate::disk::space::SEGMENT;
use crate::error::DbmError;
use crate::upkeep::checkpoint::checkpoint;
use crate::upkeep::cleaner::clean_greedily;
use crate::writer::room::{Admitted, Size};

/// Most rounds of checkpoints and cleaning for one commit.
const ROUNDS: usize = 64;

/// Admits a commit. The room is kept until the result is dropped.
pub(crate) fn admit<'a>(core: &'a Arc<Core>, size: &Size) -> Result<Admitted<'a>, DbmError> {
    core.latch.check()?;
    let admitted = core.room.admit(size);
    let missing = || core.room.missing(&core.space, size, admitted.others);
    let lacking = missing();
    if lacking == 0 || core.space.grow_if_room(lacking.div_ceil(SEGMENT))? {
        return Ok(admitted);
    }
    // The device is full. Checkpoints and cleaning free the space of the log and of dead pages.
    for _ in 0..ROUNDS {
        if missing() == 0 || !make_room(core)? {
            break;
        }
    }
    match missing() {
        0 => Ok(admitted),
        missing => Err(DbmError::NoSpace(missing)),
    }
}

/// Frees what can be freed without a longer device. Returns whether that was anything.
fn make_room(core: &Arc<Core>) -> Result<bool, DbmError> {
    let (room, space) = (&core.room, &core.space);
    let mut maps = core.maps.lock();
    let state = || (space.free(), room.changed().0, space.needed());
    let before = state();
    let left = room.beyond_checkpoint(space);
    // All changed pages, or as many as leave the cleaner its segments.
    let most = match room.others() as u64 {
        others if others <= left => others,
        _ => left.saturating_sub(room.cleaner(space)).max(left / 2),
    };
    checkpoint(core, &mut maps, most as usize)?;
    if clean_greedily(core, &maps)? > 0 {
        checkpoint(core, &mut maps, 0)?;
    }
    let after = state();
    Ok(after.0 > before.0 || after.1 < before.1 || after.2 < before.2)
}
