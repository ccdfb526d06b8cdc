// SPDX-License-Identifier: Apache-2.0
//! The elements, and how they are divided into pages and blocks.
//!
//! Element `i` has the key `mix64(i)`, a bijection, so that all keys differ and numbers from
//! `elements` on are absent keys. An element's value follows from its number. Nothing is kept in
//! memory.

use std::ops::Range;

use senko_io::PAGE_SIZE;
use senko_store::{Hasher, KeyHash};
use senko_workload::rng::mix64;

use crate::page;

/// A key that is requested.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub number: u64,
    /// Its bytes.
    pub key: [u8; 8],
    /// Its hash, computed once.
    pub hash: KeyHash,
}

/// The hash of a numbered key: as good as the store's, and faster to make.
#[inline]
pub fn hash_of(number: u64) -> KeyHash {
    let order = mix64(number);
    KeyHash {
        order,
        check: mix64(order ^ 0x5bd1_e995) as u32,
    }
}

/// The keys, with the secret of their hash.
#[derive(Clone, Debug)]
pub struct Keys {
    hasher: Hasher,
    /// The bits of `order` that are kept.
    kept: u64,
}

impl Keys {
    /// With a secret from `seed`.
    pub fn new(seed: u64) -> Keys {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&mix64(seed).to_le_bytes());
        secret[8..].copy_from_slice(&mix64(!seed).to_le_bytes());
        Keys {
            hasher: Hasher::new(secret),
            kept: !0,
        }
    }

    /// Keys whose `order` differs only in the upper `bits`, so that many are equal, to test the
    /// layouts with equal hashes.
    #[must_use]
    pub fn colliding(self, bits: u32) -> Keys {
        Keys {
            kept: !(!0 >> bits),
            ..self
        }
    }

    /// Key number `number`.
    pub fn wanted(&self, number: u64) -> Wanted {
        let key = mix64(number).to_le_bytes();
        let mut hash = self.hasher.hash(&key);
        hash.order &= self.kept;
        Wanted { number, key, hash }
    }
}

/// How elements are cut into pages and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub elements: u64,
    /// Bytes of a page, a multiple of the device's.
    pub page_bytes: usize,
    /// Pages of elements in a block.
    pub block_pages: u32,
    pub value_bytes: usize,
    /// Number of the first element: 0 unless this is a part of a larger whole.
    pub first_element: u64,
    /// The device page at which the first block begins.
    pub first_page: u64,
}

impl Geometry {
    /// Elements that a page holds.
    pub fn per_page(&self) -> usize {
        page::capacity(self.page_bytes, self.value_bytes)
    }

    /// Elements that a block holds.
    pub fn per_block(&self) -> u64 {
        self.per_page() as u64 * u64::from(self.block_pages)
    }

    /// Blocks; the last may be partly filled.
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.elements.div_ceil(self.per_block())).expect("fewer than 2^32 blocks")
    }

    /// Numbers of the elements of a block.
    pub fn members(&self, block: u32) -> Range<u64> {
        let start = u64::from(block) * self.per_block();
        let end = (start + self.per_block()).min(self.elements);
        self.first_element + start..self.first_element + end
    }

    /// Device pages in a page.
    pub fn device_pages(&self) -> u64 {
        (self.page_bytes / PAGE_SIZE) as u64
    }

    /// Bytes of a block's pages of elements.
    pub fn block_bytes(&self) -> u64 {
        self.page_bytes as u64 * u64::from(self.block_pages)
    }

    /// Bytes of keys and values.
    pub fn payload_bytes(&self) -> u64 {
        self.elements * (self.value_bytes as u64 + 8)
    }
}
