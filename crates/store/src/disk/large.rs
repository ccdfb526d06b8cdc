// SPDX-License-Identifier: Apache-2.0
//! Large values: each lies in its own extent, from its first byte on. The logs and blocks that name
//! the extent share its holder.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::StoreError;
use crate::disk::space::{Held, Space};
use crate::element::ExtentRef;
use crate::extent::Extent;
use crate::options::MAX_VALUE_BYTES;

const REST: Tag = Tag::store(Purpose::LookupRest);

/// Pages of a large value that are read or written at a time.
const PIECE_PAGES: usize = 256;

/// The holders of large values' extents, by first page.
#[derive(Default)]
pub(crate) struct LargeValues {
    holders: Mutex<HashMap<u64, Weak<Held>>>,
}

impl LargeValues {
    /// The shared holders of large values that a log or block names.
    pub fn holders(
        &self,
        space: &Arc<Space>,
        places: &[ExtentRef],
    ) -> Result<Vec<Arc<Held>>, StoreError> {
        let places = places.iter();
        places
            .map(|place| self.holder(space, place.extent))
            .collect()
    }

    fn holder(&self, space: &Arc<Space>, extent: Extent) -> Result<Arc<Held>, StoreError> {
        let mut holders = self.holders.lock();
        if let Some(held) = holders.get(&extent.first).and_then(Weak::upgrade) {
            return Ok(held);
        }
        let held = Arc::new(space.claim(extent)?);
        holders.insert(extent.first, Arc::downgrade(&held));
        Ok(held)
    }

    /// Registers the holder of a large value's extent that was just allocated.
    pub fn register(&self, held: Held) -> Arc<Held> {
        let held = Arc::new(held);
        let mut holders = self.holders.lock();
        if holders.len() > 64 && holders.len().is_power_of_two() {
            holders.retain(|_, held| held.strong_count() > 0);
        }
        holders.insert(held.extent().first, Arc::downgrade(&held));
        held
    }
}

/// Reads a value that lies in its own extent, and checks its checksum.
pub(crate) fn read(device: &dyn Device, place: &ExtentRef) -> Result<Vec<u8>, StoreError> {
    let damaged = |what| StoreError::damaged(place.extent.offset(), what);
    let pages = place.bytes.div_ceil(PAGE_SIZE as u64);
    let end = place.extent.first.checked_add(pages);
    let inside = end.is_some_and(|end| end <= device.pages());
    if !inside || pages > u64::from(place.extent.pages) || place.bytes > MAX_VALUE_BYTES {
        return Err(damaged("a large value lies beyond its extent"));
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
        return Err(damaged("the checksum of a large value does not match"));
    }
    Ok(value)
}

/// Writes a large value into the extent that was allocated for it.
pub(crate) fn write(
    device: &Arc<dyn Device>,
    held: &Held,
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
