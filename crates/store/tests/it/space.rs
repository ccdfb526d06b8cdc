// SPDX-License-Identifier: Apache-2.0
//! The bound on the file: overwrites never fail below it, a full store reports it and accepts
//! deletes, and space is reclaimed.

use std::sync::Arc;

use senko_io::Device;
use senko_io::faulty::FaultyDevice;
use senko_store::{Batch, Options, Store, StoreError, WriteOptions};
use senko_workload::Rng;

use crate::support::hooked::Hooked;
use crate::support::{open, ticking};

const MAX: u64 = 16 << 20;

fn options(background: bool) -> Options {
    Options {
        block_bytes: 1 << 20,
        max_bytes: Some(MAX),
        inline_max: 8192,
        background,
        clock: ticking(3),
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
    let store = open(&device, options(background));
    let mut rng = Rng::new(5);
    let mut model = vec![None; 3000];
    for number in 0..60_000u64 {
        let key = rng.below(3000);
        // Mostly about 1,000 bytes, sometimes a large value: 3 to 5 MiB are live.
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

/// The limit that stops a store from growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// `Options::max_bytes`.
    Setting,
    /// A device that has this many bytes.
    Device,
    /// A file that cannot grow: the file system is full.
    FileSystem,
}

struct Tight {
    bound: Bound,
    device: Arc<dyn Device>,
    background: bool,
}

impl Tight {
    fn new(bound: Bound, background: bool) -> Tight {
        let pages = MAX / 4096;
        let device: Arc<dyn Device> = match bound {
            Bound::Setting => Hooked::new(1),
            Bound::Device => FaultyDevice::new(pages, 1),
            Bound::FileSystem => Hooked::limited(1, pages),
        };
        Tight {
            bound,
            device,
            background,
        }
    }

    fn open(&self) -> Store {
        let options = Options {
            max_bytes: (self.bound == Bound::Setting).then_some(MAX),
            ..options(self.background)
        };
        Store::open_device(Arc::clone(&self.device), options).unwrap()
    }
}

/// On a full device or tmpfs of 64 MiB, `delete` used to stop after 17,000 of 60,480 keys, and
/// `compact` failed: the reserve for deletes existed only under `--max-size`. Now every key of a
/// full store can be deleted, and no delete fails. A compaction makes room, and the store can hold
/// as much as before. Closing it in between makes no difference.
fn fill_and_empty(bound: Bound, background: bool) {
    let tight = Tight::new(bound, background);
    let mut store = tight.open();
    let mut floor = None;
    for round in 0..4u64 {
        let mut stored = 0;
        let full = loop {
            let key = round << 32 | stored;
            // Sometimes a value in its own extent.
            let len = if stored % 500 == 499 { 100_000 } else { 1000 };
            match store.put(&key.to_be_bytes(), &value(key, round, len)) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < MAX / 1000, "more than there is room for");
        };
        assert!(
            matches!(full, StoreError::NoSpace(_)),
            "round {round}, {stored} stored: {full}"
        );
        // Logs, the spare one and the space for a compaction take a large share of such a small
        // bound.
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
        if round % 2 == 1 {
            store.close().unwrap();
            store = tight.open();
        }
        for nth in 0..stored {
            let key = round << 32 | nth;
            let len = if nth % 500 == 499 { 100_000 } else { 1000 };
            let got = store.get(&key.to_be_bytes()).unwrap();
            assert_eq!(got.as_deref(), Some(&value(key, round, len)[..]));
        }
        for nth in 0..stored {
            let key = round << 32 | nth;
            if let Err(error) = store.delete(&key.to_be_bytes()) {
                panic!(
                    "{bound:?}, round {round}: delete {nth} of {stored}: {error}; {:?}",
                    store.stats()
                );
            }
        }
        if round >= 2 {
            store.close().unwrap();
            store = tight.open();
        }
        store
            .compact()
            .unwrap_or_else(|error| panic!("round {round}: {error}; {:?}", store.stats()));
        assert_eq!(store.scan().unwrap().count(), 0);
        assert!(tight.device.pages() * 4096 <= MAX);
    }
}

#[test]
fn a_full_store_takes_deletes_and_has_room_again() {
    for bound in [Bound::Setting, Bound::Device, Bound::FileSystem] {
        fill_and_empty(bound, false);
    }
}

#[test]
fn a_full_store_takes_deletes_and_has_room_again_with_threads() {
    for bound in [Bound::Setting, Bound::Device, Bound::FileSystem] {
        fill_and_empty(bound, true);
    }
}

/// Free space in pieces that were all too short for a log used to count as room for one. So a
/// delete was refused in a full store that was reopened. The positions of the pieces depend on the
/// device's size, so many sizes are tried.
#[test]
fn deletes_of_a_full_store_find_room_however_its_free_space_lies() {
    let keys = |first: u64| (first..first + 500).map(u64::to_be_bytes);
    for units in (150..450u64).step_by(15) {
        let device = FaultyDevice::new(units * 16, 1);
        let open = |background| {
            let options = Options {
                max_bytes: None,
                ..options(background)
            };
            open(&device, options)
        };
        let write = |store: &Store, batch: &Batch| store.write(batch, WriteOptions::default());
        let store = open(true);
        let mut stored = 0;
        let full = loop {
            let mut batch = Batch::new();
            for key in keys(stored) {
                batch.put(&key, &value(stored, 0, 700));
            }
            match write(&store, &batch) {
                Ok(_) => stored += 500,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StoreError::NoSpace(_)), "{units}: {full}");
        store.close().unwrap();
        let store = open(units % 2 == 0);
        for first in (0..stored).step_by(500) {
            let mut batch = Batch::new();
            for key in keys(first) {
                batch.delete(&key);
            }
            if let Err(error) = write(&store, &batch) {
                panic!("{units} units: {error}: {:?}", store.stats());
            }
        }
        store.compact().unwrap();
        assert_eq!(store.scan().unwrap().count(), 0, "{units}");
    }
}

/// Logs of an eighth of a block's size make small blocks, which are joined. In a full store there
/// was space to move only one, and that was repeated forever: a put neither failed nor returned.
#[test]
fn small_blocks_of_a_full_store_are_not_moved_for_ever() {
    for background in [false, true] {
        let options = Options {
            block_bytes: 8 << 20,
            log_bytes: 1 << 20,
            max_bytes: Some(4 * MAX),
            ..options(background)
        };
        let store = Store::open_device(Hooked::new(1), options).unwrap();
        let mut stored = 0;
        let full = loop {
            match store.put(&u64::to_be_bytes(stored), &value(stored, 0, 1000)) {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, StoreError::NoSpace(_)), "{full}");
        assert!(stored * 1000 > MAX, "{stored}");
        for key in 0..stored {
            store.delete(&key.to_be_bytes()).unwrap();
        }
        store.compact().unwrap();
        assert_eq!(store.scan().unwrap().count(), 0);
    }
}
