// SPDX-License-Identifier: Apache-2.0
//! The driver that waits: look-ups one by one, or many with their reads under way together.
//!
//! All look-ups of one call see the same version. [`many`] has up to 64 of them under way: a look-up that got its pages goes on, and when it is
//! done the next key takes its place, while the device reads for the others.

use std::cell::RefCell;
use std::sync::Arc;

use senko_io::{AlignedBuf, Device, IoError, PAGE_SIZE, Purpose, ReadStream, Tag};

use crate::element::ExtentRef;
use crate::index::BlockMap;
use crate::lookup::{Hit, Lookup, Pages, Step, Terms};
use crate::version::Version;
use crate::{KeyHash, StoreError};

const LOOKUP: Tag = Tag::store(Purpose::Lookup);
const REST: Tag = Tag::store(Purpose::LookupRest);

/// Look-ups under way at a time.
const DEPTH: usize = senko_io::MOST_SLOTS;

/// Keys whose memory is asked for ahead of the one at hand.
const AHEAD: usize = 8;

/// Bytes of a large value that are read at a time.
const PIECE_PAGES: usize = 256;

/// Buffers of each thread that are kept, and the pages that each may have.
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

/// Reads pages into a buffer of the thread, and gives it back whatever `use_them` says.
fn with_pages<T>(
    device: &dyn Device,
    pages: Pages,
    use_them: impl FnOnce(&[u8]) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut buffer = take_buffer(pages.pages as usize);
    let bytes = pages.pages as usize * PAGE_SIZE;
    let result = device
        .read(pages.page, &mut buffer[..bytes], LOOKUP)
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

/// Look-ups that share the device: each slot has one, and goes on to the next key when it is done.
struct Many<'k, 'a> {
    version: &'a Version,
    keys: &'a [&'k [u8]],
    hashes: Vec<KeyHash>,
    next: usize,
    terms: Terms<'a>,
    slots: Vec<Option<Pending<'a>>>,
    answers: Vec<Result<Option<Hit>, StoreError>>,
}

/// A slot's look-up.
struct Pending<'a> {
    index: usize,
    lookup: Lookup<'a>,
    /// What it must see next; none while that is being read.
    pages: Option<Pages>,
}

impl<'a> Many<'_, 'a> {
    /// Enters what a step gave: an answer, or a read for the slot.
    fn settle(
        &mut self,
        slot: usize,
        step: Result<Step, StoreError>,
        index: usize,
        lookup: Lookup<'a>,
    ) {
        match step {
            Ok(Step::Done(found)) => self.answers[index] = Ok(found),
            Err(error) => self.answers[index] = Err(error),
            Ok(Step::Read(pages)) => {
                self.slots[slot] = Some(Pending {
                    index,
                    lookup,
                    pages: Some(pages),
                });
            }
        }
    }
}

impl ReadStream for Many<'_, '_> {
    fn next(&mut self, slot: usize) -> Option<(u64, usize)> {
        loop {
            if let Some(pending) = &mut self.slots[slot] {
                let pages = pending.pages.take()?;
                return Some((pages.page, pages.pages as usize));
            }
            let index = self.next;
            let hash = *self.hashes.get(index)?;
            self.next += 1;
            // The waits for memory of the look-ups that follow overlap with this one's.
            if let Some(&ahead) = self.hashes.get(index + AHEAD) {
                prefetch(self.version, ahead);
            }
            let mut lookup = Lookup::new(hash, self.terms);
            let step = lookup.advance(self.version, self.keys[index]);
            self.settle(slot, step, index, lookup);
        }
    }

    fn done(&mut self, slot: usize, result: Result<&[u8], IoError>) {
        let Some(Pending {
            index, mut lookup, ..
        }) = self.slots[slot].take()
        else {
            return;
        };
        let key = self.keys[index];
        let step = result
            .map_err(StoreError::io("reading a page"))
            .and_then(|bytes| lookup.supply(key, bytes))
            .and_then(|next| match next {
                Some(step) => Ok(step),
                None => lookup.advance(self.version, key),
            });
        self.settle(slot, step, index, lookup);
    }
}

/// Looks many keys up; the answers stand in the order of the keys.
pub(crate) fn many(
    device: &dyn Device,
    version: &Version,
    keys: &[&[u8]],
    hash: impl Fn(&[u8]) -> KeyHash,
    terms: Terms<'_>,
) -> Vec<Result<Option<Hit>, StoreError>> {
    let slots = keys.len().min(DEPTH);
    let mut many = Many {
        version,
        keys,
        hashes: keys.iter().map(|key| hash(key)).collect(),
        next: 0,
        terms,
        slots: Vec::with_capacity(slots),
        answers: Vec::with_capacity(keys.len()),
    };
    many.slots.resize_with(slots, || None);
    many.answers.resize_with(keys.len(), || Ok(None));
    for &hash in many.hashes.iter().take(AHEAD) {
        prefetch(version, hash);
    }
    device.read_stream(slots, &mut many, LOOKUP);
    many.answers
}

fn prefetch(version: &Version, hash: KeyHash) {
    for entry in &version.shards[hash.shard()].generations {
        entry.map.prefetch(hash);
    }
}

/// Reads a value that lies in an extent of its own, and checks it.
pub(crate) fn large(device: &dyn Device, place: &ExtentRef) -> Result<Vec<u8>, StoreError> {
    let offset = place.extent.first.saturating_mul(PAGE_SIZE as u64);
    let pages = place.bytes.div_ceil(PAGE_SIZE as u64);
    let inside = place
        .extent
        .first
        .checked_add(pages)
        .is_some_and(|end| end <= device.pages());
    if !inside
        || pages > u64::from(place.extent.pages)
        || place.bytes > crate::options::MAX_VALUE_BYTES
    {
        return Err(StoreError::damaged(
            offset,
            "a large value lies beyond its extent",
        ));
    }
    let mut value = Vec::with_capacity(place.bytes as usize);
    let mut buffer = AlignedBuf::new(PIECE_PAGES.min(pages as usize).max(1));
    let (mut page, mut left) = (place.extent.first, place.bytes);
    while left > 0 {
        let bytes = left.min(buffer.len() as u64) as usize;
        let whole = bytes.div_ceil(PAGE_SIZE) * PAGE_SIZE;
        device
            .read(page, &mut buffer[..whole], REST)
            .map_err(StoreError::io("reading a large value"))?;
        value.extend_from_slice(&buffer[..bytes]);
        page += (whole / PAGE_SIZE) as u64;
        left -= bytes as u64;
    }
    if crc32c::crc32c(&value) != place.crc {
        return Err(StoreError::damaged(
            offset,
            "the checksum of a large value does not match",
        ));
    }
    Ok(value)
}

/// Writes a large value into an extent that was taken for it.
pub(crate) fn write_large(
    device: &Arc<dyn Device>,
    held: &crate::space::Held,
    value: &[u8],
) -> Result<ExtentRef, StoreError> {
    let extent = held.extent();
    let mut buffer = AlignedBuf::new(PIECE_PAGES.min(extent.pages as usize));
    let mut page = extent.first;
    for piece in value.chunks(buffer.len()) {
        let whole = piece.len().div_ceil(PAGE_SIZE) * PAGE_SIZE;
        buffer[..piece.len()].copy_from_slice(piece);
        buffer[piece.len()..whole].fill(0);
        device
            .write(page, &buffer[..whole], Tag::store(Purpose::Admit))
            .map_err(StoreError::io("writing a large value"))?;
        page += (whole / PAGE_SIZE) as u64;
    }
    Ok(ExtentRef {
        extent,
        bytes: value.len() as u64,
        crc: crc32c::crc32c(value),
    })
}
