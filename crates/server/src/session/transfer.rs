// SPDX-License-Identifier: Apache-2.0
//! Answers that the kernel sends from the flash file (`--transfer sendfile`): a `get` waits for its turn instead of for a frame.
//!
//! ```text
//! execute --can_transfer--> Unit (parked, transfer) --first in the queue: next_transfer--> Transferring (under way)
//!                                                                                              |
//!                    reply ready <--- sent / not there / fetched the direct way <-- transferred
//! ```
//!
//! A transfer begins when all that stands before it was sent, because then its bytes may go to the socket; the worker keeps the
//! connection's sends back until it is over. Its unit stays parked meanwhile, so S1 to S3 hold as for a fetch. A command is
//! tried this way once: whatever comes between sends it the direct way.

use senko_cache::{Fetched, Transfer};
use senko_io::Queue;

use super::{Ctx, Session};
use crate::commands::{self, Form, Op, Request};
use crate::latency::Answered;

/// Whether the answer of this command is the record's own, and goes to a socket of this worker.
pub(super) fn suits(req: &Request<'_>) -> bool {
    let classic = matches!(req.form, Form::Text { .. });
    let op = matches!(
        req.op,
        Op::Get {
            touch: None,
            extended: false,
            ..
        }
    );
    classic && op && !req.remote
}

/// A transfer to carry out now.
#[derive(Debug)]
#[must_use]
pub struct Transferring {
    /// The command's number within its session.
    pub ticket: u16,
    /// `END` is part of its answer.
    pub last: bool,
    /// The place.
    pub transfer: Transfer,
}

/// How it went.
#[derive(Debug)]
pub enum Transferred {
    /// The answer was sent, but for these bytes of its end.
    Sent(Vec<u8>),
    /// The item is not there.
    Absent,
    /// Nothing was tried.
    Unused,
}

impl Session {
    /// Lets answers be sent from the flash file.
    pub fn allow_transfers(&mut self) {
        self.transfers = true;
    }

    /// The transfer whose turn it is, if the first answer that waits is one; all before it must have been sent. The flag
    /// is true if commands ran meanwhile: feed again then.
    pub fn next_transfer<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
    ) -> (Option<Transferring>, bool) {
        let mut ran = false;
        loop {
            let next = self.replies.front_waiting().and_then(|place| {
                self.units
                    .iter()
                    .position(|unit| unit.place == place && unit.transfer.is_some())
            });
            let Some(index) = next else {
                return (None, ran);
            };
            // What a flush_all took away since is found gone by `begin_transfer`.
            ctx.cursor.flush(ctx.shared, ctx.shard);
            let unit = &mut self.units[index];
            if let (Some(at), Some(ticket)) = (unit.transfer.take(), unit.ticket) {
                let req = unit.request(self.remote);
                if let Some(transfer) = ctx.shard.begin_transfer(&req.key, at) {
                    let last = matches!(req.op, Op::Get { last: true, .. });
                    let transferring = Transferring {
                        ticket,
                        last,
                        transfer,
                    };
                    return (Some(transferring), ran);
                }
            }
            self.end_transfer(ctx, index, None);
            ran = true;
        }
    }

    /// A transfer of this session ended. Feed again afterwards.
    pub fn transferred<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, ticket: u16, end: Transferred) {
        let Some(index) = self
            .units
            .iter()
            .position(|unit| unit.ticket == Some(ticket))
        else {
            return;
        };
        match end {
            Transferred::Absent => self.end_transfer(ctx, index, Some(Fetched::Absent)),
            Transferred::Unused => self.end_transfer(ctx, index, None),
            Transferred::Sent(rest) => {
                let unit = self.units.swap_remove(index);
                let before = Answered::of(ctx.stats);
                ctx.work.from_flash = true;
                commands::count_get(ctx, &unit.buf[..unit.key_len], false, true);
                let waited = &mut ctx.work.waited;
                waited.ran(unit.since, true, before, ctx.stats);
                self.replies.at(unit.place).bytes.extend_from_slice(&rest);
                self.replies.ready(unit.place);
                self.recycle(unit.buf);
            }
        }
    }

    /// Runs a command again whose answer was not sent.
    fn end_transfer<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        index: usize,
        hint: Option<Fetched>,
    ) {
        let unit = self.units.swap_remove(index);
        ctx.cursor.flush(ctx.shared, ctx.shard);
        self.rerun(ctx, unit, hint);
    }
}
