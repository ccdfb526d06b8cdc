// SPDX-License-Identifier: Apache-2.0
//! Maps page and block numbers to places in a buffer's slabs.
//!
//! Open addressing with linear probes over at least twice as many cells as there can be entries.
//! The hash is a multiplication (Knuth's), because no adversary chooses page numbers. Removal moves
//! entries back instead of leaving marks. The table never grows, so nothing is allocated after the
//! start. It takes 16 to 32 bytes per entry, whatever the drive's size.

use crate::geometry::NONE;

/// A map from `u32` to `u32` with a fixed bound on its entries. [`NONE`] is not a key.
#[derive(Clone, Debug)]
pub struct Table {
    cells: Vec<(u32, u32)>,
    shift: u32,
}

impl Table {
    pub fn new(entries: usize) -> Self {
        let cells = (entries.max(1) * 2).next_power_of_two();
        Self {
            cells: vec![(NONE, 0); cells],
            shift: 64 - cells.trailing_zeros(),
        }
    }

    #[inline]
    fn home(&self, key: u32) -> usize {
        (u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The cell of a key, or the empty cell where the key would go.
    #[inline]
    fn cell(&self, key: u32) -> usize {
        let mask = self.cells.len() - 1;
        let mut at = self.home(key);
        while self.cells[at].0 != key && self.cells[at].0 != NONE {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    pub fn get(&self, key: u32) -> Option<u32> {
        let (found, value) = self.cells[self.cell(key)];
        (found == key).then_some(value)
    }

    #[inline]
    pub fn insert(&mut self, key: u32, value: u32) {
        let at = self.cell(key);
        self.cells[at] = (key, value);
    }

    #[inline]
    pub fn remove(&mut self, key: u32) {
        let mask = self.cells.len() - 1;
        let mut hole = self.cell(key);
        if self.cells[hole].0 == NONE {
            return;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.cells[at];
            if entry.0 == NONE {
                break;
            }
            // An entry may move back to the hole unless its home cell lies between the hole and the
            // entry.
            let from_home = at.wrapping_sub(self.home(entry.0)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.cells[hole] = entry;
                hole = at;
            }
        }
        self.cells[hole] = (NONE, 0);
    }

    pub fn bytes(&self) -> u64 {
        (self.cells.len() * size_of::<(u32, u32)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use senko_workload::Rng;

    use super::*;

    #[test]
    fn is_a_map() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let entries = 1 + rng.below(40) as usize;
            let mut table = Table::new(entries);
            let mut map = HashMap::new();
            for _ in 0..2000 {
                let key = rng.below(3 * entries as u64) as u32 * 1024;
                if map.len() < entries && rng.below(2) == 0 {
                    let value = rng.next_u64() as u32;
                    table.insert(key, value);
                    map.insert(key, value);
                } else {
                    table.remove(key);
                    map.remove(&key);
                }
                let other = rng.below(3 * entries as u64) as u32 * 1024;
                assert_eq!(table.get(other), map.get(&other).copied(), "seed {seed}");
            }
        }
    }
}
