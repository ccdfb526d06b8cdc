// SPDX-License-Identifier: Apache-2.0
//! A static map from hashes to block ordinals that stores no keys: bumped ribbon retrieval.
//!
//! Source: Dillinger, Huebschle-Schneider, Sanders, Walzer, "Fast Succinct Retrieval and
//! Approximate Membership using Ribbon" (2022), ribbons 64 wide.
//! Idea: a key has a start row and 64 coefficients, both from its hash. The map stores one value a
//! row. The coefficients choose among the rows from the start on, and the XOR of the chosen ones is
//! the key's value. Building solves that system of equations, in sequential memory. A *layer* has
//! fewer rows than keys, so nearly every row is used. It is cut into buckets of 256 start rows. The
//! keys that begin below a bucket's threshold are *bumped* to the next layer, where they have
//! another hash. The last layer has a few rows too many and is tried with one hash after another
//! until all its keys fit. So a map takes within 1.5 % of the bits of its values, and never fails
//! to build.
//!
//! A value is a block's ordinal and a fingerprint of the key. An absent key reads an almost random
//! value. With f bits of fingerprint, a share of 2^-f of absent keys has a candidate. This share is
//! smaller if some ordinals belong to no block.
//!
//! Deviations from the paper. Thresholds are whole bytes (1/32 of a bit a key) and exact; that
//! wastes fewer rows than two bits for a bucket of half that size. Keys arrive in the order of
//! blocks. That is the order of start rows in the first layer, so nothing is sorted. The last layer
//! is a plain ribbon. The number of bits of a value may be a fraction: the rows of the first groups
//! then have one bit more than the others.
//!
//! ```text
//! all:    header (8) | one word for each layer but the last | layer 0 | layer 1 | ... | last layer
//! header: bits 0-5 columns | 6-9 layers | 10-17 seed of the last | 18-37 blocks - 1 | 38-53 rows of the last | 54-63 wide groups of the last
//! word:   bits 0-31 rows | 32-63 wide groups
//! layer:  thresholds, a byte a bucket, filled up to words (not in the last layer)
//!         then groups of 64 rows: one word of 8 bytes a column, bit i of it the value's bit of row i; `wide` groups have a column more;
//!         then, if the rows are not a multiple of 64, the last group, its columns packed without gaps, filled up to a word
//! ```
//! A look-up reads one threshold and two neighbouring groups. All words are little-endian.

mod build; // solves the equations
mod equation; // a key's start, coefficients, value
mod parity; // of 16 words at once
mod shape; // where everything lies

use super::memory::{Memory, prefetch, word};
use super::{BlockMap, Candidates, Damage, MapEntry};
use crate::KeyHash;
use equation::{Spread, fingerprint};
use shape::{Layer, Shape};

/// Rows of a group, and the most coefficients of a key.
const GROUP: usize = 64;

/// Columns that are read at once.
const READ: usize = 16;

/// A map from hashes to block ordinals.
#[derive(Debug)]
pub struct StaticMap {
    memory: Memory,
}

impl StaticMap {
    /// Builds the map of `entries`, whose keys are unique, for `blocks` blocks.
    ///
    /// # Panics
    /// If there are no blocks or more than [`super::MAX_BLOCKS`], or an entry names a block that
    /// does not exist.
    pub fn build(entries: &[MapEntry], blocks: u32, fingerprint_bits: f32) -> StaticMap {
        StaticMap {
            memory: Memory::copy_of(&build::build(entries, blocks, fingerprint_bits)),
        }
    }

    /// Reads what [`BlockMap::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes do not encode a map.
    pub fn decode(bytes: &[u8]) -> Result<StaticMap, Damage> {
        Shape::check(bytes)?;
        Ok(StaticMap {
            memory: Memory::copy_of(bytes),
        })
    }

    /// The block of a member. For an absent key: none, or now and then any block.
    #[inline]
    pub fn find(&self, key: KeyHash) -> Option<u32> {
        let bytes: &[u8] = &self.memory;
        let shape = Shape::of(bytes);
        let mut layer = shape.first_layer();
        loop {
            if layer.rows == 0 {
                return None;
            }
            let spread = Spread::of(key, layer.seed);
            let start = spread.start(layer.rows);
            if !layer.bumps(bytes, start) {
                let (value, columns) =
                    window(bytes, &layer, start, spread.coefficients(layer.rows));
                return shape.accept(key, value, columns);
            }
            layer = shape.next_layer(bytes, &layer);
        }
    }

    /// Where the look-up of a key reads its value. Prefetches that memory.
    fn ask(&self, key: KeyHash) {
        let bytes: &[u8] = &self.memory;
        let shape = Shape::of(bytes);
        let mut layer = shape.first_layer();
        loop {
            if layer.rows == 0 {
                return;
            }
            let start = Spread::of(key, layer.seed).start(layer.rows);
            if !layer.bumps(bytes, start) {
                let group = start / GROUP;
                let from = layer.group_at(group);
                let groups = if start.is_multiple_of(GROUP) { 1 } else { 2 };
                prefetch(bytes, from, layer.group_at(group + groups));
                return;
            }
            layer = shape.next_layer(bytes, &layer);
        }
    }
}

impl BlockMap for StaticMap {
    fn candidates(&self, key: KeyHash, out: &mut Candidates) {
        if let Some(block) = self.find(key) {
            out.push(block);
        }
    }

    fn prefetch(&self, key: KeyHash) {
        self.ask(key);
    }

    fn exact_for_members(&self) -> bool {
        true
    }

    fn bytes(&self) -> usize {
        size_of::<StaticMap>() + self.memory.heap_bytes()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.memory);
    }
}

impl Shape {
    /// The ordinal in a value that was read for a key, if a member could have this value.
    #[inline]
    fn accept(&self, key: KeyHash, value: u32, columns: u32) -> Option<u32> {
        let block = value & mask(self.block_bits);
        let print = value >> self.block_bits;
        let right = print == fingerprint(key) & mask(columns - self.block_bits);
        (right && block < self.blocks).then_some(block)
    }
}

/// `bits` ones; `bits` is at most 32.
#[inline]
fn mask(bits: u32) -> u32 {
    ((1u64 << bits) - 1) as u32
}

/// The XOR of the rows that `coefficients` choose from `start` on, and how many bits of it are
/// there.
#[inline]
fn window(bytes: &[u8], layer: &Layer, start: usize, coefficients: u64) -> (u32, u32) {
    let (group, offset) = (start / GROUP, start % GROUP);
    let low = coefficients << offset;
    let high = (coefficients >> 1) >> (GROUP - 1 - offset);
    let next = (group + 1).min(layer.groups() - 1);
    // The wide groups come first. A key has the additional bit if both of its groups have it.
    let columns = layer.columns + usize::from(next < layer.wide);
    let (from, to) = (layer.group_at(group), layer.group_at(next));
    let full = group < next && next < layer.rows / GROUP;
    let mut value = 0;
    for first in (0..columns).step_by(READ) {
        // Words after the columns belong to the next group; their bits are cut off below.
        let part = if full
            && let Some(a) = bytes.get(from + first * 8..).and_then(<[u8]>::first_chunk)
            && let Some(b) = bytes.get(to + first * 8..).and_then(<[u8]>::first_chunk)
        {
            parity::of_window(a, b, low, high)
        } else {
            let mut words = [0; READ];
            for (column, bits) in (first..columns).zip(&mut words) {
                *bits = layer.column(bytes, group, column) & low;
                if group < next {
                    *bits ^= layer.column(bytes, next, column) & high;
                }
            }
            parity::of_words(&words)
        };
        value |= part << first;
    }
    (value & mask(columns as u32), columns as u32)
}
