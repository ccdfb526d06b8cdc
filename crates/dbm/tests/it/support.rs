// SPDX-License-Identifier: Apache-2.0
//! What the tests share.

use std::collections::BTreeMap;
use std::sync::Arc;

use senko_dbm::{Database, DbmError, Options, Snapshot, Table};
use senko_io::faulty::FaultyDevice;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A seed that differs from run to run, or the one in `SENKO_TEST_SEED`; printed, so that a failure
/// can be run again.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("SENKO_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from(std::process::id()) << 20 ^ test.len() as u64,
    };
    println!("{test}: SENKO_TEST_SEED={seed}");
    seed
}

/// A size of a test: that of the environment, or the usual one.
pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// No thread of its own, so that the same calls give the same run.
pub fn quiet() -> Options {
    Options {
        threads: 0,
        ..Options::default()
    }
}

pub fn open(device: &Arc<FaultyDevice>) -> Result<Database, DbmError> {
    Database::open_device(Arc::clone(device) as _, quiet())
}

/// All records, upwards; downwards must be the same, and the count.
pub fn content(snapshot: &Snapshot, table: &Table) -> Model {
    let up: Vec<_> = snapshot
        .cursor(table, ..)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut cursor = snapshot.cursor(table, ..).unwrap();
    let mut down = Vec::new();
    while let Some(record) = cursor.previous().unwrap() {
        down.push(record);
    }
    down.reverse();
    assert_eq!(up, down);
    assert_eq!(snapshot.count(table).unwrap(), up.len() as u64);
    let model: Model = up.iter().cloned().collect();
    assert_eq!(model.len(), up.len());
    model
}
