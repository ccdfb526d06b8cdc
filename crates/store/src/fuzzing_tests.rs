// SPDX-License-Identifier: Apache-2.0
//! The seeds of the fuzz targets, each run once, and with bytes changed.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, PAGE_SIZE, Purpose, Tag};

use crate::fuzzing::{INDEX_AT, PAGES, SLOT, store};
use crate::{Clock, IndexKind, Options, Store, WriteOptions};

/// The folder with the seeds of a fuzz target.
pub(crate) fn corpus(target: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    all.join(target)
}

/// Runs each seed of a fuzz target: as it is, with bits of the bytes at `places` flipped, and cut
/// there. `places` gets the length of a seed.
pub(crate) fn run_seeds(
    target: &str,
    places: impl Fn(usize) -> Vec<usize>,
    mut run: impl FnMut(&[u8]),
) {
    let folder = corpus(target);
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("the corpus is in the tree") {
        let mut data = std::fs::read(file.unwrap().path()).unwrap();
        run(&data);
        for at in places(data.len()) {
            for flip in [1, 0x80, 0xff] {
                data[at] ^= flip;
                run(&data);
                data[at] ^= flip;
            }
            run(&data[..at]);
        }
        count += 1;
    }
    assert!(count >= 5, "{} has seeds", folder.display());
}

#[test]
fn log_seeds() {
    let mut elements = 0;
    let count = |data: &[u8]| elements += crate::log::fuzzing::replay(data);
    run_seeds("store_log", |_| Vec::new(), count);
    assert!(elements > 20, "the seeds reach behind the checksum");
    let near = |len: usize| (0..len.min(120)).collect();
    run_seeds("store_log", near, |data| {
        crate::log::fuzzing::replay(data);
    });
}

fn put_number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u16::try_from(number).unwrap().to_le_bytes());
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The input that describes the store on a device.
fn input(device: &FaultyDevice) -> Vec<u8> {
    let tag = Tag::store(Purpose::Meta);
    let mut pages = AlignedBuf::new(PAGES as usize);
    device.read(0, &mut pages, tag).unwrap();
    // The slot of the last commit: the one with the larger number.
    let slot = [0, 4 * PAGE_SIZE]
        .into_iter()
        .map(|at| &pages[at..at + PAGE_SIZE])
        .max_by_key(|page| word(page, 16))
        .unwrap();
    let place = word(slot, 72) as usize * PAGE_SIZE;
    let length = word(slot, 84) as u32 as usize;
    let manifest = &pages[place..place + length];
    let index = word(manifest, INDEX_AT) as usize * PAGE_SIZE;
    let maps = &pages[index..index + word(manifest, INDEX_AT + 8) as usize];
    let mut out = slot[SLOT].to_vec();
    for part in [manifest, maps] {
        put_number(&mut out, part.len());
        out.extend_from_slice(part);
    }
    let taken = [(0, 16), (place / PAGE_SIZE, 1), (index / PAGE_SIZE, 16)];
    for (number, page) in pages.chunks(PAGE_SIZE).enumerate() {
        let own = taken
            .iter()
            .any(|&(first, pages)| (first..first + pages).contains(&number));
        let Some(last) = page.iter().rposition(|&byte| byte != 0) else {
            continue;
        };
        if !own {
            put_number(&mut out, number);
            put_number(&mut out, last + 1);
            out.extend_from_slice(&page[..=last]);
        }
    }
    out
}

/// A small store with a block or two and something in its log.
fn made(options: Options, blocks: u64, large: bool) -> Arc<FaultyDevice> {
    let device = FaultyDevice::new(PAGES, 1);
    let options = Options {
        block_bytes: 1 << 20,
        inline_max: 1024,
        background: false,
        clock: Clock::Own(Arc::new(|| 1 << 40)),
        ..options
    };
    let shared = Arc::clone(&device) as Arc<dyn Device>;
    let store = Store::open_device(shared, options).unwrap();
    for block in 0..=blocks {
        for key in 0..4 {
            let key = format!("key {}", key + block);
            store.put(key.as_bytes(), &[7; 20]).unwrap();
        }
        let expiring = WriteOptions {
            expires_at: 1 << 30,
            ..WriteOptions::default()
        };
        store.put_with(b"short", b"lived", expiring).unwrap();
        store.delete(b"key 1").unwrap();
        if large {
            store.put(b"large", &[9; 2000]).unwrap();
        }
        if block < blocks {
            store.seal().unwrap();
        }
    }
    store.close().unwrap();
    device
}

/// Each seed as it is, cut, and with bytes changed. With `SENKO_WRITE_CORPUS` set they are written
/// first.
#[test]
fn fuzz_seeds() {
    if std::env::var_os("SENKO_WRITE_CORPUS").is_some() {
        std::fs::create_dir_all(corpus("store_open")).unwrap();
        let plain = Options::default;
        let versions = Options {
            keep_versions: 3,
            ..plain()
        };
        let bloom = Options {
            index: IndexKind::BloomMap,
            page_bytes: 8192,
            ..plain()
        };
        for (name, options, blocks, large) in [
            ("empty", plain(), 0, false),
            ("one_block", plain(), 1, false),
            ("two_blocks", plain(), 2, false),
            ("large", plain(), 1, true),
            ("versions", versions, 2, false),
            ("bloom", bloom, 1, false),
        ] {
            let device = made(options, blocks, large);
            std::fs::write(corpus("store_open").join(name), input(&device)).unwrap();
        }
    }
    let mut seeds = 0;
    for file in std::fs::read_dir(corpus("store_open")).expect("the corpus is in the tree") {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        assert!(store(&bytes), "{} is a store", path.display());
        let step = (bytes.len() / 40).max(1);
        for at in (0..240).step_by(2).chain((240..bytes.len()).step_by(step)) {
            if at < bytes.len() {
                bytes[at] ^= 0xff;
                store(&bytes);
                bytes[at] ^= 0xff;
                store(&bytes[..at]);
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 5, "{} has seeds", corpus("store_open").display());
}
