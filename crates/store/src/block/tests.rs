// SPDX-License-Identifier: Apache-2.0
//! Blocks against a list of elements, on a device in memory: look-ups, slices, scans, damage.

mod corpus; // the seeds of the fuzz targets
mod damage; // flipped bits, missing pages, pages of other blocks, failing devices
mod layout; // the offsets that the document names
mod packing; // how pages are filled, and when a block is full

use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};
use senko_workload::Rng;

use super::*;
use crate::element::{Element, LARGE, TOMBSTONE};
use crate::hash::mix;
use crate::{Extent, Hasher};

const TAG: Tag = Tag::store(Purpose::Admit);

/// An element with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    hash: KeyHash,
    flags: u8,
    key: Vec<u8>,
    value: Vec<u8>,
    time: u64,
    expiry: u64,
}

impl Owned {
    fn element(&self) -> Element<'_> {
        Element {
            flags: self.flags,
            key: &self.key,
            value: &self.value,
            time: self.time,
            expiry: self.expiry,
        }
    }

    fn of(hash: KeyHash, element: &Element<'_>) -> Owned {
        Owned {
            hash,
            flags: element.flags & !crate::element::EXPIRY,
            key: element.key.to_vec(),
            value: element.value.to_vec(),
            time: element.time,
            expiry: element.expiry,
        }
    }
}

/// How the hashes of a test's keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hashes {
    /// From the keys.
    Real,
    /// Few different orders: keys share cells and whole hashes.
    Crowded,
    /// All in a small part of the range.
    Narrow,
}

struct Made {
    elements: Vec<Owned>,
    hasher: Hasher,
    hashes: Hashes,
}

/// Random keys with one to `versions` versions each, values of up to `longest` bytes, most of them
/// short.
fn make(seed: u64, keys: usize, hashes: Hashes, longest: usize) -> Made {
    let mut rng = Rng::new(seed);
    let hasher = Hasher::new([seed as u8; 16]);
    let mut elements = Vec::new();
    for nth in 0..keys {
        let mut key = format!("{nth}").into_bytes();
        key.resize(key.len() + rng.below(20) as usize, b'.');
        if rng.below(200) == 0 {
            key.resize(1 + rng.below(6000) as usize, b'K');
            key.extend_from_slice(&(nth as u32).to_le_bytes());
        }
        let real = hasher.hash(&key);
        let hash = match hashes {
            Hashes::Real => real,
            Hashes::Crowded => KeyHash {
                order: (rng.below(8) << 61) + rng.below(3),
                check: rng.below(3) as u32,
            },
            Hashes::Narrow => KeyHash {
                order: (0xabcd << 48) + (real.order >> 20),
                check: real.check,
            },
        };
        let versions = if rng.below(4) == 0 {
            1 + rng.below(12)
        } else {
            1
        };
        let mut time = 1000 + rng.below(1000);
        for _ in 0..versions {
            let len = match rng.below(20) {
                0 => rng.below(longest as u64 + 1),
                1..4 => rng.below(longest as u64 / 8 + 1),
                _ => rng.below(200),
            } as usize;
            let mut value = vec![0; len];
            let mut fill = rng.next_u64();
            for byte in &mut value {
                fill = fill.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                *byte = (fill >> 56) as u8;
            }
            let mut flags = 0;
            match rng.below(12) {
                0 => {
                    flags = TOMBSTONE;
                    value.clear();
                }
                1 => {
                    flags = LARGE;
                    let extent = Extent::new(rng.below(1 << 30), 256);
                    let reference = ExtentRef {
                        extent,
                        bytes: 1 + rng.below(1 << 20),
                        crc: rng.next_u64() as u32,
                    };
                    value = reference.encode().to_vec();
                }
                _ => {}
            }
            let expiry = if rng.below(5) == 0 {
                1 + rng.below(1 << 33)
            } else {
                0
            };
            elements.push(Owned {
                hash,
                flags,
                key: key.clone(),
                value,
                time,
                expiry,
            });
            time += 1 + rng.below(50);
        }
    }
    elements.sort_by(|a, b| {
        (a.hash, &a.key, u64::MAX - a.time).cmp(&(b.hash, &b.key, u64::MAX - b.time))
    });
    Made {
        elements,
        hasher,
        hashes,
    }
}

struct Built {
    device: Arc<FaultyDevice>,
    record: BlockRecord,
    block: Block,
}

fn needed(elements: &[Owned], page_bytes: usize) -> u64 {
    let bytes = elements
        .iter()
        .map(|one| one.element().encoded_len() as u64)
        .sum();
    bytes_needed(elements.len() as u64, bytes, page_bytes)
}

/// Writes the elements into an extent of the size that `bytes_needed` names: all of them must go
/// in.
fn build(elements: &[Owned], page_bytes: usize, id: u64) -> Built {
    let bytes = needed(elements, page_bytes);
    let extent = Extent::new(48, (bytes / PAGE_SIZE as u64) as u32);
    let device = FaultyDevice::new(extent.end() + 16, id);
    let mut writer = BlockWriter::new(&*device, extent, id, page_bytes, TAG, u64::MAX);
    for one in elements {
        assert!(
            writer.push(one.hash, &one.element()).unwrap(),
            "bytes_needed suffices"
        );
    }
    let (record, block) = writer.finish().unwrap();
    assert!(record.extent.first == extent.first && record.extent.pages <= extent.pages);
    assert!(record.extent.pages.is_multiple_of(16));
    assert_eq!(BlockRecord::decode(&record.encode()), Ok(record));
    Built {
        device,
        record,
        block,
    }
}

fn read(device: &dyn Device, run: PageRun) -> AlignedBuf {
    let mut buf = AlignedBuf::new(run.pages as usize);
    device.read(run.page, &mut buf, TAG).unwrap();
    buf
}

fn read_page(device: &dyn Device, page: u64) -> AlignedBuf {
    read(device, PageRun { page, pages: 1 })
}

/// The hash list of these elements.
fn listed(elements: &[Owned]) -> Vec<HashEntry> {
    let entry = |one: &Owned| HashEntry {
        key: one.hash,
        time: one.time,
        flags: one.element().stored_flags(),
    };
    elements.iter().map(entry).collect()
}

fn look_up(built: &Built, hash: KeyHash, key: &[u8], at: u64) -> Result<Option<Owned>, StoreError> {
    let run = built.block.find(hash);
    let bytes = read(&*built.device, run);
    let found = built.block.search(run, &bytes, hash, key, at)?;
    Ok(found.map(|found| Owned::of(hash, &found.element(key))))
}

/// Compares every answer of a reader with the list.
fn check(built: &Built, made: &Made) {
    let Built {
        device,
        record,
        block,
    } = built;
    let elements = &made.elements;
    assert_eq!(record.elements, elements.len() as u64);
    assert_eq!(block.record(), record);
    let mut nth = 0;
    while nth < elements.len() {
        let one = &elements[nth];
        let versions: Vec<&Owned> = elements[nth..]
            .iter()
            .take_while(|other| other.key == one.key)
            .collect();
        let run = block.find(one.hash);
        let bytes = read(&**device, run);
        let found = block.versions(run, &bytes, one.hash, &one.key).unwrap();
        let found: Vec<Owned> = found
            .iter()
            .map(|found| Owned::of(one.hash, &found.element(&one.key)))
            .collect();
        assert!(
            found.iter().eq(versions.iter().copied()),
            "versions of {:?}",
            one.key
        );
        for at in [0, one.time, one.time - 1, 1500, u64::MAX] {
            let expected = versions.iter().find(|version| version.time <= at).copied();
            let found = look_up(built, one.hash, &one.key, at).unwrap();
            assert_eq!(found.as_ref(), expected);
        }
        if made.hashes == Hashes::Real {
            let newest = block
                .newest_of_hash(run, &bytes, one.hash, &made.hasher)
                .unwrap();
            assert_eq!(newest, Some(one.time));
        }
        let mut absent = one.key.clone();
        *absent.last_mut().unwrap() ^= 0x80;
        assert_eq!(look_up(built, one.hash, &absent, u64::MAX).unwrap(), None);
        nth += versions.len();
    }
    for order in [0, u64::MAX, 1 << 63, record.first_order.wrapping_sub(1)] {
        let hash = KeyHash { order, check: 0 };
        assert_eq!(look_up(built, hash, b"absent", u64::MAX).unwrap(), None);
    }
    let expected = listed(elements);
    assert_eq!(block.hashes(&**device, 0..256).unwrap(), expected);
    let mut slices = Vec::new();
    for shards in [0..1, 1..7, 7..7, 7..200, 200..256] {
        slices.extend(block.hashes(&**device, shards).unwrap());
    }
    assert_eq!(slices, expected);
    let large: Vec<ExtentRef> = elements
        .iter()
        .filter(|one| one.flags & LARGE != 0)
        .map(|one| ExtentRef::decode(&one.value).unwrap())
        .collect();
    assert_eq!(block.large(), large);
    let opened = Block::open(&**device, record).unwrap();
    assert_eq!(opened.page_index(), block.page_index());
    assert_eq!(opened.large(), block.large());
    if made.hashes == Hashes::Real {
        check_scan(built, made);
    }
}

fn scanned(scan: &mut BlockScan<Arc<FaultyDevice>>) -> Vec<Owned> {
    let mut all = Vec::new();
    assert_eq!(scan.current(), None);
    while let Some(hash) = scan.advance().unwrap() {
        let (same, element) = scan.current().unwrap();
        assert_eq!(hash, same);
        all.push(Owned::of(hash, &element));
    }
    assert_eq!(scan.current(), None);
    all
}

fn check_scan(built: &Built, made: &Made) {
    let Built { device, record, .. } = built;
    let elements = &made.elements;
    for read_ahead in [0, 64 << 10] {
        let (device, hasher) = (Arc::clone(device), made.hasher.clone());
        let mut scan = BlockScan::new(device, record, hasher, read_ahead, TAG);
        assert_eq!(scanned(&mut scan), *elements);
        assert!(scan.next_element().unwrap().is_none());
    }
    assert_eq!(verify_block(&**device, record, &made.hasher), []);
}

#[test]
fn model() {
    for page_bytes in [4096, 8192, 16_384, 32_768] {
        for (keys, hashes) in [
            (0, Hashes::Real),
            (1, Hashes::Real),
            (3, Hashes::Crowded),
            (400, Hashes::Real),
            (400, Hashes::Crowded),
            (400, Hashes::Narrow),
            (5000, Hashes::Real),
        ] {
            let seed = (page_bytes + keys) as u64;
            println!("seed {seed}, {page_bytes} bytes, {keys} keys, {hashes:?}");
            let made = make(seed, keys, hashes, 3 * page_bytes);
            check(&build(&made.elements, page_bytes, seed), &made);
        }
    }
}

/// Runs for minutes, with other seeds: `cargo test -p senko_store many_models -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn many_models() {
    for seed in 1000..1400 {
        let mut rng = Rng::new(seed);
        let page_bytes = 4096 << rng.below(4);
        let keys = rng.below(1200) as usize;
        let hashes = [Hashes::Real, Hashes::Crowded, Hashes::Narrow][rng.below(3) as usize];
        let longest = [100, 1000, 5000, 40_000, 200_000][rng.below(5) as usize];
        println!("seed {seed}, {page_bytes} bytes, {keys} keys, {hashes:?}, values to {longest}");
        let made = make(seed, keys, hashes, longest);
        check(&build(&made.elements, page_bytes, seed), &made);
    }
}
