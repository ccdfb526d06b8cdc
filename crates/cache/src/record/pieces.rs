// SPDX-License-Identifier: Apache-2.0
//! The pieces of a large record on flash. Each ends with its own checksum, so that a reader can use
//! a piece before it has the next, and a writer can write it before it knows the next.
//!
//! ```text
//!  | head hcrc 0 | VALUE key ... value | sum | value         | sum | ... | value \r\nEND\r\n | pad | sum |
//!  |<----------------- piece 0 ------------->|<---- piece 1 ------>|     |<------ last piece ------->|
//! ```
//!
//! A record that would be longer than [`PIECE`] bytes has pieces. It begins at the start of a page,
//! so each piece is one read of whole pages. Zeros before the last checksum make its offset a
//! multiple of four; so no checksum lies in two pages.
//!
//! Always holds: PIECE-1: the initial value of a checksum is made of the record's `hcrc` and the
//! number of the piece, and `hcrc` covers generation, key and CAS value. So a piece of another
//! record, of another lap, or of another place in its record never passes.

use senko_io::le::u32_at;

/// Bytes of a piece, with its checksum. The last one may be shorter.
pub(crate) const PIECE: usize = 64 << 10;

/// Bytes of a checksum.
const SUM: usize = 4;

/// Where the pieces of a record are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Bytes of the record without the checksums of its pieces.
    len: usize,
}

impl Pieces {
    /// The pieces of a record of this many bytes, if it has pieces.
    #[inline]
    pub fn of(len: usize) -> Option<Pieces> {
        (len > PIECE).then_some(Pieces { len })
    }

    fn padded(self) -> usize {
        self.len.next_multiple_of(SUM)
    }

    /// How many pieces.
    pub fn count(self) -> usize {
        self.padded().div_ceil(PIECE - SUM)
    }

    /// Bytes of the record with its checksums.
    pub fn flash_len(self) -> usize {
        self.padded() + self.count() * SUM
    }

    /// Bytes of a piece with its checksum.
    pub fn bytes(self, n: usize) -> usize {
        (self.flash_len() - n * PIECE).min(PIECE)
    }

    /// Bytes of the record at the start of a piece.
    pub fn data(self, n: usize) -> usize {
        (self.len - n * (PIECE - SUM)).min(PIECE - SUM)
    }

    /// Bytes of the record before an offset on flash.
    pub fn before(self, offset: usize) -> usize {
        let whole = offset / PIECE * (PIECE - SUM);
        (whole + (offset % PIECE).min(PIECE - SUM)).min(self.len)
    }
}

/// The initial value of a piece's checksum.
fn seed(hcrc: u32, n: usize) -> u32 {
    crc32c::crc32c_append(hcrc, &(n as u32).to_le_bytes())
}

/// Whether a piece is what was written as piece `n` of the record with this `hcrc`.
pub(crate) fn piece_intact(piece: &[u8], hcrc: u32, n: usize) -> bool {
    let end = piece.len() - SUM;
    crc32c::crc32c_append(seed(hcrc, n), &piece[..end]) == u32_at(piece, end)
}

/// Sets the checksum of piece `n` of the record with this `hcrc`.
pub(crate) fn set_sum(piece: &mut [u8], hcrc: u32, n: usize) {
    let end = piece.len() - SUM;
    let sum = crc32c::crc32c_append(seed(hcrc, n), &piece[..end]);
    piece[end..].copy_from_slice(&sum.to_le_bytes());
}

/// Puts the checksums between the bytes of a record, which come in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    /// `None`: the record has no pieces.
    pieces: Option<Pieces>,
    hcrc: u32,
    /// Offset on flash of the next byte.
    at: usize,
    crc: u32,
}

impl Seal {
    pub fn new(pieces: Option<Pieces>, hcrc: u32) -> Seal {
        Seal {
            pieces,
            hcrc,
            at: 0,
            crc: seed(hcrc, 0),
        }
    }

    /// Bytes of the record before an offset on flash.
    pub fn before(&self, offset: usize) -> usize {
        self.pieces.map_or(offset, |pieces| pieces.before(offset))
    }

    /// Bytes of the record that still belong to the piece under way.
    pub fn left_in_piece(&self) -> usize {
        PIECE - SUM - self.at % PIECE
    }

    /// How many pieces are complete.
    pub fn pieces_ended(&self) -> usize {
        self.at / PIECE
    }

    /// Takes the next bytes of the record. `put` gets what belongs at an offset on flash.
    pub fn put(&mut self, mut bytes: &[u8], mut put: impl FnMut(usize, &[u8])) {
        while !bytes.is_empty() {
            let room = match self.pieces {
                Some(_) => PIECE - SUM - self.at % PIECE,
                None => bytes.len(),
            };
            let (now, later) = bytes.split_at(bytes.len().min(room));
            put(self.at, now);
            self.at += now.len();
            bytes = later;
            if self.pieces.is_some() {
                self.crc = crc32c::crc32c_append(self.crc, now);
                if now.len() == room {
                    self.end_piece(&mut put);
                }
            }
        }
    }

    /// Ends the record, all bytes of which were taken.
    pub fn finish(&mut self, mut put: impl FnMut(usize, &[u8])) {
        let Some(pieces) = self.pieces else { return };
        if self.at < pieces.flash_len() {
            let pad = self.at.next_multiple_of(SUM) - self.at;
            self.crc = crc32c::crc32c_append(self.crc, &[0; SUM][..pad]);
            self.at += pad;
            self.end_piece(&mut put);
        }
        debug_assert_eq!(self.at, pieces.flash_len());
    }

    fn end_piece(&mut self, put: &mut impl FnMut(usize, &[u8])) {
        put(self.at, &self.crc.to_le_bytes());
        self.at += SUM;
        self.crc = seed(self.hcrc, self.at.div_ceil(PIECE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of this many bytes, as it is on flash.
    fn sealed(len: usize, hcrc: u32, step: usize) -> (Vec<u8>, Vec<u8>) {
        let data: Vec<u8> = (0..len).map(|n| (n * n / 8) as u8).collect();
        let pieces = Pieces::of(len).expect("a large record");
        let mut flash = vec![0; pieces.flash_len()];
        let mut seal = Seal::new(Some(pieces), hcrc);
        let mut put = |at: usize, bytes: &[u8]| flash[at..at + bytes.len()].copy_from_slice(bytes);
        for part in data.chunks(step) {
            seal.put(part, &mut put);
        }
        seal.finish(&mut put);
        (data, flash)
    }

    fn lengths() -> impl Iterator<Item = usize> {
        let around = |n: usize| n.saturating_sub(9)..n + 10;
        [PIECE + 10, 2 * (PIECE - SUM), 2 * PIECE, 5 * (PIECE - SUM)]
            .into_iter()
            .flat_map(around)
            .filter(|&len| len > PIECE)
    }

    #[test]
    fn every_byte_is_in_one_piece_whatever_the_parts() {
        for len in lengths() {
            let pieces = Pieces::of(len).expect("a large record");
            let (data, flash) = sealed(len, 7, 4096);
            assert_eq!(flash, sealed(len, 7, 10_007).1, "{len}");
            let mut read = Vec::new();
            for n in 0..pieces.count() {
                let piece = &flash[n * PIECE..n * PIECE + pieces.bytes(n)];
                assert!(pieces.data(n) > 0 && piece_intact(piece, 7, n), "{len} {n}");
                assert_eq!(pieces.before(n * PIECE), read.len());
                read.extend_from_slice(&piece[..pieces.data(n)]);
            }
            assert!(read == data && pieces.before(flash.len()) == len, "{len}");
        }
    }

    #[test]
    fn only_its_own_place_in_its_own_record_passes() {
        let (_, flash) = sealed(3 * PIECE, 7, 4096);
        let piece = &flash[PIECE..2 * PIECE];
        assert!(piece_intact(piece, 7, 1));
        assert!(!piece_intact(piece, 7, 2) && !piece_intact(piece, 8, 1));
        let mut other = piece.to_vec();
        for at in [0, 1, 40_000, PIECE - 5, PIECE - 4, PIECE - 1] {
            other[at] ^= 16;
            assert!(!piece_intact(&other, 7, 1), "{at}");
            other[at] ^= 16;
        }
        set_sum(&mut other, 8, 2);
        assert!(piece_intact(&other, 8, 2));
    }

    #[test]
    fn no_checksum_lies_in_two_pages() {
        for len in PIECE + 1..PIECE + 9000 {
            let end = Pieces::of(len).expect("large").flash_len();
            assert!(end.is_multiple_of(4096) || end % 4096 >= SUM, "{len}");
        }
    }
}
