// SPDX-License-Identifier: Apache-2.0
//! Walks through everything: one sorted stream for each block and each log, merged by hash.
//!
//! All blocks are sorted by the same hash, so equal keys meet, and the newest version of a key is
//! known without a look-up (VERSION-3). A scan's use of DRAM is bounded: a read-ahead buffer for
//! each block ([`SCAN_BYTES`] for all), and the elements of the logs.
//!
//! A scan does not prevent the end of its snapshot. Each step loads the version again, and fails
//! with `SnapshotExpired` if the snapshot has ended.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use senko_io::{Device, Purpose, Tag};

use crate::block::BlockScan;
use crate::cache::hit::Hit;
use crate::core::Core;
use crate::core::state::pins::Pin;
use crate::core::version::Version;
use crate::element::Element;
use crate::log::SortedElements;
use crate::read::value::Entry;
use crate::{KeyHash, StoreError};

/// DRAM to read blocks ahead, for all blocks together.
const SCAN_BYTES: usize = 32 << 20;

/// The share of one block.
const READ_AHEAD: std::ops::RangeInclusive<usize> = 16 << 10..=512 << 10;

/// A sorted stream of elements.
enum Source {
    Block(Box<BlockScan<Arc<dyn Device>>>),
    /// With the number of elements so far.
    Log(SortedElements, usize),
}

impl Source {
    /// Goes to the next element and returns its hash; `None` at the end.
    fn next(&mut self) -> Result<Option<KeyHash>, StoreError> {
        match self {
            Source::Block(scan) => scan.advance(),
            Source::Log(sorted, passed) => {
                *passed += 1;
                Ok(sorted.get(*passed - 1).map(|(hash, _)| hash))
            }
        }
    }

    fn element(&self) -> Element<'_> {
        let current = match self {
            Source::Block(scan) => scan.current(),
            Source::Log(sorted, passed) => sorted.get(*passed - 1),
        };
        current.expect("the source is not at its end").1
    }
}

/// An element of a merge.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    pub hash: KeyHash,
    pub key: Vec<u8>,
    pub found: Hit,
}

/// All versions of all keys up to a time, sorted by hash and key. The versions of a key come newest
/// first.
pub(crate) struct Merge {
    sources: Vec<Source>,
    heap: BinaryHeap<Reverse<(KeyHash, usize)>>,
    group: VecDeque<Merged>,
    at: u64,
}

impl Merge {
    /// Scans everything in a version.
    pub fn new(core: &Core, version: &Version, at: u64) -> Result<Merge, StoreError> {
        let blocks = version.blocks().count().max(1);
        let ahead = (SCAN_BYTES / blocks).clamp(*READ_AHEAD.start(), *READ_AHEAD.end());
        let tag = Tag::store(Purpose::Lookup);
        let mut sources: Vec<Source> = version
            .blocks()
            .filter(|(_, handle)| handle.block.record().min_time <= at)
            .map(|(_, handle)| {
                let device = Arc::clone(&core.device);
                let scan = BlockScan::new(
                    device,
                    handle.block.record(),
                    core.hasher.clone(),
                    ahead,
                    tag,
                );
                Source::Block(Box::new(scan))
            })
            .collect();
        for handle in &version.logs {
            if !handle.log.is_empty() {
                sources.push(Source::Log(handle.log.sorted()?, 0));
            }
        }
        let mut heap = BinaryHeap::new();
        for (nth, source) in sources.iter_mut().enumerate() {
            if let Some(hash) = source.next()? {
                heap.push(Reverse((hash, nth)));
            }
        }
        Ok(Merge {
            sources,
            heap,
            group: VecDeque::new(),
            at,
        })
    }

    /// The next element; none at the end.
    pub fn next(&mut self) -> Result<Option<Merged>, StoreError> {
        while self.group.is_empty() {
            let Some(&Reverse((hash, _))) = self.heap.peek() else {
                return Ok(None);
            };
            let mut group: Vec<Merged> = Vec::new();
            while let Some(&Reverse((next, nth))) = self.heap.peek() {
                if next != hash {
                    break;
                }
                self.heap.pop();
                let source = &mut self.sources[nth];
                let element = source.element();
                if element.time <= self.at {
                    group.push(Merged {
                        hash,
                        key: element.key.to_vec(),
                        found: Hit::of(&element),
                    });
                }
                if let Some(next) = source.next()? {
                    self.heap.push(Reverse((next, nth)));
                }
            }
            group.sort_by(|one, other| {
                (&one.key, other.found.time).cmp(&(&other.key, one.found.time))
            });
            // An element that was moved while it died may occur twice.
            group.dedup_by(|one, other| one.key == other.key && one.found.time == other.found.time);
            self.group = group.into();
        }
        Ok(self.group.pop_front())
    }
}

/// Everything in a snapshot, each key once, in an order without meaning.
///
/// ```
/// # let store = senko_store::example::store();
/// store.put(b"a", b"1")?;
/// store.put(b"b", b"2")?;
/// let mut keys: Vec<Vec<u8>> = store.scan()?.map(|entry| entry.unwrap().key).collect();
/// keys.sort();
/// assert_eq!(keys, [b"a", b"b"]);
/// # Ok::<(), senko_store::StoreError>(())
/// ```
pub struct Scan {
    core: Arc<Core>,
    pin: Arc<Pin>,
    merge: Merge,
    last: Vec<u8>,
    ended: bool,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({})", self.pin.time())
    }
}

impl Scan {
    pub(crate) fn new(core: Arc<Core>, pin: Arc<Pin>) -> Result<Scan, StoreError> {
        let version = pin.version()?;
        let merge = Merge::new(&core, &version, pin.time())?;
        Ok(Scan {
            core,
            pin,
            merge,
            last: Vec::new(),
            ended: false,
        })
    }

    /// The next key that has a value. No writer reuses the space of its large value while the
    /// version is held.
    pub(crate) fn next_key(&mut self) -> Result<Option<(Merged, Arc<Version>)>, StoreError> {
        // Held until the step ends, so that no writer reuses the space that it reads.
        let version = self.pin.version()?;
        while let Some(merged) = self.merge.next()? {
            // Keys are never empty, so the first key differs from the initial value.
            if merged.key == self.last {
                continue;
            }
            self.last.clone_from(&merged.key);
            let seconds = Some(self.pin.seconds());
            if self.core.has_value(&merged.found, seconds) {
                return Ok(Some((merged, version)));
            }
        }
        Ok(None)
    }

    fn step(&mut self) -> Result<Option<Entry>, StoreError> {
        let Some((Merged { key, found, .. }, _version)) = self.next_key()? else {
            return Ok(None);
        };
        Ok(Some(Entry {
            key,
            time: found.time,
            expires_at: found.expiry,
            value: self.core.value_of(found)?,
        }))
    }
}

impl Iterator for Scan {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Result<Entry, StoreError>> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}
