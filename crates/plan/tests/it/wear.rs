// SPDX-License-Identifier: Apache-2.0
//! What a put to an engine costs a drive, against what the engines are known to write.

use senko_plan::wear::{Engine, Load};

fn load(records: u64, bytes: u64, together: u64) -> Load {
    Load {
        records,
        bytes,
        exponent: 0.0,
        together,
        cache: 64 << 20,
    }
}

/// Each put is written in a log. The store has not filled its logs of 64 MiB here.
#[test]
fn engines_write_what_they_must() {
    for engine in [Engine::Dbm, Engine::Store] {
        let load = load(8000, 1000, 100);
        let wear = load.wear(engine).unwrap();
        assert_eq!(wear.records, 8000);
        assert!(
            (1.0..10.0).contains(&wear.written_over_put),
            "{engine:?}: {wear:?}"
        );
        assert!(
            (1.0..40.0).contains(&wear.file_over_records),
            "{engine:?}: {wear:?}"
        );
        // There are no threads, so a plan is the same whenever it is made.
        let again = load.wear(engine).unwrap();
        assert_eq!(
            (wear.written_over_put, wear.file_over_records),
            (again.written_over_put, again.file_over_records),
            "{engine:?}"
        );
    }
}

/// A commit is at least a page of the log.
#[test]
fn a_small_commit_costs_a_page() {
    let (alone, together) = (load(2000, 100, 1), load(2000, 100, 100));
    let [alone, together] = [alone, together].map(|load| load.wear(Engine::Dbm).unwrap());
    let page = 4096.0 / 100.0;
    assert!(alone.written_over_put > page, "{alone:?}");
    assert!(together.written_over_put < page / 2.0, "{together:?}");
}

/// The least and the longest record, and one record.
#[test]
fn every_size_can_be_planned() {
    for engine in [Engine::Dbm, Engine::Store] {
        for (records, bytes) in [
            (300, 8),
            (1, 1000),
            (130, 1 << 20),
            (u64::MAX >> 20, 900 << 10),
        ] {
            let wear = load(records, bytes, 100).wear(engine).unwrap();
            assert!(wear.records <= records, "{engine:?}: {wear:?}");
            assert!(wear.written_over_put.is_finite(), "{engine:?}: {wear:?}");
        }
    }
}
