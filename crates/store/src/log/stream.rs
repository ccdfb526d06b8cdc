// SPDX-License-Identifier: Apache-2.0
//! From the log's pages back to elements and whole batches. Fed page by page, in order, by
//! [`super::replay`] and [`super::sorted`].
//!
//! A batch becomes whole with its last element, the one without MORE. If a page begins another
//! life, an unfinished batch before it is void: a crash cut it off, and the log continued after it.

use senko_io::{AlignedBuf, Device, PAGE_SIZE, Tag};

use crate::element::{BadElement, Element, MORE};
use crate::{Extent, StoreError};

use super::page::{self, PageHeader};

/// Where an element lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// Its first byte in the log.
    pub place: u32,
    /// Pages that it touches.
    pub pages: u32,
}

/// Is told of elements.
pub(super) trait Visitor {
    /// The next element of a batch.
    fn element(&mut self, spot: Spot, element: &Element<'_>) -> Result<(), StoreError>;
    /// The elements since the last call of this or of `void` are a whole batch.
    fn whole(&mut self);
    /// They are not, and never will be.
    fn void(&mut self);
}

/// Puts elements together.
pub(super) struct Assembler {
    id: u64,
    extent: Extent,
    /// An element that goes on in the next page.
    carry: Vec<u8>,
    place: u32,
    /// Elements of a batch have come, but not its last.
    open: bool,
    life: u16,
    prev: u32,
    next: u32,
    /// The pages continue with the rest of an element that is lost.
    skipping: bool,
    follows: u32,
}

impl Assembler {
    /// For the log from its first page on.
    pub fn new(id: u64, extent: Extent) -> Assembler {
        Assembler {
            id,
            extent,
            carry: Vec::new(),
            place: 0,
            open: false,
            life: 0,
            prev: page::root(id),
            next: 0,
            skipping: false,
            follows: 0,
        }
    }

    /// Number of the page that is expected next.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// CRC of the last page.
    pub fn prev(&self) -> u32 {
        self.prev
    }

    /// The predecessor in the label; 0 before the first page.
    pub fn follows(&self) -> u32 {
        self.follows
    }

    /// Whether a page with this header comes next.
    pub fn fits(&self, header: &PageHeader) -> bool {
        header.prev == self.prev && header.life >= self.life
    }

    /// Forgets what is unfinished: the next page is damaged.
    pub fn lose(&mut self) {
        self.carry.clear();
        self.open = false;
    }

    /// Whether an intact page may lie after damage.
    pub fn may_resume(&self, header: &PageHeader) -> bool {
        header.life >= self.life
    }

    /// Goes on after damage with page `number`, at the first element that begins in it.
    pub fn resume(&mut self, number: u32, header: &PageHeader) {
        self.lose();
        self.next = number;
        self.prev = header.prev;
        self.skipping = true;
    }

    /// Byte of the file where page `number` begins.
    pub fn offset(&self, number: u32) -> u64 {
        (self.extent.first + u64::from(number)) * PAGE_SIZE as u64
    }

    /// Takes the next page, which [fits](Assembler::fits).
    pub fn page(
        &mut self,
        header: &PageHeader,
        page: &[u8],
        visitor: &mut impl Visitor,
    ) -> Result<(), StoreError> {
        let number = self.next;
        if number == 0 {
            page::check_label(page, self.id, self.extent, self.offset(0))?;
            self.follows = page::read_follows(page);
        }
        if header.life > self.life {
            self.void(visitor);
        }
        self.life = header.life;
        self.prev = header.crc;
        self.next += 1;
        let begin = page::begin(number);
        let payload = &page[begin..usize::from(header.used)];
        let mut at = 0;
        if self.skipping {
            self.skipping = header.first == 0;
            at = if self.skipping {
                payload.len()
            } else {
                usize::from(header.first) - begin
            };
        }
        if !self.carry.is_empty() {
            let had = self.carry.len();
            let mut carry = std::mem::take(&mut self.carry);
            carry.extend_from_slice(payload);
            let taken = self.element(&carry, self.place, number, visitor)?;
            if taken == 0 {
                self.carry = carry;
                return Ok(());
            }
            at = taken - had;
            // The memory is kept for the next one.
            carry.clear();
            self.carry = carry;
        }
        while at < payload.len() {
            let place = number * PAGE_SIZE as u32 + (begin + at) as u32;
            let taken = self.element(&payload[at..], place, number, visitor)?;
            if taken == 0 {
                self.carry.extend_from_slice(&payload[at..]);
                self.place = place;
                break;
            }
            at += taken;
        }
        Ok(())
    }

    /// Takes one element off `bytes`, which reach to the end of page `number`. Gives its length, 0:
    /// it continues in the next page.
    fn element(
        &mut self,
        bytes: &[u8],
        place: u32,
        number: u32,
        visitor: &mut impl Visitor,
    ) -> Result<usize, StoreError> {
        let (element, taken) = match Element::decode(bytes) {
            Ok(decoded) => decoded,
            Err(BadElement::Cut) => return Ok(0),
            Err(bad) => {
                let offset = self.extent.first * PAGE_SIZE as u64 + u64::from(place);
                let what = format!("log {}: {bad}", self.id);
                return Err(StoreError::damaged(offset, what));
            }
        };
        let spot = Spot {
            place,
            pages: number - place / PAGE_SIZE as u32 + 1,
        };
        visitor.element(spot, &element)?;
        self.open = element.flags & MORE != 0;
        if !self.open {
            visitor.whole();
        }
        Ok(taken)
    }

    /// Whatever is unfinished is void: the log ends here, or begins another life.
    pub fn void(&mut self, visitor: &mut impl Visitor) {
        self.carry.clear();
        if std::mem::take(&mut self.open) {
            visitor.void();
        }
    }
}

/// Pages of a sequential read, at most.
const PIECE: u32 = 256;

/// Pages of the first one: the log of an opened store may be nearly empty. Each piece is twice as
/// long as the one before.
const FIRST_PIECE: u32 = 16;

/// Reads pages `0..pages` of a log in large pieces; `each` gets every page with its number, and
/// ends the walk with `false`.
pub(super) fn read_pages(
    device: &dyn Device,
    extent: Extent,
    pages: u32,
    tag: Tag,
    mut each: impl FnMut(u32, &[u8]) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut buf = AlignedBuf::new(PIECE.min(pages) as usize);
    let (mut number, mut most) = (0, FIRST_PIECE);
    while number < pages {
        let count = most.min(pages - number);
        most = (2 * most).min(PIECE);
        let piece = &mut buf[..count as usize * PAGE_SIZE];
        device
            .read(extent.first + u64::from(number), piece, tag)
            .map_err(StoreError::io("reading the log"))?;
        for page in piece.chunks_exact(PAGE_SIZE) {
            if !each(number, page)? {
                return Ok(());
            }
            number += 1;
        }
    }
    Ok(())
}
