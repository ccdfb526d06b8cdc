// SPDX-License-Identifier: Apache-2.0
//! A device that fails at the n-th call, and a device with a flipped bit.
//!
//! After a failed call no result is wrong: calls succeed or report why not, and reads continue.
//! After a failed write or flush this opening writes no more. The next opening finds everything
//! that was acknowledged as durable. With a flipped bit anywhere, a read returns the right value or
//! an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use senko_io::{Device, Op};
use senko_store::{Durability, IndexKind, Options, Store, StoreError};
use senko_workload::Rng;

use crate::support::hooked::Hooked;
use crate::support::{open, small, ticking, waiting};

const KEYS: u64 = 150;

fn options() -> Options {
    Options {
        inline_max: 2048,
        clock: ticking(3),
        ..small()
    }
}

fn value(key: u64, number: u64) -> Vec<u8> {
    let len = match (key + number) % 23 {
        0 => 3000 + number % 5000,
        _ => 16 + (key * 7 + number * 13) % 900,
    };
    let mut value = key.to_le_bytes().to_vec();
    value.extend_from_slice(&number.to_le_bytes());
    value.resize(len as usize, (key ^ number) as u8);
    value
}

/// The number of the write that made a value; a wrong byte fails the test.
fn number(key: u64, got: &[u8], context: &str) -> u64 {
    let number = u64::from_le_bytes(got[8..16].try_into().unwrap());
    assert!(
        got == value(key, number),
        "{context}: key {key} has a wrong byte"
    );
    number
}

/// For each key, the writes that a reader may find, and the last durable write. A reader may find
/// the last acknowledged write and later failed ones.
#[derive(Default, Clone)]
struct Known {
    last: u64,
    maybe: Vec<u64>,
    durable: u64,
}

/// Works on a store until the device fails, then checks it; returns whether the device failed.
fn until_failure(seed: u64, op: Op, nth: u64, errno: i32, for_ever: bool) -> bool {
    let context = format!("seed {seed}, {op:?} {nth} fails with {errno}, for ever: {for_ever}");
    let device = Hooked::new(seed);
    let store = open(&device, options());
    let mut rng = Rng::new(seed);
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let plan = if for_ever {
        senko_io::faulty::FaultyDevice::fail_from
    } else {
        senko_io::faulty::FaultyDevice::fail_nth
    };
    plan(&device.inner, op, nth, errno);
    let (mut failed, mut refused) = (false, 0);
    for step in 1..900u64 {
        let key = rng.below(KEYS);
        let result = match rng.below(40) {
            0 => store.maintain().map(|_| ()),
            1 if rng.below(8) == 0 => store.compact(),
            1 => store.seal(),
            2..8 => match store.get(&key.to_be_bytes()) {
                Ok(got) => {
                    check(&known, key, got.as_deref(), &context);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            kind => {
                let durability = match kind {
                    8..20 => Durability::Synced,
                    20..26 => Durability::None,
                    _ => Durability::Buffered,
                };
                let options = waiting(durability);
                let entry = known.entry(key).or_default();
                let result = store.put_with(&key.to_be_bytes(), &value(key, step), options);
                match &result {
                    Ok(_) => {
                        entry.last = step;
                        entry.maybe.clear();
                        if durability == Durability::Synced {
                            for entry in known.values_mut() {
                                entry.durable = entry.last;
                            }
                        }
                    }
                    Err(_) => entry.maybe.push(step),
                }
                result.map(|_| ())
            }
        };
        match result {
            Ok(()) => {}
            Err(StoreError::ReadOnly(_)) if failed => refused += 1,
            Err(StoreError::Io { .. } | StoreError::NoSpace(_)) => failed = true,
            Err(error) => panic!("{context}, step {step}: {error}"),
        }
        if refused > 12 {
            break;
        }
    }
    if failed && op != Op::Read {
        let refusal = store.put(b"more", b"");
        assert!(
            matches!(refusal, Err(StoreError::ReadOnly(_))),
            "{context}: {refusal:?}"
        );
    }
    if op != Op::Read || !for_ever {
        for key in 0..KEYS {
            let got = store
                .get(&key.to_be_bytes())
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&known, key, got.as_deref(), &context);
        }
    }
    // The power fails, and the device works again.
    device.inner.heal();
    let image = device.crashed(seed ^ nth);
    device.next_process();
    drop(store);
    let store = Store::open_device(image as Arc<dyn Device>, options())
        .unwrap_or_else(|error| panic!("{context}: opening again: {error}"));
    for key in 0..KEYS {
        let got = store
            .get(&key.to_be_bytes())
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = got.map_or(0, |got| number(key, &got, &context));
        let durable = known.get(&key).map_or(0, |known| known.durable);
        assert!(
            found >= durable,
            "{context}: key {key} has {found}, and {durable} was durable"
        );
    }
    store
        .put(b"more", b"")
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    failed
}

fn check(known: &BTreeMap<u64, Known>, key: u64, got: Option<&[u8]>, context: &str) {
    let found = got.map_or(0, |got| number(key, got, context));
    let known = known.get(&key).cloned().unwrap_or_default();
    assert!(
        found == known.last || known.maybe.contains(&found),
        "{context}: key {key} is {found}, not {} or one of {:?}",
        known.last,
        known.maybe
    );
}

fn each_nth(op: Op, step: u64, most: u64) {
    let mut failures = 0;
    let mut nth = 1;
    while nth < most {
        for (errno, for_ever) in [(5, false), (28, false), (5, true)] {
            failures += u64::from(until_failure(nth, op, nth, errno, for_ever));
        }
        nth += step;
    }
    assert!(failures > 0, "nothing failed");
    println!("{op:?}: {failures} runs with a failure");
}

#[test]
fn the_nth_write_fails() {
    each_nth(Op::Write, 7, 500);
}

#[test]
fn the_nth_flush_fails() {
    each_nth(Op::Flush, 5, 330);
}

#[test]
fn the_nth_read_fails() {
    each_nth(Op::Read, 11, 500);
}

/// A store with logs, blocks, large values, tombstones; closed or not.
fn image(seed: u64, closed: bool, index: IndexKind) -> (Arc<Hooked>, BTreeMap<u64, u64>) {
    let device = Hooked::new(seed);
    let options = Options { index, ..options() };
    let store = open(&device, options);
    let mut rng = Rng::new(seed);
    let mut model = BTreeMap::new();
    for step in 1..1200u64 {
        let key = rng.below(KEYS);
        if rng.below(9) == 0 {
            store.delete(&key.to_be_bytes()).unwrap();
            model.remove(&key);
        } else {
            store.put(&key.to_be_bytes(), &value(key, step)).unwrap();
            model.insert(key, step);
        }
        if step % 300 == 0 {
            store.seal().unwrap();
        }
        if step == 700 {
            store.compact().unwrap();
        }
    }
    store.sync().unwrap();
    if closed {
        store.close().unwrap();
    } else {
        device.next_process();
        drop(store);
    }
    (device, model)
}

/// Flips bits of the image and reads everything; counts the detected flips.
fn flip(seed: u64, closed: bool, index: IndexKind, flips: u64) {
    let (device, model) = image(seed, closed, index);
    let mut rng = Rng::new(seed);
    let (mut unopened, mut damaged, mut harmless) = (0, 0, 0);
    for nth in 0..flips {
        let copy = device.killed(nth);
        let page = if nth % 4 == 0 {
            rng.below(32)
        } else {
            rng.below(device.pages())
        };
        let bit = rng.below(4096 * 8) as usize;
        copy.inner.flip_bit(page, bit);
        let context = format!("seed {seed}, flip {nth}: bit {bit} of page {page}");
        let options = Options { index, ..options() };
        let store = match Store::open_device(copy as Arc<dyn Device>, options) {
            Ok(store) => store,
            Err(StoreError::Damaged { .. } | StoreError::NewerVersion { .. }) => {
                unopened += 1;
                continue;
            }
            Err(error) => panic!("{context}: {error}"),
        };
        let mut errors = 0;
        for key in 0..KEYS {
            match store.get(&key.to_be_bytes()) {
                Ok(got) => {
                    let found = got.map(|got| number(key, &got, &context));
                    // Damage at the very end of the log looks like a crash: then a newer version
                    // may be missing.
                    let expected = model.get(&key).copied();
                    if found != expected {
                        errors += 1;
                    }
                    assert!(found <= Some(1200), "{context}");
                }
                Err(StoreError::Damaged { offset, .. }) => {
                    assert!(
                        offset < device.pages() * 4096,
                        "{context}: damage at {offset}"
                    );
                    errors += 1;
                }
                Err(error) => panic!("{context}: {error}"),
            }
        }
        for entry in store.scan().into_iter().flatten() {
            match entry {
                Ok(entry) => {
                    let key = u64::from_be_bytes(entry.key[..].try_into().unwrap());
                    number(key, &entry.value, &context);
                }
                Err(StoreError::Damaged { .. }) => break,
                Err(error) => panic!("{context}: {error}"),
            }
        }
        if errors > 0 {
            damaged += 1;
        } else {
            harmless += 1;
        }
    }
    println!(
        "seed {seed}, closed: {closed}: {unopened} did not open, {damaged} showed, {harmless} did not matter"
    );
}

#[test]
fn a_flipped_bit_is_never_a_wrong_byte() {
    flip(1, false, IndexKind::Static, 400);
    flip(2, true, IndexKind::Static, 400);
    flip(3, true, IndexKind::BloomMap, 200);
}
