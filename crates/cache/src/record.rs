// SPDX-License-Identifier: Apache-2.0
//! The one format of an item, in DRAM and on flash: a head, then key and value, or the complete
//! answer of a `get`.
//!
//! ```text
//!  0    1     2       4          6     12     16      20
//!  | kl | bits| atime | value_len| cas | exp? | flags? | key value                              packed
//!  | kl | bits| atime | value_len      | cas   | exp    | flags  | VALUE key flags n\r\n data \r\nEND\r\n   answer
//! ```
//!
//! A value of at most [`PACKED_VALUE`] bytes makes a *packed* record. Its head has an expiry, flags
//! and a long CAS value only where they are needed. The text around the value is written with each
//! answer. A larger value makes an *answer* record, which stores its answer as it is sent
//! (paper B, section 3.3).
//!
//! On flash, one or two checksums stand between head and body; DRAM has the same bytes without
//! them. So demotion, promotion and reinsertion are plain copies. `docs/formats/flash.md` has the
//! tables. The checksum of a packed record covers all of it. An answer record has one for head and
//! key, so that these can be trusted before the value was read, and one for everything. The seed of
//! the first checksum is the *generation* of the place: the number of the region, which never
//! repeats. So a record of an earlier lap is never taken for a current one. An answer record longer
//! than [`PIECE`] has a checksum for each piece instead of the one for everything
//! (`record/pieces.rs`).
//!
//! Always holds: the length of a record follows from its head alone ([`Header::flash_len`]).

mod pieces; // the checksums of a large record on flash

use std::borrow::Cow;

use senko_io::PAGE_SIZE;
use senko_io::le::{u16_at, u32_at, u64_at};

use crate::key::MAX_KEY;

pub(crate) use pieces::{PIECE, Pieces, Seal, piece_intact, set_sum};

/// Bytes of the largest value of a packed record.
pub const PACKED_VALUE: u32 = 1024;

/// Bytes before the answer of an answer record on flash: head and checksums.
pub const RECORD_HEADER: usize = ANSWER_HEAD + ANSWER_SUMS;

/// Bytes of the head of an answer record.
pub(crate) const ANSWER_HEAD: usize = 24;

/// Bytes of its checksums.
pub(crate) const ANSWER_SUMS: usize = 8;

/// Bytes of the checksum of a packed record.
const PACKED_SUM: usize = 4;

/// Bytes of the shortest head.
pub(crate) const LEAST_HEAD: usize = 12;

/// The text between the head and the key of an answer record.
const VALUE_WORD: &[u8; 6] = b"VALUE ";

/// The end of an answer: the data block's line end, and `END`.
pub(crate) const TRAILER: &[u8; 7] = b"\r\nEND\r\n";

/// Longest possible part of a record in DRAM before the value.
pub(crate) const MAX_PREFIX: usize = ANSWER_HEAD + VALUE_WORD.len() + 250 + 1 + 10 + 1 + 10 + 2;

/// Records start at multiples of this within a page.
pub(crate) const RECORD_ALIGN: usize = 4;

/// The first byte of a page in which a record of an earlier page ends. No key is so long.
const MARK: u8 = 255;

/// Where the fields are that every head has.
const BITS: usize = 1;
pub(crate) const ACCESS: usize = 2;
const VALUE_LEN: usize = 4;

pub(crate) const FETCHED: u8 = 1;
const STALE: u8 = 2;
const WON: u8 = 4;
const BINARY_KEY: u8 = 8;
const MARKS: u8 = FETCHED | STALE | WON | BINARY_KEY;
/// The head of a packed record has these fields; of CAS values, eight bytes instead of six.
const EXPIRY: u8 = 16;
const FLAGS: u8 = 32;
const LONG_CAS: u8 = 64;
const ANSWER: u8 = 128;

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

/// A record's head, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub cas: u64,
    pub expiry: u32,
    pub flags: u32,
    pub value_len: u32,
    pub key_len: u8,
    /// The last access in coarse units. In DRAM, how many flushes happened before the item was
    /// stored.
    pub access: u16,
    bits: u8,
}

/// Decimal digits of `n`.
#[inline]
fn digits(n: u32) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Bytes of a head with these bits.
#[inline]
pub(crate) fn head_len(bits: u8) -> usize {
    const LENS: [u8; 16] = {
        let mut lens = [ANSWER_HEAD as u8; 16];
        let mut n = 0;
        while n < 8 {
            lens[n] = (LEAST_HEAD + 4 * (n & 1) + 4 * (n >> 1 & 1) + 2 * (n >> 2)) as u8;
            n += 1;
        }
        lens
    };
    LENS[usize::from(bits >> 4)] as usize
}

/// Offset of the key in a record in DRAM that begins with these bytes.
#[inline]
pub(crate) fn key_offset(bits: u8) -> usize {
    let text = if bits & ANSWER == 0 {
        0
    } else {
        VALUE_WORD.len()
    };
    head_len(bits) + text
}

/// The bits of a head that begins with these bytes.
#[inline]
pub(crate) fn bits_of(head: &[u8]) -> u8 {
    head[BITS]
}

/// Whether an item with this head has expired or is not of this epoch.
#[inline]
pub(crate) fn is_dead(head: &[u8; ANSWER_HEAD], epoch: u16, now: u32) -> bool {
    let expiry = match head[BITS] & (ANSWER | LONG_CAS | EXPIRY) {
        EXPIRY => u32_at(head, 12),
        bits if bits & ANSWER != 0 => u32_at(head, 16),
        bits if bits & EXPIRY != 0 => u32_at(head, 14),
        _ => 0,
    };
    u16_at(head, ACCESS) != epoch || expired(expiry, now)
}

impl Header {
    /// The head of a new record.
    #[inline]
    pub fn new(key_len: u8, value_len: u32, flags: u32, expiry: u32, cas: u64) -> Header {
        let mut header = Header {
            cas,
            expiry,
            flags,
            value_len,
            key_len,
            access: 0,
            bits: if value_len > PACKED_VALUE { ANSWER } else { 0 },
        };
        header.widen();
        header
    }

    /// The head of a new record of an item with this metadata.
    pub fn of(meta: &Meta) -> Header {
        Header::new(
            meta.key_len,
            meta.value_len,
            meta.flags,
            meta.expiry,
            meta.cas,
        )
    }

    /// Gives the head the fields that its values need. It keeps those that it has.
    #[inline]
    pub fn widen(&mut self) {
        if self.bits & ANSWER == 0 {
            self.bits |= if self.expiry != 0 { EXPIRY } else { 0 }
                | if self.flags != 0 { FLAGS } else { 0 }
                | if self.cas >> 48 != 0 { LONG_CAS } else { 0 };
        }
    }

    /// The head of the same item with a value of another length, and room for this CAS value.
    pub fn with_value(&self, value_len: u32, cas: u64) -> Header {
        let mut made = Header::new(self.key_len, value_len, self.flags, self.expiry, cas);
        if self.bits & EXPIRY != 0 {
            made.reserve_expiry();
        }
        made
    }

    /// The same head with room for an expiry and a CAS value.
    pub fn with_room(&self, expiry: u32, cas: u64) -> Header {
        let mut made = Header {
            expiry,
            cas,
            ..*self
        };
        made.widen();
        Header {
            bits: made.bits,
            ..*self
        }
    }

    /// The greatest CAS value for which the head has room.
    pub fn cas_room(&self) -> u64 {
        if self.bits & (LONG_CAS | ANSWER) == 0 {
            (1 << 48) - 1
        } else {
            u64::MAX
        }
    }

    /// Whether the head has room for a CAS value.
    pub fn takes_cas(&self, cas: u64) -> bool {
        cas <= self.cas_room()
    }

    /// Gives the head room for an expiry.
    #[inline]
    pub fn reserve_expiry(&mut self) {
        if self.bits & ANSWER == 0 {
            self.bits |= EXPIRY;
        }
    }

    /// Decodes a head from the bytes that begin with it.
    #[inline]
    pub fn read(b: &[u8]) -> Header {
        match b.first_chunk() {
            Some(head) => Header::decode(head),
            None => {
                let mut head = [0; ANSWER_HEAD];
                head[..b.len()].copy_from_slice(b);
                Header::decode(&head)
            }
        }
    }

    /// Decodes a head. Bytes after a shorter one do not count.
    #[inline]
    pub fn decode(b: &[u8; ANSWER_HEAD]) -> Header {
        let bits = b[BITS];
        let mut header = Header {
            cas: u64::from(u16_at(b, 6)) | u64::from(u32_at(b, 8)) << 16,
            expiry: 0,
            flags: 0,
            value_len: u32::from(u16_at(b, VALUE_LEN)),
            key_len: b[0],
            access: u16_at(b, ACCESS),
            bits,
        };
        if bits & ANSWER != 0 {
            header.value_len = u32_at(b, VALUE_LEN);
            header.cas = u64_at(b, 8);
            header.expiry = u32_at(b, 16);
            header.flags = u32_at(b, 20);
        } else if bits & (EXPIRY | FLAGS | LONG_CAS) != 0 {
            let mut at = LEAST_HEAD;
            if bits & LONG_CAS != 0 {
                header.cas |= u64::from(u16_at(b, at)) << 48;
                at += 2;
            }
            if bits & EXPIRY != 0 {
                header.expiry = u32_at(b, at);
                at += 4;
            }
            if bits & FLAGS != 0 {
                header.flags = u32_at(b, at);
            }
        }
        header
    }

    /// Encodes the head into the bytes that begin with it.
    #[inline]
    pub fn write(&self, b: &mut [u8]) {
        let b = &mut b[..self.head_len()];
        b[0] = self.key_len;
        b[BITS] = self.bits;
        set(b, ACCESS, self.access.to_le_bytes());
        if self.bits & ANSWER == 0 {
            set(b, VALUE_LEN, (self.value_len as u16).to_le_bytes());
            set(b, 6, (self.cas as u16).to_le_bytes());
            set(b, 8, ((self.cas >> 16) as u32).to_le_bytes());
            let mut at = LEAST_HEAD;
            if self.bits & LONG_CAS != 0 {
                set(b, at, ((self.cas >> 48) as u16).to_le_bytes());
                at += 2;
            }
            if self.bits & EXPIRY != 0 {
                set(b, at, self.expiry.to_le_bytes());
                at += 4;
            }
            if self.bits & FLAGS != 0 {
                set(b, at, self.flags.to_le_bytes());
            }
        } else {
            set(b, VALUE_LEN, self.value_len.to_le_bytes());
            set(b, 8, self.cas.to_le_bytes());
            set(b, 16, self.expiry.to_le_bytes());
            set(b, 20, self.flags.to_le_bytes());
        }
    }

    /// Whether the record stores its complete answer.
    #[inline]
    pub fn has_answer(&self) -> bool {
        self.bits & ANSWER != 0
    }

    /// Bytes of the head.
    #[inline]
    pub fn head_len(&self) -> usize {
        head_len(self.bits)
    }

    /// Bytes between the head and the value, without checksums.
    #[inline]
    fn text_len(&self) -> usize {
        let key = self.key_len as usize;
        if self.has_answer() {
            VALUE_WORD.len() + key + 1 + digits(self.flags) + 1 + digits(self.value_len) + 2
        } else {
            key
        }
    }

    /// Bytes of the checksums on flash.
    #[inline]
    pub fn sums_len(&self) -> usize {
        if self.has_answer() {
            ANSWER_SUMS
        } else {
            PACKED_SUM
        }
    }

    /// Bytes of the record before its value, in DRAM.
    #[inline]
    pub fn dram_prefix(&self) -> usize {
        self.head_len() + self.text_len()
    }

    /// Bytes of the whole record in DRAM.
    #[inline]
    pub fn dram_len(&self) -> usize {
        let end = if self.has_answer() { TRAILER.len() } else { 0 };
        self.dram_prefix() + self.value_len as usize + end
    }

    /// Offset of the first byte after the head and checksums, on flash.
    #[inline]
    pub fn flash_body(&self) -> usize {
        self.head_len() + self.sums_len()
    }

    /// Bytes of the record before its value, on flash.
    #[inline]
    pub fn flash_prefix(&self) -> usize {
        self.dram_prefix() + self.sums_len()
    }

    /// Bytes of the whole record on flash without the checksums of its pieces.
    #[inline]
    pub fn bare_len(&self) -> usize {
        self.dram_len() + self.sums_len()
    }

    /// The pieces of the record on flash, if it has pieces.
    #[inline]
    pub fn pieces(&self) -> Option<Pieces> {
        Pieces::of(self.bare_len())
    }

    /// Bytes of the whole record on flash.
    #[inline]
    pub fn flash_len(&self) -> usize {
        match self.pieces() {
            None => self.bare_len(),
            Some(pieces) => pieces.flash_len(),
        }
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
            fetched: self.bits & FETCHED != 0,
            stale: self.bits & STALE != 0,
            won: self.bits & WON != 0,
            binary_key: self.bits & BINARY_KEY != 0,
            last_access,
        }
    }

    /// The marks, as they are in the head.
    pub fn marks(&self) -> u8 {
        self.bits & MARKS
    }

    /// Sets the marks from their parts.
    pub fn set_marks(&mut self, fetched: bool, stale: bool, won: bool, binary_key: bool) {
        self.bits = self.bits & !MARKS
            | if fetched { FETCHED } else { 0 }
            | if stale { STALE } else { 0 }
            | if won { WON } else { 0 }
            | if binary_key { BINARY_KEY } else { 0 };
    }

    /// Whether the item was read since it was stored.
    #[inline]
    pub fn fetched(&self) -> bool {
        self.bits & FETCHED != 0
    }
}

fn set<const N: usize>(b: &mut [u8], at: usize, bytes: [u8; N]) {
    b[at..at + N].copy_from_slice(&bytes);
}

/// Sets the fetched mark in an encoded head.
#[inline]
pub(crate) fn mark_fetched(b: &mut [u8]) {
    b[BITS] |= FETCHED;
}

/// Writes everything of a record in DRAM before its value; returns where the value starts.
pub(crate) fn write_prefix(b: &mut [u8], header: &Header, key: &[u8]) -> usize {
    header.write(b);
    let mut at = header.head_len();
    let mut put = |bytes: &[u8]| {
        b[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    if header.has_answer() {
        put(VALUE_WORD);
    }
    put(key);
    if header.has_answer() {
        let mut text = [0; 10];
        put(b" ");
        put(decimal(header.flags, &mut text));
        put(b" ");
        put(decimal(header.value_len, &mut text));
        put(b"\r\n");
    }
    at
}

/// Appends the answer of a `get` of one key, and `END\r\n` if `end`.
#[inline]
pub fn push_answer(out: &mut Vec<u8>, key: &[u8], flags: u32, value: &[u8], end: bool) {
    out.reserve(key.len() + value.len() + 48);
    out.extend_from_slice(VALUE_WORD);
    out.extend_from_slice(key);
    if flags == 0 {
        // One store of fixed length is faster than several copies.
        let (mut text, mut n, end) = (
            *b" 0             ",
            value.len(),
            3 + digits(value.len() as u32),
        );
        for digit in text[3..end].iter_mut().rev() {
            *digit = b'0' + (n % 10) as u8;
            n /= 10;
        }
        text[end..end + 2].copy_from_slice(b"\r\n");
        let unused = text.len() - (end + 2);
        out.extend_from_slice(&text);
        out.truncate(out.len() - unused);
    } else {
        let mut text = [0; 10];
        out.push(b' ');
        out.extend_from_slice(decimal(flags, &mut text));
        out.push(b' ');
        out.extend_from_slice(decimal(value.len() as u32, &mut text));
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(value);
    out.extend_from_slice(if end { &TRAILER[..] } else { &TRAILER[..2] });
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
/// zero, and no record begins with a zero. It is the end of the page if there is no record. If
/// another record ends in the page, its mark says where ([`mark_end`]).
#[inline]
pub(crate) fn skip_gap(run: &[u8], at: usize, page: usize) -> usize {
    let mut at = at;
    if at == 0 && is_marked(run) {
        let after = usize::from(u16_at(run, 2));
        if after.is_multiple_of(RECORD_ALIGN) && (8..=page).contains(&after) {
            at = after;
        }
    }
    run[at..page]
        .chunks_exact(RECORD_ALIGN)
        .position(|word| word != [0; RECORD_ALIGN])
        .map_or(page, |words| at + words * RECORD_ALIGN)
}

/// Where the next record may begin after a record of `len` bytes without pieces at `at` in a page.
/// If that is in a later page, a word of the record lies right before it ([`mark_end`]).
#[inline]
pub(crate) fn place_end(at: usize, len: usize) -> usize {
    let end = (at + len).next_multiple_of(RECORD_ALIGN);
    if end > PAGE_SIZE && !end.is_multiple_of(PAGE_SIZE) {
        end + RECORD_ALIGN
    } else {
        end
    }
}

/// The same for a record with this head. The pieces of a large one are whole pages.
#[inline]
pub(crate) fn end_at(at: usize, header: &Header) -> usize {
    match header.pieces() {
        None => place_end(at, header.flash_len()),
        Some(_) => (at + header.flash_len()).next_multiple_of(PAGE_SIZE),
    }
}

/// Where the page begins whose first word lies at the end of the record instead, if there is one.
/// `end` is that of the record's place.
#[inline]
fn marked_page(end: usize) -> Option<usize> {
    let page = end / PAGE_SIZE * PAGE_SIZE;
    (page > 0 && page < end).then_some(page)
}

/// Marks the page in which a record ends that begins in an earlier page: a look-up must find the
/// records after it. The first word of the page says where they begin. What the record has there
/// moves behind the record. Returns the mark and the offset of its page, for a place that ends at
/// `end`.
pub(crate) fn mark_end(end: usize) -> Option<([u8; RECORD_ALIGN], usize)> {
    let page = marked_page(end)?;
    let after = ((end - page) as u16).to_le_bytes();
    Some(([MARK, 0, after[0], after[1]], page))
}

/// Whether a record of an earlier page ends in the first page of a run.
#[inline]
pub(crate) fn is_marked(run: &[u8]) -> bool {
    run[..2] == [MARK, 0]
}

/// Puts the word that [`mark_end`] moved back into a record that begins at `at` of a run. False if
/// the run does not have all of it. It may be called again.
#[inline]
pub(crate) fn join(run: &mut [u8], at: usize, header: &Header) -> bool {
    if header.pieces().is_some() {
        return true;
    }
    let end = end_at(at, header);
    if end > run.len() {
        return false;
    }
    if let Some(page) = marked_page(end) {
        run.copy_within(end - RECORD_ALIGN..end, page);
    }
    true
}

/// A record without pieces at `at` of a run, with its word put back as by [`join`]; `None` if the
/// run does not have all of it.
pub(crate) fn joined<'a>(run: &'a [u8], at: usize, header: &Header) -> Option<Cow<'a, [u8]>> {
    let end = end_at(at, header);
    let bytes = run.get(at..at + header.flash_len())?;
    let Some(page) = marked_page(end) else {
        return Some(Cow::Borrowed(bytes));
    };
    let word = run.get(end - RECORD_ALIGN..end)?;
    let mut whole = bytes.to_vec();
    // It may reach over the end of the record.
    let words = word.iter().zip(&mut whole[page - at..]);
    words.for_each(|(from, to)| *to = *from);
    Some(Cow::Owned(whole))
}

/// Whether the record at `at` of a run was written at a place with this generation and is intact,
/// as [`head_intact`] says. False if a packed one is not all here.
pub(crate) fn intact_at(run: &[u8], at: usize, header: &Header, generation: u32) -> bool {
    if header.has_answer() {
        head_intact(&run[at..], header, generation)
    } else {
        joined(run, at, header).is_some_and(|bytes| head_intact(&bytes, header, generation))
    }
}

/// Reads what is at offset `at` of a run of pages that starts on a page boundary. A record
/// may reach beyond the first page, but not its head and key.
pub(crate) fn peek(run: &[u8], at: usize, page: usize) -> At {
    if at + LEAST_HEAD + PACKED_SUM + 1 > page || run[at..at + RECORD_ALIGN] == [0; RECORD_ALIGN] {
        return At::End;
    }
    let Some(header) = plausible(&run[at..page]) else {
        return At::Damaged;
    };
    let text = at + header.flash_body();
    let apart = at > 0 && header.pieces().is_some();
    if at + header.flash_prefix() > page
        || apart
        || header.has_answer() && !run[text..].starts_with(VALUE_WORD)
    {
        return At::Damaged;
    }
    At::Record(header)
}

/// The head that bytes begin with, if it may be one.
fn plausible(bytes: &[u8]) -> Option<Header> {
    let bits = *bytes.get(BITS)?;
    if bytes.len() < head_len(bits) {
        return None;
    }
    let header = Header::read(bytes);
    let form = header.has_answer() == (header.value_len > PACKED_VALUE);
    (form && (1..=MAX_KEY).contains(&usize::from(header.key_len))).then_some(header)
}

/// The head and the key of a complete record of DRAM, if the bytes are one.
pub(crate) fn whole(record: &[u8]) -> Option<(Header, &[u8])> {
    let header = plausible(record)?;
    let key = key_offset(header.bits);
    (header.dram_len() == record.len())
        .then(|| (header, &record[key..key + usize::from(header.key_len)]))
}

/// The key of the record on flash at an offset.
#[inline]
pub(crate) fn key_at<'a>(run: &'a [u8], at: usize, header: &Header) -> &'a [u8] {
    let key = at + key_offset(header.bits) + header.sums_len();
    &run[key..key + header.key_len as usize]
}

/// Head and checksums of a record on flash, in the making: the bytes after them come piece by
/// piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashHead {
    bytes: [u8; RECORD_HEADER],
    header: Header,
    crc: u32,
}

impl FlashHead {
    /// For a place with this generation; `text` is what a answer record has between checksums and
    /// value.
    pub fn new(header: &Header, generation: u32, text: &[u8]) -> FlashHead {
        let mut bytes = [0; RECORD_HEADER];
        header.write(&mut bytes);
        let head = &bytes[..header.head_len()];
        let crc = crc32c::crc32c_append(generation, head);
        let mut made = FlashHead {
            bytes,
            header: *header,
            crc,
        };
        if header.has_answer() {
            let head_crc = crc32c::crc32c_append(crc, text);
            set(&mut made.bytes, ANSWER_HEAD, head_crc.to_le_bytes());
            made.crc = crc32c::crc32c(&made.bytes[..ANSWER_HEAD + 4]);
        }
        made
    }

    /// The next bytes after the checksums.
    pub fn append(&mut self, body: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, body);
    }

    /// Head and checksums of the record whose bytes were appended. A record with pieces needs none
    /// of them: its checksums are in the pieces ([`FlashHead::seal`]).
    pub fn finish(&mut self) -> &[u8] {
        let end = self.header.flash_body();
        let crc = match self.header.pieces() {
            None => self.crc,
            Some(_) => 0,
        };
        set(&mut self.bytes, end - 4, crc.to_le_bytes());
        &self.bytes[..end]
    }

    /// What puts the checksums of the pieces between the bytes of the record.
    pub fn seal(&self) -> Seal {
        Seal::new(self.header.pieces(), hcrc(&self.bytes))
    }

    pub fn header(&self) -> &Header {
        &self.header
    }
}

/// Whether a record on flash was written at a place with this generation and is intact: a packed
/// one as a whole, of one with its answer head and key.
pub(crate) fn head_intact(record: &[u8], header: &Header, generation: u32) -> bool {
    let (head, sums) = (header.head_len(), header.flash_body());
    let end = if header.has_answer() {
        header.flash_prefix()
    } else {
        header.flash_len()
    };
    let crc = crc32c::crc32c_append(generation, &record[..head]);
    crc32c::crc32c_append(crc, &record[sums..end]) == u32_at(record, head)
}

/// Checks a complete record on flash whose head is intact ([`head_intact`]).
pub(crate) fn intact(record: &[u8], header: &Header) -> bool {
    if !header.has_answer() {
        return true;
    }
    if record.len() != header.flash_len() {
        return false;
    }
    if header.pieces().is_some() {
        let mut pieces = record.chunks(PIECE).enumerate();
        return pieces.all(|(n, piece)| piece_intact(piece, hcrc(record), n));
    }
    let crc = crc32c::crc32c(&record[..ANSWER_HEAD + 4]);
    crc32c::crc32c_append(crc, &record[RECORD_HEADER..]) == u32_at(record, RECORD_HEADER - 4)
}

/// The checksum of head and key of an answer record that begins with these bytes.
pub(crate) fn hcrc(record: &[u8]) -> u32 {
    u32_at(record, ANSWER_HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_fields() -> Header {
        let mut h = Header::new(3, 5, 0x2423_2221, 0x2019_1817, 0x1615_1413_1211_100f);
        h.access = 0x0e0d;
        h
    }

    #[test]
    fn the_head_is_where_the_format_document_says() {
        let mut packed = [0; 22];
        all_fields().write(&mut packed);
        let expected = [
            3, 0x70, 0x0d, 0x0e, 5, 0, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
            0x19, 0x20, 0x21, 0x22, 0x23, 0x24,
        ];
        assert_eq!(packed, expected);
        let mut answer = [0; 24];
        let mut h = Header::new(
            3,
            0x0403_0201,
            0x2423_2221,
            0x2019_1817,
            0x100f_0e0d_0c0b_0a09,
        );
        h.access = 0x0605;
        h.set_marks(true, false, false, true);
        h.write(&mut answer);
        let expected = [
            3, 0x89, 5, 6, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 15, 16, 0x17, 0x18, 0x19, 0x20, 0x21,
            0x22, 0x23, 0x24,
        ];
        assert_eq!(answer, expected);
    }

    #[test]
    fn a_head_has_only_the_fields_that_it_needs() {
        for n in 0..8_u32 {
            let (flags, expiry) = (n & 1, (n >> 1 & 1) * 77);
            let cas = if n & 4 == 0 { (1 << 48) - 1 } else { 1 << 48 };
            let h = Header::new(250, 1024, flags, expiry, cas);
            let mut b = [0xff; ANSWER_HEAD];
            h.write(&mut b);
            assert_eq!(Header::read(&b), h);
            assert_eq!(is_dead(&b, 0, 77), expiry != 0);
            assert!(!is_dead(&b, 0, 76) && is_dead(&b, 1, 76));
            let fields = 4 * flags as usize + 4 * usize::from(expiry != 0) + 2 * (n as usize >> 2);
            assert_eq!(h.head_len(), LEAST_HEAD + fields);
            assert!(b[h.head_len()..].iter().all(|&byte| byte == 0xff));
        }
    }

    fn whole(header: &Header, key: &[u8], value: &[u8], generation: u32) -> Vec<u8> {
        let mut dram = vec![0; header.dram_len()];
        let at = write_prefix(&mut dram, header, key);
        assert_eq!(at, header.dram_prefix());
        dram[at..at + value.len()].copy_from_slice(value);
        if header.has_answer() {
            dram[at + value.len()..].copy_from_slice(TRAILER);
        }
        let mut head = FlashHead::new(header, generation, &dram[header.head_len()..at]);
        head.append(&dram[header.head_len()..]);
        let mut bytes = vec![0; header.flash_len()];
        let mut seal = head.seal();
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        seal.put(head.finish(), &mut put);
        seal.put(&dram[header.head_len()..], &mut put);
        seal.finish(&mut put);
        bytes
    }

    #[test]
    fn a_changed_bit_is_seen() {
        let value = vec![b'v'; 1025];
        let answer = Header::new(3, 1025, 42, 0, 7);
        for (header, value) in [(all_fields(), &value[..5]), (answer, &value)] {
            let mut b = whole(&header, b"foo", value, 9);
            assert_eq!(Header::read(&b), header);
            assert_eq!(key_at(&b, 0, &header), b"foo");
            let good =
                |b: &[u8], generation| head_intact(b, &header, generation) && intact(b, &header);
            assert!(good(&b, 9) && !good(&b, 8));
            for bit in 0..b.len() * 8 {
                b[bit / 8] ^= 1 << (bit % 8);
                assert!(!good(&b, 9), "bit {bit} flipped unseen");
                b[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_changed_byte_of_a_large_record_is_seen() {
        let value = vec![b'v'; 2 * PIECE];
        let header = Header::new(3, value.len() as u32, 42, 0, 7);
        let mut b = whole(&header, b"foo", &value, 9);
        assert_eq!(header.pieces().map(Pieces::count), Some(3));
        assert_eq!(b.len(), (header.bare_len() + 12).next_multiple_of(4));
        let good = |b: &[u8], generation| head_intact(b, &header, generation) && intact(b, &header);
        assert!(good(&b, 9) && !good(&b, 8));
        for byte in (0..200)
            .chain((200..b.len()).step_by(997))
            .chain(b.len() - 9..b.len())
        {
            b[byte] ^= 4;
            assert!(!good(&b, 9), "byte {byte} changed unseen");
            b[byte] ^= 4;
        }
    }

    /// A run of pages with a record at an offset, as a log puts it there, and where the next record
    /// begins.
    fn run_with(record: &[u8], at: usize) -> (Vec<u8>, usize) {
        let end = place_end(at, record.len());
        let mut run = vec![0; end.next_multiple_of(PAGE_SIZE)];
        run[at..at + record.len()].copy_from_slice(record);
        if let Some((mark, page)) = mark_end(end) {
            run.copy_within(page..page + 4, end - 4);
            run[page..page + 4].copy_from_slice(&mark);
        }
        (run, end)
    }

    #[test]
    fn a_record_comes_back_from_every_place_at_which_it_crosses() {
        for len in [5, 900, 1024, 1025, 2100, 4000, 9000] {
            let value: Vec<u8> = (0..len).map(|n| (n * 7 + n / 250) as u8).collect();
            let header = Header::new(3, value.len() as u32, 42, 0, 7);
            let record = whole(&header, b"foo", &value, 9);
            let (mut joint, last) = (0, PAGE_SIZE - header.flash_prefix());
            for at in (0..=last).step_by(RECORD_ALIGN) {
                let (mut run, end) = run_with(&record, at);
                assert_eq!(peek(&run, at, PAGE_SIZE), At::Record(header), "{at}");
                assert_eq!(end_at(at, &header), end);
                assert!(intact_at(&run, at, &header, 9) && !intact_at(&run, at, &header, 8));
                assert_eq!(
                    joined(&run, at, &header).as_deref(),
                    Some(&record[..]),
                    "{at}"
                );
                let (page, inside) = (end / PAGE_SIZE * PAGE_SIZE, end % PAGE_SIZE);
                if page > 0 && inside > 0 {
                    joint += 1;
                    // A look-up in the last page begins behind it, and finds nothing there.
                    assert!(is_marked(&run[page..]));
                    assert_eq!(skip_gap(&run[page..], 0, PAGE_SIZE), PAGE_SIZE);
                    if inside < PAGE_SIZE {
                        run[end] = 3;
                        assert_eq!(skip_gap(&run[page..], 0, PAGE_SIZE), inside);
                        run[end] = 0;
                    }
                    // Only the run without its last page lacks something.
                    assert!(!join(&mut run[..page].to_vec(), at, &header));
                    assert!(joined(&run[..page], at, &header).is_none());
                    assert_eq!(intact_at(&run[..page], at, &header, 9), header.has_answer());
                    // Damage to the word that moved is seen.
                    let mut bad = run.clone();
                    bad[end - 4] ^= 1;
                    let bytes = joined(&bad, at, &header).expect("it is all here");
                    assert!(!(intact_at(&bad, at, &header, 9) && intact(&bytes, &header)));
                }
                for _ in 0..2 {
                    assert!(join(&mut run, at, &header));
                    assert_eq!(&run[at..at + record.len()], &record, "{at}");
                }
            }
            let (longer, pages) = (header.flash_len() > header.flash_prefix(), len / PAGE_SIZE);
            assert_eq!(
                joint > 0,
                longer,
                "{joint} places with a mark, {pages} whole pages"
            );
        }
    }

    #[test]
    fn a_damaged_mark_leads_nowhere() {
        let mut page = vec![0; PAGE_SIZE];
        page[8] = 3;
        for after in 0..=u16::MAX {
            page[..2].copy_from_slice(&[MARK, 0]);
            page[2..4].copy_from_slice(&after.to_le_bytes());
            let at = skip_gap(&page, 0, PAGE_SIZE);
            assert!(at <= PAGE_SIZE && at.is_multiple_of(RECORD_ALIGN));
            // No record begins with a mark.
            assert!(
                at > 0 || peek(&page, at, PAGE_SIZE) == At::Damaged,
                "{after}"
            );
        }
    }

    #[test]
    fn an_answer_record_has_the_answer_of_a_get() {
        let value = vec![b'v'; 1025];
        let header = Header::new(3, 1025, 42, 0, 7);
        let b = whole(&header, b"foo", &value, 9);
        let text = [b"VALUE foo 42 1025\r\n", &value[..], b"\r\nEND\r\n"].concat();
        assert_eq!(&b[RECORD_HEADER..], &text[..]);
        let mut answer = Vec::new();
        push_answer(&mut answer, b"foo", 42, &value, true);
        assert_eq!(answer, text);
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
