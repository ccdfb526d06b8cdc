// SPDX-License-Identifier: Apache-2.0
//! The block in append order: where every write goes first, and the only log of the store.
//!
//! ```text
//! put -> append: tail (DRAM, chunks of 256 KiB) and index (DRAM, exact) -> commit: write, flush -> extent of the device
//! get -> lookup: index -> tail, or a read of exactly the element's pages -> key compared
//! open -> replay: pages -> whole batches -> index           full -> sorted: all elements, for the block that replaces the log
//! ```
//! Always holds:
//! - WAL-1. A page that was written is never written again in this life of the log.
//! - WAL-2. After any crash, replay gives a prefix of the batches that were appended, and at least
//!   those whose commit returned for `Synced`.
//! - WAL-3. A page of an earlier life, or of another log, is never taken for one of this log: each
//!   page names the CRC of the page before.
//! - WAL-4. Elements of a batch become visible together, to look-ups at [`Log::last_time`], and
//!   after a crash together or not at all.
//! - WAL-5. After a failed write or flush, nothing more is acknowledged; look-ups continue.
//!
//! There is one exception. Suppose that a flush fails, the process ends, and it starts again while
//! the machine stays up. It may then read pages from the system's or the device's memory that never
//! become durable. For what such a log acknowledges later, WAL-2 holds only after the log was
//! rewritten into a block.
//!
//! Locks, in the order in which they are taken: appender, progress of commits (never held during
//! I/O), tail, shard of the index. During device I/O no lock is held but the appender's, and that
//! only when an append has to make room.

mod page; // one page: header, checksum, chain
mod tail; // the end of the log in DRAM
mod index; // from a hash to the newest element, and back along its versions
mod packing; // what its elements take in blocks, at most
mod append; // elements into the tail and the index, chunks to the device
mod commit; // who writes and flushes, and who waits
mod lookup; // from a key to its element
mod stream; // from pages back to elements and batches
mod replay; // opens a log
mod sorted; // the whole log in the order of a block
mod salvage; // what can be read of a damaged log
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing; // replay of arbitrary bytes, for the fuzz target

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use senko_io::{Device, PAGE_SIZE};

use crate::{Extent, Hasher, StoreError};

pub use crate::Durability;

pub use append::MAX_ELEMENT;
pub use lookup::{LogElement, LogFind, LogRead};
pub(crate) use packing::Packing;
pub use page::{HEADER, LABEL, PAYLOAD, VERSION, read_label};
pub use salvage::{Salvaged, salvage};
pub use sorted::SortedElements;

use append::Appender;
use commit::{Group, Threads};
use index::LogIndex;
use tail::{MOST_CHUNKS, Tail};

/// Names a point in the log: everything appended before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pages: u32,
}

impl Ticket {
    /// Pages of the log up to this point.
    pub fn pages(self) -> u32 {
        self.pages
    }
}

/// Why an append failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// The batch does not fit into the rest of this log, and should go into the next log.
    #[error("the log is full")]
    Full,
    /// The batch cannot be appended to this or any log, or the log accepts no writes.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A log in an extent of a device. One thread at a time appends; any number of threads commit and
/// look up.
pub struct Log {
    device: Arc<dyn Device>,
    id: u64,
    extent: Extent,
    hasher: Hasher,
    appender: Mutex<Appender>,
    tail: RwLock<Tail>,
    index: LogIndex,
    packing: Packing,
    group: Group<Threads>,
    /// Pages on the device: a copy of the tail's count, for look-ups without a lock.
    written: AtomicU32,
    /// Pages known to be durable.
    flushed: AtomicU32,
    oldest: AtomicU64,
    visible: AtomicU64,
    /// The end of the log before this one; 0 for none.
    follows: AtomicU32,
    /// After the end there is a part of a page that would follow it.
    stale_end: AtomicBool,
}

/// Fails if the device has no such extent, or the log is too large to number its bytes.
fn check_extent(device: &dyn Device, extent: Extent) -> Result<(), StoreError> {
    let most = u32::MAX / PAGE_SIZE as u32;
    if extent.pages == 0 || extent.pages > most || !extent.lies_within(device.pages()) {
        return Err(StoreError::Invalid(format!(
            "a log of {} pages cannot lie at page {} of a device of {} pages",
            extent.pages,
            extent.first,
            device.pages()
        )));
    }
    Ok(())
}

impl Log {
    /// An append writes if at least this many bytes wait to be written.
    pub const MOST_UNWRITTEN: usize = MOST_CHUNKS * tail::CHUNK_BYTES as usize;

    /// An empty log. `id` was never used before in this store. The first append writes the first
    /// page.
    pub fn create(
        device: Arc<dyn Device>,
        id: u64,
        extent: Extent,
        hasher: Hasher,
    ) -> Result<Log, StoreError> {
        check_extent(&*device, extent)?;
        let tail = Tail::new(id, extent, 0, 0, page::root(id));
        Ok(Log::new(device, id, extent, hasher, tail))
    }

    /// A log without elements that goes on at the end of `tail`.
    fn new(device: Arc<dyn Device>, id: u64, extent: Extent, hasher: Hasher, tail: Tail) -> Log {
        let written = tail.written();
        Log {
            device,
            id,
            extent,
            hasher,
            appender: Mutex::default(),
            tail: RwLock::new(tail),
            index: LogIndex::new(extent.pages),
            packing: Packing::default(),
            group: Group::new(written),
            written: AtomicU32::new(written),
            flushed: AtomicU32::new(0),
            oldest: AtomicU64::new(u64::MAX),
            visible: AtomicU64::new(0),
            follows: AtomicU32::new(0),
            stale_end: AtomicBool::new(false),
        }
    }

    /// Makes this empty log the successor of a log that ended with `chain` ([`Log::chain`]). A
    /// replay of both logs can then tell whether the first one is complete. Call it before the
    /// first append.
    pub fn follow(&self, chain: u32) {
        if self.tail.write().set_follows(chain) {
            self.follows.store(chain, Ordering::Relaxed);
        }
    }

    /// The argument of [`Log::follow`], from this life or an earlier one.
    pub fn follows(&self) -> u32 {
        self.follows.load(Ordering::Relaxed)
    }

    /// The CRC of its last whole page. Once everything is committed as [`Durability::Buffered`],
    /// this is the log's end.
    pub fn chain(&self) -> u32 {
        self.tail.read().prev()
    }

    /// The number in its pages.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The extent of the log.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Bytes of its extent.
    pub fn capacity(&self) -> u64 {
        u64::from(self.extent.pages) * PAGE_SIZE as u64
    }

    /// Bytes of its extent that are in use, in whole pages.
    pub fn bytes_used(&self) -> u64 {
        u64::from(self.end().pages) * PAGE_SIZE as u64
    }

    /// Bytes of encoded elements that an empty log of this many pages takes in one batch.
    pub fn limit(pages: u32) -> u64 {
        let bytes = (u64::from(pages) * PAYLOAD as u64).saturating_sub(LABEL as u64);
        bytes - append::slack(bytes)
    }

    /// Elements that a look-up can find, old versions counted.
    pub fn elements(&self) -> u64 {
        self.index.len()
    }

    /// How its elements would be packed into blocks.
    pub(crate) fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Whether the log has no elements.
    pub fn is_empty(&self) -> bool {
        self.elements() == 0
    }

    /// Time of the oldest element; `u64::MAX` if the log is empty.
    pub fn min_time(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }

    /// Time of the last batch that look-ups see whole; 0 in an empty log.
    pub fn last_time(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Pages known to be durable. After a replay these are the pages that a later page of the log
    /// declares durable. If there are any, the previous log ([`Log::follows`]) was durable to its
    /// end, and a missing end is damage.
    pub fn durable_pages(&self) -> u32 {
        self.flushed.load(Ordering::Relaxed)
    }

    /// DRAM of the index, in bytes.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("id", &self.id)
            .field("extent", &self.extent)
            .field("elements", &self.elements())
            .finish_non_exhaustive()
    }
}
