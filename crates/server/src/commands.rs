// SPDX-License-Identifier: Apache-2.0
//! The effect of each command on the shard.
//!
//! A command is a function of its [`Request`] and of the result of its last fetch. It looks the key
//! up. If the answer is only on flash, it returns [`Outcome::Fetch`] before it has written
//! anything. When the fetch has ended, [`crate::session`] runs the command again from its start. So
//! no command keeps state across a wait, except a storage command's [`Draft`].
//!
//! Which commands may read flash (a tag alone never decides a reply that has to be exact):
//!
//! | command | on a matching tag |
//! |---|---|
//! | get, gets, mg with no history flag, binary get | the item (`Want::Answer`) |
//! | mg with u and v | the same, which is no access (`Want::Peek`) |
//! | set, ms in set mode | nothing: the old item is dropped unread |
//! | add, replace, cas, delete, md, mg without access | whether it is there, and its CAS value (`Want::Header`) |
//! | append, prepend, incr, decr, touch, gat, ma, mg with h l T N R, md with I or x, me | the item in DRAM (`Want::Resident`) |

mod admin; // commands about the server: flush_all, verbosity, cache_memlimit, shutdown, refusals
mod change; // delete, incr, decr, touch
mod dump; // walks over all items: metadump, cachedump, stats sizes
mod get; // get, gets, gat, gats, binary get and touch
mod meta; // mg, md, ma, me
mod extstore; // memcached's names for the flash counters
mod sink; // writes statistics as text or as binary packets
mod tell; // the lines that watchers get
mod stats; // the sections of stats, in text and binary
mod store; // set, add, replace, append, prepend, cas, ms

use senko_cache::{Draft, Fetched, FlashItem, FlashRef, ItemRef, Key, Lookup, Meta, Want};
use senko_io::Queue;

pub(crate) use admin::{Asked, admin, flush_all, parse_flush};
pub(crate) use dump::{
    Dump, DumpKind, DumpStep, INTERNAL, Part, SHOW_COUNTERS, parse_part_request,
};
pub(crate) use stats::{PURPOSES, binary_stats, cpu_seconds};
pub(crate) use store::{bad_chunk, forgets};
pub(crate) use tell::evicted;

use crate::context::Ctx;
use crate::protocol::binary::Head;
use crate::protocol::classic::StoreMode;
use crate::protocol::meta::Flags;
use crate::reply::Reply;

/// Why a new value is not stored, whatever the key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is larger than any item.
    Large,
    /// There is no memory for it now.
    Memory,
    /// It arrived, but flash did not take it: a write failed, or it came too slowly.
    Flash,
    /// A `flush_all` ran while it was on its way to flash.
    Flush,
}

/// The operation of a command, without key and protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Return the value, or only touch the item.
    Get {
        /// A new expiry.
        touch: Option<u32>,
        /// Text: with the CAS value. Binary: with the key.
        extended: bool,
        /// Text: this is the last key of its line, so `END` follows. Binary: the value is
        /// requested.
        last: bool,
    },
    /// A draft to store.
    Store {
        mode: StoreMode,
        /// Only if the CAS value equals this.
        compare: Option<u64>,
    },
    /// Remove the key if its CAS value equals this (0: any).
    Delete {
        compare: u64,
    },
    /// Its new value was refused: remove the key (if `forget`), then send the reason.
    Refuse {
        why: Refused,
        forget: bool,
        mode: StoreMode,
    },
    /// Count up or down.
    Arith {
        incr: bool,
        delta: u64,
        compare: u64,
        initial: Option<(u64, u32)>,
    },
    Touch {
        expiry: u32,
    },
    /// `mg`.
    MetaGet(Flags),
    /// `ms`.
    MetaStore {
        mode: StoreMode,
        flags: Flags,
    },
    /// `md`.
    MetaDelete(Flags),
    /// `ma`.
    MetaArith {
        incr: bool,
        flags: Flags,
    },
    /// `me`.
    MetaDebug {
        base64: bool,
    },
}

impl Op {
    /// Whether later commands of the connection must see its effect. Others may overtake it while
    /// it waits for flash.
    pub fn changes(&self) -> bool {
        match self {
            Op::Get { touch, .. } => touch.is_some(),
            Op::MetaGet(flags) => {
                flags.ttl.is_some()
                    || flags.vivify.is_some()
                    || flags.recache.is_some()
                    || flags.history
            }
            Op::MetaDebug { .. } => false,
            _ => true,
        }
    }

    /// Whether it stores a value under a key that has none.
    fn adds(&self) -> bool {
        let (Op::Store { mode, .. } | Op::MetaStore { mode, .. }) = self else {
            return false;
        };
        *mode == StoreMode::Add
    }

    /// The form in which it takes an item from flash, if it only reads.
    pub fn reads(&self) -> Option<Want> {
        let want = match self {
            Op::Get { touch, .. } => get::want(*touch),
            Op::MetaGet(flags) => meta::want(flags),
            _ => return None,
        };
        (!self.changes()).then_some(want)
    }

    /// Whether its answer about this item leaves the item as it is.
    pub fn only_reads(&self, meta: &Meta) -> bool {
        match self {
            Op::MetaGet(flags) => !meta::would_win(meta, flags),
            _ => self.reads().is_some(),
        }
    }

    /// Whether its reply depends on an earlier command for the same key. It does if that command
    /// changes the key, or (`mg`, of a stale item) wins the right to recache it.
    pub fn follows(&self) -> bool {
        self.changes() || matches!(self, Op::MetaGet(_))
    }
}

/// The form of the reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A line of text, or nothing.
    Text {
        noreply: bool,
    },
    /// A meta reply; its quiet flag is among its flags.
    Meta,
    Binary(Head),
}

/// A command and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub op: Op,
    pub form: Form,
    pub key: Key<'a>,
    /// A meta command's flags as the client sent them.
    pub text: &'a [u8],
    /// The reply goes to another thread, so it consists of bytes only.
    pub remote: bool,
}

impl<'a> Request<'a> {
    #[inline(always)]
    pub fn new(
        ctx: &Ctx<'_, impl Queue>,
        remote: bool,
        op: Op,
        form: Form,
        key: &'a [u8],
    ) -> Request<'a> {
        Request {
            op,
            form,
            key: Key::new(key, ctx.shared.settings.hash_seed),
            text: &[],
            remote,
        }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) enum Outcome {
    /// The reply is complete.
    Done,
    /// Nothing was written; run it again when this fetch has ended.
    Fetch(FlashRef, Want),
    /// Nothing was written; there is no memory yet, so run it again later.
    Busy,
}

/// The result of looking a key up, with what its last fetch brought.
enum Resolved {
    Dram(ItemRef),
    /// Perhaps on flash.
    Flash(FlashRef),
    /// On flash; its record was read.
    Answer(FlashItem),
    /// On flash; its header was read.
    Header(Meta, FlashRef),
    /// The key does not exist.
    Absent,
    /// On flash, but there is no memory for it.
    OutOfMemory,
}

fn resolve(ctx: &mut Ctx<'_, impl Queue>, key: &Key<'_>, hint: Option<Fetched>) -> Resolved {
    let before = tell::Gone::now(ctx);
    let resolved = resolve_silently(ctx, key, hint);
    if before.is_some() {
        match &resolved {
            Resolved::Dram(item) => {
                let meta = ctx.shard.meta(*item);
                tell::fetched(ctx, key.bytes, Some(&meta), before);
            }
            Resolved::Answer(item) => tell::fetched(ctx, key.bytes, Some(&item.meta), before),
            Resolved::Header(meta, _) => tell::fetched(ctx, key.bytes, Some(meta), before),
            Resolved::Absent => tell::fetched(ctx, key.bytes, None, before),
            // Watchers are told once it was read.
            Resolved::Flash(_) | Resolved::OutOfMemory => {}
        }
    }
    resolved
}

fn resolve_silently(
    ctx: &mut Ctx<'_, impl Queue>,
    key: &Key<'_>,
    hint: Option<Fetched>,
) -> Resolved {
    match hint {
        None | Some(Fetched::Changed) => match ctx.shard.lookup(key) {
            Lookup::Dram(item) => Resolved::Dram(item),
            Lookup::Flash(at) => Resolved::Flash(at),
            Lookup::Miss => Resolved::Absent,
        },
        Some(Fetched::Answer(item)) => Resolved::Answer(item),
        Some(Fetched::Resident(item)) => Resolved::Dram(item),
        Some(Fetched::Header(meta, at)) => Resolved::Header(meta, at),
        // Only a walk requests items in this form, and only a window pieces.
        Some(Fetched::Absent | Fetched::Listed(_) | Fetched::Piece(..)) => Resolved::Absent,
        Some(Fetched::OutOfMemory) => Resolved::OutOfMemory,
    }
}

/// Runs a command. `draft` is a storage command's value; it is taken when it is used.
pub(crate) fn run(
    ctx: &mut Ctx<'_, impl Queue>,
    req: &Request<'_>,
    draft: &mut Option<Draft>,
    hint: Option<Fetched>,
    out: &mut Reply,
) -> Outcome {
    ctx.shard.turn_to(req.key.hash);
    // FILL-1: before each run, whether it ends or waits.
    if req.op.changes() && !(ctx.work.fill != 0 && req.op.adds()) {
        ctx.shard.note_change(&req.key);
    }
    match req.op {
        Op::Get {
            touch,
            extended,
            last,
        } => match req.form {
            Form::Binary(head) => get::binary(ctx, req, head, touch, extended, last, hint, out),
            _ => get::text(ctx, req, touch, extended, last, hint, out),
        },
        Op::Store { .. } | Op::MetaStore { .. } => store::run(ctx, req, draft, hint, out),
        Op::Delete { compare } => change::delete(ctx, req, compare, hint, out),
        Op::Refuse { why, forget, mode } => store::refuse(ctx, req, why, mode, forget, hint, out),
        Op::Arith {
            incr,
            delta,
            compare,
            initial,
        } => change::arith(
            ctx,
            req,
            change::Delta {
                incr,
                delta,
                compare,
                initial,
                cas: None,
                ttl: 0,
            },
            hint,
            out,
        ),
        Op::Touch { expiry } => change::touch(ctx, req, expiry, hint, out),
        Op::MetaGet(flags) => meta::get(ctx, req, &flags, hint, out),
        Op::MetaDelete(flags) => meta::delete(ctx, req, &flags, hint, out),
        Op::MetaArith { incr, flags } => meta::arith(ctx, req, incr, &flags, hint, out),
        Op::MetaDebug { base64 } => meta::debug(ctx, req, base64, hint, out),
    }
}
