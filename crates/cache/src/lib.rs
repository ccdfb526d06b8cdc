// SPDX-License-Identifier: Apache-2.0
//! One cache shard over DRAM and flash.
//!
//! A [`Shard`] has one owner at a time and no locks; it never waits and never touches a socket. A lookup says
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
pub mod fuzzing; // the readers of what was stored, for the fuzz targets
mod index; // one 8-byte slot per item of either tier
mod item; // an item in the arena
mod key; // a key and its hash, computed once at the edge
mod policy; // which items leave DRAM first
mod record; // the one format of an item, in DRAM and on flash: header, then the complete answer
mod shard; // the shard: lookups, reading an item in DRAM
mod stats; // counters of a shard
mod superblock; // what a data directory says of itself, and each flash file of the directory it belongs to
mod upkeep; // what is due without a command
mod warm; // what outlives the process, and how a shard comes back

pub use flash::health::{DeviceState, DeviceTrouble, Pauses};
pub use flash::outage::DeviceHealth;
pub use key::{HashSeed, Key, MAX_KEY};
pub use record::{Meta, RECORD_HEADER};
pub use shard::{
    Admission, AdmissionRule, AllocError, Budget, DeviceSlice, Done, Draft, FRAME_PAGES, Fetch,
    Fetched, FlashItem, FlashRef, ItemRef, Listed, Lookup, OpenError, Pinned, PolicyKind, Scanned,
    Shard, ShardConfig, Want,
};
pub use stats::{CacheStats, ClassCounts, SlabClassStats};
pub use superblock::{DeviceLabel, Superblock, SuperblockError};
pub use warm::{Comeback, Origin, Recovered, ServerWords, SharedFiles};
