// SPDX-License-Identifier: Apache-2.0
//! One connection's commands: parse, run, wait, answer.
//!
//! A worker hands received bytes to [`Session::feed`], which runs the commands in them in place and
//! queues the answers in order ([`ReplyQueue`]). It stops when something has to happen first, and
//! returns the reason ([`FeedState`]). A command that needs flash is parked. When its fetch has
//! ended ([`Session::done`]), it runs again from its start. A *virtual connection*, which runs
//! commands for another worker, is a session too, with one reply per command.
//!
//! ```text
//!          Parser            Executor               fetch queued
//!   bytes ───────▶ command ────┬────▶ commands::run ────────────▶ parked ──done──▶ run again
//!                   │          │           │ Done                  ▲                 │    │ Busy
//!                   │          │           ▼                       └─────────────────┼────┘
//!                   │          │       ReplyQueue ◀──────────────────────────────────┘
//!                   │          │           ▲
//!                   ├─▶ other shard's key: read across, or parked for a read of its flash,
//!                   │     or Forwarded ──remote_reply──▶ ready
//!                   ├─▶ value follows: Value ─▶ Executor, another shard, or nowhere
//!                   └─▶ Walk: parts of all shards
//! ```
//!
//! Each part owns its state and gets the others as arguments. This file alone joins them.
//!
//! **Order.** To every observer, commands take effect in the order in which they were sent:
//! - (PIPELINE-1) A command that changes something and waits (`Op::changes`) holds up all that
//!   follow.
//! - (PIPELINE-2) A read-only command lets others pass while it waits, except for one that changes
//!   the same key ([`Executor::hazard`]). If its read were repeated, here or at another shard, it
//!   would return the later value.
//! - (PIPELINE-3) Commands for one key go to one shard, in order. Commands for different shards may
//!   overtake each other. Only `flush_all` and commands that read all shards wait until nothing is
//!   under way.
//!
//! **Bounds.** At most [`WINDOW`] replies wait; parsing stops at [`crate::context::QUEUE_BYTES`] of
//! unsent answers, and at [`FOREIGN_BYTES`] that other shards have not answered. It stops much
//! earlier while the answers of all connections take much memory ([`Window`]).

mod executor; // commands that run here, parked while they wait
mod forwarded; // commands at other shards
mod login; // passwords, before any command
mod parser; // from bytes to commands
mod value; // the arriving value of a storage command
mod walk; // walks over all items

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use senko_cache::{Done, Fetched};
use senko_io::Queue;

use executor::{Executor, Parked};
use forwarded::{Forwarded, Use};
use login::Gate;
use parser::{Parsed, Parser};
use value::Value;
use walk::Walk;

use crate::commands::{self, Asked};
use crate::context::{Ctx, WINDOW, Window};
use crate::protocol::binary::{Header, Kind, Status, extra_u32};
use crate::protocol::classic::Line;
use crate::reply::{Answer, KEPT_PLACES, Reply, ReplyQueue, worker_of};
use crate::settings::Dialect;
use crate::shared::ConnState;
use crate::watch::Watcher;

/// Frames and pinned pieces in the queue at which parsing stops.
const QUEUE_PARTS: usize = 64;
/// Replies in the queue at which parsing stops, including empty ones after a waiting one.
const QUEUE_REPLIES: usize = 4 * WINDOW;
/// Bytes of commands on their way to other shards at which parsing stops.
pub const FOREIGN_BYTES: usize = 256 << 10;
/// The least size of a parked command: the command, its key, and its reply with a part.
pub const PARKED_BYTES: usize = size_of::<Parked>() + size_of::<Reply>() + 256;

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
#[derive(Clone, Copy)]
enum Step {
    /// Bytes consumed; continue.
    Took(usize),
    /// The same; then come this many bytes of a refused value.
    Skip(usize, u64),
    /// Bytes consumed; stop.
    Stop(usize, FeedState),
    /// Bytes consumed; the connection closes.
    Close(usize),
    /// The same, because the client sent what no memcached client sends.
    HangUp(usize),
}

#[derive(Debug)]
pub struct Session {
    gate: Gate,
    parser: Parser,
    value: Value,
    executor: Executor,
    forwarded: Forwarded,
    walk: Walk,
    /// What it watches. Then its input has no effect.
    watcher: Option<Arc<Watcher>>,
    /// Whether it takes no more input.
    closed: bool,
    /// Whether it is closed because of what the client sent.
    hung_up: bool,
    /// Whether a value that is being sent can't be continued.
    broken: bool,
}

impl Session {
    /// A client's connection. `only` is its protocol; without it, the first byte decides.
    pub fn new(only: Option<Dialect>) -> Session {
        Session::of(false, only)
    }
    /// A virtual connection. It runs what another worker's session forwarded; answers leave through
    /// [`ReplyQueue::next_unit`]. The first client command decides the protocol.
    pub fn remote() -> Session {
        Session::of(true, None)
    }
    fn of(remote: bool, only: Option<Dialect>) -> Session {
        Session {
            gate: Gate::default(),
            parser: Parser::new(remote, only),
            value: Value::default(),
            executor: Executor::new(remote),
            forwarded: Forwarded::default(),
            walk: Walk::default(),
            watcher: None,
            closed: false,
            hung_up: false,
            broken: false,
        }
    }
    /// Requires a password before any command.
    pub fn ask_password(&mut self) {
        self.gate = Gate::SHUT;
    }
    /// The connection brings items of the fill of this number; 0: it is a client's.
    pub fn fill_as(&mut self, fill: u64) {
        self.executor.fill_as(fill);
    }
    /// Whether the connection brings items of a fill.
    pub fn fills(&self) -> bool {
        self.executor.fill() != 0
    }
    /// The protocol, once the first byte has decided.
    pub fn dialect(&self) -> Option<Dialect> {
        self.parser.dialect()
    }
    /// The answers.
    pub fn replies(&mut self) -> &mut ReplyQueue {
        self.executor.out()
    }
    /// Whether it is idle: no value is arriving, and no reply waits.
    pub fn is_idle(&self) -> bool {
        self.is_between_commands() && self.executor.answers().waiting() == 0
    }
    /// Whether the next bytes begin a command.
    fn is_between_commands(&self) -> bool {
        !self.value.is_arriving() && !self.is_in_keys() && !self.walk.is_on() && !self.closed
    }

    /// The events that it watches, if any.
    pub fn watcher(&self) -> Option<&Arc<Watcher>> {
        self.watcher.as_ref()
    }
    /// Appends lines for a client that watches.
    pub fn tell(&mut self, lines: &[u8]) {
        self.executor.out().open().bytes.extend_from_slice(lines);
    }
    /// Whether it was closed because the client sent what no memcached client sends.
    pub fn was_hung_up_on(&self) -> bool {
        self.hung_up
    }

    /// Whether a value that is being sent can't be continued: the client must not get more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
    /// Lets the value that is being sent read ahead. Returns whether it lacks a frame.
    pub fn read_ahead(&mut self, ctx: &mut Ctx<'_, impl Queue>) -> bool {
        let window = self.executor.out().window();
        let lacks = match window.map(|window| window.stream().is_out()) {
            None => Ok(false),
            Some(true) => Err(()),
            Some(false) => self.executor.read_ahead(ctx),
        };
        if lacks.is_err() {
            self.end_window();
        }
        lacks == Ok(true)
    }
    /// The value that is being sent can't be continued.
    fn end_window(&mut self) {
        if let Some(window) = self.executor.out().window() {
            window.stream().damaged();
        }
        self.broken = true;
    }

    /// Whether a parked command waits for memory. Then feed again when there may be some, even
    /// after the last input.
    pub fn waits_for_memory(&self) -> bool {
        self.executor.waits_for_memory()
    }

    /// Runs the commands in `input`, up to `budget` of them; each lowers `budget`.
    pub fn feed(&mut self, ctx: &mut Ctx<'_, impl Queue>, input: &[u8], budget: &mut usize) -> Fed {
        let mut consumed = 0;
        let state = loop {
            consumed += match self.step(ctx, &input[consumed..], budget) {
                Step::Took(used) => used,
                Step::Skip(used, value) => {
                    self.value.skip(value);
                    used
                }
                Step::Close(used) => {
                    self.closed = true;
                    used
                }
                Step::HangUp(used) => {
                    (self.closed, self.hung_up) = (true, true);
                    used
                }
                Step::Stop(used, state) => {
                    consumed += used;
                    break state;
                }
            };
            *budget = budget.saturating_sub(std::mem::take(&mut ctx.work.more));
        };
        if let (Some(entry), true) = (ctx.entry, consumed > 0) {
            entry.last_command.store(ctx.shard.now(), Relaxed);
            entry.set_state(match self.value.shown() {
                Some(state) => state,
                None if self.watcher.is_some() => ConnState::Watching,
                None => ConnState::Command,
            });
        }
        Fed { consumed, state }
    }

    fn step(&mut self, ctx: &mut Ctx<'_, impl Queue>, input: &[u8], budget: &mut usize) -> Step {
        let blocked = |wait| Step::Stop(0, FeedState::Blocked(wait));
        // Values are taken in any case: they have their memory already, or go to another shard.
        if self.value.is_arriving() {
            return self.value.step(ctx, input, &mut self.executor);
        }
        self.hand_held(ctx);
        if self.closed {
            self.executor.retry(ctx);
            let state = match self.waits_for_memory() {
                true => FeedState::Blocked(Wait::Memory),
                false => FeedState::Close,
            };
            return Step::Stop(input.len(), state);
        }
        if self.watcher.is_some() {
            return Step::Stop(input.len(), FeedState::NeedMore);
        }
        if self.value.is_settling(&self.executor, 0) {
            return blocked(Wait::Fetch);
        }
        if let Some(wait) = self.executor.blocked(ctx) {
            return blocked(wait);
        }
        if self.walk.waits() {
            return blocked(Wait::Fetch);
        }
        if !self.walk.is_on() && input.is_empty() {
            return Step::Stop(0, FeedState::NeedMore);
        }
        if self.window_full(ctx.window) {
            return blocked(Wait::Window);
        }
        let (executor, forwarded) = (&mut self.executor, &mut self.forwarded);
        if self.walk.is_on() {
            return self.walk.step(ctx, executor, forwarded);
        }
        if *budget == 0 {
            return blocked(Wait::Turn);
        }
        if self.parser.is_internal(input[0]) {
            return self.walk.internal(ctx, input, executor);
        }
        let dialect = self.parser.dialect_of(input[0]);
        let step = match self.gate.step(ctx, input, dialect, executor.out()) {
            Some(step) => step,
            None => self.command(ctx, input),
        };
        *budget -= usize::from(!matches!(step, Step::Stop(..)));
        step
    }

    /// Parses and runs the next command.
    #[inline]
    fn command(&mut self, ctx: &mut Ctx<'_, impl Queue>, input: &[u8]) -> Step {
        let mut room = None;
        let (executor, forwarded) = (&mut self.executor, &mut self.forwarded);
        let parsed = self.parser.next(ctx, input, &mut room, executor.out());
        let (req, key, used) = match &parsed {
            Parsed::Keyed(req, used) => (req, None, *used),
            Parsed::Key(req, keys, last, used) => (req, Some((*keys, *last)), *used),
            Parsed::Store(item) => {
                return (self.value).begin(ctx, input, item, executor, forwarded);
            }
            &Parsed::Keys(keys, used) => {
                self.parser.set_keys(Some(keys));
                return Step::Took(used);
            }
            Parsed::Line(line, silent, used) => return self.line(ctx, line, *silent, *used),
            Parsed::Packet(header, extras, key, used) => {
                return self.packet(ctx, header, extras, key, *used);
            }
            &Parsed::Nothing(step) => return step,
        };
        if executor.hazard(req) {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        }
        if let Some(worker) = ctx.other_worker(&req.key) {
            let keys = key.map(|(keys, _)| keys);
            forwarded.command(ctx, executor, worker, req, &input[..used], keys);
        } else {
            executor.run(ctx, req, None);
        }
        if let Some((_, true)) = key {
            self.parser.set_keys(None);
        }
        Step::Took(used)
    }

    /// Runs a line about the server or this connection; `silent`: without its answer.
    fn line(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        line: &Line<'_>,
        silent: bool,
        used: usize,
    ) -> Step {
        let wait = match line {
            // After `watch` the connection accepts no more commands, so earlier ones are answered
            // first. The others read or stop all shards, when earlier commands have taken effect.
            Line::Watch(_) | Line::LruCrawler(_) | Line::Shutdown(_)
                if self.executor.answers().waiting() > 0 =>
            {
                Some(Wait::Fetch)
            }
            Line::FlushAll { delay, .. } if self.flush_waits(ctx, *delay) => Some(Wait::Fetch),
            Line::Stats(_) => self.stats_wait(ctx),
            // The last one reads the certificate's files and checks its signatures.
            Line::LruCrawler(_) | Line::MemLimit { .. } | Line::RefreshCerts { .. } => {
                (!ctx.take_heavy()).then_some(Wait::Heavy)
            }
            _ => None,
        };
        if let Some(wait) = wait {
            return Step::Stop(0, FeedState::Blocked(wait));
        }
        let reply = self.executor.out().open();
        let start = reply.bytes.len();
        match commands::admin(ctx, line, reply) {
            Asked::Nothing if silent => reply.bytes.truncate(start),
            Asked::Nothing => {}
            Asked::Close => return Step::Close(used),
            Asked::Watch(watcher) => self.watcher = Some(watcher),
            Asked::Dump(kind) => self.walk.begin(kind),
        }
        Step::Took(used)
    }

    /// Whether a flush that is allowed has to wait for earlier commands.
    fn flush_waits(&self, ctx: &Ctx<'_, impl Queue>, delay: Option<i64>) -> bool {
        self.executor.answers().waiting() > 0 && commands::parse_flush(ctx, delay).is_ok()
    }

    /// What `stats` has to wait for. It asks for counters only when it has a turn to use them.
    fn stats_wait(&mut self, ctx: &mut Ctx<'_, impl Queue>) -> Option<Wait> {
        if ctx.work.heavy == 0 {
            return Some(Wait::Heavy);
        }
        if !self.forwarded.counters_ready(ctx, self.executor.out()) {
            return Some(Wait::Fetch);
        }
        ctx.take_heavy();
        None
    }

    /// Runs a packet about the server or this connection.
    fn packet(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        header: &Header,
        extras: &[u8],
        key: &[u8],
        used: usize,
    ) -> Step {
        let delay = match extras.len() {
            4 => i64::from(extra_u32(extras, 0)),
            _ => 0,
        };
        let wait = match header.kind {
            Kind::Flush if self.flush_waits(ctx, Some(delay)) => Some(Wait::Fetch),
            Kind::Stat => self.stats_wait(ctx),
            _ => None,
        };
        if let Some(wait) = wait {
            return Step::Stop(0, FeedState::Blocked(wait));
        }
        let (head, out) = (header.head(), &mut self.executor.out().open().bytes);
        match header.kind {
            Kind::Flush => match commands::parse_flush(ctx, Some(delay)) {
                Ok(due) => commands::flush_all(ctx, due),
                Err(_) => {
                    header.loud().refuse(out, Status::AuthError);
                    return Step::Took(used);
                }
            },
            Kind::Version => {
                let version = ctx.shared.version();
                head.push(out, Status::Success, 0, 0, version.len(), 0);
                out.extend_from_slice(version.as_bytes());
                return Step::Took(used);
            }
            Kind::Stat => {
                commands::binary_stats(ctx, key, head, out);
                return Step::Took(used);
            }
            Kind::Verbosity => ctx.shared.set_verbosity(extra_u32(extras, 0)),
            Kind::Noop | Kind::Quit => {}
            // SASL on a connection that needs no password: unknown, like any invalid opcode.
            _ => {
                head.refuse(out, Status::UnknownCommand);
                return Step::Skip(used, header.value_len as u64);
            }
        }
        if !head.quiet {
            head.push(out, Status::Success, 0, 0, 0, 0);
        }
        match header.kind {
            Kind::Quit => Step::Close(used),
            _ => Step::Took(used),
        }
    }

    /// Whether more answers may be made now.
    fn window_full(&self, window: Window) -> bool {
        let (most_waiting, most_bytes) = window.limits();
        self.executor.answers().waiting() >= most_waiting
            || self.foreign_bytes() >= FOREIGN_BYTES
            || self.executor.answers().queued_bytes() >= most_bytes
            || self.executor.answers().parts() >= QUEUE_PARTS
            || self.executor.answers().len() >= QUEUE_REPLIES
    }

    /// Whether it is in the middle of a line of keys.
    pub fn is_in_keys(&self) -> bool {
        self.parser.is_in_keys()
    }

    /// Commands that wait for flash or memory.
    pub fn parked(&self) -> usize {
        self.executor.len()
    }

    /// Bytes that the fetches under way will add to the answers for another worker.
    pub fn copies(&self) -> usize {
        self.executor.copies()
    }

    /// Memory of the tables of commands under way, and of their replies, beyond what an idle
    /// connection keeps. After a burst a table keeps its size until it is empty.
    pub fn tables(&self) -> usize {
        let beyond = |places: usize, each: usize| places.saturating_sub(KEPT_PLACES) * each;
        beyond(self.executor.capacity(), size_of::<Parked>())
            + beyond(self.forwarded.capacity(), size_of::<forwarded::Command>())
            + beyond(self.executor.answers().capacity(), size_of::<Reply>())
    }

    /// Commands that other shards have not answered.
    pub fn foreign(&self) -> usize {
        self.forwarded.len()
    }

    /// Bytes of commands that other shards have not answered.
    pub fn foreign_bytes(&self) -> usize {
        self.forwarded.bytes()
    }

    /// The shard that will answer the only command under way, if the shard's answer is the whole
    /// reply. Also returns the bytes of that command.
    #[inline]
    pub fn lone_foreign(&self) -> Option<(usize, usize)> {
        let lone = self.forwarded.lone(self.executor.answers())?;
        (self.is_between_commands() && self.watcher.is_none()).then_some(lone)
    }

    /// Handles the end of a fetch of this session: `done.user` is one of its user numbers. Feed
    /// again afterwards.
    pub fn done(&mut self, ctx: &mut Ctx<'_, impl Queue>, done: Done) {
        let executor = &mut self.executor;
        let ticket = done.user as u16;
        if self.walk.has(ticket) {
            self.walk.listed(ctx, ticket, done.fetched, executor);
        } else if executor
            .out()
            .window()
            .is_some_and(|window| window.has(ticket))
        {
            match done.fetched {
                Fetched::Piece(frame, range) => executor.out().came(ticket, frame, range),
                _ => self.end_window(),
            }
        } else if let Some(handed) = executor.done(ctx, ticket, done.fetched) {
            self.forwarded.hold(handed);
            self.hand_held(ctx);
        }
    }

    /// Hands over what was held back, unless the bytes would land in a value that is on its way to
    /// that shard. Nothing comes between, since this is done before the next command.
    fn hand_held(&mut self, ctx: &mut Ctx<'_, impl Queue>) {
        let held = self.forwarded.held();
        if held == 0 || self.value.is_forwarding() {
            return;
        }
        if self.value.was_left() {
            self.forwarded.drop_held(self.executor.out());
        } else if !self.value.is_settling(&self.executor, held) {
            self.forwarded.hand_over(ctx, &mut self.executor);
        }
    }

    /// Another worker answered its oldest unanswered command of this session. Feed again
    /// afterwards. It returns what is no longer needed here: a buffer, and a lent value if no reply
    /// waits for it.
    pub fn remote_reply(&mut self, worker: usize, mut answer: Answer) -> Answer {
        let Some(sent) = self.forwarded.take(worker) else {
            return answer;
        };
        let reply = self.executor.out().at(sent.place);
        match sent.of {
            Use::Reply | Use::StripEnd => {
                if sent.of == Use::StripEnd {
                    // An answer without values is an error, and is passed on unchanged.
                    answer.strip(b"END\r\n");
                }
                answer.bytes = reply.take(std::mem::take(&mut answer), worker);
            }
            Use::Silent => {}
            Use::Walk => self.walk.take(&answer.bytes, reply),
        }
        self.executor.out().ready(sent.place);
        answer
    }

    /// INTAKE-3: the shard whose memory the arriving value holds, if the value has stalled.
    pub fn still_room(&self, steady_ms: u64) -> Option<usize> {
        self.value.still_room(steady_ms)
    }

    /// INTAKE-3: gives the memory of the arriving value to others. Its command is refused, and the
    /// rest of the value is skipped.
    pub fn give_up_room(&mut self, ctx: &mut Ctx<'_, impl Queue>) {
        self.value.give_up_room(ctx, &mut self.executor);
    }

    /// Notes that the rest of a value from another worker will not come (virtual connections only).
    /// Everything that it sent before was fed.
    pub fn end_value(&mut self, ctx: &mut Ctx<'_, impl Queue>) {
        self.value.end(ctx, &mut self.executor);
    }

    /// Notes that the peer sends no more. If a part of a value went to another worker, that worker
    /// never answers the command, so there is no wait for it. When that worker learns of the closed
    /// connection, it drops its part.
    pub fn give_up_value(&mut self) {
        let Some(worker) = self.value.leave_there() else {
            return;
        };
        self.closed = true;
        self.forwarded.drop_held(self.executor.out());
        // A worker answers in order. So this command is the newest one there, unless it has
        // refused it already.
        if let Some(sent) = self.forwarded.take_newest(worker) {
            self.executor.out().ready(sent.place);
        }
    }

    /// Drops the session's drafts, pins and parked commands after the connection has closed. The
    /// worker drops the fetches that are still under way.
    pub fn cancel(&mut self, ctx: &mut Ctx<'_, impl Queue>) {
        self.value.cancel(ctx);
        self.executor.cancel(ctx.shard);
        let mut pins = Vec::new();
        self.executor.out().clear(&mut pins);
        for pin in pins {
            match worker_of(pin) {
                (None, pin) => ctx.shard.unpin(pin),
                (Some(worker), pin) => ctx.router.unpin(worker, pin),
            }
        }
        if let Some(watcher) = self.watcher.take() {
            ctx.shared.watchers.remove(&watcher);
        }
    }
}
