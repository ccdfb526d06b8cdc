// SPDX-License-Identifier: Apache-2.0
//! `delete`, `incr`, `decr`, `touch`, and their binary forms.

use senko_cache::{AllocError, Fetched, ItemRef, Meta, Want};
use senko_io::Queue;

use super::{Form, Op, Outcome, Request, Resolved, resolve, tell};
use crate::context::Ctx;
use crate::protocol::binary::{Head, Status};
use crate::protocol::number::{decimal, push_u64, read_u64};
use crate::reply::Reply;
use crate::shared::Touched;

/// Values longer than this are not numbers, whatever their contents (in memcached: values that are
/// stored in chunks).
const MAX_NUMBER: usize = 512 << 10;
/// Values up to this length are counted without an allocation.
const USUAL_NUMBER: usize = 64;

/// Removes a key. Its reply is exact, so if a tag matches, the header is read from flash.
pub(super) fn delete(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    compare: u64,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let status = match remove(ctx, req, compare, hint) {
        Ok(status) => status,
        Err(outcome) => return outcome,
    };
    match status {
        Status::Success => ctx.stats.delete_hits += 1,
        Status::NotFound => ctx.stats.delete_misses += 1,
        _ => {}
    }
    if ctx.shared.prefixes.is_on() {
        ctx.shared.prefixes.record(req.key.bytes, Touched::Delete);
    }
    match req.form {
        Form::Binary(head) => match status {
            Status::Success if head.quiet => {}
            Status::Success => head.push(&mut out.bytes, Status::Success, 0, 0, 0, 0),
            status => head.refuse(&mut out.bytes, status),
        },
        Form::Text { noreply: true } => {}
        _ => out.line(if status == Status::Success {
            "DELETED"
        } else {
            "NOT_FOUND"
        }),
    }
    Outcome::Done
}

/// Removes the key if its CAS value matches: `Success`, `Exists` or `NotFound`.
pub(super) fn remove(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    compare: u64,
    hint: Option<Fetched>,
) -> Result<Status, Outcome> {
    let differs = |cas: u64| compare != 0 && compare != cas;
    match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) => Err(Outcome::Fetch(at, Want::Header)),
        Resolved::Dram(item) => {
            let meta = ctx.shard.meta(item);
            if differs(ctx.cas(meta.cas)) {
                return Ok(Status::Exists);
            }
            ctx.shard.class_counts(&meta).delete_hits += 1;
            tell_deleted(ctx, req, &meta);
            ctx.shard.unlink(item);
            Ok(Status::Success)
        }
        Resolved::Header(meta, at) => {
            if differs(ctx.cas(meta.cas)) {
                return Ok(Status::Exists);
            }
            ctx.shard.class_counts(&meta).delete_hits += 1;
            tell_deleted(ctx, req, &meta);
            ctx.shard.remove_flash(&req.key, at);
            Ok(Status::Success)
        }
        // Neither is requested here: the command reads only the header.
        Resolved::Answer(_) | Resolved::OutOfMemory => Err(Outcome::Busy),
        Resolved::Absent => Ok(Status::NotFound),
    }
}

fn tell_deleted(ctx: &Ctx<'_, impl Queue>, req: &Request<'_>, meta: &Meta) {
    match req.op {
        Op::Delete { .. } => tell::deleted(ctx, req.key.bytes, "delete", meta),
        Op::MetaDelete(_) => tell::deleted(ctx, req.key.bytes, "md", meta),
        // A refused set also removes the old value, which does not count as a deletion.
        _ => {}
    }
}

/// Sets an expiry.
pub(super) fn touch(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    expiry: u32,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let reply = match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) | Resolved::Header(_, at) => return Outcome::Fetch(at, Want::Resident),
        Resolved::Dram(item) => match ctx.shard.widen(ctx.queue, item, expiry, 0) {
            Ok(item) => {
                ctx.shard.hit(item);
                ctx.shard.set_expiry(item, expiry);
                ctx.stats.touch_hits += 1;
                let meta = ctx.shard.meta(item);
                ctx.shard.class_counts(&meta).touch_hits += 1;
                "TOUCHED"
            }
            Err(AllocError::Busy) => return Outcome::Busy,
            Err(_) => {
                ctx.stats.touch_misses += 1;
                "SERVER_ERROR out of memory"
            }
        },
        Resolved::OutOfMemory => {
            ctx.stats.touch_misses += 1;
            "SERVER_ERROR out of memory"
        }
        Resolved::Answer(_) => return Outcome::Busy,
        Resolved::Absent => {
            ctx.stats.touch_misses += 1;
            "NOT_FOUND"
        }
    };
    ctx.stats.cmd_touch += 1;
    if !matches!(req.form, Form::Text { noreply: true }) {
        out.line(reply);
    }
    Outcome::Done
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Delta {
    pub incr: bool,
    pub delta: u64,
    /// Only if the CAS value equals this (0: any).
    pub compare: u64,
    /// Value and expiry of the item to make if the key is missing.
    pub initial: Option<(u64, u32)>,
    /// The new item's CAS value.
    pub cas: Option<u64>,
    /// The item's expiry may be set to this afterwards.
    pub ttl: u32,
}

/// The result of counting.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counted {
    /// The new value, and the item that holds it.
    Now {
        value: u64,
        item: ItemRef,
        created: bool,
    },
    NotFound,
    NotNumeric,
    Exists,
    OutOfMemory,
}

/// Counts: the common part of `incr`, `decr`, `ma` and the binary forms.
pub(super) fn count(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    by: &Delta,
    hint: Option<Fetched>,
) -> Result<Counted, Outcome> {
    match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) | Resolved::Header(_, at) => Err(Outcome::Fetch(at, Want::Resident)),
        Resolved::Dram(item) => add(ctx, item, by),
        Resolved::OutOfMemory => Ok(Counted::OutOfMemory),
        Resolved::Answer(_) => Err(Outcome::Busy),
        Resolved::Absent => match by.initial {
            Some((value, expiry)) => create(ctx, req, value, expiry, by.cas),
            None => {
                if by.incr {
                    ctx.stats.incr_misses += 1;
                } else {
                    ctx.stats.decr_misses += 1;
                }
                Ok(Counted::NotFound)
            }
        },
    }
}

fn add(ctx: &mut Ctx<'_, impl Queue>, item: ItemRef, by: &Delta) -> Result<Counted, Outcome> {
    let meta = ctx.shard.meta(item);
    let len = meta.value_len as usize;
    if len == 0 || len > MAX_NUMBER {
        return Ok(Counted::NotNumeric);
    }
    if by.compare != 0 && by.compare != ctx.cas(meta.cas) {
        return Ok(Counted::Exists);
    }
    let mut room = [0u8; USUAL_NUMBER + 2];
    let mut large = Vec::new();
    let text = if len <= USUAL_NUMBER {
        &mut room[..]
    } else {
        large.resize(len + 2, 0);
        &mut large[..]
    };
    let mut at = 0;
    ctx.shard.value_pieces(item, |piece| {
        let take = piece.len().min(text.len() - at);
        text[at..at + take].copy_from_slice(&piece[..take]);
        at += take;
    });
    let Some(old) = read_u64(&text[..len]) else {
        return Ok(Counted::NotNumeric);
    };
    let value = if by.incr {
        old.wrapping_add(by.delta)
    } else {
        old.saturating_sub(by.delta)
    };
    // A shorter number keeps the value's length, padded with spaces, because memcached rewrites
    // values in place.
    let mut digits = [0; 20];
    let digits = decimal(value, &mut digits);
    let new_len = digits.len().max(len);
    text[..digits.len()].copy_from_slice(digits);
    text[digits.len()..new_len].fill(b' ');
    let made = ctx.shard.widen(ctx.queue, item, by.ttl, 0);
    let made = made.and_then(|item| ctx.shard.rewrite(ctx.queue, item, &text[..new_len], by.cas));
    match made {
        Ok(item) => {
            if by.incr {
                ctx.stats.incr_hits += 1;
                ctx.shard.class_counts(&meta).incr_hits += 1;
            } else {
                ctx.stats.decr_hits += 1;
                ctx.shard.class_counts(&meta).decr_hits += 1;
            }
            Ok(Counted::Now {
                value,
                item,
                created: false,
            })
        }
        Err(AllocError::Busy) => Err(Outcome::Busy),
        Err(_) => Ok(Counted::OutOfMemory),
    }
}

fn create(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    value: u64,
    expiry: u32,
    cas: Option<u64>,
) -> Result<Counted, Outcome> {
    let mut room = [0; 20];
    let digits = decimal(value, &mut room);
    match ctx
        .shard
        .alloc_wide(ctx.queue, &req.key, 0, expiry, digits.len())
    {
        Ok(mut draft) => {
            ctx.shard.fill(ctx.queue, &mut draft, digits);
            let item = ctx.shard.link(draft, cas);
            Ok(Counted::Now {
                value,
                item,
                created: true,
            })
        }
        Err(AllocError::Busy) => Err(Outcome::Busy),
        Err(_) => Ok(Counted::OutOfMemory),
    }
}

/// `incr`, `decr` and the binary forms.
pub(super) fn arith(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    by: Delta,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let counted = match count(ctx, req, &by, hint) {
        Ok(counted) => counted,
        Err(outcome) => return outcome,
    };
    match req.form {
        Form::Binary(head) => answer_binary(ctx, head, counted, out),
        Form::Text { noreply: true } => {}
        _ => match counted {
            Counted::Now { value, .. } => {
                push_u64(&mut out.bytes, value);
                out.bytes.extend_from_slice(b"\r\n");
            }
            Counted::NotFound => out.line("NOT_FOUND"),
            Counted::NotNumeric => {
                out.line("CLIENT_ERROR cannot increment or decrement non-numeric value")
            }
            // Only a given CAS value can differ, and the text commands have none.
            Counted::Exists | Counted::OutOfMemory => out.line("SERVER_ERROR out of memory"),
        },
    }
    Outcome::Done
}

fn answer_binary(ctx: &mut Ctx<'_, impl Queue>, head: Head, counted: Counted, out: &mut Reply) {
    let out = &mut out.bytes;
    match counted {
        Counted::Now { .. } if head.quiet => {}
        Counted::Now { value, item, .. } => {
            let cas = ctx.shard.meta(item).cas;
            head.push(out, Status::Success, 0, 0, 8, ctx.cas(cas));
            out.extend_from_slice(&value.to_be_bytes());
        }
        Counted::NotFound => head.refuse(out, Status::NotFound),
        Counted::NotNumeric => head.refuse(out, Status::NotNumeric),
        Counted::Exists => head.refuse(out, Status::Exists),
        Counted::OutOfMemory => {
            head.error(out, Status::OutOfMemory, "Out of memory incrementing value");
        }
    }
}
