// SPDX-License-Identifier: Apache-2.0
//! The classic and meta dialects: from lines to commands.

use senko_io::Queue;

use super::{Keys, NewItem, Parsed};
use crate::commands::{Form, Op, Request};
use crate::context::Ctx;
use crate::protocol::classic::{self, Line, Refusal, StoreMode};
use crate::protocol::meta::{self, Clock, KeyBuf};
use crate::protocol::{BAD_FORMAT, MAX_KEY, MAX_LINE, Tokens, split_line};
use crate::reply::ReplyQueue;
use crate::session::{FeedState, Step};

/// How many spaces may come before a long `get`.
const MAX_INDENT: usize = 100;

#[inline]
pub(super) fn line<'a>(
    ctx: &Ctx<'_, impl Queue>,
    remote: bool,
    input: &'a [u8],
    room: &'a mut KeyBuf,
    out: &mut ReplyQueue,
) -> Parsed<'a> {
    let Some((text, used)) = split_line(input) else {
        return unended(input);
    };
    let line = match classic::parse(text) {
        Ok(line) => line,
        Err(refusal) => return refused(refusal, used, out),
    };
    let (op, key, noreply) = match line {
        Line::Get { cas, touch, keys } => {
            let mut tokens = Tokens::new(keys);
            let first = tokens.next().unwrap_or(&[]);
            if first.len() > MAX_KEY || tokens.clone().any(|key| key.len() > MAX_KEY) {
                // One invalid key makes the line invalid, as in memcached.
                out.open().line(BAD_FORMAT);
                return Parsed::Nothing(Step::Took(used));
            }
            if first.is_empty() || tokens.next().is_some() {
                // The keys are taken one by one, up to the line's end.
                let start = keys.as_ptr() as usize - input.as_ptr() as usize;
                return Parsed::Keys(Keys { cas, touch }, start);
            }
            let op = Op::Get {
                touch: touch.map(|t| ctx.expiry(t)),
                extended: cas,
                last: true,
            };
            return Parsed::Keyed(
                Request::new(ctx, remote, op, Form::Text { noreply: false }, first),
                used,
            );
        }
        Line::Store {
            mode,
            key,
            flags,
            exptime,
            len,
            cas,
            noreply,
        } => {
            let compare = (mode == StoreMode::Cas).then_some(cas);
            let (op, form) = (Op::Store { mode, compare }, Form::Text { noreply });
            return Parsed::Store(NewItem {
                req: Request::new(ctx, remote, op, form, key),
                flags,
                expiry: ctx.expiry(exptime),
                len,
                base64: false,
                used,
            });
        }
        Line::Delete { key, noreply } => (Op::Delete { compare: 0 }, key, noreply),
        Line::Arith {
            key,
            incr,
            delta,
            noreply,
        } => {
            let op = Op::Arith {
                incr,
                delta,
                compare: 0,
                initial: None,
            };
            (op, key, noreply)
        }
        Line::Touch {
            key,
            exptime,
            noreply,
        } => {
            let expiry = ctx.expiry(exptime);
            (Op::Touch { expiry }, key, noreply)
        }
        Line::Meta { which, rest } => {
            return meta_line(ctx, remote, which, rest, used, room)
                .unwrap_or_else(|refusal| refused(refusal, used, out));
        }
        Line::Http => return Parsed::Nothing(Step::HangUp(input.len())),
        line => {
            let silent = line.may_be_silent() && classic::ends_with_noreply(text);
            return Parsed::Line(line, silent, used);
        }
    };
    let form = Form::Text { noreply };
    Parsed::Keyed(Request::new(ctx, remote, op, form, key), used)
}

fn refused<'a>(refusal: Refusal, used: usize, out: &mut ReplyQueue) -> Parsed<'a> {
    if !refusal.silent {
        out.open().line(refusal.text);
    }
    Parsed::Nothing(Step::Skip(used, refusal.skip as u64))
}

/// A line without its end. Only a `get` may be longer than [`MAX_LINE`]: its keys are answered as
/// they arrive.
fn unended<'a>(input: &[u8]) -> Parsed<'a> {
    if input.len() <= MAX_LINE {
        return Parsed::Nothing(Step::Stop(0, FeedState::NeedMore));
    }
    let indent = input.iter().take_while(|&&b| b == b' ').count();
    let (cas, name) = match &input[indent..] {
        [b'g', b'e', b't', b' ', ..] => (false, 4),
        [b'g', b'e', b't', b's', b' ', ..] => (true, 5),
        _ => return Parsed::Nothing(Step::HangUp(input.len())),
    };
    if indent > MAX_INDENT {
        return Parsed::Nothing(Step::HangUp(input.len()));
    }
    Parsed::Keys(Keys { cas, touch: None }, indent + name)
}

fn meta_line<'a>(
    ctx: &Ctx<'_, impl Queue>,
    remote: bool,
    which: u8,
    rest: &'a [u8],
    used: usize,
    room: &'a mut KeyBuf,
) -> Result<Parsed<'a>, Refusal> {
    let clock = Clock {
        now: ctx.shard.now(),
        started: ctx.shared.started,
    };
    let request = |op, command: &meta::Command<'a>| Request {
        text: command.text,
        ..Request::new(ctx, remote, op, Form::Meta, command.key)
    };
    let (op, command) = match which {
        b'n' => return Err(Refusal::loud("MN")),
        b'g' => meta::keyed(rest, clock, room).map(|c| (Op::MetaGet(c.flags), c))?,
        b'd' => meta::keyed(rest, clock, room).map(|c| (Op::MetaDelete(c.flags), c))?,
        b'a' => {
            let command = meta::arith(rest, clock, room)?;
            let (flags, incr) = (command.flags, meta::arith_mode(&command.flags)?);
            (Op::MetaArith { incr, flags }, command)
        }
        b'e' => {
            let command = meta::debug(rest, room)?;
            let base64 = command.flags.base64;
            (Op::MetaDebug { base64 }, command)
        }
        _ => {
            let (command, mode, len) = meta::store(rest, clock, room)?;
            let flags = command.flags;
            let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
            let expiry = flags.vivify.filter(|_| joins).or(flags.ttl);
            return Ok(Parsed::Store(NewItem {
                req: request(Op::MetaStore { mode, flags }, &command),
                flags: flags.client_flags,
                expiry: expiry.unwrap_or(0),
                len,
                base64: flags.base64,
                used,
            }));
        }
    };
    Ok(Parsed::Keyed(request(op, &command), used))
}
