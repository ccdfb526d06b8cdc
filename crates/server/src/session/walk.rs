// SPDX-License-Identifier: Apache-2.0
//! Walks over all items, part by part, and over all shards: a walk that a client asked for, or (on
//! a virtual connection) a part of another worker's walk.

use senko_cache::{Fetch, Fetched};
use senko_io::Queue;

use super::executor::Executor;
use super::forwarded::{Forwarded, Use};
use super::{FeedState, Step, Wait};
use crate::commands::{self, Dump, DumpKind, DumpStep, Part};
use crate::context::Ctx;
use crate::protocol::split_line;
use crate::reply::{Place, Reply};

/// Reads that a walk has under way: few, because frames go to the reads that wait longest.
const LIST_READS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The walk that is being answered.
    dump: Option<Box<Dump>>,
    /// The part that waits for reads.
    listing: Option<Box<Listing>>,
}

/// A part of a walk whose items on flash are being read.
#[derive(Debug)]
struct Listing {
    part: Part,
    place: Place,
    /// The reads under way.
    tickets: Vec<u16>,
}

impl Walk {
    pub fn begin(&mut self, kind: DumpKind) {
        self.dump = Some(Box::new(Dump::new(kind)));
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.dump.is_some()
    }

    /// Whether a part is under way.
    pub fn waits(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.waiting)
    }

    pub fn step(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        executor: &mut Executor,
        forwarded: &mut Forwarded,
    ) -> Step {
        let Some(dump) = &mut self.dump else {
            return Step::Took(0);
        };
        let next = dump.next(ctx.me, ctx.shared.deal.workers());
        if matches!(next, DumpStep::Finished) {
            dump.finish(&mut executor.out().open().bytes);
            self.dump = None;
            return Step::Took(0);
        }
        if !ctx.take_heavy() {
            return Step::Stop(0, FeedState::Blocked(Wait::Heavy));
        }
        dump.waiting = !matches!(next, DumpStep::Table(_));
        match next {
            DumpStep::Table(table) => dump.table_part(ctx, table, &mut executor.out().open().bytes),
            DumpStep::Local(kind, cursor) => self.begin_part(ctx, kind, cursor, executor),
            DumpStep::Foreign(worker, request) => {
                forwarded.send(ctx, executor.out(), worker, &request, 0, Use::Walk);
            }
            DumpStep::Finished => {}
        }
        Step::Took(0)
    }

    /// Takes a part, and writes what the client gets of it.
    pub fn take(&mut self, part: &[u8], reply: &mut Reply) {
        if let Some(dump) = &mut self.dump {
            dump.waiting = false;
            dump.take(part, &mut reply.bytes);
        }
    }

    /// Makes a part of a walk over this worker's shards. It is complete when its items on flash
    /// have been read, which may be at once.
    fn begin_part(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        kind: DumpKind,
        cursor: u64,
        executor: &mut Executor,
    ) {
        self.listing = Some(Box::new(Listing {
            part: Part::begin(ctx, kind, cursor),
            place: executor.out().reserve(),
            tickets: Vec::new(),
        }));
        self.go_on(ctx, executor);
    }

    /// Reads more of a part's items on flash, or ends the part.
    fn go_on(&mut self, ctx: &mut Ctx<'_, impl Queue>, executor: &mut Executor) {
        let Some(mut listing) = self.listing.take() else {
            return;
        };
        listing.part.turn_to_its_shard(ctx.shard);
        while listing.tickets.len() < LIST_READS
            && let Some(at) = listing.part.flash.pop()
        {
            let (ticket, user) = executor.ticket(ctx.conn);
            match ctx.shard.list(ctx.queue, at, user) {
                Fetch::Now(Fetched::Listed(items)) => listing.part.add_listed(&items),
                Fetch::Now(_) => {} // it is gone
                Fetch::Queued => listing.tickets.push(ticket),
            }
        }
        if !listing.tickets.is_empty() {
            self.listing = Some(listing);
            return;
        }
        let Listing { part, place, .. } = *listing;
        let (part, reply) = (part.finish(), executor.out().at(place));
        if self.is_on() {
            self.take(&part, reply);
        } else {
            reply.bytes = part; // another worker asked
        }
        executor.out().ready(place);
    }

    /// Whether a read belongs to the walk.
    #[inline]
    pub fn has(&self, ticket: u16) -> bool {
        (self.listing.as_ref()).is_some_and(|listing| listing.tickets.contains(&ticket))
    }

    /// Handles the end of a read of the walk.
    pub fn listed(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        ticket: u16,
        item: Fetched,
        executor: &mut Executor,
    ) {
        if let Some(listing) = &mut self.listing {
            listing.tickets.retain(|&other| other != ticket);
            if let Fetched::Listed(items) = item {
                listing.part.add_listed(&items);
            }
        }
        self.go_on(ctx, executor);
    }

    /// Runs an internal command (virtual connections only): makes a part of a walk, or publishes
    /// this worker's counters.
    pub fn internal(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        executor: &mut Executor,
    ) -> Step {
        let Some((line, used)) = split_line(input) else {
            return Step::Stop(0, FeedState::NeedMore);
        };
        if self.listing.is_some() {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        }
        if !ctx.take_heavy() {
            return Step::Stop(0, FeedState::Blocked(Wait::Heavy));
        }
        if let Some((kind, cursor)) = commands::parse_part_request(line) {
            self.begin_part(ctx, kind, cursor, executor);
        } else {
            executor.out().begin();
            ctx.cursor.catch_up(ctx.shared, ctx.shard, ctx.stats);
            ctx.shared
                .publish_counters(ctx.me, ctx.stats, ctx.shard, ctx.cursor.reset_seen());
        }
        Step::Took(used)
    }
}
