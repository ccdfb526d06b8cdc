// SPDX-License-Identifier: Apache-2.0
//! One cache shard over DRAM and flash.
//!
//! A [`Shard`] has one owner at a time and no locks; it never waits and never touches a socket. A
//! lookup returns at once with what DRAM knows ([`Lookup`]). Items on flash are fetched through a
//! [`senko_io::Queue`], and arrive later as a [`Done`]. A protocol's commands are built from these
//! primitives: look up, fetch if the answer is only on flash, then read or change the item in DRAM.
//! `crates/cache/examples/shard_on_a_file.rs` runs a shard.

#![deny(unsafe_code)]

mod arena; // memory: pages cut into chunks
mod config; // the settings that a shard is made from
mod dram; // the DRAM tier: items, and the policies that evict them
mod flash; // the flash tier: logs, reads in flight, admission, health
mod footprint; // what items take in each tier, for plans
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing; // the readers of stored data, for the fuzz targets
#[cfg(test)]
mod fuzzing_tests;
mod index; // one 8-byte slot per item of either tier
mod key; // a key and its hash, computed once at the edge
mod record; // the one format of an item, in DRAM and on flash: header, then the complete answer
mod shard; // where the tiers meet: lookups, storing, demotion, fetches, reclaim, restart
mod stats; // counters of a shard
mod stream; // a large record on its way from flash to a client
mod superblock; // the superblocks of a data directory and of its flash files
mod types; // the types that callers and a shard exchange
mod words; // the state of a shard that outlives its process, word by word

pub use config::{Admission, AdmissionRule, Budget, DeviceSlice, PolicyKind, ShardConfig};
pub use flash::health::{DeviceState, DeviceTrouble, Pauses};
pub use footprint::{Footprint, PageFill};
pub use key::{HashSeed, Key, MAX_KEY};
pub use record::{Meta, PACKED_VALUE, RECORD_HEADER, push_answer};
pub use shard::afar::AfarRead;
pub use shard::outage::DeviceHealth;
pub use shard::restore::{Recovered, Restore, RestoreFrom, SavedCounts, ServerWords, SharedFiles};
pub use shard::{NewUpload, Shard};
pub use stats::{CacheStats, ClassCounts, SlabClassStats};
pub use stream::{PieceRead, Stream};
pub use superblock::{DeviceLabel, Superblock, SuperblockError};
pub use types::{
    AllocError, Done, Draft, Evicted, FRAME_PAGES, Fetch, Fetched, FlashItem, FlashRef, ItemRef,
    Listed, Lookup, OpenError, Pinned, Progress, Scanned, Want,
};
