// SPDX-License-Identifier: Apache-2.0
//! Writes lines about commands for watchers ([`crate::watch`]), in memcached's form.
//!
//! Each function first checks whether anybody watches.

use senko_cache::{Evicted, Lookup, Meta};
use senko_io::Queue;

use super::Request;
use crate::context::Ctx;
use crate::protocol::classic::StoreMode;
use crate::protocol::push_uri;
use crate::shared::Shared;
use crate::watch;

/// Begins an event of this type about a key.
fn begin(kind: &str, key: &[u8]) -> Vec<u8> {
    let mut event = format!("type={kind} key=").into_bytes();
    push_uri(&mut event, key);
    event
}

/// Expired and flushed items that lookups have found so far.
#[derive(Clone, Copy)]
pub(super) struct Gone(u64, u64);

impl Gone {
    /// The present counts, if lookups are watched.
    pub fn now(ctx: &Ctx<'_, impl Queue>) -> Option<Gone> {
        if !ctx.shared.watchers.wants(watch::FETCHERS) {
            return None;
        }
        let stats = ctx.shard.stats();
        Some(Gone(stats.get_expired, stats.get_flushed))
    }
}

/// Tells that a key was looked up, and whether it was found.
pub(super) fn fetched(
    ctx: &Ctx<'_, impl Queue>,
    key: &[u8],
    found: Option<&Meta>,
    before: Option<Gone>,
) {
    if !ctx.shared.watchers.wants(watch::FETCHERS) {
        return;
    }
    let status = match (found, before, Gone::now(ctx)) {
        (Some(_), ..) => "found",
        (None, Some(before), Some(now)) if now.1 > before.1 => "flushed",
        (None, Some(before), Some(now)) if now.0 > before.0 => "expired",
        (None, ..) => "not_found",
    };
    let class = found.map_or(0, |meta| ctx.shard.class_id(meta));
    let size = found.map_or(0, |meta| meta.value_len);
    let mut event = begin("item_get", key);
    let rest = format!(" status={status} clsid={class} cfd={} size={size}", ctx.fd);
    event.extend_from_slice(rest.as_bytes());
    let now_ms = ctx.shard.now_ms();
    ctx.shared.watchers.tell(watch::FETCHERS, now_ms, &event);
}

/// Tells that a value is about to replace the existing one. This does not look for items on flash.
pub(super) fn replaced(ctx: &mut Ctx<'_, impl Queue>, req: &Request<'_>) {
    let Some(before) = Gone::now(ctx) else {
        return;
    };
    let meta = match ctx.shard.lookup(&req.key) {
        Lookup::Dram(item) => Some(ctx.shard.meta(item)),
        Lookup::Flash(_) | Lookup::Miss => None,
    };
    fetched(ctx, req.key.bytes, meta.as_ref(), Some(before));
}

/// Tells whether a value was stored: memcached's word for the result, the item with the value, and
/// the storage command.
pub(super) fn stored(
    ctx: &Ctx<'_, impl Queue>,
    key: &[u8],
    status: &str,
    mode: StoreMode,
    item: Option<&Meta>,
) {
    if !ctx.shared.watchers.wants(watch::MUTATIONS) {
        return;
    }
    let command = match mode {
        StoreMode::Set => "set",
        StoreMode::Add => "add",
        StoreMode::Replace => "replace",
        StoreMode::Append => "append",
        StoreMode::Prepend => "prepend",
        StoreMode::Cas => "cas",
    };
    let expiry = item.map_or(0, |meta| meta.expiry);
    let ttl = match expiry {
        0 => 0,
        expiry => expiry.saturating_sub(ctx.shard.now()),
    };
    let class = item.map_or(0, |meta| ctx.shard.class_id(meta));
    let size = item.map_or(0, |meta| meta.value_len);
    let mut event = begin("item_store", key);
    let rest = format!(
        " status={status} cmd={command} ttl={ttl} clsid={class} cfd={} size={size}",
        ctx.fd
    );
    event.extend_from_slice(rest.as_bytes());
    let now_ms = ctx.shard.now_ms();
    ctx.shared.watchers.tell(watch::MUTATIONS, now_ms, &event);
}

/// Tells that an item was deleted by `delete` or `md`.
pub(super) fn deleted(ctx: &Ctx<'_, impl Queue>, key: &[u8], command: &str, meta: &Meta) {
    if !ctx.shared.watchers.wants(watch::DELETIONS) {
        return;
    }
    let mut event = begin("deleted", key);
    let class = ctx.shard.class_id(meta);
    let rest = format!(" cmd={command} clsid={class} size={}", meta.value_len);
    event.extend_from_slice(rest.as_bytes());
    let now_ms = ctx.shard.now_ms();
    ctx.shared.watchers.tell(watch::DELETIONS, now_ms, &event);
}

/// Tells that an item was evicted at this time (Unix milliseconds).
pub(crate) fn evicted(shared: &Shared, item: &Evicted, now_ms: u64) {
    let meta = &item.meta;
    let now = (now_ms / 1000) as u32;
    let ttl = match meta.expiry {
        0 => -1,
        expiry => i64::from(expiry) - i64::from(now),
    };
    let mut event = begin("eviction", &item.key);
    let rest = format!(
        " fetch={} ttl={ttl} la={} clsid={} size={}",
        if meta.fetched { "yes" } else { "no" },
        now.saturating_sub(meta.last_access),
        item.class,
        meta.value_len,
    );
    event.extend_from_slice(rest.as_bytes());
    shared.watchers.tell(watch::EVICTIONS, now_ms, &event);
}
