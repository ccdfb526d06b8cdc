// SPDX-License-Identifier: Apache-2.0
//! Random calls against a map in memory, with reopenings and all background work, on a device that
//! does not fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_io::Device;
use senko_io::faulty::FaultyDevice;
use senko_store::{Batch, Clock, IndexKind, Options, Store, WriteOptions};
use senko_workload::Rng;

fn options(clock: &Arc<AtomicU64>) -> Options {
    let clock = Arc::clone(clock);
    Options {
        block_bytes: 1 << 20,
        inline_max: 4096,
        background: false,
        clock: Clock::Own(Arc::new(move || clock.fetch_add(7, Ordering::Relaxed))),
        ..Options::default()
    }
}

fn value(rng: &mut Rng, key: u64) -> Vec<u8> {
    let length = match rng.below(20) {
        0 => 0,
        1 => 4096 + rng.below(20_000),
        2..6 => rng.below(4096),
        _ => rng.below(300),
    };
    let mut value = vec![(key % 251) as u8; length as usize];
    for (at, byte) in value.iter_mut().enumerate().take(16) {
        *byte ^= (rng.next_u64() >> (at % 8)) as u8;
    }
    value
}

fn agree(store: &Store, model: &BTreeMap<Vec<u8>, Vec<u8>>, seed: u64) {
    let mut seen = 0;
    for entry in store.scan().unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            model.get(&entry.key).map(Vec::as_slice),
            Some(&*entry.value),
            "seed {seed}: key {:?}",
            entry.key
        );
        seen += 1;
    }
    assert_eq!(seen, model.len(), "seed {seed}");
    let keys: Vec<Vec<u8>> = (0..3000u64).map(|key| key.to_le_bytes().to_vec()).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for (key, got) in keys.iter().zip(store.multi_get(&asked)) {
        let got = got.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(
            got.as_deref(),
            model.get(key).map(Vec::as_slice),
            "seed {seed}: key {key:?}"
        );
    }
    let mut answered = 0;
    for depth in [1, 5, 64] {
        store.get_each(keys.iter(), depth, |key, got| {
            let got = got.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(
                got.as_deref(),
                model.get(key).map(Vec::as_slice),
                "seed {seed}: key {key:?}"
            );
            answered += 1;
        });
    }
    assert_eq!(answered, 3 * keys.len(), "seed {seed}");
}

/// Operations of a run; `SENKO_STORE_OPERATIONS` asks for more.
fn operations() -> u64 {
    std::env::var("SENKO_STORE_OPERATIONS")
        .ok()
        .and_then(|asked| asked.parse().ok())
        .unwrap_or(60_000)
}

fn run(seed: u64, index: IndexKind) {
    let mut rng = Rng::new(seed);
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    let device: Arc<dyn Device> = FaultyDevice::new(1 << 20, seed);
    let options = Options {
        index,
        ..options(&clock)
    };
    let mut store = Store::open_device(Arc::clone(&device), options.clone()).unwrap();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in 0..operations() {
        let key = rng.below(2500);
        let bytes = key.to_le_bytes().to_vec();
        match rng.below(1000) {
            0..600 => {
                let value = value(&mut rng, key);
                store.put(&bytes, &value).unwrap();
                model.insert(bytes, value);
            }
            600..750 => {
                store.delete(&bytes).unwrap();
                model.remove(&bytes);
            }
            750..780 => {
                let mut batch = Batch::new();
                for _ in 0..rng.below(20) {
                    let key = rng.below(2500);
                    let bytes = key.to_le_bytes().to_vec();
                    if rng.below(4) == 0 {
                        batch.delete(&bytes);
                        model.remove(&bytes);
                    } else {
                        let value = value(&mut rng, key);
                        batch.put(&bytes, &value);
                        model.insert(bytes, value);
                    }
                }
                store.write(&batch, WriteOptions::default()).unwrap();
            }
            780..990 => {
                let got = store.get(&bytes).unwrap();
                assert_eq!(
                    got.as_deref(),
                    model.get(&bytes).map(Vec::as_slice),
                    "seed {seed}, step {step}, key {key}"
                );
            }
            990..997 => {
                store.maintain().unwrap();
            }
            997 => store.seal().unwrap(),
            998 if rng.below(10) == 0 => store.compact().unwrap(),
            _ if rng.below(10) == 0 => {
                if rng.below(2) == 0 {
                    store.close().unwrap();
                } else {
                    drop(store);
                }
                store = Store::open_device(Arc::clone(&device), options.clone()).unwrap();
                agree(&store, &model, seed);
            }
            _ => {}
        }
    }
    agree(&store, &model, seed);
    store.compact().unwrap();
    agree(&store, &model, seed);
    let stats = store.stats();
    assert!(
        stats.seals > 0 && stats.compactions > 0,
        "seed {seed}: {stats:?}"
    );
}

#[test]
fn random_calls() {
    for seed in 1..=4 {
        run(seed, IndexKind::Static);
    }
}

#[test]
fn random_calls_with_the_bloom_filter_map() {
    run(11, IndexKind::BloomMap);
}

#[test]
fn a_batch_counts_its_changes_until_it_is_cleared() {
    let mut batch = Batch::new();
    assert!(batch.is_empty());
    batch.put(b"colour", b"green").delete(b"colour");
    assert_eq!((batch.len(), batch.bytes()), (2, 17));
    batch.clear();
    assert!(batch.is_empty() && batch.bytes() == 0);
}

/// A handle outlives the close of another one, to read.
#[test]
fn a_closed_store_is_read_and_takes_no_writes() {
    let device: Arc<dyn Device> = FaultyDevice::new(16_384, 1);
    let clock = Arc::new(AtomicU64::new(1));
    let store = Store::open_device(Arc::clone(&device), options(&clock)).unwrap();
    assert!(store.is_new() && store.is_empty().unwrap());
    assert_eq!(store.options().inline_max, 4096);
    let first = store.put(b"colour", b"green").unwrap();
    let synced = WriteOptions::synced();
    let longer = |old: Option<&[u8]>| Some([old.unwrap_or_default(), b"er"].concat());
    store.update_with(b"colour", synced, longer).unwrap();
    let swapped = store
        .compare_and_swap_with(b"lock", None, Some(b"mine"), synced)
        .unwrap();
    assert!(swapped > Some(first));
    store.delete_with(b"lock", synced).unwrap();
    let named = store.stats().named();
    assert!(named.contains(&("puts", store.stats().puts)), "{named:?}");
    let reader = store.clone();
    store.close().unwrap();
    assert!(reader.contains(b"colour").unwrap() && !reader.contains(b"lock").unwrap());
    let value = reader.get(b"colour").unwrap().unwrap();
    assert_eq!(value.into_vec(), b"greener");
    assert!(reader.put(b"colour", b"blue").is_err());
    drop(reader);
    assert!(
        !Store::open_device(device, options(&clock))
            .unwrap()
            .is_new()
    );
}

/// The program that the guide to embedding shows.
#[test]
fn the_example_of_the_guide_keeps_sessions() {
    let folder = std::env::temp_dir().join(format!("senko-sessions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let lines = crate::sessions::run(&folder.join("sessions.kv")).unwrap();
    assert_eq!(
        lines,
        [
            "session:7: ann",
            "user:ben: Ben",
            "visits: 3",
            "absent: none"
        ]
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
