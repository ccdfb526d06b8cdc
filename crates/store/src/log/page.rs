// SPDX-License-Identifier: Apache-2.0
//! One page of the log: header, checksum, chain. Composed where an append or a commit ends the
//! page, checked wherever one is read.
//!
//! ```text
//! 0     4      8      10       12     14      16                          used       4096
//! +-----+------+------+--------+------+-------+---------------------------+------------+
//! | crc | prev | life | behind | used | first | elements, or parts of one | zeroes     |
//! +-----+------+------+--------+------+-------+---------------------------+------------+
//! ```
//! - `crc`: CRC-32C of the 12 bytes of the log's id (8) and the page's number (4), and of bytes 4
//!   to 4096. A page that belongs elsewhere never fits.
//! - `prev`: `crc` of the page before; of the first page, the CRC of the id and the number 2^32-1.
//!   So a page of an earlier life of the log, which followed another page, never follows the new
//!   one.
//! - `life`: grows by at least 1 whenever a log that was replayed is appended to. When it grows, an
//!   unfinished batch before it is void.
//! - `behind`: pages between the last one known to be durable when this page was composed, and this
//!   page; 65535: unknown.
//! - `used`: where the elements end; `first`: where the first element begins that begins in this
//!   page, 0: none does.

use senko_io::PAGE_SIZE;
use senko_io::le::{u16_at, u32_at, u64_at};

use crate::{Extent, StoreError};

/// Bytes in front of the elements of each page.
pub const HEADER: usize = 16;
/// Bytes of elements that a page takes.
pub const PAYLOAD: usize = PAGE_SIZE - HEADER;
/// Bytes that the first page takes for the label of the log, behind its header.
pub const LABEL: usize = 40;
/// `behind` where the distance is unknown, or longer.
pub(super) const UNKNOWN: u16 = u16::MAX;

const MAGIC: &[u8; 8] = b"SENKOLOG";
/// Version of the log's format.
pub const VERSION: u32 = 1;

/// The fields of a page's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub crc: u32,
    pub prev: u32,
    pub life: u16,
    pub behind: u16,
    pub used: u16,
    pub first: u16,
}

/// The beginning of the CRC of page `number` of log `id`.
fn seed(id: u64, number: u32) -> u32 {
    let mut place = [0; 12];
    place[..8].copy_from_slice(&id.to_le_bytes());
    place[8..].copy_from_slice(&number.to_le_bytes());
    crc32c::crc32c(&place)
}

/// The name of the page before the first page of log `id`.
pub(super) fn root(id: u64) -> u32 {
    seed(id, u32::MAX)
}

impl PageHeader {
    /// Ends a page: zeroes what `used` leaves, writes the header and gives the page's CRC. The
    /// field `crc` of `self` is not read.
    pub fn compose(&self, page: &mut [u8], id: u64, number: u32) -> u32 {
        debug_assert_eq!(page.len(), PAGE_SIZE);
        page[usize::from(self.used)..].fill(0);
        page[4..8].copy_from_slice(&self.prev.to_le_bytes());
        page[8..10].copy_from_slice(&self.life.to_le_bytes());
        page[10..12].copy_from_slice(&self.behind.to_le_bytes());
        page[12..14].copy_from_slice(&self.used.to_le_bytes());
        page[14..16].copy_from_slice(&self.first.to_le_bytes());
        let crc = crc32c::crc32c_append(seed(id, number), &page[4..]);
        page[..4].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// The header of page `number` of log `id`, if these bytes are such a page and intact.
    pub fn read(page: &[u8], id: u64, number: u32) -> Option<PageHeader> {
        let header = PageHeader {
            crc: u32_at(page, 0),
            prev: u32_at(page, 4),
            life: u16_at(page, 8),
            behind: u16_at(page, 10),
            used: u16_at(page, 12),
            first: u16_at(page, 14),
        };
        let (used, first) = (usize::from(header.used), usize::from(header.first));
        // The cheap refusals first: most pages behind a log's end are zeroes.
        let begin = begin(number);
        let fits =
            (begin..=PAGE_SIZE).contains(&used) && (first == 0 || (begin..used).contains(&first));
        let crc = || crc32c::crc32c_append(seed(id, number), &page[4..PAGE_SIZE]);
        (fits && header.crc == crc()).then_some(header)
    }
}

/// The field `prev` of a page that need not be intact.
pub(super) fn raw_prev(page: &[u8]) -> u32 {
    u32_at(page, 4)
}

/// Where the elements of page `number` begin.
pub(super) fn begin(number: u32) -> usize {
    if number == 0 { HEADER + LABEL } else { HEADER }
}

/// Writes the label of a log into its first page.
pub(super) fn write_label(page: &mut [u8], id: u64, extent: Extent) {
    let label = &mut page[HEADER..HEADER + LABEL];
    label[..8].copy_from_slice(MAGIC);
    label[8..12].copy_from_slice(&VERSION.to_le_bytes());
    label[12..16].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
    label[16..24].copy_from_slice(&id.to_le_bytes());
    label[24..32].copy_from_slice(&extent.first.to_le_bytes());
    label[32..36].copy_from_slice(&extent.pages.to_le_bytes());
    label[36..40].fill(0);
}

/// Writes into a label which page the log follows on.
pub(super) fn write_follows(page: &mut [u8], chain: u32) {
    page[HEADER + 36..HEADER + LABEL].copy_from_slice(&chain.to_le_bytes());
}

/// Which page the log follows on, by the label of its intact first page.
pub(super) fn read_follows(page: &[u8]) -> u32 {
    u32_at(page, HEADER + 36)
}

/// Id and extent of the log whose intact first page this is, for a repair that lost the list of
/// logs; `None` for any other page.
pub fn read_label(page: &[u8]) -> Option<(u64, Extent)> {
    let label = page.get(HEADER..HEADER + LABEL)?;
    if &label[..8] != MAGIC || page.len() < PAGE_SIZE {
        return None;
    }
    let id = u64_at(label, 16);
    PageHeader::read(page, id, 0)?;
    let extent = Extent::new(u64_at(label, 24), u32_at(label, 32));
    (u32_at(label, 8) <= VERSION).then_some((id, extent))
}

/// Checks the label of an intact first page against what the list of logs says. `offset` is the
/// page's place in the file.
pub(super) fn check_label(
    page: &[u8],
    id: u64,
    extent: Extent,
    offset: u64,
) -> Result<(), StoreError> {
    let label = &page[HEADER..HEADER + LABEL];
    let damaged = |what: &str| Err(StoreError::damaged(offset, format!("log {id}: {what}")));
    if &label[..8] != MAGIC || u64_at(label, 16) != id {
        return damaged("its first page has no label");
    }
    let found = u32_at(label, 8);
    if found > VERSION {
        return Err(StoreError::NewerVersion {
            found,
            known: VERSION,
        });
    }
    if u32_at(label, 12) != PAGE_SIZE as u32 {
        return damaged("its label has another page size");
    }
    if u64_at(label, 24) != extent.first || u32_at(label, 32) != extent.pages {
        return damaged("its label names another extent");
    }
    Ok(())
}
