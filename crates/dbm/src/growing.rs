// SPDX-License-Identifier: Apache-2.0
//! An array that grows while other threads read it. Its chunks double in size, and are allocated
//! when they are first needed. Words of pages, places of long values and segments are in such
//! arrays.

use std::sync::OnceLock;

/// Elements of the first chunk, as a power of two.
const FIRST: u32 = 10;

/// An array that grows and whose elements never move.
pub(crate) struct Growing<T> {
    chunks: [OnceLock<Box<[T]>>; (u32::BITS - FIRST + 1) as usize],
}

impl<T: Default> Growing<T> {
    pub fn new() -> Growing<T> {
        Growing {
            chunks: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    fn split(index: u32) -> (usize, usize) {
        let place = u64::from(index) + (1 << FIRST);
        let power = place.ilog2();
        ((power - FIRST) as usize, (place - (1 << power)) as usize)
    }

    /// The element, if its chunk was allocated.
    pub fn get(&self, index: u32) -> Option<&T> {
        let (chunk, nth) = Growing::<T>::split(index);
        self.chunks[chunk].get().map(|chunk| &chunk[nth])
    }

    pub fn at(&self, index: u32) -> &T {
        let (chunk, nth) = Growing::<T>::split(index);
        let words = 1usize << (chunk as u32 + FIRST);
        let make = || (0..words).map(|_| T::default()).collect();
        &self.chunks[chunk].get_or_init(make)[nth]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn chunks_follow_on_each_other() {
        let words: Growing<AtomicU64> = Growing::new();
        assert!(words.get(5).is_none());
        for index in 0..5000 {
            words
                .at(index)
                .store(u64::from(index) + 1, Ordering::Relaxed);
        }
        for index in 0..5000 {
            let word = words.get(index).expect("it was made");
            assert_eq!(word.load(Ordering::Relaxed), u64::from(index) + 1);
        }
        assert_eq!(Growing::<AtomicU64>::split(u32::MAX).0, 22);
    }
}
