// SPDX-License-Identifier: Apache-2.0
//! Databases that are read while another process writes. A second opening of the same files stands
//! in for another process, because it has its own locks.

use senko_dbm::{Database, Durability};
use senko_workload::Rng;

use crate::support::{Model, content, quiet, seed};

/// A reader keeps the state of its opening, however much is overwritten and cleaned meanwhile, and
/// sees the newest after a refresh.
#[test]
fn readers_see_their_opening_while_the_writer_goes_on() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let options = senko_dbm::Options {
        log_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        ..quiet()
    };
    let db = Database::open(&path, options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut rng = Rng::new(seed("readers"));
    let mut model = Model::new();
    let mut readers: Vec<(Database, Model)> = Vec::new();
    for round in 0..60 {
        for _ in 0..50 {
            let mut tx = db.begin();
            for _ in 0..40 {
                let key = rng.below(3000).to_be_bytes()[6..].to_vec();
                let value = vec![rng.next_u64() as u8; rng.below(300) as usize];
                tx.put(&table, &key, &value).unwrap();
                model.insert(key, value);
            }
            tx.commit(Durability::Buffered).unwrap();
        }
        if round % 7 == 0 {
            let reader = Database::open_to_read(&path, options.clone()).unwrap();
            readers.push((reader, model.clone()));
            assert!(db.stats().pinned_checkpoint.is_some());
        }
        if round % 10 == 9 {
            let (mut reader, then) = readers.remove(0);
            assert_eq!(content(&reader.snapshot(), &table), then, "round {round}");
            reader.refresh().unwrap();
            assert_eq!(content(&reader.snapshot(), &table), model, "round {round}");
        }
    }
    assert!(db.stats().checkpoint > 5, "the log was never cut");
    for (reader, then) in readers.drain(..) {
        assert_eq!(content(&reader.snapshot(), &table), then);
    }
    assert_eq!(db.stats().pinned_checkpoint, None);
}

/// A database used to have further files: a program that renamed or copied the one file that it
/// knew lost all but the first part.
#[test]
fn a_database_is_whole_under_another_name() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let options = senko_dbm::Options {
        mode: Some(0o600),
        ..quiet()
    };
    let db = Database::open(&path, options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut model = Model::new();
    for nth in 0..40u32 {
        let (key, value) = (nth.to_be_bytes().to_vec(), vec![nth as u8; 100_000]);
        db.run(Durability::Buffered, |tx| tx.put(&table, &key, &value))
            .unwrap();
        model.insert(key, value);
    }
    let reader = Database::open_to_read(&path, options.clone()).unwrap();
    assert_eq!(content(&reader.snapshot(), &table), model);
    db.close().unwrap();
    let other = folder.path().join("other");
    std::fs::rename(&path, &other).unwrap();
    assert_eq!(db_files(&folder), ["other"]);
    let db = Database::open(&other, options).unwrap();
    assert_eq!(content(&db.snapshot(), &table), model);
    assert_eq!(content(&reader.snapshot(), &table), model);
}

fn db_files(folder: &senko_dbm::example::Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
