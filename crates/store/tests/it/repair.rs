// SPDX-License-Identifier: Apache-2.0
//! Stores with blocks, logs, large values and old versions are damaged everywhere. Verify must find
//! the damage with its byte. Repair must save everything outside the damaged pages. Neither may
//! ever return a byte that was not put.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, Op, PAGE_SIZE, Purpose, Tag};
use senko_store::{
    Options, RepairReport, Store, StoreError, VerifyReport, repair_device, verify_device,
};
use senko_workload::Rng;

use crate::support::{Folder, small, ticking};

const PAGES: u64 = 1 << 13;
const TAG: Tag = Tag::store(Purpose::Meta);

/// Every value that each key ever had, the newest last; `None` for a deletion.
type Model = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

fn options() -> Options {
    Options {
        inline_max: 8192,
        clock: ticking(7),
        ..small()
    }
}

/// A store with all kinds of content.
fn made(seed: u64, keep_versions: u32) -> (Arc<FaultyDevice>, Model) {
    let mut rng = Rng::new(seed);
    let device = FaultyDevice::new(PAGES, seed);
    let options = Options {
        keep_versions,
        ..options()
    };
    let store = Store::open_device(device.clone(), options).unwrap();
    let mut model = Model::new();
    for step in 0..4000_u64 {
        let key = format!("key{}", rng.below(1500)).into_bytes();
        let versions = model.entry(key.clone()).or_default();
        if rng.below(8) == 0 {
            store.delete(&key).unwrap();
            versions.push(None);
            continue;
        }
        let length = match rng.below(100) {
            0 => 9000 + rng.below(30_000),
            1..10 => rng.below(6000),
            _ => rng.below(800),
        };
        let mut value = format!("{step}:").into_bytes();
        value.resize(value.len() + length as usize, step as u8);
        store.put(&key, &value).unwrap();
        versions.push(Some(value));
        if step == 2000 {
            store.compact().unwrap();
        }
    }
    store.close().unwrap();
    (device, model)
}

fn newest(model: &Model) -> BTreeMap<Vec<u8>, Vec<u8>> {
    model
        .iter()
        .filter_map(|(key, versions)| Some((key.clone(), versions.last()?.clone()?)))
        .collect()
}

fn everything(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    store
        .scan()
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.key, entry.value.into_vec()))
        .collect()
}

fn verified(device: &Arc<FaultyDevice>) -> VerifyReport {
    verify_device(device.clone(), |done, total| assert!(done <= total)).unwrap()
}

/// Repairs into a new file, checks it, and returns its elements.
fn repaired(
    device: &Arc<FaultyDevice>,
    folder: &Folder,
) -> (RepairReport, BTreeMap<Vec<u8>, Vec<u8>>) {
    let to = folder.0.join("saved");
    let _ = std::fs::remove_file(&to);
    let report = repair_device(device.clone(), &to, |_, _| ()).unwrap();
    let sound = senko_store::verify(&to, |_, _| ()).unwrap();
    assert_eq!(sound.problems, []);
    let store = Store::open(&to, Options::default()).unwrap();
    let has = everything(&store);
    for (key, value) in has.iter().take(100) {
        let got = store.get(key).unwrap();
        assert_eq!(got.as_deref(), Some(value.as_slice()));
    }
    // It accepts writes, and they are the newest.
    store.put(b"key1", b"new").unwrap();
    assert_eq!(store.get(b"key1").unwrap().as_deref(), Some(&b"new"[..]));
    store.close().unwrap();
    (report, has)
}

fn wipe(device: &Arc<FaultyDevice>, page: u64) {
    let mut buf = AlignedBuf::new(1);
    buf.fill(0x5A);
    device.write(page, &buf, TAG).unwrap();
    device.flush(TAG).unwrap();
}

const SUPERBLOCK: [u64; 4] = [0, 4, 8, 12];

#[test]
fn a_sound_store_is_sound_and_is_saved_whole() {
    let folder = Folder::new("sound");
    for (seed, keep) in [(1, 1), (2, 3)] {
        let (device, model) = made(seed, keep);
        let report = verified(&device);
        assert_eq!(report.problems, [], "seed {seed}");
        assert!(report.blocks > 0 && report.logs > 0 && report.large_values > 0);
        let (report, has) = repaired(&device, &folder);
        assert_eq!(report.lost, [], "seed {seed}");
        assert!(!report.manifest_lost);
        assert!(has == newest(&model), "seed {seed}");
    }
}

#[test]
fn old_versions_are_saved_too() {
    let folder = Folder::new("versions");
    let (device, model) = made(3, 4);
    let to = folder.0.join("saved");
    repair_device(device.clone(), &to, |_, _| ()).unwrap();
    let before = Store::open_device(device, options()).unwrap();
    let after = Store::open(&to, Options::default()).unwrap();
    assert_eq!(after.options().keep_versions, 4);
    let mut several = 0;
    for key in model.keys() {
        // A deletion with nothing before it has no meaning, and may be dropped.
        let history = |store: &Store| {
            let mut history = store.history(key).unwrap();
            while history.last().is_some_and(|last| last.value.is_none()) {
                history.pop();
            }
            history
        };
        several += usize::from(history(&before).len() > 1);
        assert!(history(&before) == history(&after), "{key:?}");
    }
    assert!(several > 100);
}

/// Any page may be damaged: saved values are values that were put, and everything except the
/// content of the damaged page is saved.
#[test]
fn flipped_bits_are_found_and_cost_their_page_only() {
    let folder = Folder::new("bits");
    for seed in 1..=12 {
        let (sound, model) = made(seed, 1);
        let mut rng = Rng::new(seed);
        let used: u64 = {
            let store = Store::open_device(sound.copy(0), options()).unwrap();
            store.stats().file_bytes / PAGE_SIZE as u64
        };
        let device = sound.copy(seed);
        let mut flipped = Vec::new();
        for _ in 0..1 + rng.below(6) {
            let page = 16 + rng.below(used.min(PAGES) - 16);
            device.flip_bit(page, rng.below(PAGE_SIZE as u64 * 8) as usize);
            flipped.push(page * PAGE_SIZE as u64);
        }
        let found = verified(&device);
        for problem in &found.problems {
            let known = flipped.iter().any(|&offset| {
                // The problem may name a following page of the block, or the beginning of a large
                // value.
                problem.offset.abs_diff(offset) < 1 << 21
            });
            assert!(known, "seed {seed}: {problem:?}, flipped {flipped:?}");
        }
        let (report, has) = repaired(&device, &folder);
        let newest = newest(&model);
        let mut missing = 0;
        for (key, value) in &newest {
            match has.get(key) {
                Some(saved) if saved == value => {}
                Some(saved) => {
                    missing += 1;
                    let ever = model[key].contains(&Some(saved.clone()));
                    assert!(ever, "seed {seed}: a value that was never put");
                }
                None => missing += 1,
            }
        }
        if report.lost.is_empty() {
            assert!(
                has == newest,
                "seed {seed}: something is missing that is not told"
            );
        } else {
            assert!(
                missing < 400,
                "seed {seed}: {missing} keys, {:?}",
                report.lost
            );
            assert!(!found.problems.is_empty(), "seed {seed}");
        }
    }
}

#[test]
fn one_copy_of_the_superblock_is_enough() {
    let folder = Folder::new("copy");
    let (device, model) = made(21, 1);
    for &page in &SUPERBLOCK[..3] {
        wipe(&device, page);
        let report = verified(&device);
        let offset = page * PAGE_SIZE as u64;
        let told = report
            .problems
            .iter()
            .any(|problem| problem.offset == offset);
        assert!(told, "{report:?}");
    }
    // The remaining slot may be the older one, whose blocks and logs may be gone: reads after the
    // opening are never wrong.
    match repair_device(device.clone(), folder.0.join("saved"), |_, _| ()) {
        Ok(_) => {
            let (_, has) = repaired(&device, &folder);
            for (key, value) in has {
                assert!(model[&key].contains(&Some(value)));
            }
        }
        Err(error) => panic!("{error}"),
    }
}

/// If the manifest is lost, every block and log is found by itself. Deleted keys may come back,
/// others may not change.
#[test]
fn a_lost_manifest_costs_only_deletions() {
    let folder = Folder::new("manifest");
    for seed in 31..=34 {
        let (device, model) = made(seed, 1);
        let StoreError::Damaged { offset, .. } = without_manifest(&device) else {
            panic!("seed {seed}: the store still opens");
        };
        let report = verified(&device);
        assert!(
            report
                .problems
                .iter()
                .any(|problem| problem.offset == offset),
            "{report:?}"
        );
        let (report, has) = repaired(&device, &folder);
        assert!(report.manifest_lost && !report.secret_lost);
        for (key, value) in newest(&model) {
            assert_eq!(has.get(&key), Some(&value), "seed {seed}");
        }
        for (key, value) in has {
            let versions = &model[&key];
            let right = versions.contains(&Some(value));
            assert!(right, "seed {seed}: a value that was never put");
        }
    }
}

/// Damages manifests until the store no longer opens; returns the error of the opening.
fn without_manifest(device: &Arc<FaultyDevice>) -> StoreError {
    for page in (16..PAGES).step_by(16) {
        // Only an extent's first page can begin a manifest; blocks and logs are recognised by their
        // beginning.
        let copy = device.copy(page);
        wipe(&copy, page);
        if let Err(error @ StoreError::Damaged { .. }) =
            Store::open_device(copy, options()).map(|_| ())
            && error.to_string().contains("manifest")
        {
            wipe(device, page);
            return error;
        }
    }
    panic!("no page is the manifest's");
}

#[test]
fn without_any_superblock_elements_are_found_and_sorted_anew() {
    let folder = Folder::new("secret");
    for seed in 41..=42 {
        let (device, model) = made(seed, 1);
        for page in SUPERBLOCK {
            wipe(&device, page);
        }
        let error = Store::open_device(device.clone(), options()).map(|_| ());
        assert!(matches!(error, Err(StoreError::Foreign(_))), "{error:?}");
        let (report, has) = repaired(&device, &folder);
        assert!(report.manifest_lost && report.secret_lost);
        for (key, value) in newest(&model) {
            assert_eq!(has.get(&key), Some(&value), "seed {seed}");
        }
    }
}

#[test]
fn pages_that_cannot_be_read_are_lost_and_no_more() {
    let folder = Folder::new("unreadable");
    let (device, model) = made(51, 1);
    device.fail_nth(Op::Read, 40, 5);
    let to = folder.0.join("saved");
    let report = repair_device(device.clone(), &to, |_, _| ()).unwrap();
    let store = Store::open(&to, Options::default()).unwrap();
    let ever: HashMap<&Vec<u8>, &Vec<Option<Vec<u8>>>> = model.iter().collect();
    for (key, value) in everything(&store) {
        assert!(ever[&key].contains(&Some(value)), "{report:?}");
    }
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = Folder::new("foreign");
    let device = FaultyDevice::new(64, 1);
    let to = folder.0.join("saved");
    let refused = repair_device(device.clone(), &to, |_, _| ());
    assert!(
        matches!(refused, Err(StoreError::Foreign(_))),
        "{refused:?}"
    );
    for page in 0..64 {
        wipe(&device, page);
    }
    let refused = repair_device(device.clone(), &to, |_, _| ());
    assert!(
        matches!(refused, Err(StoreError::Foreign(_))),
        "{refused:?}"
    );
    let refused = verify_device(device, |_, _| ());
    assert!(
        matches!(refused, Err(StoreError::Foreign(_))),
        "{refused:?}"
    );
    assert!(!to.exists());
    std::fs::write(&to, b"here").unwrap();
    let (device, _) = made(61, 1);
    let refused = repair_device(device, &to, |_, _| ());
    assert!(
        matches!(refused, Err(StoreError::Invalid(_))),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(&to).unwrap(), b"here");
}
