// SPDX-License-Identifier: Apache-2.0
//! Backup, compaction and repair: the contents of a copy, and the files after an interruption.

use std::path::Path;

use senko_dbm::{Batch, Cached, Database, DbmError, Durability, Options, Table};
use senko_workload::Rng;

use crate::support::{Model, content, quiet, seed};

fn fill(db: &Database, table: &Table, rng: &mut Rng, records: u64) -> Model {
    let mut model = Model::new();
    for _ in 0..records / 100 {
        let mut tx = db.begin();
        for _ in 0..100 {
            let key = rng.below(1 << 40).to_be_bytes()[3..].to_vec();
            let bytes = match rng.below(50) {
                0 => 20_000,
                _ => rng.below(200),
            };
            let value = vec![rng.next_u64() as u8; bytes as usize];
            tx.put(table, &key, &value).unwrap();
            model.insert(key, value);
        }
        tx.commit(Durability::Buffered).unwrap();
    }
    model
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A backup has what was committed when it began, although its progress callback commits more. A
/// backup that is ended early leaves nothing.
#[test]
fn a_backup_is_of_one_moment() {
    let folder = senko_dbm::example::Folder::new();
    let db = Database::open(&folder.path().join("data"), quiet()).unwrap();
    let (first, second) = (
        db.create_table("first").unwrap(),
        db.create_table("b").unwrap(),
    );
    let mut rng = Rng::new(seed("backup"));
    let then = fill(&db, &first, &mut rng, 5000);
    let path = folder.path().join("copy");
    let ended = db.backup(&path, |_| false);
    assert!(matches!(ended, Err(DbmError::Invalid(_))), "{ended:?}");
    assert!(
        names(folder.path())
            .iter()
            .all(|name| !name.starts_with("copy"))
    );

    let report = db
        .backup(&path, |_| {
            db.run(Durability::Buffered, |tx| {
                tx.put(&second, b"late", b"x")?;
                tx.clear(&first)
            })
            .unwrap();
            true
        })
        .unwrap();
    assert_eq!((report.tables, report.records), (2, then.len() as u64));
    let copy = Database::open(&path, quiet()).unwrap();
    let snapshot = copy.snapshot();
    assert_eq!(content(&snapshot, &copy.table("first").unwrap()), then);
    assert!(content(&snapshot, &copy.table("b").unwrap()).is_empty());
    assert!(copy.verify().unwrap().problems.is_empty());
    let again = db.backup(&path, |_| true);
    assert!(matches!(again, Err(DbmError::Open(_))), "{again:?}");
}

/// A compacted database has all records in fewer bytes.
#[test]
fn compaction_keeps_all_and_takes_less() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let db = Database::open(&path, quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut rng = Rng::new(seed("compaction"));
    fill(&db, &table, &mut rng, 30_000);
    db.run(Durability::Synced, |tx| tx.clear(&table)).unwrap();
    let model = fill(&db, &table, &mut rng, 1000);
    let before = db.stats().file_bytes;
    let refused = Database::compact(&path, quiet(), |_| true);
    assert!(
        matches!(refused, Err(DbmError::Open(_))),
        "it is in use: {refused:?}"
    );
    drop(db);
    let ended = Database::compact(&path, quiet(), |_| false);
    assert!(ended.is_err());
    assert_eq!(names(folder.path()), ["data"]);

    let report = Database::compact(&path, quiet(), |_| true).unwrap();
    assert_eq!(report.records, model.len() as u64);
    assert_eq!(names(folder.path()), ["data"]);
    for round in 0..2 {
        let db = Database::open(&path, quiet()).unwrap();
        assert_eq!(content(&db.snapshot(), &table), model, "round {round}");
        if round == 0 {
            fill(&db, &db.create_table("other").unwrap(), &mut rng, 2000);
        } else {
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    assert!(report.bytes < before);
}

/// A reorganization used to close the database and to look for its name again. If another database
/// had that name by then, the caller went on with the other one.
#[test]
fn a_reorganized_database_is_the_one_that_was_open() {
    use std::os::unix::fs::PermissionsExt;
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let mut db = Database::open(&path, quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut rng = Rng::new(seed("reorganization"));
    fill(&db, &table, &mut rng, 3000);
    db.run(Durability::Synced, |tx| tx.clear(&table)).unwrap();
    let model = fill(&db, &table, &mut rng, 500);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
    // Nothing else may use it.
    let other = db.clone();
    assert!(matches!(db.reorganize(|_| true), Err(DbmError::Invalid(_))));
    drop(other);
    let snapshot = db.snapshot();
    assert!(matches!(db.reorganize(|_| true), Err(DbmError::Invalid(_))));
    drop(snapshot);
    // A file of that name which is another one stays, and so does the open database.
    let (aside, theirs) = (folder.path().join("aside"), folder.path().join("theirs"));
    std::fs::rename(&path, &aside).unwrap();
    drop(Database::open(&path, quiet()).unwrap());
    let refused = db.reorganize(|_| true).unwrap_err();
    assert!(refused.to_string().contains("another file"), "{refused}");
    std::fs::rename(&path, &theirs).unwrap();
    assert!(db.reorganize(|_| true).is_err(), "no file has its name");
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(content(&db.snapshot(), &table), model);
    // The copy is locked and takes commits, and the file is a new one with the old rights.
    let report = db.reorganize(|_| true).unwrap();
    assert_eq!(report.records, model.len() as u64);
    let table = db.table("t").unwrap();
    db.run(Durability::Synced, |tx| tx.put(&table, b"new", b"one"))
        .unwrap();
    assert!(Database::open(&path, quiet()).is_err(), "it is in use");
    drop(db);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o664);
    let db = Database::open(&path, quiet()).unwrap();
    // Other copies are their maker's alone.
    let backup = folder.path().join("backup");
    for repaired in [false, true] {
        let report = match repaired {
            false => db.backup(&backup, |_| true),
            true => db.repair(&backup, |_| true),
        };
        assert!(report.unwrap().lost.is_empty());
        let mode = std::fs::metadata(&backup).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&backup).unwrap();
    }
    let mut model = model;
    model.insert(b"new".to_vec(), b"one".to_vec());
    assert_eq!(content(&db.snapshot(), &table), model);
    assert_eq!(names(folder.path()), ["data", "theirs"]);
}

/// A handle of a table reads and writes the table of its name, whatever its number is by now: after
/// a reorganization, a refresh, in another database, and made again.
#[test]
fn a_table_is_the_one_that_has_its_name() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let mut db = Database::open(&path, quiet()).unwrap();
    let make = |db: &Database, name: &str| db.create_table(name).unwrap();
    let tables = ["old", "users", "passwords"].map(|name| make(&db, name));
    let [old, users, passwords] = &tables;
    for table in &tables {
        db.run(Durability::Synced, |tx| {
            tx.put(table, b"key", table.name().as_bytes())
        })
        .unwrap();
    }
    db.drop_table(old).unwrap();
    let check = |db: &Database| {
        for table in [users, passwords] {
            let (name, all) = (table.name().as_bytes(), ..);
            assert_eq!(db.get(table, b"key").unwrap().unwrap(), name);
            let cached = db.get_cached(table, b"key", <[u8]>::to_vec).unwrap();
            assert!(cached == Cached::Found(name.to_vec()) || cached == Cached::Unknown);
            let now = db.snapshot();
            assert_eq!(now.get(table, b"key").unwrap().unwrap(), name);
            let found = now.cursor(table, all).unwrap().next().unwrap();
            assert_eq!(found.unwrap().1, name);
        }
        let refused = db.get(old, b"key");
        assert!(matches!(refused, Err(DbmError::NoTable(_))), "{refused:?}");
    };
    check(&db);

    // The copy numbers its tables anew.
    let mut reader = Database::open_to_read(&path, quiet()).unwrap();
    db.reorganize(|_| true).unwrap();
    check(&db);
    check(&reader);
    reader.refresh().unwrap();
    check(&reader);

    // Each number that is known here is the other table's there.
    let (there, mut batch) = (folder.path().join("there"), Batch::new());
    let other = Database::open(&there, quiet()).unwrap();
    for name in ["first", "passwords", "users"] {
        make(&other, name);
    }
    db.run(Durability::None, |tx| {
        tx.put(passwords, b"key", b"gone")?;
        tx.put(passwords, b"other", b"gone")?;
        tx.delete_range(passwords, b"", None)?;
        tx.put(passwords, b"key", b"passwords")?;
        assert_eq!(tx.count(passwords)?, 1);
        assert_eq!(tx.count(users)?, 1);
        Ok(())
    })
    .unwrap();
    for table in [&make(&other, "users"), passwords, users, passwords] {
        batch.put(table, b"x", b"gone").unwrap();
        batch.delete_range(table, b"a", None);
        batch.put(table, b"key", table.name().as_bytes()).unwrap();
    }
    other.write(batch, Durability::Synced).unwrap();
    check(&other);
    for table in [users, passwords] {
        assert_eq!(other.snapshot().count(table).unwrap(), 1);
        let records = [(b"y", table.name())];
        let loaded = other.bulk_load(table, records, Durability::Synced);
        assert_eq!(loaded.unwrap(), 1);
        let last = other.snapshot().last(table).unwrap().unwrap();
        assert_eq!(last.1, table.name().as_bytes());
    }

    // Made again, it is the table of that name.
    make(&other, "old");
    other
        .run(Durability::None, |tx| tx.put(old, b"key", b"new"))
        .unwrap();
    assert_eq!(other.get(old, b"key").unwrap().unwrap(), b"new");
    other.drop_table(old).unwrap();
    let (mut batch, none) = (Batch::new(), Durability::None);
    batch.put(users, b"key", b"lost").unwrap();
    batch.put(old, b"key", b"lost").unwrap();
    let refused = other.write(batch, none);
    assert!(matches!(&refused, Err(DbmError::NoTable(name)) if name == "old"));
    check(&other);
}

/// Pages of a database lost bits. A repair has every record of the other pages, and reports which
/// keys are lost and how many.
#[test]
fn a_repair_saves_all_that_is_whole() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let db = Database::open(&path, quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    let mut rng = Rng::new(seed("repair"));
    let model = fill(&db, &table, &mut rng, 20_000);
    db.close().unwrap();
    // Leaves and parts of long values: kinds 3 and 2 in the log, level 0.
    let mut damaged = 0;
    let mut bytes = std::fs::read(&path).unwrap();
    for page in bytes.chunks_mut(4096) {
        let is_leaf = page[38] == 3 && page[44] == 0;
        if (is_leaf || page[38] == 2) && rng.below(10) == 0 {
            page[rng.below(4096) as usize] ^= 1 << rng.below(8);
            damaged += 1;
        }
    }
    std::fs::write(&path, bytes).unwrap();
    assert!(damaged > 10);
    let db = Database::open_to_read(&path, Options::default()).unwrap();
    let refused = db.backup(&folder.path().join("copy"), |_| true);
    assert!(
        matches!(refused, Err(DbmError::Damaged { .. })),
        "{refused:?}"
    );

    let saved = folder.path().join("saved");
    let report = db.repair(&saved, |_| true).unwrap();
    assert!(!report.lost.is_empty() && report.records > 0);
    let is_lost = |key: &[u8]| {
        report.lost.iter().any(|lost| {
            lost.from.as_deref().is_none_or(|from| from <= key)
                && lost.to.as_deref().is_none_or(|to| key < to)
        })
    };
    let mut expected = model.clone();
    expected.retain(|key, _| !is_lost(key));
    let copy = Database::open(&saved, quiet()).unwrap();
    let found = content(&copy.snapshot(), &copy.table("t").unwrap());
    assert_eq!(found.len() as u64, report.records);
    assert_eq!(found, expected);
    assert_eq!(
        report.lost[0].missing,
        (model.len() - expected.len()) as u64
    );
}

/// Damages all pages of the file for which `is_hit` is true, and returns their number.
fn damage(path: &std::path::Path, is_hit: impl Fn(&[u8]) -> bool) -> usize {
    let mut damaged = 0;
    let mut bytes = std::fs::read(path).unwrap();
    for page in bytes.chunks_mut(4096).filter(|page| is_hit(page)) {
        page[100] ^= 1;
        damaged += 1;
    }
    std::fs::write(path, bytes).unwrap();
    damaged
}

/// A file of the version before, whose superblock ends with the number of pages, is read, verified
/// and backed up, and has the version of today after the next checkpoint.
#[test]
fn a_file_of_the_version_before_goes_on() {
    let folder = senko_dbm::example::Folder::new();
    let path = folder.path().join("data");
    let db = Database::open(&path, quiet()).unwrap();
    let table = db.create_table("t").unwrap();
    let model = fill(&db, &table, &mut Rng::new(seed("version")), 2000);
    db.close().unwrap();
    let versions = |bytes: &[u8]| -> Vec<u8> {
        let copies = bytes
            .chunks(4096)
            .filter(|page| page.starts_with(b"SENKODB"));
        copies.map(|page| page[8]).collect()
    };
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(versions(&bytes), [3; 4]);
    for page in bytes
        .chunks_mut(4096)
        .filter(|page| page.starts_with(b"SENKODB"))
    {
        page[8] = 2;
        page[56..].fill(0);
        page[12..16].fill(0);
        let crc = crc32c::crc32c(page);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&path, &bytes).unwrap();

    let reader = Database::open_to_read(&path, quiet()).unwrap();
    assert!(reader.verify().unwrap().problems.is_empty());
    let found = content(&reader.snapshot(), &reader.table("t").unwrap());
    assert!(found == model);
    drop(reader);
    assert!(
        std::fs::read(&path).unwrap() == bytes,
        "a reader writes nothing"
    );

    let db = Database::open(&path, quiet()).unwrap();
    assert_eq!(db.stats().bytes_put, 0, "it was not counted before");
    let table = db.table("t").unwrap();
    db.run(Durability::Synced, |tx| tx.put(&table, b"key", b"value"))
        .unwrap();
    db.close().unwrap();
    assert!(versions(&std::fs::read(&path).unwrap()).contains(&3));
    let db = Database::open(&path, quiet()).unwrap();
    assert!(db.verify().unwrap().problems.is_empty());
    let found = content(&db.snapshot(), &db.table("t").unwrap());
    assert_eq!(found.len(), model.len() + 1);
    assert_eq!(db.stats().bytes_put, 8);
}

/// All pages above the leaves are lost, including the root. The translation table names the leaves,
/// and every record is saved: with or without a superblock, and also if two tables lost their
/// roots, so that the table of a leaf is unknown. An existing table with their name is left alone.
#[test]
fn leaves_are_saved_without_the_pages_above_them() {
    for (tables, opens) in [(1, true), (1, false), (2, true), (2, false)] {
        let folder = senko_dbm::example::Folder::new();
        let path = folder.path().join("data");
        let db = Database::open(&path, quiet()).unwrap();
        let mut rng = Rng::new(seed("leaves"));
        let mut model = Model::new();
        for name in ["t", "u"] {
            let table = db.create_table(name).unwrap();
            match tables == 2 || name == "t" {
                true => model.extend(fill(&db, &table, &mut rng, 10_000)),
                // One leaf, which is its root.
                false => db
                    .run(Durability::Synced, |tx| tx.put(&table, b"key", b"value"))
                    .unwrap(),
            }
        }
        let namesake = db.create_table("recovered").unwrap();
        db.run(Durability::Synced, |tx| tx.put(&namesake, b"own", b"value"))
            .unwrap();
        db.close().unwrap();
        let is_inner = |page: &[u8]| page[38] == 3 && page[44] > 0;
        let is_superblock = |page: &[u8]| page.starts_with(b"SENKODB");
        let damaged = damage(&path, |page| {
            !is_superblock(page) && is_inner(page) || !opens && is_superblock(page)
        });
        assert!(damaged > tables);

        let saved = folder.path().join("saved");
        let report = match Database::open_to_read(&path, quiet()) {
            Ok(db) => {
                assert!(opens);
                db.repair(&saved, |_| true)
            }
            Err(_) => {
                assert!(!opens);
                Database::salvage(&path, &saved, |_| true)
            }
        }
        .unwrap();
        assert!(!report.lost.is_empty(), "the damage is listed");
        let copy = Database::open(&saved, quiet()).unwrap();
        let mut found = Model::new();
        let names = match tables {
            1 => &["t"][..],
            _ => &["t", "u", "recovered-2"],
        };
        for name in names {
            found.extend(content(&copy.snapshot(), &copy.table(name).unwrap()));
        }
        assert!(found == model, "{} of {}", found.len(), model.len());
        let own = content(&copy.snapshot(), &copy.table("recovered").unwrap());
        assert_eq!(own.len(), 1, "it has its own record alone");
        if tables == 1 {
            assert_eq!(report.lost[0].missing, 0);
            let other = content(&copy.snapshot(), &copy.table("u").unwrap());
            assert_eq!(other.len(), 1);
        }
    }
}

/// Databases that do not open: without the superblock, the newest checkpoint, or a part of the
/// translation table, and with a hole in the log. Their records are found page by page.
#[test]
fn a_database_that_does_not_open_is_salvaged() {
    let seed = seed("salvage");
    for (what, kinds) in [
        ("the superblock", &[0u8][..]),
        ("the checkpoint", &[5]),
        ("the translation table", &[4]),
        ("leaves and the superblock", &[3, 0]),
    ] {
        let folder = senko_dbm::example::Folder::new();
        let path = folder.path().join("data");
        let mut rng = Rng::new(seed);
        let db = Database::open(&path, quiet()).unwrap();
        let table = db.create_table("t").unwrap();
        let mut model = fill(&db, &table, &mut rng, 10_000);
        db.checkpoint().unwrap();
        model.extend(fill(&db, &table, &mut rng, 3000));
        db.run(Durability::Synced, |tx| {
            tx.delete_range(&table, b"", Some(&[40]))
        })
        .unwrap();
        model.retain(|key, _| **key >= [40u8][..]);
        if !kinds.contains(&0) {
            db.checkpoint().unwrap();
        }
        // These are only in the log.
        model.extend(fill(&db, &table, &mut rng, 500));
        let late = db.create_table("late").unwrap();
        db.run(Durability::Synced, |tx| tx.put(&late, b"k", b"v"))
            .unwrap();
        // What a killed process leaves: closing would write a checkpoint.
        let mut bytes = std::fs::read(&path).unwrap();
        drop(db);
        let mut damaged = 0;
        for page in bytes.chunks_mut(4096) {
            let is_superblock = page.starts_with(b"SENKODB");
            let hit = match kinds {
                [0] => is_superblock,
                [3, ..] => {
                    let leaf = page[38] == 3 && page[44] == 0;
                    is_superblock || leaf && rng.below(8) == 0
                }
                kinds => kinds.contains(&page[38]) && !is_superblock,
            };
            // All checkpoints but the first.
            let first = page[38] == 5 && page[8..16] == 1u64.to_le_bytes();
            if hit && !first {
                page[200] ^= 1;
                damaged += 1;
            }
        }
        std::fs::write(&path, bytes).unwrap();
        assert!(damaged > 0, "{what}");
        let refused = Database::open_to_read(&path, quiet());
        assert!(refused.is_err(), "{what}");
        let saved = folder.path().join("saved");
        let report = Database::salvage(&path, &saved, |_| true).unwrap();
        let copy = Database::open(&saved, quiet()).unwrap();
        // Without the checkpoints, the log may have lost the entry that named it.
        let found = match copy.table("t") {
            Err(DbmError::NoTable(_)) if kinds == [5] => Model::new(),
            table => content(&copy.snapshot(), &table.unwrap()),
        };
        let is_lost = |key: &[u8]| {
            report.lost.iter().any(|lost| {
                lost.table == "t"
                    && lost.from.as_deref().is_none_or(|from| from <= key)
                    && lost.to.as_deref().is_none_or(|to| key < to)
            })
        };
        let lost = model.keys().filter(|key| is_lost(key)).count();
        println!(
            "{what}: {} of {} saved, {lost} lost",
            found.len(),
            model.len()
        );
        // Without the checkpoint that names them, trees have other names.
        let others: Vec<Model> = copy
            .tables()
            .iter()
            .filter(|_| kinds == [5])
            .map(|table| content(&copy.snapshot(), table))
            .collect();
        for (key, value) in &model {
            let mut all = others.iter().chain([&found]);
            let saved = all.any(|found| found.get(key) == Some(value));
            assert!(is_lost(key) || saved, "{what}");
        }
        if kinds != [5] {
            assert!(found.keys().all(|key| model.contains_key(key)), "{what}");
            let late = copy.table("late").unwrap();
            assert_eq!(copy.snapshot().get(&late, b"k").unwrap().unwrap(), b"v");
        }
        match kinds {
            [0] => assert!(report.lost.is_empty(), "{:?}", report.lost),
            [3, ..] => assert!(lost > 0 && lost < model.len(), "{what}"),
            _ => assert_eq!(lost, 0, "{what}"),
        }
    }
}
