// SPDX-License-Identifier: Apache-2.0
//! Counts the bytes that a database writes to its device for each byte put, by kind of page. The
//! device is DRAM and there is no background thread, so that a run always gives the same figures.
//!
//! `cargo run --release -p senko_lab --example wear -- [KEYS [UPDATES [VALUE_BYTES [BATCH]]]]`
//!
//! All keys are put in order, then random ones of them. The figures of the second half of these
//! updates are those of a file that has its size.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use senko_dbm::{Database, Durability, Options};
use senko_io::memory::MemoryDevice;
use senko_io::{Device, IoError, PAGE_SIZE, Tag, le};
use senko_workload::Rng;

const FIRST_PAGES: u64 = 48;
/// Pages of the disk, which is never full.
const DISK: u64 = 1 << 24;
/// Pages that are written in place.
const FIXED: u64 = 16;

type Counts = BTreeMap<&'static str, u64>;

#[derive(Default)]
struct State {
    written: Counts,
    /// The commit of the last version of each tree's page that was written.
    commits: HashMap<u32, u64>,
}

impl State {
    /// The kind of a page as docs/formats/dbm.md has it.
    fn kind(&mut self, number: u64, page: &[u8]) -> &'static str {
        match page[38] {
            _ if number < FIXED => "superblock",
            _ if page.iter().all(|byte| *byte == 0) => "zeros",
            1 => "log",
            2 => "long values",
            3 => {
                let commit = le::u64_at(page, 16);
                match self.commits.insert(le::u32_at(page, 40), commit) {
                    Some(before) if before == commit => "moved",
                    _ if page[44] == 0 => "leaves",
                    _ => "inner",
                }
            }
            4 => "table",
            _ => "checkpoint",
        }
    }
}

/// A file in DRAM that tells the kinds of its pages apart when they are written.
struct Told {
    file: Arc<MemoryDevice>,
    state: Mutex<State>,
}

impl Told {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }
}

impl Device for Told {
    fn pages(&self) -> u64 {
        self.file.pages()
    }

    fn grow(&self, pages: u64) -> Result<(), IoError> {
        self.file.grow(pages)
    }

    fn shrink(&self, pages: u64) -> Result<(), IoError> {
        self.file.shrink(pages)
    }

    fn punch(&self, page: u64, pages: u64, tag: Tag) -> Result<bool, IoError> {
        self.file.punch(page, pages, tag)
    }

    fn fill(&self, page: u64, pages: u64) -> Result<(), IoError> {
        self.file.fill(page, pages)
    }

    fn extent(&self, page: u64) -> Option<Range<u64>> {
        self.file.extent(page)
    }

    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.file.read(page, buf, tag)
    }

    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        let mut state = self.state();
        for (number, page) in (page..).zip(buf.chunks(PAGE_SIZE)) {
            let kind = state.kind(number, page);
            *state.written.entry(kind).or_default() += PAGE_SIZE as u64;
        }
        self.file.write(page, buf, tag)
    }

    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.file.flush(tag)
    }

    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.file.discard(page, pages, tag)
    }
}

/// Prints what was written since `before`, over the bytes put, and returns what was written so far.
fn print(device: &Told, name: &str, before: &Counts, put: u64) -> Counts {
    let written = device.state().written.clone();
    let over = |kind: &str, bytes: u64| {
        (bytes - before.get(kind).copied().unwrap_or(0)) as f64 / put.max(1) as f64
    };
    let kinds = written
        .iter()
        .map(|(kind, bytes)| (*kind, over(kind, *bytes)));
    let sum: f64 = kinds.clone().map(|(_, over)| over).sum();
    let list: Vec<String> = kinds
        .map(|(kind, over)| format!("{kind} {over:.2}"))
        .collect();
    println!("{name}: {sum:.2} ({})", list.join(", "));
    written
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let numbers = numbers?;
    let number = |nth: usize, usual| numbers.get(nth).copied().unwrap_or(usual);
    let (keys, updates) = (number(0, 50_000), number(1, 100_000));
    let (value, batch) = (number(2, 1000), number(3, 100).max(1));
    let device = Arc::new(Told {
        file: MemoryDevice::new(DISK),
        state: Mutex::default(),
    });
    device.grow(FIRST_PAGES)?;
    let options = Options {
        threads: 0,
        ..Options::default()
    };
    let db = Database::open_device(Arc::clone(&device) as _, options)?;
    let table = db.create_table("t")?;
    let mut rng = Rng::new(1);
    let mut commit = |keys: &mut dyn Iterator<Item = u64>| {
        let mut tx = db.begin();
        for key in keys {
            let bytes: Vec<u8> = (0..value).map(|_| rng.next_u64() as u8).collect();
            tx.put(&table, &key.to_be_bytes(), &bytes)?;
        }
        tx.commit(Durability::Synced)
    };
    for first in (0..keys).step_by(batch as usize) {
        commit(&mut (first..keys.min(first + batch)))?;
    }
    let record = value + 8;
    let mut before = print(&device, "filling", &Counts::new(), keys * record);
    let mut random = Rng::new(2);
    for half in ["updates, first half", "updates, second half"] {
        let (commits, mut most) = (updates / batch / 2, 0);
        for _ in 0..commits {
            commit(&mut (0..batch).map(|_| random.below(keys)))?;
            most = most.max(device.file.stored());
        }
        before = print(&device, half, &before, commits * batch * record);
        let over = (most * PAGE_SIZE as u64) as f64 / (keys * record) as f64;
        println!("the file took at most {over:.2} times the records");
    }
    let stats = db.stats();
    let ratio = stats.bytes_written as f64 / stats.bytes_put as f64;
    println!("all: {ratio:.2}, in {} checkpoints", stats.checkpoint);
    Ok(())
}
