// SPDX-License-Identifier: Apache-2.0
//! How long does a drive last under each engine: from a user's put to the erases of its blocks?
//!
//! Question: papers A and C look at one half each: the writes of a store (A, section 6.2), and the
//! effect of writes on a drive (C, section 3). Here the loop is closed. Each engine gets the same
//! puts on a disk whose requests the kernel records, and the recording runs on simulated drives
//! (`docs/measurements/engine-wear.md`). Expected shape: a cache and a log of values write little
//! more than they are given. LSM trees, which are merged, write several times as much. On log
//! blocks, small random writes cost many times more than large ones in order. On a page table the
//! difference is small.
//!
//! Puts: this many keys once, in order, then random ones of them. The two caches answer at once and
//! get their puts at a fixed rate, since extstore drops items that come faster than it writes. A
//! recording ends when the last put is durable (for caches, answered). The DBM's file is measured
//! after each commit, and its most bytes count.

use std::any::Any;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use senko_dbm::{Database, Durability};
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load as Pace};
use senko_ssd::profile::Profile;
use senko_ssd::report::Report;
use senko_ssd::{Error, Op, Request};
use senko_store::{Batch, Store, WriteOptions};
use senko_workload::{Popularity, Rng};
use serde_json::json;

use crate::commits::rival::{self, Kind, Rival};
use crate::commits::{Contender, Order, Work};
use crate::rig::recorded::RecordedDisk;
use crate::rig::traffic::{self, Items, Load};
use crate::rig::{Bench, Server, Spec, Steps};
use crate::{Bar, Experiment, Measure, Outcome, Paper, Progress, Table};

/// The share of a drive that was written before.
const FULL_SHARE: f64 = 0.9;
const KEY: usize = 4;
/// Bytes in which a file's storage is counted.
const BLOCK: u64 = 512;
const PAGE: u64 = 4096;
/// Puts a second of the caches.
const CACHE_RATE: f64 = 20_000.0;

/// Simulated drives: name in keys, profile, layer.
const DRIVES: [(&str, &str, &str); 4] = [
    ("bast", "paper-1gb", "bast:log-blocks=16"),
    ("fast", "paper-1gb", "fast"),
    ("page", "paper-1gb", "page"),
    ("x25_m", "x25-m", "page"),
];

/// Of [`DRIVES`], those with a page table, as drives have today.
const PAGE_MAPPED: [&str; 2] = ["page", "x25_m"];

#[derive(Clone, Copy, Debug)]
struct Puts {
    keys: u64,
    /// Puts after each key was put once.
    updates: u64,
    value: usize,
    /// Puts between two syncs.
    batch: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    disk: u64,
    puts: Puts,
    small: Puts,
    /// Bytes of a cache's DRAM.
    memory: u64,
    /// Bytes of a cache's flash file.
    flash: u64,
    /// Bytes of a block of the store.
    store_block: u64,
    /// Bytes of RocksDB's write buffer.
    write_buffer: u64,
}

const QUICK: Sizes = Sizes {
    disk: 512 << 20,
    puts: puts(100_000),
    small: small_puts(400_000),
    memory: 64 << 20,
    flash: 192 << 20,
    store_block: 4 << 20,
    write_buffer: 8 << 20,
};
const FULL: Sizes = Sizes {
    disk: 4 << 30,
    puts: puts(1_000_000),
    small: small_puts(4_000_000),
    memory: 256 << 20,
    flash: 1536 << 20,
    store_block: 64 << 20,
    write_buffer: 64 << 20,
};

const fn puts(keys: u64) -> Puts {
    Puts {
        keys,
        updates: 2 * keys,
        value: 1000,
        batch: 1000,
    }
}

/// Records of 100 bytes, with the key.
const fn small_puts(keys: u64) -> Puts {
    Puts {
        value: 100 - KEY,
        batch: 100,
        ..puts(keys)
    }
}

impl Puts {
    fn put(&self) -> f64 {
        (self.keys + self.updates) as f64 * self.value as f64
    }

    fn live(&self) -> f64 {
        self.keys as f64 * (KEY + self.value) as f64
    }

    /// The keys of all puts, in batches.
    fn batches(&self, seed: u64) -> impl Iterator<Item = Vec<u64>> + use<> {
        let Puts {
            keys,
            updates,
            batch: most,
            ..
        } = *self;
        let mut rng = Rng::new(seed);
        let ascending = (0..keys.div_ceil(most))
            .map(move |batch| (batch * most..keys.min((batch + 1) * most)).collect());
        let random = (0..updates.div_ceil(most)).map(move |batch| {
            let count = most.min(updates - batch * most);
            (0..count).map(|_| rng.below(keys)).collect()
        });
        ascending.chain(random)
    }
}

/// The state of an engine after its puts.
struct Left {
    /// The share of the keys that it holds.
    held: f64,
    /// The most bytes that its file had.
    stored: Option<u64>,
    /// A cache's process. Its flash file goes with it, which is not a part of the load.
    _server: Option<Server>,
    /// A database or store of this process. Its closing would merge, which is not counted.
    _open: Option<Box<dyn Any>>,
}

/// The state of an engine that holds all keys.
const WHOLE: Left = Left {
    held: 1.0,
    stored: None,
    _server: None,
    _open: None,
};

/// How an engine does its puts on a disk.
#[derive(Clone, Copy)]
enum Way {
    Cache,
    Extstore,
    Store,
    Dbm,
    Rival(Kind),
    Redb,
}

/// Engines: name in keys, name for people, whether records are small, and the way.
const ENGINES: [(&str, &str, bool, Way); 11] = [
    ("cache", "this project's cache server", false, Way::Cache),
    ("extstore", "memcached with extstore", false, Way::Extstore),
    ("store", "this project's store", false, Way::Store),
    ("dbm", "this project's DBM", false, Way::Dbm),
    ("leveldb", "LevelDB", false, Way::Rival(rival::LEVELDB)),
    ("rocksdb", "RocksDB", false, Way::Rival(rival::ROCKSDB)),
    ("lmdb", "LMDB", false, Way::Rival(rival::LMDB)),
    ("sqlite", "SQLite", false, Way::Rival(rival::SQLITE)),
    (rival::REDB, "redb", false, Way::Redb),
    (
        "dbm_small",
        "this project's DBM, small records",
        true,
        Way::Dbm,
    ),
    (
        "leveldb_small",
        "LevelDB, small records",
        true,
        Way::Rival(rival::LEVELDB),
    ),
];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    written: u64,
    discarded: u64,
    writes: u64,
    flushes: u64,
}

fn sums(requests: &[Request]) -> Sums {
    let mut sums = Sums::default();
    for request in requests {
        match request.op {
            Op::Write => {
                sums.written += request.bytes;
                sums.writes += 1;
            }
            Op::Trim => sums.discarded += request.bytes,
            Op::Flush => sums.flushes += 1,
            Op::Read => {}
        }
    }
    sums
}

/// The requests, but with discards only of pages that were written before. ext4 discards free space
/// again whenever neighbouring space is freed. So an engine that deletes any file would get a drive
/// whose free space is known, and one that deletes none would not.
fn with_own_discards(requests: Vec<Request>, bytes: u64) -> Vec<Request> {
    let mut written = vec![false; bytes.div_ceil(PAGE) as usize];
    let mut kept = Vec::with_capacity(requests.len());
    for request in requests {
        let end = request.offset + request.bytes;
        match request.op {
            Op::Write => {
                let pages = (request.offset / PAGE) as usize..end.div_ceil(PAGE) as usize;
                written[pages].fill(true);
                kept.push(request);
            }
            Op::Trim => {
                let (mut page, past) = (request.offset.div_ceil(PAGE), end / PAGE);
                while page < past {
                    let begin = page;
                    while page < past && written[page as usize] {
                        written[page as usize] = false;
                        page += 1;
                    }
                    if page == begin {
                        page += 1;
                        continue;
                    }
                    kept.push(Request {
                        offset: begin * PAGE,
                        bytes: (page - begin) * PAGE,
                        ..request
                    });
                }
            }
            Op::Read | Op::Flush => kept.push(request),
        }
    }
    kept
}

/// This profile's drive in another size: one plane, with the profile's own over-provisioning ratio.
pub fn resized(mut profile: Profile, bytes: u64) -> Profile {
    let geometry = &mut profile.geometry;
    let planes = u64::from(geometry.channels * geometry.dies * geometry.planes);
    let physical = planes * u64::from(geometry.blocks) * geometry.block_bytes();
    let spare = physical as f64 / profile.user_bytes as f64;
    geometry.channels = 1;
    geometry.dies = 1;
    geometry.planes = 1;
    geometry.blocks = (bytes as f64 * spare / geometry.block_bytes() as f64).ceil() as u32;
    profile.endurance.spare_blocks = 0;
    profile.user_bytes = bytes;
    profile
}

/// Runs a recording twice on a drive that was nearly full; returns the report of the second run.
fn replay(requests: &[Request], profile: &str, ftl: &str, bytes: u64, seed: u64) -> Result<Report> {
    let profile = resized(Profile::find(profile)?, bytes);
    let parts = Parts {
        ftl: Some(ftl.parse()?),
        seed,
        ..Parts::default()
    };
    let mut drive = Drive::new(&profile, &parts)?;
    drive.precondition(FULL_SHARE)?;
    let pace = Pace::Closed { depth: 1 };
    let again = || requests.iter().map(|request| Ok::<_, Error>(*request));
    drive.run(again(), pace)?;
    Ok(drive.run(again(), pace)?)
}

/// Years of a drive that gets puts of its own size each day: `put` bytes cost these erases.
fn years(report: &Report, put: f64, cycles: u32) -> f64 {
    let life = put / report.flash.all_erases() as f64 * report.blocks as f64 * f64::from(cycles);
    life / report.user_bytes as f64 / 365.25
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "engine-wear",
    paper: Paper::Design,
    source: "papers A (section 6.2) and C (section 3) together; design",
    text: "what each engine writes for a byte put, what a drive makes of it, and how long the drive lives",
    sentences: &[],
    bars: &[
        Bar::less("dbm_programmed_over_leveldb", 1.0, 0.6),
        Bar::less("dbm_small_programmed_over_leveldb", 1.0, 0.7),
        Bar::less("store_programmed_over_rocksdb", 1.0, 0.7),
        Bar::less("drive_factor", 1.10, 1.03),
        Bar::less("space_over_live", 1.6, 1.3),
    ],
    run: Measure::OnBench(run),
};

fn run(bench: &Bench<'_>, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let sizes = bench.scaled(QUICK, FULL);
    let mut run = Run {
        bench,
        sizes,
        outcome,
        recorded: Table::titled("Recorded at the device"),
        replayed: Table::titled("Replayed on simulated drives of the same size"),
    };
    let steps = Steps::new(progress, ENGINES.len() as u64 + 1);
    for (name, what, is_small, way) in ENGINES {
        steps.next(&format!("recording and replaying {what}"));
        if let Err(error) = run.measure((name, what), is_small, way) {
            run.outcome.miss(
                format!("host_wa.{name}"),
                format!(
                    "{error:#}; it would have shown what {what} writes for each byte, and the life of a drive under it"
                ),
            );
        }
    }
    let Run {
        outcome,
        recorded,
        replayed,
        ..
    } = run;
    for (key, one, other) in [
        ("dbm_programmed_over_leveldb", "dbm", "leveldb"),
        (
            "dbm_small_programmed_over_leveldb",
            "dbm_small",
            "leveldb_small",
        ),
        ("store_programmed_over_rocksdb", "store", "rocksdb"),
    ] {
        let bars = outcome.bars();
        let of =
            |engine: &str, drive: &str| bars.get(&format!("programmed_over_put.{engine}.{drive}"));
        let over = |(drive, ..): &(&str, &str, &str)| Some(of(one, drive)? / of(other, drive)?);
        let worst = DRIVES.iter().filter_map(over).reduce(f64::max);
        match worst {
            Some(worst) => outcome.bar(key, worst),
            None => outcome.miss(key, "one of the two could not be recorded"),
        }
    }
    let bars = outcome.bars();
    let factors = ["dbm", "dbm_small", "store"].iter().flat_map(|engine| {
        PAGE_MAPPED
            .iter()
            .map(move |drive| bars.get(&format!("nand_wa.{engine}.{drive}")).copied())
    });
    // Of all of them or of none: a part could hide the worst.
    let factors: Option<Vec<f64>> = factors.collect();
    match factors.and_then(|factors| factors.into_iter().reduce(f64::max)) {
        Some(worst) => outcome.bar("drive_factor", worst),
        None => outcome.miss("drive_factor", "one of the engines could not be recorded"),
    }
    outcome.tables.extend([recorded, replayed]);
    outcome.setting("disk_bytes", sizes.disk);
    for (load, puts) in [("", sizes.puts), ("small_", sizes.small)] {
        outcome.setting(format!("{load}keys"), puts.keys);
        outcome.setting(format!("{load}updates"), puts.updates);
        outcome.setting(format!("{load}value_bytes"), puts.value);
        outcome.setting(format!("{load}puts_between_syncs"), puts.batch);
    }
    outcome.setting("full_share", FULL_SHARE);
    outcome.setting("cache_memory_bytes", sizes.memory);
    outcome.setting("cache_flash_bytes", sizes.flash);
    outcome.setting("store_block_bytes", sizes.store_block);
    outcome.setting("rocksdb_write_buffer_bytes", sizes.write_buffer);
    outcome.setting("drives", json!(DRIVES));
    outcome.setting("years", "at puts of the drive's size each day, wear level");
    Ok(())
}

struct Run<'a> {
    bench: &'a Bench<'a>,
    sizes: Sizes,
    outcome: &'a mut Outcome,
    recorded: Table,
    replayed: Table,
}

impl Run<'_> {
    /// Records one engine and replays what was recorded.
    fn measure(&mut self, (engine, what): (&str, &str), is_small: bool, way: Way) -> Result<()> {
        let sizes = self.sizes;
        self.bench.scratch.need(sizes.disk * 2)?;
        let disk = RecordedDisk::new(self.bench.scratch.folder(), engine, sizes.disk)?;
        let puts = if is_small { sizes.small } else { sizes.puts };
        let left = self.write(way, &puts, disk.folder())?;
        let requests = with_own_discards(disk.finish()?, sizes.disk);
        let seen = sums(&requests);
        let mut reports = Vec::new();
        for (name, profile, ftl) in DRIVES {
            let report = replay(&requests, profile, ftl, sizes.disk, self.bench.options.seed)
                .with_context(|| format!("the replay on {name}"))?;
            reports.push((name, Profile::find(profile)?.endurance.cycles, report));
        }
        let megabytes = |bytes: f64| format!("{:.0}", bytes / 1e6);
        let written_over_put = seen.written as f64 / puts.put();
        self.outcome
            .bar(format!("host_wa.{engine}"), written_over_put);
        self.recorded.add([
            ("engine", what.to_owned()),
            ("put MB", megabytes(puts.put())),
            ("written MB", megabytes(seen.written as f64)),
            ("written over put", format!("{written_over_put:.2}")),
            (
                "KiB a write",
                format!("{:.0}", seen.written as f64 / 1024.0 / seen.writes as f64),
            ),
            ("flushes", seen.flushes.to_string()),
            ("discarded MB", megabytes(seen.discarded as f64)),
            ("held at the end", format!("{:.0} %", left.held * 100.0)),
        ]);
        if let Some(stored) = left.stored {
            let key = match engine {
                "dbm" => "space_over_live".to_owned(),
                other => format!("space_over_live.{other}"),
            };
            self.outcome.bar(key, stored as f64 / puts.live());
        }
        for (name, cycles, report) in reports {
            let programmed = report.flash.all_programs() as f64 * report.page_bytes as f64;
            let years = years(&report, puts.put(), cycles);
            let key = |figure: &str| format!("{figure}.{engine}.{name}");
            self.outcome
                .bar(key("nand_wa"), programmed / seen.written as f64);
            self.outcome
                .bar(key("programmed_over_put"), programmed / puts.put());
            self.outcome.bar(key("years"), years);
            self.replayed.add([
                ("engine, drive", format!("{what}, {name}")),
                (
                    "programmed over written",
                    format!("{:.2}", programmed / seen.written as f64),
                ),
                (
                    "programmed over put",
                    format!("{:.2}", programmed / puts.put()),
                ),
                ("erases", report.flash.all_erases().to_string()),
                ("years", format!("{years:.1}")),
            ]);
        }
        Ok(())
    }

    fn write(&self, way: Way, puts: &Puts, folder: &Path) -> Result<Left> {
        match way {
            Way::Cache => self.cache(puts, folder),
            Way::Extstore => self.extstore(puts, folder),
            Way::Store => self.store(puts, folder),
            Way::Dbm => self.dbm(puts, folder),
            Way::Rival(kind) => self.rival(&kind, puts, folder),
            Way::Redb => self.redb(puts, folder),
        }
    }

    fn cache(&self, puts: &Puts, folder: &Path) -> Result<Left> {
        let spec = self.bench.senko("loop-cache", self.sizes.memory);
        let spec = spec.flash(&folder.join("flash"), self.sizes.flash);
        self.serve(spec, puts)
    }

    fn extstore(&self, puts: &Puts, folder: &Path) -> Result<Left> {
        // Its buffers count against its memory, as in the other experiments.
        let items = self.sizes.memory / 2;
        let spec = self.bench.memcached("loop-extstore", items);
        let spec = spec
            .map_err(|why| anyhow!(why))?
            .with(&["-o", "ext_max_sleep=1000,slab_automove_window=3"])
            .extstore(
                &folder.join("flash"),
                self.sizes.flash,
                ",ext_page_size=8,ext_wbuf_size=2",
            );
        self.serve(spec, puts)
    }

    /// Without a cap: what is measured is what is written.
    fn serve(&self, spec: Spec, puts: &Puts) -> Result<Left> {
        let server = spec.capped(None).start(&self.bench.scratch)?;
        let items = Items::fixed(puts.keys, 16, puts.value);
        let load = |popularity| {
            Load::gets(8)
                .mixed(0.0)
                .popular(popularity)
                .at_rate(CACHE_RATE)
        };
        let put = |popularity, count| {
            traffic::measure_requests(self.bench, &server, &items, &load(popularity), count)
        };
        put(Popularity::Sequential, puts.keys)?;
        put(Popularity::Uniform, puts.updates)?;
        Ok(Left {
            held: server.stat("curr_items")? / puts.keys as f64,
            _server: Some(server),
            ..WHOLE
        })
    }

    fn store(&self, puts: &Puts, folder: &Path) -> Result<Left> {
        let options = senko_store::Options {
            block_bytes: self.sizes.store_block,
            ..senko_store::Options::default()
        };
        let store = Store::open(folder.join("store"), options)?;
        let write = WriteOptions {
            durability: senko_store::Durability::Synced,
            ..WriteOptions::default()
        };
        for (change, keys) in (0..).zip(puts.batches(self.bench.options.seed)) {
            let mut batch = Batch::new();
            for key in keys {
                batch.put(&bytes_of(key), &value(key, change, puts.value));
            }
            store.write(&batch, write)?;
        }
        Ok(Left {
            _open: Some(Box::new(store)),
            ..WHOLE
        })
    }

    fn dbm(&self, puts: &Puts, folder: &Path) -> Result<Left> {
        let file = folder.join("db");
        let db = Database::open(&file, senko_dbm::Options::default())?;
        let mut stored = 0;
        let table = db.create_table("records")?;
        for (change, keys) in (0..).zip(puts.batches(self.bench.options.seed)) {
            let mut tx = db.begin();
            for key in keys {
                tx.put(&table, &bytes_of(key), &value(key, change, puts.value))?;
            }
            tx.commit(Durability::Synced)?;
            stored = stored.max(fs::metadata(&file)?.blocks() * BLOCK);
        }
        Ok(Left {
            stored: Some(stored),
            _open: Some(Box::new(db)),
            ..WHOLE
        })
    }

    fn rival(&self, kind: &Kind, puts: &Puts, folder: &Path) -> Result<Left> {
        let defines = [
            ("VALUE", puts.value as u64),
            ("WRITE_BUFFER", self.sizes.write_buffer),
        ];
        let programs = self.bench.scratch.folder();
        let started = kind.start_with(programs, &folder.join("rival"), true, &defines);
        self.drive(started, puts)
    }

    fn redb(&self, puts: &Puts, folder: &Path) -> Result<Left> {
        let lab = &self.bench.options.lab;
        let started = rival::redb(lab, &folder.join("rival"), true, puts.value);
        self.drive(started, puts)
    }

    fn drive(&self, started: Result<Rival, String>, puts: &Puts) -> Result<Left> {
        let mut rival = started.map_err(|why| anyhow!(why))?;
        rival.fill(puts.keys)?;
        rival.run(&Work {
            order: Order::Random(puts.keys),
            seed: self.bench.options.seed,
            ..Work::ascending(puts.updates / puts.batch, puts.batch)
        })?;
        Ok(WHOLE)
    }
}

/// A key as long as those of the rivals.
fn bytes_of(key: u64) -> [u8; KEY] {
    (key as u32).to_be_bytes()
}

/// A value of a key, another for each change.
fn value(key: u64, change: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(key ^ change << 32);
    let mut value = vec![0; bytes];
    for word in value.chunks_mut(8) {
        word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::endurance_loads;

    fn write(offset: u64, bytes: u64) -> Request {
        endurance_loads::request(Op::Write, offset, bytes)
    }

    #[test]
    fn puts_are_every_key_once_and_then_any() {
        let puts = Puts {
            updates: 1700,
            ..puts(2500)
        };
        let batches: Vec<Vec<u64>> = puts.batches(1).collect();
        let lengths: Vec<usize> = batches.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1000, 1000, 500, 1000, 700]);
        let first: Vec<u64> = batches[..3].concat();
        assert!(first.iter().copied().eq(0..2500));
        assert!(batches[3..].concat().iter().all(|key| *key < 2500));
        assert_eq!((puts.put(), puts.live()), (4.2e6, 2.51e6));
    }

    #[test]
    fn discards_of_space_that_was_free_are_left_out() {
        let trim = |offset, bytes| Request {
            op: Op::Trim,
            ..write(offset, bytes)
        };
        let requests = vec![
            trim(0, 10 * PAGE),
            write(2 * PAGE, 2 * PAGE),
            write(6 * PAGE, 100),
            trim(512, 10 * PAGE - 512),
            trim(0, 10 * PAGE),
        ];
        let kept = with_own_discards(requests, 10 * PAGE);
        let discards: Vec<_> = kept
            .iter()
            .filter(|request| request.op == Op::Trim)
            .map(|request| (request.offset / PAGE, request.bytes / PAGE))
            .collect();
        assert_eq!(discards, [(2, 2), (6, 1)]);
        assert_eq!(kept.len(), 4);
    }

    /// Writes in order cost a log-block drive no more than a page-mapped one. Random ones cost it
    /// far more, and years of life. A discard saves copies.
    #[test]
    fn a_replay_tells_layers_and_loads_apart() {
        const BYTES: u64 = 128 << 20;
        let mut rng = Rng::new(3);
        let in_order: Vec<Request> = (0..BYTES >> 19)
            .map(|n| write(n << 19, 512 << 10))
            .collect();
        let random: Vec<Request> = (0..BYTES >> 12)
            .map(|_| write(rng.below(BYTES >> 12) << 12, 4096))
            .collect();
        let of = |requests: &[Request], (_, profile, ftl): (&str, &str, &str)| {
            replay(requests, profile, ftl, BYTES, 1).expect("the drive is sound")
        };
        let wa = |report: &Report| {
            report.flash.all_programs() as f64 * report.page_bytes as f64 / BYTES as f64
        };
        let [bast, _, page, x25_m] = DRIVES;
        for drive in DRIVES {
            let smooth = of(&in_order, drive);
            assert!(wa(&smooth) < 1.1, "{drive:?}: {}", wa(&smooth));
            assert_eq!(smooth.user_bytes, BYTES);
        }
        let (merged, mapped) = (of(&random, bast), of(&random, page));
        assert!(wa(&merged) > 5.0 * wa(&mapped));
        assert!(years(&merged, BYTES as f64, 1000) * 4.0 < years(&mapped, BYTES as f64, 1000));
        let mut with_discards = random.clone();
        with_discards.push(Request {
            op: Op::Trim,
            ..write(0, BYTES / 2)
        });
        assert!(wa(&of(&with_discards, x25_m)) < wa(&of(&random, x25_m)));
        let seen = sums(&with_discards);
        assert_eq!((seen.written, seen.discarded), (BYTES, BYTES / 2));
    }
}
