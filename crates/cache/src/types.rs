// SPDX-License-Identifier: Apache-2.0
//! Types between callers and a shard: references to items, lookups, fetches, drafts, errors.

use senko_io::PageBuf;

use crate::arena::Handle;
use crate::record::Meta;

/// An item in DRAM. Valid until the next call that can allocate or unlink (`alloc`, `link`,
/// `concat`, `rewrite`, `unlink`, `on_disk`, `tick`, `fetch`), unless pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRef(pub(crate) u32);

/// An item that was evicted from DRAM and is nowhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its key.
    pub key: Vec<u8>,
    /// What was known of it.
    pub meta: Meta,
    /// The number of its slab class, as in [`crate::SlabClassStats`].
    pub class: u32,
}

/// A slot of the index that names a place on flash and whose tag matches a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashRef(pub(crate) u64);

/// The answer of DRAM about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The item is in DRAM, live, key compared.
    Dram(ItemRef),
    /// No tier has the key: exact.
    Miss,
    /// A tag matches; only flash can tell whether it is this key.
    Flash(FlashRef),
}

/// What a fetch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The answer of a `get`: reads the item; ends in `Answer`, or in `Resident` when it was
    /// promoted or is too large for a frame.
    Answer,
    /// Whether the key is there, and its [`Meta`]: reads the first page.
    Header,
    /// The item in DRAM, so that it can be changed.
    Resident,
    /// Whichever key it is, and its [`Meta`] ([`Shard::list`](crate::Shard::list)).
    Listed,
}

/// The start of a fetch.
#[derive(Debug)]
pub enum Fetch {
    /// Known at once (the item was still in a write buffer).
    Now(Fetched),
    /// A [`Done`] with the caller's number will come.
    Queued,
}

/// The end of a fetch.
#[derive(Debug)]
pub enum Fetched {
    /// The verified record in the frame it was read into.
    Answer(FlashItem),
    /// The item is in DRAM now (valid as any [`ItemRef`]).
    Resident(ItemRef),
    /// The key is on flash, with this; the reference is what
    /// [`Shard::remove_flash`](crate::Shard::remove_flash) takes, valid until the next change of
    /// the shard.
    Header(Meta, FlashRef),
    /// The key is not there: the tag matched another key, or what lies there could not be read or
    /// is damaged (counted).
    Absent,
    /// The key changed, or the place moved, meanwhile: run the command again.
    Changed,
    /// There is no memory to hold the item ([`Want::Resident`] only).
    OutOfMemory,
    /// The item that a slot names ([`Want::Listed`] only).
    Listed(Box<Listed>),
}

/// An item on flash, as a walk over all items tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Vec<u8>,
    /// Its metadata.
    pub meta: Meta,
    /// Bytes that it would take in DRAM, as [`Shard::footprint`](crate::Shard::footprint) counts
    /// them.
    pub footprint: usize,
}

/// An item that a walk found ([`Shard::scan`](crate::Shard::scan)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// It is in DRAM.
    Dram(ItemRef),
    /// It is on flash, where its key is: [`Shard::list`](crate::Shard::list) reads it.
    Flash(FlashRef),
}

/// Pages of the largest frame that a shard asks its queue for; the queue must have frames of this
/// size and of one page.
pub const FRAME_PAGES: usize = 16;

/// A verified record in a frame.
#[derive(Debug)]
pub struct FlashItem {
    /// The frame; the answer `VALUE key flags n\r\n data\r\nEND\r\n` is at `answer` in it.
    pub buf: PageBuf,
    /// Where the complete answer lies in `buf`.
    pub answer: std::ops::Range<usize>,
    /// Where the value's data (without `\r\n`) lies in `buf`.
    pub value: std::ops::Range<usize>,
    /// Metadata.
    pub meta: Meta,
}

/// A fetch that ended.
#[derive(Debug)]
pub struct Done {
    /// The caller's number.
    pub user: u64,
    /// How it ended.
    pub fetched: Fetched,
}

/// An item being filled; not yet visible. Must end in [`Shard::link`](crate::Shard::link),
/// [`Shard::concat`](crate::Shard::concat) or [`Shard::abort`](crate::Shard::abort).
#[derive(Debug)]
#[must_use]
pub struct Draft {
    pub(crate) item: Handle,
    /// Bytes of the value that have come.
    pub(crate) filled: usize,
    /// Where the next byte goes: a chunk of the item, and the offset in it.
    pub(crate) chunk: Handle,
    pub(crate) at: usize,
}

/// Why no memory was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// Larger than the largest item allowed.
    #[error("object too large for cache")]
    TooLarge,
    /// Nothing can be evicted (`-M`, or everything is pinned).
    #[error("out of memory storing object")]
    OutOfMemory,
    /// Evictions wait for the flash device; try again after the next disk completion or tick.
    #[error("waiting for the flash device")]
    Busy,
}

/// Why a shard could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct OpenError {
    pub(crate) text: String,
    pub(crate) least_memory: Option<u64>,
}

impl OpenError {
    pub(crate) fn new(text: impl Into<String>) -> OpenError {
        OpenError {
            text: text.into(),
            least_memory: None,
        }
    }

    /// Bytes of [`ShardConfig::memory`](crate::ShardConfig::memory) that would do, where there are
    /// too few. With more memory some other parts grow too, so that a little more may be requested
    /// then.
    pub fn least_memory(&self) -> Option<u64> {
        self.least_memory
    }
}

/// How much of a shard's memory for items is pinned: it is not there for anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pinned {
    /// An eighth at most.
    #[default]
    Little,
    /// Half at most.
    Much,
    /// More.
    TooMuch,
}

const _: () = assert!(size_of::<Draft>() <= 32);
