// SPDX-License-Identifier: Apache-2.0
//! One cache shard over DRAM and flash.
//!
//! A [`Shard`] has one owner at a time and no locks; it never waits and never touches a socket. A
//! lookup returns at once what DRAM knows ([`Lookup`]). Items on flash are fetched through a
//! [`senko_io::Queue`], and arrive later as a [`Done`]. Commands of a protocol are compositions of
//! these primitives: look up, fetch if only flash can tell, then read or change the item in DRAM.
//! `crates/cache/examples/shard_on_a_file.rs` runs a shard.

#![deny(unsafe_code)]

mod arena; // memory: pages cut into chunks
mod config; // what a shard is made from
mod dram; // the DRAM tier: items, and which of them leave first
mod flash; // the flash tier: logs, reads in flight, admission, health
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing; // the readers of what was stored, for the fuzz targets
#[cfg(test)]
mod fuzzing_tests;
mod index; // one 8-byte slot per item of either tier
mod key; // a key and its hash, computed once at the edge
mod record; // the one format of an item, in DRAM and on flash: header, then the complete answer
mod shard; // where the tiers meet: lookups, storing, demotion, fetches, reclaim, restart
mod stats; // counters of a shard
mod superblock; // what a data directory says of itself, and each flash file of the directory it belongs to
mod types; // what callers and a shard say to each other
mod words; // what of a shard outlives its process, word by word

pub use config::{Admission, AdmissionRule, Budget, DeviceSlice, PolicyKind, ShardConfig};
pub use flash::health::{DeviceState, DeviceTrouble, Pauses};
pub use key::{HashSeed, Key, MAX_KEY};
pub use record::{Meta, RECORD_HEADER};
pub use shard::Shard;
pub use shard::outage::DeviceHealth;
pub use shard::restore::{Recovered, Restore, RestoreFrom, ServerWords, SharedFiles};
pub use stats::{CacheStats, ClassCounts, SlabClassStats};
pub use superblock::{DeviceLabel, Superblock, SuperblockError};
pub use types::{
    AllocError, Done, Draft, Evicted, FRAME_PAGES, Fetch, Fetched, FlashItem, FlashRef, ItemRef,
    Listed, Lookup, OpenError, Pinned, Scanned, Want,
};
