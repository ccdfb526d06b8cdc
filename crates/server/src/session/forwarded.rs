// SPDX-License-Identifier: Apache-2.0
//! Commands for keys that another shard owns.
//!
//! A command for another worker's shard is forwarded unchanged, and its value as it arrives. A
//! `get` of several keys becomes one `get` per key. The other worker feeds the bytes to a virtual
//! session and returns one unit per command, in order. Here each unit has its place among the
//! replies. If a command is refused before its key is known, it is answered here, so both sides
//! agree on the number of commands.

use std::collections::VecDeque;

use senko_cache::{Fetched, Lookup};
use senko_io::Queue;

use super::executor::{Executor, Handed};
use super::parser::Keys;
use crate::commands::{self, Form, Op, Outcome, Request};
use crate::context::Ctx;
use crate::protocol::number::push_u64;
use crate::reply::{KEPT_PLACES, Place, ReplyQueue};

#[derive(Debug, Default)]
pub(super) struct Forwarded {
    commands: VecDeque<Command>,
    bytes: usize,
    /// The other workers have published their counters for the next `stats`.
    counters_shown: bool,
    /// The command for one key of a line.
    line: Vec<u8>,
    /// Commands to hand over, once no value is on its way to another worker.
    held: Vec<Handed>,
}

/// A command sent to another worker.
#[derive(Debug)]
pub(super) struct Command {
    worker: usize,
    bytes: usize,
    pub place: Place,
    pub of: Use,
}

/// How another worker's answer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is the reply.
    Reply,
    /// It is the reply without its `END`: a key of a `get` that has more keys.
    StripEnd,
    /// It is a part of a walk.
    Walk,
    /// It only says that the command was done.
    Silent,
}

impl Use {
    /// How the answer to a command is used. A key of a `get` is a command of its own.
    fn of(req: &Request<'_>) -> Use {
        match (req.op, req.form) {
            (Op::Get { last: false, .. }, Form::Text { .. }) => Use::StripEnd,
            _ => Use::Reply,
        }
    }
}

/// The result of a look into a parked shard.
enum Across {
    /// The command was answered.
    Answered,
    /// Its item is read from that shard's flash, with this ticket.
    Reads(u16),
    /// The command must be handed over.
    No,
}

impl Forwarded {
    /// Commands that other workers have not answered.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Commands for which there is room.
    pub fn capacity(&self) -> usize {
        self.commands.capacity()
    }

    /// Bytes of commands that other workers have not answered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Answers a command from the DRAM of another worker's shard, or begins to read its flash, if
    /// it is parked and the command only reads (PARK-1 to PARK-4 in `parked.rs`).
    fn read_across(
        &self,
        ctx: &mut Ctx<'_, impl Queue>,
        executor: &mut Executor,
        worker: usize,
        req: &Request<'_>,
    ) -> Across {
        let Some(want) = req.op.reads() else {
            return Across::No;
        };
        if self.commands.iter().any(|sent| sent.worker == worker) {
            return Across::No;
        }
        let Some(mut look) = ctx.shared.parked[worker].look() else {
            return Across::No;
        };
        let (applied, there) = look.parts();
        there.set_now(ctx.shard.now_ms());
        there.turn_to(req.key.hash);
        if !ctx.shared.is_all(applied, there.now()) {
            return Across::No;
        }
        let found = match there.lookup(&req.key) {
            Lookup::Dram(item) if there.meta(item).value_len <= ctx.window.copy_limit() => None,
            // It must not be looked up again: when an expired item is gone, its tag may lead to
            // another key's copy on flash.
            Lookup::Miss => Some(Fetched::Absent),
            Lookup::Dram(_) => return Across::No,
            Lookup::Flash(at) => {
                let shards = (&*ctx.shard, there);
                let begun = (ctx.work.afar).begin(ctx.queue, shards, &req.key, at, want);
                drop(look);
                let Some(begun) = begun else {
                    return Across::No;
                };
                let (ticket, user) = executor.ticket(ctx.conn);
                let steady_ms = ctx.shard.steady_ms();
                ctx.work.afar.submit(ctx.queue, begun, user, steady_ms);
                return Across::Reads(ticket);
            }
        };
        ctx.cursor.reset(ctx.shared, ctx.shard, ctx.stats);
        (ctx.work.from_flash, ctx.work.fill) = (false, executor.fill());
        let outcome = commands::run(
            &mut Ctx {
                shard: there,
                queue: &mut *ctx.queue,
                shared: ctx.shared,
                stats: &mut *ctx.stats,
                cursor: &mut *ctx.cursor,
                router: &mut *ctx.router,
                me: worker,
                conn: ctx.conn,
                fd: ctx.fd,
                entry: ctx.entry,
                window: ctx.window,
                work: &mut *ctx.work,
            },
            req,
            &mut None,
            found,
            executor.out().open(),
        );
        debug_assert!(matches!(outcome, Outcome::Done), "DRAM knew the answer");
        ctx.stats.read_across += 1;
        Across::Answered
    }

    /// Sends a command; `value` bytes of it are still to come.
    pub fn send(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        out: &mut ReplyQueue,
        worker: usize,
        command: &[u8],
        value: u64,
        of: Use,
    ) {
        self.send_for(ctx, out.reserve(), worker, command, value, of);
    }

    /// The same, for a command that has its place among the answers.
    fn send_for(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        place: Place,
        worker: usize,
        command: &[u8],
        value: u64,
        of: Use,
    ) {
        ctx.stats.forwarded += u64::from(matches!(of, Use::Reply | Use::StripEnd));
        ctx.router.forward(worker, ctx.conn, command);
        let bytes = command.len() + value as usize;
        self.commands.push_back(Command {
            worker,
            bytes,
            place,
            of,
        });
        self.bytes += bytes;
    }

    /// Answers a command, or reads for it, or sends it, without a value. `keys`: it is a key of
    /// such a line, and is sent as a command of its own.
    pub fn command(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        executor: &mut Executor,
        worker: usize,
        req: &Request<'_>,
        bytes: &[u8],
        keys: Option<Keys>,
    ) {
        let across = self.read_across(ctx, executor, worker, req);
        if matches!(across, Across::Answered) {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        let sent = match keys {
            Some(keys) => Forwarded::line_of(&mut line, keys, req.key.bytes),
            None => bytes,
        };
        match across {
            Across::Reads(ticket) => executor.park_afar(ctx, req, worker, ticket, sent),
            _ => self.send(ctx, executor.out(), worker, sent, 0, Use::of(req)),
        }
        self.line = line;
    }

    /// Takes a command for which reading another shard's flash was in vain.
    pub fn hold(&mut self, handed: Handed) {
        self.held.push(handed);
    }

    /// Commands that wait to be handed over.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    pub fn hand_over(&mut self, ctx: &mut Ctx<'_, impl Queue>, executor: &mut Executor) {
        for handed in std::mem::take(&mut self.held) {
            let (command, of) = (&handed.command, Use::of(&handed.command.request()));
            self.send_for(ctx, handed.place, handed.worker, command.sent(), 0, of);
            executor.recycle(handed.command);
        }
    }

    /// Leaves them without an answer: the client ended in the middle of a value, and its worker
    /// waits for the rest.
    pub fn drop_held(&mut self, out: &mut ReplyQueue) {
        for handed in self.held.drain(..) {
            out.ready(handed.place);
        }
    }

    /// Writes the line for one key of such a line.
    fn line_of<'a>(line: &'a mut Vec<u8>, keys: Keys, key: &[u8]) -> &'a [u8] {
        line.clear();
        line.extend_from_slice(match (keys.touch, keys.cas) {
            (None, false) => b"get ",
            (None, true) => b"gets ",
            (Some(_), false) => b"gat ",
            (Some(_), true) => b"gats ",
        });
        if let Some(exptime) = keys.touch {
            if exptime < 0 {
                line.push(b'-');
            }
            push_u64(line, exptime.unsigned_abs());
            line.push(b' ');
        }
        line.extend_from_slice(key);
        line.extend_from_slice(b"\r\n");
        line
    }

    /// Whether `stats` can be answered: no earlier command is under way, and the other workers have
    /// published their counters since. Otherwise it asks them to.
    pub fn counters_ready(&mut self, ctx: &mut Ctx<'_, impl Queue>, out: &mut ReplyQueue) -> bool {
        if out.waiting() > 0 {
            return false;
        }
        if ctx.shared.deal.workers() == 1 || std::mem::take(&mut self.counters_shown) {
            return true;
        }
        let me = ctx.me;
        for worker in (0..ctx.shared.deal.workers()).filter(|&worker| worker != me) {
            self.send(ctx, out, worker, commands::SHOW_COUNTERS, 0, Use::Silent);
        }
        self.counters_shown = true;
        false
    }

    /// The worker that will answer the only command under way, if its answer is the whole
    /// reply. Also returns the bytes of that command.
    #[inline]
    pub fn lone(&self, out: &ReplyQueue) -> Option<(usize, usize)> {
        let sent = self.commands.front()?;
        let lone = self.commands.len() == 1 && sent.of == Use::Reply && out.is_all(sent.place);
        lone.then_some((sent.worker, sent.bytes))
    }

    /// Takes the oldest command that a worker has not answered.
    pub fn take(&mut self, worker: usize) -> Option<Command> {
        let index = self
            .commands
            .iter()
            .position(|sent| sent.worker == worker)?;
        let sent = self.commands.remove(index)?;
        self.bytes -= sent.bytes;
        if self.commands.is_empty() {
            self.commands.shrink_to(KEPT_PLACES);
        }
        Some(sent)
    }

    /// Takes the newest command, if this worker is to answer it.
    pub fn take_newest(&mut self, worker: usize) -> Option<Command> {
        self.commands.back().filter(|sent| sent.worker == worker)?;
        let sent = self.commands.pop_back()?;
        self.bytes -= sent.bytes;
        Some(sent)
    }
}
