// SPDX-License-Identifier: Apache-2.0
//! The binary dialect: from packets to requests.

use senko_cache::Key;
use senko_io::Queue;

use super::storing::NewItem;
use super::{FeedState, Session, State, Step, Wait};
use crate::commands::{self, Form, Op, Request};
use crate::context::Ctx;
use crate::protocol::binary::{Broken, HEADER, Head, Header, Kind, Status, extra_u32, extra_u64};
use crate::protocol::classic::StoreMode;
use crate::protocol::number::expiry;

impl Session {
    /// Handles one packet's header, extras and key; a value follows.
    pub(super) fn step_packet<Q: Queue>(&mut self, ctx: &mut Ctx<'_, Q>, input: &[u8]) -> Step {
        if input.len() < HEADER {
            // More bytes do not repair a wrong first byte.
            if input[0] != crate::protocol::binary::REQUEST {
                return self.close(input.len());
            }
            return Step::Stop(0, FeedState::NeedMore);
        }
        let header = match Header::read(input) {
            Ok(header) => header,
            Err(Broken::Magic) => return self.close(input.len()),
            Err(Broken::Answer(header, status)) => {
                self.error(&header, status);
                return self.close(input.len());
            }
        };
        let used = HEADER + header.extras_len + header.key_len;
        if input.len() < used {
            return Step::Stop(0, FeedState::NeedMore);
        }
        let extras = &input[HEADER..HEADER + header.extras_len];
        let key = &input[HEADER + header.extras_len..used];
        let head = Head {
            opcode: header.opcode,
            opaque: header.opaque,
            quiet: header.quiet,
        };
        let form = Form::Binary(head);
        let time = |at: usize, ctx: &Ctx<'_, Q>| {
            expiry(
                i64::from(extra_u32(extras, at)),
                ctx.shard.now(),
                ctx.shared.started,
            )
        };
        let op = match header.kind {
            Kind::Set | Kind::Add | Kind::Replace | Kind::Append | Kind::Prepend => {
                let fixed = header.extras_len == 8;
                let req = Request {
                    op: store_op(&header),
                    form,
                    key: Key::new(key, ctx.shared.settings.hash_seed),
                    text: &[],
                    remote: self.remote,
                };
                let item = NewItem {
                    req,
                    flags: if fixed { extra_u32(extras, 0) } else { 0 },
                    expiry: if fixed { time(4, ctx) } else { 0 },
                    len: header.value_len,
                    base64: false,
                    used,
                };
                return self.begin_store(ctx, input, item);
            }
            Kind::Get { key } => Op::Get {
                touch: None,
                extended: key,
                last: true,
            },
            Kind::GetTouch { key } => Op::Get {
                touch: Some(time(0, ctx)),
                extended: key,
                last: true,
            },
            Kind::Touch => Op::Get {
                touch: Some(time(0, ctx)),
                extended: false,
                last: false,
            },
            Kind::Delete => Op::Delete {
                compare: header.cas,
            },
            Kind::Increment | Kind::Decrement => Op::Arith {
                incr: header.kind == Kind::Increment,
                delta: extra_u64(extras, 0),
                compare: header.cas,
                initial: (extra_u32(extras, 16) != u32::MAX)
                    .then(|| (extra_u64(extras, 8), time(16, ctx))),
            },
            _ => return self.keyless(ctx, &header, head, extras, key, used),
        };
        let req = Request {
            op,
            form,
            key: Key::new(key, ctx.shared.settings.hash_seed),
            text: &[],
            remote: self.remote,
        };
        if let Some(shard) = self.other_shard(ctx, &req.key) {
            if !self.read_across(ctx, shard, &req) {
                self.forward(ctx, shard, &input[..used], 0);
            }
        } else if self.hazard(&req.op, req.key.hash) {
            return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
        } else {
            self.execute(ctx, &req, None);
        }
        Step::Took(used)
    }

    fn error(&mut self, header: &Header, status: Status) {
        let head = Head {
            opcode: header.opcode,
            opaque: header.opaque,
            quiet: false,
        };
        let place = self.replies.begin();
        head.error(&mut self.replies.at(place).bytes, status, status.text());
    }

    /// Commands that are not about one key.
    fn keyless<Q: Queue>(
        &mut self,
        ctx: &mut Ctx<'_, Q>,
        header: &Header,
        head: Head,
        extras: &[u8],
        key: &[u8],
        used: usize,
    ) -> Step {
        if header.kind == Kind::Flush {
            let delay = if extras.len() == 4 {
                i64::from(extra_u32(extras, 0))
            } else {
                0
            };
            match commands::parse_flush(ctx, Some(delay)) {
                Ok(_) if self.replies.waiting() > 0 => {
                    return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
                }
                Ok(due) => commands::flush_all(ctx, due),
                Err(_) => {
                    self.error(header, Status::AuthError);
                    return Step::Took(used);
                }
            }
        }
        if header.kind == Kind::Stat {
            if ctx.work.heavy == 0 {
                return Step::Stop(0, FeedState::Blocked(Wait::Heavy));
            }
            if !self.counters_ready(ctx) {
                return Step::Stop(0, FeedState::Blocked(Wait::Fetch));
            }
            self.take_heavy(ctx);
        }
        let place = self.replies.begin();
        let out = &mut self.replies.at(place).bytes;
        match header.kind {
            Kind::Version => {
                let version = ctx.shared.version();
                head.push(out, Status::Success, 0, 0, version.len(), 0);
                out.extend_from_slice(version.as_bytes());
            }
            Kind::Stat => commands::binary_stats(ctx, key, head, out),
            Kind::Verbosity => {
                ctx.shared.set_verbosity(extra_u32(extras, 0));
                head.push(out, Status::Success, 0, 0, 0, 0);
            }
            Kind::Noop | Kind::Flush | Kind::Quit => {
                if !head.quiet {
                    head.push(out, Status::Success, 0, 0, 0, 0);
                }
                if header.kind == Kind::Quit {
                    return self.close(used);
                }
            }
            // SASL on a connection that needs no password: unknown, like any invalid opcode.
            _ => {
                head.error(out, Status::UnknownCommand, Status::UnknownCommand.text());
                if header.value_len > 0 {
                    self.state = State::Skip(header.value_len as u64);
                }
            }
        }
        Step::Took(used)
    }
}

/// The operation of a storage packet. A CAS value makes it a compare-and-set, except for append and
/// prepend.
fn store_op(header: &Header) -> Op {
    let compare = (header.cas != 0).then_some(header.cas);
    let mode = match header.kind {
        Kind::Append => StoreMode::Append,
        Kind::Prepend => StoreMode::Prepend,
        _ if compare.is_some() => StoreMode::Cas,
        Kind::Add => StoreMode::Add,
        Kind::Replace => StoreMode::Replace,
        _ => StoreMode::Set,
    };
    Op::Store { mode, compare }
}
