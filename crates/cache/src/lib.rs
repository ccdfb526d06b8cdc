// SPDX-License-Identifier: Apache-2.0
//! One cache shard over DRAM and flash.
//!
//! A [`Shard`] has one owner thread and no locks; it never waits and never touches a socket. A lookup says
//! at once what DRAM knows ([`Lookup`]); what lies on flash is fetched through a [`senko_io::Queue`], and arrives
//! later as a [`Done`]. Commands of a protocol are compositions of these primitives: look up, fetch if only flash can
//! tell, then read or change the item in DRAM.

mod key; // a key and its hash, computed once at the edge
mod record; // the one format of an item, in DRAM and on flash: header, then the complete answer
mod stats; // counters of a shard
mod shard; // the shard: lookups, changes, completions

pub use key::Key;
pub use record::{Meta, RECORD_HEADER};
pub use shard::{
    Admission, AdmissionRule, AllocError, Budget, DeviceSlice, Done, Draft, Fetch, Fetched, FlashItem, FlashRef, ItemRef, Lookup,
    OpenError, PolicyKind, Shard, ShardConfig, Want,
};
pub use stats::{CacheStats, SlabClassStats};
