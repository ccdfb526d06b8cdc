// SPDX-License-Identifier: Apache-2.0
//! The binary dialect: from packets to commands.

use senko_io::Queue;

use super::{NewItem, Parsed};
use crate::commands::{Form, Op, Request};
use crate::context::Ctx;
use crate::protocol::binary::{Broken, HEADER, Header, Kind, REQUEST, extra_u32, extra_u64};
use crate::protocol::classic::StoreMode;
use crate::reply::ReplyQueue;
use crate::session::{FeedState, Step};

/// What happens with less than a header.
pub(in crate::session) fn incomplete(input: &[u8]) -> Option<Step> {
    if input.len() >= HEADER {
        return None;
    }
    // More bytes do not repair a wrong first byte.
    Some(match input[0] {
        REQUEST => Step::Stop(0, FeedState::NeedMore),
        _ => Step::Close(input.len()),
    })
}

/// Parses one packet's header, extras and key; a value follows.
pub(super) fn packet<'a>(
    ctx: &Ctx<'_, impl Queue>,
    remote: bool,
    input: &'a [u8],
    out: &mut ReplyQueue,
) -> Parsed<'a> {
    if let Some(step) = incomplete(input) {
        return Parsed::Nothing(step);
    }
    let header = match Header::read(input) {
        Ok(header) => header,
        Err(broken) => {
            if let Broken::Answer(header, status) = broken {
                header.loud().refuse(&mut out.open().bytes, status);
            }
            return Parsed::Nothing(Step::Close(input.len()));
        }
    };
    let used = HEADER + header.extras_len + header.key_len;
    if input.len() < used {
        return Parsed::Nothing(Step::Stop(0, FeedState::NeedMore));
    }
    let (extras, key) = input[HEADER..used].split_at(header.extras_len);
    let time = |at: usize| ctx.expiry(i64::from(extra_u32(extras, at)));
    let get = |touch, extended, last| Op::Get {
        touch,
        extended,
        last,
    };
    let request = |op| Request::new(ctx, remote, op, Form::Binary(header.head()), key);
    let op = match header.kind {
        Kind::Set | Kind::Add | Kind::Replace | Kind::Append | Kind::Prepend => {
            let fixed = header.extras_len == 8;
            return Parsed::Store(NewItem {
                req: request(store_op(&header)),
                flags: if fixed { extra_u32(extras, 0) } else { 0 },
                expiry: if fixed { time(4) } else { 0 },
                len: header.value_len,
                base64: false,
                used,
            });
        }
        Kind::Get { key } => get(None, key, true),
        Kind::GetTouch { key } => get(Some(time(0)), key, true),
        Kind::Touch => get(Some(time(0)), false, false),
        Kind::Delete => Op::Delete {
            compare: header.cas,
        },
        Kind::Increment | Kind::Decrement => Op::Arith {
            incr: header.kind == Kind::Increment,
            delta: extra_u64(extras, 0),
            compare: header.cas,
            initial: (extra_u32(extras, 16) != u32::MAX).then(|| (extra_u64(extras, 8), time(16))),
        },
        _ => return Parsed::Packet(header, extras, key, used),
    };
    Parsed::Keyed(request(op), used)
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
