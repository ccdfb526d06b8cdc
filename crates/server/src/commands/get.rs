// SPDX-License-Identifier: Apache-2.0
//! `get`, `gets`, `gat`, `gats`, and the binary get and touch.
//!
//! A value larger than 1 KiB is stored with the complete answer of a `get` (paper B). From flash it
//! is sent from the frame into which it was read. `gets` and the binary protocol write their own
//! header and send the value from the frame. A smaller value is copied, and the text around it is
//! written then. An item in DRAM is copied once. Above [`crate::context::Window::copy_limit`] it is
//! sent in place.

use senko_cache::{AllocError, Fetched, FlashItem, ItemRef, Meta, Shard, Want, push_answer};
use senko_io::Queue;

use super::{Outcome, Request, Resolved, resolve};
use crate::context::{Ctx, Lending};
use crate::protocol::binary::{Head, Status};
use crate::protocol::number::push_u64;
use crate::reply::Reply;
use crate::shared::Touched;

/// Bytes of `END\r\n`, the end of each record's answer.
const END: &[u8; 5] = b"END\r\n";

/// Counts a lookup: as a get, or as a touch.
pub(crate) fn count(ctx: &mut Ctx<'_, impl Queue>, key: &[u8], touch: bool, hit: bool) {
    let stats = &mut *ctx.stats;
    if touch {
        stats.cmd_touch += 1;
        stats.touch_hits += u64::from(hit);
        stats.touch_misses += u64::from(!hit);
    } else {
        stats.cmd_get += 1;
        stats.get_hits += u64::from(hit);
        stats.get_misses += u64::from(!hit);
    }
    if ctx.shared.prefixes.is_on() {
        let flash = hit && ctx.work.from_flash;
        ctx.shared.prefixes.record(key, Touched::Get { hit, flash });
    }
    ctx.work.hot.note(key);
}

/// As [`count`], for an item that was found: its class counts it too.
pub(crate) fn count_hit(ctx: &mut Ctx<'_, impl Queue>, key: &[u8], touch: bool, meta: &Meta) {
    count(ctx, key, touch, true);
    let class = ctx.shard.class_counts(meta);
    if touch {
        class.touch_hits += 1;
    } else {
        class.get_hits += 1;
    }
}

/// Counts a large value that is sent piece by piece.
pub(super) fn count_stream(ctx: &mut Ctx<'_, impl Queue>, found: &FlashItem) {
    if found.rest.is_some() {
        ctx.stats.streams += 1;
        ctx.stats.stream_bytes += u64::from(found.meta.value_len);
    }
}

/// The form in which a get takes an item from flash. A touch changes the item, which then comes to
/// DRAM.
pub(super) fn want(touch: Option<u32>) -> Want {
    match touch {
        Some(_) => Want::Resident,
        None => Want::Answer,
    }
}

/// Whether a value has to be sent in place, and its shard lends no more of its memory now.
pub(super) fn lacks_pin(ctx: &mut Ctx<'_, impl Queue>, item: ItemRef) -> bool {
    ctx.shard.meta(item).value_len > ctx.window.copy_limit()
        && match ctx.work.lending {
            Lending::Early => !ctx.shard.grants_pin(item, true),
            Lending::Now => !ctx.shard.grants_pin(item, false),
            Lending::Overdue => false,
        }
}

/// Resolves a key, whose value the answer `sends` or not. If its item is in DRAM, it counts the
/// access, unless that was done, and gives the item a touch's expiry.
fn access(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    touch: Option<u32>,
    sends: bool,
    hint: Option<Fetched>,
) -> Result<Resolved, Outcome> {
    // A fetch for an answer has already counted the access.
    let counted = hint.is_some() && touch.is_none();
    let resolved = resolve(ctx, &req.key, hint);
    let Resolved::Dram(mut item) = resolved else {
        return Ok(resolved);
    };
    if sends && lacks_pin(ctx, item) {
        return Err(Outcome::Busy);
    }
    if let Some(expiry) = touch {
        item = match ctx.shard.widen(ctx.queue, item, expiry, 0) {
            Ok(item) => item,
            Err(AllocError::Busy) => return Err(Outcome::Busy),
            Err(_) => return Ok(Resolved::OutOfMemory),
        };
        ctx.shard.set_expiry(item, expiry);
    }
    if !counted {
        ctx.shard.hit(item);
    }
    Ok(Resolved::Dram(item))
}

/// One key of a text command.
pub(super) fn text(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    touch: Option<u32>,
    cas: bool,
    last: bool,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let resolved = match access(ctx, req, touch, true, hint) {
        Ok(resolved) => resolved,
        Err(outcome) => return outcome,
    };
    match resolved {
        Resolved::Flash(at) | Resolved::Header(_, at) => {
            return Outcome::Fetch(at, want(touch));
        }
        Resolved::Dram(item) => {
            let meta = ctx.shard.meta(item);
            if cas {
                value_line(&mut out.bytes, req.key.bytes, &meta, ctx.cas(meta.cas));
                push_value(ctx, item, &meta, true, out);
                if last {
                    out.bytes.extend_from_slice(END);
                }
            } else if meta.value_len <= ctx.window.copy_limit() {
                ctx.shard.copy_answer(item, &meta, last, &mut out.bytes);
            } else if req.remote {
                // The caller may remove the end.
                pin_answer(ctx.shard, item, false, out);
                if last {
                    out.bytes.extend_from_slice(END);
                }
            } else {
                pin_answer(ctx.shard, item, last, out);
            }
            count_hit(ctx, req.key.bytes, touch.is_some(), &meta);
        }
        Resolved::Answer(found) => {
            let meta = found.meta;
            count_stream(ctx, &found);
            if cas {
                value_line(
                    &mut out.bytes,
                    req.key.bytes,
                    &found.meta,
                    ctx.cas(found.meta.cas),
                );
                push_flash_value(found, true, last, req.remote, out);
            } else if let Some(range) = &found.answer {
                let from = range.start;
                push_flash(found, from, (true, last), req.remote, out);
            } else {
                let value = &found.buf[found.value];
                push_answer(&mut out.bytes, req.key.bytes, meta.flags, value, last);
            }
            count_hit(ctx, req.key.bytes, false, &meta);
        }
        Resolved::OutOfMemory if touch.is_some() => {
            // The item exists and stays unchanged, so this is not a miss.
            count(ctx, req.key.bytes, true, false);
            out.line("SERVER_ERROR out of memory writing get response");
        }
        Resolved::Absent | Resolved::OutOfMemory => {
            if last {
                out.bytes.extend_from_slice(END);
            }
            count(ctx, req.key.bytes, touch.is_some(), false);
        }
    }
    Outcome::Done
}

/// Appends `VALUE key flags length cas`.
fn value_line(out: &mut Vec<u8>, key: &[u8], meta: &Meta, cas: u64) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    push_u64(out, u64::from(meta.flags));
    out.push(b' ');
    push_u64(out, u64::from(meta.value_len));
    out.push(b' ');
    push_u64(out, cas);
    out.extend_from_slice(b"\r\n");
}

/// Appends an item's value, with its line end if `crlf`.
pub(super) fn push_value(
    ctx: &mut Ctx<'_, impl Queue>,
    item: ItemRef,
    meta: &Meta,
    crlf: bool,
    out: &mut Reply,
) {
    let limit = ctx.window.copy_limit();
    let shard = &mut *ctx.shard;
    if meta.value_len <= limit {
        shard.copy_value(item, &mut out.bytes);
        if crlf {
            out.bytes.extend_from_slice(b"\r\n");
        }
        return;
    }
    let mut count = 0;
    shard.value_pieces(item, |_| count += 1);
    let Some(pins) = take_pins(shard, item, count) else {
        shard.copy_value(item, &mut out.bytes);
        if crlf {
            out.bytes.extend_from_slice(b"\r\n");
        }
        return;
    };
    let mut pins = pins.into_iter();
    let mut left = meta.value_len as usize + if crlf { 2 } else { 0 };
    shard.value_pieces(item, |piece| {
        let piece = &piece[..piece.len().min(left)];
        left -= piece.len();
        if !piece.is_empty() {
            out.pinned(piece, pins.next().expect("one pin a piece"));
        }
    });
    // The last piece held only the line end.
    for pin in pins {
        shard.unpin(pin);
    }
}

/// Appends an item's complete answer, pinned.
fn pin_answer(shard: &mut Shard, item: ItemRef, end: bool, out: &mut Reply) {
    let mut count = 0;
    shard.answer_pieces(item, end, |_| count += 1);
    let Some(pins) = take_pins(shard, item, count) else {
        return shard.answer_pieces(item, end, |piece| out.bytes.extend_from_slice(piece));
    };
    let mut pins = pins.into_iter();
    shard.answer_pieces(item, end, |piece| {
        out.pinned(piece, pins.next().expect("one pin a piece"))
    });
}

/// Pins an item once for each piece; `None` if it has the most pins possible.
fn take_pins(shard: &mut Shard, item: ItemRef, count: usize) -> Option<Vec<u64>> {
    let mut pins = Vec::with_capacity(count);
    for _ in 0..count {
        if !shard.can_pin(item) {
            for pin in pins {
                shard.unpin(pin);
            }
            return None;
        }
        pins.push(shard.pin(item));
    }
    Some(pins)
}

/// Appends the value of a record that was read, with its line end if `crlf`, and then with `END` if
/// `end`.
pub(super) fn push_flash_value(
    found: FlashItem,
    crlf: bool,
    end: bool,
    remote: bool,
    out: &mut Reply,
) {
    let from = found.value.start;
    if found.answer.is_some() {
        return push_flash(found, from, (crlf, end), remote, out);
    }
    out.bytes.extend_from_slice(&found.buf[found.value]);
    let text: [&[u8]; 2] = [b"\r\n", END];
    for (text, _) in text
        .into_iter()
        .zip([crlf, end])
        .filter(|&(_, is_on)| is_on)
    {
        out.bytes.extend_from_slice(text);
    }
}

/// Appends a record that was read and that has its answer: from this offset to the end of its
/// value, then the line end, then `END`, if these are wanted. Pieces that were not read yet follow
/// as they come.
fn push_flash(
    found: FlashItem,
    from: usize,
    (crlf, end): (bool, bool),
    remote: bool,
    out: &mut Reply,
) {
    // In the record, both follow the value.
    let to = found.value.end + if crlf { 2 } else { 0 };
    let (range, left) = match &found.rest {
        None if end => (from..to + END.len(), 0),
        None => (from..to, 0),
        Some(rest) => (from..to.min(rest.begun()), to.saturating_sub(rest.begun())),
    };
    if remote {
        out.bytes.extend_from_slice(&found.buf[range]);
    } else if !range.is_empty() {
        out.page(found.buf, range);
    }
    if let Some(rest) = found.rest {
        out.stream(rest, left, end);
    }
}

/// The binary get, get-and-touch and touch.
#[allow(clippy::too_many_arguments)]
pub(super) fn binary(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    head: Head,
    touch: Option<u32>,
    with_key: bool,
    with_value: bool,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let key: &[u8] = if with_key { req.key.bytes } else { &[] };
    let resolved = match access(ctx, req, touch, with_value, hint) {
        Ok(resolved) => resolved,
        Err(outcome) => return outcome,
    };
    match resolved {
        Resolved::Flash(at) | Resolved::Header(_, at) => {
            return Outcome::Fetch(at, want(touch));
        }
        Resolved::Dram(item) => {
            let meta = ctx.shard.meta(item);
            binary_hit(
                &mut out.bytes,
                head,
                &meta,
                key,
                with_value,
                ctx.cas(meta.cas),
            );
            if with_value {
                push_value(ctx, item, &meta, false, out);
            }
            count_hit(ctx, req.key.bytes, touch.is_some(), &meta);
        }
        Resolved::Answer(found) => {
            let meta = found.meta;
            binary_hit(
                &mut out.bytes,
                head,
                &found.meta,
                key,
                with_value,
                ctx.cas(found.meta.cas),
            );
            count_stream(ctx, &found);
            push_flash_value(found, false, false, req.remote, out);
            count_hit(ctx, req.key.bytes, false, &meta);
        }
        Resolved::OutOfMemory if touch.is_some() => {
            count(ctx, req.key.bytes, true, false);
            head.refuse(&mut out.bytes, Status::OutOfMemory);
        }
        Resolved::Absent | Resolved::OutOfMemory => {
            count(ctx, req.key.bytes, touch.is_some(), false);
            if head.quiet {
            } else if with_key {
                head.push(&mut out.bytes, Status::NotFound, 0, key.len(), key.len(), 0);
                out.bytes.extend_from_slice(key);
            } else {
                head.refuse(&mut out.bytes, Status::NotFound);
            }
        }
    }
    Outcome::Done
}

fn binary_hit(out: &mut Vec<u8>, head: Head, meta: &Meta, key: &[u8], with_value: bool, cas: u64) {
    let value = if with_value {
        meta.value_len as usize
    } else {
        0
    };
    head.push(
        out,
        Status::Success,
        4,
        key.len(),
        4 + key.len() + value,
        cas,
    );
    out.extend_from_slice(&meta.flags.to_be_bytes());
    out.extend_from_slice(key);
}
