// SPDX-License-Identifier: Apache-2.0
//! Types that callers and a shard exchange: references to items, lookups, fetches, drafts, errors.

use senko_io::PageBuf;

use crate::arena::Handle;
use crate::record::Meta;
use crate::stream::Stream;

/// An item in DRAM. Valid until the next call that can allocate or unlink (`alloc`, `link`,
/// `concat`, `rewrite`, `unlink`, `on_disk`, `tick`, `fetch`), unless pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRef(pub(crate) u32);

/// An item that was evicted from DRAM and has no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub key: Vec<u8>,
    pub meta: Meta,
    /// The number of its slab class, as in [`crate::SlabClassStats`].
    pub class: u32,
}

/// A slot of the index that names a place on flash and whose tag matches a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashRef(pub(crate) u64);

/// The result of looking a key up in index and DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The item is in DRAM and live; its key was compared.
    Dram(ItemRef),
    /// No tier has the key. This is exact.
    Miss,
    /// A tag matches. Only flash can tell whether the item has this key.
    Flash(FlashRef),
}

/// The purpose of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The answer of a `get`: reads the item; ends in `Answer`, or in `Resident` when an item
    /// larger than a frame was promoted.
    Answer,
    /// The same, but it counts as no access.
    Peek,
    /// Whether the key is there, and its [`Meta`]: reads the first page, or two.
    Header,
    /// The item in DRAM, so that it can be changed.
    Resident,
    /// The key and [`Meta`] of whichever item is there ([`Shard::list`](crate::Shard::list)).
    Listed,
    /// The same, of all sorted records in a page.
    ListedPage,
}

impl Want {
    /// Pages of the first read of an item in this many pages (0: in more than a slot can count).
    /// Head and key lie in the first page, but the only checksum of a small record covers all of
    /// it, and it may lie in two.
    #[inline]
    /// Whether it is for a walk, which knows no key.
    pub(crate) fn lists(self) -> bool {
        matches!(self, Want::Listed | Want::ListedPage)
    }

    pub(crate) fn pages(self, of_item: usize) -> usize {
        match (self, of_item) {
            (Want::Header | Want::Listed, 2) => 2,
            (Want::Header | Want::Listed | Want::ListedPage, _) => 1,
            (_, 0) => FRAME_PAGES,
            (_, pages) => pages,
        }
    }
}

/// The result of starting a fetch.
#[derive(Debug)]
pub enum Fetch {
    /// The result is known at once (the item was still in a write buffer).
    Now(Fetched),
    /// A [`Done`] with the caller's number will follow.
    Queued,
}

/// The result of a fetch.
#[derive(Debug)]
pub enum Fetched {
    /// The verified record is in this frame.
    Answer(FlashItem),
    /// The item is in DRAM now (valid like any [`ItemRef`]).
    Resident(ItemRef),
    /// The key is on flash with this metadata. The reference is for
    /// [`Shard::remove_flash`](crate::Shard::remove_flash), and is valid until the next change of
    /// the shard.
    Header(Meta, FlashRef),
    /// The key does not exist: the tag belonged to another key. Or its record could not be read or
    /// is damaged (counted).
    Absent,
    /// The key changed or its record moved meanwhile: run the command again.
    Changed,
    /// There is no memory to hold the item ([`Want::Resident`] only).
    OutOfMemory,
    /// The items that the slot or the page names ([`Want::Listed`] and [`Want::ListedPage`] only).
    Listed(Vec<Listed>),
    /// A further piece of a record: these bytes of the frame ([`Stream`]).
    Piece(PageBuf, std::ops::Range<usize>),
}

/// An item on flash, as a walk over all items reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: Vec<u8>,
    pub meta: Meta,
    /// Bytes that the item would take in DRAM, as [`Shard::footprint`](crate::Shard::footprint)
    /// counts them.
    pub footprint: usize,
}

/// An item that a walk found ([`Shard::scan`](crate::Shard::scan)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    Dram(ItemRef),
    /// It is on flash, and so is its key: [`Shard::list`](crate::Shard::list) reads it. Or this is
    /// a page with several items.
    Flash(FlashRef),
}

/// Pages of the largest frame that a shard requests from its queue. The queue must have frames of
/// this size and of one page.
pub const FRAME_PAGES: usize = 16;

/// A verified record in a frame.
#[derive(Debug)]
pub struct FlashItem {
    /// The frame.
    pub buf: PageBuf,
    /// Where the complete answer `VALUE key flags n\r\n data\r\nEND\r\n` is in `buf`. A value of
    /// at most 1 KiB is stored without it.
    pub answer: Option<std::ops::Range<usize>>,
    /// Where the value's data (without `\r\n`) is in `buf`, and beyond it if there is a rest.
    pub value: std::ops::Range<usize>,
    pub meta: Meta,
    /// The further pieces of a record that is larger than a frame.
    pub rest: Option<Box<Stream>>,
}

impl FlashItem {
    /// The slot of an item that only its own shard can read, since its end is in a write buffer.
    pub fn must_stay(&self) -> Option<FlashRef> {
        let rest = self.rest.as_ref().filter(|rest| !rest.is_on_device());
        rest.map(|rest| FlashRef(rest.slot().0))
    }
}

/// A fetch that ended.
#[derive(Debug)]
pub struct Done {
    /// The caller's number.
    pub user: u64,
    pub fetched: Fetched,
}

/// An item being filled; not yet visible. It must be passed to [`Shard::link`](crate::Shard::link),
/// [`Shard::concat`](crate::Shard::concat) or [`Shard::abort`](crate::Shard::abort).
#[derive(Debug)]
#[must_use]
pub struct Draft(pub(crate) Body);

/// The number of a value on its way to flash.
pub(crate) type UploadId = u32;

/// Where the value of a draft goes.
#[derive(Debug)]
pub(crate) enum Body {
    Item(Filling),
    /// Straight to flash (`flash/upload.rs`).
    Upload(UploadId),
}

/// An item in DRAM whose value is arriving.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) item: Handle,
    /// Bytes of the value so far.
    pub(crate) filled: usize,
    /// Where the next byte goes: a chunk of the item, and the offset in it.
    pub(crate) chunk: Handle,
    pub(crate) at: usize,
}

impl Draft {
    /// Its item in DRAM. Only those commands ask that never upload ([`crate::Shard::upload`]).
    pub(crate) fn item(&self) -> Handle {
        match &self.0 {
            Body::Item(filling) => filling.item,
            Body::Upload(_) => unreachable!("an upload is stored as it is"),
        }
    }
}

/// How far the value of a draft is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It can be stored.
    Here,
    /// Its last bytes are being written to flash.
    Writing,
    /// It can't be stored any more: a write failed, or the log has come round.
    Failed,
    /// The same, because of a flush since it began.
    Flushed,
}

/// Why memory was not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The item is larger than the largest allowed one.
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

    /// Bytes of [`ShardConfig::memory`](crate::ShardConfig::memory) that would suffice, if there
    /// are too few. With more memory some other parts grow too, so a second try may ask for a
    /// little more.
    pub fn least_memory(&self) -> Option<u64> {
        self.least_memory
    }
}

/// The share of a shard's memory for items that is pinned, and so not available for other items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pinned {
    /// An eighth at most.
    #[default]
    Little,
    /// Half at most.
    Much,
    /// Half at most, and answers wait for it.
    Wanted,
    /// More than half.
    TooMuch,
}

const _: () = assert!(size_of::<Draft>() <= 32);
