// SPDX-License-Identifier: Apache-2.0
//! How many distinct pages a trace touches, in bounded memory.
//!
//! Idea: a sparse bitmap, in chunks of 4096 pages (16 MiB of address) that exist once touched. When
//! there are more than [`MAX_CHUNKS`] (a footprint spread over about 2 TB), half of the chunks,
//! chosen by a hash, are forgotten and never kept again. The remaining ones count double, and so
//! on. The count is exact until then. After that it is an estimate, whose relative error is about 1
//! divided by the square root of the kept chunks, below 1 %. Source: adaptive sampling, due to
//! Wegman; Flajolet, "On adaptive sampling", Computing 43, 1990. Deviation: chunks of pages are
//! sampled in place of pages, which makes the bitmap small and the estimate a little worse.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use senko_workload::rng::mix64;

/// Bytes of a page, as the footprint counts them.
pub const PAGE_BYTES: u64 = 4096;
const CHUNK_PAGES: u64 = 4096;
const WORDS: usize = CHUNK_PAGES as usize / 64;
/// Most chunks that are kept: 64 MiB of bits.
const MAX_CHUNKS: usize = 1 << 17;

/// Mixing a chunk number once gives its hash.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix64(self.0 ^ u64::from(byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = mix64(self.0 ^ u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mix64(self.0 ^ value);
    }
}

/// A chunk's device, and its number on it.
type Chunk = (u32, u64);

/// Counts distinct pages.
pub struct Footprint {
    /// Where each chunk's words start in `words`.
    chunks: HashMap<Chunk, usize, BuildHasherDefault<Mixed>>,
    words: Vec<u64>,
    /// Pages whose bit is set.
    pages: u64,
    /// A chunk is kept if this many low bits of its hash are 0.
    level: u32,
    most: usize,
    /// The last chunk, since the next request often falls into it.
    last: Option<(Chunk, usize)>,
}

impl Default for Footprint {
    fn default() -> Footprint {
        Footprint::with_limit(MAX_CHUNKS)
    }
}

impl Footprint {
    /// A footprint that keeps at most `chunks` chunks of 512 bytes.
    fn with_limit(chunks: usize) -> Footprint {
        Footprint {
            chunks: HashMap::default(),
            words: Vec::new(),
            pages: 0,
            level: 0,
            most: chunks.max(2),
            last: None,
        }
    }

    /// Counts the pages of a request of `bytes` bytes, of at most some GiB.
    pub fn touch(&mut self, device: u32, offset: u64, bytes: u64) {
        let Some(more) = bytes.checked_sub(1) else {
            return;
        };
        let mut page = offset / PAGE_BYTES;
        let last = offset.saturating_add(more) / PAGE_BYTES;
        while page <= last {
            let chunk = page / CHUNK_PAGES;
            let end = last.min(chunk * CHUNK_PAGES + CHUNK_PAGES - 1);
            if let Some(words) = self.words_of((device, chunk)) {
                let (mut from, to) = (page % CHUNK_PAGES, end % CHUNK_PAGES);
                while from <= to {
                    let upto = to.min(from | 63);
                    let mask = (u64::MAX >> (63 - (upto - from))) << (from % 64);
                    let word = &mut self.words[words + (from / 64) as usize];
                    self.pages += u64::from((mask & !*word).count_ones());
                    *word |= mask;
                    from = upto + 1;
                }
            }
            page = end + 1;
        }
    }

    /// The distinct pages, exact or estimated.
    pub fn pages(&self) -> u64 {
        self.pages << self.level
    }

    pub fn is_exact(&self) -> bool {
        self.level == 0
    }

    /// Where the words of a chunk start, unless the sample excludes it.
    fn words_of(&mut self, chunk: Chunk) -> Option<usize> {
        if let Some((last, words)) = self.last
            && last == chunk
        {
            return Some(words);
        }
        if !is_kept(chunk, self.level) {
            return None;
        }
        let words = match self.chunks.get(&chunk) {
            Some(&words) => words,
            None => {
                if self.chunks.len() == self.most {
                    self.halve();
                    if !is_kept(chunk, self.level) {
                        return None;
                    }
                }
                let words = self.words.len();
                self.words.resize(words + WORDS, 0);
                self.chunks.insert(chunk, words);
                words
            }
        };
        self.last = Some((chunk, words));
        Some(words)
    }

    /// Forgets chunks until there is room.
    #[cold]
    fn halve(&mut self) {
        while self.chunks.len() >= self.most {
            self.level += 1;
            let level = self.level;
            self.chunks.retain(|&chunk, _| is_kept(chunk, level));
        }
        let mut kept = Vec::with_capacity(self.chunks.len() * WORDS);
        self.pages = 0;
        for words in self.chunks.values_mut() {
            let bits = &self.words[*words..*words + WORDS];
            self.pages += bits
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum::<u64>();
            *words = kept.len();
            kept.extend_from_slice(bits);
        }
        self.words = kept;
        self.last = None;
    }
}

fn is_kept((device, chunk): Chunk, level: u32) -> bool {
    // A different mixing from the table's, which uses the same bits.
    mix64(chunk.rotate_left(32) ^ mix64(u64::from(device) ^ 0x5eed)).trailing_zeros() >= level
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use senko_workload::Rng;

    use super::*;

    #[test]
    fn counts_as_a_set_does() {
        let mut rng = Rng::new(7);
        let (mut footprint, mut pages) = (Footprint::default(), HashSet::new());
        for _ in 0..20_000 {
            let (device, offset) = (rng.below(3) as u32, rng.below(1 << 30));
            let most = if rng.below(50) == 0 { 1 << 25 } else { 20_000 };
            let bytes = rng.below(most);
            footprint.touch(device, offset, bytes);
            if bytes > 0 {
                let last = (offset + bytes - 1) / PAGE_BYTES;
                pages.extend((offset / PAGE_BYTES..=last).map(|page| (device, page)));
            }
        }
        assert!(footprint.is_exact());
        assert_eq!(footprint.pages(), pages.len() as u64);
    }

    #[test]
    fn estimates_beyond_its_memory() {
        let mut footprint = Footprint::with_limit(1 << 12);
        let chunks = 100_000u64;
        for chunk in 0..chunks {
            footprint.touch(0, chunk * CHUNK_PAGES * PAGE_BYTES, 3 * PAGE_BYTES);
        }
        assert!(!footprint.is_exact());
        assert!(footprint.words.len() <= (1 << 12) * WORDS);
        let error = footprint.pages() as f64 / (chunks * 3) as f64 - 1.0;
        assert!(error.abs() < 0.1, "an error of {error}");
    }

    #[test]
    fn the_last_bytes_there_are() {
        let mut footprint = Footprint::default();
        footprint.touch(u32::MAX, u64::MAX - 5000, 5000);
        footprint.touch(u32::MAX, u64::MAX - 10, 11);
        assert_eq!(footprint.pages(), 2);
    }
}
