// SPDX-License-Identifier: Apache-2.0
//! The layout of a static map's bytes. A look-up derives it each time from the first bytes of the
//! map, with a few shifts.

use super::super::Damage;
use super::super::memory::word;
use super::GROUP;
use super::equation::IN_ORDER;

/// Most layers.
pub(super) const MAX_LAYERS: usize = 15;
/// Most rows of the last layer.
pub(super) const MAX_LAST_ROWS: usize = u16::MAX as usize;
/// Most wide groups of the last layer.
pub(super) const MAX_LAST_WIDE: usize = (1 << 10) - 1;
/// Most columns.
pub(super) const MAX_COLUMNS: usize = 32;

/// Start rows of a bucket.
pub(super) const BUCKET: usize = 256;

/// Marks the seeds of the last layer.
const LAST: u32 = 0x100;

/// The contents of the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub columns: usize,
    pub layers: usize,
    pub seed: u32,
    pub blocks: u32,
    /// Bits of an ordinal.
    pub block_bits: u32,
    pub last_rows: usize,
    pub last_wide: usize,
    /// The header's word for the first layer, if this is not the last layer.
    first: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layer {
    index: usize,
    pub rows: usize,
    /// The number of groups, from the first on, that have one more column.
    pub wide: usize,
    pub columns: usize,
    pub seed: u32,
    /// Bytes of thresholds; none in the last layer.
    pub thresholds: usize,
    /// Where the layer begins, with its thresholds.
    pub at: usize,
}

/// Bits of an ordinal below `blocks`.
pub(super) fn block_bits(blocks: u32) -> u32 {
    u32::BITS - (blocks - 1).leading_zeros()
}

/// Thresholds of a layer of this many rows.
pub(super) fn buckets(rows: usize) -> usize {
    rows.saturating_sub(GROUP - 1).max(1).div_ceil(BUCKET)
}

impl Shape {
    /// A map without keys.
    pub(super) fn empty(blocks: u32, columns: usize) -> Shape {
        Shape {
            columns,
            layers: 0,
            seed: 0,
            blocks,
            block_bits: block_bits(blocks),
            last_rows: 0,
            last_wide: 0,
            first: 0,
        }
    }

    /// The shape of a map with these bytes.
    #[inline]
    pub(super) fn of(bytes: &[u8]) -> Shape {
        let header = word(bytes, 0);
        let field = |from: u32, bits: u32| (header >> from) & ((1 << bits) - 1);
        let blocks = field(18, 20) as u32 + 1;
        let layers = field(6, 4) as usize;
        Shape {
            columns: field(0, 6) as usize,
            layers,
            seed: field(10, 8) as u32,
            blocks,
            block_bits: block_bits(blocks),
            last_rows: field(38, 16) as usize,
            last_wide: field(54, 10) as usize,
            first: if layers > 1 { word(bytes, 1) } else { 0 },
        }
    }

    /// The header's first word.
    pub(super) fn word(&self) -> u64 {
        self.columns as u64
            | (self.layers as u64) << 6
            | u64::from(self.seed) << 10
            | u64::from(self.blocks - 1) << 18
            | (self.last_rows as u64) << 38
            | (self.last_wide as u64) << 54
    }

    pub(super) fn header_bytes(&self) -> usize {
        8 * self.layers.max(1)
    }

    /// The first layer; of an empty map, one without rows.
    #[inline]
    pub(super) fn first_layer(&self) -> Layer {
        self.layer(0, self.header_bytes(), self.first)
    }

    /// The layer after `layer`, which is not the last.
    pub(super) fn next_layer(&self, bytes: &[u8], layer: &Layer) -> Layer {
        let index = layer.index + 1;
        let said = if index + 1 < self.layers {
            word(bytes, 1 + index)
        } else {
            0
        };
        self.layer(index, layer.at + layer.bytes(), said)
    }

    #[inline]
    fn layer(&self, index: usize, at: usize, said: u64) -> Layer {
        let columns = self.columns;
        if index + 1 < self.layers {
            let rows = (said & 0xffff_ffff) as usize;
            Layer {
                index,
                rows,
                wide: (said >> 32) as usize,
                columns,
                seed: IN_ORDER + index as u32,
                thresholds: buckets(rows).next_multiple_of(8),
                at,
            }
        } else {
            Layer {
                index,
                rows: self.last_rows,
                wide: self.last_wide,
                columns,
                seed: LAST | self.seed,
                thresholds: 0,
                at,
            }
        }
    }

    /// Whether bytes are a valid map: if so, no look-up reads beyond them.
    pub(super) fn check(bytes: &[u8]) -> Result<(), Damage> {
        if bytes.len() < 8 || !bytes.len().is_multiple_of(8) {
            return Err(Damage("its length is none that a map has"));
        }
        let layers = (word(bytes, 0) >> 6 & 0xf) as usize;
        if bytes.len() < 8 * layers.max(1) {
            return Err(Damage("its header is cut"));
        }
        let shape = Shape::of(bytes);
        if shape.columns > MAX_COLUMNS || (shape.block_bits as usize) > shape.columns {
            return Err(Damage("its values have no such number of bits"));
        }
        if shape.layers == 0 && (shape.last_rows != 0 || shape.last_wide != 0) {
            return Err(Damage("it has rows but no layer"));
        }
        let mut layer = shape.first_layer();
        loop {
            let several = layer.wide > 0 && layer.columns == MAX_COLUMNS;
            if layer.wide > layer.groups() || several {
                return Err(Damage("a layer has more wide groups than there can be"));
            }
            if layer.thresholds > 0 && layer.rows == 0 {
                return Err(Damage("a layer has no rows"));
            }
            let end = layer.at + layer.bytes();
            if end > bytes.len() {
                return Err(Damage("it is cut"));
            }
            if layer.index + 1 >= shape.layers {
                if end != bytes.len() {
                    return Err(Damage("it continues past its end"));
                }
                return Ok(());
            }
            layer = shape.next_layer(bytes, &layer);
        }
    }
}

impl Layer {
    /// A layer that is being built; `last` is the number of the try.
    pub(super) fn new(
        index: usize,
        rows: usize,
        wide: usize,
        columns: usize,
        last: Option<u32>,
    ) -> Layer {
        Layer {
            index,
            rows,
            wide,
            columns,
            seed: match last {
                None => IN_ORDER + index as u32,
                Some(attempt) => LAST | attempt,
            },
            thresholds: match last {
                None => buckets(rows).next_multiple_of(8),
                Some(_) => 0,
            },
            at: 0,
        }
    }

    /// The header's word for it.
    pub(super) fn word(&self) -> u64 {
        self.rows as u64 | (self.wide as u64) << 32
    }

    /// The number of groups, including a last one that is not full.
    #[inline]
    pub(super) fn groups(&self) -> usize {
        self.rows.div_ceil(GROUP)
    }

    /// Whether a key with this start was bumped from this layer.
    #[inline]
    pub(super) fn bumps(&self, bytes: &[u8], start: usize) -> bool {
        self.thresholds > 0 && bumped(start % BUCKET, bytes[self.at + start / BUCKET])
    }

    /// Where a group's columns begin.
    #[inline]
    pub(super) fn group_at(&self, group: usize) -> usize {
        self.at + self.thresholds + 8 * (group * self.columns + group.min(self.wide))
    }

    /// All bytes of the layer.
    pub(super) fn bytes(&self) -> usize {
        let full = self.rows / GROUP;
        let columns = self.columns + usize::from(self.wide > full);
        let packed = (self.rows % GROUP * columns).div_ceil(64);
        self.group_at(full) - self.at + 8 * packed
    }

    /// A column of a group: bit i is that of the group's i-th row.
    pub(super) fn column(&self, bytes: &[u8], group: usize, column: usize) -> u64 {
        let first = self.group_at(group) / 8;
        let rows = self.rows - group * GROUP;
        if rows >= GROUP {
            return word(bytes, first + column);
        }
        let (at, shift) = (first + column * rows / 64, column * rows % 64);
        let mut bits = word(bytes, at) >> shift;
        if shift + rows > 64 {
            bits |= word(bytes, at + 1) << (64 - shift);
        }
        bits & ((1 << rows) - 1)
    }
}

/// The level of a start row in its bucket: keys are bumped by levels. The last two rows share one,
/// so that a threshold fits into a byte.
#[inline]
pub(super) fn level(offset: usize) -> u8 {
    offset.min(BUCKET - 2) as u8
}

#[inline]
fn bumped(offset: usize, threshold: u8) -> bool {
    level(offset) < threshold
}
