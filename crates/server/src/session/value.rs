// SPDX-License-Identifier: Apache-2.0
//! The value of a storage command while it arrives, in all dialects, and the memory that it holds
//! (INTAKE-1 to INTAKE-4 in `crate::intake`).
//!
//! ```text
//! begin --whole--> executor
//!   |  `--in parts--> State::Store --step--> executor
//!   |---another shard's key--> forwarded, and State::Forward
//!   `---refused--> State::Skip
//! ```

use senko_cache::{AllocError, Draft, NewUpload};
use senko_io::Queue;

use super::executor::{Command, Executor};
use super::forwarded::{Forwarded, Use};
use super::parser::NewItem;
use super::{FeedState, Step, Wait};
use crate::commands::{self, Form, Op, Refused, Request};
use crate::context::Ctx;
use crate::intake::Room;
use crate::protocol::classic::StoreMode;
use crate::shared::{ConnState, Touched};

#[derive(Debug, Default)]
pub(super) struct Value {
    state: State,
    /// The memory that it holds.
    room: Option<Room>,
    /// Set after a value was given up of which another worker had a part: no command runs before
    /// that worker has answered.
    settling: bool,
    /// Another worker has a part of a value that will never be whole.
    left: bool,
    /// Since when (steady time, ms) it waits for buffers to go to flash.
    waits_since: Option<u64>,
}

/// Where the next bytes of the value go.
#[derive(Debug, Default)]
#[allow(clippy::large_enum_variant)] // one per connection; a box would be one allocation per value
enum State {
    /// No value is arriving.
    #[default]
    None,
    Store(Storing),
    /// Nowhere: its command was refused.
    Skip(u64),
    /// To another worker.
    Forward {
        worker: usize,
        left: u64,
    },
}

#[derive(Debug)]
struct Storing {
    command: Command,
    draft: Draft,
    /// The part of the line end after the value (text only) that has arrived.
    end: [u8; 2],
    got: usize,
    want: usize,
}

impl Value {
    /// Whether the next bytes belong to a value.
    #[inline]
    pub fn is_arriving(&self) -> bool {
        !matches!(self.state, State::None)
    }

    /// How `stats conns` shows it.
    pub fn shown(&self) -> Option<ConnState> {
        match self.state {
            State::None => None,
            State::Store(_) | State::Forward { .. } => Some(ConnState::Value),
            State::Skip(_) => Some(ConnState::Swallowed),
        }
    }

    /// Whether another worker has to answer before the next command; `held` commands are not sent.
    #[inline]
    pub fn is_settling(&mut self, executor: &Executor, held: usize) -> bool {
        self.settling &= executor.answers().waiting() > held;
        self.settling
    }

    /// Whether a part of the value went to another worker, and the rest is to come.
    pub fn is_forwarding(&self) -> bool {
        matches!(self.state, State::Forward { .. })
    }

    /// Whether a part of a value was left at another worker.
    pub fn was_left(&self) -> bool {
        self.left
    }

    /// The next bytes must not run as commands.
    pub fn skip(&mut self, bytes: u64) {
        if bytes > 0 {
            self.state = State::Skip(bytes);
        }
    }

    /// Takes memory of a shard for a value of `len` bytes; false if the value has to wait. A value
    /// that goes to flash as it arrives takes as much as its buffers.
    fn take_room(&mut self, ctx: &Ctx<'_, impl Queue>, shard: usize, len: usize) -> bool {
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
    fn give_back_room(&mut self, ctx: &Ctx<'_, impl Queue>) {
        if let Some(room) = self.room.take() {
            ctx.shared.intakes[room.shard].give_back(room.bytes);
        }
    }

    /// Starts a storage command: takes memory for its value, and the part of the value that has
    /// arrived.
    pub fn begin(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        item: &NewItem<'_>,
        executor: &mut Executor,
        forwarded: &mut Forwarded,
    ) -> Step {
        let (req, len, used) = (&item.req, item.len, item.used);
        let end = match req.form {
            Form::Binary(_) => 0,
            _ => 2,
        };
        let value = (len + end) as u64;
        let whole = input.len() - used >= len + end;
        if executor.hazard(req) {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        }
        let shard = ctx.shared.deal.shard_of(req.key.hash);
        let uploads = uploads(&req.op) && ctx.shard.uploads(len);
        if let Some(worker) = ctx.other_worker(&req.key) {
            let room = match uploads {
                true => UPLOAD_ROOM,
                false => len,
            };
            let waits = !whole && !self.take_room(ctx, shard, room);
            if waits && !ctx.work.swallow {
                return Step::Stop(0, FeedState::Blocked(Wait::Room));
            }
            forwarded.send(
                ctx,
                executor.out(),
                worker,
                &input[..used],
                value,
                Use::Reply,
            );
            if value > 0 {
                self.state = State::Forward {
                    worker,
                    left: value,
                };
            }
            if waits {
                self.give_up_there(ctx, worker, value);
            }
            return Step::Took(used);
        }
        if uploads && let Some(step) = self.upload(ctx, input, item, (shard, end), executor) {
            return step;
        }
        // If another worker sent the command, that worker has already taken the memory.
        if !whole && !req.remote && !self.take_room(ctx, shard, len) {
            if !ctx.work.swallow {
                return Step::Stop(0, FeedState::Blocked(Wait::Room));
            }
            refuse(ctx, req, Refused::Memory, executor);
            return Step::Skip(used, value);
        }
        ctx.shard.turn_to(req.key.hash);
        let shard = &mut *ctx.shard;
        let (flags, expiry) = (item.flags, item.expiry);
        let made = match req.op {
            Op::MetaStore { flags: meta, .. } if meta.cas.is_some() || meta.invalidate => {
                shard.alloc_wide(ctx.queue, &req.key, flags, expiry, len)
            }
            _ => shard.alloc(ctx.queue, &req.key, flags, expiry, len),
        };
        let mut draft = match made {
            Ok(draft) => draft,
            Err(error) => {
                self.give_back_room(ctx);
                if error == AllocError::Busy {
                    return Step::Stop(0, FeedState::Blocked(Wait::Memory));
                }
                refuse(ctx, req, reason(error), executor);
                return Step::Skip(used, value);
            }
        };
        if ctx.shared.prefixes.is_on() {
            ctx.shared.prefixes.record(req.key.bytes, Touched::Set);
        }
        if item.base64 {
            ctx.shard.set_draft_binary_key(&mut draft, true);
        }
        let data = &input[used..];
        let take = len.min(data.len());
        ctx.shard.fill(ctx.queue, &mut draft, &data[..take]);
        if !whole {
            self.state = State::Store(Storing {
                command: executor.keep(req),
                draft,
                end: [0; 2],
                got: 0,
                want: end,
            });
            return Step::Took(used + take);
        }
        store(ctx, req, draft, &data[len..len + end], executor);
        Step::Took(used + len + end)
    }

    /// Starts a storage command whose value goes to flash as it arrives, with `end` bytes of a line
    /// end. `None`: it has to go to DRAM.
    fn upload(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        item: &NewItem<'_>,
        (shard, end): (usize, usize),
        executor: &mut Executor,
    ) -> Option<Step> {
        let since = self.waits_since.take();
        let waits_since = since.unwrap_or(ctx.shard.steady_ms());
        let (req, len, used) = (&item.req, item.len, item.used);
        let value = (len + end) as u64;
        if !req.remote && !self.take_room(ctx, shard, UPLOAD_ROOM) {
            if !ctx.work.swallow {
                return Some(Step::Stop(0, FeedState::Blocked(Wait::Room)));
            }
            refuse(ctx, req, Refused::Memory, executor);
            return Some(Step::Skip(used, value));
        }
        ctx.shard.turn_to(req.key.hash);
        let new = NewUpload {
            flags: item.flags,
            expiry: item.expiry,
            len,
            cas: match req.op {
                Op::MetaStore { flags, .. } => flags.cas.filter(|&cas| cas > 0),
                _ => None,
            },
            binary_key: item.base64,
            waits: ctx.shard.steady_ms() - waits_since < BUFFER_WAIT_MS,
        };
        let mut draft = match ctx.shard.upload(ctx.queue, &req.key, &new) {
            Ok(Some(draft)) => draft,
            Ok(None) => {
                self.give_back_room(ctx);
                return None;
            }
            Err(error) => {
                self.give_back_room(ctx);
                if error == AllocError::Busy {
                    self.waits_since = Some(waits_since);
                    if !new.waits {
                        ctx.shared.intakes[shard].note_refusal();
                    }
                    return Some(Step::Stop(0, FeedState::Blocked(Wait::Memory)));
                }
                refuse(ctx, req, reason(error), executor);
                return Some(Step::Skip(used, value));
            }
        };
        if ctx.shared.prefixes.is_on() {
            ctx.shared.prefixes.record(req.key.bytes, Touched::Set);
        }
        let data = &input[used..];
        let take = len.min(data.len());
        let taken = ctx.shard.fill(ctx.queue, &mut draft, &data[..take]);
        self.state = State::Store(Storing {
            command: executor.keep(req),
            draft,
            end: [0; 2],
            got: 0,
            want: end,
        });
        Some(Step::Took(used + taken))
    }

    pub fn step(
        &mut self,
        ctx: &mut Ctx<'_, impl Queue>,
        input: &[u8],
        executor: &mut Executor,
    ) -> Step {
        // What more is needed: bytes, or buffers for those that are here.
        let mut needs = FeedState::NeedMore;
        let (used, all) = match &mut self.state {
            State::None => (0, true),
            State::Store(storing) => {
                ctx.shard.turn_to(storing.command.hash());
                let come = ctx.shard.unfilled(&storing.draft).min(input.len());
                let mut used = ctx
                    .shard
                    .fill(ctx.queue, &mut storing.draft, &input[..come]);
                if used < come {
                    needs = FeedState::Blocked(Wait::Memory);
                }
                let filled = ctx.shard.unfilled(&storing.draft) == 0;
                while filled && storing.got < storing.want && used < input.len() {
                    storing.end[storing.got] = input[used];
                    storing.got += 1;
                    used += 1;
                }
                (used, filled && storing.got == storing.want)
            }
            State::Skip(left) | State::Forward { left, .. } => {
                let take = (*left).min(input.len() as u64);
                *left -= take;
                (take as usize, *left == 0)
            }
        };
        if let State::Forward { worker, .. } = self.state
            && used > 0
        {
            ctx.router.forward(worker, ctx.conn, &input[..used]);
        }
        if let Some(room) = &mut self.room {
            room.moves(used, ctx.shard.steady_ms());
        }
        if !all {
            return Step::Stop(used, needs);
        }
        self.give_back_room(ctx);
        if let State::Store(storing) = std::mem::take(&mut self.state) {
            let (req, end) = (storing.command.request(), &storing.end[..storing.want]);
            store(ctx, &req, storing.draft, end, executor);
            executor.recycle(storing.command);
        }
        Step::Took(used)
    }

    /// INTAKE-3: the shard whose memory the value holds, if the value has stalled.
    pub fn still_room(&self, steady_ms: u64) -> Option<usize> {
        let room = self.room.as_ref()?;
        room.is_still(steady_ms).then_some(room.shard)
    }

    /// INTAKE-3: gives the memory of the value to others. Its command is refused, and the rest of
    /// the value is skipped.
    pub fn give_up_room(&mut self, ctx: &mut Ctx<'_, impl Queue>, executor: &mut Executor) {
        ctx.stats.values_given_up += 1;
        match self.state {
            State::Store(ref storing) => {
                ctx.shard.turn_to(storing.command.hash());
                let rest = ctx.shard.unfilled(&storing.draft) + storing.want - storing.got;
                self.end(ctx, executor);
                self.skip(rest as u64);
            }
            State::Forward { worker, left } => self.give_up_there(ctx, worker, left),
            _ => debug_assert!(false, "only a value that is coming in holds memory"),
        }
        self.give_back_room(ctx);
    }

    /// Tells another worker that the rest of a value, `left` bytes, will not come. No further
    /// command runs here before that worker has answered.
    fn give_up_there(&mut self, ctx: &mut Ctx<'_, impl Queue>, worker: usize, left: u64) {
        ctx.router.give_up(worker, ctx.conn);
        self.state = State::Skip(left);
        self.settling = true;
    }

    /// Ends the value here. Its command is refused, unless it was before: there is no memory.
    pub fn end(&mut self, ctx: &mut Ctx<'_, impl Queue>, executor: &mut Executor) {
        match std::mem::take(&mut self.state) {
            State::Store(storing) => {
                ctx.shard.turn_to(storing.command.hash());
                ctx.shard.abort(storing.draft);
                refuse(ctx, &storing.command.request(), Refused::Memory, executor);
                executor.recycle(storing.command);
            }
            State::None | State::Skip(_) => {}
            forward @ State::Forward { .. } => self.state = forward,
        }
    }

    /// Drops a value of which another worker has a part; returns that worker.
    pub fn leave_there(&mut self) -> Option<usize> {
        let State::Forward { worker, .. } = self.state else {
            return None;
        };
        (self.state, self.left) = (State::None, true);
        Some(worker)
    }

    pub fn cancel(&mut self, ctx: &mut Ctx<'_, impl Queue>) {
        if let State::Store(storing) = std::mem::take(&mut self.state) {
            ctx.shard.turn_to(storing.command.hash());
            ctx.shard.abort(storing.draft);
        }
        self.give_back_room(ctx);
    }
}

/// How long a value waits for buffers to go to flash, and not to DRAM: less than the time after
/// which others may take its memory ([`crate::intake::STILL_MS`]).
const BUFFER_WAIT_MS: u64 = 250;
/// Bytes of memory for a value that goes to flash as it arrives, while it arrives.
const UPLOAD_ROOM: usize = 128 << 10;

/// Whether the value of a command may go to flash before the command runs: what it stores does not
/// depend on the old item.
fn uploads(op: &Op) -> bool {
    let mode = match op {
        Op::Store { mode, .. } => mode,
        Op::MetaStore { mode, flags } if !flags.invalidate => mode,
        _ => return false,
    };
    !matches!(mode, StoreMode::Append | StoreMode::Prepend)
}

/// Stores a whole value with this line end.
fn store(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    draft: Draft,
    end: &[u8],
    executor: &mut Executor,
) {
    if end.is_empty() || end == b"\r\n" {
        return executor.run(ctx, req, Some(draft));
    }
    ctx.shard.abort(draft);
    ctx.stats.cmd_set += 1;
    commands::bad_chunk(req.form, executor.out().open());
}

/// Why there is no memory for a value.
fn reason(error: AllocError) -> Refused {
    match error {
        AllocError::TooLarge => Refused::Large,
        AllocError::OutOfMemory | AllocError::Busy => Refused::Memory,
    }
}

/// Answers that a value is not taken.
fn refuse(ctx: &mut Ctx<'_, impl Queue>, req: &Request<'_>, why: Refused, executor: &mut Executor) {
    let mode = match req.op {
        Op::Store { mode, .. } | Op::MetaStore { mode, .. } => mode,
        _ => StoreMode::Set,
    };
    let op = Op::Refuse {
        why,
        forget: commands::forgets(req, mode),
        mode,
    };
    executor.run(ctx, &Request { op, ..*req }, None);
}
