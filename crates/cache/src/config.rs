// SPDX-License-Identifier: Apache-2.0
//! The settings that a shard is made from.

use senko_io::DeviceId;

use crate::key::HashSeed;

/// Which items leave DRAM first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Least recently used (paper E).
    Lru,
    /// S3-FIFO (Yang et al., SOSP 2023).
    S3Fifo,
}

/// Which of the items that leave DRAM are worth a flash write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionRule {
    /// All items.
    All,
    /// Items that were read while in DRAM.
    Fetched,
    /// Each item with this probability in percent.
    Random(u8),
    /// Items up to this many bytes, and a larger item with a probability that falls with its size:
    /// all larger items write so many bytes on average.
    Bytes(u64),
}

/// A byte budget: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes a second, on average.
    pub bytes_per_second: u64,
    /// Bytes that may be written in a burst.
    pub burst: u64,
}

/// The admission settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub rule: AdmissionRule,
    /// The budget, if any.
    pub budget: Option<Budget>,
}

/// A part of a device that a shard owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSlice {
    /// The device in the shard's queue.
    pub device: DeviceId,
    pub first_page: u64,
    pub pages: u64,
}

/// All that a shard is made from.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Bytes for items, index and write buffers together.
    pub memory: usize,
    /// Largest item: key, value and header.
    pub max_item: usize,
    /// The flash tier, if there is one.
    pub flash: Vec<DeviceSlice>,
    /// Bytes of a region (a multiple of the page size).
    pub region: usize,
    /// Eviction from DRAM.
    pub policy: PolicyKind,
    pub admission: Admission,
    /// The number of recent hits on flash (1 to 3; `index/aging.rs`) after which an item is
    /// promoted to DRAM.
    pub promote_after: u8,
    /// Reinsert items that were hit when their region is reclaimed.
    pub reinsert: bool,
    /// Write small records in the order of their hashes, if there is enough flash and memory. Their
    /// slots then take three bytes.
    pub sort_small: bool,
    /// Values larger than this many bytes go to flash as they arrive; at least 64 KiB.
    pub upload_over: usize,
    /// Bytes of their buffers, beside those for the log; 0: no value goes to flash so. Each takes
    /// 128 KiB.
    pub upload_bytes: usize,
    /// Return an error instead of evicting (`-M`).
    pub no_evict: bool,
    /// This shard's number and the number of shards: the shards take CAS values in turn.
    pub shard: u32,
    pub shards: u32,
    /// Seed of every random choice.
    pub seed: u64,
    /// Seed of the hashes of keys. A restored shard needs the seed that its state was written with.
    pub hash_seed: HashSeed,
}
