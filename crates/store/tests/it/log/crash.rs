// SPDX-License-Identifier: Apache-2.0
//! Crashes at every write and flush, over several lives in the same extent, against a list of the
//! batches that were appended.
//!
//! Batches of later lives are often byte for byte those that an earlier life lost. So the pages
//! that a crash left after the log's end fit the pages before them perfectly.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, Op, Tag};
use senko_store::element::Element;
use senko_store::log::{AppendError, Durability, Log, LogFind, salvage};
use senko_store::{Extent, StoreError};
use senko_workload::Rng;

use crate::support::watched::Watched;

use super::{Change, append, commit, commit_all, get, hash, hasher};

/// A moment at which the power could have failed.
struct Moment {
    image: Arc<FaultyDevice>,
    /// The number of batches of which a synced commit has returned, and the number of those whose
    /// append has begun.
    acknowledged: usize,
    appended: usize,
}

/// The images of a crash after each write and each flush of a device.
struct Moments {
    device: Arc<FaultyDevice>,
    seed: AtomicUsize,
    acknowledged: AtomicUsize,
    appended: AtomicUsize,
    moments: Mutex<Vec<Moment>>,
}

impl Moments {
    fn of(device: &Arc<FaultyDevice>, seed: u64, known: usize) -> (Arc<Moments>, Arc<Watched>) {
        let moments = Arc::new(Moments {
            device: device.clone(),
            seed: AtomicUsize::new(seed as usize),
            acknowledged: AtomicUsize::new(known),
            appended: AtomicUsize::new(known),
            moments: Mutex::default(),
        });
        let taken = moments.clone();
        let watched = Watched::new(device.clone(), move |op, _, done| {
            if done && op != Op::Read {
                taken.take();
            }
        });
        (moments, watched)
    }

    fn take(&self) {
        let seed = self.seed.fetch_add(0x1234_5677, Ordering::Relaxed) as u64;
        let moment = Moment {
            acknowledged: self.acknowledged.load(Ordering::Relaxed),
            appended: self.appended.load(Ordering::Relaxed),
            image: self.device.crashed_copy(seed),
        };
        self.moments.lock().expect("no panic").push(moment);
    }
}

/// The batches of a log in order; the time of a batch is its number, from 1.
type Batches = Vec<Vec<Change>>;

/// The batch with this number; it has one of a few forms.
fn batch(number: usize, rng: &mut Rng) -> Vec<Change> {
    let form = rng.below(8).saturating_sub(5);
    let mut rng = Rng::new(number as u64 * 8 + form);
    let many = [1, 1, 1, 2, 5, 40][rng.below(6) as usize];
    let long = [10, 100, 1000, 4060, 9000, 70_000][rng.below(6) as usize];
    let mut changes: Vec<Change> = Vec::new();
    for _ in 0..many {
        let key = vec![b'k'; 1 + rng.below(5) as usize];
        let value = vec![rng.below(256) as u8; rng.below(long) as usize];
        if changes.iter().all(|(other, _)| *other != key) {
            changes.push((key, (rng.below(6) > 0).then_some(value)));
        }
    }
    changes
}

/// The log has exactly the first batches of `batches`: at least `from` and at most `to`. Returns
/// how many.
fn check(log: &Log, batches: &Batches, from: usize, to: usize, rng: &mut Rng) -> usize {
    let count = log.last_time() as usize;
    assert!(
        (from..=to).contains(&count),
        "{count} batches survived of {to}, {from} were acknowledged"
    );
    let mut wanted: Vec<(u64, &Change)> = Vec::new();
    for (batch, time) in batches[..count].iter().zip(1..) {
        wanted.extend(batch.iter().map(|change| (time, change)));
    }
    let sorted = log.sorted().expect("no damage");
    let mut found: Vec<_> = sorted.iter().map(|(_, element)| element).collect();
    found.sort_by(|a, b| (a.time, a.key).cmp(&(b.time, b.key)));
    wanted.sort_by(|a, b| (a.0, &a.1.0).cmp(&(b.0, &b.1.0)));
    assert_eq!(found.len(), wanted.len());
    assert_eq!(found.len() as u64, log.elements());
    for (element, (time, (key, value))) in found.iter().zip(&wanted) {
        assert_eq!((element.time, element.key), (*time, &key[..]));
        assert_eq!(element.is_tombstone(), value.is_none());
        assert_eq!(element.value, value.as_deref().unwrap_or_default());
    }
    for _ in 0..4 {
        let key = vec![b'k'; 1 + rng.below(5) as usize];
        let at = rng.below(count as u64 + 2);
        let newest = wanted
            .iter()
            .rev()
            .find(|(t, (k, _))| *t <= at && *k == key);
        assert_eq!(
            get(log, &key, at),
            newest.map(|(_, (_, value))| value.clone())
        );
    }
    count
}

/// One life: appends and commits until the log is full, the device fails, or enough was done.
fn live(log: &Log, moments: &Moments, batches: &mut Batches, rng: &mut Rng) {
    for _ in 0..1 + rng.below(25) {
        let next = batch(batches.len() + 1, rng);
        batches.push(next.clone());
        moments.appended.store(batches.len(), Ordering::Relaxed);
        let last = match append(log, &next, batches.len() as u64) {
            Ok(ticket) => ticket,
            Err(AppendError::Full) => {
                batches.pop();
                break;
            }
            Err(AppendError::Store(error)) => {
                assert!(is_failure(&error), "{error}");
                batches.pop();
                break;
            }
        };
        let result = match rng.below(8) {
            0 => log.write_behind(),
            1 | 2 => log.commit(last, Durability::Buffered),
            3 => log.commit(last, Durability::Synced).map(|()| {
                moments.acknowledged.store(batches.len(), Ordering::Relaxed);
            }),
            _ => log.commit(last, Durability::None),
        };
        if let Err(error) = result {
            assert!(is_failure(&error), "{error}");
        }
    }
}

fn is_failure(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { .. } | StoreError::ReadOnly(_))
}

/// Several lives, each of which begins with what a crash in the previous one left.
fn lives(seed: u64, moments: &mut usize) {
    let mut rng = Rng::new(seed);
    // Sometimes with room for batches that do not fit into the buffers.
    let units = if rng.below(12) == 0 { 64 } else { 6 };
    let pages = 16 * (1 + rng.below(units) as u32);
    let extent = Extent::new(16, pages);
    let mut device = FaultyDevice::new(u64::from(pages) + 16, seed);
    let mut id = 1;
    let mut batches = Batches::new();
    let mut known = 0;
    let mut log_exists = false;
    for _ in 0..2 + rng.below(5) {
        if log_exists && rng.below(4) == 0 {
            // The extent is given to another log, which may have the same content.
            (id, known, log_exists) = (id + 1, 0, false);
            batches.clear();
        }
        batches.truncate(known);
        let (watch, watched) = Moments::of(&device, rng.below(u64::MAX), known);
        let log = if log_exists {
            Log::replay(watched.clone(), id, extent, hasher()).expect("no damage")
        } else {
            Log::create(watched.clone(), id, extent, hasher()).expect("an extent")
        };
        check(&log, &batches, known, known, &mut rng);
        live(&log, &watch, &mut batches, &mut rng);
        check(&log, &batches, batches.len(), batches.len(), &mut rng);
        watch.take();
        let taken = std::mem::take(&mut *watch.moments.lock().expect("no panic"));
        *moments += taken.len();
        let next = rng.below(taken.len() as u64) as usize;
        for (nth, moment) in taken.into_iter().enumerate() {
            let device_again = moment.image;
            let again = Log::replay(device_again.clone(), id, extent, hasher()).expect("no damage");
            let (from, to) = (moment.acknowledged, moment.appended);
            let count = check(&again, &batches, from, to.min(batches.len()), &mut rng);
            if nth == next {
                (device, known, log_exists) = (device_again, count, true);
            }
        }
    }
}

/// Runs `test` for many seeds and names the one that fails. `SENKO_SEED` runs only that one,
/// `SENKO_SEEDS` that number of seeds, and `SENKO_TEST_FACTOR` multiplies the number.
fn seeds(count: u64, mut test: impl FnMut(u64)) {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let count = senko_workload::rounds(count);
    let all = match number("SENKO_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SENKO_SEEDS").unwrap_or(count),
    };
    for seed in all {
        let run = std::panic::AssertUnwindSafe(|| test(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("failed with SENKO_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_crash_anywhere_leaves_a_prefix_with_all_that_was_acknowledged() {
    let mut moments = 0;
    seeds(400, |seed| lives(seed, &mut moments));
    println!("{moments} crash images");
}

#[test]
fn one_flipped_bit_is_found_or_shortens_the_log() {
    let (mut said, mut shorter) = (0, 0);
    seeds(400, |seed| {
        let mut rng = Rng::new(seed);
        let extent = Extent::new(3, 32);
        let device = FaultyDevice::new(64, seed);
        let (watch, watched) = Moments::of(&device, 1, 0);
        let log = Log::create(watched.clone(), 3, extent, hasher()).expect("an extent");
        let mut batches = Batches::new();
        live(&log, &watch, &mut batches, &mut rng);
        commit_all(&log, Durability::Synced);
        let used = log.bytes_used() / 4096;
        let page = rng.below(used);
        device.flip_bit(extent.first + page, rng.below(4096 * 8) as usize);
        // In an open log: the right bytes, or an error.
        for (batch, time) in batches.iter().zip(1..) {
            for (key, value) in batch {
                match log.get(hash(key), key, time) {
                    Ok(found) => {
                        let found = found.expect("it is in the index");
                        assert_eq!(found.element().value, value.as_deref().unwrap_or_default());
                    }
                    Err(error) => assert!(matches!(error, StoreError::Damaged { .. })),
                }
            }
        }
        assert!(matches!(log.sorted(), Err(StoreError::Damaged { .. })));
        match Log::replay(device.clone(), 3, extent, hasher()) {
            Err(StoreError::Damaged { offset, .. }) => {
                assert_eq!(offset, (extent.first + page) * 4096);
                said += 1;
            }
            Err(other) => panic!("{other}"),
            Ok(again) => {
                check(&again, &batches, 0, batches.len(), &mut rng);
                shorter += 1;
            }
        }
    });
    println!("{said} said, {shorter} shorter");
}

#[test]
fn damage_in_front_of_what_was_flushed_is_an_error() {
    let extent = Extent::new(0, 32);
    let device = FaultyDevice::new(32, 1);
    let log = Log::create(device.clone(), 1, extent, hasher()).expect("an extent");
    for time in 1..=10 {
        let ticket = append(&log, &[(b"key".to_vec(), Some(vec![1; 100]))], time).expect("room");
        commit(&log, ticket, Durability::Synced);
    }
    for page in 0..10 {
        device.flip_bit(page, 4096 * 4);
        let result = Log::replay(device.clone(), 1, extent, hasher());
        device.flip_bit(page, 4096 * 4);
        // Of the last page, nothing later says that it was durable.
        match result {
            Err(StoreError::Damaged { offset, .. }) => assert_eq!(offset, page * 4096),
            Err(other) => panic!("{other}"),
            Ok(log) => assert_eq!((page, log.elements()), (9, 9)),
        }
    }
    let whole = Log::replay(device.clone(), 1, extent, hasher()).expect("no damage");
    assert_eq!(whole.elements(), 10);
}

#[test]
fn a_read_that_fails_is_not_the_end_of_the_log() {
    let extent = Extent::new(0, 1024);
    let device = FaultyDevice::new(1024, 1);
    let log = Log::create(device.clone(), 1, extent, hasher()).expect("an extent");
    for time in 1..=30 {
        append(&log, &[(b"key".to_vec(), Some(vec![1; 100_000]))], time).expect("room");
    }
    commit_all(&log, Durability::Synced);
    for nth in 1..=4 {
        device.fail_nth(Op::Read, nth, 5);
        let result = Log::replay(device.clone(), 1, extent, hasher());
        assert!(matches!(result, Err(StoreError::Io { .. })), "{result:?}");
    }
}

#[test]
fn a_page_that_followed_another_page_does_not_follow_this_one() {
    let extent = Extent::new(0, 16);
    let run = |first: u8| {
        let device = FaultyDevice::new(16, 1);
        let log = Log::create(device.clone(), 1, extent, hasher()).expect("an extent");
        for time in 1..=2 {
            let value = if time == 1 { first } else { 9 };
            let change = (b"key".to_vec(), Some(vec![value; 100]));
            let ticket = append(&log, &[change], time).expect("room");
            commit(&log, ticket, Durability::Buffered);
        }
        device
    };
    // Same log, same life, same second batch.
    let (one, other) = (run(1), run(2));
    let tag = Tag::store(senko_io::Purpose::Meta);
    let mut page = vec![0; 4096];
    other.read(1, &mut page, tag).expect("a sound device");
    one.write(1, &page, tag).expect("a sound device");
    let log = Log::replay(one, 1, extent, hasher()).expect("no damage");
    assert_eq!(log.elements(), 1);
}

#[test]
fn all_that_no_damaged_page_touches_is_salvaged() {
    let mut damages = 0;
    seeds(150, |seed| {
        let mut rng = Rng::new(seed);
        let extent = Extent::new(3, 512);
        let device = FaultyDevice::new(600, seed);
        let (watch, watched) = Moments::of(&device, 1, 0);
        let mut log = Log::create(watched.clone(), 3, extent, hasher()).expect("an extent");
        let mut batches = Batches::new();
        for _ in 0..3 {
            live(&log, &watch, &mut batches, &mut rng);
            // No batch is cut off by the end of a life: damage next to it would hide that it was.
            commit_all(&log, Durability::Buffered);
            log = Log::replay(watched.clone(), 3, extent, hasher()).expect("no damage");
        }
        // The last page says that those before it were flushed.
        commit_all(&log, Durability::Synced);
        let last = [(b"last".to_vec(), None)];
        if append(&log, &last, log.last_time() + 1).is_err() {
            return;
        }
        commit_all(&log, Durability::Synced);
        let sorted = log.sorted().expect("no damage");
        let pages_of = |hash, element: &Element<'_>| {
            let found = log.lookup(hash, element.key, element.time);
            match found.expect("no damage") {
                LogFind::Read(read) => read.page()..read.page() + u64::from(read.pages()),
                other => panic!("everything is on the device: {other:?}"),
            }
        };
        let used = log.bytes_used() / 4096;
        let mut damaged: Vec<u32> = (0..1 + rng.below(3))
            .map(|_| rng.below(used - 1) as u32)
            .collect();
        damaged.sort_unstable();
        damaged.dedup();
        for page in &damaged {
            let bit = rng.below(4096 * 8) as usize;
            device.flip_bit(extent.first + u64::from(*page), bit);
        }
        damages += damaged.len();
        let mut salvaged = Vec::new();
        let met = salvage(&*device, 3, extent, 0, &mut |element| {
            salvaged.push((element.time, hash(element.key)));
            Ok(())
        })
        .expect("an extent");
        assert!(
            met.lost
                .iter()
                .cloned()
                .flatten()
                .eq(damaged.iter().copied())
        );
        assert_eq!(met.elements as usize, salvaged.len());
        assert!(salvaged.is_sorted_by_key(|(time, _)| *time));
        salvaged.sort_unstable();
        let is_whole = |pages: &Range<u64>| {
            let mut damaged = damaged.iter().map(|page| extent.first + u64::from(*page));
            damaged.all(|page| !pages.contains(&page))
        };
        let whole = sorted
            .iter()
            .filter(|(hash, element)| is_whole(&pages_of(*hash, element)));
        let mut wanted: Vec<_> = whole.map(|(hash, element)| (element.time, hash)).collect();
        wanted.sort_unstable();
        assert!(salvaged == wanted, "{} of {}", salvaged.len(), wanted.len());
    });
    println!("{damages} pages were damaged");
}
