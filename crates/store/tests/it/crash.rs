// SPDX-License-Identifier: Apache-2.0
//! A crash after every write and flush. The store is opened from the data that a power failure
//! would leave. It must have a prefix of the writes, with all that were acknowledged as durable.
//!
//! A run can be repeated, because it has one thread and one seed. In a run the store is filled,
//! sealed, merged, compacted, snapshotted, closed, dropped, killed and reopened. After each write
//! and flush that reaches the device, crash images are made, opened and compared with the model, by
//! scan and by gets. Some of the images live on: they are written to, crash again while they
//! recover, and are checked in turn.
//!
//! `SENKO_CRASH_SEED` replaces each run's seed. `SENKO_STORE_OPERATIONS` sets the operations of
//! each run, `SENKO_TEST_FACTOR` scales them, and `SENKO_CRASH_LIVES` sets the share of images that
//! live on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use senko_io::Device;
use senko_store::{Batch, Clock, Durability, IndexKind, Options, Snapshot, Store, WriteOptions};
use senko_workload::Rng;

use crate::support::hooked::Hooked;
use crate::support::model::{Model, SECOND, Ver, key, value};
use crate::support::{small, waiting};

/// The parameters of a run.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    operations: u64,
    keys: u32,
    keep_versions: u32,
    index: IndexKind,
    page_bytes: usize,
    /// Bytes of the cache of records; 0 for none.
    cache_bytes: u64,
    /// Images after each write and flush.
    images: u64,
    /// One of this many images lives on.
    one_lives_in: u64,
}

/// A number of the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number")),
    )
}

impl Plan {
    fn new(seed: u64) -> Plan {
        let seed = number("SENKO_CRASH_SEED").unwrap_or(seed);
        Plan {
            seed,
            // Small, so that it evicts.
            cache_bytes: if seed.is_multiple_of(3) { 0 } else { 64 << 10 },
            operations: number("SENKO_STORE_OPERATIONS")
                .unwrap_or_else(|| senko_workload::rounds(1200)),
            keys: 120,
            keep_versions: 1,
            index: IndexKind::Static,
            page_bytes: 4096,
            images: 2,
            one_lives_in: number("SENKO_CRASH_LIVES").unwrap_or(200),
        }
    }

    fn options(&self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Options {
        Options {
            log_bytes: 1 << 20,
            inline_max: 1024,
            page_bytes: self.page_bytes,
            keep_versions: self.keep_versions,
            index: self.index,
            cache_bytes: self.cache_bytes,
            clock: Clock::Own(Arc::new(clock)),
            ..small()
        }
    }
}

/// The state that the main line and the device's hook share.
struct Shared {
    model: Model,
    rng: Rng,
    step: u64,
    images: u64,
    kills: u64,
    lives: u64,
    /// The error of an image. The run ends at its next step, since a panic in the device would
    /// leave the store in the middle of a write.
    failure: Option<String>,
}

/// A store that is written to, with a device that makes images.
struct Life {
    plan: Plan,
    /// 0: the main line; 1: an image that lives on.
    depth: u32,
    device: Arc<Hooked>,
    shared: Arc<Mutex<Shared>>,
    clock: Arc<AtomicU64>,
    store: Option<Store>,
    snapshots: Vec<(Snapshot, Vec<Vec<Ver>>)>,
}

impl Life {
    fn new(plan: &Plan, depth: u32, device: Arc<Hooked>, model: Model, rng: Rng) -> Life {
        let clock = Arc::new(AtomicU64::new(model.clock));
        Life {
            plan: plan.clone(),
            depth,
            device,
            shared: Arc::new(Mutex::new(Shared {
                model,
                rng,
                step: 0,
                images: 0,
                kills: 0,
                lives: 0,
                failure: None,
            })),
            clock,
            store: None,
            snapshots: Vec::new(),
        }
    }

    fn context(&self) -> String {
        let shared = self.shared.lock();
        format!(
            "{:?}, life {}, step {}, call {} of the device",
            self.plan,
            self.depth,
            shared.step,
            self.device.calls()
        )
    }

    fn fail(&self, what: &str) -> ! {
        panic!("{}: {what}", self.context())
    }

    /// Opens the device, and takes images during the writes of the opening itself.
    fn open(&mut self) {
        self.clock
            .store(self.shared.lock().model.clock, Ordering::Relaxed);
        let (plan, depth, shared) = (self.plan.clone(), self.depth, Arc::clone(&self.shared));
        self.device
            .set_hook(move |device| make_images(&plan, depth, device, &shared));
        let clock = Arc::clone(&self.clock);
        let options = self.plan.options(move || clock.load(Ordering::Relaxed));
        match Store::open_device(Arc::clone(&self.device) as Arc<dyn Device>, options) {
            Ok(store) => self.store = Some(store),
            Err(error) => self.fail(&format!("opening: {error}")),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open between the steps")
    }

    fn below(&self, bound: u64) -> u64 {
        self.shared.lock().rng.below(bound)
    }

    /// A value's length and expiry.
    fn new_value(&self) -> (u32, u64) {
        let mut shared = self.shared.lock();
        let len = match shared.rng.below(40) {
            0 => 0,
            1 => 1025 + shared.rng.below(20_000),
            2 => 1020 + shared.rng.below(10),
            3..8 => shared.rng.below(1024),
            _ => shared.rng.below(200),
        };
        let expiry = if shared.rng.below(12) == 0 {
            shared.model.clock / SECOND + shared.rng.below(20)
        } else {
            0
        };
        (len as u32, expiry)
    }

    fn write(&mut self, writes: Vec<(u32, Option<(u32, u64)>)>, batch: bool) {
        let durability = match self.below(100) {
            0..15 => Durability::None,
            15..70 => Durability::Buffered,
            _ => Durability::Synced,
        };
        let options = waiting(durability);
        let time = self.shared.lock().model.begin(writes.clone());
        let store = self.store();
        let result = if batch {
            let mut batch = Batch::new();
            for (number, write) in &writes {
                match write {
                    Some((len, expiry)) => {
                        batch.put_expiring(&key(*number), &value(*number, time, *len), *expiry)
                    }
                    None => batch.delete(&key(*number)),
                };
            }
            store.write(&batch, options)
        } else {
            let (number, write) = writes[0];
            match write {
                Some((len, expires_at)) => {
                    let options = WriteOptions {
                        expires_at,
                        ..options
                    };
                    store.put_with(&key(number), &value(number, time, len), options)
                }
                None => store.delete_with(&key(number), options),
            }
        };
        match result {
            Ok(at) if at == time => {}
            other => self.fail(&format!("a write of time {time} gave {other:?}")),
        }
        let model = &mut self.shared.lock().model;
        match durability {
            Durability::None => {}
            Durability::Buffered => model.all_written(),
            Durability::Synced => model.all_durable(),
        }
    }

    /// Moves the clock, sometimes by seconds, and sometimes back.
    fn tick(&self) {
        let mut shared = self.shared.lock();
        let clock = shared.model.clock;
        let clock = match shared.rng.below(400) {
            0 => clock + SECOND * (1 + shared.rng.below(15)),
            1 if shared.model.settled => clock - SECOND * shared.rng.below(10),
            _ => clock + shared.rng.below(20),
        };
        shared.model.set_clock(clock);
        shared.step += 1;
        self.clock.store(clock, Ordering::Relaxed);
    }

    fn done<T>(&self, what: &str, result: Result<T, senko_store::StoreError>) -> T {
        match result {
            Ok(done) => done,
            Err(error) => self.fail(&format!("{what}: {error}")),
        }
    }

    fn step(&mut self) {
        self.end_if_failed();
        self.tick();
        let number = self.below(u64::from(self.plan.keys)) as u32;
        match self.below(1000) {
            0..560 => {
                let value = self.new_value();
                self.write(vec![(number, Some(value))], false);
            }
            560..680 => self.write(vec![(number, None)], false),
            680..760 => {
                let mut writes = Vec::new();
                for _ in 0..1 + self.below(12) {
                    let number = self.below(u64::from(self.plan.keys)) as u32;
                    let value = (self.below(4) > 0).then(|| self.new_value());
                    writes.push((number, value));
                }
                self.write(writes, true);
            }
            760..860 => drop(self.done("maintain", self.store().maintain())),
            860..875 => {
                self.done("sync", self.store().sync());
                self.shared.lock().model.all_durable();
            }
            875..885 => {
                self.done("seal", self.store().seal());
                self.shared.lock().model.all_durable();
            }
            885..889 => {
                self.done("compact", self.store().compact());
                self.shared.lock().model.all_durable();
            }
            889..900 => {
                if self.snapshots.len() > 1 {
                    self.end_snapshot();
                }
                let snapshot = self.done("snapshot", self.store().snapshot());
                let state = self.shared.lock().model.now();
                self.snapshots.push((snapshot, state));
            }
            900..906 => self.end_snapshot(),
            906..912 => self.check("the live store"),
            912..920 => self.reopen(),
            920..980 => {
                // Some keys more often than others.
                let other = self.below(u64::from(self.plan.keys)) as u32;
                let checked = self
                    .shared
                    .lock()
                    .model
                    .check_get(self.store(), number.min(other));
                if let Err(what) = checked {
                    self.fail(&what);
                }
            }
            _ => {}
        }
    }

    fn end_if_failed(&self) {
        let failure = self.shared.lock().failure.take();
        if let Some(failure) = failure {
            self.fail(&failure);
        }
    }

    fn end_snapshot(&mut self) {
        if self.snapshots.is_empty() {
            return;
        }
        let (snapshot, state) = self.snapshots.remove(0);
        let model = self.shared.lock().model.clone();
        if let Err(what) = model.check_snapshot(&snapshot, &state) {
            self.fail(&what);
        }
    }

    /// The open store must have everything written.
    fn check(&self, what: &str) {
        let mut model = self.shared.lock().model.clone();
        model.all_durable();
        if let Err(error) = model.check(self.store(), false, true) {
            self.fail(&format!("{what}: {error}"));
        }
    }

    /// Ends this opening in one of the possible ways, and opens the store again.
    fn reopen(&mut self) {
        while !self.snapshots.is_empty() {
            self.end_snapshot();
        }
        let store = self.store.take().expect("open between the steps");
        let kind = self.below(8);
        match kind {
            0 | 1 => {
                self.done("close", store.close());
                self.shared.lock().model.all_durable();
            }
            2 => {
                drop(store);
                self.shared.lock().model.all_durable();
            }
            3..6 => {
                // Writes that were not flushed may still be lost later.
                self.device = self.device.next_process();
                drop(store);
            }
            _ => {
                let seed = self.shared.lock().rng.next_u64();
                let next = self.device.crashed(seed);
                self.device.next_process();
                drop(store);
                self.device = next;
                self.shared.lock().model.power_failed();
            }
        }
        self.open();
        let mut model = self.shared.lock().model.clone();
        let (killed, crashed) = ((3..6).contains(&kind), kind >= 6);
        match model.check(self.store(), killed, true) {
            Ok(cut) if killed || crashed => model.recovered(cut, crashed),
            Ok(_) => {}
            Err(what) => self.fail(&format!("reopening, way {kind}: {what}")),
        }
        self.clock.store(model.clock, Ordering::Relaxed);
        self.shared.lock().model = model;
    }

    fn run(&mut self, operations: u64) {
        for _ in 0..operations {
            self.step();
        }
        self.end_if_failed();
    }
}

/// Called after each write and flush: what would a crash leave now?
fn make_images(plan: &Plan, depth: u32, device: &Hooked, shared: &Arc<Mutex<Shared>>) {
    for _ in 0..if depth == 0 { plan.images } else { 1 } {
        let (model, seed, live) = {
            let mut shared = shared.lock();
            let seed = shared.rng.next_u64();
            shared.images += 1;
            let one_in = if device.in_commit() {
                10
            } else {
                plan.one_lives_in
            };
            let live = depth == 0 && shared.rng.below(one_in) == 0;
            shared.lives += u64::from(live);
            (shared.model.clone(), seed, live)
        };
        let kill = kills(seed);
        shared.lock().kills += u64::from(kill);
        let image = match (kill, live) {
            (false, _) => device.crashed(seed),
            (true, false) => device.killed(seed),
            (true, true) => device.forked(seed),
        };
        let check = || check_image(plan, depth, image, model, seed, live, shared);
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
            let what = panic
                .downcast::<String>()
                .map_or("a panic".to_owned(), |what| *what);
            shared.lock().failure.get_or_insert(what);
            return;
        }
    }
}

/// Whether an image is that of a killed process; the others are of a power failure.
fn kills(seed: u64) -> bool {
    seed % 8 >= 5
}

/// Opens an image and compares; if it is to `live` on, that too.
fn check_image(
    plan: &Plan,
    depth: u32,
    image: Arc<Hooked>,
    model: Model,
    seed: u64,
    live: bool,
    shared: &Mutex<Shared>,
) {
    let kill = kills(seed);
    let mut model = model;
    if !kill {
        model.power_failed();
    }
    let mut life = Life::new(plan, depth + 1, image, model, Rng::new(seed));
    if live {
        // The recovery itself crashes too.
        life.open();
    } else {
        let clock = life.shared.lock().model.clock;
        let options = plan.options(move || clock);
        match Store::open_device(Arc::clone(&life.device) as Arc<dyn Device>, options) {
            Ok(store) => life.store = Some(store),
            Err(error) => life.fail(&format!("image {seed}: opening: {error}")),
        }
    }
    let mut model = life.shared.lock().model.clone();
    match model.check(life.store(), kill, live || seed.is_multiple_of(64)) {
        Ok(cut) => model.recovered(cut, !kill),
        Err(what) => {
            let outer = shared.lock().step;
            life.fail(&format!(
                "image {seed} at step {outer} (killed: {kill}): {what}"
            ))
        }
    }
    if live {
        life.clock.store(model.clock, Ordering::Relaxed);
        life.shared.lock().model = model;
        life.run(60 + seed % 100);
        life.device.clear_hook();
        life.check("an image that lived on");
        let images = life.shared.lock().images;
        shared.lock().images += images;
    }
    // Nothing more is written to it: that would only take time.
    life.device.next_process();
}

fn run(plan: &Plan) {
    let started = std::time::Instant::now();
    let model = Model::new(plan.keys, plan.keep_versions as usize);
    let mut life = Life::new(plan, 0, Hooked::new(plan.seed), model, Rng::new(plan.seed));
    life.open();
    life.run(plan.operations);
    life.device.clear_hook();
    life.check("the end");
    let shared = life.shared.lock();
    println!(
        "seed {}: {} operations, {} calls of the last device, {} images ({} of a killed process), {} lived on, {:.1} s",
        plan.seed,
        plan.operations,
        life.device.calls(),
        shared.images,
        shared.kills,
        shared.lives,
        started.elapsed().as_secs_f64()
    );
}

#[test]
fn crashes_at_every_write() {
    run(&Plan::new(1));
}

#[test]
fn crashes_with_few_keys_and_large_pages() {
    run(&Plan {
        keys: 40,
        page_bytes: 32_768,
        ..Plan::new(2)
    });
}

#[test]
fn crashes_with_versions() {
    run(&Plan {
        keep_versions: 3,
        keys: 60,
        ..Plan::new(3)
    });
}

#[test]
fn crashes_with_versions_and_the_bloom_filter_map() {
    run(&Plan {
        keep_versions: 2,
        index: IndexKind::BloomMap,
        page_bytes: 16_384,
        ..Plan::new(4)
    });
}

#[test]
fn crashes_with_the_bloom_filter_map() {
    run(&Plan {
        index: IndexKind::BloomMap,
        page_bytes: 8192,
        ..Plan::new(5)
    });
}

#[test]
fn crashes_with_many_keys() {
    run(&Plan {
        keys: 600,
        ..Plan::new(6)
    });
}
