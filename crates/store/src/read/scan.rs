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
use crate::element::{Element, TOMBSTONE};
use crate::log::SortedElements;
use crate::read::value::Entry;
use crate::{KeyHash, StoreError};

/// DRAM to read blocks ahead, for all blocks together.
const SCAN_BYTES: usize = 32 << 20;

/// The share of one block.
const READ_AHEAD: std::ops::RangeInclusive<usize> = 16 << 10..=512 << 10;

/// A sorted stream of elements.
enum Stream {
    Block(Box<BlockScan<Arc<dyn Device>>>),
    Log(SortedElements, usize),
}

/// A stream and its current element, encoded.
struct Source {
    stream: Stream,
    hash: KeyHash,
    encoded: Vec<u8>,
}

impl Source {
    /// Goes to the next element; false at the end.
    fn next(&mut self) -> Result<bool, StoreError> {
        self.encoded.clear();
        match &mut self.stream {
            Stream::Block(scan) => {
                let Some((hash, element)) = scan.next_element()? else {
                    return Ok(false);
                };
                self.hash = hash;
                element.encode(&mut self.encoded);
            }
            Stream::Log(sorted, next) => {
                let Some((hash, element)) = sorted.get(*next) else {
                    return Ok(false);
                };
                *next += 1;
                self.hash = hash;
                element.encode(&mut self.encoded);
            }
        }
        Ok(true)
    }

    fn element(&self) -> Element<'_> {
        match Element::decode(&self.encoded) {
            Ok((element, _)) => element,
            Err(_) => unreachable!("what was just encoded can be decoded"),
        }
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
        let mut streams: Vec<Stream> = version
            .blocks()
            .filter(|(_, handle)| handle.block.record().min_time <= at)
            .map(|(_, handle)| {
                let device = Arc::clone(&core.device);
                let scan = BlockScan::new(device, &handle.block, core.hasher.clone(), ahead, tag);
                Stream::Block(Box::new(scan))
            })
            .collect();
        for handle in &version.logs {
            if !handle.log.is_empty() {
                streams.push(Stream::Log(handle.log.sorted()?, 0));
            }
        }
        let mut merge = Merge {
            sources: Vec::with_capacity(streams.len()),
            heap: BinaryHeap::new(),
            group: VecDeque::new(),
            at,
        };
        for stream in streams {
            let mut source = Source {
                stream,
                hash: KeyHash { order: 0, check: 0 },
                encoded: Vec::new(),
            };
            if source.next()? {
                let nth = merge.sources.len();
                merge.heap.push(Reverse((source.hash, nth)));
                merge.sources.push(source);
            }
        }
        Ok(merge)
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
                        found: Hit {
                            flags: element.flags,
                            time: element.time,
                            expiry: element.expiry,
                            value: element.value.to_vec(),
                        },
                    });
                }
                if source.next()? {
                    let next = source.hash;
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
/// # use senko_store::{Options, Store};
/// # let folder = std::env::temp_dir().join(format!("senko-doc-scan-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("kv");
/// let store = Store::open(&path, Options { block_bytes: 1 << 20, ..Options::default() })?;
/// store.put(b"a", b"1")?;
/// store.put(b"b", b"2")?;
/// let mut keys: Vec<Vec<u8>> = store.scan()?.map(|entry| entry.unwrap().key).collect();
/// keys.sort();
/// assert_eq!(keys, [b"a", b"b"]);
/// # store.close()?;
/// # std::fs::remove_dir_all(&folder).unwrap();
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

    fn step(&mut self) -> Result<Option<Entry>, StoreError> {
        // Held until the step ends, so that no writer reuses the space that it reads.
        let _version = self.pin.version()?;
        while let Some(merged) = self.merge.next()? {
            // Keys are never empty, so the first key differs from the initial value.
            if merged.key == self.last {
                continue;
            }
            self.last.clone_from(&merged.key);
            let found = merged.found;
            if found.flags & TOMBSTONE != 0
                || !self.core.has_value(&found, Some(self.pin.seconds()))
            {
                continue;
            }
            return Ok(Some(Entry {
                key: merged.key,
                time: found.time,
                expires_at: found.expiry,
                value: self.core.value_of(found)?,
            }));
        }
        Ok(None)
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
