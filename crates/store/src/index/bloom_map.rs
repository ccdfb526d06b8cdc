// SPDX-License-Identifier: Apache-2.0
//! The Bloom Filter Map of paper A, section 6.1.
//!
//! Idea: each block has a Bloom filter of its keys, all of one size, with the same hash functions.
//! The bits of all blocks for one position lie side by side, as a *row*. A key's k positions name k
//! rows, and the ones in the AND of these rows are the candidate blocks. At 16 bits an element,
//! equation 1 gives k = round(16 ln 2) = 11.
//!
//! Deviations: rows are whole cache lines if that costs little space, and memory is in large pages.
//! All k rows are prefetched before the first is read. Rows are ANDed from the newest block to the
//! oldest, four cache lines of each at a time. So a look-up that stops at the first block with the
//! key reads no more of the rows than that. Another block can be added to the map later, as a
//! column.
//!
//! ```text
//!                    blocks 0..          ..B-1
//! position 0         [ row, `stride` bytes     ]    block b is bit b % 8 of byte b / 8
//! position 1         [ ...                     ]
//!
//! encoded: u32 positions | u32 hash functions | u32 blocks | u32 stride | rows, all little-endian
//! ```

mod and; // of pieces of rows

use super::memory::{LINE, Memory, prefetch};
use super::{BlockMap, Candidates, Damage, MAX_BLOCKS, MapEntry};
use crate::KeyHash;
use crate::hash::mix;
use and::{PIECE_BYTES, Piece};

/// Bits per element in the thesis.
pub const BITS_PER_ELEMENT: u32 = 16;

/// Most hash functions.
pub const MAX_HASHES: usize = 24;

/// Keys whose rows are prefetched ahead of the current key, if rows are short.
const AHEAD: usize = 4;

/// Bytes of the head of an encoded map.
const HEAD: usize = 16;

/// Equation 1: the best number of hash functions for this many bits per element.
pub fn best_hashes(bits_per_element: u32) -> u32 {
    let best = (f64::from(bits_per_element) * std::f64::consts::LN_2).round() as u32;
    best.clamp(1, MAX_HASHES as u32)
}

/// The positions that a key has in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Positions of a block's filter, at least 1.
    pub positions: u32,
    /// Positions that a key has, 1 to [`MAX_HASHES`].
    pub hashes: u32,
}

impl Filter {
    /// For blocks of this many elements, with [`BITS_PER_ELEMENT`].
    pub fn for_elements(elements: u32) -> Filter {
        Filter {
            positions: elements.saturating_mul(BITS_PER_ELEMENT).max(1),
            hashes: best_hashes(BITS_PER_ELEMENT),
        }
    }

    #[inline]
    pub fn positions_of(self, key: KeyHash) -> Positions {
        let mut positions = Positions {
            of: [0; MAX_HASHES],
            count: self.hashes as usize,
        };
        // A linear congruential sequence whose increment is the key's own: its high bits are good.
        // Unlike multiples of one hash, its terms do not stay close together for keys that begin
        // close together.
        let step = (u64::from(key.check) << 32 | u64::from(key.check)) ^ key.order | 1;
        let mut state = mix(key.order ^ mix(u64::from(key.check)));
        for position in &mut positions.of[..self.hashes as usize] {
            *position = ((u128::from(state) * u128::from(self.positions)) >> 64) as u32;
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(step);
        }
        positions
    }
}

/// The positions of a key.
#[derive(Clone, Copy, Debug)]
pub struct Positions {
    of: [u32; MAX_HASHES],
    count: usize,
}

impl Positions {
    /// All of them, in the order of the hash functions.
    #[inline]
    pub fn all(&self) -> &[u32] {
        &self.of[..self.count]
    }
}

/// The filter of one block while it is filled, before it becomes a column of the map.
#[derive(Clone, Debug)]
pub struct Column {
    filter: Filter,
    words: Vec<u64>,
}

impl Column {
    /// The filter of a block without elements.
    pub fn new(filter: Filter) -> Column {
        Column {
            filter,
            words: vec![0; filter.positions.div_ceil(64) as usize],
        }
    }

    /// Adds an element.
    #[inline]
    pub fn insert(&mut self, key: KeyHash) {
        for position in self.filter.positions_of(key).all() {
            self.words[*position as usize / 64] |= 1 << (position % 64);
        }
    }

    /// Position p is bit p % 64 of word p / 64.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Forgets all elements.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }
}

/// A Bloom Filter Map.
#[derive(Debug)]
pub struct BloomMap {
    filter: Filter,
    blocks: u32,
    /// Bytes of a row.
    stride: usize,
    rows: Memory,
}

/// Bytes of a row for this many blocks. They are rounded up to whole lines, or whole parts of a
/// line, if that wastes little.
fn stride_for(blocks: u32) -> usize {
    let bytes = (blocks as usize).div_ceil(8).max(1);
    let rounded = if bytes <= LINE {
        bytes.next_power_of_two()
    } else {
        bytes.next_multiple_of(LINE)
    };
    let least = if bytes <= 8 {
        bytes.next_power_of_two()
    } else {
        bytes.next_multiple_of(8)
    };
    if rounded * 8 <= least * 9 {
        rounded
    } else {
        least
    }
}

impl BloomMap {
    /// A map of `blocks` blocks without elements, and without room for more blocks.
    ///
    /// # Panics
    /// If there are more than [`MAX_BLOCKS`], or the filter has no position.
    pub fn new(filter: Filter, blocks: u32) -> BloomMap {
        assert!(
            blocks <= MAX_BLOCKS,
            "a map has at most {MAX_BLOCKS} blocks"
        );
        assert!(
            filter.positions > 0 && (1..=MAX_HASHES as u32).contains(&filter.hashes),
            "a filter has positions, and 1 to {MAX_HASHES} hash functions"
        );
        let stride = stride_for(blocks);
        BloomMap {
            filter,
            blocks,
            stride,
            rows: Memory::zeroed(stride * filter.positions as usize),
        }
    }

    /// The map of `entries`, in any order. All filters have the size that the fullest block needs.
    ///
    /// # Panics
    /// If there are more than [`MAX_BLOCKS`] blocks, or an entry names a block that does not exist.
    pub fn build(entries: &[MapEntry], blocks: u32) -> BloomMap {
        let mut counts = vec![0u32; blocks as usize];
        for entry in entries {
            counts[entry.block as usize] += 1;
        }
        let fullest = counts.iter().max().copied().unwrap_or(0);
        let mut map = BloomMap::new(Filter::for_elements(fullest), blocks);
        for entry in entries {
            map.insert(entry.key, entry.block);
        }
        map
    }

    /// Adds an element to a block.
    ///
    /// # Panics
    /// If the block does not exist.
    pub fn insert(&mut self, key: KeyHash, block: u32) {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let (byte, bit) = (block as usize / 8, 1u8 << (block % 8));
        for position in self.filter.positions_of(key).all() {
            self.rows[*position as usize * self.stride + byte] |= bit;
        }
    }

    /// Adds blocks, each as a column, after the existing ones; returns the ordinal of the first new
    /// block. Eight at a time, beginning at a multiple of eight, are cheapest. The rows grow with
    /// room to spare, so that adding blocks one by one copies each bit a few times in all.
    ///
    /// # Panics
    /// If a column has another filter, or there are more than [`MAX_BLOCKS`].
    pub fn push_blocks(&mut self, columns: &[Column]) -> u32 {
        let first = self.blocks;
        let blocks = columns.len() as u64 + u64::from(first);
        assert!(
            blocks <= u64::from(MAX_BLOCKS),
            "a map has at most {MAX_BLOCKS} blocks"
        );
        if blocks.div_ceil(8) > self.stride as u64 {
            self.reserve((blocks as u32).max((first + first / 2).min(MAX_BLOCKS)));
        }
        self.blocks = blocks as u32;
        let mut at = 0;
        while at < columns.len() {
            let block = first as usize + at;
            let count = (8 - block % 8).min(columns.len() - at);
            self.set_byte(block / 8, block % 8, &columns[at..at + count]);
            at += count;
        }
        first
    }

    /// Makes rows wide enough for this many blocks in all, and no wider.
    ///
    /// # Panics
    /// If there are more than [`MAX_BLOCKS`].
    pub fn reserve(&mut self, blocks: u32) {
        assert!(
            blocks <= MAX_BLOCKS,
            "a map has at most {MAX_BLOCKS} blocks"
        );
        if (blocks as usize).div_ceil(8) <= self.stride {
            return;
        }
        let stride = stride_for(blocks);
        let mut rows = Memory::zeroed(stride * self.filter.positions as usize);
        for (to, from) in rows
            .chunks_exact_mut(stride)
            .zip(self.rows.chunks_exact(self.stride))
        {
            to[..self.stride].copy_from_slice(from);
        }
        (self.stride, self.rows) = (stride, rows);
    }

    /// Sets bits `from..` of one byte of all rows, from as many columns: an 8 by 8 transposition
    /// for every 8 positions.
    fn set_byte(&mut self, byte: usize, from: usize, columns: &[Column]) {
        for column in columns {
            assert_eq!(column.filter, self.filter, "a column has the map's filter");
        }
        let positions = self.filter.positions as usize;
        for word in 0..positions.div_ceil(64) {
            let mut eight = [0u64; 8];
            for (bits, column) in eight[from..].iter_mut().zip(columns) {
                *bits = column.words[word];
            }
            if eight == [0; 8] {
                continue;
            }
            for part in 0..8 {
                let mut square = 0;
                for (column, bits) in eight.iter().enumerate() {
                    square |= (bits >> (8 * part) & 0xff) << (8 * column);
                }
                let first = word * 64 + part * 8;
                for (row, bits) in transposed(square).to_le_bytes().into_iter().enumerate() {
                    if bits != 0 && first + row < positions {
                        self.rows[(first + row) * self.stride + byte] |= bits;
                    }
                }
            }
        }
    }

    /// The positions that keys have.
    pub fn filter(&self) -> Filter {
        self.filter
    }

    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Bytes that a look-up of all candidates reads.
    pub fn bytes_of_rows(&self) -> usize {
        self.filter.hashes as usize * self.stride
    }

    /// Bytes of a row that contain bits of blocks.
    fn row_bytes(&self) -> usize {
        (self.blocks as usize).div_ceil(8)
    }

    #[inline]
    fn rows_of(&self, key: KeyHash) -> Rows {
        let mut rows = Rows::NONE;
        let positions = self.filter.positions_of(key);
        for (row, position) in rows.at.iter_mut().zip(positions.all()) {
            *row = *position as usize * self.stride;
        }
        rows.count = positions.count;
        rows
    }

    /// Prefetches the newest `window` bytes of all rows, before any of them is read.
    #[inline]
    fn ask_first(&self, rows: &Rows, window: usize) {
        let end = self.row_bytes();
        let from = end.next_multiple_of(PIECE_BYTES).saturating_sub(window);
        rows.ask(&self.rows, from, end);
    }

    /// The candidates of a key, newest first. Each is searched for when it is requested.
    #[inline]
    pub fn newest_first(&self, key: KeyHash) -> NewestFirst<'_> {
        let rows = self.rows_of(key);
        self.ask_first(&rows, WINDOW);
        NewestFirst::new(self, rows, None, WINDOW)
    }

    /// As [`BloomMap::newest_first`], for a key whose memory was just prefetched with
    /// [`BlockMap::prefetch`].
    #[inline]
    pub fn newest_first_prefetched(&self, key: KeyHash) -> NewestFirst<'_> {
        NewestFirst::new(self, self.rows_of(key), None, WINDOW)
    }

    /// Reads what [`BlockMap::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes do not encode a map.
    pub fn decode(bytes: &[u8]) -> Result<BloomMap, Damage> {
        let Some((head, rows)) = bytes.split_at_checked(HEAD) else {
            return Err(Damage("its head is cut"));
        };
        let field =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (positions, hashes, blocks, stride) =
            (field(0), field(4), field(8), field(12) as usize);
        if positions == 0 || hashes == 0 || hashes as usize > MAX_HASHES || blocks > MAX_BLOCKS {
            return Err(Damage(
                "no filters have these numbers of positions, hash functions or blocks",
            ));
        }
        if stride < (blocks as usize).div_ceil(8).max(1)
            || (positions as usize).checked_mul(stride) != Some(rows.len())
        {
            return Err(Damage("its rows have not the length that they should have"));
        }
        Ok(BloomMap {
            filter: Filter { positions, hashes },
            blocks,
            stride,
            rows: Memory::copy_of(rows),
        })
    }
}

/// The transposition of 8 rows of 8 bits (Hacker's Delight, 7-3).
fn transposed(mut square: u64) -> u64 {
    for (shift, mask) in [
        (7, 0x00aa_00aa_00aa_00aa),
        (14, 0x0000_cccc_0000_cccc),
        (28, 0x0000_0000_f0f0_f0f0),
    ] {
        let swap = (square ^ (square >> shift)) & mask;
        square ^= swap ^ (swap << shift);
    }
    square
}

/// Bytes of each row that are prefetched ahead of the current piece, if the search may end at any
/// candidate. A search that ends early does not need what was prefetched beyond.
const WINDOW: usize = 2 * PIECE_BYTES;

/// The same, if the search wants all candidates.
const WIDE_WINDOW: usize = 4 * PIECE_BYTES;

/// The candidates of one key, the newest block first. Reads a piece of each row at a time.
#[derive(Debug)]
pub struct NewestFirst<'a> {
    map: &'a BloomMap,
    rows: Rows,
    /// The rest of the current piece.
    piece: Piece,
    /// Byte of the rows where the piece begins.
    at: usize,
    /// Rows of the next key. Their memory is prefetched when this key's rows come to their end.
    next: Option<Rows>,
    /// Bytes of each row that are requested ahead.
    window: usize,
}

/// Where the rows of a key begin.
#[derive(Clone, Copy, Debug)]
struct Rows {
    at: [usize; MAX_HASHES],
    count: usize,
}

impl Rows {
    const NONE: Rows = Rows {
        at: [0; MAX_HASHES],
        count: 0,
    };

    #[inline]
    fn all(&self) -> &[usize] {
        &self.at[..self.count]
    }

    /// Prefetches bytes `from..to` of all rows.
    #[inline]
    fn ask(&self, bytes: &[u8], from: usize, to: usize) {
        for row in self.all() {
            prefetch(bytes, row + from, row + to);
        }
    }
}

impl<'a> NewestFirst<'a> {
    /// The candidates of the key with these rows, whose first `window` bytes were prefetched.
    #[inline]
    fn new(map: &'a BloomMap, rows: Rows, next: Option<Rows>, window: usize) -> NewestFirst<'a> {
        NewestFirst {
            map,
            rows,
            piece: Piece::NONE,
            at: map.row_bytes(),
            next,
            window,
        }
    }

    /// ANDs the next piece, and prefetches the piece a window ahead: in these rows, or in the next
    /// key's if these end before.
    #[inline]
    fn next_piece(&mut self) {
        let bytes: &[u8] = &self.map.rows;
        let to = self.at;
        let from = (to - 1) / PIECE_BYTES * PIECE_BYTES;
        if from >= self.window {
            let ahead = from - self.window;
            self.rows.ask(bytes, ahead, ahead + PIECE_BYTES);
        } else if let Some(next) = &self.next {
            let end = self.map.row_bytes();
            let ahead = end.next_multiple_of(PIECE_BYTES) + from;
            if let Some(ahead) = ahead.checked_sub(self.window) {
                next.ask(bytes, ahead, (ahead + PIECE_BYTES).min(end));
            }
        }
        let rows = self.rows.all();
        self.piece = Piece::of(bytes, rows, from, to);
        self.at = from;
    }
}

impl Iterator for NewestFirst<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            while self.piece.some != 0 {
                let at = 31 - self.piece.some.leading_zeros();
                let word = &mut self.piece.words[at as usize];
                let bit = 63 - word.leading_zeros();
                *word ^= 1 << bit;
                if *word == 0 {
                    self.piece.some ^= 1 << at;
                }
                let block = self.at as u32 * 8 + at * 64 + bit;
                // Bits after the last block are zero, unless the map is damaged.
                if block < self.map.blocks {
                    return Some(block);
                }
            }
            if self.at == 0 {
                return None;
            }
            self.next_piece();
        }
    }
}

impl BlockMap for BloomMap {
    fn candidates(&self, key: KeyHash, out: &mut Candidates) {
        let rows = self.rows_of(key);
        self.ask_first(&rows, WIDE_WINDOW);
        for block in NewestFirst::new(self, rows, None, WIDE_WINDOW) {
            out.push(block);
        }
    }

    fn prefetch(&self, key: KeyHash) {
        self.ask_first(&self.rows_of(key), WINDOW);
    }

    fn candidates_of(&self, keys: &[KeyHash], out: &mut [Candidates]) {
        // If rows are long, only the next key's rows are prefetched, when this key's rows come to
        // their end. More would not stay in the processor's first-level cache.
        let long = self.row_bytes() > WIDE_WINDOW;
        let ahead = if long { 1 } else { AHEAD };
        let mut coming = [Rows::NONE; AHEAD];
        for (at, key) in keys.iter().enumerate().take(ahead) {
            coming[at] = self.rows_of(*key);
            self.ask_first(&coming[at], WIDE_WINDOW);
        }
        for at in 0..keys.len() {
            let rows = coming[at % ahead];
            let next = keys.get(at + ahead).map(|key| self.rows_of(*key));
            if let Some(next) = next {
                coming[at % ahead] = next;
                if !long {
                    self.ask_first(&next, WIDE_WINDOW);
                }
            }
            out[at].clear();
            for block in NewestFirst::new(self, rows, next.filter(|_| long), WIDE_WINDOW) {
                out[at].push(block);
            }
        }
    }

    fn exact_for_members(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        size_of::<BloomMap>() + self.rows.heap_bytes()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let stride = u32::try_from(self.stride).expect("rows of 2^20 bits");
        for field in [
            self.filter.positions,
            self.filter.hashes,
            self.blocks,
            stride,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.rows);
    }
}
