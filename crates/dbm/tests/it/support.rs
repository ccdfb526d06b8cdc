// SPDX-License-Identifier: Apache-2.0
//! Shared code of the tests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use senko_dbm::{Database, DbmError, Options, Snapshot, Table, Units};
use senko_io::faulty::FaultyDevice;
use senko_workload::Rng;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A seed that differs from run to run, or that of `SENKO_TEST_SEED`; printed, so that a failure
/// can be repeated.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("SENKO_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from(std::process::id()) << 20 ^ test.len() as u64,
    };
    println!("{test}: SENKO_TEST_SEED={seed}");
    seed
}

/// A size of a test: from the environment, or the default.
pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// The longest time of a long run: `SENKO_DBM_SECONDS`, or without it as long as the run needs.
pub struct Limit {
    began: Instant,
    most: Option<Duration>,
}

impl Limit {
    pub fn new() -> Limit {
        let seconds = std::env::var("SENKO_DBM_SECONDS").ok();
        Limit {
            began: Instant::now(),
            most: seconds.map(|text| Duration::from_secs(text.parse().unwrap())),
        }
    }

    /// Whether the run ends now; then it prints its progress.
    pub fn is_over(&self, done: impl Display) -> bool {
        let is_over = self.most.is_some_and(|most| self.began.elapsed() >= most);
        if is_over {
            let seconds = self.began.elapsed().as_secs();
            println!("stopped after {seconds} s, as SENKO_DBM_SECONDS asks: {done}");
        }
        is_over
    }
}

/// Erase units as drives have them, or so small that even small databases have many.
pub fn units(are_small: bool) -> Units {
    match are_small {
        true => Units {
            pages: 32,
            least: 2,
        },
        false => Units::default(),
    }
}

thread_local! {
    static DRAWN: RefCell<Rng> = RefCell::new(Rng::new(1));
}

/// The usual options, but units are small at about every other opening of a test. A test may open
/// the same database with both.
pub fn usual() -> Options {
    let are_small = DRAWN.with_borrow_mut(|rng| rng.below(2) == 1);
    Options {
        units: units(are_small),
        ..Options::default()
    }
}

/// The same without background thread, so that the same calls give the same run.
pub fn quiet() -> Options {
    Options {
        threads: 0,
        ..usual()
    }
}

/// The same with usual units: files have their usual lengths.
pub fn plain() -> Options {
    Options {
        units: units(false),
        ..quiet()
    }
}

pub fn open(device: &Arc<FaultyDevice>) -> Result<Database, DbmError> {
    Database::open_device(Arc::clone(device) as _, quiet())
}

/// All records in ascending order; descending order and the count must agree.
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
