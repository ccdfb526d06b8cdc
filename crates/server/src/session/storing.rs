// SPDX-License-Identifier: Apache-2.0
//! Storage commands of all protocols: memory for the value, and the arriving value.
//!
//! ```text
//! begin_store --whole--> execute
//!      |  `--in parts--> State::Storing --step_storing--> execute
//!      |---another shard's key--> forward, and State::Forward
//!      `---refused--> State::Skip
//! ```

use senko_cache::AllocError;
use senko_io::Queue;

use super::{FeedState, Session, State, Step, Storing, Unit, Wait};
use crate::commands::{self, Form, Op, Request};
use crate::context::Ctx;
use crate::protocol::binary::{Kind, kind};
use crate::protocol::classic::StoreMode;
use crate::reply::Place;
use crate::shared::Touched;

/// A storage command after its line was parsed.
pub(super) struct NewItem<'a> {
    pub req: Request<'a>,
    pub flags: u32,
    pub expiry: u32,
    pub len: usize,
    /// Whether the key was sent in base64.
    pub base64: bool,
    /// Bytes of the line or packet before the value.
    pub used: usize,
}

impl Session {
    /// Starts a storage command: takes memory for its value, and the part of the value that has
    /// arrived.
    pub(super) fn begin_store<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        input: &[u8],
        item: NewItem<'_>,
    ) -> Step {
        let NewItem { req, len, used, .. } = item;
        let end = if matches!(req.form, Form::Binary(_)) {
            0
        } else {
            2
        };
        let whole = input.len() - used >= len + end;
        if let Some(shard) = self.other_shard(ctx, &req.key) {
            if !whole && !self.take_room(ctx, shard, len) {
                if !ctx.work.swallow {
                    return Step::Stop(0, FeedState::Blocked(Wait::Room));
                }
                self.forward(ctx, shard, &input[..used], (len + end) as u64);
                self.give_up_value_of(ctx, shard, (len + end) as u64);
                return Step::Took(used);
            }
            self.forward(ctx, shard, &input[..used], (len + end) as u64);
            return Step::Took(used);
        }
        if self.hazard(&req.op, req.key.hash) {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        }
        // If another worker sent the command, that worker has already taken the memory.
        if !whole && !self.remote && !self.take_room(ctx, ctx.me, len) {
            if !ctx.work.swallow {
                return Step::Stop(0, FeedState::Blocked(Wait::Room));
            }
            return self.refuse_store(ctx, &req, false, len + end, used);
        }
        let mut draft = match ctx
            .shard
            .alloc(ctx.queue, &req.key, item.flags, item.expiry, len)
        {
            Ok(draft) => draft,
            Err(AllocError::Busy) => {
                self.give_back_room(ctx);
                return Step::Stop(0, FeedState::Blocked(Wait::Memory));
            }
            Err(error) => {
                self.give_back_room(ctx);
                let large = error == AllocError::TooLarge;
                return self.refuse_store(ctx, &req, large, len + end, used);
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
        ctx.shard.fill(&mut draft, &data[..take]);
        if data.len() < len + end {
            let mut buf = self.spare.pop().unwrap_or_default();
            buf.extend_from_slice(req.key.bytes);
            buf.extend_from_slice(req.text);
            let unit = Unit {
                op: req.op,
                form: req.form,
                hash: req.key.hash,
                buf,
                key_len: req.key.bytes.len(),
                draft: None,
                place: Place::NOWHERE,
                ticket: None,
                blocking: false,
                since: None,
                flash: false,
                copies: 0,
            };
            self.state = State::Storing(Storing {
                unit,
                draft,
                end: [0; 2],
                got: 0,
                want: end,
            });
            return Step::Took(used + take);
        }
        if end > 0 && &data[len..len + end] != b"\r\n" {
            ctx.shard.abort(draft);
            self.refuse_chunk(ctx, req.form);
        } else {
            self.execute(ctx, &req, Some(draft));
        }
        Step::Took(used + len + end)
    }

    /// Answers that there is no memory for a value, now or ever, and skips the value.
    fn refuse_store<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        req: &Request<'_>,
        large: bool,
        value: usize,
        used: usize,
    ) -> Step {
        let op = Op::Refuse {
            large,
            forget: sets(req),
            mode: mode_of(req),
        };
        self.execute(ctx, &Request { op, ..*req }, None);
        self.state = State::Skip(value as u64);
        Step::Took(used)
    }

    /// Takes more of a value.
    pub(super) fn step_storing<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, input: &[u8]) -> Step {
        let State::Storing(storing) = &mut self.state else {
            unreachable!("the caller has looked")
        };
        let take = ctx.shard.unfilled(&storing.draft).min(input.len());
        ctx.shard.fill(&mut storing.draft, &input[..take]);
        let mut used = take;
        while storing.got < storing.want && used < input.len() {
            storing.end[storing.got] = input[used];
            storing.got += 1;
            used += 1;
        }
        if let Some(room) = &mut self.room {
            room.moves(used, ctx.shard.steady_ms());
        }
        if ctx.shard.unfilled(&storing.draft) > 0 || storing.got < storing.want {
            return Step::Stop(used, FeedState::NeedMore);
        }
        let State::Storing(storing) = std::mem::replace(&mut self.state, State::Command) else {
            unreachable!("the state was looked at above")
        };
        self.give_back_room(ctx);
        let Storing {
            unit,
            draft,
            end,
            want,
            ..
        } = storing;
        if want > 0 && &end != b"\r\n" {
            ctx.shard.abort(draft);
            self.refuse_chunk(ctx, unit.form);
        } else {
            self.execute(ctx, &unit.request(self.remote), Some(draft));
        }
        self.recycle(unit.buf);
        Step::Took(used)
    }

    fn refuse_chunk<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, form: Form) {
        ctx.stats.cmd_set += 1;
        let place = self.replies.begin();
        commands::bad_chunk(form, self.replies.at(place));
    }
}

/// How a storage command stores its value.
pub(super) fn mode_of(req: &Request<'_>) -> StoreMode {
    match req.op {
        Op::Store { mode, .. } | Op::MetaStore { mode, .. } => mode,
        _ => StoreMode::Set,
    }
}

/// Whether a command replaces any existing value. Then the old value must go even if there is no
/// memory for the new one.
pub(super) fn sets(req: &Request<'_>) -> bool {
    match (req.op, req.form) {
        // A binary set with a CAS value is a compare-and-set here.
        (Op::Store { .. }, Form::Binary(head)) => kind(head.opcode).0 == Kind::Set,
        (Op::Store { mode, .. }, _) => mode == StoreMode::Set,
        _ => true,
    }
}
