// SPDX-License-Identifier: Apache-2.0
//! Solves the equations of a static map: each layer passes on the keys that do not fit, and the
//! last layer is tried until all fit.
//!
//! Memory while it runs: 16 bytes a row of the current layer, 4 bytes for each key passed on, 4
//! bytes more a key if keys do not come in order, and the result.

use super::super::{MAX_BLOCKS, MapEntry};
use super::equation::{IN_ORDER, Spread, fingerprint};
use super::shape::{
    BUCKET, Layer, MAX_COLUMNS, MAX_LAST_ROWS, MAX_LAST_WIDE, MAX_LAYERS, Shape, block_bits,
    buckets, level,
};
use super::{GROUP, READ, mask, parity};
use crate::hash::mix;

/// Up to this many keys are solved in one layer.
const LAST_KEYS: usize = 1024;

/// A layer that bumps keys has 1024 rows for this many keys.
const KEYS_PER_1024_ROWS: u64 = 1064;

/// After this many tries of the last layer, the builder looks for duplicate keys. The caller
/// promised that there are none.
const SUSPICIOUS: u32 = 24;

/// The most tries of the last layer.
const MAX_TRIES: u32 = 256;

/// The bytes of a map.
pub(super) fn build(entries: &[MapEntry], blocks: u32, fingerprint_bits: f32) -> Vec<u8> {
    assert!(
        (1..=MAX_BLOCKS).contains(&blocks),
        "a map of {blocks} blocks; maps have 1 to {MAX_BLOCKS}"
    );
    assert!(
        u32::try_from(entries.len()).is_ok(),
        "a map has at most 2^32 keys"
    );
    let values = Values::new(blocks, fingerprint_bits);
    let mut keys: Option<Vec<u32>> = None;
    let (mut words, mut body) = (Vec::new(), Vec::new());
    let mut shape = Shape::empty(blocks, values.columns);
    while !entries.is_empty() {
        let count = keys.as_ref().map_or(entries.len(), Vec::len);
        let index = shape.layers;
        shape.layers += 1;
        if count <= LAST_KEYS || shape.layers == MAX_LAYERS {
            let all = keys.unwrap_or_else(|| (0..entries.len() as u32).collect());
            let (layer, seed) = last_layer(entries, all, &values, index, &mut body);
            (shape.seed, shape.last_rows, shape.last_wide) = (seed, layer.rows, layer.wide);
            break;
        }
        let (layer, mut bumped) =
            bumping_layer(entries, keys.as_deref(), &values, index, &mut body);
        words.push(layer.word());
        if bumped.len() > count / 2 && index > 0 {
            // Only keys that occur many times are bumped so often.
            forget_repeated(entries, &mut bumped);
        }
        keys = Some(bumped);
    }
    let mut bytes = Vec::with_capacity(8 + words.len() * 8 + body.len());
    bytes.extend_from_slice(&shape.word().to_le_bytes());
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.append(&mut body);
    bytes
}

/// How the values of keys are made.
struct Values {
    blocks: u32,
    block_bits: u32,
    /// Columns that every group has.
    columns: usize,
    /// Share of the groups that have one more.
    wide: f64,
}

impl Values {
    fn new(blocks: u32, fingerprint_bits: f32) -> Values {
        let block_bits = block_bits(blocks);
        let most = (MAX_COLUMNS as u32 - block_bits) as f32;
        let bits = if fingerprint_bits.is_nan() {
            0.0
        } else {
            fingerprint_bits.clamp(0.0, most)
        };
        Values {
            blocks,
            block_bits,
            columns: block_bits as usize + bits.floor() as usize,
            wide: f64::from(bits - bits.floor()),
        }
    }

    fn of(&self, entry: &MapEntry) -> u32 {
        assert!(
            entry.block < self.blocks,
            "an entry names block {}, and there are {}",
            entry.block,
            self.blocks
        );
        let print = fingerprint(entry.key);
        let bits = self.columns as u32 + u32::from(self.wide > 0.0);
        let above = u64::from(print) << self.block_bits | u64::from(entry.block);
        above as u32 & mask(bits)
    }

    /// Wide groups of a layer of this many rows. A key has the additional bit if both groups that
    /// it reads are wide, so there is one more wide group.
    fn wide_groups(&self, rows: usize, most: usize) -> usize {
        let groups = rows.div_ceil(GROUP);
        let wide = (self.wide * rows as f64 / GROUP as f64).round() as usize;
        wide.min(groups).min(most)
    }
}

/// The equations so far, in echelon form: row i begins with a one in column i, if it exists.
struct Band {
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Default)]
struct Row {
    /// Bit i is the coefficient of the i-th row, counted from this row; bit 0 is set, or all are
    /// zero.
    coefficients: u64,
    value: u32,
}

/// The result of adding an equation.
enum Insert {
    /// It got this row.
    Placed(usize),
    /// It follows from earlier equations.
    Implied,
    /// It contradicts earlier equations.
    Conflict,
}

impl Band {
    fn new(rows: usize) -> Band {
        Band {
            rows: vec![Row::default(); rows],
        }
    }

    fn insert(&mut self, mut start: usize, mut coefficients: u64, mut value: u32) -> Insert {
        loop {
            let shift = coefficients.trailing_zeros();
            start += shift as usize;
            coefficients >>= shift;
            let row = &mut self.rows[start];
            if row.coefficients == 0 {
                *row = Row {
                    coefficients,
                    value,
                };
                return Insert::Placed(start);
            }
            coefficients ^= row.coefficients;
            value ^= row.value;
            if coefficients == 0 {
                return if value == 0 {
                    Insert::Implied
                } else {
                    Insert::Conflict
                };
            }
        }
    }

    fn remove(&mut self, row: usize) {
        self.rows[row] = Row::default();
    }

    /// Appends the layer's groups to `out`. Rows are computed from the last to the first, each from
    /// its equation. `layer` has as many rows as there are, and its thresholds are in `out`
    /// already.
    fn solve(&self, layer: &Layer, out: &mut Vec<u8>) {
        let begin = out.len() - layer.thresholds;
        out.resize(begin + layer.bytes(), 0);
        let bytes = &mut out[begin..];
        // Bit j of a column's state is the value of the j-th row, counted from the current row.
        let mut state = [0u64; MAX_COLUMNS];
        let columns = layer.columns + usize::from(layer.wide > 0);
        for (at, row) in self.rows.iter().enumerate().rev() {
            // A row without an equation is as random as the others, so that absent keys read
            // nothing special.
            let value = if row.coefficients == 0 {
                mix(at as u64) as u32
            } else {
                row.value
            };
            let others = row.coefficients >> 1;
            for (first, state) in (0..columns)
                .step_by(READ)
                .zip(state.as_chunks_mut::<READ>().0)
            {
                let read = parity::of_words(&state.map(|bits| bits & others)) ^ value >> first;
                for (column, bits) in state.iter_mut().enumerate() {
                    *bits = *bits << 1 | u64::from(read >> column & 1);
                }
            }
            if at.is_multiple_of(GROUP) {
                layer.store(bytes, at / GROUP, &state);
            }
        }
    }
}

impl Layer {
    /// Stores the columns of a group; `bytes` begins with the layer.
    fn store(&self, bytes: &mut [u8], group: usize, columns: &[u64]) {
        let count = self.columns + usize::from(group < self.wide);
        let first = self.group_at(group) / 8;
        let rows = self.rows - group * GROUP;
        for (column, bits) in columns[..count].iter().enumerate() {
            if rows >= GROUP {
                or_word(bytes, first + column, *bits);
                continue;
            }
            let bits = bits & ((1 << rows) - 1);
            let (at, shift) = (first + column * rows / 64, column * rows % 64);
            or_word(bytes, at, bits << shift);
            if shift + rows > 64 {
                or_word(bytes, at + 1, bits >> (64 - shift));
            }
        }
    }
}

fn or_word(bytes: &mut [u8], at: usize, bits: u64) {
    let old = super::word(bytes, at);
    super::super::memory::set_word(bytes, at, old | bits);
}

/// A key of the current bucket.
#[derive(Clone, Copy, Default)]
struct Item {
    level: u8,
    key: u32,
    start: usize,
    coefficients: u64,
    value: u32,
}

/// Appends a layer that takes most keys (of all entries, or of the named ones) and returns the
/// rest.
fn bumping_layer(
    entries: &[MapEntry],
    keys: Option<&[u32]>,
    values: &Values,
    index: usize,
    out: &mut Vec<u8>,
) -> (Layer, Vec<u32>) {
    let count = keys.map_or(entries.len(), <[u32]>::len);
    let rows = ((count as u64 * 1024 / KEYS_PER_1024_ROWS) as usize).max(GROUP);
    let wide = values.wide_groups(rows, u32::MAX as usize);
    let layer = Layer::new(index, rows, wide, values.columns, None);
    let order = by_bucket(entries, keys, &layer);
    let order = order.as_deref().or(keys);
    let key_at = |at: usize| order.map_or(at as u32, |order| order[at]);

    let begin = out.len();
    out.resize(begin + layer.thresholds, 0);
    let mut band = Band::new(rows);
    let mut bumped = Vec::with_capacity(count / 20);
    let (mut bucket, mut sorted) = (Vec::new(), Vec::new());
    let mut at = 0;
    for number in 0..buckets(rows) {
        bucket.clear();
        while at < count {
            let key = key_at(at);
            let entry = &entries[key as usize];
            let spread = Spread::of(entry.key, layer.seed);
            let start = spread.start(rows);
            if start / BUCKET != number {
                break;
            }
            bucket.push(Item {
                level: level(start % BUCKET),
                key,
                start,
                coefficients: spread.coefficients(rows),
                value: values.of(entry),
            });
            at += 1;
        }
        sort_down(&bucket, &mut sorted);
        out[begin + number] = fill_bucket(&mut band, &sorted, &mut bumped);
    }
    debug_assert_eq!(at, count, "each key lies in a bucket");
    band.solve(&layer, out);
    (layer, bumped)
}

/// Inserts the keys of a bucket, from its last row to its first, since the previous bucket has
/// taken some of the first rows. If a key does not fit, its level and all lower ones are bumped.
/// Returns the threshold.
fn fill_bucket(band: &mut Band, items: &[Item], bumped: &mut Vec<u32>) -> u8 {
    let mut placed = Vec::new();
    let mut level_from = 0;
    for (at, item) in items.iter().enumerate() {
        if items[level_from].level != item.level {
            level_from = at;
            placed.clear();
        }
        match band.insert(item.start, item.coefficients, item.value) {
            Insert::Placed(row) => placed.push(row),
            Insert::Implied => {}
            Insert::Conflict => {
                for row in placed {
                    band.remove(row);
                }
                bumped.extend(items[level_from..].iter().map(|item| item.key));
                return item.level + 1;
            }
        }
    }
    0
}

/// Sorts the items: the highest level first, equal levels in their order of arrival.
fn sort_down(items: &[Item], sorted: &mut Vec<Item>) {
    let mut ends = [0usize; BUCKET + 1];
    for item in items {
        ends[BUCKET - usize::from(item.level)] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        let here = *end;
        *end = sum;
        sum += here;
    }
    sorted.clear();
    sorted.resize(items.len(), Item::default());
    for item in items {
        let place = &mut ends[BUCKET - usize::from(item.level)];
        sorted[*place] = *item;
        *place += 1;
    }
}

/// The keys in the order of their buckets; `None` if they have this order already.
fn by_bucket(entries: &[MapEntry], keys: Option<&[u32]>, layer: &Layer) -> Option<Vec<u32>> {
    let place =
        |key: u32| Spread::of(entries[key as usize].key, layer.seed).start(layer.rows) / BUCKET;
    if keys.is_none()
        && layer.seed == IN_ORDER
        && entries.is_sorted_by_key(|entry| entry.key.order << 8)
    {
        return None;
    }
    let count = keys.map_or(entries.len(), <[u32]>::len);
    let key_at = |at: usize| keys.map_or(at as u32, |keys| keys[at]);
    let mut ends = vec![0u32; buckets(layer.rows) + 1];
    for at in 0..count {
        ends[place(key_at(at)) + 1] += 1;
    }
    for bucket in 1..ends.len() {
        ends[bucket] += ends[bucket - 1];
    }
    let mut order = vec![0; count];
    for at in 0..count {
        let key = key_at(at);
        let end = &mut ends[place(key)];
        order[*end as usize] = key;
        *end += 1;
    }
    Some(order)
}

/// Appends the layer that takes all `keys`, and returns its seed.
fn last_layer(
    entries: &[MapEntry],
    mut keys: Vec<u32>,
    values: &Values,
    index: usize,
    out: &mut Vec<u8>,
) -> (Layer, u32) {
    for attempt in 0..MAX_TRIES {
        if attempt == SUSPICIOUS {
            forget_repeated(entries, &mut keys);
        }
        let count = keys.len();
        // With so few additional rows, about every second try succeeds. Later tries have more rows.
        let spare = count / 80 + 2 + count * attempt as usize / 256;
        let rows = if count < 2 {
            count
        } else {
            (count + spare).min(MAX_LAST_ROWS)
        };
        let wide = values.wide_groups(rows, MAX_LAST_WIDE);
        let layer = Layer::new(index, rows, wide, values.columns, Some(attempt));
        let mut band = Band::new(rows);
        let fits = keys.iter().all(|key| {
            let entry = &entries[*key as usize];
            let spread = Spread::of(entry.key, layer.seed);
            let placed = band.insert(
                spread.start(rows),
                spread.coefficients(rows),
                values.of(entry),
            );
            !matches!(placed, Insert::Conflict)
        });
        if fits {
            band.solve(&layer, out);
            return (layer, attempt);
        }
    }
    unreachable!("different keys fit into twice as many rows with one of {MAX_TRIES} hashes");
}

/// Keeps one entry of each key. If callers keep their promise, it removes nothing.
fn forget_repeated(entries: &[MapEntry], keys: &mut Vec<u32>) {
    let before = keys.len();
    keys.sort_by_key(|key| entries[*key as usize].key);
    keys.dedup_by_key(|key| entries[*key as usize].key);
    debug_assert_eq!(before, keys.len(), "the keys of a map are unique");
}
