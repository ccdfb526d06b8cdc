// SPDX-License-Identifier: Apache-2.0
//! Stores that keep several versions of a key: histories compared with a model, and the effect of
//! deletes.

use std::collections::BTreeMap;
use std::sync::Arc;

use senko_io::Device;
use senko_io::faulty::FaultyDevice;
use senko_store::{Options, Store};
use senko_workload::Rng;

use crate::support::{open, small};

const KEPT: usize = 3;

fn options() -> Options {
    Options {
        keep_versions: KEPT as u32,
        ..small()
    }
}

/// A version: its time, and whether it is a value.
type Versions = Vec<(u64, bool)>;

fn history(store: &Store, key: &[u8]) -> Versions {
    let history = store.history(key).unwrap();
    let versions = history.iter().map(|it| (it.time, it.value.is_some()));
    versions.collect()
}

fn up_to_last_value(versions: &[(u64, bool)]) -> &[(u64, bool)] {
    let last = versions.iter().rposition(|it| it.1);
    &versions[..last.map_or(0, |last| last + 1)]
}

/// A merge used to keep the tombstones of a key that was deleted as often as the store keeps
/// versions. Each such key took a hash entry, a map entry and space in a block forever.
#[test]
fn deletes_go_when_a_key_has_nothing_else() {
    let device: Arc<dyn Device> = FaultyDevice::new(64 * 256, 1);
    let store = Store::open_device(Arc::clone(&device), options()).unwrap();
    let keys: Vec<[u8; 4]> = (0..500u32).map(u32::to_be_bytes).collect();
    for _ in 0..2 {
        for key in &keys {
            store.put(key, &[7; 100]).unwrap();
        }
        store.seal().unwrap();
    }
    for round in 1..=KEPT {
        for key in &keys {
            store.delete(key).unwrap();
        }
        store.seal().unwrap();
        store.compact().unwrap();
        let values = history(&store, &keys[0]).iter().filter(|it| it.1).count();
        assert_eq!(values, 2.min(KEPT - round), "after {round} deletes");
    }
    // The first of these drops the values, the following ones the deletes above them.
    for _ in 0..3 {
        store.compact().unwrap();
    }
    assert_eq!(history(&store, &keys[0]), []);
    assert_eq!(store.stats().live_elements, 0);
    assert_eq!(store.stats().block_elements, 0);
    store.put(&keys[0], b"again").unwrap();
    assert_eq!(history(&store, &keys[0]).len(), 1);
    store.close().unwrap();
    let store = Store::open_device(device, options()).unwrap();
    assert_eq!(history(&store, &keys[0]).len(), 1);
    assert_eq!(history(&store, &keys[1]), []);
}

/// Random puts, deletes, seals, compactions, closes and crashes. A history is the model's, except
/// for deletes at its old end: they may be gone, and an older one may be there. No value that was
/// too old comes back.
#[test]
fn histories_are_those_of_the_model() {
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let mut device = FaultyDevice::new(64 * 256, seed);
        let mut store = open(&device, options());
        let mut model: BTreeMap<u64, Versions> = BTreeMap::new();
        for step in 0..3000 {
            let key = rng.below(20);
            let versions = model.entry(key).or_default();
            match rng.below(100) {
                0..45 => {
                    let value = vec![key as u8; rng.below(400) as usize];
                    versions.insert(0, (store.put(&key.to_be_bytes(), &value).unwrap(), true));
                }
                45..90 => {
                    versions.insert(0, (store.delete(&key.to_be_bytes()).unwrap(), false));
                }
                90..95 => store.seal().unwrap(),
                95..98 => store.compact().unwrap(),
                98 => {
                    store.close().unwrap();
                    store = open(&device, options());
                }
                _ => {
                    store.sync().unwrap();
                    drop(store);
                    device = device.crashed_copy(seed);
                    store = open(&device, options());
                }
            }
            let versions = &model[&key];
            let found = history(&store, &key.to_be_bytes());
            assert!(found.len() <= KEPT, "seed {seed}, step {step}: {found:?}");
            assert_eq!(
                up_to_last_value(&found),
                up_to_last_value(&versions[..versions.len().min(KEPT)]),
                "seed {seed}, step {step}: {found:?}"
            );
        }
    }
}
