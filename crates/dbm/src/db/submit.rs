// SPDX-License-Identifier: Apache-2.0
//! A commit from its admission until it is as durable as requested.

use std::sync::Arc;

use crate::commit::Node;
use crate::commit::reads::ReadSet;
use crate::core::Core;
use crate::db::fairness::Tries;
use crate::upkeep::admit::admit;
use crate::upkeep::maintain::nudge;
use crate::writer::room::Size;
use crate::{DbmError, Durability};

/// Bytes of changes that wait for a commit which is written to the log.
const MOST_UNLOGGED: usize = 256 << 10;

/// Gives a transaction its place in the order, applies it, and waits as requested. `start` is the
/// newest node of its snapshot. Returns the commit's number.
pub(crate) fn submit(
    core: &Arc<Core>,
    node: Arc<Node>,
    start: Arc<Node>,
    reads: &mut ReadSet,
    tries: Tries,
    durability: Durability,
    size: &Size,
) -> Result<u64, DbmError> {
    let admitted = admit(core, size)?;
    let pause = &core.options.pause;
    let Some(number) = Node::append(node, &start, reads, tries.turn(), pause) else {
        core.progress.conflict();
        tries.conflict(core, std::mem::take(reads));
        return Err(DbmError::Conflict);
    };
    tries.commit();
    drop(start);
    let in_tail = core.apply_until(number, durability == Durability::Buffered)?;
    match durability {
        Durability::Synced => core.write_until(number)?,
        Durability::Buffered if !in_tail => core.write_past_tail(number)?,
        Durability::Buffered | Durability::None => {}
    }
    let is_short = admitted.is_short;
    drop(admitted);
    // This is optional work: without the lock it is left to the next commit.
    if let Some(mut log) = core.log.try_lock() {
        if core.room.unlogged() > MOST_UNLOGGED {
            core.write_pending(&mut log, false)?;
        }
        let behind = log.behind();
        drop(log);
        let lacks_zeros = core.space.lacks_zeros();
        if is_short || lacks_zeros || core.room.is_checkpoint_due(&core.space, behind) {
            nudge(core);
        }
    }
    Ok(number)
}
