// SPDX-License-Identifier: Apache-2.0
//! A database on a disk that others fill as well.

use std::sync::Arc;

use senko_dbm::{Database, DbmError, Durability, Options, Table};
use senko_io::memory::MemoryDevice;
use senko_io::{Device, PAGE_SIZE};
use senko_workload::Rng;

use crate::support::{Model, content, number, quiet};

/// The fewest pages of a database.
const LEAST: u64 = 48;

/// A new file on a disk of so many pages.
fn disk_of(pages: u64) -> Arc<MemoryDevice> {
    let disk = MemoryDevice::new(pages);
    disk.grow(LEAST).unwrap();
    disk
}

/// What fills the disk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Full {
    /// The database alone.
    Itself,
    /// Another file, at some time.
    Other,
    /// `Options::max_bytes`.
    Bound,
}

/// What happens between the puts and the deletes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    Checkpoint,
    Closed,
    Killed,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    bytes: usize,
    /// Random keys below this, or ascending ones.
    keys: Option<u64>,
    /// Records of a commit.
    batch: u64,
    durability: Durability,
    full: Full,
    mebibytes: usize,
    between: Between,
    threads: usize,
}

impl Case {
    fn draw(rng: &mut Rng) -> Case {
        let mut below = |below: u64| rng.below(below) as usize;
        let mebibytes = [1, 2, 4, 8, 12][below(5)];
        Case {
            bytes: [60, 200, 900, 1300, 3000, 20_000, 100_000][below(7)],
            keys: [None, Some(300), Some(3000), Some(1 << 30)][below(4)],
            batch: [1, 1, 1, 20][below(4)],
            durability: [Durability::None, Durability::Buffered, Durability::Synced][below(3)],
            full: [Full::Itself, Full::Other, Full::Bound][below(3)],
            mebibytes,
            between: [
                Between::Nothing,
                Between::Checkpoint,
                Between::Closed,
                Between::Killed,
            ][below(4)],
            threads: below(2),
        }
    }
}

struct Run {
    case: Case,
    disk: Arc<MemoryDevice>,
    db: Database,
    table: Table,
    model: Model,
    rng: Rng,
}

impl Run {
    fn options(case: &Case) -> Options {
        let max_bytes = Some((case.mebibytes as u64) << 20);
        Options {
            max_bytes: max_bytes.filter(|_| case.full == Full::Bound),
            threads: case.threads,
            ..quiet()
        }
    }

    fn key(&mut self, number: u64) -> Vec<u8> {
        let number = match self.case.keys {
            Some(keys) => self.rng.below(keys),
            None => number,
        };
        (number as u32).to_be_bytes().to_vec()
    }

    /// Puts until there is no room, or until `most` bytes.
    fn fill(&mut self, most: usize) {
        let mut written = 0;
        for number in 0.. {
            if written >= most {
                break;
            }
            let mut records = Vec::new();
            for nth in 0..self.case.batch {
                let key = self.key(number * self.case.batch + nth);
                let bytes =
                    self.case.bytes - self.rng.below(self.case.bytes as u64 / 4 + 1) as usize;
                records.push((key, vec![number as u8; bytes]));
                written += bytes + 4;
            }
            let put = self.db.run(self.case.durability, |tx| {
                records
                    .iter()
                    .try_for_each(|(key, value)| tx.put(&self.table, key, value))
            });
            match put {
                Ok(()) => self.model.extend(records),
                Err(DbmError::NoSpace(_)) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A checkpoint leaves no log to read, or it says that there is no room.
    fn checkpoint(&self) {
        match self.db.checkpoint() {
            Ok(()) => assert_eq!(self.db.stats().log_bytes, 0),
            Err(error) => assert!(matches!(error, DbmError::NoSpace(_)), "{error}"),
        }
    }

    fn check(&self) {
        assert!(content(&self.db.snapshot(), &self.table) == self.model);
    }

    /// Opens the database as it is on the disk.
    fn reopen(&mut self) {
        self.disk = self.disk.copy();
        let device = Arc::clone(&self.disk) as _;
        self.db = Database::open_device(device, Run::options(&self.case)).unwrap();
        self.table = self.db.table("t").unwrap();
    }
}

/// Fills a disk, deletes every record, and fills it again.
fn fill_and_empty(seed: u64) {
    let mut rng = Rng::new(seed);
    let case = Case::draw(&mut rng);
    println!("{seed}: {case:?}");
    let pages = case.mebibytes << 20 >> 12;
    let disk = disk_of(pages as u64);
    let db = Database::open_device(Arc::clone(&disk) as _, Run::options(&case)).unwrap();
    let table = db.create_table("t").unwrap();
    let mut run = Run {
        case,
        disk,
        db,
        table,
        model: Model::new(),
        rng,
    };
    if case.full == Full::Other {
        let most = run.rng.below((pages * PAGE_SIZE) as u64 * 2) as usize;
        run.fill(most);
        run.disk.take_rest();
        run.fill(most / 2);
    } else {
        run.fill(3 * pages * PAGE_SIZE);
    }
    let first = run.model.len();
    if case.between == Between::Checkpoint {
        run.checkpoint();
    } else if case.between != Between::Nothing {
        // What was never written does not survive a kill.
        if case.between == Between::Closed || case.durability == Durability::None {
            run.db.clone().close().unwrap();
        }
        run.reopen();
    }
    run.check();
    let mut keys: Vec<Vec<u8>> = run.model.keys().cloned().collect();
    for nth in (1..keys.len()).rev() {
        keys.swap(nth, run.rng.below(nth as u64 + 1) as usize);
    }
    for (nth, key) in keys.iter().enumerate() {
        let deleted = run.db.run(case.durability, |tx| tx.delete(&run.table, key));
        if let Err(error) = deleted {
            panic!("{seed}: delete {nth} of {first}: {error}");
        }
    }
    run.model.clear();
    run.check();
    run.fill(3 * pages * PAGE_SIZE);
    let again = run.model.len();
    // Another file may have left room for little.
    let least = match case.full {
        Full::Other => first.min(1),
        // The thread's pace decides how full it was.
        _ => first.div_ceil(4),
    };
    assert!(again >= least, "{seed}: {again} records after {first}");
    run.check();
    assert!(run.db.verify().unwrap().problems.is_empty());
}

/// A disk that was full refused deletes for good after random keys, most often when another file
/// had taken the rest, or after a reopening. With `Durability::None`, the database ended.
#[test]
fn a_full_disk_takes_every_delete() {
    let from = number("SENKO_DBM_FULL_FROM", 0);
    for seed in from..from + number("SENKO_DBM_FULL", 30) {
        fill_and_empty(seed);
    }
}

/// Another file takes the rest of the disk when many pages have changed. A checkpoint used to write
/// a part of them and to return as if it had written all.
#[test]
fn a_checkpoint_writes_all_or_says_that_there_is_no_room() {
    let mut refused = 0;
    for records in [100, 200, 400, 800, 1600, 3200, 6400, 9600, 12_800] {
        let disk = disk_of(16 << 20 >> 12);
        let options = Options {
            threads: 0,
            log_bytes: 64 << 20,
            ..quiet()
        };
        let db = Database::open_device(Arc::clone(&disk) as _, options.clone()).unwrap();
        let table = db.create_table("t").unwrap();
        let put = |number: u32, byte: u8| {
            let key = number.to_be_bytes();
            db.run(Durability::Buffered, |tx| {
                tx.put(&table, &key, &[byte; 200])
            })
        };
        (0..records).for_each(|number| put(number, 0).unwrap());
        for _ in 0..8 {
            // The free end goes.
            db.checkpoint().unwrap();
            assert_eq!(db.stats().log_bytes, 0);
        }
        // Every 20th: leaves change one by one.
        (0..records)
            .step_by(20)
            .for_each(|number| put(number, 1).unwrap());
        disk.take_rest();
        match db.checkpoint() {
            Ok(()) => assert_eq!(db.stats().log_bytes, 0),
            Err(error) => {
                assert!(matches!(error, DbmError::NoSpace(_)), "{error}");
                refused += 1;
            }
        }
        let commit = db.stats().commit;
        let before = content(&db.snapshot(), &table);
        db.close().unwrap();
        let db = Database::open_device(disk.copy() as _, options).unwrap();
        assert_eq!(db.stats().commit, commit);
        assert!(content(&db.snapshot(), &db.table("t").unwrap()) == before);
    }
    assert!(refused > 0, "the disk always had room");
}
