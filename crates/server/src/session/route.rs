// SPDX-License-Identifier: Apache-2.0
//! Commands for keys that another shard owns, and walks over all shards.
//!
//! A command for another shard is forwarded unchanged, and its value as it arrives. A `get` of
//! several keys becomes one `get` per key. The other worker feeds the bytes to a virtual session
//! and returns one unit per command, in order. Here each unit has its place among the replies. If a
//! command is refused before its key is known, it is answered here, so both sides agree on the
//! number of commands.

use senko_cache::{Fetch, Fetched, Key, Lookup};
use senko_io::Queue;

use super::{FeedState, Foreign, ForeignKind, LIST_READS, Listing, Session, State, Step, Wait};
use crate::commands::{self, DumpKind, DumpStep, Outcome, Request};
use crate::context::Ctx;
use crate::protocol::number::push_u64;
use crate::protocol::split_line;
use crate::reply::{Answer, KEPT_PLACES};

impl Session {
    /// The shard that owns the key, if it is not this worker's shard.
    #[inline]
    pub(super) fn other_shard<Q: Queue>(&self, ctx: &Ctx<'_, Q>, key: &Key<'_>) -> Option<usize> {
        if ctx.shared.shards == 1 || self.remote {
            return None;
        }
        let shard = key.shard(ctx.shared.shards);
        (shard != ctx.me).then_some(shard)
    }

    /// Answers a command from the DRAM of another shard, if that shard is parked and DRAM suffices
    /// (PARK-1 to PARK-4 in `parked.rs`).
    pub(super) fn read_across<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        shard: usize,
        req: &Request<'_>,
    ) -> bool {
        if !req.op.only_reads() || self.foreign.iter().any(|f| f.shard == shard) {
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
        let place = self.replies.begin();
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
            self.replies.at(place),
        );
        debug_assert!(matches!(outcome, Outcome::Done), "DRAM knew the answer");
        ctx.stats.read_across += 1;
        true
    }

    fn expect(&mut self, shard: usize, bytes: usize, kind: ForeignKind) {
        let place = self.replies.begin();
        let place = self.replies.wait(place);
        self.foreign.push_back(Foreign {
            shard,
            place,
            bytes,
            kind,
        });
        self.foreign_bytes += bytes;
    }

    /// Forwards a command; `value` bytes of it are still to come.
    pub(super) fn forward<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        shard: usize,
        command: &[u8],
        value: u64,
    ) {
        ctx.stats.forwarded += 1;
        ctx.router.forward(shard, ctx.conn, command);
        self.expect(shard, command.len() + value as usize, ForeignKind::Plain);
        if value > 0 {
            self.state = State::Forward { shard, left: value };
        }
    }

    /// Forwards one key of a `get` line as a separate command.
    pub(super) fn forward_key<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        shard: usize,
        key: &[u8],
        cas: bool,
        touch: Option<i64>,
        last: bool,
    ) {
        let mut command = self.spare.pop().unwrap_or_default();
        command.extend_from_slice(match (touch, cas) {
            (None, false) => b"get ",
            (None, true) => b"gets ",
            (Some(_), false) => b"gat ",
            (Some(_), true) => b"gats ",
        });
        if let Some(exptime) = touch {
            if exptime < 0 {
                command.push(b'-');
            }
            push_u64(&mut command, exptime.unsigned_abs());
            command.push(b' ');
        }
        command.extend_from_slice(key);
        command.extend_from_slice(b"\r\n");
        ctx.stats.forwarded += 1;
        ctx.router.forward(shard, ctx.conn, &command);
        let kind = if last {
            ForeignKind::Plain
        } else {
            ForeignKind::StripEnd
        };
        self.expect(shard, command.len(), kind);
        self.recycle(command);
    }

    /// The shard that will answer the only command under way, if the shard's answer is the whole
    /// reply. Also returns the bytes of that command.
    #[inline]
    pub fn lone_foreign(&self) -> Option<(usize, usize)> {
        let foreign = self.foreign.front()?;
        let lone = self.foreign.len() == 1
            && foreign.kind == ForeignKind::Plain
            && matches!(self.state, State::Command)
            && self.replies.is_all(foreign.place);
        lone.then_some((foreign.shard, foreign.bytes))
    }

    /// Notes that the peer sends no more. If a part of a value went to another shard, that shard
    /// never answers the command, so there is no wait for it. When that shard learns of the closed
    /// connection, it drops its part.
    pub fn give_up_value(&mut self) {
        let State::Forward { shard, .. } = self.state else {
            return;
        };
        self.state = State::Closed;
        // A shard answers in order. So this command is the newest one there, unless the shard has
        // refused it already.
        if let Some(last) = self.foreign.back()
            && last.shard == shard
        {
            self.foreign_bytes -= last.bytes;
            self.replies.ready(last.place);
            self.foreign.pop_back();
        }
    }

    /// Forwards more of a value to another shard.
    pub(super) fn step_forward<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, input: &[u8]) -> Step {
        let State::Forward { shard, left } = &mut self.state else {
            unreachable!("the caller has looked")
        };
        let take = (*left).min(input.len() as u64) as usize;
        if take > 0 {
            ctx.router.forward(*shard, ctx.conn, &input[..take]);
        }
        *left -= take as u64;
        let all = *left == 0;
        if let Some(room) = &mut self.room {
            room.moves(take, ctx.shard.steady_ms());
        }
        if !all {
            return Step::Stop(take, FeedState::NeedMore);
        }
        self.give_back_room(ctx);
        self.state = State::Command;
        Step::Took(take)
    }

    /// Another shard answered its oldest unanswered command of this session. Feed again afterwards.
    /// It returns what is no longer needed here: a buffer, and a lent value if no reply waits for
    /// it.
    pub fn remote_reply(&mut self, shard: usize, mut answer: Answer) -> Answer {
        let Some(index) = self
            .foreign
            .iter()
            .position(|foreign| foreign.shard == shard)
        else {
            return answer;
        };
        let foreign = self
            .foreign
            .remove(index)
            .expect("the position was just found");
        self.foreign_bytes -= foreign.bytes;
        if self.foreign.is_empty() {
            self.foreign.shrink_to(KEPT_PLACES);
        }
        let reply = self.replies.at(foreign.place);
        match foreign.kind {
            ForeignKind::Plain => answer.bytes = reply.take(std::mem::take(&mut answer), shard),
            ForeignKind::StripEnd => {
                // An answer without values is an error, and is passed on unchanged.
                answer.strip(b"END\r\n");
                answer.bytes = reply.take(std::mem::take(&mut answer), shard);
            }
            ForeignKind::Silent => {}
            ForeignKind::Dump => {
                if let State::Dump(dump) = &mut self.state {
                    dump.waiting = false;
                    dump.take(&answer.bytes, &mut reply.bytes);
                }
            }
        }
        self.replies.ready(foreign.place);
        answer
    }

    /// The next part of a walk over all items.
    pub(super) fn step_dump<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) -> Step {
        let State::Dump(dump) = &mut self.state else {
            unreachable!("the caller has looked")
        };
        if dump.waiting {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        }
        let next = dump.next(ctx.me, ctx.shared.shards);
        if self.window_full(ctx.window) {
            return Step::Stop(0, FeedState::Blocked(Wait::Window));
        }
        let State::Dump(dump) = &mut self.state else {
            unreachable!("the caller has looked")
        };
        if matches!(next, DumpStep::Finished) {
            let place = self.replies.begin();
            dump.finish(&mut self.replies.at(place).bytes);
            self.state = State::Command;
            return Step::Took(0);
        }
        if !self.take_heavy(ctx) {
            return Step::Stop(0, FeedState::Blocked(Wait::Heavy));
        }
        match next {
            DumpStep::Table(table) => {
                let place = self.replies.begin();
                if let State::Dump(dump) = &mut self.state {
                    dump.table_part(ctx, table, &mut self.replies.at(place).bytes);
                }
            }
            DumpStep::Local(kind, cursor) => {
                if let State::Dump(dump) = &mut self.state {
                    dump.waiting = true;
                }
                self.begin_part(ctx, kind, cursor);
            }
            DumpStep::Foreign(shard, request) => {
                if let State::Dump(dump) = &mut self.state {
                    dump.waiting = true;
                }
                ctx.router.forward(shard, ctx.conn, &request);
                self.expect(shard, request.len(), ForeignKind::Dump);
            }
            DumpStep::Finished => {}
        }
        Step::Took(0)
    }

    /// Makes a part of a walk over this worker's shard. It is complete when its items on flash have
    /// been read, which may be at once.
    fn begin_part<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, kind: DumpKind, cursor: u64) {
        let part = commands::Part::begin(ctx, kind, cursor);
        let place = self.replies.begin();
        let place = self.replies.wait(place);
        self.listing = Some(Box::new(Listing {
            part,
            place,
            tickets: Vec::new(),
        }));
        self.go_on_listing(ctx);
    }

    /// Reads more of a part's items on flash, or ends the part.
    fn go_on_listing<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) {
        let Some(mut listing) = self.listing.take() else {
            return;
        };
        while listing.tickets.len() < LIST_READS
            && let Some(at) = listing.part.flash.pop()
        {
            self.ticket = self.ticket.wrapping_add(1);
            let user = ctx.conn << 16 | u64::from(self.ticket);
            match ctx.shard.list(ctx.queue, at, user) {
                Fetch::Now(Fetched::Listed(item)) => listing.part.add_listed(&item),
                Fetch::Now(_) => {} // it is gone
                Fetch::Queued => listing.tickets.push(self.ticket),
            }
        }
        if !listing.tickets.is_empty() {
            self.listing = Some(listing);
            return;
        }
        let Listing { part, place, .. } = *listing;
        let part = part.finish();
        let bytes = &mut self.replies.at(place).bytes;
        if self.remote {
            *bytes = part;
        } else if let State::Dump(dump) = &mut self.state {
            dump.waiting = false;
            dump.take(&part, bytes);
        }
        self.replies.ready(place);
    }

    /// Handles a read that belongs to no parked command: it may belong to a walk.
    pub(super) fn listed<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, ticket: u16, item: Fetched) {
        let Some(listing) = &mut self.listing else {
            return;
        };
        let Some(index) = listing.tickets.iter().position(|&other| other == ticket) else {
            return;
        };
        listing.tickets.swap_remove(index);
        if let Fetched::Listed(item) = item {
            listing.part.add_listed(&item);
        }
        self.go_on_listing(ctx);
    }

    /// Whether `stats` can be answered: no earlier command is under way, and the other workers have
    /// published their counters since. Otherwise it asks them to.
    pub(super) fn counters_ready<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) -> bool {
        if self.replies.waiting() > 0 {
            return false;
        }
        if ctx.shared.shards == 1 || self.remote || std::mem::take(&mut self.counters_shown) {
            return true;
        }
        for shard in (0..ctx.shared.shards).filter(|&shard| shard != ctx.me) {
            ctx.router.forward(shard, ctx.conn, commands::SHOW_COUNTERS);
            self.expect(shard, 0, ForeignKind::Silent);
        }
        self.counters_shown = true;
        false
    }

    /// Runs an internal command (virtual connections only): makes a part of a walk, or publishes
    /// this worker's counters.
    pub(super) fn step_internal<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, input: &[u8]) -> Step {
        let Some((line, used)) = split_line(input) else {
            return Step::Stop(0, FeedState::NeedMore);
        };
        if self.listing.is_some() {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        }
        if !self.take_heavy(ctx) {
            return Step::Stop(0, FeedState::Blocked(Wait::Heavy));
        }
        if let Some((kind, cursor)) = commands::parse_part_request(line) {
            self.begin_part(ctx, kind, cursor);
        } else {
            self.replies.begin();
            ctx.cursor.catch_up(ctx.shared, ctx.shard, ctx.stats);
            ctx.shared
                .publish_counters(ctx.me, ctx.stats, ctx.shard, ctx.cursor.reset_seen());
        }
        Step::Took(used)
    }
}
