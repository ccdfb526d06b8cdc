// SPDX-License-Identifier: Apache-2.0
//! Random commands on a shard against a map.
//!
//! The map knows the required value of each key. A `get` that waits for flash may return the value
//! from the time of its look-up, even if later commands have been answered meanwhile. All other
//! commands must return the current value. A miss of a live key is allowed only where the shard
//! counted a drop.

use std::collections::HashMap;

use senko_cache::{
    Admission, AdmissionRule, AfarRead, AllocError, DeviceSlice, Done, Draft, Fetch, Fetched,
    HashSeed, Key, Lookup, NewUpload, PACKED_VALUE, PolicyKind, Progress, Scanned, Shard,
    ShardConfig, Want,
};
use senko_io::Completion;
use senko_workload::Rng;

use crate::queue::MemoryQueue;
use crate::stream::whole;

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub value: Vec<u8>,
    pub flags: u32,
    pub expiry: u32,
}

/// A shard, its device, and its required contents.
pub struct Run {
    pub shard: Shard,
    pub queue: MemoryQueue,
    pub rng: Rng,
    pub model: HashMap<u64, Entry>,
    pub now_ms: u64,
    pub waiting: HashMap<u64, (u64, Want, Option<Entry>)>,
    next_user: u64,
    version: u64,
    pub misses: u64,
    pub hits: u64,
    flash_answers: u64,
    pub seed: u64,
    traced: Option<u64>,
    pub keys: u64,
    big: u64,
    /// Of 200 values, how many may be as large as `big`.
    pub large: u64,
    /// Whether nearly all values are small.
    pub small: bool,
    /// If set, nearly all values have this size.
    pub one_size: Option<u64>,
    /// The time by which devices are judged, and the largest part of it that passes in a step.
    pub steady_ms: u64,
    pub steady_step: u64,
    /// Values that are arriving on their way to flash, with their keys.
    pub uploads: Vec<(u64, Draft, Entry)>,
    pub failed_uploads: u64,
    /// Reads of another worker that ended.
    pub afar: Vec<Completion>,
}

/// Frames of a run's queue.
pub const FRAMES: [(usize, usize); 3] = [(1, 24), (4, 6), (16, 4)];

pub fn key_of(n: u64) -> Vec<u8> {
    let mut key = format!("key-{n}-").into_bytes();
    key.resize(key.len() + (n * 7919 % 40) as usize, b'x');
    key
}

pub fn config(memory: usize, flash_pages: u64) -> ShardConfig {
    ShardConfig {
        sort_small: false,
        ..config_of(memory, flash_pages, PolicyKind::S3Fifo, 1)
    }
}

/// A configuration of a run; odd seeds sort small items.
pub fn config_of(memory: usize, flash_pages: u64, policy: PolicyKind, seed: u64) -> ShardConfig {
    let flash = if flash_pages == 0 {
        vec![]
    } else {
        // Two logs on one device, so that the same page numbers occur in different logs.
        let half = flash_pages / 2;
        vec![
            DeviceSlice {
                device: 0,
                first_page: 0,
                pages: half,
            },
            DeviceSlice {
                device: 0,
                first_page: half,
                pages: flash_pages - half,
            },
        ]
    };
    ShardConfig {
        memory,
        max_item: memory / 4,
        flash,
        region: 256 << 10,
        policy,
        admission: Admission {
            rule: AdmissionRule::All,
            budget: None,
        },
        promote_after: 2,
        sort_small: seed % 2 == 1,
        upload_over: 64 << 10,
        upload_bytes: 256 << 10,
        reinsert: true,
        no_evict: false,
        shard: 0,
        shards: 1,
        seed,
        hash_seed: HashSeed::default(),
    }
}

impl Run {
    pub fn new(config: ShardConfig, keys: u64, big: u64, seed: u64) -> Run {
        let pages = config.flash.iter().map(|s| s.pages).sum::<u64>() as usize;
        let shard = Shard::new(config).expect("a shard");
        Run::with(shard, pages, keys, big, seed)
    }

    pub fn with(mut shard: Shard, pages: usize, keys: u64, big: u64, seed: u64) -> Run {
        let now_ms = 1_700_000_000_000;
        shard.set_now(now_ms);
        Run {
            shard,
            queue: MemoryQueue::new(pages, &FRAMES, seed ^ 1),
            rng: Rng::new(seed),
            model: HashMap::new(),
            now_ms,
            waiting: HashMap::new(),
            next_user: 0,
            version: 0,
            misses: 0,
            hits: 0,
            flash_answers: 0,
            seed,
            traced: std::env::var("SENKO_TRACE_KEY")
                .ok()
                .and_then(|k| k.parse().ok()),
            keys,
            big,
            large: 3,
            one_size: None,
            small: false,
            steady_ms: 0,
            steady_step: 0,
            uploads: Vec::new(),
            failed_uploads: 0,
            afar: Vec::new(),
        }
    }

    fn now(&self) -> u32 {
        (self.now_ms / 1000) as u32
    }

    pub fn live(&self, n: u64) -> Option<&Entry> {
        self.model
            .get(&n)
            .filter(|e| e.expiry == 0 || e.expiry > self.now())
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(200) {
            _ if self.small => self.rng.below(100),
            0..190 if let Some(size) = self.one_size => size,
            0..120 => self.rng.below(400),
            120..180 => self.rng.below(3000),
            n if n < 200 - self.large => self.rng.below(20_000),
            _ => self.rng.below(self.big),
        } as usize;
        self.version += 1;
        let mut byte = self.version.wrapping_mul(0x9e37_79b9);
        (0..len)
            .map(|_| {
                byte = byte.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (byte >> 56) as u8
            })
            .collect()
    }

    /// Lets monotonic time pass.
    fn pass(&mut self) {
        if self.steady_step > 0 {
            self.steady_ms += self.rng.below(self.steady_step);
            self.shard.set_steady(self.steady_ms);
        }
    }

    /// Lets the device complete some operations, and handles those that ended.
    pub fn device(&mut self, most: usize) {
        for _ in 0..most {
            let Some(completion) = self.queue.complete_one() else {
                break;
            };
            if AfarRead::number(&completion).is_some() {
                self.afar.push(completion);
                continue;
            }
            self.shard.on_disk(&mut self.queue, completion);
            while let Some(done) = self.shard.next_done(&mut self.queue) {
                self.ended(done);
            }
        }
    }

    pub fn drain(&mut self) {
        for _ in 0..1_000_000 {
            self.device(1);
            self.shard.tick(&mut self.queue);
            while let Some(done) = self.shard.next_done(&mut self.queue) {
                self.ended(done);
            }
            self.upload_on();
            if self.queue.pending() == 0 && self.waiting.is_empty() && self.uploads.is_empty() {
                return;
            }
        }
        panic!(
            "seed {}: {} fetches never end",
            self.seed,
            self.waiting.len()
        );
    }

    /// Handles operations that ended without the device.
    pub fn take_done(&mut self) {
        while let Some(done) = self.shard.next_done(&mut self.queue) {
            self.ended(done);
        }
    }

    fn ended(&mut self, done: Done) {
        let (n, want, then) = self
            .waiting
            .remove(&done.user)
            .expect("an end for each start");
        self.fetched(n, want, then, done.fetched);
    }

    /// Steps that touch the key named in `SENKO_TRACE_KEY`, for debugging a failure.
    fn trace(&self, n: u64, what: impl std::fmt::Debug) {
        if self.traced == Some(n) {
            eprintln!(
                "{} key {n}: {what:?}; the model has {:?}",
                self.now(),
                self.model.get(&n).map(|e| (e.value.len(), e.expiry))
            );
        }
    }

    /// Checks the end of a fetch; `then` is the value that the key had when the fetch began.
    fn fetched(&mut self, n: u64, want: Want, then: Option<Entry>, fetched: Fetched) {
        let current = self.live(n).cloned();
        self.trace(n, (want, &fetched));
        match fetched {
            Fetched::Answer(item) => {
                assert_eq!(want, Want::Answer);
                self.flash_answers += 1;
                let (item, buf) = match whole(&mut self.shard, &mut self.queue, item) {
                    Some(whole) => whole,
                    None => return self.fetched(n, want, then, Fetched::Absent),
                };
                let got = (buf[item.value.clone()].to_vec(), item.meta.flags);
                let ok = [&then, &current]
                    .into_iter()
                    .flatten()
                    .any(|e| (&e.value, e.flags) == (&got.0, got.1));
                assert!(ok, "seed {}: key {n}: a wrong answer from flash", self.seed);
                assert_eq!(item.answer.is_some(), got.0.len() > PACKED_VALUE as usize);
                if let Some(whole) = item.answer {
                    assert_eq!(buf[whole], answer(n, &got.0, got.1));
                }
                self.hits += 1;
            }
            Fetched::Resident(item) => {
                let current = current
                    .unwrap_or_else(|| panic!("seed {}: key {n} is dead and came back", self.seed));
                let mut value = Vec::new();
                self.shard.copy_value(item, &mut value);
                assert_eq!(value, current.value, "seed {}: key {n}", self.seed);
                assert_eq!(self.shard.meta(item).flags, current.flags);
                assert_eq!(self.shard.meta(item).expiry, current.expiry);
                self.hits += 1;
            }
            Fetched::Header(meta, at) => {
                let entry = current
                    .unwrap_or_else(|| panic!("seed {}: key {n} is dead and came back", self.seed));
                assert_eq!(
                    (meta.value_len as usize, meta.flags, meta.expiry),
                    (entry.value.len(), entry.flags, entry.expiry)
                );
                // A delete.
                let key = key_of(n);
                self.shard
                    .remove_flash(&Key::new(&key, HashSeed::default()), at);
                self.model.remove(&n);
                // A slot of another key may look like its own.
                let left = self.shard.lookup(&Key::new(&key, HashSeed::default()));
                assert!(!matches!(left, Lookup::Dram(_)));
            }
            Fetched::Absent | Fetched::OutOfMemory => {
                if current.is_some() && then == current {
                    self.misses += 1;
                    self.model.remove(&n);
                    // A lost value stays lost: an error that goes away must not bring an older
                    // value back, so delete.
                    self.delete_if_there(n);
                }
            }
            Fetched::Changed => {}
            Fetched::Listed(_) | Fetched::Piece(..) => unreachable!("this run asks for neither"),
        }
    }

    pub fn delete_if_there(&mut self, n: u64) {
        let key = key_of(n);
        let key = Key::new(&key, HashSeed::default());
        loop {
            match self.shard.lookup(&key) {
                Lookup::Dram(item) => self.shard.unlink(item),
                Lookup::Miss => return,
                Lookup::Flash(at) => self.shard.remove_flash(&key, at),
            }
        }
    }

    fn start(&mut self, n: u64, at: senko_cache::FlashRef, want: Want) {
        let then = self.live(n).cloned();
        let key = key_of(n);
        self.trace(n, ("fetch", want, at));
        self.next_user += 1;
        match self.shard.fetch(
            &mut self.queue,
            &Key::new(&key, HashSeed::default()),
            at,
            want,
            self.next_user,
        ) {
            Fetch::Now(fetched) => self.fetched(n, want, then, fetched),
            Fetch::Queued => {
                self.waiting.insert(self.next_user, (n, want, then));
            }
        }
    }

    /// Begins to store a value that goes to flash as it arrives; false if it has to go to DRAM.
    fn begin_upload(&mut self, n: u64, entry: &Entry) -> bool {
        if !self.shard.uploads(entry.value.len()) {
            return false;
        }
        let new = NewUpload {
            flags: entry.flags,
            expiry: entry.expiry,
            len: entry.value.len(),
            cas: None,
            binary_key: false,
            waits: false,
        };
        let name = key_of(n);
        let key = Key::new(&name, HashSeed::default());
        match self.shard.upload(&mut self.queue, &key, &new) {
            Ok(Some(draft)) => {
                self.trace(n, "upload");
                self.uploads.push((n, draft, entry.clone()));
                true
            }
            Ok(None) => false,
            Err(AllocError::Busy) => true, // not now: the client goes away
            Err(e) => panic!("seed {}: {e}", self.seed),
        }
    }

    /// Some bytes of an upload arrive. After the last it is stored, unless it failed.
    pub fn upload_on(&mut self) {
        if self.uploads.is_empty() {
            return;
        }
        let at = self.rng.below(self.uploads.len() as u64) as usize;
        let (n, mut draft, entry) = self.uploads.swap_remove(at);
        if self.rng.below(200) == 0 {
            return self.shard.abort(draft);
        }
        let left = self.shard.unfilled(&draft);
        let from = entry.value.len() - left;
        let come = self.rng.below(left.min(150_000) as u64 + 1) as usize;
        let bytes = &entry.value[from..from + come];
        self.shard.fill(&mut self.queue, &mut draft, bytes);
        let whole = self.shard.unfilled(&draft) == 0;
        match self.shard.progress(&draft) {
            Progress::Failed | Progress::Flushed => {
                self.failed_uploads += 1;
                self.shard.abort(draft);
            }
            Progress::Here if whole => {
                let name = key_of(n);
                let key = Key::new(&name, HashSeed::default());
                self.shard.store(draft, &key, None);
                self.trace(n, "uploaded");
                self.model.insert(n, entry);
            }
            _ => self.uploads.push((n, draft, entry)),
        }
    }

    fn missed(&mut self, n: u64) {
        self.trace(n, "missed");
        if self.live(n).is_some() {
            self.misses += 1;
        }
        self.model.remove(&n);
    }

    pub fn get(&mut self, n: u64) {
        let key = key_of(n);
        match self.shard.lookup(&Key::new(&key, HashSeed::default())) {
            Lookup::Dram(item) => {
                let entry = self
                    .live(n)
                    .unwrap_or_else(|| panic!("seed {}: key {n} is dead and came back", self.seed))
                    .clone();
                self.shard.hit(item);
                let mut out = Vec::new();
                let meta = self.shard.meta(item);
                self.shard.copy_answer(item, &meta, true, &mut out);
                assert_eq!(
                    out,
                    answer(n, &entry.value, entry.flags),
                    "seed {} key {n}",
                    self.seed
                );
                self.hits += 1;
            }
            Lookup::Miss => self.missed(n),
            Lookup::Flash(at) => self.start(n, at, Want::Answer),
        }
    }

    pub fn is_resident(&mut self, n: u64) -> bool {
        matches!(
            self.shard
                .lookup(&Key::new(&key_of(n), HashSeed::default())),
            Lookup::Dram(_)
        )
    }

    pub fn set(&mut self, n: u64) {
        let key = key_of(n);
        let (value, flags) = (self.value(), self.rng.below(3) as u32 * 1000);
        let expiry = if self.rng.below(4) == 0 {
            self.now() + 1 + self.rng.below(20_000) as u32
        } else {
            0
        };
        let entry = Entry {
            value,
            flags,
            expiry,
        };
        if self.begin_upload(n, &entry) {
            return;
        }
        let value = entry.value;
        for round in 0.. {
            assert!(
                round < 100_000,
                "seed {}: an allocation waits for ever",
                self.seed
            );
            match self.shard.alloc(
                &mut self.queue,
                &Key::new(&key, HashSeed::default()),
                flags,
                expiry,
                value.len(),
            ) {
                Ok(mut draft) => {
                    let cut = self.rng.below(value.len() as u64 + 1) as usize;
                    self.shard.fill(&mut self.queue, &mut draft, &value[..cut]);
                    let turns = self.rng.below(3) as usize;
                    self.device(turns);
                    self.shard.fill(&mut self.queue, &mut draft, &value[cut..]);
                    if self.rng.below(50) == 0 {
                        self.shard.abort(draft);
                        return;
                    }
                    self.shard.link(draft, None);
                    self.trace(n, "set");
                    self.model.insert(
                        n,
                        Entry {
                            value,
                            flags,
                            expiry,
                        },
                    );
                    return;
                }
                Err(AllocError::Busy) => {
                    self.pass();
                    self.device(1);
                    self.shard.tick(&mut self.queue);
                }
                Err(e) => panic!("seed {}: {e} for {} bytes", self.seed, value.len()),
            }
        }
    }

    /// A change that needs the item in DRAM, if it is already there.
    fn change(&mut self, n: u64) {
        let key = key_of(n);
        match self.shard.lookup(&Key::new(&key, HashSeed::default())) {
            Lookup::Miss => self.missed(n),
            Lookup::Flash(at) => self.start(n, at, Want::Resident),
            Lookup::Dram(item) => {
                let mut entry = self.live(n).expect("not a dead one").clone();
                match self.rng.below(4) {
                    0 => {
                        entry.expiry = self.now() + 1 + self.rng.below(30_000) as u32;
                        match self.shard.widen(&mut self.queue, item, entry.expiry, 0) {
                            Ok(item) => self.shard.set_expiry(item, entry.expiry),
                            Err(AllocError::Busy) => return,
                            Err(e) => panic!("seed {}: {e}", self.seed),
                        }
                    }
                    1 => {
                        let value = self.rng.next_u64().to_string().into_bytes();
                        match self.shard.rewrite(&mut self.queue, item, &value, None) {
                            Ok(_) => entry.value = value,
                            Err(AllocError::Busy) => {}
                            Err(e) => panic!("seed {}: {e}", self.seed),
                        }
                    }
                    2 if entry.value.len() < 50_000 => {
                        let more = self.value();
                        let made = self.shard.alloc(
                            &mut self.queue,
                            &Key::new(&key, HashSeed::default()),
                            0,
                            0,
                            more.len(),
                        );
                        let Ok(mut draft) = made else {
                            return;
                        };
                        let key = Key::new(&key, HashSeed::default());
                        let Lookup::Dram(item) = self.shard.lookup(&key) else {
                            // Making room has evicted the item.
                            return self.shard.abort(draft);
                        };
                        self.shard.fill(&mut self.queue, &mut draft, &more);
                        let append = self.rng.below(2) == 0;
                        match self.shard.concat(&mut self.queue, item, draft, append) {
                            Ok(draft) => {
                                self.shard.link(draft, None);
                                let old = std::mem::take(&mut entry.value);
                                entry.value = if append {
                                    [old, more].concat()
                                } else {
                                    [more, old].concat()
                                };
                            }
                            Err((_, Some(draft))) => self.shard.abort(draft),
                            Err(_) => {}
                        }
                    }
                    _ => {
                        self.shard.unlink(item);
                        self.model.remove(&n);
                        return;
                    }
                }
                self.trace(n, "changed");
                self.model.insert(n, entry);
            }
        }
    }

    /// Deletes a key, if need be when its header was read.
    pub fn delete(&mut self, n: u64) {
        let key = key_of(n);
        match self.shard.lookup(&Key::new(&key, HashSeed::default())) {
            Lookup::Dram(item) => {
                self.shard.unlink(item);
                self.model.remove(&n);
            }
            Lookup::Miss => self.missed(n),
            Lookup::Flash(at) => self.start(n, at, Want::Header),
        }
    }

    pub fn steps(&mut self, count: u64) {
        (0..count).for_each(|_| self.step());
    }

    pub fn step(&mut self) {
        // Some keys are popular.
        let n = self.rng.below(self.keys);
        let n = if self.rng.below(2) == 0 {
            n % (self.keys / 20 + 1)
        } else {
            n
        };
        match self.rng.below(1000) {
            0..450 => self.get(n),
            450..800 => self.set(n),
            800..920 => self.change(n),
            920..970 => self.delete(n),
            970..999 => {
                self.now_ms += self.rng.below(if self.small { 5000 } else { 500_000 });
                self.shard.set_now(self.now_ms);
            }
            _ if self.rng.below(40) == 0 => {
                self.shard.flush_all();
                self.model.clear();
            }
            _ => {}
        }
        self.pass();
        self.upload_on();
        let most = self.rng.below(3) as usize;
        self.device(most);
        if self.rng.below(16) == 0 {
            self.shard.tick(&mut self.queue);
            self.take_done();
        }
        while self.waiting.len() > 40 {
            self.pass();
            self.device(1);
            self.shard.tick(&mut self.queue);
            self.take_done();
        }
    }

    /// A walk over all items finds every key that a get finds.
    fn assert_walk_sees_all(&mut self) {
        let mut seen = std::collections::HashSet::new();
        let (mut cursor, mut pages) = (Some(0), Vec::new());
        while let Some(at) = cursor {
            cursor = self.shard.scan(at, |found| match found {
                Scanned::Dram(item) => drop(seen.insert(self.shard.key(item).to_vec())),
                Scanned::Flash(at) => pages.push(at),
            });
        }
        for at in pages {
            let mut fetched = match self.shard.list(&mut self.queue, at, 0) {
                Fetch::Now(fetched) => Some(fetched),
                Fetch::Queued => None,
            };
            while fetched.is_none() {
                let completion = self.queue.complete_one().expect("a read is under way");
                self.shard.on_disk(&mut self.queue, completion);
                let done = self.shard.next_done(&mut self.queue);
                fetched = done.map(|done| done.fetched);
            }
            if let Some(Fetched::Listed(items)) = fetched {
                seen.extend(items.into_iter().map(|item| item.key));
            }
        }
        let mut found = 0;
        for n in 0..self.keys {
            let before = self.hits;
            self.get(n);
            self.drain();
            if self.hits > before {
                found += 1;
                assert!(seen.contains(&key_of(n)), "seed {}: key {n}", self.seed);
            }
        }
        assert!(found > 1000, "seed {}: {found}", self.seed);
    }

    /// Nothing was missed but what the shard counts as dropped.
    pub fn assert_misses(&self, seed: u64) {
        let (misses, drops) = (self.misses, self.drops());
        assert!(
            misses <= drops,
            "seed {seed}: {misses} misses, {drops} drops"
        );
    }
    /// Drops that the shard counted.
    pub fn drops(&self) -> u64 {
        let s = self.shard.stats();
        s.evictions
            + s.tag_drops
            + s.drops_index
            + s.reclaim_drops
            + s.flash_read_errors
            + s.flash_checksum_errors
            + s.flash_false_matches
            + s.drops_error
    }
}

pub fn answer(n: u64, value: &[u8], flags: u32) -> Vec<u8> {
    let mut out = b"VALUE ".to_vec();
    out.extend(key_of(n));
    out.extend(format!(" {flags} {}\r\n", value.len()).into_bytes());
    out.extend(value);
    out.extend(b"\r\nEND\r\n");
    out
}

/// Every second seed has each policy.
pub fn policy_of(seed: u64) -> PolicyKind {
    [PolicyKind::Lru, PolicyKind::S3Fifo][seed as usize % 2]
}

/// The seeds of a test: `SENKO_TEST_FACTOR` times as many if it is set, and at least one.
pub fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    first..first + senko_workload::rounds(count)
}

#[test]
fn all_that_fits_flash_is_found() {
    for seed in seeds(1_000_000, 3) {
        let policy = policy_of(seed);
        let config = config_of(3 << 20, 64 << 20 >> 12, policy, seed);
        let mut run = Run::new(config, 1500, 200_000, seed);
        run.steps(100_000);
        run.drain();
        assert!(run.flash_answers > 1000, "seed {seed}: flash is not in use");
        run.assert_misses(seed);
    }
}

#[test]
fn nothing_is_lost_while_flash_is_not_full() {
    for seed in seeds(2_000_000, 1) {
        fills_flash_but_not_wholly(seed);
    }
}

fn fills_flash_but_not_wholly(seed: u64) {
    let config = config_of(8 << 20, 1 << 30 >> 12, PolicyKind::S3Fifo, seed);
    let mut run = Run::new(config, 12000, 300_000, seed);
    run.steps(60_000);
    run.drain();
    for n in 0..12000 {
        run.get(n);
        run.device(2);
    }
    run.drain();
    let s = run.shard.stats();
    assert!(
        s.demotions > 100 && s.promotions > 10 && s.demotions_clean > 0,
        "seed {seed}: {s:?}"
    );
    assert_eq!(s.reclaim_regions, 0, "flash was to be large enough");
    // The clock leaps, so a write may seem stalled.
    assert!(
        run.misses <= s.drops_busy,
        "seed {seed}: {} misses, {s:?}",
        run.misses
    );
}

#[test]
fn reclaim_never_rests() {
    for seed in seeds(3_000_000, 4) {
        let config = config_of(2 << 20, 4 << 20 >> 12, PolicyKind::S3Fifo, seed);
        let mut run = Run::new(config, 4000, 100_000, seed);
        run.steps(100_000);
        run.drain();
        let s = run.shard.stats();
        assert!(
            s.reclaim_regions > 20 && s.reinsertions > 20,
            "seed {seed}: {s:?}"
        );
        // Nothing was written to a place whose discard was still pending.
        assert_eq!(s.flash_checksum_errors, 0, "seed {seed}");
        run.assert_misses(seed);
    }
}

#[test]
fn errors_torn_writes_and_flipped_bits_are_misses() {
    for seed in seeds(4_000_000, 4) {
        let config = config_of(2 << 20, 16 << 20 >> 12, PolicyKind::Lru, seed);
        let mut run = Run::new(config, 3000, 100_000, seed);
        run.one_size = [None, Some(2100)][seed as usize % 2];
        run.queue.fail_one_in = 50;
        run.queue.tear_one_in = 10;
        for n in 0..100_000 {
            run.step();
            if n % 20 == 0 {
                run.queue.flip_a_bit();
            }
        }
        run.queue.fail_one_in = 0;
        run.drain();
        let s = run.shard.stats();
        assert!(
            s.flash_read_errors > 10 && s.flash_checksum_errors > 10 && s.flash_write_errors > 10,
            "{s:?}"
        );
    }
}

/// Small items, which go to flash in the order of their hashes. Tables of few slots make every key
/// have candidates that are another key's, and reclaim goes on all the time.
#[test]
fn small_items_are_sorted() {
    let (mut others, mut again) = (0, 0);
    for seed in seeds(4_700_000, 6) {
        let mut config = config_of(5 << 19, 3 << 20 >> 12, policy_of(seed), seed);
        config.sort_small = true;
        let mut run = Run::new(config, 120_000, 60_000, seed);
        run.small = true;
        run.large = 0;
        if seed % 3 == 2 {
            run.queue.fail_one_in = 50;
            run.queue.tear_one_in = 10;
        }
        run.steps(400_000);
        run.queue.fail_one_in = 0;
        run.drain();
        run.assert_walk_sees_all();
        let s = run.shard.stats();
        assert!(
            s.sorted_runs > 200 && s.reclaim_regions > 10,
            "{seed}: {s:?}"
        );
        assert!(s.sorted_items * 2 > s.demotions, "{seed}: {s:?}");
        // An item of a reclaimed region was once counted as new when it was written again.
        let placed = s.admitted_bytes..=s.admitted_bytes + s.reinserted_bytes;
        assert!(placed.contains(&s.page_fill_record_bytes), "{seed}: {s:?}");
        again += s.reinserted_bytes;
        others += s.flash_false_matches;
    }
    assert!(others > 100, "{others} records of other keys");
    assert!(again > 0, "nothing was written again");
}

/// Items of one size, whatever it is: the pages are full, since records cross from one to the next.
/// Every command finds them, and reclaim writes them again.
#[test]
fn records_of_one_size_cross_pages() {
    let sizes = [
        450, 1000, 1020, 1030, 1400, 2100, 3000, 5000, 9000, 30_000, 60_000,
    ];
    for (n, seed) in seeds(4_500_000, sizes.len() as u64).enumerate() {
        let size = sizes[n % sizes.len()];
        let flash = (size * 600).clamp(4 << 20, 24 << 20);
        let config = config_of(2 << 20, flash >> 12, PolicyKind::S3Fifo, seed);
        let mut run = Run::new(config, flash * 2 / size, 60_000, seed);
        run.one_size = Some(size);
        run.steps(60_000);
        run.drain();
        let s = run.shard.stats();
        let fill = s.page_fill_record_bytes as f64 / s.page_fill_page_bytes as f64;
        println!(
            "{size}: {fill:.3}, {} regions, {} answers",
            s.reclaim_regions, run.flash_answers
        );
        assert!(fill > 0.94, "{size}: {fill}");
        assert!(
            s.reclaim_regions > 5 && run.flash_answers > 500,
            "{size}: {s:?}"
        );
        assert_eq!(s.flash_checksum_errors, 0, "{size}");
        run.assert_misses(seed);
    }
}

#[test]
fn dram_alone() {
    for policy in [PolicyKind::Lru, PolicyKind::S3Fifo] {
        let mut run = Run::new(config_of(4 << 20, 0, policy, 41), 3000, 300_000, 41);
        run.steps(100_000);
        run.drain();
        run.assert_misses(41);
        assert!(run.shard.stats().evictions > 1000);
    }
}

/// An item whose pin count is exhausted can still be appended to and rewritten.
#[test]
fn an_item_with_all_its_pins_taken_can_be_changed() {
    let config = config_of(4 << 20, 0, PolicyKind::Lru, 1);
    let (mut shard, _) = Shard::open(config, None, 0).expect("a shard");
    let mut queue = MemoryQueue::new(0, &[(1, 4)], 1);
    let key = Key::new(b"k", HashSeed::default());
    let mut draft = shard.alloc(&mut queue, &key, 0, 0, 3).expect("memory");
    shard.fill(&mut queue, &mut draft, b"abc");
    let item = shard.link(draft, None);
    let mut pins = Vec::new();
    while shard.can_pin(item) {
        pins.push(shard.pin(item));
    }
    assert_eq!(pins.len(), 65_535);
    let mut more = shard.alloc(&mut queue, &key, 0, 0, 1).expect("memory");
    shard.fill(&mut queue, &mut more, b"d");
    let longer = shard.concat(&mut queue, item, more, true).expect("memory");
    shard.abort(longer);
    let item = shard
        .rewrite(&mut queue, item, b"12345", None)
        .expect("memory");
    let mut value = Vec::new();
    shard.copy_value(item, &mut value);
    assert_eq!(value, b"12345");
    for pin in pins {
        shard.unpin(pin);
    }
}

#[test]
fn more_memory_than_handles_name_is_refused() {
    let config = config_of(80 << 30, 0, PolicyKind::Lru, 1);
    let error = Shard::open(config, None, 0).expect_err("handles have 32 bits");
    assert!(error.to_string().contains("64 GiB"), "{error}");
}
