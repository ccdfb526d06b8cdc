// SPDX-License-Identifier: Apache-2.0
//! Power cuts and kills below the file layer: a process writes under a recorder of its calls, each
//! drawn cut of the record is opened, and operations are killed at their calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use senko_io::Device;
use senko_store::{Batch, Durability, Options, Store, WriteOptions};
use senko_workload::Rng;
use senko_workload::rng::mix64;

use crate::recorded::engines::{self, Rounds};
use crate::recorded::{
    Image, Log, Orders, PagesDevice, Recorder, Scratch, mark, number, remove_empty_drafts, seed,
};
use crate::support::waiting;

/// The child's store, threads, batches and seed; only the child has it.
const CHILD: &str = "SENKO_STORE_RECORDED";
/// The child that does one operation: its name, store and copy.
const WORKER: &str = "SENKO_STORE_KILLED";

/// Keys of each thread, beside its count of batches.
const KEYS: u64 = 60;
/// Changes of a batch.
const CHANGES: u64 = 10;
const MOST_THREADS: u64 = 8;

/// The records of a thread: for each key, the batch that put it.
type State = BTreeMap<u64, u64>;

fn options() -> Options {
    Options {
        block_bytes: 1 << 20,
        inline_max: 1024,
        space_ratio: 1.1,
        ..Options::default()
    }
}

fn count_key(thread: u64) -> Vec<u8> {
    [b"count", &thread.to_be_bytes()[..]].concat()
}

fn key(thread: u64, nth: u64) -> Vec<u8> {
    [thread.to_be_bytes(), nth.to_be_bytes()].concat()
}

/// What change `nth` of a thread's batch `n` does to a key: puts it, or deletes it. It depends on
/// nothing else, so the count of batches tells the state.
fn change(thread: u64, n: u64, nth: u64) -> (u64, bool) {
    let drawn = mix64(thread << 40 | n << 8 | nth);
    (drawn % KEYS, drawn >> 8 & 7 != 0)
}

fn value(thread: u64, n: u64, key: u64) -> Vec<u8> {
    let drawn = mix64(thread << 40 | n << 8 | key);
    let bytes = match drawn % 32 {
        0 => 1025 + (drawn >> 8) % 30_000,
        _ => (drawn >> 8) % 1000,
    };
    let pattern = (thread << 40 | n << 8 | key).to_be_bytes();
    (0..8 + bytes as usize).map(|at| pattern[at % 8]).collect()
}

fn batch(thread: u64, n: u64) -> Batch {
    let mut batch = Batch::new();
    for nth in 0..CHANGES {
        match change(thread, n, nth) {
            (nth, true) => batch.put(&key(thread, nth), &value(thread, n, nth)),
            (nth, false) => batch.delete(&key(thread, nth)),
        };
    }
    batch.put(&count_key(thread), &n.to_be_bytes());
    batch
}

/// The state of a thread after each count of batches.
fn states(thread: u64, most: u64) -> Vec<State> {
    let mut states = vec![State::new()];
    for n in 1..=most {
        let mut next = states[n as usize - 1].clone();
        for nth in 0..CHANGES {
            match change(thread, n, nth) {
                (nth, true) => drop(next.insert(nth, n)),
                (nth, false) => drop(next.remove(&nth)),
            }
        }
        states.push(next);
    }
    states
}

/// A thread's count of batches, and the time of the last one.
fn count(store: &Store, thread: u64) -> Result<(u64, u64), String> {
    let found = store
        .get_entry(&count_key(thread))
        .map_err(|error| error.to_string())?;
    Ok(found.map_or((0, 0), |entry| {
        (
            u64::from_be_bytes(entry.value[..8].try_into().unwrap()),
            entry.time,
        )
    }))
}

/// A write that returned: its thread, number and time.
#[derive(Clone, Copy)]
struct Done {
    thread: u64,
    n: u64,
    time: u64,
    durable: bool,
    /// It was in memory only, so a kill may take it.
    volatile: bool,
}

fn tell(done: Done) {
    let Done {
        thread,
        n,
        time,
        durable,
        volatile,
    } = done;
    let [durable, volatile] = [durable, volatile].map(u64::from);
    mark(&format!("{thread} {n} {time} {durable} {volatile}"));
}

fn told(log: &Log) -> Vec<(u64, Done)> {
    let done = |text: &str| {
        let numbers: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
        Done {
            thread: numbers[0],
            n: numbers[1],
            time: numbers[2],
            durable: numbers[3] == 1,
            volatile: numbers[4] == 1,
        }
    };
    log.marks()
        .iter()
        .map(|(at, text)| (*at, done(text)))
        .collect()
}

/// The child: each thread writes batches to its own keys, and tells which are durable.
#[test]
fn child() {
    let Ok(text) = std::env::var(CHILD) else {
        return;
    };
    let (path, numbers) = text.split_once(' ').unwrap();
    let numbers: Vec<u64> = numbers
        .split(' ')
        .map(|word| word.parse().unwrap())
        .collect();
    let (threads, batches, seed) = (numbers[0], numbers[1], numbers[2]);
    let store = Store::open(path, options()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let store = &store;
            scope.spawn(move || {
                let mut rng = Rng::for_stream(seed, thread);
                let begin = count(store, thread).unwrap().0;
                for n in begin + 1..=begin + batches {
                    let durability = match rng.below(8) {
                        0..=2 => Durability::Synced,
                        3..=6 => Durability::Buffered,
                        _ => Durability::None,
                    };
                    let options = waiting(durability);
                    let time = store.write(&batch(thread, n), options).unwrap();
                    let mut durable = durability == Durability::Synced;
                    let volatile = durability == Durability::None;
                    match rng.below(64) {
                        0..=3 => {
                            store.sync().unwrap();
                            durable = true;
                        }
                        4 => store.seal().unwrap(),
                        5 => store.compact().unwrap(),
                        6 => drop(store.shrink().unwrap()),
                        _ => {}
                    }
                    tell(Done {
                        thread,
                        n,
                        time,
                        durable,
                        volatile,
                    });
                }
            });
        }
    });
    let counts: Vec<_> = (0..threads)
        .map(|thread| count(&store, thread).unwrap())
        .collect();
    store.close().unwrap();
    for (thread, (n, time)) in counts.into_iter().enumerate() {
        let thread = thread as u64;
        tell(Done {
            thread,
            n,
            time,
            durable: true,
            volatile: false,
        });
    }
}

/// Checks an open store: each thread's state is that after some batch, and the batches are a prefix
/// of their order with all of `told` that are durable.
fn check(store: &Store, told: &[Done], states: &[Vec<State>]) -> Result<Vec<u64>, String> {
    let mut counts = Vec::new();
    let mut newest = told
        .iter()
        .filter(|done| done.durable)
        .map(|done| done.time)
        .max()
        .unwrap_or(0);
    for thread in 0..MOST_THREADS {
        let (n, time) = count(store, thread)?;
        counts.push(n);
        newest = newest.max(time);
    }
    for done in told {
        if done.time <= newest && done.n > counts[done.thread as usize] {
            return Err(format!(
                "batch {} of thread {} is gone, which has {}; durable: {}",
                done.n, done.thread, counts[done.thread as usize], done.durable
            ));
        }
    }
    let large = store.contains(b"large");
    let mut records = u64::from(large.map_err(|error| error.to_string())?);
    for (thread, n) in counts.iter().enumerate() {
        let state = &states[thread][*n as usize];
        records += state.len() as u64 + u64::from(*n > 0);
        for nth in 0..KEYS {
            let found = store
                .get(&key(thread as u64, nth))
                .map_err(|error| error.to_string())?;
            let expected = state.get(&nth).map(|n| value(thread as u64, *n, nth));
            if found.as_deref() != expected.as_deref() {
                let what =
                    |value: Option<&[u8]>| value.map(|value| (value.len(), value[..8].to_vec()));
                return Err(format!(
                    "key {nth} of thread {thread} after {n} batches: {:?}, not {:?}",
                    what(found.as_deref()),
                    what(expected.as_deref())
                ));
            }
        }
    }
    let mut scanned = 0;
    for entry in store.scan().map_err(|error| error.to_string())? {
        entry.map_err(|error| error.to_string())?;
        scanned += 1;
    }
    if scanned != records {
        return Err(format!("a scan has {scanned} records, not {records}"));
    }
    Ok(counts)
}

fn all_states(told: &[(u64, Done)]) -> Vec<Vec<State>> {
    let most = |thread| {
        let own = told.iter().filter(|(_, done)| done.thread == thread);
        own.map(|(_, done)| done.n).max().unwrap_or(0)
    };
    // One more may have been written and not told.
    (0..MOST_THREADS)
        .map(|thread| states(thread, most(thread) + 2))
        .collect()
}

/// Opens and checks what a cut left: in memory, or as files.
fn open(
    image: &Image,
    folder: Option<&Path>,
    told: &[Done],
    states: &[Vec<State>],
) -> Result<(), String> {
    let fail = |error: senko_store::StoreError| error.to_string();
    let quiet = Options {
        background: false,
        ..options()
    };
    let device = match folder {
        Some(folder) => {
            image.write_to(folder);
            None
        }
        None => Some(PagesDevice::new(image.files["data"].clone()) as Arc<dyn Device>),
    };
    let path = folder.map(|folder| folder.join("data")).unwrap_or_default();
    let store = match &device {
        Some(device) => Store::open_device(Arc::clone(device), quiet),
        None => Store::open(&path, quiet),
    };
    let store = store.map_err(fail)?;
    check(&store, told, states)?;
    // It goes on from there.
    let n = count(&store, 0)?.0;
    store
        .write(&batch(0, n + 1), WriteOptions::synced())
        .map_err(fail)?;
    store.close().map_err(fail)?;
    let verified = match device {
        Some(device) => senko_store::verify_device(device, |_, _| ()),
        None => senko_store::verify(&path, |_, _| ()),
    };
    match &verified.map_err(fail)?.problems[..] {
        [] => Ok(()),
        problems => Err(format!("{problems:?}")),
    }
}

/// Opens drawn cuts after `from`. Returns how many.
fn cut(log: &Log, from: u64, cuts: u64, rng: &mut Rng) -> u64 {
    let mut told = told(log);
    let states = all_states(&told);
    told.retain(|(at, done)| *at >= from || done.durable || !done.volatile);
    let near: Vec<u64> = told.iter().map(|(at, _)| *at).collect();
    let before = |moment: u64| -> Vec<Done> {
        let before = told.iter().take_while(|(at, _)| *at <= moment);
        before.map(|(_, done)| *done).collect()
    };
    let made = |moment| before(moment).iter().any(|done| done.durable);
    engines::cut(
        log,
        (from, cuts),
        &near,
        rng,
        made,
        |moment, image, folder| open(image, folder, &before(moment), &states),
    )
}

fn run(recorder: &Recorder, path: &Path, numbers: (u64, u64, u64), orders: &Orders) {
    let (threads, batches, seed) = numbers;
    let told = format!("{} {threads} {batches} {seed}", path.display());
    let status = recorder.run_test("calls::child", (CHILD, told), orders);
    assert_eq!(status.success(), orders.kill.is_none(), "{status}");
}

fn rounds(seed: u64) -> Rounds<'static> {
    Rounds {
        seed,
        cuts: number("SENKO_STORE_CUTS", 300),
        is_over: &|_| false,
        run: &run,
        cut: &cut,
    }
}

/// With 1, 2 and 8 threads, and calls that take drawn times. `SENKO_STORE_CUTS` sets the number of
/// cuts.
#[test]
fn a_synced_write_is_covered_by_a_flush_of_the_kernel() {
    rounds(seed("calls")).of_whole_runs(|threads| 640 / threads);
}

/// What a killed process wrote is not durable before the next one has flushed it. A process that
/// was killed while it made a store once left two copies of the superblock unwritten, and `verify`
/// then called a whole store damaged, even after later processes had closed it.
#[test]
fn a_process_flushes_what_a_killed_one_left() {
    rounds(seed("left")).after_a_kill(500);
}

const OPERATIONS: [&str; 7] = [
    "write", "grow", "seal", "compact", "shrink", "backup", "repair",
];

/// Batches before an operation, and the last of them.
const BEFORE: u64 = 300;
const PREPARED: Done = Done {
    thread: 0,
    n: BEFORE,
    time: 0,
    durable: true,
    volatile: false,
};

fn operate(operation: &str, path: &Path, copy: &Path) -> Result<(), String> {
    let fail = |error: senko_store::StoreError| error.to_string();
    if operation == "repair" {
        return senko_store::repair(path, copy, |_, _| ())
            .map(drop)
            .map_err(fail);
    }
    let store = Store::open(path, options()).map_err(fail)?;
    match operation {
        "write" | "seal" => {
            for _ in 0..4 {
                let n = count(&store, 0)?.0 + 1;
                let time = store
                    .write(&batch(0, n), WriteOptions::synced())
                    .map_err(fail)?;
                if std::env::var_os(WORKER).is_some() {
                    tell(Done {
                        thread: 0,
                        n,
                        time,
                        durable: true,
                        volatile: false,
                    });
                }
            }
            if operation == "seal" {
                store.seal().map_err(fail)?;
            }
        }
        "grow" => drop(store.put(b"large", &vec![7; 3 << 20]).map_err(fail)?),
        "compact" => store.compact().map_err(fail)?,
        "shrink" => {
            store.compact().map_err(fail)?;
            store.shrink().map_err(fail)?;
        }
        _ => drop(store.backup(copy, |_| ()).map_err(fail)?),
    }
    store.close().map_err(fail)
}

#[test]
fn worker() {
    let Ok(text) = std::env::var(WORKER) else {
        return;
    };
    let words: Vec<&str> = text.split(' ').collect();
    tell(PREPARED);
    operate(words[0], Path::new(words[1]), Path::new(words[2])).unwrap();
}

/// Each operation is killed at its calls: the next process finds every write that had returned,
/// does the operation, and leaves no file behind. `SENKO_STORE_CALLS` sets the number of kills of
/// each operation.
#[test]
fn a_kill_at_any_call_leaves_a_store_that_goes_on() {
    let mut rng = Rng::new(seed("kill at calls"));
    let most = number("SENKO_STORE_CALLS", 8);
    let prepared = Scratch::new();
    let path = prepared.path().join("data");
    let store = Store::open(&path, options()).unwrap();
    for n in 1..=BEFORE {
        store.write(&batch(0, n), WriteOptions::default()).unwrap();
    }
    store.close().unwrap();
    let prepared = std::fs::read(path).unwrap();
    let states: Vec<_> = (0..MOST_THREADS)
        .map(|thread| states(thread, BEFORE + 20))
        .collect();
    for operation in OPERATIONS {
        let worker = ("calls::worker", WORKER);
        let start = |kill| engines::operate_once(worker, operation, &prepared, kill);
        let (status, _, log) = start(None);
        assert!(status.success(), "{operation}: {status}");
        // A power cut at any time of it, too.
        cut(&log, 0, 2 * most.min(500), &mut rng);
        let calls = log.kills();
        let mut made = 0;
        for kill in log.draw_kills(most, &mut rng) {
            let (status, folder, log) = start(Some(kill));
            // The background's calls differ from run to run.
            if status.success() {
                continue;
            }
            made += 1;
            let what = format!("{operation} killed at {kill:?} of {calls}");
            let must = |text: String| -> ! { panic!("{what}: {text}") };
            let mut done: Vec<Done> = told(&log).into_iter().map(|(_, done)| done).collect();
            done.push(PREPARED);
            let (path, copy) = (folder.path().join("data"), folder.path().join("copy"));
            let checked = |path: &Path, done: &[Done]| {
                let store = Store::open(path, options()).map_err(|error| error.to_string())?;
                let counts = check(&store, done, &states)?;
                store.close().map_err(|error| error.to_string())?;
                Ok::<_, String>(counts[0])
            };
            let n = checked(&path, &done).unwrap_or_else(|text| must(text));
            remove_empty_drafts(folder.path(), &["copy"]);
            if copy.exists() {
                checked(&copy, &[PREPARED]).unwrap_or_else(|text| must(text));
                std::fs::remove_file(&copy).unwrap();
            }
            operate(operation, &path, &copy).unwrap_or_else(|text| must(text));
            let verified = senko_store::verify(&path, |_, _| ()).unwrap();
            assert!(
                verified.problems.is_empty(),
                "{what}: {:?}",
                verified.problems
            );
            checked(&path, &[Done { n, ..PREPARED }]).unwrap_or_else(|text| must(text));
            engines::nothing_else_is_left(folder.path(), &what);
        }
        println!("{operation}: {made} kills at {calls} calls");
        assert!(made > 0, "{operation} was never killed");
    }
}
