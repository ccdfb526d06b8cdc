// SPDX-License-Identifier: Apache-2.0
//! Long values: their parts are in the log, and their record has a reference to them.

use std::collections::BTreeMap;

use senko_io::le;

/// The longest value.
pub const MAX_VALUE_BYTES: usize = 1 << 30;
/// Most bytes of key and value together; longer values are stored outside of the leaf.
pub(crate) const MAX_INLINE: usize = 1200;

/// The reference to a long value in its record. It and every part name the value's commit: so a
/// part is never taken for one of another value that had its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub bytes: u64,
    /// The number of its first part.
    pub first: u32,
    /// The lower half of the number of its commit.
    pub commit: u32,
}

impl Blob {
    /// Bytes of an entry before a part: its number, and the commit.
    pub const HEAD: usize = 8;
    /// Bytes of a value in one entry.
    pub const PART: usize = crate::disk::entry::BODY - Blob::HEAD;

    /// `None` if it has more bytes or numbers than a value may have.
    pub fn checked(bytes: u64, first: u32, commit: u64) -> Option<Blob> {
        let commit = commit as u32;
        let is_value = bytes <= MAX_VALUE_BYTES as u64
            && first
                .checked_add(bytes.div_ceil(Blob::PART as u64) as u32)
                .is_some();
        is_value.then_some(Blob {
            bytes,
            first,
            commit,
        })
    }

    pub fn parts(&self) -> u32 {
        self.bytes.div_ceil(Blob::PART as u64) as u32
    }

    /// The numbers of its parts.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.parts()
    }

    pub fn encode(&self) -> [u8; 16] {
        let mut reference = [0; 16];
        reference[..8].copy_from_slice(&self.bytes.to_le_bytes());
        reference[8..12].copy_from_slice(&self.first.to_le_bytes());
        reference[12..].copy_from_slice(&self.commit.to_le_bytes());
        reference
    }

    /// From a record; `None` if it is not a reference.
    pub fn parse(reference: &[u8]) -> Option<Blob> {
        if reference.len() != 16 {
            return None;
        }
        let (first, commit) = (le::u32_at(reference, 8), le::u32_at(reference, 12));
        Blob::checked(le::u64_at(reference, 0), first, u64::from(commit))
    }

    /// Fills the body of an entry with part `number`, and returns how many bytes it used.
    pub fn fill(&self, body: &mut [u8], number: u32, part: &[u8]) -> usize {
        body[..4].copy_from_slice(&number.to_le_bytes());
        body[4..8].copy_from_slice(&self.commit.to_le_bytes());
        body[Blob::HEAD..Blob::HEAD + part.len()].copy_from_slice(part);
        Blob::HEAD + part.len()
    }

    /// The bytes of part `number`, if they are in this body of an entry.
    pub fn part<'a>(&self, number: u32, body: &'a [u8]) -> Option<&'a [u8]> {
        let is_part = body.len() >= Blob::HEAD
            && le::u32_at(body, 0) == number
            && le::u32_at(body, 4) == self.commit;
        is_part.then(|| &body[Blob::HEAD..])
    }
}

/// Free and used numbers for parts of long values, as runs.
#[derive(Debug, Default)]
pub(crate) struct BlobIds {
    pub next: u32,
    pub free: BTreeMap<u32, u32>,
}

impl BlobIds {
    pub fn take(&mut self, count: u32) -> u32 {
        if let Some((&first, &has)) = self.free.iter().find(|(_, has)| **has >= count) {
            self.free.remove(&first);
            if has > count {
                self.free.insert(first + count, has - count);
            }
            return first;
        }
        let first = self.next;
        self.next += count;
        first
    }

    pub fn give(&mut self, first: u32, count: u32) {
        let (mut first, mut count) = (first, count);
        if let Some((&before, &has)) = self.free.range(..first).next_back()
            && before + has == first
        {
            self.free.remove(&before);
            (first, count) = (before, has + count);
        }
        if let Some(has) = self.free.remove(&(first + count)) {
            count += has;
        }
        self.free.insert(first, count);
    }

    /// Marks numbers that a log names as used.
    pub fn reserve(&mut self, first: u32, count: u32) {
        let end = first + count;
        if end > self.next {
            let from = self.next;
            self.next = end;
            self.give(from, end - from);
        }
        // The ranges that overlap it, even partly.
        while let Some((&from, &has)) = self.free.range(..end).next_back()
            && from + has > first
        {
            self.free.remove(&from);
            if from < first {
                self.free.insert(from, first - from);
            }
            if from + has > end {
                self.free.insert(end, from + has - end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BlobIds;
    use senko_workload::Rng;

    /// Numbers become free or used, whatever was reserved over them.
    #[test]
    fn numbers_are_given_once() {
        let mut rng = Rng::new(7);
        let (mut ids, mut used) = (BlobIds::default(), vec![false; 4000]);
        let mut taken: Vec<(u32, u32)> = Vec::new();
        for _ in 0..20_000 {
            let count = 1 + rng.below(8) as u32;
            let (first, count) = match rng.below(5) {
                0 | 1 if !taken.is_empty() => {
                    let (first, count) = taken.swap_remove(rng.below(taken.len() as u64) as usize);
                    ids.give(first, count);
                    used[first as usize..][..count as usize].fill(false);
                    continue;
                }
                2 => {
                    // As in a log of another opening, for which other numbers were free.
                    let first = rng.below(200) as u32;
                    ids.reserve(first, count);
                    let range = first..first + count;
                    taken.retain(|(f, c)| *f >= range.end || f + c <= range.start);
                    for (f, c) in &ids.free {
                        assert!(*f >= range.end || f + c <= range.start, "{f} +{c} is free");
                    }
                    (first, count)
                }
                _ => {
                    let first = ids.take(count);
                    let range = &used[first as usize..][..count as usize];
                    assert!(!range.contains(&true), "{first} +{count} was in use");
                    (first, count)
                }
            };
            used[first as usize..][..count as usize].fill(true);
            taken.push((first, count));
        }
        let free: u32 = ids.free.values().sum();
        let known = used.iter().take(ids.next as usize).filter(|used| !**used);
        assert!(free as usize <= known.count());
    }
}
