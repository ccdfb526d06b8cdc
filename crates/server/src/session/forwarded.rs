// SPDX-License-Identifier: Apache-2.0
//! Commands for keys that another shard owns.
//!
//! A command for another shard is forwarded unchanged, and its value as it arrives. A `get` of
//! several keys becomes one `get` per key. The other worker feeds the bytes to a virtual session
//! and returns one unit per command, in order. Here each unit has its place among the replies. If a
//! command is refused before its key is known, it is answered here, so both sides agree on the
//! number of commands.

use std::collections::VecDeque;

use senko_cache::{Fetched, Lookup};
use senko_io::Queue;

use super::parser::Keys;
use crate::commands::{self, Outcome, Request};
use crate::context::Ctx;
use crate::protocol::number::push_u64;
use crate::reply::{KEPT_PLACES, Place, ReplyQueue};

/// The commands of one connection at other shards.
#[derive(Debug, Default)]
pub(super) struct Forwarded {
    commands: VecDeque<Command>,
    bytes: usize,
    /// The other workers have published their counters for the next `stats`.
    counters_shown: bool,
    /// The command for one key of a line.
    line: Vec<u8>,
}

/// A command sent to another shard.
#[derive(Debug)]
pub(super) struct Command {
    shard: usize,
    bytes: usize,
    pub place: Place,
    pub of: Use,
}

/// How another shard's answer is used.
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

impl Forwarded {
    /// Commands that other shards have not answered.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Commands for which there is room.
    pub fn capacity(&self) -> usize {
        self.commands.capacity()
    }

    /// Bytes of commands that other shards have not answered.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Answers a command from the DRAM of another shard, if that shard is parked and DRAM suffices
    /// (PARK-1 to PARK-4 in `parked.rs`).
    fn read_across(
        &self,
        ctx: &mut Ctx<'_, impl Queue>,
        out: &mut ReplyQueue,
        shard: usize,
        req: &Request<'_>,
    ) -> bool {
        if !req.op.only_reads() || self.commands.iter().any(|sent| sent.shard == shard) {
            return false;
        }
        let Some(mut look) = ctx.shared.parked[shard].look() else {
            return false;
        };
        let (applied, there) = look.parts();
        there.set_now(ctx.shard.now_ms());
        if !ctx.shared.is_all(applied, there.now()) {
            return false;
        }
        let found = match there.lookup(&req.key) {
            Lookup::Dram(item) if there.meta(item).value_len <= ctx.window.copy_limit() => None,
            // It must not be looked up again: when an expired item is gone, its tag may lead to
            // another key's copy on flash.
            Lookup::Miss => Some(Fetched::Absent),
            Lookup::Dram(_) | Lookup::Flash(_) => return false,
        };
        ctx.cursor.reset(ctx.shared, ctx.shard, ctx.stats);
        ctx.work.from_flash = false;
        let outcome = commands::run(
            &mut Ctx {
                shard: there,
                queue: &mut *ctx.queue,
                shared: ctx.shared,
                stats: &mut *ctx.stats,
                cursor: &mut *ctx.cursor,
                router: &mut *ctx.router,
                me: shard,
                conn: ctx.conn,
                fd: ctx.fd,
                entry: ctx.entry,
                window: ctx.window,
                work: &mut *ctx.work,
            },
            req,
            &mut None,
            found,
            out.open(),
        );
        debug_assert!(matches!(outcome, Outcome::Done), "DRAM knew the answer");
        ctx.stats.read_across += 1;
        true
    }

    /// Sends a command; `value` bytes of it are still to come.
    pub fn send(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        out: &mut ReplyQueue,
        shard: usize,
        command: &[u8],
        value: u64,
        of: Use,
    ) {
        ctx.stats.forwarded += u64::from(matches!(of, Use::Reply | Use::StripEnd));
        ctx.router.forward(shard, ctx.conn, command);
        let bytes = command.len() + value as usize;
        self.commands.push_back(Command {
            shard,
            bytes,
            place: out.reserve(),
            of,
        });
        self.bytes += bytes;
    }

    /// Answers a command or sends it, without a value. `key`: it is a key of a line, and perhaps
    /// the last; it is sent as a command of its own.
    pub fn command(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        out: &mut ReplyQueue,
        shard: usize,
        req: &Request<'_>,
        bytes: &[u8],
        key: Option<(Keys, bool)>,
    ) {
        if self.read_across(ctx, out, shard, req) {
            return;
        }
        let Some((keys, last)) = key else {
            return self.send(ctx, out, shard, bytes, 0, Use::Reply);
        };
        let mut line = std::mem::take(&mut self.line);
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
            push_u64(&mut line, exptime.unsigned_abs());
            line.push(b' ');
        }
        line.extend_from_slice(req.key.bytes);
        line.extend_from_slice(b"\r\n");
        let of = if last { Use::Reply } else { Use::StripEnd };
        self.send(ctx, out, shard, &line, 0, of);
        self.line = line;
    }

    /// Whether `stats` can be answered: no earlier command is under way, and the other workers have
    /// published their counters since. Otherwise it asks them to.
    pub fn counters_ready(&mut self, ctx: &mut Ctx<'_, impl Queue>, out: &mut ReplyQueue) -> bool {
        if out.waiting() > 0 {
            return false;
        }
        if ctx.shared.shards == 1 || std::mem::take(&mut self.counters_shown) {
            return true;
        }
        let me = ctx.me;
        for shard in (0..ctx.shared.shards).filter(|&shard| shard != me) {
            self.send(ctx, out, shard, commands::SHOW_COUNTERS, 0, Use::Silent);
        }
        self.counters_shown = true;
        false
    }

    /// The shard that will answer the only command under way, if the shard's answer is the whole
    /// reply. Also returns the bytes of that command.
    #[inline]
    pub fn lone(&self, out: &ReplyQueue) -> Option<(usize, usize)> {
        let sent = self.commands.front()?;
        let lone = self.commands.len() == 1 && sent.of == Use::Reply && out.is_all(sent.place);
        lone.then_some((sent.shard, sent.bytes))
    }

    /// Takes the oldest command that a shard has not answered.
    pub fn take(&mut self, shard: usize) -> Option<Command> {
        let index = self.commands.iter().position(|sent| sent.shard == shard)?;
        let sent = self.commands.remove(index)?;
        self.bytes -= sent.bytes;
        if self.commands.is_empty() {
            self.commands.shrink_to(KEPT_PLACES);
        }
        Some(sent)
    }

    /// Takes the newest command, if this shard is to answer it.
    pub fn take_newest(&mut self, shard: usize) -> Option<Command> {
        self.commands.back().filter(|sent| sent.shard == shard)?;
        let sent = self.commands.pop_back()?;
        self.bytes -= sent.bytes;
        Some(sent)
    }
}
