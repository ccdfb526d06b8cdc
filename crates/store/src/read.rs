// SPDX-License-Identifier: Apache-2.0
//! The blocking driver of look-ups: one by one, or many with concurrent reads.
//!
//! [`many`] has up to 64 reads under way. As many further look-ups already know their next read. A
//! look-up that got its pages continues while the device reads for the others. When it is done, the
//! next key takes its place.

pub(crate) mod get; // gets in a version
pub(crate) mod history; // the versions of a key
pub(crate) mod lookup; // a look-up as a state machine
pub(crate) mod scan;
pub(crate) mod snapshot;
pub(crate) mod value; // what a get returns

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use senko_io::{AlignedBuf, Device, IoError, Purpose, ReadStream, Tag};

use crate::block::PageRun;
use crate::cache::hit::Hit;
use crate::core::Core;
use crate::core::version::Version;
use crate::index::BlockMap;
use crate::read::lookup::{Lookup, Step, Terms};
use crate::{Hasher, KeyHash, StoreError};

const LOOKUP: Tag = Tag::store(Purpose::Lookup);

/// Reads under way at a time, at most.
pub(crate) const MOST_DEPTH: usize = senko_io::MOST_UNDER_WAY;

/// Look-ups for each read under way. So the device never waits for a look-up that is searching its
/// pages.
const LOOKUPS_A_READ: usize = 2;

/// Keys whose memory is prefetched ahead of the current one.
const AHEAD: usize = 8;

/// Buffers that each thread keeps, and the most pages of each.
const KEPT: usize = 4;
const KEPT_PAGES: usize = 8;

thread_local! {
    static BUFFERS: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of at least `pages` pages.
fn take_buffer(pages: usize) -> AlignedBuf {
    let kept = BUFFERS.with_borrow_mut(|buffers| {
        let last = buffers.last()?;
        (last.pages() >= pages).then(|| buffers.pop()).flatten()
    });
    kept.unwrap_or_else(|| AlignedBuf::new(pages))
}

fn give_buffer(buffer: AlignedBuf) {
    if buffer.pages() <= KEPT_PAGES {
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.len() < KEPT {
                buffers.push(buffer);
            }
        });
    }
}

/// Reads pages into a buffer of the thread, and returns the buffer to the thread, whatever
/// `use_them` returns.
fn with_pages<T>(
    device: &dyn Device,
    run: PageRun,
    use_them: impl FnOnce(&[u8]) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut buffer = take_buffer(run.pages as usize);
    let bytes = run.bytes();
    let result = device
        .read(run.page, &mut buffer[..bytes], LOOKUP)
        .map_err(StoreError::io("reading a page"))
        .and_then(|()| use_them(&buffer[..bytes]));
    give_buffer(buffer);
    result
}

/// Looks one key up.
pub(crate) fn one(
    device: &dyn Device,
    version: &Version,
    key: &[u8],
    hash: KeyHash,
    terms: Terms<'_>,
) -> Result<Option<Hit>, StoreError> {
    let mut lookup = Lookup::new(hash, terms);
    let mut step = lookup.advance(version, key)?;
    loop {
        step = match step {
            Step::Done(found) => return Ok(found),
            Step::Read(pages) => {
                let next = with_pages(device, pages, |bytes| lookup.supply(key, bytes))?;
                match next {
                    Some(step) => step,
                    None => lookup.advance(version, key)?,
                }
            }
        };
    }
}

/// Look-ups that share the device. Each slot has one look-up, and takes the next key when it is
/// done.
struct Many<'c, K, Keys, See, Each> {
    hasher: &'c Hasher,
    keys: Keys,
    /// Keys whose memory was prefetched.
    ahead: VecDeque<(K, KeyHash)>,
    /// The version that the next look-up sees, and its limits.
    see: See,
    each: Each,
    slots: Vec<Option<Pending<'c, K>>>,
}

/// A slot's look-up.
struct Pending<'c, K> {
    key: K,
    version: Arc<Version>,
    lookup: Lookup<'c>,
    /// The pages that it needs next; none while they are being read.
    pages: Option<PageRun>,
}

impl<'c, K, Keys, See, Each> Many<'c, K, Keys, See, Each>
where
    K: AsRef<[u8]>,
    Keys: Iterator<Item = K>,
    See: FnMut() -> (Arc<Version>, Terms<'c>),
    Each: FnMut(K, Result<Option<Hit>, StoreError>),
{
    /// Starts the next key. The memory of later keys is prefetched during its look-up.
    fn next_key(&mut self, version: &Version) -> Option<(K, KeyHash)> {
        while self.ahead.len() <= AHEAD {
            let Some(key) = self.keys.next() else {
                break;
            };
            let hash = self.hasher.hash(key.as_ref());
            prefetch(version, hash);
            self.ahead.push_back((key, hash));
        }
        self.ahead.pop_front()
    }

    /// Handles the result of a step: an answer, or a read for the slot.
    fn settle(&mut self, slot: usize, step: Result<Step, StoreError>, mut pending: Pending<'c, K>) {
        match step {
            Ok(Step::Done(found)) => (self.each)(pending.key, Ok(found)),
            Err(error) => (self.each)(pending.key, Err(error)),
            Ok(Step::Read(pages)) => {
                pending.pages = Some(pages);
                self.slots[slot] = Some(pending);
            }
        }
    }
}

impl<'c, K, Keys, See, Each> ReadStream for Many<'c, K, Keys, See, Each>
where
    K: AsRef<[u8]>,
    Keys: Iterator<Item = K>,
    See: FnMut() -> (Arc<Version>, Terms<'c>),
    Each: FnMut(K, Result<Option<Hit>, StoreError>),
{
    fn next(&mut self, slot: usize) -> Option<(u64, usize)> {
        loop {
            if let Some(pending) = &mut self.slots[slot] {
                let pages = pending.pages.take()?;
                return Some((pages.page, pages.pages as usize));
            }
            let (version, terms) = (self.see)();
            let (key, hash) = self.next_key(&version)?;
            let mut lookup = Lookup::new(hash, terms);
            let step = lookup.advance(&version, key.as_ref());
            let pending = Pending {
                key,
                version,
                lookup,
                pages: None,
            };
            self.settle(slot, step, pending);
        }
    }

    fn done(&mut self, slot: usize, result: Result<&[u8], IoError>) {
        let Some(mut pending) = self.slots[slot].take() else {
            return;
        };
        let key = pending.key.as_ref();
        let step = result
            .map_err(StoreError::io("reading a page"))
            .and_then(|bytes| pending.lookup.supply(key, bytes))
            .and_then(|next| match next {
                Some(step) => Ok(step),
                None => pending.lookup.advance(&pending.version, key),
            });
        self.settle(slot, step, pending);
    }
}

/// Looks many keys up, with up to `depth` reads under way, and calls `each` for each key when its
/// look-up ends, in any order. `see` returns the version that the next look-up sees, and its
/// limits.
pub(crate) fn many<'c, K: AsRef<[u8]>>(
    core: &'c Core,
    keys: impl Iterator<Item = K>,
    depth: usize,
    see: impl FnMut() -> (Arc<Version>, Terms<'c>),
    each: impl FnMut(K, Result<Option<Hit>, StoreError>),
) {
    let depth = depth.clamp(1, MOST_DEPTH);
    let most = keys.size_hint().1.unwrap_or(usize::MAX);
    let slots = most.min(depth * LOOKUPS_A_READ);
    let mut many = Many {
        hasher: &core.hasher,
        keys,
        ahead: VecDeque::with_capacity(AHEAD + 1),
        see,
        each,
        slots: Vec::with_capacity(slots),
    };
    many.slots.resize_with(slots, || None);
    core.device.read_stream(slots, depth, &mut many, LOOKUP);
}

fn prefetch(version: &Version, hash: KeyHash) {
    for entry in &version.shards[hash.shard()].generations {
        entry.map.prefetch(hash);
    }
}
