// SPDX-License-Identifier: Apache-2.0
//! The bound on the file: overwrites never fail below it, a full store says so and takes deletes, and space comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_io::Device;
use senko_store::{Clock, Options, Store, StoreError};
use senko_workload::Rng;

use crate::support::hooked::Hooked;

const MAX: u64 = 16 << 20;

fn options(background: bool) -> Options {
    let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
    Options {
        block_bytes: 1 << 20,
        max_bytes: Some(MAX),
        inline_max: 8192,
        background,
        clock: Clock::Own(Arc::new(move || clock.fetch_add(3, Ordering::Relaxed))),
        ..Options::default()
    }
}

fn value(key: u64, number: u64, len: u64) -> Vec<u8> {
    let mut value = (key << 32 | number).to_le_bytes().to_vec();
    value.resize(len.max(8) as usize, (key ^ number) as u8);
    value
}

fn overwrite(background: bool) {
    let device = Hooked::new(1);
    let store =
        Store::open_device(Arc::clone(&device) as Arc<dyn Device>, options(background)).unwrap();
    let mut rng = Rng::new(5);
    let mut model = vec![None; 3000];
    for number in 0..60_000u64 {
        let key = rng.below(3000);
        // Most of the time about 1,000 bytes, now and then a large value: 3 to 5 MiB are live.
        let len = if rng.below(200) == 0 {
            9000 + rng.below(40_000)
        } else {
            rng.below(1500)
        };
        if let Err(error) = store.put(&key.to_be_bytes(), &value(key, number, len)) {
            panic!("put {number}: {error}; {:?}", store.stats());
        }
        model[key as usize] = Some((number, len));
        if !background && number % 16 == 0 {
            store
                .maintain()
                .unwrap_or_else(|error| panic!("maintain at {number}: {error}"));
        }
    }
    assert!(
        device.pages() * 4096 <= MAX,
        "{} bytes",
        device.pages() * 4096
    );
    store.compact().unwrap();
    for (key, written) in model.iter().enumerate() {
        let got = store.get(&(key as u64).to_be_bytes()).unwrap();
        let expected = written.map(|(number, len)| value(key as u64, number, len));
        assert_eq!(got.as_deref(), expected.as_deref(), "key {key}");
    }
    let stats = store.stats();
    let bound = stats.live_bytes as f64 * 1.3 + (2 << 20) as f64;
    assert!((stats.block_bytes as f64) < bound, "{stats:?}");
}

#[test]
fn overwrites_do_not_fail_below_the_bound() {
    overwrite(false);
}

#[test]
fn overwrites_do_not_fail_below_the_bound_with_threads() {
    overwrite(true);
}

fn fill_and_empty(background: bool) {
    let device = Hooked::new(1);
    let store =
        Store::open_device(Arc::clone(&device) as Arc<dyn Device>, options(background)).unwrap();
    let (mut floor, mut waits) = (None, 0);
    for round in 0..4u64 {
        let mut stored = 0;
        let full = loop {
            let key = round << 32 | stored;
            match store.put(&key.to_be_bytes(), &value(key, round, 1000)) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < MAX / 1000, "more than there is room for");
        };
        assert!(
            matches!(full, StoreError::NoSpace(_)),
            "round {round}, {stored} stored: {full}"
        );
        // Logs, the spare one and what a compaction needs take a share of so small a bound.
        assert!(
            stored * 1000 > MAX / 4,
            "round {round}: full at {stored} elements: {:?}",
            store.stats()
        );
        let least: u64 = *floor.get_or_insert(stored * 3 / 4);
        assert!(
            stored >= least,
            "round {round}: {stored} elements, {least} before: space got lost"
        );
        for nth in 0..stored {
            let key = round << 32 | nth;
            let got = store.get(&key.to_be_bytes()).unwrap();
            assert_eq!(got.as_deref(), Some(&value(key, round, 1000)[..]));
        }
        for nth in 0..stored {
            let key = round << 32 | nth;
            let mut tries = 0;
            while let Err(error) = store.delete(&key.to_be_bytes()) {
                // Whoever is told so compacts; not each delete finds the space for its log at once.
                let compacted = store.compact();
                tries += 1;
                waits += 1;
                assert!(
                    tries < 4 && matches!(error, StoreError::NoSpace(_)),
                    "round {round}: delete {nth} of {stored}: {error}, {compacted:?}; {:?}",
                    store.stats()
                );
            }
        }
        store
            .compact()
            .unwrap_or_else(|error| panic!("round {round}: {error}; {:?}", store.stats()));
        assert_eq!(store.scan().unwrap().count(), 0);
    }
    println!("{waits} deletes had to wait for a compaction");
}

#[test]
fn a_full_store_takes_deletes_and_has_room_again() {
    fill_and_empty(false);
}

#[test]
fn a_full_store_takes_deletes_and_has_room_again_with_threads() {
    fill_and_empty(true);
}
