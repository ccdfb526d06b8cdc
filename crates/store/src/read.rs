// SPDX-License-Identifier: Apache-2.0
//! The driver that waits: look-ups one by one, or many with their reads under way together.
//!
//! All look-ups of one call see the same version. [`many`] goes in rounds: each look-up that is not done says which pages it needs, one batch
//! reads them all (up to 64 under way), and each is given its own. Nearly all look-ups need one round.

use std::cell::RefCell;
use std::sync::Arc;

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, ReadRequest, Tag};

use crate::element::ExtentRef;
use crate::lookup::{Hit, Lookup, Pages, Step};
use crate::version::Version;
use crate::{KeyHash, StoreError};

const LOOKUP: Tag = Tag::store(Purpose::Lookup);
const REST: Tag = Tag::store(Purpose::LookupRest);

/// Look-ups of one batch: more only take memory, since 64 reads are under way at a time.
const ROUND: usize = 512;

/// Bytes of a large value that are read at a time.
const PIECE_PAGES: usize = 256;

/// Buffers of each thread that are kept, and the pages that each may have.
const KEPT: usize = ROUND;
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
    at: u64,
    keep_versions: u32,
) -> Result<Option<Hit>, StoreError> {
    let mut lookup = Lookup::new(hash, at, keep_versions);
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

/// A look-up of a batch.
struct Pending {
    index: usize,
    lookup: Lookup,
    pages: Pages,
}

/// Looks many keys up; the answers stand in the order of the keys.
pub(crate) fn many(
    device: &dyn Device,
    version: &Version,
    keys: &[&[u8]],
    hash: impl Fn(&[u8]) -> KeyHash,
    at: u64,
    keep_versions: u32,
) -> Vec<Result<Option<Hit>, StoreError>> {
    let mut answers: Vec<Result<Option<Hit>, StoreError>> = Vec::with_capacity(keys.len());
    answers.resize_with(keys.len(), || Ok(None));
    let mut pending = Vec::with_capacity(keys.len().min(ROUND));
    let mut first = 0;
    for chunk in keys.chunks(ROUND) {
        let hashes: Vec<KeyHash> = chunk.iter().map(|key| hash(key)).collect();
        for (nth, &hash) in hashes.iter().enumerate() {
            // The waits for memory of the look-ups that follow overlap with this one's.
            if let Some(&ahead) = hashes.get(nth + 8) {
                prefetch(version, ahead);
            }
            let mut lookup = Lookup::new(hash, at, keep_versions);
            let step = lookup.advance(version, chunk[nth]);
            settle(step, first + nth, lookup, &mut answers, &mut pending);
        }
        while !pending.is_empty() {
            round(device, version, keys, &mut answers, &mut pending);
        }
        first += chunk.len();
    }
    answers
}

fn prefetch(version: &Version, hash: KeyHash) {
    use crate::index::BlockMap;
    for entry in &version.shards[hash.shard()].generations {
        entry.map.prefetch(hash);
    }
}

/// Enters what a step gave.
fn settle(
    step: Result<Step, StoreError>,
    index: usize,
    lookup: Lookup,
    answers: &mut [Result<Option<Hit>, StoreError>],
    pending: &mut Vec<Pending>,
) {
    match step {
        Ok(Step::Done(found)) => answers[index] = Ok(found),
        Ok(Step::Read(pages)) => pending.push(Pending {
            index,
            lookup,
            pages,
        }),
        Err(error) => answers[index] = Err(error),
    }
}

/// One batch of reads for all that are pending.
fn round(
    device: &dyn Device,
    version: &Version,
    keys: &[&[u8]],
    answers: &mut [Result<Option<Hit>, StoreError>],
    pending: &mut Vec<Pending>,
) {
    let mut buffers: Vec<AlignedBuf> = pending
        .iter()
        .map(|waiting| take_buffer(waiting.pages.pages as usize))
        .collect();
    let mut requests: Vec<ReadRequest<'_>> = pending
        .iter()
        .zip(&mut buffers)
        .map(|(waiting, buffer)| {
            let bytes = waiting.pages.pages as usize * PAGE_SIZE;
            ReadRequest::new(waiting.pages.page, &mut buffer[..bytes])
        })
        .collect();
    // Each request says how it ended.
    let _ = device.read_batch(&mut requests, LOOKUP);
    let results: Vec<_> = requests.iter().map(|request| request.result).collect();
    drop(requests);
    let waiting = std::mem::take(pending);
    for ((mut waiting, buffer), result) in waiting.into_iter().zip(buffers).zip(results) {
        let key = keys[waiting.index];
        let bytes = waiting.pages.pages as usize * PAGE_SIZE;
        let step = result
            .map_err(StoreError::io("reading a page"))
            .and_then(|()| waiting.lookup.supply(key, &buffer[..bytes]))
            .and_then(|next| match next {
                Some(step) => Ok(step),
                None => waiting.lookup.advance(version, key),
            });
        give_buffer(buffer);
        settle(step, waiting.index, waiting.lookup, answers, pending);
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
