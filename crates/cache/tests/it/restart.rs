// SPDX-License-Identifier: Apache-2.0
//! The model's random commands, with kills, clean stops and lost memory among them.
//!
//! A kill copies the shared memory at that instant: between two commands, or, in builds with debug
//! assertions, before any of the words that a command stores. Some of the writes in flight reach
//! the device, some of them in part. The next process then finds the key's value from before the
//! command or from after it, or a miss. The run continues from there.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use senko_cache::{
    DeviceState, Fetch, Fetched, HashSeed, Key, Lookup, PolicyKind, Recovered, Restore,
    RestoreFrom, SavedCounts, Shard, ShardConfig, SharedFiles, Want,
};
use senko_io::{PAGE_SIZE, SharedFile, observe_stores};

use crate::model::{Entry, FRAMES, Run, config_of, key_of, policy_of, seeds};
use crate::queue::MemoryQueue;
use crate::stream::whole;

const PARTS: [&str; 4] = ["state", "index", "sorted", "items"];

/// Where a test keeps shared memory; removed at its end.
struct DataDir {
    dir: PathBuf,
    config: ShardConfig,
    /// Number of the current copy of the memory.
    generation: u64,
    stop: u64,
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl DataDir {
    fn new(config: ShardConfig) -> DataDir {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let shm = PathBuf::from("/dev/shm");
        let root = if shm.is_dir() {
            shm
        } else {
            std::env::temp_dir()
        };
        let dir = root.join(format!("senko-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        DataDir {
            dir,
            config,
            generation: 0,
            stop: 1,
        }
    }

    fn path(&self, generation: u64, part: &str) -> PathBuf {
        self.dir.join(format!("{generation}-{part}"))
    }

    fn files(&self, create: bool) -> SharedFiles {
        let open = |part: &str| {
            let path = self.path(self.generation, part);
            if create {
                SharedFile::create(&path).expect("made")
            } else {
                SharedFile::open(&path).expect("readable").expect("there")
            }
        };
        SharedFiles {
            state: open("state"),
            index: open("index"),
            sorted: open("sorted"),
            items: open("items"),
        }
    }

    fn open(&mut self, origin: RestoreFrom<'_>, now_ms: u64) -> (Shard, Recovered) {
        let create = !matches!(origin, RestoreFrom::Kept);
        if create {
            self.generation += 1;
        }
        // Each start draws its own random numbers.
        self.config.seed = self.config.seed.wrapping_mul(31).wrapping_add(7);
        let restore = Restore {
            id: 77,
            opened: self.generation,
            stop: self.stop,
            files: self.files(create),
            origin,
            flushes: 0,
        };
        let (mut shard, recovered) =
            Shard::open(self.config.clone(), Some(restore), now_ms).expect("a shard");
        shard.serve();
        (shard, recovered)
    }
}

/// Copies the memory in the state that a kill at this instant would leave.
fn copy_memory(dir: &Path, from: u64, to: u64) {
    for part in PARTS {
        std::fs::copy(
            dir.join(format!("{from}-{part}")),
            dir.join(format!("{to}-{part}")),
        )
        .expect("a copy of the memory");
    }
}

struct Restarts {
    run: Run,
    data_dir: DataDir,
    kept: u64,
    lost: u64,
}

impl Restarts {
    fn new(config: ShardConfig, keys: u64, big: u64, seed: u64) -> Restarts {
        let pages = config.flash.iter().map(|s| s.pages).sum::<u64>() as usize;
        let mut data_dir = DataDir::new(config);
        let (shard, recovered) = data_dir.open(RestoreFrom::Empty(None), 0);
        assert_eq!(recovered, Recovered::default());
        Restarts {
            run: Run::with(shard, pages, keys, big, seed),
            data_dir,
            kept: 0,
            lost: 0,
        }
    }

    /// Starts the next process, on a device with the content `device`.
    fn begin(&mut self, shard: Shard, device: Vec<u8>) {
        let seed = self.run.rng.next_u64();
        self.run.shard = shard;
        self.run.queue = MemoryQueue::with_device(device, &FRAMES, seed);
        self.run.waiting.clear();
        self.run.uploads.clear();
        self.run.steady_ms = 0;
        self.run.shard.set_now(self.run.now_ms);
    }

    /// The next process after a kill, in which every value is from before it or from after it.
    fn come_back(&mut self, before: &HashMap<u64, Entry>) {
        let seed = self.run.rng.next_u64();
        let device = self.run.queue.after_kill(seed);
        let opened = self.data_dir.open(RestoreFrom::Kept, self.run.now_ms);
        self.go_on(opened, device, before);
    }

    fn go_on(
        &mut self,
        (shard, recovered): (Shard, Recovered),
        device: Vec<u8>,
        before: &HashMap<u64, Entry>,
    ) {
        assert_eq!(recovered.why_empty, None, "seed {}", self.run.seed);
        self.begin(shard, device);
        self.read_all(before);
    }

    #[track_caller]
    fn kept_most(&self) {
        let (kept, lost, seed) = (self.kept, self.lost, self.run.seed);
        assert!(kept > lost, "seed {seed}: {kept} kept, {lost} lost");
    }

    /// The next process, whatever it finds.
    fn reopen(&mut self, seed: u64) {
        let device = self.run.queue.after_kill(seed);
        let (shard, _) = self.data_dir.open(RestoreFrom::Kept, self.run.now_ms);
        self.begin(shard, device);
    }

    /// Kills between two commands, or (`within`) at one of the words that the next command stores.
    fn kill(&mut self, within: bool) {
        let before = self.run.model.clone();
        if within && !self.step_and_copy() {
            return;
        }
        self.come_back(&before);
    }

    /// Runs a step, and takes a copy of the memory at one of its stores; false if there were too
    /// few.
    fn step_and_copy(&mut self) -> bool {
        self.copy_within(9, |r, _| r.run.step())
    }

    /// Runs `work`, and copies the memory at one of its first 2^`most` stores. `work` is told when
    /// the copy is taken. False if there were too few stores.
    fn copy_within(&mut self, most: u64, work: impl FnOnce(&mut Self, &dyn Fn() -> bool)) -> bool {
        let (dir, from) = (self.data_dir.dir.clone(), self.data_dir.generation);
        let mut left = 1 << self.run.rng.below(most);
        left = 1 + self.run.rng.below(left);
        let taken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&taken);
        let observing = observe_stores(Some(Box::new(move || {
            left = left.saturating_sub(1);
            if left == 0 && !flag.swap(true, Ordering::Relaxed) {
                copy_memory(&dir, from, from + 1);
            }
        })));
        assert!(observing, "asked for in debug builds only");
        work(self, &|| taken.load(Ordering::Relaxed));
        observe_stores(None);
        let taken = taken.load(Ordering::Relaxed);
        self.data_dir.generation += u64::from(taken);
        taken
    }

    /// A kill, and another one while the next process examines what the first one left.
    fn kill_while_coming_back(&mut self) {
        let before = self.run.model.clone();
        let seed = self.run.rng.next_u64();
        let device = self.run.queue.after_kill(seed);
        let mut opened = None;
        let again = self.copy_within(12, |r, _| {
            opened = Some(r.data_dir.open(RestoreFrom::Kept, r.run.now_ms));
        });
        if again {
            opened = Some(self.data_dir.open(RestoreFrom::Kept, self.run.now_ms));
        }
        self.go_on(opened.expect("it was opened"), device, &before);
    }

    /// A kill in the middle of a clean stop, or at its end, before it counts.
    fn kill_while_stopping(&mut self, keep_dram: bool) {
        self.run.drain();
        let before = self.run.model.clone();
        self.data_dir.stop += 1;
        let stop = self.data_dir.stop;
        self.copy_within(14, |r, killed| {
            let Run { shard, queue, .. } = &mut r.run;
            shard.close(queue);
            while !killed()
                && let Some(done) = queue.complete_one()
            {
                shard.on_disk(queue, done);
            }
            if killed() {
                return;
            }
            let mut items = SavedCounts::default();
            if keep_dram {
                let saved = shard.save_items(&mut Vec::new(), stop);
                items = saved.expect("a Vec takes all");
            }
            let saved = shard.save(&mut Vec::new(), stop, items);
            saved.expect("a Vec takes all");
        });
        self.come_back(&before);
    }

    /// Reads every key: it must hold its value from `before`, the model's, or none; the model
    /// continues with what was read.
    fn read_all(&mut self, before: &HashMap<u64, Entry>) {
        let after = std::mem::take(&mut self.run.model);
        let now = (self.run.now_ms / 1000) as u32;
        let live = |e: &&Entry| e.expiry == 0 || e.expiry > now;
        for n in 0..self.run.keys {
            let allowed: Vec<Entry> = [before.get(&n), after.get(&n)]
                .into_iter()
                .flatten()
                .filter(live)
                .cloned()
                .collect();
            match self.value_of(n) {
                None => self.lost += u64::from(!allowed.is_empty()),
                Some((value, flags, expiry)) => {
                    let entry = Entry {
                        value,
                        flags,
                        expiry,
                    };
                    assert!(
                        allowed.contains(&entry),
                        "seed {}: key {n} came back with what it never held, or no longer does: {} bytes, {} allowed",
                        self.run.seed,
                        entry.value.len(),
                        allowed.len()
                    );
                    self.kept += 1;
                    self.run.model.insert(n, entry);
                }
            }
        }
    }

    fn value_of(&mut self, n: u64) -> Option<(Vec<u8>, u32, u32)> {
        let run = &mut self.run;
        let bytes = key_of(n);
        let key = Key::new(&bytes, HashSeed::default());
        let at = match run.shard.lookup(&key) {
            Lookup::Miss => return None,
            Lookup::Dram(item) => return Some(resident(&run.shard, item)),
            Lookup::Flash(at) => at,
        };
        let mut fetched = match run.shard.fetch(&mut run.queue, &key, at, Want::Answer, 1) {
            Fetch::Now(fetched) => Some(fetched),
            Fetch::Queued => None,
        };
        for _ in 0..100_000 {
            if fetched.is_some() {
                break;
            }
            if let Some(done) = run.queue.complete_one() {
                run.shard.on_disk(&mut run.queue, done);
            }
            run.shard.tick(&mut run.queue);
            fetched = run.shard.next_done(&mut run.queue).map(|d| d.fetched);
        }
        match fetched.expect("every fetch ends") {
            Fetched::Answer(item) => {
                let (item, buf) = whole(&mut run.shard, &mut run.queue, item)?;
                let value = buf[item.value].to_vec();
                Some((value, item.meta.flags, item.meta.expiry))
            }
            Fetched::Resident(item) => Some(resident(&run.shard, item)),
            _ => {
                // As in the model: what is lost stays lost.
                run.delete_if_there(n);
                None
            }
        }
    }

    /// A clean stop, with the items of DRAM on request, and with `damage` to the files that it
    /// leaves; then the next start.
    fn restart(
        &mut self,
        keep_dram: bool,
        damage: impl Fn(&mut Vec<u8>, &mut Vec<u8>),
    ) -> Recovered {
        self.run.drain();
        self.run.shard.close(&mut self.run.queue);
        while let Some(done) = self.run.queue.complete_one() {
            self.run.shard.on_disk(&mut self.run.queue, done);
        }
        assert!(self.run.shard.is_closed());
        self.data_dir.stop += 1;
        let (mut index, mut items) = (Vec::new(), Vec::new());
        let (stop, mut counts) = (self.data_dir.stop, SavedCounts::default());
        if keep_dram {
            let saved = self.run.shard.save_items(&mut items, stop);
            counts = saved.expect("a Vec takes all");
        }
        let saved = self.run.shard.save(&mut index, stop, counts);
        saved.expect("a Vec takes all");
        damage(&mut index, &mut items);
        let device = self.run.queue.after_kill(0);
        let origin = RestoreFrom::Saved {
            index: Box::new(index.as_slice()),
            items: keep_dram.then(|| Box::new(items.as_slice()) as Box<dyn Read>),
        };
        let (shard, recovered) = self.data_dir.open(origin, self.run.now_ms);
        self.begin(shard, device);
        recovered
    }

    fn steps(&mut self, most: u64) {
        for _ in 0..self.run.rng.below(most) {
            self.run.step();
        }
    }
}

fn resident(shard: &Shard, item: senko_cache::ItemRef) -> (Vec<u8>, u32, u32) {
    let mut value = Vec::new();
    shard.copy_value(item, &mut value);
    let meta = shard.meta(item);
    (value, meta.flags, meta.expiry)
}

fn stores_are_observed() -> bool {
    if !cfg!(debug_assertions) {
        println!("skipped: stores are observed in builds with debug assertions only");
    }
    cfg!(debug_assertions)
}

fn count_stores(stores: &Arc<AtomicU64>) {
    let counter = Arc::clone(stores);
    observe_stores(Some(Box::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    })));
}

/// Kills at random moments: each key returns only values that it had, and most of what was on the
/// device returns.
#[test]
fn a_kill_costs_what_was_not_on_the_device() {
    for seed in seeds(6_000_000, 4) {
        let config = config_of(2 << 20, 16 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 1500, 60_000, seed);
        for round in 0..60 {
            r.steps(3000);
            r.kill(cfg!(debug_assertions) && round % 4 != 0);
        }
        r.kept_most();
        assert!(r.run.misses <= r.run.hits, "seed {seed}");
    }
}

/// Kills and stops of a shard whose items are nearly all sorted, in tables of few slots. Regions
/// are reclaimed all the time, so tables end and begin within the commands that are killed. Some
/// starts sort nothing, and keep what is sorted.
#[test]
fn sorted_items_come_back() {
    let (mut on_flash, mut found) = (0, 0);
    for seed in seeds(6_450_000, 4) {
        let mut config = config_of(5 << 19, 3 << 20 >> 12, policy_of(seed), seed);
        config.sort_small = true;
        let mut r = Restarts::new(config, 30_000, 60_000, seed);
        (r.run.small, r.run.large) = (true, 0);
        let mut sorted = 0;
        for round in 0..24 {
            r.run.steps(60_000);
            let before = r.run.shard.stats();
            sorted += before.sorted_items;
            let kept = r.kept;
            r.data_dir.config.sort_small = !(round % 8 == 2 || round % 8 == 3);
            match round % 6 {
                0 if cfg!(debug_assertions) => r.kill_while_coming_back(),
                1 if cfg!(debug_assertions) => r.kill_while_stopping(true),
                2 => {
                    // Each item that is there just before is there afterwards.
                    let drops = r.run.drops();
                    let model = r.run.model.clone();
                    r.read_all(&model);
                    r.run.drain();
                    let (model, lost) = (r.run.model.clone(), r.lost);
                    let drops = r.run.drops() - drops;
                    let recovered = r.restart(true, |_, _| {});
                    assert_eq!((recovered.damaged, recovered.lost), (0, 0), "seed {seed}");
                    r.read_all(&model);
                    let lost = r.lost - lost;
                    assert!(
                        lost <= drops + recovered.dropped,
                        "seed {seed}: {lost} lost"
                    );
                }
                3 => {
                    r.kill(false);
                    on_flash += before.flash_items;
                    found += r.kept - kept;
                }
                _ => r.kill(cfg!(debug_assertions)),
            }
        }
        assert!(sorted > 50_000, "{sorted}");
    }
    // The others were in write buffers, which are a sixth of this flash, or more, since `flush_all`
    // empties it now and then.
    assert!(found * 2 > on_flash, "{found} of {on_flash}");
}

/// Kills of a server whose items have one size, so that records cross from page to page, also from
/// one write buffer to the next. A record of which a kill left only a part has no slot: none is
/// found damaged.
#[test]
fn a_kill_leaves_no_part_of_a_record_that_crosses() {
    for (seed, size) in
        seeds(6_400_000, 5).zip([1000, 2100, 2100, 5000, 30_000].into_iter().cycle())
    {
        let config = config_of(2 << 20, 8 << 20 >> 12, policy_of(seed), seed);
        // Of a record of more than 15 pages, only its first read tells whether it is whole.
        let mut r = Restarts::new(config, 4_000_000 / size, 50_000, seed);
        r.run.one_size = Some(size);
        for round in 0..40 {
            r.steps(2000);
            r.kill(cfg!(debug_assertions) && round % 4 != 0);
            let s = r.run.shard.stats();
            assert_eq!(s.flash_checksum_errors, 0, "seed {seed}, round {round}");
        }
        r.kept_most();
    }
}

/// A directory that was filled without `-M` goes on with it. Its records cross from page to page.
/// Reclaim keeps each that is live, wherever it begins and ends.
#[test]
fn records_that_cross_are_kept_when_nothing_may_be_evicted_any_more() {
    for (seed, size) in seeds(6_500_000, 4).zip([1000, 1400, 2100, 5000].into_iter().cycle()) {
        let config = config_of(2 << 20, 12 << 20 >> 12, PolicyKind::S3Fifo, seed);
        let keys = 20_000_000 / size;
        let mut r = Restarts::new(config, keys, 60_000, seed);
        r.run.one_size = Some(size);
        for n in 0..keys {
            r.run.set(n);
            r.run.device(1);
        }
        let s = r.run.shard.stats();
        let fill = s.page_fill_record_bytes as f64 / s.page_fill_page_bytes as f64;
        assert!(fill > 0.94 && s.reclaim_regions > 10, "{fill}: {s:?}");
        r.data_dir.config.no_evict = true;
        assert_eq!(r.restart(false, |_, _| {}).why_empty, None);
        let before = std::mem::take(&mut r.run.model);
        r.read_all(&before);
        // Half of it goes, and as much comes until nothing more fits.
        let mut there: Vec<u64> = r.run.model.keys().copied().collect();
        there.sort_unstable();
        for n in there.into_iter().filter(|n| n % 2 == 0) {
            r.run.delete(n);
            r.run.device(2);
        }
        r.run.drain();
        let regions = r.run.shard.stats().reclaim_regions;
        let (mut stored, mut refused) = (0, 0);
        for n in keys.. {
            let value = vec![n as u8; size as usize];
            match store_or_not(&mut r.run, &key_of(n), &value) {
                true => stored += 1,
                false => refused += 1,
            }
            if refused > 50 {
                break;
            }
        }
        let s = r.run.shard.stats();
        println!(
            "{size}: {stored} stored, {} regions",
            s.reclaim_regions - regions
        );
        assert!(
            s.reclaim_regions > regions + 5 && s.reinsertions > 500,
            "{s:?}"
        );
        let live = r.run.model.clone();
        r.lost = 0;
        r.read_all(&live);
        assert_eq!(
            (r.lost, r.run.shard.stats().flash_checksum_errors),
            (0, 0),
            "seed {seed}"
        );
    }
}

/// Stores a new key; false if there is no room.
fn store_or_not(run: &mut Run, key: &[u8], value: &[u8]) -> bool {
    let key = Key::new(key, HashSeed::default());
    loop {
        match run.shard.alloc(&mut run.queue, &key, 0, 0, value.len()) {
            Ok(mut draft) => {
                run.shard.fill(&mut run.queue, &mut draft, value);
                run.shard.link(draft, None);
                return true;
            }
            Err(senko_cache::AllocError::Busy) => {
                run.device(1);
                run.shard.tick(&mut run.queue);
            }
            Err(_) => return false,
        }
    }
}

/// Kills while values arrive on their way to flash. What was stored so is kept, although older
/// records were still in write buffers; what was still arriving is not there.
#[test]
fn a_kill_keeps_uploads_that_were_stored() {
    for seed in seeds(6_300_000, 3) {
        let config = config_of(4 << 20, 16 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 60, 400_000, seed);
        let mut kept = 0;
        for round in 0..60 {
            r.run.large = 60;
            r.steps(400);
            // Whatever was arriving, and pages that are still in write buffers.
            if round % 2 == 0 {
                r.kill(cfg!(debug_assertions));
                continue;
            }
            r.run.large = 200;
            while r.run.uploads.iter().all(|&(n, ..)| n != 2) {
                r.run.set(2);
                r.run.upload_on();
            }
            let upload = r.run.uploads.iter().rfind(|&&(n, ..)| n == 2);
            let sent = upload.map(|(_, _, entry)| entry.clone());
            while r.run.uploads.iter().any(|&(n, ..)| n == 2) {
                r.run.upload_on();
                r.run.device(1);
            }
            let stored = r.run.live(2).filter(|&entry| Some(entry) == sent.as_ref());
            let stored = stored.map(|entry| entry.value.clone());
            r.kill(false);
            if let Some(stored) = stored {
                let found = r.value_of(2).map(|(value, ..)| value);
                assert!(found == Some(stored), "seed {seed}, round {round}");
                kept += 1;
            }
        }
        assert!(kept > 20, "seed {seed}: {kept}");
    }
}

/// Many kills within a small index under growth, removals and reclaim.
#[test]
fn a_kill_within_a_command_leaves_what_was_or_what_is() {
    if !stores_are_observed() {
        return;
    }
    for seed in seeds(6_100_000, 3) {
        let config = config_of(2 << 20, 4 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 2500, 20_000, seed);
        for _ in 0..250 {
            r.steps(300);
            r.kill(true);
        }
        assert!(r.kept > 0, "seed {seed}");
    }
}

/// A kill while pages of DRAM are being emptied, item by item, because the memory shrank.
#[test]
fn a_kill_while_a_page_is_half_empty_leaves_what_was() {
    if !stores_are_observed() {
        return;
    }
    for seed in seeds(6_160_000, 3) {
        let config = config_of(4 << 20, 16 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 2000, 20_000, seed);
        let mut emptied = 0;
        for _ in 0..60 {
            for _ in 0..1500 {
                let n = r.run.rng.below(2000);
                r.run.set(n);
                r.run.device(2);
            }
            let moves = r.run.shard.stats().slab_moves;
            let bytes = *r.run.shard.dram_bounds().end();
            assert!(r.run.shard.set_dram_limit(bytes / 2));
            r.steps(200);
            emptied += r.run.shard.stats().slab_moves - moves;
            r.kill(true);
        }
        assert!(
            emptied > 60 && r.kept > r.lost,
            "seed {seed}: {emptied} pages"
        );
    }
}

/// A process may be killed while it recovers from a kill, and while it stops.
#[test]
fn a_kill_within_a_start_or_a_stop_leaves_what_was() {
    if !stores_are_observed() {
        return;
    }
    for seed in seeds(6_150_000, 3) {
        let config = config_of(2 << 20, 8 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 2000, 40_000, seed);
        for round in 0..80 {
            r.steps(800);
            match round % 4 {
                0 => r.kill_while_stopping(false),
                2 => r.kill_while_stopping(true),
                _ => r.kill_while_coming_back(),
            }
        }
        r.kept_most();
    }
}

/// Clean stops lose nothing that was on flash, and, on request, nothing in DRAM.
#[test]
fn a_clean_stop_keeps_what_it_says() {
    for seed in seeds(6_200_000, 4) {
        let config = config_of(3 << 20, 64 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 1500, 60_000, seed);
        for round in 0..20 {
            r.steps(4000);
            let keep_dram = round % 2 == 0;
            r.run.drain();
            let (before, drops) = (r.run.shard.stats(), r.run.drops());
            let model = r.run.model.clone();
            let recovered = r.restart(keep_dram, |_, _| {});
            assert!(
                recovered.why_empty.is_none() && recovered.damaged == 0 && recovered.lost == 0,
                "seed {seed}: {recovered:?}"
            );
            assert!(!keep_dram || recovered.dram_items > 0, "seed {seed}");
            let lost = r.lost;
            r.read_all(&model);
            let dram = if keep_dram { 0 } else { before.dram_items };
            assert!(
                r.lost - lost <= drops + dram,
                "seed {seed}: {} lost, {drops} drops, {dram} in DRAM",
                r.lost - lost
            );
            if round % 5 == 4 {
                r.kill(false);
            }
        }
        assert!(r.kept > 10_000, "seed {seed}: {}", r.kept);
    }
}

/// A stop while a device is out of use saves the index's entries for that device, and DRAM's items
/// as items in DRAM: one slot for each key (SHARD-1). Nothing that was deleted or overwritten later
/// comes back, neither at once nor after a kill.
#[test]
fn a_stop_beside_a_device_that_is_out_brings_nothing_back() {
    for seed in seeds(6_250_000, 4) {
        let config = config_of(3 << 20, 32 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 1500, 60_000, seed);
        r.run.steady_step = 40;
        let mut found = 0;
        for round in 0..16 {
            r.steps(4000);
            r.run.drain();
            r.run.queue.stalled = true;
            let out = |run: &Run| run.shard.devices().any(|d| d.state == DeviceState::Out);
            for _ in 0..3000 {
                r.run.step();
                if out(&r.run) {
                    break;
                }
            }
            r.run.queue.stalled = false;
            r.run.drain();
            assert!(out(&r.run), "seed {seed}: the device is well again");
            let recovered = r.restart(round % 4 != 3, |_, _| {});
            assert!(
                recovered.why_empty.is_none() && recovered.damaged == 0,
                "seed {seed}"
            );
            found += recovered.flash_items;
            r.steps(3000);
            r.kill(false);
        }
        assert!(found > 1000 && r.kept > r.lost, "seed {seed}");
    }
}

/// With less memory, the newest items of DRAM come back, and everything on flash; with more memory,
/// all items.
#[test]
fn other_memory_after_a_clean_stop_keeps_the_newest() {
    for (seed, flash) in [(1, 64 << 20 >> 12), (2, 0), (3, 64 << 20 >> 12), (4, 0)] {
        let with = |memory| config_of(memory, flash, policy_of(seed), seed);
        let mut r = Restarts::new(with(40 << 20), 100_000, 1, seed);
        for n in 0..60_000 {
            r.run.set(n);
            r.run.device(4);
        }
        r.run.drain();
        let before = r.run.shard.stats();
        r.data_dir.config = with(16 << 20);
        let recovered = r.restart(true, |_, _| {});
        assert_eq!(recovered.why_empty, None, "seed {seed}");
        assert!(
            recovered.dropped > 0 && recovered.dram_items < before.dram_items,
            "seed {seed}: {recovered:?}"
        );
        let stats = r.run.shard.stats();
        assert_eq!((stats.evictions, stats.demotions_clean), (0, 0));
        let of = |r: &mut Restarts, keys: std::ops::Range<u64>| {
            let there = keys.clone().filter(|&n| r.run.is_resident(n)).count();
            there as f64 / (keys.end - keys.start) as f64
        };
        let (old, new) = (of(&mut r, 38_000..42_000), of(&mut r, 59_500..60_000));
        assert!(
            new > 0.5 && new > 2.0 * old,
            "seed {seed}: {new} of the newest, {old} of the older"
        );
        r.steps(3000);
        r.data_dir.config = with(40 << 20);
        let before = r.run.shard.stats();
        let recovered = r.restart(true, |_, _| {});
        assert_eq!(
            (recovered.why_empty, recovered.dropped, recovered.lost),
            (None, 0, 0),
            "seed {seed}"
        );
        // A quarter may have expired.
        assert!(recovered.dram_items >= before.dram_items * 2 / 3);
        r.steps(3000);
    }
}

/// Damage to the files of a clean stop, and to records on flash, loses items and brings none back.
#[test]
fn damaged_files_are_misses() {
    for seed in seeds(6_300_000, 4) {
        let config = config_of(2 << 20, 16 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 1500, 60_000, seed);
        for round in 0..30 {
            r.steps(3000);
            let model = r.run.model.clone();
            let place = r.run.rng.next_u64();
            r.restart(round % 2 == 0, |index, items| {
                let file = if place & 1 == 0 { index } else { items };
                if file.is_empty() {
                    return;
                }
                let at = (place >> 8) as usize % file.len();
                match place >> 1 & 3 {
                    0 => file.truncate(at),
                    1 => {
                        let end = (at + 512).min(file.len());
                        file[at..end].fill(0);
                    }
                    _ => file[at] ^= 1 << (place >> 60 & 7),
                }
            });
            for _ in 0..50 {
                r.run.queue.flip_a_bit();
            }
            r.read_all(&model);
        }
    }
}

/// Shared memory is gone and there was no clean stop, so the shard is empty. Records of an earlier
/// life never return, although the new life writes to the same places, loses some writes, and
/// counts positions from the start again.
#[test]
fn an_earlier_life_stays_past() {
    for seed in seeds(6_400_000, 3) {
        let config = config_of(2 << 20, 8 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 1000, 20_000, seed);
        for _ in 0..12 {
            r.steps(8000);
            let device = r.run.queue.after_kill(seed);
            let now = r.run.now_ms;
            let (shard, recovered) = r
                .data_dir
                .open(RestoreFrom::Empty(Some("a test".into())), now);
            assert_eq!(recovered.why_empty.as_deref(), Some("a test"));
            r.begin(shard, device);
            r.run.queue.tear_one_in = 4;
            r.run.model.clear();
            r.read_all(&HashMap::new());
            assert!(r.run.model.is_empty());
        }
    }
}

/// Damage to shared memory at rest: flipped bits among the words for the logs' positions, parts of
/// the other words zeroed or cut off. The shard is empty, or everything in it passes every check.
#[test]
fn damaged_memory_is_empty_or_misses() {
    for seed in seeds(6_500_000, 3) {
        let config = config_of(2 << 20, 8 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 1000, 20_000, seed);
        for _ in 0..40 {
            r.steps(2000);
            let model = r.run.model.clone();
            let part = PARTS[r.run.rng.below(3) as usize];
            let path = r.data_dir.path(r.data_dir.generation, part);
            let mut bytes = std::fs::read(&path).expect("shared memory");
            let cut = r.run.rng.below(6) == 0;
            if cut {
                let len = r.run.rng.below(bytes.len() as u64) as usize;
                bytes.truncate(len);
            } else if part == "state" {
                for _ in 0..1 + r.run.rng.below(3) {
                    let bit = r.run.rng.below(bytes.len() as u64 * 8) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            } else {
                let at = r.run.rng.below(bytes.len() as u64 / 8) as usize;
                let end = (at + r.run.rng.below(1 << 18) as usize).min(bytes.len());
                bytes[at..end].fill(0);
            }
            r.data_dir.generation += 1;
            for other in PARTS {
                let from = r.data_dir.path(r.data_dir.generation - 1, other);
                std::fs::copy(from, r.data_dir.path(r.data_dir.generation, other)).expect("a copy");
            }
            std::fs::write(r.data_dir.path(r.data_dir.generation, part), bytes).expect("written");
            r.reopen(seed);
            r.read_all(&model);
        }
    }
}

/// The device loses acknowledged writes, as after a power failure with a volatile cache. Parts of
/// it hold the content of an earlier stop, or nothing. However the shard is recovered, such an item
/// is a miss.
#[test]
fn lost_and_returned_regions_are_misses() {
    for seed in seeds(6_600_000, 3) {
        let config = config_of(2 << 20, 6 << 20 >> 12, policy_of(seed), seed);
        let mut r = Restarts::new(config, 1500, 40_000, seed);
        let mut past = vec![r.run.queue.after_kill(0)];
        for round in 0..30 {
            r.steps(4000);
            let model = r.run.model.clone();
            if round % 2 == 0 {
                r.restart(round % 4 == 0, |_, _| {});
            } else {
                r.reopen(round);
            }
            let mut device = r.run.queue.after_kill(0);
            past.push(device.clone());
            let pages = (device.len() / PAGE_SIZE) as u64;
            for _ in 0..1 + r.run.rng.below(12) {
                let first = r.run.rng.below(pages);
                let run = (1 + r.run.rng.below(80)).min(pages - first);
                let (at, end) = (
                    first as usize * PAGE_SIZE,
                    (first + run) as usize * PAGE_SIZE,
                );
                let then = &past[r.run.rng.below(past.len() as u64) as usize];
                device[at..end].copy_from_slice(&then[at..end]);
            }
            let seed = r.run.rng.next_u64();
            r.run.queue = MemoryQueue::with_device(device, &FRAMES, seed);
            r.read_all(&model);
            if past.len() > 6 {
                past.remove(1);
            }
        }
        assert!(r.kept > 100 && r.lost > 0, "seed {seed}");
    }
}

/// A server numbers its `flush_all` commands. The third was answered, and then the process was
/// killed. The next process learns from the shard that the third was applied.
#[test]
fn a_kill_does_not_forget_which_flush_was_applied() {
    let config = config_of(2 << 20, 8 << 20 >> 12, PolicyKind::Lru, 1);
    let mut r = Restarts::new(config, 100, 1000, 1);
    assert_eq!(r.run.shard.flushes(), 0);
    r.run.shard.set_flushes(3);
    assert_eq!(r.run.shard.flushes(), 3);
    copy_memory(
        &r.data_dir.dir,
        r.data_dir.generation,
        r.data_dir.generation + 1,
    );
    r.data_dir.generation += 1;
    let (shard, _) = r.data_dir.open(RestoreFrom::Kept, r.run.now_ms);
    assert_eq!(shard.flushes(), 3);
    let (alone, _) = Shard::open(r.data_dir.config.clone(), None, 1).expect("a shard");
    assert_eq!(alone.flushes(), 0, "nobody would ask it");
}

/// Four shards assign CAS values independently, each its own residue, so that no two are the same.
/// After a start they continue above the greatest value assigned before.
#[test]
fn cas_values_of_shards_never_meet() {
    let mut given = std::collections::HashSet::new();
    for number in 0..4 {
        let mut config = config_of(2 << 20, 0, PolicyKind::Lru, 1);
        (config.shard, config.shards) = (number, 4);
        let (mut shard, _) = Shard::open(config, None, 1).expect("a shard");
        shard.begin_cas(1001);
        for _ in 0..50 {
            let cas = shard.next_cas();
            assert!(cas > 1001 && cas % 4 == u64::from(number), "{cas}");
            assert!(given.insert(cas) && shard.cas() == cas, "{cas}");
        }
    }
    assert!(
        given.iter().max() < Some(&(1001 + 4 * 52)),
        "no value is left out"
    );
}

/// The file of DRAM's items was cut off within its header, or belongs to another stop: the shard
/// reports it once, counts the items that were only there, and recovers what is on flash.
#[test]
fn items_without_a_good_head_are_told_as_damage() {
    let config = config_of(2 << 20, 16 << 20 >> 12, PolicyKind::Lru, 1);
    let mut r = Restarts::new(config, 1500, 60_000, 1);
    for cut in [true, false] {
        r.steps(3000);
        let before = r.run.shard.stats().dram_items;
        let recovered = r.restart(true, |_, items| {
            if cut {
                items.truncate(9);
            } else {
                items[0] ^= 1;
            }
        });
        assert_eq!((recovered.damaged, recovered.dram_items), (1, 0));
        assert!((1..=before).contains(&recovered.lost), "{recovered:?}");
        assert_eq!(recovered.why_empty, None);
    }
}

/// A SET that replaces once took the old slot out of the index and entered a new one: slots moved
/// between lines, and a kill in between lost the key. It now stores one word: the key's slot names
/// the new item.
#[test]
fn a_set_that_replaces_moves_no_slot() {
    if !stores_are_observed() {
        return;
    }
    let config = config_of(2 << 20, 8 << 20 >> 12, PolicyKind::Lru, 2);
    let mut r = Restarts::new(config, 1500, 1000, 1);
    r.steps(3000);
    let stores = Arc::new(AtomicU64::new(0));
    let (mut in_dram, mut on_flash) = (0, 0);
    for n in 0..1500 {
        let bytes = key_of(n);
        let key = Key::new(&bytes, HashSeed::default());
        let Run { shard, queue, .. } = &mut r.run;
        let Ok(mut draft) = shard.alloc(queue, &key, 0, 0, 100) else {
            r.run.drain();
            continue;
        };
        shard.fill(queue, &mut draft, &[7; 100]);
        match shard.lookup(&key) {
            Lookup::Dram(_) => in_dram += 1,
            Lookup::Flash(_) => on_flash += 1,
            Lookup::Miss => {
                shard.abort(draft);
                continue;
            }
        }
        stores.store(0, Ordering::Relaxed);
        count_stores(&stores);
        shard.link(draft, None);
        observe_stores(None);
        assert_eq!(stores.load(Ordering::Relaxed), 1, "key {n}");
    }
    assert!(in_dram > 5 && on_flash > 20, "{in_dram}, {on_flash}");
}

/// A SET once rebuilt a whole segment of the index, thousands of slots, if it was the segment's
/// turn to grow. Now an allocation copies a part of it.
#[test]
fn no_set_copies_a_segment() {
    if !stores_are_observed() {
        return;
    }
    let mut data_dir = DataDir::new(config_of(16 << 20, 0, PolicyKind::Lru, 1));
    let (mut shard, _) = data_dir.open(RestoreFrom::Empty(None), 0);
    let mut queue = MemoryQueue::new(0, &FRAMES, 1);
    let stores = Arc::new(AtomicU64::new(0));
    count_stores(&stores);
    let (mut longest, mut all) = (0, 0);
    for n in 0..80_000_u64 {
        let name = n.to_le_bytes();
        let key = Key::new(&name, HashSeed::default());
        let mut draft = shard.alloc(&mut queue, &key, 0, 0, 20).expect("memory");
        shard.fill(&mut queue, &mut draft, &[7; 20]);
        shard.link(draft, None);
        let words = stores.swap(0, Ordering::Relaxed);
        (longest, all) = (longest.max(words), all + words);
    }
    observe_stores(None);
    assert_eq!(shard.stats().evictions, 0);
    assert!(all > 1_000_000, "{all} words: the segments grew often");
    assert!(longest < 400, "{longest} words in one SET");
}

#[test]
fn an_origin_is_named_without_what_it_holds() {
    let saved = RestoreFrom::Saved {
        index: Box::new(&[][..]),
        items: None,
    };
    let names =
        [RestoreFrom::Empty(None), RestoreFrom::Kept, saved].map(|origin| format!("{origin:?}"));
    assert_eq!(names, ["Empty", "Kept", "Saved"]);
}
