// SPDX-License-Identifier: Apache-2.0
//! A crash at every write and flush, and a kill after every commit. Recovery restores a prefix of
//! the commits with every acknowledged synced commit. After a kill the prefix also has every
//! buffered commit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use senko_dbm::{Database, DbmError, Durability, Options, Snapshot, Table};
use senko_io::faulty::FaultyDevice;
use senko_io::{Device, IoError, Tag};
use senko_workload::Rng;

use crate::support::{Limit, Model, content, number, open, quiet, seed, units};

/// Takes copies of the device in the state that crashes would leave, before and after each write
/// and flush.
struct Watched {
    device: Arc<FaultyDevice>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Commits that were acknowledged as synced.
    acknowledged: usize,
    /// Images, each with the acknowledged commits at its time.
    images: Vec<(Arc<FaultyDevice>, usize)>,
    rng: u64,
    /// Copies of each moment.
    copies: u64,
}

impl Watched {
    fn look(&self) {
        let mut state = self.state.lock().unwrap();
        for _ in 0..state.copies {
            state.rng += 1;
            let image = self.device.crashed_copy(state.rng);
            let acknowledged = state.acknowledged;
            state.images.push((image, acknowledged));
        }
    }
}

impl Device for Watched {
    fn pages(&self) -> u64 {
        self.device.pages()
    }
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.device.read(page, buf, tag)
    }
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        let done = self.device.write(page, buf, tag);
        self.look();
        done
    }
    fn write_durable(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        // During the call the write counts as unflushed.
        let fork = self.device.fork(self.state.lock().unwrap().rng);
        fork.write(page, buf, tag)?;
        let mut state = self.state.lock().unwrap();
        for _ in 0..state.copies {
            state.rng += 1;
            let image = fork.crashed_copy(state.rng);
            let acknowledged = state.acknowledged;
            state.images.push((image, acknowledged));
        }
        drop(state);
        let done = self.device.write_durable(page, buf, tag);
        self.look();
        done
    }
    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.look();
        let done = self.device.flush(tag);
        self.look();
        done
    }
    fn map(&self, page: u64, pages: usize) -> std::io::Result<Option<senko_io::AlignedBuf>> {
        self.device.map(page, pages)
    }
    fn boot(&self) -> Option<u128> {
        self.device.boot()
    }
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.device.discard(page, pages, tag)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(Durability),
    PutLong(Durability),
    /// More than may wait for the log: it is written, without a request for a flush.
    PutHuge,
    Delete,
    DeleteRange,
    /// More leaves than a checkpoint puts into the log.
    Many,
    Sync,
    Checkpoint,
    /// A checkpoint that leaves changed leaves as they were.
    Part,
    Reopen,
    /// A snapshot that stays open: what it sees is not freed.
    Hold,
    /// The oldest of them is read and closed.
    LetGo,
}

const STEPS: [Step; 12] = [
    Step::Put(Durability::None),
    Step::Put(Durability::Buffered),
    Step::Put(Durability::Synced),
    Step::PutLong(Durability::Buffered),
    Step::PutLong(Durability::Synced),
    Step::PutHuge,
    Step::Delete,
    Step::DeleteRange,
    Step::Many,
    Step::Checkpoint,
    Step::Part,
    Step::Reopen,
];

struct Run {
    watched: Arc<Watched>,
    db: Database,
    table: Table,
    /// The content after each commit; the first is that of the empty table.
    history: Vec<Model>,
    /// The newest commit that a kill must not lose.
    handed_over: usize,
    rng: Rng,
    /// Open snapshots, each with the commit that it sees.
    held: VecDeque<(Snapshot, usize)>,
    /// Those of processes that were killed: they close nothing, as long as the run lasts.
    killed: Vec<Database>,
}

impl Drop for Run {
    fn drop(&mut self) {
        // Their writes are not checked from now on.
        self.watched.state.lock().unwrap().copies = 0;
    }
}

impl Run {
    fn new(seed: u64, copies: u64, options: Options) -> Run {
        let watched = Arc::new(Watched {
            device: FaultyDevice::new(3000, seed),
            state: Mutex::default(),
        });
        let db = Database::open_device(Arc::clone(&watched) as _, options).unwrap();
        let table = db.create_table("t").unwrap();
        {
            let mut state = watched.state.lock().unwrap();
            (state.rng, state.copies) = (seed << 20, copies);
        }
        Run {
            watched,
            db,
            table,
            history: vec![Model::new()],
            handed_over: 0,
            rng: Rng::new(seed),
            held: VecDeque::new(),
            killed: Vec::new(),
        }
    }

    fn change(
        &mut self,
        durability: Durability,
        work: impl Fn(&mut Model, &mut dyn FnMut(&[u8], Option<&[u8]>)),
    ) {
        let mut next = self.history.last().unwrap().clone();
        let mut tx = self.db.begin();
        work(&mut next, &mut |key, value| match value {
            Some(value) => tx.put(&self.table, key, value).unwrap(),
            None => tx.delete(&self.table, key).unwrap(),
        });
        // Every commit makes a different content, so that the content identifies a prefix.
        let stamp = self.history.len().to_be_bytes();
        tx.put(&self.table, b"stamp", &stamp).unwrap();
        next.insert(b"stamp".to_vec(), stamp.to_vec());
        self.history.push(next);
        tx.commit(durability).unwrap();
        let at = self.history.len() - 1;
        if durability == Durability::Synced {
            self.watched.state.lock().unwrap().acknowledged = at;
        }
        if durability != Durability::None {
            self.handed_over = at;
        }
    }

    /// Takes a copy in the state that a kill would leave, and one in the state that a power cut
    /// would leave.
    fn kill(&self) {
        let image = self.watched.device.copy(1);
        let mut state = self.watched.state.lock().unwrap();
        state.images.push((image, self.handed_over));
        drop(state);
        self.watched.look();
    }

    fn step(&mut self, step: Step) {
        let key = self.rng.below(40).to_be_bytes()[7..].to_vec();
        let byte = self.rng.next_u64() as u8;
        match step {
            Step::Put(durability) => self.change(durability, |model, write| {
                write(&key, Some(&[byte; 20]));
                model.insert(key.clone(), vec![byte; 20]);
            }),
            Step::PutLong(durability) => self.change(durability, |model, write| {
                write(&key, Some(&[byte; 9000]));
                model.insert(key.clone(), vec![byte; 9000]);
            }),
            Step::PutHuge => self.change(Durability::None, |model, write| {
                for part in 0..9 {
                    write(&[99, part], Some(&[byte; 30_000]));
                    model.insert(vec![99, part], vec![byte; 30_000]);
                }
            }),
            Step::Delete => self.change(Durability::Buffered, |model, write| {
                write(&key, None);
                model.remove(&key);
            }),
            Step::DeleteRange => {
                let to = [key[0].saturating_add(5)];
                let mut tx = self.db.begin();
                tx.delete_range(&self.table, &key, Some(&to)).unwrap();
                let stamp = self.history.len().to_be_bytes();
                tx.put(&self.table, b"stamp", &stamp).unwrap();
                let mut next = self.history.last().unwrap().clone();
                next.retain(|k, _| *k < key || **k >= to[..]);
                next.insert(b"stamp".to_vec(), stamp.to_vec());
                self.history.push(next);
                tx.commit(Durability::Synced).unwrap();
                self.handed_over = self.history.len() - 1;
                self.watched.state.lock().unwrap().acknowledged = self.handed_over;
            }
            Step::Many => self.change(Durability::Synced, |model, write| {
                for key in 0..120u8 {
                    write(&[key], Some(&[byte; 600]));
                    model.insert(vec![key], vec![byte; 600]);
                }
            }),
            Step::Sync => {
                self.db.sync().unwrap();
                self.handed_over = self.history.len() - 1;
                self.watched.state.lock().unwrap().acknowledged = self.handed_over;
            }
            Step::Checkpoint => {
                self.db.checkpoint().unwrap();
                self.handed_over = self.history.len() - 1;
                self.watched.state.lock().unwrap().acknowledged = self.handed_over;
            }
            Step::Part => self.db.checkpoint_of(1).unwrap(),
            Step::Hold => {
                let newest = self.history.len() - 1;
                self.held.push_back((self.db.snapshot(), newest));
            }
            Step::LetGo => {
                if let Some((snapshot, at)) = self.held.pop_front() {
                    let found = content(&snapshot, &self.table);
                    assert_eq!(found, self.history[at], "what a snapshot saw changed");
                }
            }
            Step::Reopen => {
                // They ended with their process.
                self.held.clear();
                let device = Arc::clone(&self.watched);
                let again = Database::open_device(device as _, quiet()).unwrap();
                self.killed.push(std::mem::replace(&mut self.db, again));
                let at = self.check_open(&self.db, self.handed_over, "reopened");
                self.history.truncate(at + 1);
            }
        }
    }

    /// The commit that a database shows.
    fn check_open(&self, db: &Database, least: usize, what: &str) -> usize {
        let found = content(&db.snapshot(), &self.table);
        let at = found.get(&b"stamp"[..]).map_or(0, |stamp| {
            usize::from_be_bytes(stamp[..].try_into().unwrap())
        });
        assert_eq!(found, self.history[at], "{what}: a state that never was");
        assert!(
            at >= least,
            "{what}: commit {at}, acknowledged were {least}"
        );
        at
    }

    /// Opens all images; on some it continues and crashes again.
    fn check(&mut self, what: &str) -> usize {
        let images = std::mem::take(&mut self.watched.state.lock().unwrap().images);
        for (nth, (image, acknowledged)) in images.iter().enumerate() {
            let what = format!("{what}, image {nth}");
            let db = open(image).unwrap_or_else(|error| panic!("{what}: {error}"));
            let at = self.check_open(&db, *acknowledged, &what);
            if nth % 4 > 0 {
                continue;
            }
            // The same transaction once more: remains of the crash must not come back after it.
            db.run(Durability::Synced, |tx| tx.put(&self.table, b"again", b"x"))
                .unwrap();
            let mut expected = self.history[at].clone();
            expected.insert(b"again".to_vec(), b"x".to_vec());
            let again = open(&image.crashed_copy(nth as u64)).unwrap();
            assert_eq!(content(&again.snapshot(), &self.table), expected, "{what}");
        }
        images.len()
    }
}

/// Four threads commit, each to its own counter, while copies are taken in the state that a kill
/// would leave. In a copy, each counter has at least the value of its last commit that returned
/// before the copy.
#[test]
fn a_kill_while_threads_commit() {
    const THREADS: u64 = 4;
    let device = FaultyDevice::new(20_000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    let (done, pad) = (AtomicBool::new(false), [7; 400]);
    /// Ends the threads, also when the test fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let end = End(&done);
        let start = |thread| {
            let (db, table, acknowledged, done) = (&db, &table, &acknowledged, &done);
            scope.spawn(move || {
                let mut count = 0u64;
                while !done.load(Ordering::Relaxed) {
                    count += 1;
                    let durability = match count % 500 {
                        0 => Durability::Synced,
                        _ => Durability::Buffered,
                    };
                    let value = [&count.to_be_bytes()[..], &pad].concat();
                    db.run(durability, |tx| tx.put(table, &[thread as u8], &value))
                        .unwrap();
                    acknowledged[thread as usize].store(count, Ordering::Release);
                }
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let mut last = 0;
        for copy in 0..300 {
            // Each copy is of a different time.
            while acknowledged[0].load(Ordering::Acquire) == last {
                assert!(!threads[0].is_finished(), "a thread failed");
                std::thread::yield_now();
            }
            last = acknowledged[0].load(Ordering::Acquire);
            let least: Vec<u64> = acknowledged
                .iter()
                .map(|n| n.load(Ordering::Acquire))
                .collect();
            let image = device.copy(copy);
            let found = open(&image).unwrap().snapshot();
            for (thread, least) in least.iter().enumerate() {
                let value = found.get(&table, &[thread as u8]).unwrap();
                let count = value.map_or(0, |value| {
                    u64::from_be_bytes(value[..8].try_into().unwrap())
                });
                assert!(
                    count >= *least,
                    "copy {copy}, thread {thread}: {count} of {least}"
                );
            }
        }
        drop(end);
    });
}

thread_local! {
    /// Whether this thread is never stopped.
    static OTHER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A device whose writes wait while its gate is closed.
struct Gate {
    device: Arc<FaultyDevice>,
    shut: AtomicBool,
    reached: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        while self.shut.load(Ordering::SeqCst) {
            self.reached.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
    }
}

impl Device for Gate {
    fn pages(&self) -> u64 {
        self.device.pages()
    }
    fn read(&self, page: u64, buf: &mut [u8], tag: Tag) -> Result<(), IoError> {
        self.device.read(page, buf, tag)
    }
    fn write(&self, page: u64, buf: &[u8], tag: Tag) -> Result<(), IoError> {
        self.pass();
        self.device.write(page, buf, tag)
    }
    fn flush(&self, tag: Tag) -> Result<(), IoError> {
        self.device.flush(tag)
    }
    fn map(&self, page: u64, pages: usize) -> std::io::Result<Option<senko_io::AlignedBuf>> {
        self.device.map(page, pages)
    }
    fn boot(&self) -> Option<u128> {
        self.device.boot()
    }
    fn discard(&self, page: u64, pages: u64, tag: Tag) -> Result<(), IoError> {
        self.device.discard(page, pages, tag)
    }
}

/// A thread whose commit another thread has taken to the log, but not yet written, is not told that
/// its commit survives a kill.
#[test]
fn a_commit_on_its_way_to_the_log_is_not_acknowledged() {
    let gate = Arc::new(Gate {
        device: FaultyDevice::new(3000, 1),
        shut: AtomicBool::new(false),
        reached: AtomicBool::new(false),
    });
    let (placed, go_on) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(true)),
    );
    let (stopped, may_go) = (placed.clone(), go_on.clone());
    let pause = move |step| {
        // It has its place in the order, but was not applied.
        while step == 0 && !OTHER.get() && !may_go.load(Ordering::SeqCst) {
            stopped.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
    };
    let options = Options {
        pause: Some(Arc::new(pause)),
        ..quiet()
    };
    let db = Database::open_device(Arc::clone(&gate) as _, options).unwrap();
    let table = db.create_table("t").unwrap();
    // From the first commit on there is memory that outlives the process.
    db.run(Durability::Buffered, |tx| tx.put(&table, b"first", b"1"))
        .unwrap();
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        go_on.store(false, Ordering::SeqCst);
        let late = scope.spawn(|| {
            db.run(Durability::Buffered, |tx| tx.put(&table, b"late", b"1"))
                .unwrap();
            let image = gate.device.copy(1);
            let found = open(&image).unwrap().snapshot();
            assert!(found.get(&table, b"late").unwrap().is_some());
        });
        until(&placed);
        // The other thread comes after it and is not stopped. It takes both commits to the log,
        // since they are too large for the memory.
        let mut tx = db.begin();
        for nth in 0..60u8 {
            tx.put(&table, &[nth], &[7; 900]).unwrap();
        }
        gate.shut.store(true, Ordering::SeqCst);
        let other = scope.spawn(|| {
            OTHER.set(true);
            tx.commit(Durability::Buffered).unwrap();
        });
        until(&gate.reached);
        go_on.store(true, Ordering::SeqCst);
        // It can't return before the gate opens, however long that takes.
        for _ in 0..200 {
            if late.is_finished() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        gate.shut.store(false, Ordering::SeqCst);
        late.join().unwrap();
        other.join().unwrap();
    });
}

/// `create_table` of a table that was there returned although its making was not durable yet:
/// another thread still waited for the flush, or the process that made it had been killed before.
#[test]
fn a_table_that_is_found_is_durable() {
    let gate = Arc::new(Gate {
        device: FaultyDevice::new(3000, 1),
        shut: AtomicBool::new(false),
        reached: AtomicBool::new(false),
    });
    let db = Database::open_device(Arc::clone(&gate) as _, quiet()).unwrap();
    let is_durable = |db: &Database| {
        db.create_table("t").unwrap();
        let stats = db.stats();
        stats.durable == stats.commit
    };
    gate.shut.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| db.create_table("t").unwrap());
        while !gate.reached.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let finder = scope.spawn(|| assert!(is_durable(&db)));
        // It can't return before the gate opens, however long that takes.
        for _ in 0..200 {
            if finder.is_finished() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        gate.shut.store(false, Ordering::SeqCst);
        maker.join().unwrap();
        finder.join().unwrap();
    });
    let next = Database::open_device(gate.device.copy(2), quiet()).unwrap();
    assert_eq!(next.stats().durable, 0);
    assert!(is_durable(&next));
}

/// Every sequence of up to two steps, with a crash at each write and flush of them. Of those of
/// three steps it has those that begin with one of the first four steps, or with a
/// `SENKO_TEST_FACTOR` of 3 all. Each runs with usual erase units and with small ones.
#[test]
fn all_short_sequences() {
    let long = senko_workload::rounds(STEPS.len() as u64 / 3) as usize;
    let (mut images, mut sequences) = (0, 0);
    let mut begin = |steps: &[Step], options: Options| {
        let mut run = Run::new(steps.len() as u64, 1, options);
        for step in steps {
            run.step(*step);
        }
        // Shorter sequences have shown the steps before the last.
        run.kill();
        images += run.check(&format!("{steps:?}"));
        sequences += 1;
    };
    let mut go = |steps: &[Step]| {
        for are_small in [false, true] {
            let units = units(are_small);
            begin(steps, Options { units, ..quiet() });
        }
    };
    for (nth, a) in STEPS.into_iter().enumerate() {
        go(&[a]);
        for b in STEPS {
            go(&[a, b]);
            for c in STEPS.into_iter().filter(|_| nth < long) {
                go(&[a, b, c]);
            }
        }
    }
    assert!(images > 2 * sequences, "only {images} images");
}

/// A deleted long value waited for the log, and a checkpoint at that time had its parts as if they
/// were live. After a crash a new value got the numbers of a replayed one.
#[test]
fn deleted_long_values_are_not_in_a_checkpoint() {
    let device = FaultyDevice::new(3000, 1);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    let put = |db: &Database, key: &[u8], len: usize, durability| {
        db.run(durability, |tx| tx.put(&table, key, &vec![key[0]; len]))
            .unwrap();
    };
    let delete = |key: &[u8], durability| {
        db.run(durability, |tx| tx.delete(&table, key)).unwrap();
    };
    put(&db, b"a", 9_000, Durability::Synced);
    put(&db, b"b", 30_000, Durability::Synced);
    delete(b"b", Durability::Synced);
    put(&db, b"s", 10, Durability::Synced);
    delete(b"a", Durability::None);
    db.checkpoint_of(64).unwrap();
    put(&db, b"s", 10, Durability::Synced);
    // It takes the numbers of both.
    put(&db, b"c", 30_000, Durability::Synced);
    let again = open(&device.copy(1)).unwrap();
    put(&again, b"d", 30_000, Durability::Synced);
    let snapshot = again.snapshot();
    for key in [b"c", b"d"] {
        let value = snapshot.get(&table, key).unwrap();
        assert!(value == Some(vec![key[0]; 30_000]), "{key:?}");
    }
    assert!(again.verify().unwrap().problems.is_empty());
}

/// Long random runs: `SENKO_TEST_FACTOR` times as many if it is set, and at least one.
/// `SENKO_DBM_IMAGES` sets the minimum number of images.
#[test]
fn random_sequences() {
    let runs = senko_workload::rounds(4);
    let first = seed("crash::random_sequences");
    let (wanted, limit) = (number("SENKO_DBM_IMAGES", 0), Limit::new());
    let mut images = 0;
    for seed in first.. {
        let enough = seed >= first + runs && images as u64 >= wanted;
        if enough || limit.is_over(format_args!("{images} of {wanted} images")) {
            break;
        }
        let mut run = Run::new(seed, 2, quiet());
        for _ in 0..60 {
            let step = match run.rng.below(40) {
                0 => Step::Sync,
                1 | 2 => Step::Hold,
                3 | 4 => Step::LetGo,
                other => STEPS[other as usize % STEPS.len()],
            };
            run.step(step);
            run.kill();
        }
        images += run.check(&format!("seed {seed}"));
    }
    println!("{images} images");
}

/// The prefix property after repeated crashes: the device continues from an image, crashes again,
/// and so on.
#[test]
fn crash_after_crash() {
    let seed = seed("crash_after_crash");
    let mut device = FaultyDevice::new(3000, seed);
    let mut rng = Rng::new(seed);
    let table = open(&device).unwrap().create_table("t").unwrap();
    let mut at = 0u64;
    for round in 0..300 {
        let db = open(&device).unwrap();
        let found = db.snapshot().get(&table, b"n").unwrap();
        let found = found.map_or(0, |n| u64::from_be_bytes(n.try_into().unwrap()));
        assert!(found >= at, "round {round}: {found} of {at}");
        at = found;
        let mut synced = at;
        for _ in 0..rng.below(12) {
            at += 1;
            let durability = match rng.below(3) {
                0 => Durability::Synced,
                _ => Durability::Buffered,
            };
            db.run(durability, |tx| tx.put(&table, b"n", &at.to_be_bytes()))
                .unwrap();
            if durability == Durability::Synced {
                synced = at;
            }
        }
        device = device.crashed_copy(rng.next_u64());
        at = synced;
    }
    assert!(at > 100);
}

/// The disk flipped a bit in the middle of the log, and two hundred acknowledged commits after it
/// were lost silently.
#[test]
fn damage_in_the_midst_of_the_log_is_told() {
    let device = FaultyDevice::new(3000, 5);
    let db = open(&device).unwrap();
    let table = db.create_table("t").unwrap();
    db.checkpoint().unwrap();
    for key in 0..10u8 {
        db.run(Durability::Synced, |tx| tx.put(&table, &[key], b"v"))
            .unwrap();
    }
    let image = device.copy(1);
    drop(db);
    // The last pages that are not zero are those commits.
    let mut page = senko_io::AlignedBuf::new(1);
    let tag = Tag::dbm(senko_io::Purpose::Recover);
    let written: Vec<u64> = (0..48)
        .filter(|number| {
            image.read(*number, &mut page, tag).unwrap();
            page[38] == 1 && page[41..200].windows(4).any(|w| w == [1, 1, 7, 1])
        })
        .collect();
    let commits: Vec<u64> = (16..48)
        .filter(|number| {
            image.read(*number, &mut page, tag).unwrap();
            page[38] == 1
        })
        .collect();
    assert!(written.len() <= commits.len() && commits.len() >= 10);
    let middle = commits[commits.len() - 5];
    image.flip_bit(middle, 500);
    match open(&image) {
        Err(DbmError::Damaged { offset, .. }) => assert_eq!(offset, middle * 4096),
        other => panic!("damage was not told: {other:?}"),
    }
}
