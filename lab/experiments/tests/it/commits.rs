// SPDX-License-Identifier: Apache-2.0
//! The parts of the experiments on commits, each with a few transactions: they work, and their
//! figures are consistent. Times are not judged.

use senko_lab::commits::floor::Cell;
use senko_lab::commits::ours::Ours;
use senko_lab::commits::rival::{self, Kind};
use senko_lab::commits::write::Space;
use senko_lab::commits::{Contender, Order, Ran, Turns, Work, percentile_over};
use senko_lab::experiments::dbm_occ::{self, Keeping};
use senko_lab::experiments::{
    dbm_appendpages, dbm_floor, dbm_large, dbm_mixes, dbm_ndbm, dbm_paper, dbm_random, dbm_small,
    dbm_threads,
};
use senko_lab::rig::Steps;
use senko_lab::{Outcome, Table};

use senko_dbm::Options as DbmOptions;

use crate::process::on_disk;

#[test]
fn each_way_of_the_floor_leaves_its_bytes_or_says_why_not() {
    let Some(scratch) = on_disk() else { return };
    for cell in Cell::all() {
        let path = scratch.path(&cell.name());
        match cell.run(&path, 5) {
            Ok(ran) => assert_eq!((ran.commits, ran.times.len()), (5, 5)),
            // A kernel without rings, a file system without O_DIRECT or with larger blocks.
            Err(error) => eprintln!("{}: {error:#}", cell.name()),
        }
        let mut writer = match senko_lab::commits::write::Writer::new(
            &path, cell.way, cell.space, cell.bytes, 5,
        ) {
            Ok(writer) => writer,
            Err(error) => {
                eprintln!("{}: {error}", cell.name());
                continue;
            }
        };
        let before = std::fs::metadata(&path).unwrap().len();
        let appended = cell.space == Space::Appended;
        assert_eq!(before, if appended { 0 } else { 5 * cell.bytes as u64 });
        if let Err(error) = (0..5).try_for_each(|_| writer.write()) {
            eprintln!("{}: {error}", cell.name());
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 5 * cell.bytes, "{}", cell.name());
        for (number, block) in bytes.chunks(cell.bytes).enumerate() {
            assert_eq!(block[..8], (number as u64).to_le_bytes());
            assert!(block[8..].iter().all(|&byte| byte == 0xa5));
        }
    }
}

#[test]
fn the_floor_reports_every_way_once() {
    let Some(scratch) = on_disk() else { return };
    let mut outcome = Outcome::new();
    dbm_floor::measure(&scratch, &(), 2, 3, 1, &mut outcome).unwrap();
    // Buffered writes work everywhere.
    assert_eq!(outcome.tables[0].rows.len(), 30);
    assert!(
        outcome
            .bars()
            .contains_key("buffered_appended_4096_over_written_4096")
    );
    let said = outcome.bars().len() + outcome.missing().len();
    assert_eq!(said, 31, "a ratio for each way, and the best rate");
}

#[test]
fn contenders_commit_what_they_say() {
    let Some(scratch) = on_disk() else { return };
    for synced in [false, true] {
        let folder = scratch.path(&format!("ours-{synced}"));
        let mut ours = Ours::new(&folder, synced, DbmOptions::default()).unwrap();
        does_its_work(&mut ours, true);
        let mut seen = 0;
        for kind in rival::ALL {
            let folder = scratch.path(&format!("{}-{synced}", kind.name));
            match kind.start(scratch.folder(), &folder, synced) {
                Ok(mut rival) => {
                    seen += 1;
                    does_its_work(&mut rival, kind.threads);
                }
                Err(why) => {
                    assert!(why.contains("apt-get install"), "{}: {why}", kind.name);
                    eprintln!("missing: {why}");
                }
            }
        }
        eprintln!("{seen} of {} rivals are installed", rival::ALL.len());
    }
}

fn does_its_work(contender: &mut dyn Contender, threaded: bool) {
    contender.run(&Work::ascending(20, 1)).unwrap();
    contender.run(&Work::ascending(3, 100)).unwrap();
    contender.check(320).unwrap();
    let work = Work {
        order: Order::Random(320),
        ..Work::ascending(10, 20)
    };
    let ran = contender.run(&work).unwrap();
    assert_eq!((ran.commits, ran.times.len()), (10, 10));
    assert!(ran.times.is_sorted() && ran.seconds > 0.0);
    let work = Work {
        order: Order::Reads(320),
        threads: if threaded { 2 } else { 1 },
        ..Work::ascending(30, 0)
    };
    assert_eq!(contender.run(&work).unwrap().times.len(), 30);
    contender.pause();
    contender.resume();
    contender.check(320).unwrap();
    if !threaded {
        let error = contender.run(&Work { threads: 2, ..work }).unwrap_err();
        assert!(error.to_string().contains("one thread"), "{error:#}");
        return;
    }
    assert!(contender.check(321).is_err(), "a record that nobody put");
}

#[test]
fn many_threads_commit_each_key_once() {
    let Some(scratch) = on_disk() else { return };
    let work = Work {
        threads: 4,
        ..Work::ascending(42, 3)
    };
    let mut ours = Ours::new(&scratch.path("ours"), true, DbmOptions::default()).unwrap();
    assert_eq!(ours.run(&work).unwrap().times.len(), 42);
    ours.check(126).unwrap();
    assert!(ours.check(127).is_err());
    let threaded = rival::ALL.into_iter().filter(|kind: &Kind| kind.threads);
    for kind in threaded {
        let Ok(mut rival) = kind.start(scratch.folder(), &scratch.path(kind.name), true) else {
            continue;
        };
        assert_eq!(rival.run(&work).unwrap().times.len(), 42);
        rival.check(126).unwrap();
        assert!(rival.check(127).is_err());
    }
}

#[test]
fn one_that_fails_takes_no_figures_from_the_others() {
    struct Fails(u64);
    impl Contender for Fails {
        fn run(&mut self, work: &Work) -> anyhow::Result<Ran> {
            anyhow::ensure!(self.0 != work.seed, "it broke");
            let times = vec![1000 * self.0; work.commits as usize];
            Ok(Ran::new(work.commits, self.0 as f64, times))
        }
        fn check(&mut self, _: u64) -> anyhow::Result<()> {
            Ok(())
        }
    }
    let Some(scratch) = on_disk() else { return };
    let mut turns = Turns::new(&scratch, "turns", true);
    turns.add::<Fails>("absent", Err("absent is not installed".to_owned()));
    for seconds in [1, 2, 4] {
        turns.add(seconds.to_string(), Ok(Fails(seconds)));
    }
    for seed in [7, 2, 9] {
        let work = Work {
            seed,
            ..Work::ascending(1000, 1)
        };
        turns.round(&work, &Steps::new(&(), 1), "");
    }
    turns.check(0);
    assert_eq!(turns.over("1", "4", Ran::rate), Ok(vec![4.0; 3]));
    assert_eq!(
        turns.over("1", "2", Ran::rate),
        Err("2: it broke".to_owned())
    );
    assert_eq!(
        turns.over("absent", "1", Ran::rate),
        Err("absent is not installed".to_owned())
    );
    let names: Vec<String> = ["absent", "4", "1"].map(str::to_owned).into();
    assert_eq!(turns.best(&names), Ok("1".to_owned()));
    assert_eq!(percentile_over(&turns, "4", "1", 0.99), Ok(4.0));
    assert!(
        percentile_over(&turns, "4", "1", 0.9999).is_err(),
        "too few"
    );
}

#[test]
fn the_papers_loads_name_every_key() {
    let Some(scratch) = on_disk() else { return };
    let mut outcome = Outcome::new();
    let steps = Steps::new(&(), 1);
    let mut table = Table::titled("");
    for (name, synced) in [("synced1", true), ("tmpfs100", false)] {
        let load = dbm_paper::Load {
            name,
            synced,
            records: if synced { 1 } else { 100 },
            commits: 4,
        };
        let program = scratch.path("senko");
        dbm_paper::one(
            &load,
            2,
            &scratch,
            &program,
            &steps,
            &mut table,
            &mut outcome,
        );
    }
    dbm_paper::log_bytes(scratch.folder(), 50, &mut outcome).unwrap();
    // A transaction's 1,200 bytes of records take at least a page of the log.
    assert!(outcome.bars()["log_bytes_per_commit_100"] >= 4096.0);
    assert!(outcome.bars().contains_key("synced1_over_floor"));
    let why = &outcome.missing()["synced1_over_redb"];
    assert!(why.contains("cargo xtask lab"), "{why}");
    for kind in rival::ALL {
        for load in ["synced1", "tmpfs100"] {
            let key = format!("{load}_over_{}", kind.name);
            let has = outcome.bars().contains_key(&key);
            assert!(has || outcome.missing().contains_key(&key), "{key}");
        }
    }
}

/// The library of ndbm lies beside the tests if its own tests were built. An older one has no
/// transactions.
#[test]
fn figure_2_through_ndbm_names_every_key() {
    let Some(scratch) = on_disk() else { return };
    let lab = std::env::current_exe().unwrap();
    match rival::ndbm(&lab, scratch.folder(), &scratch.path("ndbm"), true) {
        Ok(mut ndbm) => does_its_work(&mut ndbm, false),
        Err(why) => assert!(why.contains("cargo xtask lab"), "{why}"),
    }
    let mut outcome = Outcome::new();
    let steps = Steps::new(&(), 1);
    let mut table = Table::titled("");
    for (name, synced) in [("synced100", true), ("tmpfs1", false)] {
        let load = dbm_paper::Load {
            name,
            synced,
            records: if synced { 100 } else { 1 },
            commits: 4,
        };
        dbm_ndbm::one(&load, 2, &scratch, &lab, &steps, &mut table, &mut outcome);
        for over in ["leveldb", "senko"] {
            let key = format!("ndbm_{name}_over_{over}");
            let has = outcome.bars().contains_key(&key);
            assert!(has || outcome.missing().contains_key(&key), "{key}");
        }
    }
}

/// Every contender that is installed does every mix: gets find their records, scans find some.
#[test]
fn mixes_run_on_all_contenders() {
    let Some(scratch) = on_disk() else { return };
    let mut outcome = Outcome::new();
    let sizes = dbm_mixes::Sizes {
        records: 500,
        operations: 200,
        warehouses: 1,
        orders: 5,
        rounds: 2,
        cache: 64 << 20,
    };
    let steps = Steps::new(&(), 1);
    dbm_mixes::measure(&scratch, &steps, sizes, &mut outcome).unwrap();
    let mixes = ["a", "b", "c", "d", "e", "f"].map(|mix| format!("ycsb_{mix}"));
    for mix in mixes.into_iter().chain(["new_order".to_owned()]) {
        for rival in ["rocksdb", "leveldb", "lmdb", "sqlite"] {
            let key = format!("{mix}_over_{rival}");
            let seen = outcome.bars().get(&key);
            let why = outcome.missing().get(&key);
            let installed = why.is_none_or(|why| why.contains("is not installed"));
            assert!(installed, "{key}: {why:?}");
            assert!(seen.is_none_or(|ratio| *ratio > 0.0), "{key}: {seen:?}");
        }
    }
}

#[test]
fn threads_and_random_updates_name_every_key() {
    let Some(scratch) = on_disk() else { return };
    let mut outcome = Outcome::new();
    let steps = Steps::new(&(), 1);
    dbm_threads::measure(&scratch, &steps, &[1, 3], 2, 5, &mut outcome);
    dbm_random::measure(&scratch, &steps, 3000, 2, 10, &mut outcome);
    assert!(outcome.bars().contains_key("threads3_over_one_thread"));
    assert!(outcome.bars()["space_over_live"] >= 1.0);
    let why = &outcome.missing()["p9999_commit_over_floor"];
    assert!(why.contains("at least 10 are needed"), "{why}");
    for key in ["threads3_over_rocksdb", "random100_over_leveldb"] {
        let has = outcome.bars().contains_key(key);
        assert!(has || outcome.missing().contains_key(key), "{key}");
    }
}

#[test]
fn small_databases_are_measured_and_read_right() {
    let Some(scratch) = on_disk() else { return };
    let mut outcome = Outcome::new();
    dbm_small::measure(scratch.folder(), 2000, 3, 1, &mut outcome).unwrap();
    for key in [
        "empty_bytes",
        "open_fetch_close_ms",
        "open_fetch_close_to_read_ms",
    ] {
        assert!(outcome.bars()[key] > 0.0, "{key}");
    }
}

#[test]
fn gets_of_a_large_database_name_every_key() {
    let Some(scratch) = on_disk() else { return };
    let mut outcome = Outcome::new();
    let steps = Steps::new(&(), 1);
    let sizes = dbm_large::Sizes {
        keys: 20_000,
        memory: 1 << 20,
        gets: 50,
        rounds: 2,
    };
    dbm_large::measure(&scratch, &steps, &sizes, None, &mut outcome).unwrap();
    assert!(outcome.bars().contains_key("senko_gets_a_second"));
    // A get reads pages of the device, or finds them in DRAM.
    assert!(outcome.bars()["reads_per_get"] >= 0.0);
    let why = &outcome.missing()["gets_over_lmdb"];
    assert!(why.contains("cap"), "{why}");
    assert!(outcome.missing().contains_key("gets16_over_lmdb"));
}

#[test]
fn pages_are_counted_for_both() {
    let Some(scratch) = on_disk() else { return };
    let mut outcome = Outcome::new();
    dbm_appendpages::measure(scratch.folder(), 20_000, 50, &mut outcome).unwrap();
    // A changed leaf is written, and a separate synced commit takes at least a page.
    assert!(outcome.bars()["page_writes_per_update"] >= 1.0);
    assert!(outcome.bars()["pages_per_commit_of_one"] >= 1.0);
    match outcome.bars().get("lmdb_pages_per_commit_of_one") {
        // Leaf and root.
        Some(&pages) => assert!(pages >= 2.0, "{pages}"),
        None => assert!(outcome.missing()["lmdb_pages_per_commit_of_one"].contains("apt-get")),
    }
}

#[test]
fn neither_locks_nor_optimism_lose_an_update() {
    let Some(scratch) = on_disk() else { return };
    for records in [2, 500] {
        let arena = dbm_occ::Arena::new(&scratch.path(&format!("occ-{records}")), records).unwrap();
        for way in [Keeping::Optimistic, Keeping::Locks] {
            let (ran, again) = arena.run(way, 4, 20, 1).unwrap();
            assert_eq!((ran.commits, ran.times.len()), (80, 80));
            assert!(way == Keeping::Optimistic || again == 0);
            arena.check().unwrap();
        }
    }
}
