// SPDX-License-Identifier: Apache-2.0
//! One connection's commands: parse, run, wait, answer.
//!
//! A worker hands received bytes to [`Session::feed`], which runs the commands in them in place and
//! queues the answers in order ([`ReplyQueue`]). It stops when something has to happen first, and
//! returns the reason ([`FeedState`]). A command that needs flash is parked as a [`Unit`]. When its
//! fetch has ended ([`Session::done`]), it runs again from its start. A *virtual connection*, which
//! runs commands for another worker, is a session too, with one reply per command.
//!
//! ```text
//!             feed                      fetch queued
//!   bytes ───────────▶ parse ─▶ execute ────────────▶ Unit (parked) ──done──▶ rerun ─▶ reply ready
//!                        │         │ Done                                     │ Busy
//!                        │         ▼                                          ▼
//!                        │       reply                                  retried by feed
//!                        ├─▶ other shard's key: read across ─▶ reply
//!                        │                      else forward ─▶ slot ──remote_reply──▶ reply ready
//!                        └─▶ value follows: Storing / Forward / Skip
//! ```
//!
//! **Order.** To every observer, commands take effect in the order in which they were sent:
//! - (PIPELINE-1) A command that changes something and waits ([`Op::changes`]) holds up all that
//!   follow.
//! - (PIPELINE-2) A read-only command lets others pass while it waits, except for one that changes
//!   the same key ([`Session::hazard`]). If its read were repeated, it would return the later
//!   value.
//! - (PIPELINE-3) Commands for one key go to one shard, in order. Commands for different shards may
//!   overtake each other. Only `flush_all` and commands that read all shards wait until nothing is
//!   under way.
//!
//! **Bounds.** At most [`WINDOW`] replies wait; parsing stops at [`crate::context::QUEUE_BYTES`] of
//! unsent answers, and at [`FOREIGN_BYTES`] that other shards have not answered. It stops much
//! earlier while the answers of all connections take much memory ([`Window`]).

mod binary; // the binary dialect
mod intake; // memory for arriving values
mod login; // passwords, before any command
mod route; // commands for other shards, walks over all shards
mod storing; // storage commands, and their arriving values
mod text; // the classic and meta dialects

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use senko_cache::{Done, Draft, Fetch, Fetched, Key, Shard, Want};
use senko_io::Queue;

use crate::commands::{self, Dump, Form, Op, Outcome, Request};
use crate::context::{Ctx, WINDOW, Window};
use crate::intake::Room;
use crate::latency::Answered;
use crate::reply::{KEPT_PLACES, Place, Reply, ReplyQueue, shard_of};
use crate::settings::Dialect;
use crate::shared::ConnState;
use crate::watch::Watcher;

/// Frames and pinned pieces in the queue at which parsing stops.
const QUEUE_PARTS: usize = 64;
/// Replies in the queue at which parsing stops, including empty ones after a waiting one.
const QUEUE_REPLIES: usize = 4 * WINDOW;
/// Bytes of commands on their way to other shards at which parsing stops.
pub const FOREIGN_BYTES: usize = 256 << 10;
/// Reads that a walk over all items has under way: few, because frames go to the reads that wait
/// longest.
const LIST_READS: usize = 8;
/// Fetches that end at once before a command is put off.
const MAX_ROUNDS: u32 = 16;
/// Spare buffers kept for parked commands.
const SPARE: usize = 2;

/// The event that a session waits for before it takes more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A fetch or another shard. Feed again after [`Session::done`] or [`Session::remote_reply`].
    Fetch,
    /// Memory. Feed again after the next disk completion or tick.
    Memory,
    /// Memory for its value, from the budget for arriving values ([`crate::intake`]). Feed again
    /// when some was given back.
    Room,
    /// The queued answers. Feed again when some have been sent.
    Window,
    /// Its next turn. Feed again after the others.
    Turn,
    /// A turn of heavy work ([`Work::heavy`](crate::context::Work::heavy)) for its next command.
    /// Feed again at that turn.
    Heavy,
}

/// The state at the end of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedState {
    /// The rest is an incomplete command (at most [`crate::protocol::MAX_LINE`] bytes, or a binary
    /// header and key).
    NeedMore,
    /// The rest may contain complete commands.
    Blocked(Wait),
    /// Take no more bytes; close once [`ReplyQueue::is_empty`].
    Close,
}

/// The result of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes of the input that were consumed. Pass the rest again, followed by the next bytes.
    pub consumed: usize,
    /// The state at the end.
    pub state: FeedState,
}

/// One step of a feed.
enum Step {
    /// Bytes consumed; continue.
    Took(usize),
    /// Bytes consumed; stop.
    Stop(usize, FeedState),
}

/// What the next bytes are.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one per connection; a box would be one allocation per value
enum State {
    /// A command.
    Command,
    /// The rest of a `get` line: keys. `checked`: the line is complete, and no key is too long.
    Keys {
        cas: bool,
        touch: Option<i64>,
        checked: bool,
    },
    /// The value of a storage command.
    Storing(Storing),
    /// The value of a refused command.
    Skip(u64),
    /// The value of a command for another shard.
    Forward { shard: usize, left: u64 },
    /// Nothing: a walk over all items is being answered.
    Dump(Box<Dump>),
    /// Input without effect: the client watches.
    Watching,
    /// Nothing more.
    Closed,
}

/// A value that is still arriving.
#[derive(Debug)]
struct Storing {
    unit: Unit,
    draft: Draft,
    /// The part of the line end after the value (text only) that has arrived.
    end: [u8; 2],
    got: usize,
    want: usize,
}

/// A parked command, with everything that it needs to run again.
#[derive(Debug)]
struct Unit {
    op: Op,
    form: Form,
    hash: u64,
    /// The key, then a meta command's flags.
    buf: Vec<u8>,
    key_len: usize,
    draft: Option<Draft>,
    place: Place,
    /// The fetch that it waits for; `None`: it waits for memory.
    ticket: Option<u16>,
    /// No command after it may run.
    blocking: bool,
    /// The start of the round that first ran it, and whether it has waited for flash since.
    since: Option<Instant>,
    flash: bool,
    /// Bytes of its fetch's answer that will be copied for another worker.
    copies: usize,
}

/// The least size of a parked command: the command, its key, and its reply with a part.
pub const PARKED_BYTES: usize = size_of::<Unit>() + size_of::<Reply>() + 256;

/// What a command waits for.
enum Waits {
    /// The fetch with this ticket, and the bytes of it that will be copied.
    Fetch(u16, usize),
    Memory,
}

impl Waits {
    fn ticket(&self) -> Option<u16> {
        match *self {
            Waits::Fetch(ticket, _) => Some(ticket),
            Waits::Memory => None,
        }
    }

    fn copies(&self) -> usize {
        match *self {
            Waits::Fetch(_, copies) => copies,
            Waits::Memory => 0,
        }
    }
}

impl Unit {
    fn request(&self, remote: bool) -> Request<'_> {
        let (key, text) = self.buf.split_at(self.key_len);
        Request {
            op: self.op,
            form: self.form,
            key: Key {
                bytes: key,
                hash: self.hash,
            },
            text,
            remote,
        }
    }
}

/// A part of a walk over all items whose items on flash are being read.
#[derive(Debug)]
struct Listing {
    part: commands::Part,
    place: Place,
    /// The reads under way.
    tickets: Vec<u16>,
}

/// A command sent to another shard.
#[derive(Debug)]
struct Foreign {
    shard: usize,
    place: Place,
    bytes: usize,
    kind: ForeignKind,
}

/// How another shard's answer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForeignKind {
    /// It is the reply.
    Plain,
    /// It is the reply without its `END`: a key of a `get` that has more keys.
    StripEnd,
    /// It is a part of a walk.
    Dump,
    /// It only says that the command was done.
    Silent,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    dialect: Option<Dialect>,
    gate: login::Gate,
    remote: bool,
    state: State,
    replies: ReplyQueue,
    units: Vec<Unit>,
    blocking: usize,
    /// The total of all parked commands.
    copies: usize,
    spare: Vec<Vec<u8>>,
    ticket: u16,
    foreign: VecDeque<Foreign>,
    foreign_bytes: usize,
    /// The part of a walk that waits for reads.
    listing: Option<Box<Listing>>,
    /// The memory that the arriving value holds.
    room: Option<Room>,
    /// Set after a value was given up of which another shard had a part: no command runs before
    /// that shard has answered.
    settling: bool,
    /// The other workers have published their counters for the next `stats`.
    counters_shown: bool,
    /// What it watches.
    watcher: Option<Arc<Watcher>>,
    /// Whether it is closed because of what the client sent.
    hung_up: bool,
}

impl Session {
    /// A client's connection. `only` is its protocol; without it, the first byte decides.
    pub fn new(only: Option<Dialect>) -> Session {
        Session {
            dialect: only,
            gate: login::Gate::default(),
            remote: false,
            state: State::Command,
            replies: ReplyQueue::new(false),
            units: Vec::new(),
            blocking: 0,
            copies: 0,
            spare: Vec::new(),
            ticket: 0,
            foreign: VecDeque::new(),
            foreign_bytes: 0,
            listing: None,
            room: None,
            settling: false,
            counters_shown: false,
            watcher: None,
            hung_up: false,
        }
    }
    /// A virtual connection. It runs what another worker's session forwarded; answers leave through
    /// [`ReplyQueue::next_unit`]. The first client command decides the protocol.
    pub fn remote() -> Session {
        Session {
            remote: true,
            replies: ReplyQueue::new(true),
            ..Session::new(None)
        }
    }
    /// The protocol, once the first byte has decided.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }
    /// The answers.
    pub fn replies(&mut self) -> &mut ReplyQueue {
        &mut self.replies
    }
    /// Whether it is idle: no value is arriving, and no reply waits.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Command | State::Watching) && self.replies.waiting() == 0
    }

    /// The events that it watches, if any.
    pub fn watcher(&self) -> Option<&Arc<Watcher>> {
        self.watcher.as_ref()
    }
    /// Appends lines for a client that watches.
    pub fn tell(&mut self, lines: &[u8]) {
        let place = self.replies.begin();
        self.replies.at(place).bytes.extend_from_slice(lines);
    }
    /// Whether it was closed because the client sent what no memcached client sends.
    pub fn was_hung_up_on(&self) -> bool {
        self.hung_up
    }

    /// Whether a parked command waits for memory. Then feed again when there may be some, even
    /// after the last input.
    pub fn waits_for_memory(&self) -> bool {
        self.units.iter().any(|unit| unit.ticket.is_none())
    }

    /// Runs the commands in `input`, up to `budget` of them; each lowers `budget`.
    pub fn feed<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        input: &[u8],
        budget: &mut usize,
    ) -> Fed {
        let mut consumed = 0;
        let state = loop {
            match self.step(ctx, &input[consumed..], budget) {
                Step::Took(n) => {
                    consumed += n;
                    *budget = budget.saturating_sub(std::mem::take(&mut ctx.work.more));
                }
                Step::Stop(n, state) => {
                    consumed += n;
                    break state;
                }
            }
        };
        if let (Some(entry), true) = (ctx.entry, consumed > 0) {
            entry
                .last_command
                .store(ctx.shard.now(), std::sync::atomic::Ordering::Relaxed);
            entry.set_state(match self.state {
                State::Storing(_) | State::Forward { .. } => ConnState::Value,
                State::Skip(_) => ConnState::Swallowed,
                State::Watching => ConnState::Watching,
                _ => ConnState::Command,
            });
        }
        Fed { consumed, state }
    }

    fn step<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, input: &[u8], budget: &mut usize) -> Step {
        // Values are taken in any case: they have their memory already, or go to another shard.
        match &mut self.state {
            State::Storing(_) => return self.step_storing(ctx, input),
            State::Skip(left) => {
                let take = (*left).min(input.len() as u64);
                *left -= take;
                if *left > 0 {
                    return Step::Stop(take as usize, FeedState::NeedMore);
                }
                self.state = State::Command;
                return Step::Took(take as usize);
            }
            State::Forward { .. } => return self.step_forward(ctx, input),
            State::Closed => {
                self.retry(ctx);
                let state = match self.waits_for_memory() {
                    true => FeedState::Blocked(Wait::Memory),
                    false => FeedState::Close,
                };
                return Step::Stop(input.len(), state);
            }
            State::Watching => return Step::Stop(input.len(), FeedState::NeedMore),
            State::Command | State::Keys { .. } | State::Dump(_) => {}
        }
        if self.settling && !matches!(self.state, State::Dump(_)) {
            if self.replies.waiting() > 0 {
                return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
            }
            self.settling = false;
        }
        if self.blocking > 0 {
            self.retry(ctx);
            if self.blocking > 0 {
                let wait = match self.waits_for_memory() {
                    true => Wait::Memory,
                    false => Wait::Fetch,
                };
                return Step::Stop(0, FeedState::Blocked(wait));
            }
        }
        if matches!(self.state, State::Dump(_)) {
            return self.step_dump(ctx);
        }
        if input.is_empty() {
            return Step::Stop(0, FeedState::NeedMore);
        }
        if self.window_full(ctx.window) {
            return Step::Stop(0, FeedState::Blocked(Wait::Window));
        }
        if *budget == 0 {
            return Step::Stop(0, FeedState::Blocked(Wait::Turn));
        }
        if let State::Keys {
            cas,
            touch,
            checked,
        } = self.state
        {
            let step = self.step_keys(ctx, input, cas, touch, checked);
            if matches!(step, Step::Took(_)) {
                *budget -= 1;
            }
            return step;
        }
        if self.remote && input[0] == commands::INTERNAL {
            return self.step_internal(ctx, input);
        }
        let dialect = *self.dialect.get_or_insert_with(|| {
            if input[0] == crate::protocol::binary::REQUEST {
                Dialect::Binary
            } else {
                Dialect::Ascii
            }
        });
        let step = match self.step_login(ctx, input, dialect) {
            Some(step) => step,
            None => match dialect {
                Dialect::Ascii => self.step_line(ctx, input),
                Dialect::Binary => self.step_packet(ctx, input),
            },
        };
        if matches!(step, Step::Took(_)) {
            *budget -= 1;
        }
        step
    }

    /// Whether more answers may be made now.
    fn window_full(&self, window: Window) -> bool {
        let (most_waiting, most_bytes) = window.limits();
        self.replies.waiting() >= most_waiting
            || self.foreign_bytes >= FOREIGN_BYTES
            || self.replies.queued_bytes() >= most_bytes
            || self.replies.parts() >= QUEUE_PARTS
            || self.replies.len() >= QUEUE_REPLIES
    }

    /// Takes a turn of heavy work; false if none is left in this round.
    fn take_heavy<Q: Queue>(&self, ctx: &mut Ctx<'_, Q>) -> bool {
        let left = ctx.work.heavy.checked_sub(1);
        ctx.work.heavy = left.unwrap_or(0);
        ctx.stats.heavy_turns += u64::from(left.is_some());
        left.is_some()
    }

    /// Whether it is in the middle of a line of keys.
    pub fn is_in_keys(&self) -> bool {
        matches!(self.state, State::Keys { .. })
    }

    /// Commands that wait for flash or memory.
    pub fn parked(&self) -> usize {
        self.units.len()
    }

    /// Bytes that the fetches under way will add to the answers for another worker.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Memory of the tables of commands under way, and of their replies, beyond what an idle
    /// connection keeps. After a burst a table keeps its size until it is empty.
    pub fn tables(&self) -> usize {
        let beyond = |places: usize, each: usize| places.saturating_sub(KEPT_PLACES) * each;
        beyond(self.units.capacity(), size_of::<Unit>())
            + beyond(self.foreign.capacity(), size_of::<Foreign>())
            + beyond(self.replies.capacity(), size_of::<Reply>())
    }

    /// Commands that other shards have not answered.
    pub fn foreign(&self) -> usize {
        self.foreign.len()
    }

    /// Bytes of commands that other shards have not answered.
    pub fn foreign_bytes(&self) -> usize {
        self.foreign_bytes
    }

    /// PIPELINE-2: whether a command that changes this key must wait for a parked one that reads
    /// it.
    fn hazard(&self, op: &Op, hash: u64) -> bool {
        !self.units.is_empty() && op.follows() && self.units.iter().any(|unit| unit.hash == hash)
    }

    /// Runs a command: answers it, or parks it.
    fn execute<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, req: &Request<'_>, draft: Option<Draft>) {
        ctx.cursor.flush(ctx.shared, ctx.shard);
        ctx.cursor.reset(ctx.shared, ctx.shard, ctx.stats);
        let place = self.replies.begin();
        let mut draft = draft;
        if let Some(waits) = self.drive(ctx, req, &mut draft, None, place) {
            let place = self.replies.wait(place);
            let mut buf = self.spare.pop().unwrap_or_default();
            buf.extend_from_slice(req.key.bytes);
            buf.extend_from_slice(req.text);
            self.park(Unit {
                op: req.op,
                form: req.form,
                hash: req.key.hash,
                buf,
                key_len: req.key.bytes.len(),
                draft,
                place,
                ticket: waits.ticket(),
                blocking: req.op.changes() || waits.ticket().is_none(),
                since: ctx.work.waited.began,
                flash: waits.ticket().is_some(),
                copies: waits.copies(),
            });
        }
    }

    /// Runs a command until it is done (`None`) or has to wait.
    fn drive<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        req: &Request<'_>,
        draft: &mut Option<Draft>,
        hint: Option<Fetched>,
        place: Place,
    ) -> Option<Waits> {
        let mut hint = hint;
        // A fetch that ended holds memory until its answer leaves, so this command continues in any
        // case.
        let begins = hint.is_none();
        for _ in 0..MAX_ROUNDS {
            ctx.work.from_flash = hint.is_some();
            match commands::run(ctx, req, draft, hint.take(), self.replies.at(place)) {
                Outcome::Done => return None,
                Outcome::Busy => break,
                Outcome::Fetch(at, want) => {
                    let copies = match want {
                        Want::Answer if self.remote => Shard::frame_bytes(at),
                        _ => 0,
                    };
                    if copies > 0 && begins && ctx.work.no_copies {
                        break;
                    }
                    self.ticket = self.ticket.wrapping_add(1);
                    let user = ctx.conn << 16 | u64::from(self.ticket);
                    match ctx.shard.fetch(ctx.queue, &req.key, at, want, user) {
                        Fetch::Now(fetched) => hint = Some(fetched),
                        Fetch::Queued => return Some(Waits::Fetch(self.ticket, copies)),
                    }
                }
            }
        }
        ctx.stats.retries += 1;
        Some(Waits::Memory)
    }

    /// Keeps a buffer for the next parked command.
    fn recycle(&mut self, mut buf: Vec<u8>) {
        if self.spare.len() < SPARE {
            buf.clear();
            self.spare.push(buf);
        }
    }

    fn park(&mut self, unit: Unit) {
        self.blocking += usize::from(unit.blocking);
        self.copies += unit.copies;
        self.units.push(unit);
    }

    /// Takes the parked command at `index`.
    fn unpark(&mut self, index: usize) -> Unit {
        let unit = self.units.swap_remove(index);
        self.blocking -= usize::from(unit.blocking);
        self.copies -= unit.copies;
        if self.units.is_empty() {
            self.units.shrink_to(KEPT_PLACES);
        }
        unit
    }

    /// Handles the end of a fetch of this session: `done.user` is one of its user numbers. Feed
    /// again afterwards.
    pub fn done<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, done: Done) {
        let ticket = done.user as u16;
        let Some(index) = self
            .units
            .iter()
            .position(|unit| unit.ticket == Some(ticket))
        else {
            self.listed(ctx, ticket, done.fetched);
            return;
        };
        let unit = self.unpark(index);
        // After a flush since the fetch began, its result must not be used.
        let flushed = ctx.cursor.flush(ctx.shared, ctx.shard);
        let hint = if flushed {
            Fetched::Changed
        } else {
            done.fetched
        };
        self.rerun(ctx, unit, Some(hint));
    }

    /// Runs parked commands that wait for memory again.
    fn retry<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) {
        while let Some(index) = self.units.iter().position(|unit| unit.ticket.is_none()) {
            let unit = self.unpark(index);
            ctx.cursor.flush(ctx.shared, ctx.shard);
            if !self.rerun(ctx, unit, None) {
                break;
            }
        }
    }

    /// Runs the command at `index`; false if it still has to wait for memory.
    fn rerun<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        mut unit: Unit,
        hint: Option<Fetched>,
    ) -> bool {
        let mut draft = unit.draft.take();
        let before = Answered::of(ctx.stats);
        let waits = self.drive(
            ctx,
            &unit.request(self.remote),
            &mut draft,
            hint,
            unit.place,
        );
        match waits {
            None => {
                let waited = &mut ctx.work.waited;
                waited.ran(unit.since, unit.flash, before, ctx.stats);
                self.replies.ready(unit.place);
                self.recycle(unit.buf);
                true
            }
            Some(waits) => {
                unit.draft = draft;
                unit.ticket = waits.ticket();
                unit.copies = waits.copies();
                unit.flash |= unit.ticket.is_some();
                unit.blocking |= unit.ticket.is_none();
                let goes_on = unit.ticket.is_some();
                self.park(unit);
                goes_on
            }
        }
    }

    /// Drops the session's drafts, pins and parked commands after the connection has closed. The
    /// worker drops the fetches that are still under way.
    pub fn cancel<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>) {
        if let State::Storing(storing) = std::mem::replace(&mut self.state, State::Closed) {
            ctx.shard.abort(storing.draft);
        }
        for unit in self.units.drain(..) {
            if let Some(draft) = unit.draft {
                ctx.shard.abort(draft);
            }
        }
        let mut pins = Vec::new();
        self.replies.clear(&mut pins);
        for pin in pins {
            match shard_of(pin) {
                (None, pin) => ctx.shard.unpin(pin),
                (Some(shard), pin) => ctx.router.unpin(shard, pin),
            }
        }
        self.give_back_room(ctx);
        if let Some(watcher) = self.watcher.take() {
            ctx.shared.watchers.remove(&watcher);
        }
        self.listing = None;
        self.foreign.clear();
        (self.blocking, self.copies, self.foreign_bytes) = (0, 0, 0);
    }
}
