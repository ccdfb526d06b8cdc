// SPDX-License-Identifier: Apache-2.0
//! From the hash of a key to the blocks that may hold it: the second step of a look-up, after the
//! logs.
//!
//! The blocks of a generation have ordinals 0, 1, 2, ...; the newest has the highest. Each shard
//! ([`crate::SHARDS`]) has one map, made of (hash, ordinal) pairs. A map never changes afterwards.
//! The engine makes a new one when blocks are sealed or generations are merged.
//!
//! Always holds:
//! - MAP-1: the candidates of a key that went into the map include its block (in a [`StaticMap`],
//!   they are exactly its block).
//! - MAP-2: a candidate is an ordinal below the number of blocks, newest first, each once.
//! - MAP-3: the same entries in the same order and the same options give the same bytes, on every
//!   machine.
//! - MAP-4: [`decode`] of arbitrary bytes is a [`Damage`] or a map whose look-ups obey MAP-2. The
//!   caller verifies the checksum.

mod memory; // bytes that begin on a cache line

pub mod bloom_map; // the thesis's map
pub mod static_map; // a better one, for entries that are all known

#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing; // what the fuzz target calls

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests; // both maps against what went into them

use std::ops::Deref;

pub use bloom_map::BloomMap;
pub use static_map::StaticMap;

use crate::KeyHash;

/// Which map a store uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IndexKind {
    /// [`StaticMap`]: exact for its members, and few false candidates for other keys.
    #[default]
    Static,
    /// [`BloomMap`]: the thesis's Bloom Filter Map, 16 bits a key.
    BloomMap,
}

impl IndexKind {
    /// The kind's number on flash.
    pub(crate) fn byte(self) -> u8 {
        match self {
            IndexKind::Static => 0,
            IndexKind::BloomMap => 1,
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<IndexKind> {
        [IndexKind::Static, IndexKind::BloomMap]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }
}

/// One key, and the ordinal of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    pub key: KeyHash,
    /// The block's ordinal.
    pub block: u32,
}

/// The kind of map to build.
#[derive(Clone, Copy, Debug)]
pub struct MapOptions {
    pub kind: IndexKind,
    /// How many blocks there are; at most [`MAX_BLOCKS`].
    pub blocks: u32,
    /// Bits per key that tell absent keys from members, of a [`StaticMap`]; fractions count. An
    /// absent key has a candidate with a probability of at most about 2 to the minus this number. A
    /// [`BloomMap`] always takes 16 bits per key.
    pub fingerprint_bits: f32,
}

/// The most blocks of one map.
pub const MAX_BLOCKS: u32 = 1 << 20;

/// The decoded bytes are not a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a map of blocks: {0}")]
pub struct Damage(pub(crate) &'static str);

/// A map from a key to the blocks that may hold it.
pub trait BlockMap: Send + Sync {
    /// Appends the ordinals of the blocks that may hold the key, newest first, to `out`, which the
    /// caller has cleared.
    fn candidates(&self, key: KeyHash, out: &mut Candidates);

    /// Prefetches the memory that [`candidates`](BlockMap::candidates) of this key will read.
    fn prefetch(&self, key: KeyHash);

    /// The candidates of many keys: `out[i]` (cleared here) gets those of `keys[i]`. The memory of
    /// later keys is prefetched meanwhile.
    ///
    /// # Panics
    /// If `out` is shorter than `keys`.
    fn candidates_of(&self, keys: &[KeyHash], out: &mut [Candidates]) {
        for key in keys.iter().take(AHEAD) {
            self.prefetch(*key);
        }
        for (at, key) in keys.iter().enumerate() {
            if let Some(later) = keys.get(at + AHEAD) {
                self.prefetch(*later);
            }
            out[at].clear();
            self.candidates(*key, &mut out[at]);
        }
    }

    /// Whether a member's only candidate is its block, so that no other block need be read for it.
    fn exact_for_members(&self) -> bool;

    /// All bytes of memory.
    fn bytes(&self) -> usize;

    /// Appends the encoded map, which [`decode`] reads.
    fn encode(&self, out: &mut Vec<u8>);
}

/// Keys whose memory is prefetched ahead of the current one.
const AHEAD: usize = 8;

/// Ordinals of candidate blocks, newest first. Up to [`Candidates::INLINE`] of them need no
/// allocation.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    few: [u32; Candidates::INLINE],
    len: usize,
    many: Vec<u32>,
}

impl Candidates {
    /// The number of ordinals that fit without an allocation.
    pub const INLINE: usize = 8;

    /// An empty list.
    pub fn new() -> Candidates {
        Candidates::default()
    }

    /// Forgets all; memory that was allocated is kept.
    pub fn clear(&mut self) {
        self.len = 0;
        self.many.clear();
    }

    /// Adds an ordinal.
    pub fn push(&mut self, block: u32) {
        if self.len < Self::INLINE {
            self.few[self.len] = block;
            self.len += 1;
            return;
        }
        if self.many.is_empty() {
            self.many.extend_from_slice(&self.few);
        }
        self.many.push(block);
    }
}

impl Deref for Candidates {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        if self.many.is_empty() {
            &self.few[..self.len]
        } else {
            &self.many
        }
    }
}

/// A map of either kind.
#[derive(Debug)]
pub enum ShardMap {
    /// A map of [`IndexKind::Static`].
    Static(StaticMap),
    /// A map of [`IndexKind::BloomMap`].
    Bloom(Box<BloomMap>),
}

/// First byte of an encoded map.
const KIND_STATIC: u8 = 1;
const KIND_BLOOM: u8 = 2;

/// Builds a map. Entries may come in any order; in the order of [`KeyHash::order`] it is fastest.
/// For [`IndexKind::Static`], the entries must not have the same key twice.
///
/// # Panics
/// If there are no blocks or more than [`MAX_BLOCKS`], or an entry names a block that does not
/// exist.
pub fn build(entries: &[MapEntry], options: &MapOptions) -> ShardMap {
    match options.kind {
        IndexKind::Static => ShardMap::Static(StaticMap::build(
            entries,
            options.blocks,
            options.fingerprint_bits,
        )),
        IndexKind::BloomMap => ShardMap::Bloom(Box::new(BloomMap::build(entries, options.blocks))),
    }
}

/// Reads what [`BlockMap::encode`] wrote: all of `bytes` is the map.
///
/// # Errors
/// If the bytes do not encode a map.
pub fn decode(bytes: &[u8]) -> Result<ShardMap, Damage> {
    match bytes.split_first() {
        Some((&KIND_STATIC, rest)) => Ok(ShardMap::Static(StaticMap::decode(rest)?)),
        Some((&KIND_BLOOM, rest)) => Ok(ShardMap::Bloom(Box::new(BloomMap::decode(rest)?))),
        Some(_) => Err(Damage("it is of no known kind")),
        None => Err(Damage("it is empty")),
    }
}

impl BlockMap for ShardMap {
    fn candidates(&self, key: KeyHash, out: &mut Candidates) {
        match self {
            ShardMap::Static(map) => map.candidates(key, out),
            ShardMap::Bloom(map) => map.candidates(key, out),
        }
    }

    fn prefetch(&self, key: KeyHash) {
        match self {
            ShardMap::Static(map) => map.prefetch(key),
            ShardMap::Bloom(map) => map.prefetch(key),
        }
    }

    fn exact_for_members(&self) -> bool {
        match self {
            ShardMap::Static(map) => map.exact_for_members(),
            ShardMap::Bloom(map) => map.exact_for_members(),
        }
    }

    fn bytes(&self) -> usize {
        let inner = match self {
            ShardMap::Static(map) => map.bytes() - size_of::<StaticMap>(),
            ShardMap::Bloom(map) => map.bytes(),
        };
        size_of::<ShardMap>() + inner
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ShardMap::Static(map) => {
                out.push(KIND_STATIC);
                map.encode(out);
            }
            ShardMap::Bloom(map) => {
                out.push(KIND_BLOOM);
                map.encode(out);
            }
        }
    }
}
