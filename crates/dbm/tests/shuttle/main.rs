// SPDX-License-Identifier: Apache-2.0
//! The DBM under a scheduler that tries interleavings of its threads: at every lock, at every
//! atomic word, and at every access to the device. Each test runs with random schedules, and with
//! those of the PCT algorithm (Burckhardt et al., ASPLOS 2010), which finds bugs that need few
//! switches at the right places.
//!
//! `SENKO_DBM_SCHEDULES` sets the number of schedules of each kind, `SENKO_TEST_SEED` the seed. A
//! failure prints its schedule.

#![allow(clippy::unwrap_used)]

#[path = "../it/replay.rs"]
mod replay;

mod commits;
mod durable;
mod readers;

use std::cell::Cell;
use std::sync::Arc;

use senko_dbm::{Database, Options, Units};
use senko_io::faulty::FaultyDevice;
use senko_io::{AlignedBuf, Device, IoError, Tag};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

std::thread_local! {
    /// Whether databases have erase units. A runner stays on its thread.
    static ARE_SMALL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test with many schedules.
fn check(name: &str, usual: usize, run: fn()) {
    let number =
        |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let seed = number("SENKO_TEST_SEED", u64::from(std::process::id()));
    let schedules = number("SENKO_DBM_SCHEDULES", usual as u64) as usize;
    println!("{name}: SENKO_TEST_SEED={seed}, {schedules} schedules of each kind");
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    // Half of them with erase units of two segments.
    for (are_small, schedules) in [(false, schedules.div_ceil(2)), (true, schedules / 2)] {
        ARE_SMALL.set(are_small);
        let random = RandomScheduler::new_from_seed(seed, schedules);
        Runner::new(random, config.clone()).run(run);
        let pct = PctScheduler::new_from_seed(seed, 3, schedules);
        Runner::new(pct, config.clone()).run(run);
    }
}

/// A database without its own thread.
fn open(device: &Arc<FaultyDevice>) -> Database {
    let units = match ARE_SMALL.get() {
        true => Units {
            pages: 32,
            least: 2,
        },
        false => Units::default(),
    };
    let options = Options {
        threads: 0,
        cache_bytes: 1 << 20,
        log_bytes: 256 << 10,
        units,
        ..Options::default()
    };
    Database::open_device(Arc::new(Stepped(Arc::clone(device))), options).unwrap()
}

/// A device whose writes and flushes take long, so that other threads advance far meanwhile.
struct Stepped(Arc<FaultyDevice>);

fn wait() {
    for _ in 0..4 {
        shuttle::thread::yield_now();
    }
}

impl Device for Stepped {
    fn pages(&self) -> u64 {
        self.0.pages()
    }
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.0.read(page, buf, tag)
    }
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        wait();
        self.0.write(page, buf, tag)
    }
    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        wait();
        self.0.write_durable(page, buf, tag)
    }
    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        wait();
        self.0.flush(tag)
    }
    fn map(&self, page: u64, pages: usize) -> std::io::Result<Option<AlignedBuf>> {
        self.0.map(page, pages)
    }
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        wait();
        self.0.discard(page, pages, tag)
    }
}
