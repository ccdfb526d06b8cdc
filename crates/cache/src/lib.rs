// SPDX-License-Identifier: Apache-2.0
//! One cache shard over DRAM and flash.
//!
//! A [`Shard`] has one owner thread and no locks; it never waits and never touches a socket. A lookup says
//! at once what DRAM knows ([`Lookup`]); what lies on flash is fetched through a [`senko_io::Queue`], and arrives
//! later as a [`Done`]. Commands of a protocol are compositions of these primitives: look up, fetch if only flash can
//! tell, then read or change the item in DRAM.

#![deny(unsafe_code)]

mod ahead; // memory that coming lookups will read
mod arena; // DRAM: pages cut into chunks
mod change; // storing, deleting, marking
mod cool; // which hits on flash were lately
mod demote; // an item leaves DRAM, for flash or for good
mod dram; // memory for items, by eviction where there is none left
mod fetch; // from a matching slot to a verified record
mod flash; // the flash tier: logs, reads, admission, reclaim
#[doc(hidden)]
pub mod fuzzing;
mod index; // one 8-byte slot per item of either tier
mod item; // an item in the arena
mod key; // a key and its hash, computed once at the edge
mod policy; // which items leave DRAM first
mod record; // the one format of an item, in DRAM and on flash: header, then the complete answer
mod shard; // the shard: lookups, reading an item in DRAM
mod stats; // counters of a shard
mod transfer; // answers that are sent from where they lie on flash
mod upkeep; // what is due without a command // the readers of the flash format, for the fuzz target

pub use key::{Key, MAX_KEY};
pub use record::{Meta, RECORD_HEADER};
pub use shard::{
    Admission, AdmissionRule, AllocError, Budget, DeviceSlice, Done, Draft, FRAME_PAGES, Fetch,
    Fetched, FlashItem, FlashRef, ItemRef, Lookup, OpenError, PolicyKind, Shard, ShardConfig, Want,
};
pub use stats::{CacheStats, SlabClassStats};
pub use transfer::{Transfer, TransferEnd};
