// SPDX-License-Identifier: Apache-2.0
//! Memory for arriving values (INTAKE-1 to INTAKE-4 in `crate::intake`), from the view of one
//! connection.

use senko_io::Queue;

use super::storing::{mode_of, sets};
use super::{Session, State, Storing};
use crate::commands::{Op, Request};
use crate::context::Ctx;
use crate::intake::Room;

impl Session {
    /// Takes memory of a shard for a value of `len` bytes; false if the value has to wait.
    pub(super) fn take_room<Q: Queue>(
        &mut self,
        ctx: &Ctx<'_, Q>,
        shard: usize,
        len: usize,
    ) -> bool {
        // The shard refuses a value that is too large for any item, so it takes no memory here.
        if len > ctx.shared.settings.max_item {
            return true;
        }
        debug_assert!(self.room.is_none(), "INTAKE-2");
        let taken = ctx.shared.intakes[shard].take(len);
        if taken {
            self.room = Some(Room::new(shard, len, ctx.shard.steady_ms()));
        }
        taken
    }

    /// INTAKE-2: gives the memory back after the end of the value.
    pub(super) fn give_back_room<Q: Queue>(&mut self, ctx: &Ctx<'_, Q>) {
        if let Some(room) = self.room.take() {
            ctx.shared.intakes[room.shard].give_back(room.bytes);
        }
    }

    /// INTAKE-3: the shard whose memory the arriving value holds, if the value has stalled.
    pub fn still_room(&self, steady_ms: u64) -> Option<usize> {
        let room = self.room.as_ref()?;
        room.is_still(steady_ms).then_some(room.shard)
    }

    /// INTAKE-3: gives the memory of the arriving value to others. Its command is refused, and the
    /// rest of the value is skipped.
    pub fn give_up_room<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) {
        ctx.stats.values_given_up += 1;
        match &self.state {
            State::Storing(storing) => {
                let rest = ctx.shard.unfilled(&storing.draft) + storing.want - storing.got;
                self.refuse_value(ctx);
                self.state = State::Skip(rest as u64);
            }
            &State::Forward { shard, left } => self.give_up_value_of(ctx, shard, left),
            _ => debug_assert!(false, "only a value that is coming in holds memory"),
        }
        self.give_back_room(ctx);
    }

    /// Tells another shard that the rest of a value, `left` bytes, will not come. No further
    /// command runs here before that shard has answered.
    pub(super) fn give_up_value_of<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        shard: usize,
        left: u64,
    ) {
        ctx.router.give_up(shard, ctx.conn);
        self.state = State::Skip(left);
        self.settling = true;
    }

    /// Notes that the rest of a value from another worker will not come (virtual connections only).
    /// Everything that it sent before was fed.
    pub fn end_value<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) {
        if matches!(self.state, State::Storing(_)) {
            self.refuse_value(ctx);
        }
        // A command that was refused before has its answer, and no value to skip.
        if matches!(self.state, State::Storing(_) | State::Skip(_)) {
            self.state = State::Command;
        }
    }

    /// Answers that there is no memory for the arriving value, and gives back its memory.
    fn refuse_value<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) {
        let State::Storing(storing) = std::mem::replace(&mut self.state, State::Command) else {
            return;
        };
        let Storing { unit, draft, .. } = storing;
        ctx.shard.abort(draft);
        let req = unit.request(self.remote);
        let op = Op::Refuse {
            large: false,
            forget: sets(&req),
            mode: mode_of(&req),
        };
        self.execute(ctx, &Request { op, ..req }, None);
        self.recycle(unit.buf);
    }
}
