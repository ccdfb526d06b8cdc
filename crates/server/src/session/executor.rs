// SPDX-License-Identifier: Apache-2.0
//! Commands on this worker's shard: they run, are parked while they wait for flash or memory, and
//! run again. The executor owns the parked ones.
//!
//! Always holds:
//! - PIN-1: a get whose answer is sent in place pins its item only while pins hold at most half of
//!   the shard's memory for items, or none; otherwise it waits for pins to end. While an answer
//!   before it waits, its limit is a quarter. So what two connections hold out of order never keeps
//!   an answer that can leave from its pin. Among three workers' shards that does not suffice, nor
//!   for an item larger than a quarter: after [`LONGEST_WAIT_MS`] an answer pins in any case.

use std::time::Instant;

use senko_cache::{Draft, Fetch, Fetched, Key, PieceRead, Shard, Want};
use senko_io::Queue;

use super::Wait;
use crate::commands::{self, Form, Op, Outcome, Request};
use crate::context::{Ctx, Lending};
use crate::latency::Answered;
use crate::reply::{KEPT_PLACES, Place, ReplyQueue};
use crate::shards::Shards;

/// Fetches that end at once before a command is put off.
const MAX_ROUNDS: u32 = 16;
/// How long an answer waits for pins to end. Then it pins its item in any case.
const LONGEST_WAIT_MS: u64 = 500;
/// Spare buffers kept for parked commands.
const SPARE: usize = 2;

#[derive(Debug)]
pub(super) struct Executor {
    /// The answers, in the order of the commands.
    out: ReplyQueue,
    parked: Vec<Parked>,
    /// The parked commands after which no command may run.
    blocking: usize,
    /// Bytes that their fetches will add to the answers for another worker.
    copies: usize,
    spare: Vec<Vec<u8>>,
    /// The number of the last fetch.
    ticket: u16,
    /// The number of the fill whose items it stores; 0: none.
    fill: u64,
}

/// A command apart from the bytes that brought it.
#[derive(Debug)]
pub(super) struct Command {
    op: Op,
    form: Form,
    hash: u64,
    /// The key, then a meta command's flags, then (to read another shard's flash) the bytes that
    /// hand it over.
    buf: Vec<u8>,
    key_len: usize,
    text_len: usize,
    remote: bool,
}

/// A parked command, with everything that it needs to run again.
#[derive(Debug)]
pub(super) struct Parked {
    command: Command,
    draft: Option<Draft>,
    place: Place,
    waits: Waits,
    /// No command after it may run.
    blocking: bool,
    /// The start of the round that first ran it, and whether it has waited for flash since.
    since: Option<Instant>,
    flash: bool,
    /// When it was first parked.
    parked_ms: u64,
}

/// What a command waits for.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// The fetch; `None`: memory.
    ticket: Option<u16>,
    /// Bytes of the fetch's answer that will be copied for another worker.
    copies: usize,
    /// The worker whose shard's flash is read, if it is another one.
    afar: Option<usize>,
}

/// A command to hand over to another worker, which keeps its place among the answers.
#[derive(Debug)]
pub(super) struct Handed {
    pub worker: usize,
    pub place: Place,
    pub command: Command,
}

impl Command {
    /// The bytes that hand it over.
    pub fn sent(&self) -> &[u8] {
        &self.buf[self.key_len + self.text_len..]
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn request(&self) -> Request<'_> {
        let (key, rest) = self.buf.split_at(self.key_len);
        let text = &rest[..self.text_len];
        Request {
            op: self.op,
            form: self.form,
            key: Key {
                bytes: key,
                hash: self.hash,
            },
            text,
            remote: self.remote,
        }
    }
}

impl Executor {
    pub fn new(remote: bool) -> Executor {
        Executor {
            out: ReplyQueue::new(remote),
            parked: Vec::new(),
            blocking: 0,
            copies: 0,
            spare: Vec::new(),
            ticket: 0,
            fill: 0,
        }
    }

    /// Its commands store items of this fill.
    pub fn fill_as(&mut self, fill: u64) {
        self.fill = fill;
    }

    /// The fill whose items its commands store; 0: none.
    pub fn fill(&self) -> u64 {
        self.fill
    }

    /// The answers, in the order of the commands.
    #[inline]
    pub fn answers(&self) -> &ReplyQueue {
        &self.out
    }

    /// The same, to answer.
    #[inline]
    pub fn out(&mut self) -> &mut ReplyQueue {
        &mut self.out
    }

    /// Commands that wait for flash or memory.
    pub fn len(&self) -> usize {
        self.parked.len()
    }

    /// Commands for which there is room.
    pub fn capacity(&self) -> usize {
        self.parked.capacity()
    }

    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Whether a parked command waits for memory.
    pub fn waits_for_memory(&self) -> bool {
        self.first_for_memory().is_some()
    }

    fn first_for_memory(&self) -> Option<usize> {
        let mut parked = self.parked.iter();
        parked.position(|parked| parked.waits.ticket.is_none())
    }

    /// The event before which no command may run. Tries parked commands that wait for memory.
    #[inline]
    pub fn blocked(&mut self, ctx: &mut Ctx<'_, impl Queue>) -> Option<Wait> {
        if self.blocking == 0 {
            return None;
        }
        self.retry(ctx);
        let wait = match self.waits_for_memory() {
            true => Wait::Memory,
            false => Wait::Fetch,
        };
        (self.blocking > 0).then_some(wait)
    }

    /// PIPELINE-2: whether a command that changes this key must wait for a parked one that reads
    /// it.
    #[inline]
    pub fn hazard(&self, req: &Request<'_>) -> bool {
        !self.parked.is_empty()
            && req.op.follows()
            && (self.parked.iter()).any(|parked| parked.command.hash == req.key.hash)
    }

    /// Runs a command: answers it, or parks it.
    pub fn run(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        req: &Request<'_>,
        mut draft: Option<Draft>,
    ) {
        ctx.cursor.flush(ctx.shared, ctx.shard);
        ctx.cursor.reset(ctx.shared, ctx.shard, ctx.stats);
        let place = self.out.begin();
        ctx.work.lending = match self.out.waiting() {
            0 => Lending::Now,
            _ => Lending::Early,
        };
        if let Some(waits) = self.drive(ctx, req, &mut draft, None, place) {
            let parked = Parked {
                command: self.keep(req),
                draft,
                place: self.out.wait(place),
                waits,
                blocking: req.op.changes(),
                since: ctx.work.waited.began,
                flash: false,
                parked_ms: ctx.shard.steady_ms(),
            };
            self.park(parked, waits);
        }
    }

    /// Runs a command until it is done (`None`) or has to wait.
    fn drive(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        req: &Request<'_>,
        draft: &mut Option<Draft>,
        mut hint: Option<Fetched>,
        place: Place,
    ) -> Option<Waits> {
        // A fetch that ended holds memory until its answer leaves, so this command continues in any
        // case.
        let begins = hint.is_none();
        for _ in 0..MAX_ROUNDS {
            (ctx.work.from_flash, ctx.work.fill) = (hint.is_some(), self.fill);
            // Another worker can't read what is in a write buffer here.
            let stays = match &hint {
                Some(Fetched::Answer(found)) if req.remote => found.must_stay(),
                _ => None,
            };
            let hinted = hint.take();
            let outcome = match stays {
                Some(at) => Outcome::Fetch(at, Want::Resident),
                None => commands::run(ctx, req, draft, hinted, self.out.at(place)),
            };
            match outcome {
                Outcome::Done => return None,
                Outcome::Busy => break,
                Outcome::Fetch(at, want) => {
                    let copies = match want {
                        Want::Answer | Want::Peek if req.remote => Shard::frame_bytes(at),
                        _ => 0,
                    };
                    if copies > 0 && begins && ctx.work.no_copies {
                        break;
                    }
                    let (ticket, user) = self.ticket(ctx.conn);
                    match ctx.shard.fetch(ctx.queue, &req.key, at, want, user) {
                        Fetch::Now(fetched) => hint = Some(fetched),
                        Fetch::Queued => {
                            return Some(Waits {
                                ticket: Some(ticket),
                                copies,
                                afar: None,
                            });
                        }
                    }
                }
            }
        }
        ctx.stats.retries += 1;
        Some(Waits {
            ticket: None,
            copies: 0,
            afar: None,
        })
    }

    /// Parks a command for which another shard's flash is read; `sent` hands it over if that is in
    /// vain.
    pub fn park_afar(
        &mut self,
        ctx: &Ctx<'_, impl Queue>,
        req: &Request<'_>,
        worker: usize,
        ticket: u16,
        sent: &[u8],
    ) {
        let mut command = self.keep(req);
        command.buf.extend_from_slice(sent);
        let waits = Waits {
            ticket: Some(ticket),
            copies: 0,
            afar: Some(worker),
        };
        let parked = Parked {
            command,
            draft: None,
            place: self.out.reserve(),
            waits,
            blocking: false,
            since: ctx.work.waited.began,
            flash: true,
            parked_ms: ctx.shard.steady_ms(),
        };
        self.park(parked, waits);
    }

    /// Lets the value that is being sent read ahead. Returns whether it lacks a frame; `Err`: a
    /// piece is damaged.
    pub fn read_ahead(&mut self, ctx: &mut Ctx<'_, impl Queue>) -> Result<bool, ()> {
        while let Some(window) = self.out.wanting(ctx.work.most_pieces) {
            // The next frames are for reads that have none.
            let waits = !window.is_dry() && ctx.shard.frames_wanted();
            let Some(mut frame) = (!waits)
                .then(|| ctx.queue.frame(PieceRead::PAGES))
                .flatten()
            else {
                return Ok(true);
            };
            let hash = window.stream().hash();
            let (ticket, user) = self.ticket(ctx.conn);
            let Some(piece) = self.out.window().and_then(|window| window.next(ticket)) else {
                return Ok(false);
            };
            let mut pages = piece.pages();
            if ctx.shared.deal.worker_of(hash) == ctx.me {
                ctx.shard.turn_to(hash);
                pages = ctx.shard.fill_buffered(&piece, &mut frame);
            }
            if pages > 0 {
                let steady_ms = ctx.shard.steady_ms();
                let read = (piece, pages, frame);
                ctx.work.afar.read_piece(ctx.queue, read, user, steady_ms);
            } else {
                let Some(range) = piece.check(&frame) else {
                    ctx.shard.count_broken(true);
                    return Err(());
                };
                self.out.came(ticket, frame, range);
            }
        }
        Ok(false)
    }

    /// A number for the next read of this connection, and the number by which the shard knows it.
    pub fn ticket(&mut self, conn: u64) -> (u16, u64) {
        self.ticket = self.ticket.wrapping_add(1);
        (self.ticket, conn << 16 | u64::from(self.ticket))
    }

    /// A command to run later.
    pub fn keep(&mut self, req: &Request<'_>) -> Command {
        let mut buf = self.spare.pop().unwrap_or_default();
        buf.extend_from_slice(req.key.bytes);
        buf.extend_from_slice(req.text);
        Command {
            op: req.op,
            form: req.form,
            hash: req.key.hash,
            buf,
            key_len: req.key.bytes.len(),
            text_len: req.text.len(),
            remote: req.remote,
        }
    }

    /// Keeps a command's buffer for the next one.
    pub fn recycle(&mut self, mut command: Command) {
        if self.spare.len() < SPARE {
            command.buf.clear();
            self.spare.push(command.buf);
        }
    }

    fn park(&mut self, mut parked: Parked, waits: Waits) {
        parked.waits = waits;
        parked.flash |= waits.ticket.is_some();
        parked.blocking |= waits.ticket.is_none();
        self.blocking += usize::from(parked.blocking);
        self.copies += waits.copies;
        self.parked.push(parked);
    }

    fn unpark(&mut self, index: usize) -> Parked {
        let parked = self.parked.swap_remove(index);
        self.blocking -= usize::from(parked.blocking);
        self.copies -= parked.waits.copies;
        if self.parked.is_empty() {
            self.parked.shrink_to(KEPT_PLACES);
        }
        parked
    }

    /// Handles the end of a fetch. Returns a command that must be handed over.
    pub fn done(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        ticket: u16,
        mut fetched: Fetched,
    ) -> Option<Handed> {
        let mut parked = self.parked.iter();
        let index = parked.position(|parked| parked.waits.ticket == Some(ticket))?;
        let parked = self.unpark(index);
        if let Some(worker) = parked.waits.afar {
            return self.done_afar(ctx, parked, worker, fetched);
        }
        // After a flush since the fetch began, its result must not be used.
        if ctx.cursor.flush(ctx.shared, ctx.shard) {
            fetched = Fetched::Changed;
        }
        self.rerun(ctx, parked, Some(fetched));
        None
    }

    /// Handles the end of a read of another shard's flash. An item that the command would change is
    /// as useless as none.
    fn done_afar(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        parked: Parked,
        worker: usize,
        fetched: Fetched,
    ) -> Option<Handed> {
        let meta = match &fetched {
            Fetched::Answer(item) => Some(&item.meta),
            Fetched::Header(meta, _) => Some(meta),
            _ => None,
        };
        if !meta.is_some_and(|meta| parked.command.op.only_reads(meta)) {
            return Some(Handed {
                worker,
                place: parked.place,
                command: parked.command,
            });
        }
        ctx.cursor.reset(ctx.shared, ctx.shard, ctx.stats);
        ctx.stats.read_across += 1;
        ctx.stats.read_afar += 1;
        let answered = self.rerun(ctx, parked, Some(fetched));
        debug_assert!(answered, "the item is all that a get needs");
        None
    }

    /// Runs parked commands that wait for memory again.
    pub fn retry(&mut self, ctx: &mut Ctx<'_, impl Queue>) {
        while let Some(index) = self.first_for_memory() {
            let parked = self.unpark(index);
            ctx.cursor.flush(ctx.shared, ctx.shard);
            if !self.rerun(ctx, parked, None) {
                break;
            }
        }
    }

    /// Runs a parked command; false if it still has to wait for memory.
    fn rerun(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        mut parked: Parked,
        hint: Option<Fetched>,
    ) -> bool {
        let before = Answered::of(ctx.stats);
        let (req, draft) = (parked.command.request(), &mut parked.draft);
        let waited_ms = ctx.shard.steady_ms().saturating_sub(parked.parked_ms);
        ctx.work.lending = match self.out.waits_before(parked.place) {
            _ if waited_ms >= LONGEST_WAIT_MS => Lending::Overdue,
            true => Lending::Early,
            false => Lending::Now,
        };
        let Some(waits) = self.drive(ctx, &req, draft, hint, parked.place) else {
            let waited = &mut ctx.work.waited;
            waited.ran(parked.since, parked.flash, before, ctx.stats);
            self.out.ready(parked.place);
            self.recycle(parked.command);
            return true;
        };
        self.park(parked, waits);
        waits.ticket.is_some()
    }

    /// Drops the parked commands. The worker drops the fetches that are still under way.
    pub fn cancel(&mut self, shards: &mut Shards) {
        for parked in self.parked.drain(..) {
            if let Some(draft) = parked.draft {
                shards.turn_to(parked.command.hash);
                shards.abort(draft);
            }
        }
    }
}
