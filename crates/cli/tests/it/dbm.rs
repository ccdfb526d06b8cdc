// SPDX-License-Identifier: Apache-2.0
//! `senko dbm`, called as by a user.

use std::process::{Command, Output};

use crate::process::{SENKO, Scratch, Words, has, hears_signals, senko, signal, start};

fn dbm(folder: &Scratch, args: impl Words) -> Output {
    senko("dbm", folder, args)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output, what: &str) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(what) && text.lines().count() == 1, "{text}");
}

/// A refused key in `put` used to leave a new database of 1.2 MB, and so did a bad first line in
/// `load`. Now nothing is left. An existing database stays, and so does one that got rows.
#[test]
fn a_refused_first_record_leaves_no_database() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    let names = || std::fs::read_dir(scratch.path()).unwrap().count();
    let (key, table) = ("k".repeat(1025), "t".repeat(256));
    refused(&go(&format!("put x.db {key} v")), "1025 bytes");
    refused(&go(&format!("put x.db k v --table {table}")), "255");
    assert_eq!(names(), 0);
    let row = "{\"key\":\"a\",\"value\":\"1\"}\n";
    std::fs::write(scratch.join("bad"), format!("nonsense\n{row}")).unwrap();
    std::fs::write(scratch.join("half"), format!("{row}nonsense\n")).unwrap();
    refused(&go("load x.db bad"), "line 1");
    assert_eq!(names(), 2);
    refused(&go("load x.db half"), "line 2");
    assert_eq!(out(&go("get x.db a")), "1\n");
    refused(&go(&format!("put x.db {key} v")), "1025 bytes");
    assert_eq!(out(&go("get x.db a")), "1\n");
}

/// A load that found no room for its first records left a database without any behind. And a full
/// target of a dump had no name.
#[test]
fn a_load_without_room_leaves_no_database() {
    let scratch = Scratch::new();
    let limited = |args: &str| {
        Command::new("bash")
            .args(["-c", &format!("ulimit -f 800; exec {SENKO} dbm {args}")])
            .current_dir(scratch.path())
            .output()
            .unwrap()
    };
    let row = |n: usize| format!("{{\"key\":\"{n}\",\"value\":\"{}\"}}\n", "v".repeat(1000));
    std::fs::write(scratch.join("rows"), (0..2000).map(row).collect::<String>()).unwrap();
    refused(&limited("load x.db rows --whole"), "nothing is loaded");
    refused(&limited("load x.db rows"), "nothing is loaded");
    assert!(!scratch.join("x.db").exists());
    // One that was there, and one that got rows, stay.
    assert!(limited("put y.db k v").status.success());
    refused(&limited("load y.db rows --whole"), "nothing is loaded");
    refused(&limited("load z.db rows --batch 10"), "only the first");
    assert_eq!(out(&limited("get y.db k")), "v\n");
    assert_eq!(out(&limited("get z.db 0")).len(), 1001);
    assert!(dbm(&scratch, "load w.db rows").status.success());
    refused(&limited("dump w.db --to d.jsonl"), "cannot write d.jsonl: ");
}

/// `put`, `delete` and `compact` used to take the rights of the group and of others from a database
/// that was there, `compact` by root gave it to root, and a compaction that was killed blocked all
/// later ones. A new database is its user's alone.
#[test]
fn a_database_keeps_its_owner_and_its_rights() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let scratch = Scratch::new();
    let go = |args: &str| {
        let output = dbm(&scratch, args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        out(&output)
    };
    let path = scratch.join("x.db");
    let rights = || {
        let meta = std::fs::metadata(&path).unwrap();
        (meta.mode() & 0o7777, meta.uid(), meta.gid())
    };
    go("put x.db k v");
    assert_eq!(rights().0, 0o600);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
    // Only root gives files away.
    if rights().1 == 0 {
        std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).unwrap();
    }
    let before = rights();
    // A link leads to the same database, and stays one.
    symlink("x.db", scratch.join("link")).unwrap();
    for name in ["x.db", "link"] {
        go(&format!("put {name} l w"));
        go(&format!("delete {name} l"));
        let inode = std::fs::metadata(&path).unwrap().ino();
        go(&format!("compact {name}"));
        assert_ne!(std::fs::metadata(&path).unwrap().ino(), inode);
        assert_eq!(rights(), before);
    }
    let link = scratch.join("link").symlink_metadata().unwrap();
    assert!(link.is_symlink());
    assert_eq!(go("get link k"), "v\n");
}

/// Copies of a database: while it is in use, in its own place, and of what is left of a damaged
/// one.
#[test]
fn a_database_is_backed_up_compacted_and_repaired() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    let rows: String = (0..5000)
        .map(|n| format!("{{\"table\":\"t\",\"key\":\"{n:05}\",\"value\":\"{n}\"}}\n"))
        .collect();
    std::fs::write(scratch.join("rows"), &rows).unwrap();
    assert!(go("load x.db rows").status.success());
    let dump = out(&go("dump x.db"));
    assert_eq!(dump.lines().count(), 5000);

    let backup = go("backup x.db copy.db");
    assert_eq!(
        out(&backup),
        "1 table, 5000 records, 43890 bytes written to copy.db\n"
    );
    refused(&go("backup x.db copy.db"), "copy.db exists already");
    refused(&go("backup none.db other.db"), "none.db");
    assert!(!scratch.join("other.db").exists() && !scratch.join("other.db.part").exists());
    assert_eq!(out(&go("dump copy.db")), dump);
    assert!(go("compact x.db").status.success());
    assert_eq!(out(&go("dump x.db")), dump);

    // A bit of one leaf is lost.
    let mut bytes = std::fs::read(scratch.join("x.db")).unwrap();
    let leaf = bytes
        .chunks(4096)
        .position(|page| page[38] == 3 && page[44] == 0);
    bytes[leaf.unwrap() * 4096 + 2000] ^= 1;
    std::fs::write(scratch.join("x.db"), bytes).unwrap();
    assert_eq!(go("verify x.db").status.code(), Some(1));
    refused(&go("backup x.db other.db"), "damaged");
    let repair = go("repair x.db --to saved.db");
    assert_eq!(repair.status.code(), Some(1), "something is lost");
    let told = out(&repair);
    assert!(
        told.starts_with("lost in table \"t\", which misses "),
        "{told}"
    );
    let saved = out(&go("dump saved.db"));
    let left = saved.lines().count();
    assert!((4500..5000).contains(&left), "{left}");
    assert!(saved.lines().all(|line| dump.contains(line)));
    has(&told, &format!("misses {} records", 5000 - left));
}

/// Readers used to take a damaged entry of the log for its end: `dump`, `backup` and `verify` ended
/// with 0 and a third of the records, and `repair` saved no more and listed nothing.
#[test]
fn a_damaged_log_is_told_and_repaired_behind_the_damage() {
    use senko_dbm::{Database, Durability, Options};
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    let db = Database::open(&scratch.join("live.db"), Options::default()).unwrap();
    let table = db.create_table("main").unwrap();
    for n in 0..30 {
        let key = format!("k{n:02}");
        db.run(Durability::Synced, |tx| {
            tx.put(&table, key.as_bytes(), b"v")
        })
        .unwrap();
    }
    // As a kill leaves it.
    let mut bytes = std::fs::read(scratch.join("live.db")).unwrap();
    drop(db);
    let groups = (16..bytes.len() / 4096).filter(|page| bytes[page * 4096 + 38] == 1);
    let damaged = groups.clone().nth(11).unwrap();
    assert!(groups.count() >= 30);
    std::fs::write(scratch.join("x.db"), &bytes).unwrap();
    assert_eq!(out(&go("dump x.db")).lines().count(), 30);
    bytes[damaged * 4096 + 60] ^= 1;
    std::fs::write(scratch.join("x.db"), bytes).unwrap();
    for args in [
        "get x.db k00",
        "dump x.db",
        "backup x.db copy.db",
        "put x.db k v",
    ] {
        refused(&go(args), "an entry of the log is not whole");
    }
    let verify = go("verify x.db");
    assert_eq!(verify.status.code(), Some(1), "a problem is found");
    let told = out(&verify);
    assert!(
        told.contains("an entry of the log is not whole") && told.contains("1 problem"),
        "{told}"
    );
    let repair = go("repair x.db --to saved.db");
    assert_eq!(repair.status.code(), Some(1), "something is lost");
    let told = out(&repair);
    assert!(told.starts_with("lost: damaged at byte "), "{told}");
    assert_eq!(out(&go("dump saved.db")).lines().count(), 29);
}

/// Without its superblocks a database does not open; its content is found page by page.
#[test]
fn a_database_without_superblocks_is_repaired() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    for (key, value) in [("b", "2"), ("a", "1")] {
        assert!(go(&format!("put x.db {key} {value}")).status.success());
    }
    let mut bytes = std::fs::read(scratch.join("x.db")).unwrap();
    for copy in [0, 1, 8, 9] {
        bytes[copy * 4096 + 20] ^= 1;
    }
    std::fs::write(scratch.join("x.db"), &bytes).unwrap();
    refused(&go("get x.db a"), "no superblock is whole");
    let repair = go("repair x.db --to saved.db");
    assert!(repair.status.success(), "{}", out(&repair));
    assert_eq!(out(&go("range saved.db")), "a\t1\nb\t2\n");
    std::fs::remove_file(scratch.join("saved.db")).unwrap();
    // The whole first segment became something else, or nothing; that used to be refused.
    for byte in [0, b'x'] {
        bytes[..16 * 4096].fill(byte);
        std::fs::write(scratch.join("x.db"), &bytes).unwrap();
        refused(&go("get x.db a"), "not a Senko database");
        let repair = go("repair x.db --to saved.db");
        assert_eq!(repair.status.code(), Some(1), "{}", out(&repair));
        assert_eq!(out(&go("range saved.db")), "a\t1\nb\t2\n");
        std::fs::remove_file(scratch.join("saved.db")).unwrap();
    }
    std::fs::write(scratch.join("foreign"), vec![b'x'; 300_000]).unwrap();
    refused(&go("repair foreign --to y.db"), "not a Senko database");
    assert!(!scratch.join("y.db").exists());
}

#[test]
fn records_go_in_come_out_in_order_and_go() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    for (key, value) in [("b", "2"), ("a", "1"), ("c", "3")] {
        assert!(go(&format!("put x.db {key} {value}")).status.success());
    }
    assert_eq!(out(&go("get x.db b")), "2\n");
    assert_eq!(go("get x.db z").status.code(), Some(1));
    assert_eq!(out(&go("range x.db --from b")), "b\t2\nc\t3\n");
    let last = go("range x.db --reverse --limit 1");
    assert_eq!(out(&last), "c\t3\n");
    assert!(
        dbm(&scratch, ["put", "x.db", "--hex", "00ff", ""])
            .status
            .success()
    );
    assert_eq!(go("delete x.db a z").status.code(), Some(1));
    let dump = out(&go("dump x.db"));
    assert_eq!(
        dump.lines().next().unwrap(),
        r#"{"key_hex":"00ff","table":"main","value":""}"#
    );
    assert_eq!(dump.lines().count(), 3);
    assert!(go("dump x.db --to rows").status.success());
    assert_eq!(std::fs::read_to_string(scratch.join("rows")).unwrap(), dump);
    assert!(!scratch.join("rows.part").exists());
    refused(&go("dump x.db --to rows"), "rows exists already");
    std::fs::write(scratch.path().join("rows"), &dump).unwrap();
    assert!(go("load y.db rows").status.success());
    assert_eq!(out(&go("dump y.db")), dump);
    assert!(out(&go("tables y.db")).ends_with("3  main\n"));
    let verify = go("verify y.db --json");
    assert!(verify.status.success());
    assert!(out(&verify).contains(r#""problems":[]"#));
    assert!(out(&go("stats y.db")).contains("file_bytes"));
    let bench = "bench z.db --transactions 20 --json";
    assert!(out(&go(bench)).contains(r#""transactions":20"#));
}

/// `senko dbm put` used to make a database over a file system whose first pages are zero, like
/// btrfs, and over a database that had lost both superblocks.
#[test]
fn what_lies_behind_zeros_is_not_overwritten() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    std::fs::write(scratch.join("rows"), "{\"key\":\"a\",\"value\":\"1\"}\n").unwrap();
    let mut image = vec![0; 4 << 20];
    image[(64 << 10) + 64..][..8].copy_from_slice(b"_BHRfS_M");
    assert!(go("put lost a 1").status.success());
    let mut lost = std::fs::read(scratch.join("lost")).unwrap();
    lost[..2 * 4096].fill(0);
    lost[8 * 4096..10 * 4096].fill(0);
    for (name, bytes, what) in [
        ("image", image, "btrfs"),
        ("lost", lost, "it holds data at byte"),
    ] {
        std::fs::write(scratch.join(name), &bytes).unwrap();
        for command in [
            &format!("put {name} a 1"),
            &format!("load {name} rows"),
            &format!("bench {name}"),
        ] {
            let said = go(command);
            refused(&said, "not a Senko database: it holds");
            refused(&said, what);
        }
        assert!(
            std::fs::read(scratch.join(name)).unwrap() == bytes,
            "{name} was changed"
        );
    }
    // A file of zeros belongs to nobody.
    std::fs::write(scratch.join("zeros"), vec![0; 4 << 20]).unwrap();
    assert!(go("put zeros a 1").status.success());
    assert_eq!(out(&go("get zeros a")), "1\n");
    // A folder is not a database that is too short.
    std::fs::create_dir(scratch.join("folder")).unwrap();
    refused(
        &go("put folder a 1"),
        "folder is neither a regular file nor a block device",
    );
}

/// A database that grew used to have further files. A user who copied the one file that the command
/// names had a damaged database.
#[test]
fn a_database_is_one_file() {
    let scratch = Scratch::new();
    for name in ["x.pag", "x.db"] {
        let bench = format!("bench {name} --transactions 2 --records 30000");
        let done = dbm(&scratch, format!("{bench} --durability buffered"));
        assert!(done.status.success());
        let names = std::fs::read_dir(scratch.path()).unwrap();
        let of_it = names.filter(|entry| {
            let found = entry.as_ref().unwrap().file_name().into_string().unwrap();
            found.starts_with(name)
        });
        assert_eq!(of_it.count(), 1, "{name}");
    }
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    refused(&go("get missing.db a"), "missing.db");
    assert!(!scratch.path().join("missing.db").exists());
    std::fs::write(scratch.path().join("foreign"), vec![b'x'; 300_000]).unwrap();
    refused(&go("put foreign a b"), "not a Senko database");
    refused(&go("get foreign a"), "not a Senko database");
    refused(
        &dbm(&scratch, ["put", "x.db", "--hex", "0", ""]),
        "hexadecimal",
    );
    assert!(!scratch.path().join("x.db").exists());
    std::fs::write(
        scratch.path().join("rows"),
        "{\"key\":\"a\",\"value\":\"1\"}\nno record\n",
    )
    .unwrap();
    refused(&go("load x.db rows"), "the record before it is loaded");
    assert_eq!(out(&go("get x.db a")), "1\n");
    refused(&go("get x.db a --table t"), "no table \"t\"");
}

/// `senko dbm bench` used to overwrite records of any database that it was given.
#[test]
fn a_benchmark_overwrites_no_records() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    let bench = "bench x.db --transactions 3";
    assert!(go("put x.db --hex 00000001 61").status.success());
    refused(&go(bench), "the table \"main\" of x.db has records");
    assert_eq!(out(&go("get x.db --hex 00000001")), "61\n");
    // A table of its own is empty at first.
    let own = format!("{bench} --table bench");
    assert!(go(&own).status.success());
    refused(&go(&own), "--existing runs on it");
    assert!(go(&format!("{own} --existing")).status.success());
    assert!(out(&go("tables x.db")).contains("3  bench"));
}

/// Ctrl-C used to discard the results of a benchmark.
#[test]
fn ctrl_c_prints_what_a_benchmark_measured() {
    let scratch = Scratch::new();
    let line = "dbm bench x.db --durability none --json --transactions 4000000000";
    let child = start(&scratch, line);
    hears_signals(&child);
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(130), "{text}");
    let line: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let done = line["transactions"].as_u64().unwrap();
    assert!((1..4_000_000_000).contains(&done), "{line}");
}

/// "Another program's content" was said of the other engine's files.
#[test]
fn a_file_of_the_other_engine_is_told() {
    let folder = Scratch::new();
    for (mine, theirs) in [("dbm", "store"), ("store", "dbm")] {
        let made = senko(mine, &folder, format!("put {mine} key value"));
        assert!(made.status.success());
        let refused = senko(theirs, &folder, format!("get {mine} key"));
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        has(&told, &format!("use `senko {mine}`"));
    }
}

/// A dump of a store lost its `expires_at` without a word: what was to be gone in an hour stayed.
#[test]
fn an_expiry_is_not_lost_unseen() {
    let scratch = Scratch::new();
    let go = |args: &str| dbm(&scratch, args);
    let rows = "{\"key\":\"a\",\"value\":\"1\"}\n\
                {\"key\":\"b\",\"value\":\"2\",\"expires_at\":4102444800}\n\
                {\"key\":\"c\",\"value\":\"3\",\"ttl\":60}\n\
                {\"key\":\"d\",\"value\":\"4\",\"expires_at\":null}\n";
    let csv = "key,value,expires_at\na,1,\nb,2,4102444800\nc,3,4102444800\nd,4,0\n";
    for (name, content) in [("rows.jsonl", rows), ("rows.csv", csv)] {
        std::fs::write(scratch.join(name), content).unwrap();
        let db = format!("{name}.db");
        let told = "an expiry, which a database can't keep: --drop-expiry";
        refused(&go(&format!("load {db} {name} --whole")), told);
        assert!(!scratch.join(&db).exists());
        let load = go(&format!("load {db} {name} --drop-expiry"));
        assert!(load.status.success(), "{load:?}");
        let said = String::from_utf8(load.stderr).unwrap();
        let wanted = "4 records loaded, 2 of them without their expiry\n";
        assert!(said.ends_with(wanted), "{said}");
        assert_eq!(out(&go(&format!("get {db} c"))), "3\n");
    }
}
