// SPDX-License-Identifier: Apache-2.0
//! The one format of an item, in DRAM and on flash: a header, then the complete answer of a `get`.
//!
//! Paper B, section 3.3, stores `VALUE ... END` on flash so that an answer needs no formatting. A
//! record is a 32-byte header and that answer. DRAM holds the same bytes. So demotion, promotion
//! and reinsertion are plain copies, and so is a DRAM hit. `docs/formats/flash.md` has the table.
//!
//! ```text
//!  0      4      8         16     20    24        28  29     30    32
//!  | crc  | hcrc |   cas   | exp  |flags|value_len|kl |marks |atime| VALUE key flags n\r\n data \r\nEND\r\n
//!   \_____ header, little-endian ________________________________/ \____ the answer, as it is sent ________/
//! ```
//!
//! `crc` covers everything after it. `hcrc` covers header and key. The seed of `hcrc` is the
//! *generation* of the place: the number of the region, which never repeats. So header and key can
//! be trusted before the value was read, and a record of an earlier lap is never taken for a
//! current one. Both are 0 in DRAM.
//!
//! Always holds: the length of a record follows from its header alone ([`Header::record_len`]).

/// Bytes of a record's header, before the answer.
pub const RECORD_HEADER: usize = 32;

/// The text between the header and the key.
pub(crate) const VALUE_WORD: &[u8; 6] = b"VALUE ";

/// The end of an answer: the data block's line end, and `END`.
pub(crate) const TRAILER: &[u8; 7] = b"\r\nEND\r\n";

/// Offset of the key in a record.
pub(crate) const KEY_AT: usize = RECORD_HEADER + VALUE_WORD.len();

/// Longest possible part of a record before the value: header, `VALUE `, key, flags, length.
pub(crate) const MAX_PREFIX: usize = KEY_AT + 250 + 1 + 10 + 1 + 10 + 2;

/// Records start at multiples of this within a page.
pub(crate) const RECORD_ALIGN: usize = 8;

pub(crate) const FETCHED: u8 = 1;
const STALE: u8 = 2;
const WON: u8 = 4;
const BINARY_KEY: u8 = 8;

/// On flash, the last access is counted in units of this many seconds, modulo 2^16 (48 days).
const ACCESS_UNIT: u32 = 64;

/// The metadata of an item besides key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// CAS value of the last change.
    pub cas: u64,
    pub flags: u32,
    /// Expiry in Unix seconds; 0: never.
    pub expiry: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// Bytes of the key.
    pub key_len: u8,
    /// Whether the item was read since it was stored.
    pub fetched: bool,
    /// Whether a meta delete with invalidation marked it stale.
    pub stale: bool,
    /// Whether a recache token was handed out (meta W/Z flags).
    pub won: bool,
    /// Whether the key was stored base64-encoded (meta `b` flag).
    pub binary_key: bool,
    /// Unix seconds of the last access; for a flash item in steps of 64 s.
    pub last_access: u32,
}

/// A record's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub crc: u32,
    pub head_crc: u32,
    pub cas: u64,
    pub expiry: u32,
    pub flags: u32,
    pub value_len: u32,
    pub key_len: u8,
    pub marks: u8,
    pub access: u16,
}

/// Decimal digits of `n`.
#[inline]
pub(crate) fn digits(n: u32) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Bytes of a record before its value.
#[inline]
pub(crate) fn prefix_len(key_len: usize, flags: u32, value_len: u32) -> usize {
    KEY_AT + key_len + 1 + digits(flags) + 1 + digits(value_len) + 2
}

/// Bytes of a whole record.
#[inline]
pub(crate) fn record_len(key_len: usize, flags: u32, value_len: u32) -> usize {
    prefix_len(key_len, flags, value_len) + value_len as usize + TRAILER.len()
}

impl Header {
    /// Decodes the first 32 bytes.
    #[inline]
    pub fn read(b: &[u8]) -> Header {
        let b: &[u8; RECORD_HEADER] = b[..RECORD_HEADER].try_into().expect("a slice of 32 bytes");
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        Header {
            crc: u32_at(0),
            head_crc: u32_at(4),
            cas: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            expiry: u32_at(16),
            flags: u32_at(20),
            value_len: u32_at(24),
            key_len: b[28],
            marks: b[29],
            access: u16::from_le_bytes([b[30], b[31]]),
        }
    }

    /// Encodes into the first 32 bytes.
    #[inline]
    pub fn write(&self, b: &mut [u8]) {
        let b: &mut [u8; RECORD_HEADER] = (&mut b[..RECORD_HEADER])
            .try_into()
            .expect("a slice of 32 bytes");
        b[0..4].copy_from_slice(&self.crc.to_le_bytes());
        b[4..8].copy_from_slice(&self.head_crc.to_le_bytes());
        b[8..16].copy_from_slice(&self.cas.to_le_bytes());
        b[16..20].copy_from_slice(&self.expiry.to_le_bytes());
        b[20..24].copy_from_slice(&self.flags.to_le_bytes());
        b[24..28].copy_from_slice(&self.value_len.to_le_bytes());
        b[28] = self.key_len;
        b[29] = self.marks;
        b[30..32].copy_from_slice(&self.access.to_le_bytes());
    }

    /// Bytes of the record before its value.
    #[inline]
    pub fn prefix_len(&self) -> usize {
        prefix_len(self.key_len as usize, self.flags, self.value_len)
    }

    /// Bytes of the whole record.
    #[inline]
    pub fn record_len(&self) -> usize {
        record_len(self.key_len as usize, self.flags, self.value_len)
    }

    /// The metadata, with the last access from the caller. DRAM keeps it exactly, outside the
    /// record.
    pub fn meta(&self, last_access: u32) -> Meta {
        Meta {
            cas: self.cas,
            flags: self.flags,
            expiry: self.expiry,
            value_len: self.value_len,
            key_len: self.key_len,
            fetched: self.marks & FETCHED != 0,
            stale: self.marks & STALE != 0,
            won: self.marks & WON != 0,
            binary_key: self.marks & BINARY_KEY != 0,
            last_access,
        }
    }

    /// Sets the marks from their parts.
    pub fn set_marks(&mut self, fetched: bool, stale: bool, won: bool, binary_key: bool) {
        self.marks = if fetched { FETCHED } else { 0 }
            | if stale { STALE } else { 0 }
            | if won { WON } else { 0 }
            | if binary_key { BINARY_KEY } else { 0 };
    }

    /// Whether the item was read since it was stored.
    #[inline]
    pub fn fetched(&self) -> bool {
        self.marks & FETCHED != 0
    }
}

/// Sets the fetched mark in an encoded header.
#[inline]
pub(crate) fn mark_fetched(b: &mut [u8]) {
    b[29] |= FETCHED;
}

/// Writes everything of a record before its value; returns where the value starts.
pub(crate) fn write_prefix(b: &mut [u8], header: &Header, key: &[u8]) -> usize {
    header.write(b);
    let mut at = RECORD_HEADER;
    let mut put = |bytes: &[u8]| {
        b[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(VALUE_WORD);
    put(key);
    put(b" ");
    let mut text = [0; 10];
    put(decimal(header.flags, &mut text));
    put(b" ");
    put(decimal(header.value_len, &mut text));
    put(b"\r\n");
    at
}

/// `n` in decimal.
pub(crate) fn decimal(mut n: u32, text: &mut [u8; 10]) -> &[u8] {
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &text[at..];
        }
    }
}

/// The flash form of a last access.
pub(crate) fn coarse_access(unix_seconds: u32) -> u16 {
    (unix_seconds / ACCESS_UNIT) as u16
}

/// The latest second not after `now` that has this flash form.
pub(crate) fn exact_access(coarse: u16, now: u32) -> u32 {
    let back = coarse_access(now).wrapping_sub(coarse);
    (now - now % ACCESS_UNIT).saturating_sub(u32::from(back) * ACCESS_UNIT)
}

/// Whether `now` has reached `expiry` (0: never).
#[inline]
pub(crate) fn expired(expiry: u32, now: u32) -> bool {
    expiry != 0 && expiry <= now
}

/// The content at one place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// A record with a plausible header; its checksum is not verified.
    Record(Header),
    /// The page has no more records.
    End,
    /// Neither: the page is damaged.
    Damaged,
}

/// Where the next record begins in the first page of a run, from `at` on. Bytes between records are
/// zero. It is the end of the page if there is no record. (A record whose two checksums are both 0,
/// one in 2^64, is not found.)
#[inline]
pub(crate) fn skip_gap(run: &[u8], at: usize, page: usize) -> usize {
    run[at..page]
        .chunks_exact(RECORD_ALIGN)
        .position(|word| word != [0; RECORD_ALIGN])
        .map_or(page, |words| at + words * RECORD_ALIGN)
}

/// Reads what is at offset `at` of a run of pages that starts on a page boundary. A record may
/// reach beyond the first page, but not its header and key.
pub(crate) fn peek(run: &[u8], at: usize, page: usize) -> At {
    if at + KEY_AT + 1 > page {
        return At::End;
    }
    let header = Header::read(&run[at..]);
    if header.key_len == 0 {
        return if run[at..at + RECORD_HEADER].iter().all(|&b| b == 0) {
            At::End
        } else {
            At::Damaged
        };
    }
    if at + header.prefix_len() > page || &run[at + RECORD_HEADER..at + KEY_AT] != VALUE_WORD {
        return At::Damaged;
    }
    At::Record(header)
}

/// The key of the record at an offset.
#[inline]
pub(crate) fn key_at<'a>(run: &'a [u8], at: usize, header: &Header) -> &'a [u8] {
    &run[at + KEY_AT..at + KEY_AT + header.key_len as usize]
}

/// The header that a record has on flash, without its checksum; `text` is what comes between header
/// and value.
pub(crate) fn flash_head(header: &Header, generation: u32, text: &[u8]) -> [u8; RECORD_HEADER] {
    let mut bytes = [0; RECORD_HEADER];
    header.write(&mut bytes);
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(generation, &bytes[8..]), text);
    bytes[0..4].fill(0);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Whether header and key of a record are intact and were written at a place with this generation.
pub(crate) fn head_intact(record: &[u8], header: &Header, generation: u32) -> bool {
    crc32c::crc32c_append(generation, &record[8..header.prefix_len()]) == header.head_crc
}

/// Offset of the record after a record of `len` bytes at `at`.
#[inline]
pub(crate) fn next_offset(at: usize, len: usize) -> usize {
    (at + len).next_multiple_of(RECORD_ALIGN)
}

/// Checks a complete record: its checksum, and that the fixed texts are where the header says.
pub(crate) fn intact(record: &[u8]) -> bool {
    if record.len() < RECORD_HEADER {
        return false;
    }
    let header = Header::read(record);
    record.len() == header.record_len() && crc32c::crc32c(&record[4..]) == header.crc
}

/// Writes the checksum of a complete record.
#[cfg(test)]
fn seal(record: &mut [u8]) {
    let crc = crc32c::crc32c(&record[4..]);
    record[0..4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_where_the_format_document_says() {
        let h = Header {
            crc: 0x0403_0201,
            head_crc: 0x0807_0605,
            cas: 0x100f_0e0d_0c0b_0a09,
            expiry: 0x1413_1211,
            flags: 0x1817_1615,
            value_len: 0x1c1b_1a19,
            key_len: 0x1d,
            marks: 0x1e,
            access: 0x201f,
        };
        let mut b = [0; RECORD_HEADER];
        h.write(&mut b);
        assert_eq!(b.to_vec(), (1..=32).collect::<Vec<u8>>());
        assert_eq!(Header::read(&b), h);
    }

    #[test]
    fn a_record_is_the_answer_of_a_get() {
        let mut h = Header::read(&[0; 32]);
        (h.flags, h.value_len, h.key_len) = (42, 5, 3);
        let mut b = vec![0; h.record_len()];
        let at = write_prefix(&mut b, &h, b"foo");
        assert_eq!(at, h.prefix_len());
        b[at..at + 5].copy_from_slice(b"hello");
        b[at + 5..].copy_from_slice(TRAILER);
        seal(&mut b);
        assert_eq!(&b[RECORD_HEADER..], b"VALUE foo 42 5\r\nhello\r\nEND\r\n");
        assert!(intact(&b));
        for bit in 0..b.len() * 8 {
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(!intact(&b), "bit {bit} flipped unseen");
            b[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn lengths_follow_the_digits() {
        for n in [0, 1, 9, 10, 99, 100, 999_999_999, 1_000_000_000, u32::MAX] {
            assert_eq!(digits(n), n.to_string().len());
            assert_eq!(decimal(n, &mut [0; 10]), n.to_string().as_bytes());
        }
    }

    #[test]
    fn coarse_last_access_comes_back_within_its_unit() {
        for now in [64_u32, 1_000_000, 1_700_000_000] {
            for ago in [0, 1, 63, 64, 1000, 4_000_000] {
                let then = now.saturating_sub(ago);
                let back = exact_access(coarse_access(then), now);
                assert!(
                    back <= now && then.abs_diff(back) < 2 * ACCESS_UNIT,
                    "{now} {ago} {back}"
                );
            }
        }
    }
}
