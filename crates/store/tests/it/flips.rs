// SPDX-License-Identifier: Apache-2.0
//! Bytes of a small store, flipped: whatever reads it finds the right data or an error. Of a store
//! whose process was killed, and of one that was closed. With `SENKO_STORE_FLIPS`, every byte.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use senko_io::faulty::FaultyDevice;
use senko_io::{Device, IoError, PAGE_SIZE, Purpose, Tag};
use senko_store::{Options, Store, StoreError, WriteOptions};

use crate::support::{small, ticking};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    Options {
        inline_max: 1024,
        cache_bytes: 0,
        create: false,
        clock: ticking(3),
        ..small()
    }
}

/// A copy of a device's bytes. Writes stay in it, and many copies share what they do not change.
struct Image {
    base: Arc<Vec<u8>>,
    changed: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Image {
    fn of(device: &dyn Device) -> Arc<Vec<u8>> {
        let mut bytes = senko_io::AlignedBuf::new(device.pages() as usize);
        device
            .read(0, &mut bytes, Tag::store(Purpose::Recover))
            .unwrap();
        Arc::new(bytes.to_vec())
    }

    /// The image with one byte changed.
    fn flipped(base: &Arc<Vec<u8>>, at: usize, mask: u8) -> Arc<dyn Device> {
        Image::flipped_at(base, &[at], mask)
    }

    /// The image with a byte of some pages changed.
    fn flipped_at(base: &Arc<Vec<u8>>, places: &[usize], mask: u8) -> Arc<dyn Device> {
        let changed = places.iter().map(|at| {
            let page = at / PAGE_SIZE;
            let mut bytes = base[page * PAGE_SIZE..(page + 1) * PAGE_SIZE].to_vec();
            bytes[at % PAGE_SIZE] ^= mask;
            (page as u64, bytes)
        });
        Arc::new(Image {
            base: Arc::clone(base),
            changed: Mutex::new(changed.collect()),
        })
    }
}

impl Device for Image {
    fn pages(&self) -> u64 {
        (self.base.len() / PAGE_SIZE) as u64
    }

    fn read(&self, page: u64, buf: &mut [u8], _: Tag) -> Result<(), IoError> {
        let at = page as usize * PAGE_SIZE;
        let base = self.base.get(at..at + buf.len());
        buf.copy_from_slice(base.ok_or(IoError::Os(22))?);
        let changed = self.changed.lock();
        for (nth, part) in buf.chunks_mut(PAGE_SIZE).enumerate() {
            if let Some(bytes) = changed.get(&(page + nth as u64)) {
                part.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn write(&self, page: u64, buf: &[u8], _: Tag) -> Result<(), IoError> {
        let mut changed = self.changed.lock();
        for (nth, part) in buf.chunks(PAGE_SIZE).enumerate() {
            changed.insert(page + nth as u64, part.to_vec());
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<(), IoError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64, _: Tag) -> Result<(), IoError> {
        Ok(())
    }
}

/// Blocks, a frozen log's successor, large values, deletes: all of it synced.
fn store(device: &Arc<FaultyDevice>, model: &mut Model) -> Store {
    store_with(device, model, &mut |_| ())
}

/// The same; `after` sees the model after each write.
fn store_with(
    device: &Arc<FaultyDevice>,
    model: &mut Model,
    after: &mut dyn FnMut(&Model),
) -> Store {
    let device: Arc<dyn Device> = Arc::clone(device) as _;
    let store = Store::open_device(
        device,
        Options {
            create: true,
            ..options()
        },
    )
    .unwrap();
    for nth in 0..60u64 {
        let key = format!("key{}", nth % 40).into_bytes();
        let length = if nth % 20 == 7 { 5000 } else { 20 + 7 * nth };
        let value = vec![nth as u8; length as usize];
        if nth % 11 == 10 {
            store.delete_with(&key, WriteOptions::synced()).unwrap();
            model.remove(&key);
        } else {
            let written = store.put_with(&key, &value, WriteOptions::synced());
            written.unwrap();
            model.insert(key, value);
        }
        if nth == 25 || nth == 40 {
            store.seal().unwrap();
        }
        after(model);
    }
    store
}

/// What the ways to read find; an error is fine, and so is the right data.
fn check(device: &Arc<dyn Device>, model: &Model, what: &str) -> bool {
    let mut right = true;
    for read_only in [true, false] {
        let opened = Store::open_device(
            Arc::clone(device),
            Options {
                read_only,
                ..options()
            },
        );
        let Ok(store) = opened else {
            right = false;
            continue;
        };
        for nth in 0..41 {
            let key = format!("key{nth}").into_bytes();
            match store.get(&key) {
                Ok(got) => assert_eq!(
                    got.as_deref(),
                    model.get(&key).map(Vec::as_slice),
                    "{what}: {}",
                    String::from_utf8_lossy(&key)
                ),
                Err(_) => right = false,
            }
        }
        let scanned: Result<Model, StoreError> = store.scan().and_then(|scan| {
            scan.map(|entry| entry.map(|entry| (entry.key, entry.value.into_vec())))
                .collect()
        });
        match scanned {
            Ok(scanned) => assert!(scanned == *model, "{what}: a scan, {} keys", scanned.len()),
            Err(_) => right = false,
        }
        match store.len() {
            Ok(len) => assert_eq!(len, model.len() as u64, "{what}"),
            Err(_) => right = false,
        }
    }
    right
}

fn flip_everything(base: &Arc<Vec<u8>>, model: &Model, name: &str) {
    let folder = crate::support::Folder::new(&format!("flips-{name}"));
    let sound = Image::flipped(base, 0, 0);
    assert!(check(&sound, model, name));
    let written: Vec<usize> = (0..base.len() / PAGE_SIZE)
        .filter(|page| {
            base[page * PAGE_SIZE..][..PAGE_SIZE]
                .iter()
                .any(|&byte| byte != 0)
        })
        .collect();
    let all = std::env::var_os("SENKO_STORE_FLIPS").is_some();
    let mut flips = 0;
    for (nth, page) in written.iter().enumerate() {
        // A part of a page's beginning, another in each page, and some of the rest.
        let step = |at: &usize| all || *at < 64 && *at % 4 == nth % 4 || *at % 389 == nth % 389;
        for at in (0..PAGE_SIZE).filter(step) {
            let mask = 1 << (at % 8);
            let what = format!("{name}: byte {at} of page {page}");
            let place = page * PAGE_SIZE + at;
            let right = check(&Image::flipped(base, place, mask), model, &what);
            let device = Image::flipped(base, place, mask);
            match senko_store::verify_device(Arc::clone(&device), |_, _| ()) {
                Ok(report) => assert!(
                    right || !report.problems.is_empty(),
                    "{what}: an error, and verify finds nothing"
                ),
                Err(_) => assert!(!right, "{what}: verify fails, and nothing else does"),
            }
            flips += 1;
            if flips % 50 != 0 {
                continue;
            }
            // The copies lie in files, which take longer.
            let copy = folder.0.join("backup");
            let reader = Options {
                read_only: true,
                ..options()
            };
            if let Ok(store) = Store::open_device(Arc::clone(&device), reader.clone())
                && store.backup(&copy, |_| ()).is_ok()
            {
                check_copy(&copy, model, &format!("{what}: a backup"));
            }
            let _ = std::fs::remove_file(&copy);
            let copy = folder.0.join("repaired");
            if let Ok(report) = senko_store::repair_device(device, &copy, |_, _| ())
                && report.lost.is_empty()
                && right
            {
                check_copy(&copy, model, &format!("{what}: a repair without a loss"));
            }
            let _ = std::fs::remove_file(&copy);
        }
    }
    println!("{name}: {flips} flips in {} pages", written.len());
}

fn check_copy(path: &std::path::Path, model: &Model, what: &str) {
    let store = Store::open(path, options()).unwrap();
    let copied: Model = store
        .scan()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.key, entry.value.into_vec())
        })
        .collect();
    assert!(copied == *model, "{what}: {} keys", copied.len());
    drop(store);
    std::fs::remove_file(path).unwrap();
}

/// Nothing follows the last page of a log, so its damage used to pass for the end that a crash
/// leaves: the last synced write was gone without a word.
#[test]
fn a_flipped_byte_of_a_killed_store_is_told() {
    let device = FaultyDevice::new(64 * 16, 1);
    let mut model = Model::new();
    let store = store(&device, &mut model);
    let base = Image::of(&*device);
    drop(store);
    flip_everything(&base, &model, "killed");
}

#[test]
fn a_flipped_byte_of_a_closed_store_is_told() {
    let device = FaultyDevice::new(64 * 16, 1);
    let mut model = Model::new();
    store(&device, &mut model).close().unwrap();
    flip_everything(&Image::of(&*device), &model, "closed");
}

/// An end that nobody waited for may be torn. It is lost, and nothing else is.
#[test]
fn a_torn_end_that_was_not_durable_is_the_end() {
    let device = FaultyDevice::new(64 * 16, 1);
    let mut model = Model::new();
    let store = store(&device, &mut model);
    let before = Image::of(&*device);
    store.put(b"key0", b"not durable").unwrap();
    let after = Image::of(&*device);
    drop(store);
    let changed = (0..after.len()).find(|&at| before[at] != after[at]);
    let page = changed.unwrap() / PAGE_SIZE * PAGE_SIZE;
    for at in [page, page + 20, page + 30] {
        assert!(check(&Image::flipped(&after, at, 1), &model, "a torn end"));
    }
}

/// With both copies of the newest superblock gone, an opening took the one before it, and lost a
/// log that only the newest one had named.
#[test]
fn a_lost_superblock_is_told() {
    let device = FaultyDevice::new(64 * 16, 1);
    let mut states = Vec::new();
    let mut after = |model: &Model| states.push((Image::of(&*device), model.clone()));
    drop(store_with(&device, &mut Model::new(), &mut after));
    let mut wrong = 0;
    for (nth, (base, model)) in states.iter().enumerate() {
        let what = format!("killed after {nth} writes");
        for copies in [[0, 8], [4, 12]] {
            let device = Image::flipped_at(base, &copies.map(|page| page * PAGE_SIZE + 9), 1);
            let problems = |device| {
                senko_store::verify_device(device, |_, _| ())
                    .unwrap()
                    .problems
            };
            assert!(problems(Arc::clone(&device)).len() >= 2, "{what}");
            if check(&device, model, &what) {
                // An opening to write has written the copies again.
                assert_eq!(problems(device), [], "{what}");
            } else {
                // What could not be opened is as it was.
                assert!(problems(device).len() > 2, "{what}");
                wrong += 1;
            }
        }
    }
    assert!(wrong > 0 && wrong < states.len(), "{wrong}");
}
