// SPDX-License-Identifier: Apache-2.0
//! Sets of key ranges: what a transaction read, what it deleted, and where it knows that nothing is
//! left.
//!
//! RANGES-1: the ranges of a set are not empty, and no two of a table overlap or touch. So a lookup
//! compares one range, whatever was added before.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Keys of a table from `from` on, below `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub table: u32,
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

/// The borders of a range in a set.
pub(crate) type Borders<'a> = (&'a [u8], Option<&'a [u8]>);

/// Approximate bytes of a range, besides its keys.
const RANGE_BYTES: usize = 64;

/// The end of each range by its beginning.
type Ranges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Most transactions have none, so that an empty set is one empty word.
#[derive(Debug, Default)]
pub(crate) struct RangeSet(Option<Box<Filled>>);

#[derive(Debug, Default)]
struct Filled {
    tables: BTreeMap<u32, Ranges>,
    bytes: usize,
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn is_below(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

fn bytes_of(from: &[u8], to: &Option<Vec<u8>>) -> usize {
    RANGE_BYTES + from.len() + to.as_ref().map_or(0, Vec::len)
}

impl RangeSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn len(&self) -> usize {
        let of = |filled: &Filled| filled.tables.values().map(BTreeMap::len).sum();
        self.0.as_deref().map_or(0, of)
    }

    /// Approximate bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |filled| filled.bytes)
    }

    fn of(&self, table: u32) -> Option<&Ranges> {
        self.0.as_ref()?.tables.get(&table)
    }

    /// Whether it has ranges of a table.
    pub fn has_table(&self, table: u32) -> bool {
        self.of(table).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Borders<'_>)> {
        let tables = self.0.iter().flat_map(|filled| &filled.tables);
        tables.flat_map(|(table, ranges)| {
            let borders = ranges.iter().map(|(from, to)| (&**from, to.as_deref()));
            borders.map(|borders| (*table, borders))
        })
    }

    /// The range that has a key.
    pub fn find(&self, table: u32, key: &[u8]) -> Option<Borders<'_>> {
        let ranges = self.of(table)?;
        let (from, to) = ranges
            .range::<[u8], _>((Unbounded, Included(key)))
            .next_back()?;
        is_below(key, to.as_deref()).then_some((from, to.as_deref()))
    }

    /// The range that has all keys directly below `end`, or the last keys of all.
    pub fn find_below(&self, table: u32, end: Option<&[u8]>) -> Option<Borders<'_>> {
        let ranges = self.of(table)?;
        let below = end.map_or(Unbounded, Excluded);
        let (from, to) = ranges.range::<[u8], _>((Unbounded, below)).next_back()?;
        let reaches = match (end, to) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(end), Some(to)) => **to >= *end,
        };
        reaches.then_some((from, to.as_deref()))
    }

    /// Whether a range of the set has a key of `from..to`, which is not empty.
    pub fn meets(&self, table: u32, (from, to): Borders<'_>) -> bool {
        let below = to.map_or(Unbounded, Excluded);
        let last = self.of(table).and_then(|ranges| {
            let mut below = ranges.range::<[u8], _>((Unbounded, below));
            below.next_back()
        });
        last.is_some_and(|(_, end)| is_below(from, end.as_deref()))
    }

    pub fn add(&mut self, range: Range) {
        let Range {
            table,
            mut from,
            mut to,
        } = range;
        if !is_below(&from, to.as_deref()) {
            return;
        }
        let filled = self.0.get_or_insert_default();
        let ranges = filled.tables.entry(table).or_default();
        loop {
            // The last one that begins in the new range or at its end, or before it.
            let until = to.as_deref().map_or(Unbounded, Included);
            let Some((at, end)) = ranges.range::<[u8], _>((Unbounded, until)).next_back() else {
                break;
            };
            if end.as_ref().is_some_and(|end| *end < from) {
                break;
            }
            let at = at.clone();
            let end = ranges.remove(&at).flatten();
            filled.bytes -= bytes_of(&at, &end);
            from = from.min(at);
            to = to.zip(end).map(|(to, end)| to.max(end));
        }
        filled.bytes += bytes_of(&from, &to);
        ranges.insert(from, to);
    }

    /// Takes one key out of the set.
    pub fn cut(&mut self, table: u32, key: &[u8]) {
        let Some((from, to)) = self.find(table, key) else {
            return;
        };
        let (from, to) = (from.to_vec(), to.map(<[u8]>::to_vec));
        let Some(filled) = &mut self.0 else { return };
        filled.bytes -= bytes_of(&from, &to);
        let ranges = filled.tables.entry(table).or_default();
        ranges.remove(&from);
        let below = (from, Some(key.to_vec()));
        for (from, to) in [below, (after(key), to)] {
            if is_below(&from, to.as_deref()) {
                filled.bytes += bytes_of(&from, &to);
                ranges.insert(from, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with a set of the keys 0 to 63, the last of which stands for all later ones.
    #[test]
    fn a_set_of_ranges_is_the_set_of_their_keys() {
        let mut rng = 7u64;
        let mut next = |below: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695);
            (rng >> 33) % below
        };
        let key = |at: usize| vec![at as u8];
        for _ in 0..300 {
            let (mut set, mut model) = (RangeSet::default(), [false; 64]);
            for _ in 0..20 {
                let (from, to) = (next(64) as usize, next(70) as usize);
                if next(4) > 0 {
                    let end = (to < 64).then(|| key(to));
                    set.add(Range {
                        table: 1,
                        from: key(from),
                        to: end,
                    });
                    (from..to.min(64)).for_each(|at| model[at] = true);
                } else {
                    set.cut(1, &key(from));
                    // Cut exactly: longer keys with the same beginning stay.
                    assert_eq!(set.find(1, &after(&key(from))).is_some(), model[from]);
                    let rest = Range {
                        table: 1,
                        from: after(&key(from)),
                        to: Some(key(from + 1)),
                    };
                    let was = model[from];
                    if was {
                        set.add(rest);
                        set.add(Range {
                            table: 1,
                            from: key(from),
                            to: Some(after(&key(from))),
                        });
                    }
                }
                for (at, has) in model.iter().enumerate() {
                    assert_eq!(set.find(1, &key(at)).is_some(), *has);
                    assert!(set.find(2, &key(at)).is_none());
                    let below = set.find_below(1, Some(&key(at)));
                    assert_eq!(below.is_some(), at > 0 && model[at - 1]);
                }
                assert_eq!(set.find_below(1, None).is_some(), model[63]);
                if from < to {
                    let meets = set.meets(1, (&key(from), Some(&key(to))));
                    assert_eq!(meets, model[from..to.min(64)].contains(&true));
                }
                let all: Vec<_> = set.iter().collect();
                let bytes =
                    |(_, (from, to)): &(u32, Borders<'_>)| bytes_of(from, &to.map(<[u8]>::to_vec));
                assert_eq!(set.bytes(), all.iter().map(bytes).sum::<usize>());
                // RANGES-1.
                let gaps = all.windows(2).map(|two| (two[0].1.1, two[1].1.0));
                assert!(
                    gaps.into_iter()
                        .all(|(to, from)| to.is_some_and(|to| to < from))
                );
            }
        }
    }
}
