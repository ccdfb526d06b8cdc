// SPDX-License-Identifier: Apache-2.0
//! How one key, value and time lie on flash: the same bytes in the log and in the pages of sorted
//! blocks.
//!
//! `docs/formats/store.md` has the table. Nothing but the element's own bytes is needed to read it,
//! and the header is as short as that allows. It takes 11 bytes for a key of 8 bytes and a value of
//! 1,000. So four such elements fit into a page of 4,096. An element carries no checksum of its
//! own; the page or the batch that it lies in does.
//!
//! Always holds: [`Element::decode`] returns what [`Element::encode`] wrote, and accepts nothing
//! else. Every element has exactly one encoding.

use senko_io::le::{u32_at, u64_at};

use crate::Extent;

/// The key is gone from this time on; the value is empty.
pub const TOMBSTONE: u8 = 1;
/// The element has an expiry; five bytes of Unix seconds follow the time.
pub const EXPIRY: u8 = 2;
/// The value lies in its own extent; the value field is an [`ExtentRef`].
pub const LARGE: u8 = 4;
/// In the log only: the batch continues with the next element.
pub const MORE: u8 = 8;

/// Most bytes of a key.
pub const MAX_KEY: usize = 65_536;
/// Most bytes of a value.
pub const MAX_VALUE: usize = 1 << 30;
/// The first time that cannot be encoded (56 bits of microseconds reach past the year 4000).
pub const END_OF_TIME: u64 = 1 << 56;
/// The first expiry that cannot be encoded, in Unix seconds.
pub const END_OF_EXPIRY: u64 = 1 << 40;
/// Most bytes before the key: flags, two lengths, time, expiry.
pub const MAX_HEADER: usize = 1 + 3 + 5 + 7 + 5;

const KNOWN: u8 = TOMBSTONE | EXPIRY | LARGE | MORE;

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// [`TOMBSTONE`], [`LARGE`], [`MORE`]. [`EXPIRY`] is set by what `expiry` says.
    pub flags: u8,
    /// 1 to [`MAX_KEY`] bytes.
    pub key: &'a [u8],
    /// The value; of a [`LARGE`] element the [`ExtentRef::BYTES`] bytes of a reference.
    pub value: &'a [u8],
    /// Microseconds since 1970, below [`END_OF_TIME`]. The larger one is the newer version.
    pub time: u64,
    /// Unix seconds below [`END_OF_EXPIRY`]; 0: never. The element is gone when the clock shows
    /// this second.
    pub expiry: u64,
}

/// Why bytes are not an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadElement {
    /// The bytes end before the element ends.
    #[error("an element is cut off")]
    Cut,
    /// Flags that do not exist, or that exclude each other.
    #[error("an element has the flags {0:#04x}")]
    Flags(u8),
    /// A length that is too large, or not encoded in the shortest way.
    #[error("an element has a length that cannot be")]
    Length,
    /// An expiry of 0. An element without an expiry has no such field.
    #[error("an element expires at second 0")]
    Expiry,
}

/// The bytes before the key: enough to skip an element without reading the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementHeader {
    /// As in [`Element`], with [`EXPIRY`].
    pub flags: u8,
    /// Bytes that the header itself takes.
    pub bytes: u8,
    /// Bytes of the key.
    pub key_len: u32,
    /// Bytes in the value field.
    pub value_len: u32,
    /// Microseconds since 1970.
    pub time: u64,
    /// Unix seconds; 0: never.
    pub expiry: u64,
}

impl ElementHeader {
    /// Bytes of the whole element.
    pub fn element_len(&self) -> usize {
        self.value_at() + self.value_len as usize
    }

    /// Where the key begins, from the element's start.
    pub fn key_at(&self) -> usize {
        usize::from(self.bytes)
    }

    /// Where the value begins, from the element's start.
    pub fn value_at(&self) -> usize {
        usize::from(self.bytes) + self.key_len as usize
    }

    /// Reads the header at the start of `bytes`, which need not hold all of the key and the value.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<ElementHeader, BadElement> {
        let flags = *bytes.first().ok_or(BadElement::Cut)?;
        if flags & !KNOWN != 0 {
            return Err(BadElement::Flags(flags));
        }
        let mut at = 1;
        let key_len = varint(bytes, &mut at)?;
        let value_len = varint(bytes, &mut at)?;
        let time = fixed::<7>(bytes, &mut at)?;
        let mut expiry = 0;
        if flags & EXPIRY != 0 {
            expiry = fixed::<5>(bytes, &mut at)?;
            if expiry == 0 {
                return Err(BadElement::Expiry);
            }
        }
        if key_len == 0 || key_len as usize > MAX_KEY || value_len as usize > MAX_VALUE {
            return Err(BadElement::Length);
        }
        if !goes_together(flags, value_len as usize) {
            return Err(BadElement::Flags(flags));
        }
        Ok(ElementHeader {
            flags,
            bytes: at as u8,
            key_len,
            value_len,
            time,
            expiry,
        })
    }
}

/// A tombstone has no value. The value field of a large element is a reference.
fn goes_together(flags: u8, value_len: usize) -> bool {
    match flags & (TOMBSTONE | LARGE) {
        0 => true,
        TOMBSTONE => value_len == 0,
        LARGE => value_len == ExtentRef::BYTES,
        _ => false,
    }
}

/// A number of up to 32 bits in LEB128, written in the shortest way.
#[inline]
fn varint(bytes: &[u8], at: &mut usize) -> Result<u32, BadElement> {
    let mut value = 0u64;
    for nth in 0..5 {
        let byte = *bytes.get(*at).ok_or(BadElement::Cut)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            // A last byte of 0 adds nothing: the number has a shorter form.
            if byte == 0 && nth > 0 {
                return Err(BadElement::Length);
            }
            return u32::try_from(value).map_err(|_| BadElement::Length);
        }
    }
    Err(BadElement::Length)
}

#[inline]
fn fixed<const N: usize>(bytes: &[u8], at: &mut usize) -> Result<u64, BadElement> {
    let from = bytes.get(*at..*at + N).ok_or(BadElement::Cut)?;
    let mut word = [0; 8];
    word[..N].copy_from_slice(from);
    *at += N;
    Ok(u64::from_le_bytes(word))
}

/// Bytes that a length takes.
fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn put_varint(mut value: usize, to: &mut [u8], at: &mut usize) {
    while value >= 0x80 {
        to[*at] = value as u8 | 0x80;
        *at += 1;
        value >>= 7;
    }
    to[*at] = value as u8;
    *at += 1;
}

impl<'a> Element<'a> {
    pub fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }

    /// Whether the value lies in its own extent.
    pub fn is_large(&self) -> bool {
        self.flags & LARGE != 0
    }

    /// Whether the element has expired at this Unix second.
    pub fn expired(&self, now_seconds: u64) -> bool {
        self.expiry != 0 && now_seconds >= self.expiry
    }

    /// The element without its value, for use after its expiry. It only says that the key had a
    /// value, from its time until its expiry. A tombstone with an expiry means the same.
    pub(crate) fn ended(&self) -> Element<'a> {
        Element {
            flags: TOMBSTONE,
            value: &[],
            ..*self
        }
    }

    /// The flags as they are written.
    pub(crate) fn stored_flags(&self) -> u8 {
        let expiry = if self.expiry == 0 { 0 } else { EXPIRY };
        (self.flags & !EXPIRY) | expiry
    }

    /// Whether [`Element::decode`] would take what [`Element::encode`] writes.
    pub fn is_valid(&self) -> bool {
        let flags = self.stored_flags();
        flags & !KNOWN == 0
            && (1..=MAX_KEY).contains(&self.key.len())
            && self.value.len() <= MAX_VALUE
            && goes_together(flags, self.value.len())
            && self.time < END_OF_TIME
            && self.expiry < END_OF_EXPIRY
    }

    /// Bytes before the key.
    pub(crate) fn header_len(&self) -> usize {
        let expiry = if self.expiry == 0 { 0 } else { 5 };
        1 + varint_len(self.key.len()) + varint_len(self.value.len()) + 7 + expiry
    }

    /// Bytes that the element takes.
    pub fn encoded_len(&self) -> usize {
        self.header_len() + self.key.len() + self.value.len()
    }

    /// The bytes before the key, and their number.
    pub(crate) fn header(&self, flags: u8) -> ([u8; MAX_HEADER], usize) {
        debug_assert!(self.is_valid(), "an element that can be read again");
        let mut to = [0; MAX_HEADER];
        to[0] = flags;
        let mut at = 1;
        put_varint(self.key.len(), &mut to, &mut at);
        put_varint(self.value.len(), &mut to, &mut at);
        to[at..at + 7].copy_from_slice(&self.time.to_le_bytes()[..7]);
        at += 7;
        if self.expiry != 0 {
            to[at..at + 5].copy_from_slice(&self.expiry.to_le_bytes()[..5]);
            at += 5;
        }
        (to, at)
    }

    /// Appends the element's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (header, len) = self.header(self.stored_flags());
        out.extend_from_slice(&header[..len]);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }

    /// The element at the start of `bytes`, and how many of them it takes.
    pub fn decode(bytes: &'a [u8]) -> Result<(Element<'a>, usize), BadElement> {
        let header = ElementHeader::decode(bytes)?;
        let len = header.element_len();
        let body = bytes
            .get(header.key_at()..len)
            .ok_or(BadElement::Cut)?
            .split_at(header.key_len as usize);
        Ok((Element::of(&header, body.0, body.1), len))
    }

    /// The element at the start of bytes that this program has encoded.
    pub(crate) fn of_encoded(bytes: &'a [u8]) -> Element<'a> {
        let (element, _) = Element::decode(bytes).expect("what was encoded can be decoded");
        element
    }

    /// The element with this header, after its key and value were found.
    pub(crate) fn of(header: &ElementHeader, key: &'a [u8], value: &'a [u8]) -> Element<'a> {
        Element {
            flags: header.flags,
            key,
            value,
            time: header.time,
            expiry: header.expiry,
        }
    }
}

/// Where a value that has its own extent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRef {
    /// The pages of the device.
    pub extent: Extent,
    /// Bytes of the value.
    pub bytes: u64,
    /// CRC-32C of the value.
    pub crc: u32,
}

impl ExtentRef {
    /// Bytes of a reference.
    pub const BYTES: usize = 24;

    pub fn encode(&self) -> [u8; ExtentRef::BYTES] {
        let mut to = [0; ExtentRef::BYTES];
        to[..8].copy_from_slice(&self.extent.first.to_le_bytes());
        to[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        to[16..20].copy_from_slice(&self.extent.pages.to_le_bytes());
        to[20..].copy_from_slice(&self.crc.to_le_bytes());
        to
    }

    /// The reference in the value field of a [`LARGE`] element. `None` if the field is not a valid
    /// reference: it has no pages, the value does not fit into them, or they are beyond the end of
    /// any device.
    pub fn decode(from: &[u8]) -> Option<ExtentRef> {
        let from: &[u8; ExtentRef::BYTES] = from.try_into().ok()?;
        let extent = Extent::new(u64_at(from, 0), u32_at(from, 16));
        let bytes = u64_at(from, 8);
        let room = u64::from(extent.pages) * senko_io::PAGE_SIZE as u64;
        let there = extent.lies_within(u64::MAX / senko_io::PAGE_SIZE as u64);
        (bytes <= room && bytes <= MAX_VALUE as u64 && there && bytes > 0).then_some(ExtentRef {
            extent,
            bytes,
            crc: u32_at(from, 20),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(element: &Element<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        element.encode(&mut bytes);
        assert_eq!(bytes.len(), element.encoded_len());
        bytes
    }

    /// The bytes that `docs/formats/store.md` shows.
    #[test]
    fn layout() {
        let element = Element {
            flags: MORE,
            key: b"key",
            value: &[0xaa; 300],
            time: 0x01_0203_0405_0607,
            expiry: 0x11_1213_1415,
        };
        let bytes = encoded(&element);
        assert_eq!(bytes[0], EXPIRY | MORE);
        assert_eq!(bytes[1], 3);
        assert_eq!(bytes[2..4], [0xac, 0x02]);
        assert_eq!(bytes[4..11], [7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[11..16], [0x15, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(&bytes[16..19], b"key");
        assert_eq!(bytes.len(), 19 + 300);
        let short = Element {
            flags: 0,
            key: &[1; 8],
            value: &[2; 1000],
            time: 1,
            expiry: 0,
        };
        assert_eq!(short.encoded_len(), 11 + 1008);
        assert!(16 + 4 * short.encoded_len() <= 4096);
        assert_eq!(MAX_HEADER, 21);
        let reference = ExtentRef {
            extent: Extent::new(0x0102, 16),
            bytes: 0x0304,
            crc: 0x0506_0708,
        };
        let bytes = reference.encode();
        assert_eq!(bytes[..2], [2, 1]);
        assert_eq!(bytes[8..10], [4, 3]);
        assert_eq!(bytes[16], 16);
        assert_eq!(bytes[20..], [8, 7, 6, 5]);
        assert_eq!(ExtentRef::decode(&bytes), Some(reference));
    }

    proptest! {
        #[test]
        fn comes_back(
            flags in 0u8..16,
            key in prop::collection::vec(any::<u8>(), 1..300),
            value in prop::collection::vec(any::<u8>(), 0..20_000),
            time in 0..END_OF_TIME,
            expiry in prop_oneof![Just(0), 1..END_OF_EXPIRY],
        ) {
            let flags = flags & !(EXPIRY | if value.len() == 24 { TOMBSTONE } else { LARGE });
            let value = if flags & TOMBSTONE != 0 { &[][..] } else { &value };
            let flags = flags | if expiry == 0 { 0 } else { EXPIRY };
            let element = Element { flags, key: &key, value, time, expiry };
            prop_assert!(element.is_valid());
            let mut bytes = encoded(&element);
            let len = bytes.len();
            for cut in (0..len.min(40)).chain(len.saturating_sub(3)..len) {
                prop_assert_eq!(Element::decode(&bytes[..cut]), Err(BadElement::Cut));
            }
            bytes.push(0xff);
            prop_assert_eq!(Element::decode(&bytes), Ok((element, len)));
        }

        #[test]
        fn one_encoding(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok((element, len)) = Element::decode(&bytes) {
                prop_assert!(element.is_valid());
                prop_assert_eq!(encoded(&element), &bytes[..len]);
            }
        }
    }

    #[test]
    fn what_is_refused() {
        let good = encoded(&Element {
            flags: 0,
            key: b"k",
            value: b"v",
            time: 5,
            expiry: 0,
        });
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Element::decode(&bytes).map(|(_, len)| len)
        };
        assert_eq!(changed(0, 16), Err(BadElement::Flags(16)));
        assert_eq!(changed(0, TOMBSTONE), Err(BadElement::Flags(TOMBSTONE)));
        assert_eq!(changed(0, LARGE), Err(BadElement::Flags(LARGE)));
        assert_eq!(changed(1, 0), Err(BadElement::Length));
        assert_eq!(changed(2, 0x80), Err(BadElement::Cut));
        let mut zero_expiry = good.clone();
        zero_expiry[0] = EXPIRY;
        zero_expiry.extend([0; 5]);
        zero_expiry[10..15].fill(0);
        assert_eq!(Element::decode(&zero_expiry), Err(BadElement::Expiry));
        let long = [0, 0x81, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Element::decode(&long), Err(BadElement::Length));
        assert_eq!(ExtentRef::decode(&[0; 24]), None);
        assert_eq!(ExtentRef::decode(&[0xff; 24]), None);
    }

    #[test]
    fn expiry_is_the_first_second_without_it() {
        let element = Element {
            flags: 0,
            key: b"k",
            value: b"",
            time: 1,
            expiry: 100,
        };
        assert!(!element.expired(99) && element.expired(100));
    }
}
