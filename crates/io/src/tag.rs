// SPDX-License-Identifier: Apache-2.0
//! The engine and the purpose of an I/O: the label in statistics and traces.

/// The engine that issued an I/O. The number is the one on disk in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Engine {
    /// The cache server.
    Cache = 1,
    /// The unordered store.
    Store = 2,
    /// The transactional DBM.
    Dbm = 3,
    /// A measurement.
    Lab = 4,
}

/// Why an I/O was issued. The number is the one on disk in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Purpose {
    /// A user's read of an item.
    Lookup = 1,
    /// The second read of an item whose length the index did not hold.
    LookupRest = 2,
    /// Data written for the first time.
    Admit = 3,
    /// Data written again by reclaim or compaction.
    Reinsert = 4,
    /// A read by reclaim or compaction.
    Reclaim = 5,
    /// A superblock or a region header.
    Meta = 6,
    /// A log of changes.
    Log = 7,
    /// A read at start.
    Recover = 8,
}

/// The label of one I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The engine.
    pub engine: Engine,
    /// The purpose.
    pub purpose: Purpose,
}

impl Tag {
    /// A tag of the store.
    pub const fn store(purpose: Purpose) -> Tag {
        Tag {
            engine: Engine::Store,
            purpose,
        }
    }

    /// A tag of the DBM.
    pub const fn dbm(purpose: Purpose) -> Tag {
        Tag {
            engine: Engine::Dbm,
            purpose,
        }
    }

    /// A tag of the cache.
    pub const fn cache(purpose: Purpose) -> Tag {
        Tag {
            engine: Engine::Cache,
            purpose,
        }
    }
}
