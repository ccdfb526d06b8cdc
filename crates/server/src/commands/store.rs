// SPDX-License-Identifier: Apache-2.0
//! `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`, and the binary forms: they store a
//! complete draft.

use senko_cache::{AllocError, Draft, Fetched, FlashRef, ItemRef, Meta, Progress, Want};
use senko_io::Queue;

use super::{Form, Op, Outcome, Refused, Request, Resolved, change, meta, resolve, tell};
use crate::context::{BYTES_A_REQUEST, Ctx};
use crate::protocol::binary::{Head, Kind, Status, kind};
use crate::protocol::classic::StoreMode;
use crate::protocol::meta::Flags;
use crate::reply::Reply;

/// The result of storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Stored, with this CAS value and this many bytes of value.
    Well { cas: u64, len: u32 },
    /// The CAS value did not match.
    Exists,
    /// `cas` of a missing key.
    NotFound,
    /// The condition was not met, or the new value did not fit.
    Refused,
}

/// The condition of a storage command on the existing item.
struct Rules {
    mode: StoreMode,
    /// Only if the CAS value equals this. 0 matches nothing; for append and prepend it is no
    /// condition.
    compare: Option<u64>,
    /// Accept a CAS value older than the item's, and mark the new value stale (`ms` with `I`).
    accept_older: bool,
    /// The new item's CAS value.
    cas: Option<u64>,
    /// Append and prepend make the item if it is missing (`ms` with `N`).
    vivify: bool,
}

/// Stores a complete draft according to its command, and answers.
pub(super) fn run(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    draft: &mut Option<Draft>,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let (rules, flags) = match req.op {
        Op::MetaStore { mode, flags } => {
            let rules = Rules {
                mode,
                compare: flags.compare,
                accept_older: flags.invalidate,
                // With 0 the item gets a new one, as in memcached.
                cas: flags.cas.filter(|cas| *cas > 0),
                vivify: flags.vivify.is_some(),
            };
            (rules, Some(flags))
        }
        Op::Store { mode, compare } => (
            Rules {
                mode,
                compare,
                accept_older: false,
                cas: None,
                vivify: false,
            },
            None,
        ),
        _ => unreachable!("only storage commands come here"),
    };
    match draft.as_ref().map(|draft| ctx.shard.progress(draft)) {
        None | Some(Progress::Here) => {}
        Some(Progress::Writing) => return Outcome::Busy,
        Some(Progress::Failed) => {
            return refuse_upload(ctx, req, Refused::Flash, rules.mode, draft, hint, out);
        }
        Some(Progress::Flushed) => {
            return refuse_upload(ctx, req, Refused::Flush, rules.mode, draft, hint, out);
        }
    }
    let new = draft.as_ref().map(|draft| ctx.shard.draft_meta(draft));
    let len = new.map_or(0, |meta| meta.value_len);
    let stored = match apply(ctx, req, &rules, draft, hint) {
        Ok(stored) => stored,
        Err(outcome) => return outcome,
    };
    ctx.stats.cmd_set += 1;
    if let Some(meta) = &new {
        ctx.shard.class_counts(meta).cmd_set += 1;
    }
    if let Some(draft) = draft.take() {
        ctx.shard.abort(draft);
    }
    let word = match stored {
        Ended::Well { .. } => "stored",
        Ended::Exists => "exists",
        Ended::NotFound => "not_found",
        Ended::Refused => "not_stored",
    };
    tell::stored(ctx, req.key.bytes, word, rules.mode, new.as_ref());
    match (req.form, flags) {
        (Form::Text { noreply }, _) => {
            if !noreply {
                out.line(match stored {
                    Ended::Well { .. } => "STORED",
                    Ended::Exists => "EXISTS",
                    Ended::NotFound => "NOT_FOUND",
                    Ended::Refused => "NOT_STORED",
                });
            }
        }
        (Form::Binary(head), _) => answer_binary(head, rules.mode, stored, out),
        (Form::Meta, Some(flags)) => answer_meta(req, &flags, stored, len, out),
        (Form::Meta, None) => unreachable!("a meta command has flags"),
    }
    Outcome::Done
}

/// The known state of the existing item.
#[derive(Clone, Copy)]
struct Old {
    meta: Meta,
    item: Option<ItemRef>,
    /// Its slot on flash, if it is not in DRAM.
    on_flash: Option<FlashRef>,
}

fn apply(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    rules: &Rules,
    draft: &mut Option<Draft>,
    hint: Option<Fetched>,
) -> Result<Ended, Outcome> {
    // In one step with the store: no change of the key comes between (FILL-1).
    if ctx.work.fill != 0 && !ctx.shard.takes_filled(&req.key, ctx.work.fill) {
        return Ok(Ended::Refused);
    }
    // If nothing may be evicted, a tag alone does not replace a slot. So the key's own copy on
    // flash is looked for.
    if rules.mode == StoreMode::Set && !ctx.shard.keeps_all() {
        tell::replaced(ctx, req);
        return Ok(link(ctx, req, rules, draft));
    }
    let joins = matches!(rules.mode, StoreMode::Append | StoreMode::Prepend);
    let old = match resolve(ctx, &req.key, hint) {
        Resolved::Flash(at) => {
            return Err(Outcome::Fetch(
                at,
                if joins { Want::Resident } else { Want::Header },
            ));
        }
        Resolved::Header(_, at) if joins => return Err(Outcome::Fetch(at, Want::Resident)),
        Resolved::Header(meta, at) => Some(Old {
            meta,
            item: None,
            on_flash: Some(at),
        }),
        // Only a header is requested here.
        Resolved::Answer(_) => return Err(Outcome::Busy),
        Resolved::Dram(item) => Some(Old {
            meta: ctx.shard.meta(item),
            item: Some(item),
            on_flash: None,
        }),
        Resolved::OutOfMemory => return Ok(Ended::Refused),
        Resolved::Absent => None,
    };
    let compare = rules.compare.filter(|&cas| cas != 0);
    let Some(old) = old else {
        ctx.stats.cas_misses += u64::from(rules.mode == StoreMode::Cas);
        return Ok(match rules.mode {
            StoreMode::Add | StoreMode::Set => link(ctx, req, rules, draft),
            StoreMode::Append | StoreMode::Prepend if rules.vivify => link(ctx, req, rules, draft),
            StoreMode::Cas => Ended::NotFound,
            _ => Ended::Refused,
        });
    };
    let cas = ctx.cas(old.meta.cas);
    let matches = compare.map(|given| given == cas);
    let older = rules.accept_older
        && rules.mode == StoreMode::Cas
        && compare.is_some_and(|given| given < cas);
    if rules.mode == StoreMode::Cas {
        if matches == Some(true) || older {
            ctx.stats.cas_hits += 1;
            ctx.shard.class_counts(&old.meta).cas_hits += 1;
        } else {
            ctx.stats.cas_badval += 1;
            ctx.shard.class_counts(&old.meta).cas_badval += 1;
        }
    }
    match rules.mode {
        StoreMode::Add => Ok(Ended::Refused),
        StoreMode::Cas if matches == Some(true) => Ok(replace(ctx, req, rules, old, draft)),
        StoreMode::Cas if older => {
            // The value is replaced, but the old expiry is kept, and the item stays stale until a
            // client wins it.
            let new = draft.as_mut().expect("a storage command brings its draft");
            ctx.shard.set_draft_expiry(new, old.meta.expiry);
            ctx.shard.set_draft_marks(new, true, old.meta.won);
            Ok(replace(ctx, req, rules, old, draft))
        }
        StoreMode::Cas => Ok(Ended::Exists),
        StoreMode::Append | StoreMode::Prepend if matches == Some(false) => Ok(Ended::Exists),
        StoreMode::Append | StoreMode::Prepend => {
            let item = old.item.ok_or(Outcome::Busy)?;
            join(ctx, req, rules, item, draft)
        }
        StoreMode::Replace | StoreMode::Set => Ok(replace(ctx, req, rules, old, draft)),
    }
}

/// Makes the draft the key's item in place of the found one. A copy on flash is removed first,
/// since `Shard::link` does not know which key it belongs to.
fn replace(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    rules: &Rules,
    old: Old,
    draft: &mut Option<Draft>,
) -> Ended {
    if let Some(at) = old.on_flash {
        ctx.shard.remove_flash(&req.key, at);
    }
    link(ctx, req, rules, draft)
}

/// Makes the draft the key's item.
fn link(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    rules: &Rules,
    draft: &mut Option<Draft>,
) -> Ended {
    let draft = draft.take().expect("a storage command brings its draft");
    let len = ctx.shard.draft_meta(&draft).value_len;
    let cas = ctx.shard.store(draft, &req.key, rules.cas);
    Ended::Well {
        cas: ctx.cas(cas),
        len,
    }
}

fn join(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    rules: &Rules,
    old: ItemRef,
    draft: &mut Option<Draft>,
) -> Result<Ended, Outcome> {
    let part = draft.take().expect("a storage command brings its draft");
    ctx.work.more += ctx.shard.meta(old).value_len as usize / BYTES_A_REQUEST;
    match ctx
        .shard
        .concat(ctx.queue, old, part, rules.mode == StoreMode::Append)
    {
        Ok(whole) => {
            *draft = Some(whole);
            Ok(link(ctx, req, rules, draft))
        }
        Err((error, part)) => {
            *draft = part;
            if error == AllocError::Busy {
                Err(Outcome::Busy)
            } else {
                Ok(Ended::Refused)
            }
        }
    }
}

fn answer_binary(head: Head, mode: StoreMode, stored: Ended, out: &mut Reply) {
    let status = match stored {
        Ended::Well { cas, .. } => {
            if !head.quiet {
                head.push(&mut out.bytes, Status::Success, 0, 0, 0, cas);
            }
            return;
        }
        Ended::Exists => Status::Exists,
        Ended::NotFound => Status::NotFound,
        Ended::Refused => match mode {
            StoreMode::Add => Status::Exists,
            StoreMode::Replace => Status::NotFound,
            _ => Status::NotStored,
        },
    };
    head.refuse(&mut out.bytes, status);
}

fn answer_meta(req: &Request<'_>, flags: &Flags, stored: Ended, draft_len: u32, out: &mut Reply) {
    let (code, cas, len) = match stored {
        Ended::Well { .. } if flags.quiet => return,
        Ended::Well { cas, len } => ("HD", cas, len),
        Ended::Exists => ("EX", 0, draft_len),
        Ended::NotFound => ("NF", 0, draft_len),
        Ended::Refused => ("NS", 0, draft_len),
    };
    out.bytes.extend_from_slice(code.as_bytes());
    meta::each_flag(req.text, |flag, token| match flag {
        b'c' => meta::push_number(&mut out.bytes, b'c', cas),
        b's' => meta::push_number(&mut out.bytes, b's', u64::from(len)),
        _ => meta::push_echo(&mut out.bytes, flag, token, req.key.bytes, flags.base64),
    });
    out.bytes.extend_from_slice(b"\r\n");
}

/// Answers a storage command whose value arrived, but is not on flash. As without memory, a set
/// removes the old value.
fn refuse_upload(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    why: Refused,
    mode: StoreMode,
    draft: &mut Option<Draft>,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    let outcome = refuse(ctx, req, why, mode, forgets(req, mode), hint, out);
    if matches!(outcome, Outcome::Done)
        && let Some(draft) = draft.take()
    {
        ctx.shard.abort(draft);
    }
    outcome
}

/// Whether a storage command that is refused removes the old value: one that replaces any value
/// does.
pub(crate) fn forgets(req: &Request<'_>, mode: StoreMode) -> bool {
    match (req.op, req.form) {
        // A binary set with a CAS value is a compare-and-set here.
        (Op::Store { .. }, Form::Binary(head)) => kind(head.opcode).0 == Kind::Set,
        (Op::Store { .. }, _) => mode == StoreMode::Set,
        _ => true,
    }
}

/// Answers a storage command whose value is not taken. A failed set also removes the old value.
pub(super) fn refuse(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    why: Refused,
    mode: StoreMode,
    forget: bool,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    if forget && let Err(outcome) = change::remove(ctx, req, 0, hint) {
        return outcome;
    }
    if why == Refused::Large {
        if ctx.stats.store_too_large == 0 {
            let most = senko_io::exact_size(ctx.shared.settings.max_item as u64);
            senko_io::tell!(
                "refused a value that is too large: the largest item has {most}, which \
                 --max-item-size (-I) raises; stats count further ones (store_too_large)"
            );
        }
        ctx.stats.store_too_large += 1;
    }
    ctx.stats.store_no_memory += u64::from(why == Refused::Memory);
    let (word, status, text) = match why {
        Refused::Large => ("too_large", Status::TooLarge, Status::TooLarge.text()),
        Refused::Memory => (
            "no_memory",
            Status::OutOfMemory,
            "Out of memory allocating item",
        ),
        Refused::Flash => ("not_stored", Status::NotStored, "Not written to flash."),
        Refused::Flush => ("not_stored", Status::NotStored, "Flushed meanwhile."),
    };
    tell::stored(ctx, req.key.bytes, word, mode, None);
    match req.form {
        Form::Binary(head) => head.error(&mut out.bytes, status, text),
        Form::Text { noreply: true } => {}
        _ => out.line(match why {
            Refused::Large => "SERVER_ERROR object too large for cache",
            Refused::Memory => "SERVER_ERROR out of memory storing object",
            Refused::Flash => "SERVER_ERROR object not written to flash",
            Refused::Flush => "SERVER_ERROR object flushed while it was stored",
        }),
    }
    Outcome::Done
}

/// Answers a storage command without a line end after its value.
pub(crate) fn bad_chunk(form: Form, out: &mut Reply) {
    // `noreply` silences it, the meta quiet flag does not.
    if !matches!(form, Form::Text { noreply: true }) {
        out.line("CLIENT_ERROR bad data chunk");
    }
}
