// SPDX-License-Identifier: Apache-2.0
//! Checks all of a block: each page, the order, the hash list against the elements, the page index,
//! the counts.
//!
//! It continues after damage, so one run finds all of it. It needs the memory of a scan and of one
//! page of the hash list.

use senko_io::{Device, Purpose, Tag};

use super::hash_list::{ENTRIES_PER_PAGE, HashEntry};
use super::head::{self, Meta};
use super::record::BlockRecord;
use super::scan::BlockScan;
use super::{read_head, read_meta};
use crate::element::{EXPIRY, Element, ExtentRef};
use crate::{Hasher, KeyHash, StoreError};

/// A problem in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Byte in the file.
    pub offset: u64,
    /// The problem, in a sentence.
    pub what: String,
}

impl Problem {
    /// An error. `offset` is the place of one that does not name its own.
    pub(crate) fn of(offset: u64, error: &StoreError) -> Problem {
        match error {
            StoreError::Damaged { what, offset } => Problem {
                offset: *offset,
                what: what.clone(),
            },
            other => Problem {
                offset,
                what: other.to_string(),
            },
        }
    }
}

const READ_AHEAD: usize = 1 << 20;
const TAG: Tag = Tag::store(Purpose::Recover);

/// Checks all of a block. Nothing that it finds is an error: the list is empty if the block is as
/// it was written.
pub fn verify_block(device: &dyn Device, record: &BlockRecord, hasher: &Hasher) -> Vec<Problem> {
    let mut problems = Problems(Vec::new());
    let meta = read_meta(device, record)
        .map_err(|error| problems.note(Problem::of(record.head_offset(0), &error)))
        .ok();
    if record.extent.end() > device.pages() {
        return problems.0;
    }
    let mut walk = Walk {
        record,
        list: HashReader::new(device, record, meta.as_ref()),
        meta: meta.as_ref(),
        before: None,
        key: Vec::new(),
        seen: Seen::default(),
        problems,
    };
    let mut scan = BlockScan::new(device, record, hasher.clone(), READ_AHEAD, TAG);
    let mut damaged = false;
    loop {
        let page = scan.page();
        match scan.next_element() {
            Ok(None) => break,
            Ok(Some((hash, element))) => {
                let wrong = walk.element(hash, &element, damaged);
                let pages = scan.last_pages();
                let offset = record.page_offset(*pages.start());
                for what in wrong.into_iter().flatten() {
                    walk.problems.add(offset, what);
                }
                if let Some(meta) = &meta {
                    let known = meta.index.find(hash.order);
                    if known.first > *pages.start() || known.end <= *pages.end() {
                        walk.problems
                            .add(offset, "the page index leads past an element");
                    }
                }
            }
            Err(error) => {
                damaged = true;
                let offset = record.page_offset(page);
                walk.problems.note(Problem::of(offset, &error));
                if !scan.skip_damage() {
                    break;
                }
            }
        }
    }
    walk.end(damaged)
}

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, offset: u64, what: &str) {
        let what = what.to_owned();
        self.note(Problem { offset, what });
    }

    /// Notes a problem, unless it equals the last one.
    fn note(&mut self, problem: Problem) {
        if self.0.last() != Some(&problem) {
            self.0.push(problem);
        }
    }
}

/// Totals over the elements, for the comparison with the record.
#[derive(Default)]
struct Seen {
    elements: u64,
    tombstones: u32,
    expiring: u32,
    key_value_bytes: u64,
    orders: Option<(u64, u64)>,
    times: Option<(u64, u64)>,
    large: u32,
}

struct Walk<'d> {
    record: &'d BlockRecord,
    meta: Option<&'d Meta>,
    list: HashReader<'d>,
    /// The hash and the time of the previous element; its key is in `key`.
    before: Option<(KeyHash, u64)>,
    key: Vec<u8>,
    seen: Seen,
    problems: Problems,
}

impl Walk<'_> {
    /// Checks the next element and returns its problem, if it has one. With `damaged`, elements
    /// before it may be missing.
    fn element(
        &mut self,
        hash: KeyHash,
        element: &Element<'_>,
        damaged: bool,
    ) -> [Option<&'static str>; 3] {
        let mut wrong = [None; 3];
        let behind = self.before.is_none_or(|(before, time)| {
            let order = before
                .cmp(&hash)
                .then_with(|| self.key.as_slice().cmp(element.key))
                .then_with(|| element.time.cmp(&time));
            order.is_lt()
        });
        if !behind {
            wrong[0] = Some("the versions of a key are not in order");
        }
        self.before = Some((hash, element.time));
        self.key.clear();
        self.key.extend_from_slice(element.key);
        let entry = HashEntry {
            key: hash,
            time: element.time,
            flags: element.flags,
        };
        if !self.list.take(&entry, damaged, &mut self.problems) {
            wrong[1] = Some("an element is missing in the hash list");
        }
        let seen = &mut self.seen;
        let mut value = element.value.len() as u64;
        if element.is_large() {
            let reference = ExtentRef::decode(element.value);
            value = reference.map_or(0, |reference| reference.bytes);
            let known = self
                .meta
                .map(|meta| meta.large.as_slice())
                .unwrap_or_default();
            let expected = known.get(seen.large as usize).copied();
            if reference.is_none() || (self.meta.is_some() && !damaged && expected != reference) {
                wrong[2] = Some("a large value's extent is not the one that the head names");
            }
            seen.large += 1;
        }
        seen.elements += 1;
        seen.tombstones += u32::from(element.is_tombstone());
        seen.expiring += u32::from(element.flags & EXPIRY != 0);
        seen.key_value_bytes += element.key.len() as u64 + value;
        let first = seen.orders.map_or(hash.order, |orders| orders.0);
        seen.orders = Some((first, hash.order));
        let (oldest, newest) = seen.times.unwrap_or((element.time, element.time));
        seen.times = Some((oldest.min(element.time), newest.max(element.time)));
        wrong
    }

    fn end(mut self, damaged: bool) -> Vec<Problem> {
        self.list.rest(damaged, &mut self.problems);
        let (seen, record) = (&self.seen, self.record);
        let same = seen.elements == record.elements
            && seen.tombstones == record.tombstones
            && seen.expiring == record.expiring
            && seen.large == record.large
            && seen.key_value_bytes == record.key_value_bytes
            && seen.orders.unwrap_or((0, 0)) == (record.first_order, record.last_order)
            && seen.times.unwrap_or((0, 0)) == (record.min_time, record.max_time);
        if !same && !damaged {
            self.problems.add(
                record.head_offset(0),
                "the counts of a block are not those of its elements",
            );
        }
        self.problems.0
    }
}

/// The hash list, an entry at a time.
struct HashReader<'d> {
    device: &'d dyn Device,
    record: &'d BlockRecord,
    meta: Option<&'d Meta>,
    /// What is on the hash-list page of the number `held`.
    payload: Vec<u8>,
    held: Option<u32>,
    next: usize,
    shard: usize,
    /// A page of the list could not be read, so its entries are unknown.
    broken: bool,
}

impl<'d> HashReader<'d> {
    fn new(
        device: &'d dyn Device,
        record: &'d BlockRecord,
        meta: Option<&'d Meta>,
    ) -> HashReader<'d> {
        HashReader {
            device,
            record,
            meta,
            payload: Vec::new(),
            held: None,
            next: 0,
            shard: 0,
            broken: false,
        }
    }

    /// The next entry, without stepping over it.
    fn peek(&mut self, problems: &mut Problems) -> Option<HashEntry> {
        let meta = self.meta?;
        while (self.next as u64) < self.record.elements {
            let nth = self.next / ENTRIES_PER_PAGE;
            let number = self.record.meta_pages + nth as u32;
            if self.held != Some(number) {
                self.held = Some(number);
                let kept = &mut self.payload;
                kept.clear();
                let pages = number..number + 1;
                let read = read_head(self.device, self.record, pages, TAG, |_, payload| {
                    kept.extend_from_slice(payload);
                    Ok(())
                });
                if let Err(error) = read {
                    problems.note(Problem::of(self.record.head_offset(number), &error));
                    self.broken = true;
                    self.next = (nth + 1) * ENTRIES_PER_PAGE;
                    continue;
                }
            }
            self.shard = meta.directory.shard_of(self.next, self.shard);
            let entry = head::entry(&self.payload, self.next % ENTRIES_PER_PAGE, self.shard);
            if entry.is_some() {
                return entry;
            }
            problems.add(
                self.record.head_offset(number),
                "the hash list has flags that there are not",
            );
            self.broken = true;
            self.next += 1;
        }
        None
    }

    /// Whether the list has this entry next. If elements may be missing, it steps over the entries
    /// before it.
    fn take(&mut self, entry: &HashEntry, damaged: bool, problems: &mut Problems) -> bool {
        while let Some(next) = self.peek(problems) {
            if next == *entry {
                self.next += 1;
                return true;
            }
            if next.key > entry.key || (next.key == entry.key && !damaged) {
                return self.broken;
            }
            self.step_over(damaged, problems);
        }
        self.broken || self.meta.is_none()
    }

    /// Steps over an entry whose element does not come. If none may be missing, that is a problem.
    fn step_over(&mut self, damaged: bool, problems: &mut Problems) {
        if !damaged {
            let number = self.record.meta_pages + (self.next / ENTRIES_PER_PAGE) as u32;
            problems.add(
                self.record.head_offset(number),
                "the hash list has an element that the block has not",
            );
        }
        self.next += 1;
    }

    /// At the end of the elements: reports entries that the list has beyond them.
    fn rest(&mut self, damaged: bool, problems: &mut Problems) {
        while self.peek(problems).is_some() {
            self.step_over(damaged, problems);
        }
    }
}
