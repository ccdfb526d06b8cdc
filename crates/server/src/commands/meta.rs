// SPDX-License-Identifier: Apache-2.0
//! `mg`, `md`, `ma`, `me`: their effects and their replies. (`ms` is with the storage commands.)
//!
//! Returned flags come in the order of the request. A flag that changes the item takes effect at
//! its place in that order, as in memcached: `mg k t T30` returns the old time, `mg k T30 t` the
//! new one.

use senko_cache::{AllocError, Fetched, FlashItem, ItemRef, Lookup, Meta, Want};
use senko_io::Queue;

use super::change::{Counted, Delta};
use super::{Outcome, Request, Resolved, change, get as value, resolve};
use crate::context::Ctx;
use crate::protocol::Tokens;
use crate::protocol::binary::Status;
use crate::protocol::meta::Flags;
use crate::protocol::number::{decimal, push_base64, push_u64};
use crate::reply::Reply;
use crate::shared::Touched;

/// Calls `each` with every flag, in order, and its whole token.
pub(super) fn each_flag(text: &[u8], mut each: impl FnMut(u8, &[u8])) {
    for token in Tokens::new(text) {
        each(token[0], token);
    }
}

/// Appends a flag with a number.
pub(super) fn push_number(out: &mut Vec<u8>, flag: u8, n: u64) {
    out.extend_from_slice(&[b' ', flag]);
    push_u64(out, n);
}

/// Appends the flags that are always returned: the opaque and the key.
pub(super) fn push_echo(out: &mut Vec<u8>, flag: u8, token: &[u8], key: &[u8], base64: bool) {
    match flag {
        b'O' => {
            out.push(b' ');
            out.extend_from_slice(token);
        }
        b'k' => {
            out.extend_from_slice(b" k");
            if base64 {
                push_base64(out, key);
                out.extend_from_slice(b" b");
            } else {
                out.extend_from_slice(key);
            }
        }
        _ => {}
    }
}

/// Answers with a code and the echoes of flags.
fn answer(req: &Request<'_>, flags: &Flags, code: &str, out: &mut Reply) {
    let out = &mut out.bytes;
    out.extend_from_slice(code.as_bytes());
    each_flag(req.text, |flag, token| {
        push_echo(out, flag, token, req.key.bytes, flags.base64)
    });
    out.extend_from_slice(b"\r\n");
}

/// Appends the item's remaining life; -1 means forever.
fn push_ttl(out: &mut Vec<u8>, expiry: u32, now: u32) {
    if expiry == 0 {
        out.extend_from_slice(b" t-1");
    } else {
        push_number(out, b't', u64::from(expiry.saturating_sub(now)));
    }
}

/// A reply of `mg` under construction, and the new state of the item.
struct Line {
    /// The item as the flags so far have changed it.
    meta: Meta,
    now: u32,
    created: bool,
    /// The client wins the right to recache.
    won: bool,
}

impl Line {
    /// Whether the value is sent. A client that names the item's CAS value has it already.
    fn sends_value(&self, ctx: &Ctx<'_, impl Queue>, flags: &Flags) -> bool {
        flags.value && flags.compare != Some(ctx.cas(self.meta.cas))
    }

    /// Writes the first line. Afterwards `self` has the changes that the flags make.
    fn write(
        &mut self,
        ctx: &Ctx<'_, impl Queue>,
        req: &Request<'_>,
        flags: &Flags,
        out: &mut Vec<u8>,
    ) {
        if self.sends_value(ctx, flags) {
            out.extend_from_slice(b"VA ");
            push_u64(out, u64::from(self.meta.value_len));
        } else {
            out.extend_from_slice(b"HD");
        }
        let meta = &mut self.meta;
        each_flag(req.text, |flag, token| match flag {
            b'T' => meta.expiry = flags.ttl.unwrap_or(meta.expiry),
            b'N' if self.created => {
                meta.expiry = flags.vivify.unwrap_or(meta.expiry);
                self.won = true;
            }
            b'R' => {
                let soon = flags
                    .recache
                    .is_some_and(|recache| meta.expiry != 0 && meta.expiry < recache);
                self.won |= soon && !meta.won && !self.created;
            }
            b's' => push_number(out, b's', u64::from(meta.value_len)),
            b't' => push_ttl(out, meta.expiry, self.now),
            b'c' => push_number(out, b'c', ctx.cas(meta.cas)),
            b'f' => push_number(out, b'f', u64::from(meta.flags)),
            b'l' => push_number(
                out,
                b'l',
                u64::from(self.now.saturating_sub(meta.last_access)),
            ),
            b'h' => out.extend_from_slice(if meta.fetched { b" h1" } else { b" h0" }),
            _ => push_echo(out, flag, token, req.key.bytes, meta.binary_key),
        });
        if meta.won {
            out.extend_from_slice(b" Z");
        }
        if meta.stale {
            out.extend_from_slice(b" X");
            self.won |= !meta.won;
        }
        if self.won {
            out.extend_from_slice(b" W");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether the reply of `mg` for this item would change its marks, so that it has to be in DRAM.
pub(super) fn would_win(meta: &Meta, flags: &Flags) -> bool {
    let soon = flags
        .recache
        .is_some_and(|recache| meta.expiry != 0 && meta.expiry < recache);
    !meta.won && (meta.stale || soon)
}

/// The form in which `mg` takes an item from flash. The last access and changes of metadata are
/// exact only in DRAM.
pub(super) fn want(flags: &Flags) -> Want {
    let resident = flags.history || flags.ttl.is_some() || flags.vivify.is_some();
    match (flags.no_update, flags.value) {
        _ if resident => Want::Resident,
        (true, false) => Want::Header,
        (true, true) => Want::Peek,
        (false, _) => Want::Answer,
    }
}

/// `mg` of a fill, which asks whether it may leave the key out: it is here, or was changed here.
/// That counts nothing and wins nothing.
fn is_left_out(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let changed = !ctx.shard.takes_filled(&req.key, ctx.work.fill);
    match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) if !changed => return Outcome::Fetch(at, Want::Header),
        Resolved::Absent | Resolved::OutOfMemory if !changed => out.line("EN"),
        _ => out.line("HD"),
    }
    Outcome::Done
}

/// `mg`.
pub(super) fn get(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    flags: &Flags,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    if ctx.work.fill != 0 {
        return is_left_out(ctx, req, hint, out);
    }
    let want = want(flags);
    // A fetch for an answer has already counted the access.
    let counted = hint.is_some() && want == Want::Answer;
    match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) => return Outcome::Fetch(at, want),
        Resolved::Header(meta, at) => {
            if want != Want::Header || would_win(&meta, flags) {
                return Outcome::Fetch(
                    at,
                    if want == Want::Header {
                        Want::Resident
                    } else {
                        want
                    },
                );
            }
            let mut line = Line {
                meta,
                now: ctx.shard.now(),
                created: false,
                won: false,
            };
            line.write(ctx, req, flags, &mut out.bytes);
            value::count_hit(ctx, req.key.bytes, false, &meta);
        }
        Resolved::Answer(found) => return flash_hit(ctx, req, flags, found, out),
        Resolved::Dram(item) => {
            if flags.value && value::lacks_pin(ctx, item) {
                return Outcome::Busy;
            }
            let item = match ctx.shard.widen(ctx.queue, item, flags.ttl.unwrap_or(0), 0) {
                Ok(item) => item,
                Err(AllocError::Busy) => return Outcome::Busy,
                Err(_) => {
                    value::count(ctx, req.key.bytes, flags.ttl.is_some(), false);
                    out.line("SERVER_ERROR out of memory");
                    return Outcome::Done;
                }
            };
            let meta = ctx.shard.meta(item);
            dram_hit(ctx, req, flags, item, false, counted, out);
            value::count_hit(ctx, req.key.bytes, flags.ttl.is_some(), &meta);
        }
        Resolved::OutOfMemory => {
            value::count(ctx, req.key.bytes, flags.ttl.is_some(), false);
            out.line("SERVER_ERROR out of memory");
        }
        Resolved::Absent => match flags.vivify {
            Some(_) => match vivify(ctx, req, flags) {
                Ok(item) => {
                    let meta = ctx.shard.meta(item);
                    dram_hit(ctx, req, flags, item, true, false, out);
                    value::count_hit(ctx, req.key.bytes, flags.ttl.is_some(), &meta);
                }
                Err(AllocError::Busy) => return Outcome::Busy,
                Err(_) => miss(ctx, req, flags, out),
            },
            None => miss(ctx, req, flags, out),
        },
    }
    Outcome::Done
}

fn miss(ctx: &mut Ctx<'_, impl Queue>, req: &Request<'_>, flags: &Flags, out: &mut Reply) {
    value::count(ctx, req.key.bytes, flags.ttl.is_some(), false);
    if flags.quiet {
        return;
    }
    answer(req, flags, "EN", out);
}

/// The item that `N` makes on a miss. It has no value, and the reply gives the right to fill it.
/// Its expiry takes effect at the place of `N` among the flags.
fn vivify(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    flags: &Flags,
) -> Result<ItemRef, AllocError> {
    let mut draft = ctx.shard.alloc_wide(ctx.queue, &req.key, 0, 0, 0)?;
    ctx.shard.set_draft_binary_key(&mut draft, flags.base64);
    Ok(ctx.shard.link(draft, flags.cas))
}

fn dram_hit(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    flags: &Flags,
    item: ItemRef,
    created: bool,
    counted: bool,
    out: &mut Reply,
) {
    let old = ctx.shard.meta(item);
    let mut line = Line {
        meta: old,
        now: ctx.shard.now(),
        created,
        won: false,
    };
    line.write(ctx, req, flags, &mut out.bytes);
    let new = line.meta;
    if line.sends_value(ctx, flags) {
        value::push_value(ctx, item, &old, true, out);
    }
    if new.expiry != old.expiry || flags.ttl.is_some() {
        ctx.shard.set_expiry(item, new.expiry);
    }
    if line.won {
        ctx.shard.set_marks(item, old.stale, true);
    }
    if !flags.no_update && !counted {
        ctx.shard.hit(item);
    }
}

fn flash_hit(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    flags: &Flags,
    found: FlashItem,
    out: &mut Reply,
) -> Outcome {
    if would_win(&found.meta, flags) {
        // The win must be stored, so the item has to come to DRAM.
        match ctx.shard.lookup(&req.key) {
            Lookup::Flash(at) => return Outcome::Fetch(at, Want::Resident),
            // Usually this very read has promoted it.
            Lookup::Dram(item) => {
                dram_hit(ctx, req, flags, item, false, true, out);
                value::count_hit(ctx, req.key.bytes, flags.ttl.is_some(), &found.meta);
            }
            Lookup::Miss if flags.vivify.is_some() => return Outcome::Busy,
            Lookup::Miss => miss(ctx, req, flags, out),
        }
        return Outcome::Done;
    }
    let mut line = Line {
        meta: found.meta,
        now: ctx.shard.now(),
        created: false,
        won: false,
    };
    line.write(ctx, req, flags, &mut out.bytes);
    let meta = found.meta;
    if line.sends_value(ctx, flags) {
        value::count_stream(ctx, &found);
        value::push_flash_value(found, true, false, req.remote, out);
    }
    value::count_hit(ctx, req.key.bytes, false, &meta);
    Outcome::Done
}

/// `md`.
pub(super) fn delete(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    flags: &Flags,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let status = if flags.invalidate || flags.remove_value {
        mark(ctx, req, flags, hint)
    } else {
        // Here a CAS value of 0 compares like any other.
        match flags.compare {
            Some(0) if !ctx.shared.settings.no_cas => zero_compare(ctx, req, hint),
            compare => change::remove(ctx, req, compare.unwrap_or(0), hint),
        }
    };
    let status = match status {
        Ok(status) => status,
        Err(outcome) => return outcome,
    };
    let code = match status {
        Status::Success => {
            ctx.stats.delete_hits += u64::from(!flags.invalidate);
            "HD"
        }
        Status::Exists => {
            ctx.stats.delete_misses += 1;
            "EX"
        }
        Status::NotFound => {
            ctx.stats.delete_misses += 1;
            "NF"
        }
        _ => {
            out.line("SERVER_ERROR out of memory");
            return Outcome::Done;
        }
    };
    if ctx.shared.prefixes.is_on() {
        ctx.shared.prefixes.record(req.key.bytes, Touched::Delete);
    }
    if code == "HD" && flags.quiet {
        return Outcome::Done;
    }
    answer(req, flags, code, out);
    Outcome::Done
}

/// `md` with `C0`: no item has that CAS value, so only the key's existence matters.
fn zero_compare(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    hint: Option<Fetched>,
) -> Result<Status, Outcome> {
    match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) => Err(Outcome::Fetch(at, Want::Header)),
        Resolved::Absent => Ok(Status::NotFound),
        _ => Ok(Status::Exists),
    }
}

/// `md` with `I` or `x`: the item stays, stale or without its value.
fn mark(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    flags: &Flags,
    hint: Option<Fetched>,
) -> Result<Status, Outcome> {
    let mut item = match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) | Resolved::Header(_, at) => {
            return Err(Outcome::Fetch(at, Want::Resident));
        }
        Resolved::Dram(item) => item,
        Resolved::OutOfMemory => return Ok(Status::OutOfMemory),
        Resolved::Answer(_) => return Err(Outcome::Busy),
        Resolved::Absent => return Ok(Status::NotFound),
    };
    let old = ctx.shard.meta(item);
    if flags.compare.is_some_and(|cas| cas != ctx.cas(old.cas)) {
        return Ok(Status::Exists);
    }
    if flags.remove_value {
        // A tombstone replaces the item: without a value, with only the flags and expiry from the
        // command.
        let expiry = flags.ttl.unwrap_or(0);
        // The replaced item must not leave for flash meanwhile.
        let pin = ctx.shard.can_pin(item).then(|| ctx.shard.pin(item));
        let made = ctx
            .shard
            .alloc_wide(ctx.queue, &req.key, flags.client_flags, expiry, 0);
        if let Some(pin) = pin {
            ctx.shard.unpin(pin);
        }
        let mut draft = match made {
            Ok(draft) => draft,
            Err(AllocError::Busy) => return Err(Outcome::Busy),
            Err(_) => return Ok(Status::OutOfMemory),
        };
        ctx.shard.set_draft_binary_key(&mut draft, old.binary_key);
        item = ctx.shard.link(draft, Some(flags.cas.unwrap_or(old.cas)));
    }
    if flags.invalidate {
        let cas = flags.cas.unwrap_or_else(|| ctx.shard.next_cas());
        let ttl = flags.ttl.unwrap_or(0);
        item = match ctx.shard.widen(ctx.queue, item, ttl, cas) {
            Ok(item) => item,
            Err(AllocError::Busy) => return Err(Outcome::Busy),
            Err(_) => return Ok(Status::OutOfMemory),
        };
        if let Some(expiry) = flags.ttl {
            ctx.shard.set_expiry(item, expiry);
        }
        // The token is cleared too, so that the next client can win it.
        ctx.shard.set_marks(item, true, false);
        ctx.shard.set_cas(item, cas);
    }
    Ok(Status::Success)
}

/// `ma`.
pub(super) fn arith(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    incr: bool,
    flags: &Flags,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let by = Delta {
        incr,
        delta: flags.delta,
        compare: flags.compare.unwrap_or(0),
        initial: flags.vivify.map(|_| (flags.initial, 0)),
        cas: flags.cas,
        ttl: flags.ttl.unwrap_or(0),
    };
    let counted = match change::count(ctx, req, &by, hint) {
        Ok(counted) => counted,
        Err(outcome) => return outcome,
    };
    let code = match counted {
        Counted::Now {
            value,
            item,
            created,
        } => {
            counted_line(ctx, req, flags, value, item, created, out);
            return Outcome::Done;
        }
        Counted::NotNumeric => {
            out.line("CLIENT_ERROR cannot increment or decrement non-numeric value");
            return Outcome::Done;
        }
        Counted::OutOfMemory => {
            out.line("SERVER_ERROR out of memory");
            return Outcome::Done;
        }
        Counted::NotFound => "NF",
        Counted::Exists => "EX",
    };
    answer(req, flags, code, out);
    Outcome::Done
}

fn counted_line(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    flags: &Flags,
    value: u64,
    item: ItemRef,
    created: bool,
    out: &mut Reply,
) {
    let meta = ctx.shard.meta(item);
    let now = ctx.shard.now();
    let mut expiry = meta.expiry;
    let mut room = [0; 20];
    let digits = decimal(value, &mut room);
    let cas = ctx.cas(meta.cas);
    let start = out.bytes.len();
    if flags.value {
        out.bytes.extend_from_slice(b"VA ");
        push_u64(&mut out.bytes, digits.len() as u64);
    } else {
        out.bytes.extend_from_slice(b"HD");
    }
    each_flag(req.text, |flag, token| match flag {
        b'c' => push_number(&mut out.bytes, b'c', cas),
        b't' => push_ttl(&mut out.bytes, expiry, now),
        b'T' => expiry = flags.ttl.unwrap_or(expiry),
        b'N' if created => expiry = flags.vivify.unwrap_or(expiry),
        _ => push_echo(&mut out.bytes, flag, token, req.key.bytes, flags.base64),
    });
    out.bytes.extend_from_slice(b"\r\n");
    if flags.value {
        out.bytes.extend_from_slice(digits);
        out.bytes.extend_from_slice(b"\r\n");
    }
    if flags.quiet {
        out.bytes.truncate(start);
    }
    if expiry != meta.expiry {
        ctx.shard.set_expiry(item, expiry);
    }
}

/// `me`: one readable line about an item.
pub(super) fn debug(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    _base64: bool,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let item = match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) | Resolved::Header(_, at) => return Outcome::Fetch(at, Want::Resident),
        Resolved::Dram(item) => Some(item),
        Resolved::Answer(_) => return Outcome::Busy,
        Resolved::Absent | Resolved::OutOfMemory => None,
    };
    ctx.stats.cmd_meta += 1;
    let Some(item) = item else {
        out.line("EN");
        return Outcome::Done;
    };
    let meta = ctx.shard.meta(item);
    let now = ctx.shard.now();
    out.bytes.extend_from_slice(b"ME ");
    if meta.binary_key {
        push_base64(&mut out.bytes, req.key.bytes);
    } else {
        out.bytes.extend_from_slice(req.key.bytes);
    }
    let expiry = if meta.expiry == 0 {
        -1
    } else {
        // Remaining seconds, as in memcached 1.6.45; 1.6.18 shows them as negative numbers.
        i64::from(meta.expiry) - i64::from(now)
    };
    let size = ctx.shard.footprint(item);
    let class = super::dump::class_of(&ctx.shard.slab_classes(), size);
    let line = format!(
        " exp={expiry} la={} cas={} fetch={} cls={class} size={size}\r\n",
        now.saturating_sub(meta.last_access),
        ctx.cas(meta.cas),
        if meta.fetched { "yes" } else { "no" },
    );
    out.bytes.extend_from_slice(line.as_bytes());
    Outcome::Done
}
