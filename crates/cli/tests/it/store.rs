// SPDX-License-Identifier: Apache-2.0
//! `senko store`, called as by a user: its messages, and the files that remain after an
//! interruption.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::process::{SENKO, Scratch, Words, has, senko, start};

fn store(folder: &Scratch, args: impl Words) -> Output {
    senko("store", folder, args)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A command that must succeed; returns its stdout.
fn done(folder: &Scratch, args: impl Words) -> String {
    let output = store(folder, &args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    out(&output)
}

/// Rows `first..end` as JSON lines, with values of this many bytes.
fn rows(first: u64, end: u64, bytes: usize) -> String {
    let value = "v".repeat(bytes);
    (first..end)
        .map(|row| format!("{{\"key\":\"key{row}\",\"value\":\"{value}\"}}\n"))
        .collect()
}

fn signal(child: &Child, name: &str) {
    // A process that ended meanwhile is not a failure.
    let _ = Command::new("kill")
        .args([name, &child.id().to_string()])
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

/// Starts a command and sends it a signal as soon as `draft` exists. Returns its exit code, if it
/// has one.
fn broken_off(folder: &Scratch, args: impl Words, draft: &Path, name: &str) -> Option<i32> {
    let mut child = start(folder, [&["store"], &args.words()[..]].concat());
    while !draft.exists() {
        if let Some(ended) = child.try_wait().unwrap() {
            return ended.code();
        }
        std::thread::yield_now();
    }
    signal(&child, name);
    child.wait().unwrap().code()
}

/// `senko store backup` was killed midway and left `copy.kv` with half of the keys: `verify` found
/// no problem in it, so nobody could notice. The same was true of a dump to a file. Now a file with
/// its final name is complete.
#[test]
fn a_copy_that_is_broken_off_has_not_its_name() {
    let folder = Scratch::new();
    std::fs::write(folder.join("rows.jsonl"), rows(0, 40_000, 1000)).unwrap();
    done(&folder, "load data.kv rows.jsonl --block-size 4m");
    for (args, copy) in [
        ("backup data.kv copy.kv", "copy.kv"),
        ("repair data.kv saved.kv", "saved.kv"),
        ("dump data.kv --to out.jsonl", "out.jsonl"),
    ] {
        let (copy, draft) = (folder.join(copy), folder.join(&format!("{copy}.part")));
        let mut caught = 0;
        // The process may end before the signal arrives. Then the copy is complete, and the test
        // tries again.
        for attempt in 0..40 {
            if caught == 2 {
                break;
            }
            let name = ["-KILL", "-INT"][caught];
            let code = broken_off(&folder, args, &draft, name);
            if copy.exists() {
                assert!(!draft.exists(), "{args:?}, attempt {attempt}");
                std::fs::remove_file(&copy).unwrap();
                continue;
            }
            if name == "-KILL" {
                assert!(draft.exists(), "{args:?}, attempt {attempt}");
                // The next copy removes it. It used to be refused until somebody did that by hand.
                done(&folder, args);
                assert!(copy.exists() && !draft.exists(), "{args:?}");
                std::fs::remove_file(&copy).unwrap();
            } else {
                // Ctrl-C cleans up.
                assert!(!draft.exists(), "{args:?}, attempt {attempt}");
                assert_eq!(code, Some(130), "{args:?}, attempt {attempt}");
            }
            caught += 1;
        }
        assert_eq!(caught, 2, "{args:?} always ended before the signal");
        done(&folder, args);
        assert!(copy.exists() && !draft.exists());
    }
    assert_eq!(done(&folder, "scan copy.kv --count"), "40000\n");
    assert_eq!(done(&folder, "scan saved.kv --count"), "40000\n");
    let dumped = std::fs::read_to_string(folder.join("out.jsonl")).unwrap();
    assert_eq!(dumped.lines().count(), 40_000);
}

/// A small file system in memory, unmounted at the end.
struct Tmpfs(Scratch);

impl Tmpfs {
    fn new(mib: u64) -> Option<Tmpfs> {
        let folder = Scratch::new();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "senko-test"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Tmpfs(folder));
        }
        println!("skipped: only root may mount a file system, and not in every container");
        None
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn file_blocks(file: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(file)
}

/// A new store that did not fit said that all was in use, where nothing was.
#[test]
fn a_new_store_that_does_not_fit_says_what_may() {
    let Some(small) = Tmpfs::new(24) else {
        return;
    };
    let refused = store(&small.0, "put s.kv a b");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    has(&said, "a log of 64 MiB ");
    has(&said, "smaller logs");
    done(&small.0, "put s.kv a b --log-size 1m --block-size 1m");
    let plain = store(&small.0, "put s.kv a b --compaction-rate 20m");
    let said = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert_eq!(plain.status.code(), Some(2), "{said}");
    has(&said, "\"20m\" is not a rate of a byte a second or more");
}

/// On a full tmpfs of 64 MiB, deletes used to stop after 17,000 of 60,480 keys, and `compact`
/// failed. The same happened when other files took the rest of the file system, including the space
/// that the store had given back.
#[test]
fn a_store_on_a_full_file_system_is_emptied() {
    let rest = Scratch::new();
    std::fs::write(rest.join("some"), rows(0, 16_000, 1000)).unwrap();
    std::fs::write(rest.join("many"), rows(16_000, 70_000, 1000)).unwrap();
    std::fs::write(rest.join("few"), rows(0, 3000, 1000)).unwrap();
    let rest_of = |name: &str| rest.join(name).to_str().unwrap().to_owned();
    let load = |folder: &Scratch, name: &str| {
        done(folder, format!("load data.kv {}", rest_of(name)));
    };
    for (others, shrinks) in [(false, false), (true, false), (true, true)] {
        let Some(full) = Tmpfs::new(48) else {
            return;
        };
        let folder = &full.0;
        done(
            folder,
            format!("load data.kv {} --block-size 1m", rest_of("some")),
        );
        if shrinks {
            // A second load and its deletes leave free space, inside and at the end.
            let second: String = (0..12_000)
                .map(|row| format!("{{\"key\":\"key{row}\",\"value\":null}}\n"))
                .collect();
            std::fs::write(rest.join("second"), second).unwrap();
            load(folder, "second");
            let file = std::fs::metadata(folder.join("data.kv")).unwrap();
            let said = done(folder, "compact data.kv --shrink");
            has(&said, " given back: ");
            let shrunk = std::fs::metadata(folder.join("data.kv")).unwrap();
            assert!(file_blocks(&shrunk) < file_blocks(&file) * 3 / 4, "{said}");
        }
        if others {
            let mut other = std::fs::File::create(folder.join("other")).unwrap();
            while std::io::Write::write(&mut other, &[1; 65_536]).is_ok_and(|n| n > 0) {}
        }
        let refused = store(folder, format!("load data.kv {}", rest_of("many")));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        has(&said, "no space left");
        let held: u64 = done(folder, "scan data.kv --count").trim().parse().unwrap();
        let first = if shrinks { 12_000 } else { 0 };
        let least = 16_000 - first;
        assert!((least..60_000).contains(&held), "{held}");
        let deletes: String = (first..first + held)
            .map(|row| format!("{{\"key\":\"key{row}\",\"value\":null}}\n"))
            .collect();
        std::fs::write(rest.join("deletes"), deletes).unwrap();
        load(folder, "deletes");
        done(folder, "compact data.kv");
        assert_eq!(done(folder, "scan data.kv --count"), "0\n");
        // Other files take the space that the store gave back.
        let (again, count) = if shrinks {
            ("few", "3000\n")
        } else {
            ("some", "16000\n")
        };
        load(folder, again);
        assert_eq!(done(folder, "scan data.kv --count"), count);
        done(folder, "verify data.kv");
    }
}

/// If the target of `senko dbm backup` was full or existed already, the error used to name the
/// source.
#[test]
fn a_target_that_takes_no_copy_is_told_as_the_target() {
    let folder = Scratch::new();
    std::fs::write(folder.join("rows"), rows(0, 20_000, 1000)).unwrap();
    let run = |kind: &str, args: &str| {
        let output = senko(kind, &folder, args);
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    for (kind, source) in [("store", "a.kv"), ("dbm", "a.db")] {
        assert_eq!(run(kind, &format!("load {source} rows")).0, Some(0));
        for (to, reason) in [
            ("rows", "rows exists already"),
            ("no/copy", "cannot make no/copy: there is no folder no"),
        ] {
            let (code, said) = run(kind, &format!("backup {source} {to}"));
            assert_eq!(
                (code, said),
                (Some(2), format!("senko: {reason}\n")),
                "{kind}"
            );
        }
        let Some(full) = Tmpfs::new(2) else {
            continue;
        };
        let to = full.0.join("copy");
        let to = to.to_str().unwrap();
        let (code, said) = run(kind, &format!("backup {source} {to}"));
        assert_eq!(code, Some(2), "{said}");
        has(&said, to);
        assert!(!said.contains(&format!("{source}:")), "{said}");
        let left = std::fs::read_dir(full.0.path()).unwrap().count();
        assert_eq!(left, 0, "{said}");
    }
}

/// The one line on stderr of a command that must be refused.
fn refused(folder: &Scratch, args: impl Words) -> String {
    let output = store(folder, &args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{args:?}: {said}");
    said
}

/// After Ctrl-C, a load used to say nothing about the rows that it had put, and a dump of the DBM
/// left its partial file.
#[test]
fn a_load_or_a_dump_that_is_interrupted_says_so_and_cleans_up() {
    let folder = Scratch::new();
    std::fs::write(folder.join("rows"), rows(0, 100_000, 200)).unwrap();
    // Each row is synced, so the load is still running when the signal arrives.
    let slowly = "store load x.kv rows --batch 1 --synced";
    let child = start(&folder, &slowly);
    crate::process::hears_signals(&child);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = out(&output);
    let loaded: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!(loaded < 100_000, "{said}");
    let count = done(&folder, "scan x.kv --count");
    assert_eq!(count.trim().parse::<u64>().unwrap(), loaded);

    let made = start(&folder, "dbm load d.db rows").wait_with_output();
    assert!(made.unwrap().status.success());
    let mut child = start(&folder, "dbm dump d.db --to dump");
    let (whole, part) = (folder.join("dump"), folder.join("dump.part"));
    while !part.exists() && !whole.exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    // It may have finished just before.
    let code = if whole.exists() { 0 } else { 130 };
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(!part.exists());
}

/// `{"key":"bin","value":null,"value_base64":"AP8="}` used to delete the key. A CSV with an empty
/// `value` and a `value_base64` stored nothing, and of two key columns the first counted. An
/// ambiguous row is now refused, with its line and column.
#[test]
fn a_row_with_two_readings_is_refused() {
    let folder = Scratch::new();
    for (name, text, place) in rows! {
        "a.jsonl", r#"{"key":"bin","value":null,"value_base64":"AP8="}"#, "line 1, column 40";
        "b.jsonl", r#"{"key":"a","value":"1","value":"2"}"#, "line 1, column 30";
        "c.jsonl", r#"{"key_hex":"61","key":"a","value":"1"}"#, "line 1, column 21";
        "d.jsonl", r#"{"key":"a","value":"1","ttl":1,"ttl":2}"#, "line 1, column 36";
        "e.jsonl", r#"{"key":"a","value":null,"ttl":5}"#, "line 1, column 32";
        "i.jsonl", r#"{"key":"a","value":"","ttl":5,"expires_at":6}"#, "line 1, column 45";
        // Ambiguous: never, or at once? Seconds, or milliseconds?
        "j.jsonl", r#"{"key":"a","value":"","ttl":0}"#, "line 1, column 30";
        "k.jsonl", r#"{"key":"a","value":"","expires_at":1795677686367}"#, "line 1, column 49";
        "l.txt", "[{\"key\":\"a\",\"value\":\"1\"}]",
            "line 1: it is not a JSON object but an array";
        "f.jsonl", r#"{"key":"a","value_base64":"%"}"#, "line 1, column 30";
        "g.jsonl", r#"{"key":"a","value":"#, "line 1, column 19";
        "h.jsonl", "[1]", "line 1: it is not a JSON object";
        "a.csv", "key,value,value_base64\nbin,,AP8=\n", "line 1, column 3";
        "b.csv", "key,value,key\na,1,b\n", "line 1, column 3";
        "c.csv", "key,key_hex,value\na,62,1\n", "line 1, column 2";
        "d.csv", "key,value,ttl,ttl\na,1,2,3\n", "line 1, column 4";
        "e.csv", "key,value_hex\na,0g\n", "line 2, column 2";
        "f.csv", "ttl,key,value\nsoon,a,1\n", "line 2, column 1";
        "g.csv", "ttl,key,value\n0,a,1\n", "line 2, column 1: \"ttl\" is 0";
        "h.csv", "key,expires_at,value\na,1795677686367,1\n",
            "line 2, column 2: \"expires_at\" is 1795677686367";
        "i.csv", "key,expires_at,value,ttl\na,2000000000,1,5\n", "line 2, column 4";
        "u.csv", "\u{0}", "line 1: it is UTF-16, and must be UTF-8";
        "w.csv", "key,value\na\n", "line 2: the row has 1 field where the first line has 2";
    } {
        let mut bytes = text.as_bytes().to_vec();
        if name == "u.csv" {
            bytes = b"\xff\xfek\0e\0y\0".to_vec();
        }
        std::fs::write(folder.join(name), bytes).unwrap();
        let said = refused(&folder, format!("load new.kv {name}"));
        has(&said, &format!("{name}, {place}"));
        assert!(!folder.join("new.kv").exists(), "{name} left a store");
    }
    // A wrong row further down is reported with its line, and the rows before it stay.
    let later = format!("{}{}", rows(0, 3, 5), "{\"key\":\"x\",\"value\":1}\n");
    std::fs::write(folder.join("later.jsonl"), later).unwrap();
    let said = refused(&folder, "load new.kv later.jsonl --batch 1 --block-size 1m");
    assert!(
        said.contains("line 4, column") && said.contains("3 rows were loaded"),
        "{said}"
    );
    assert_eq!(done(&folder, "scan new.kv --count"), "3\n");
    // Other fields of an object are ignored, and null is not a time.
    let other = r#"{"other":1,"other":2,"key":"o","value":"1","ttl":null,"expires_at":0}"#;
    std::fs::write(folder.join("other.jsonl"), other).unwrap();
    done(&folder, "load new.kv other.jsonl");
    assert_eq!(done(&folder, "get new.kv o"), "1");
}

/// A store of one record takes 64 MiB, also after `compact --shrink` and in a copy. Nothing said
/// why.
#[test]
fn a_small_store_says_that_its_file_is_its_log() {
    let folder = Scratch::new();
    done(&folder, "put small.kv a 1 --block-size 8m");
    let said = done(&folder, "compact small.kv --shrink");
    has(
        &said,
        "8 MiB are its log (--log-size), which every store has",
    );
    let said = done(&folder, "backup small.kv copy.kv");
    has(&said, "8 MiB are its log");
    std::fs::write(folder.join("rows"), rows(0, 15_000, 1000)).unwrap();
    done(&folder, "load small.kv rows");
    for command in ["compact small.kv --shrink", "backup small.kv larger.kv"] {
        let said = done(&folder, command);
        assert!(!said.contains("log"), "{command}: {said}");
    }
}

/// A machine's clock stood thousands of years ahead for a while. All later writes have times after
/// that, and nothing said so.
#[test]
fn a_store_whose_times_are_ahead_of_the_clock_says_so() {
    let folder = Scratch::new();
    done(&folder, "put now.kv a 1 --block-size 1m");
    let year_4000 = 64_060_588_800_000_000;
    let options = senko_store::Options {
        block_bytes: 1 << 20,
        clock: senko_store::Clock::Own(std::sync::Arc::new(move || year_4000)),
        ..senko_store::Options::default()
    };
    let ahead = senko_store::Store::open(folder.join("ahead.kv"), options).unwrap();
    ahead.put(b"a", b"1").unwrap();
    ahead.close().unwrap();
    for command in [
        "get KV a",
        "put KV a 2",
        "history KV a",
        "stats KV",
        "compact KV",
    ] {
        let said = |name| {
            let output = store(&folder, command.replace("KV", name));
            assert!(output.status.success(), "{command}: {output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        has(
            &said("ahead.kv"),
            "its newest write has the time 4000-01-01T",
        );
        assert_eq!(said("now.kv"), "", "{command}");
    }
}

/// A spreadsheet's CSV begins with a byte order mark. Its first column used to be named
/// `\u{feff}key`, so `key` was missing.
#[test]
fn a_byte_order_mark_is_skipped() {
    let folder = Scratch::new();
    std::fs::write(folder.join("a.csv"), "\u{feff}key,value\na,1\n").unwrap();
    std::fs::write(
        folder.join("b.jsonl"),
        "\u{feff}{\"key\":\"b\",\"value\":\"2\"}\n",
    )
    .unwrap();
    std::fs::write(
        folder.join("c.txt"),
        "\u{feff} \n{\"key\":\"c\",\"value\":\"3\"}\n",
    )
    .unwrap();
    for name in ["a.csv", "b.jsonl", "c.txt"] {
        done(&folder, format!("load x.kv {name} --block-size 1m"));
    }
    let all = done(&folder, "get x.kv a b c");
    assert_eq!(all, "a\t1\nb\t2\nc\t3\n");
}

/// A missing permission and a loop of links used to be reported as "There is no store", and a file
/// that is not a store as too small. Each reason is now reported as it is, and a first put that is
/// refused leaves nothing.
#[test]
fn the_reason_that_is_told_is_the_reason() {
    let folder = Scratch::new();
    std::os::unix::fs::symlink("loop", folder.join("loop")).unwrap();
    std::fs::write(folder.join("note"), "hello").unwrap();
    std::fs::write(folder.join("zeros"), [0; 100]).unwrap();
    std::fs::create_dir(folder.join("folder")).unwrap();
    for (path, reason) in [
        ("loop", "symbolic links"),
        ("note/kv", "Not a directory"),
        ("note", "not a Senko store: it has 5 bytes"),
        ("zeros", "not a Senko store: it has 100 bytes"),
        ("folder", "neither a regular file nor a block device"),
    ] {
        for command in [
            &format!("get {path} k"),
            &format!("put {path} k v"),
            &format!("verify {path}"),
            &format!("stats {path}"),
            &format!("compact {path}"),
            &format!("backup {path} copy"),
            &format!("repair {path} copy"),
        ] {
            let said = refused(&folder, command);
            assert!(
                said.contains(reason) && said.contains(path),
                "{command:?}: {said}"
            );
        }
    }
    assert!(refused(&folder, "get nothing k").contains("there is no store at nothing"));
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 4, "something was left behind");
    // Nothing is left of a store that could not be made, or whose first put was refused.
    let long = "k".repeat(70_000);
    for command in [
        &format!("put new.kv {long} v"),
        "put new.kv k v --max-size 1k",
        "put new.kv k v --block-size 1m --max-size 1m",
        "put new.kv k v --page-size 5k",
    ] {
        refused(&folder, command);
        assert!(!folder.join("new.kv").exists(), "{command:?} left a store");
    }
    refused(&folder, ["put", "new.kv", "", "v"]);
    assert!(!folder.join("new.kv").exists());
    // A bound below the space in use is refused, and changes nothing.
    done(&folder, "put data.kv k v --block-size 1m");
    for command in [
        "put data.kv k w --max-size 1k",
        "delete data.kv k --max-size 64k",
        "compact data.kv --max-size 64k",
    ] {
        let said = refused(&folder, command);
        assert!(
            said.contains(" in use, and is to have"),
            "{command:?}: {said}"
        );
    }
    assert_eq!(done(&folder, "get data.kv k"), "v");
    done(&folder, "put data.kv k w --max-size 64m");
}

/// Runs `senko store` in a shell with a limit on file size, in blocks of 1024 bytes.
fn limited(folder: &Scratch, blocks: u64, args: &str) -> (Option<i32>, String) {
    let line = format!("ulimit -f {blocks}; exec {SENKO} store {args}");
    let output = Command::new("bash")
        .args(["-c", &line])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// Beyond `ulimit -f` a signal used to end the process without a message. And a full target of a
/// backup was reported as if the source were full.
#[test]
fn a_file_that_may_not_grow_is_told_of() {
    let folder = Scratch::new();
    std::fs::write(folder.join("rows.jsonl"), rows(0, 12_000, 1000)).unwrap();
    let (code, said) = limited(&folder, 8192, "load d.kv rows.jsonl --block-size 1m");
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("no space left") && said.contains("d.kv"),
        "{said}"
    );
    assert_eq!(done(&folder, "verify d.kv").lines().count(), 1);
    done(&folder, "load whole.kv rows.jsonl --block-size 1m");
    for (args, target) in [
        ("backup whole.kv copy.kv", "copy.kv"),
        ("repair whole.kv copy.kv", "copy.kv"),
        ("dump whole.kv --to copy.jsonl", "copy.jsonl"),
    ] {
        let (code, said) = limited(&folder, 4096, args);
        assert_eq!(code, Some(2), "{args}: {said}");
        assert!(
            said.contains(target) && !said.contains("whole.kv"),
            "{args}: {said}"
        );
        assert!(!folder.join(target).exists(), "{args}");
        assert!(!folder.join(&format!("{target}.part")).exists(), "{args}");
    }
    let (code, said) = limited(&folder, 16, "put new.kv k v --block-size 1m");
    assert_eq!(code, Some(2), "{said}");
    has(&said, "ulimit -f");
    assert!(!folder.join("new.kv").exists());
}

/// `senko store bench --keys 4m`, which its own help shows, used to be refused. The store's
/// numbers, sizes, rates and times are written as everywhere else.
#[test]
fn numbers_are_written_as_anywhere_else() {
    let folder = Scratch::new();
    let out = done(
        &folder,
        "bench b.kv --keys 2k -n 1e3 --block-size 1MiB --get-ratio 90% --absent 10% --cache 1m --compaction-rate 20m/s --json",
    );
    let steps: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0]["operations"], 2000);
    assert_eq!(steps[1]["operations"], 1000);
    assert_eq!(steps[1]["settings"]["keys"], 2000);
    assert!(!folder.join("b.kv").exists());
    done(
        &folder,
        &[
            "put",
            "x.kv",
            "k",
            "v",
            "--ttl",
            "1.5 h",
            "--block-size",
            "1m",
        ],
    );
    assert_eq!(done(&folder, "scan x.kv --count --limit 4m"), "1\n");
    for wrong in ["--keys 0", "--keys 4q", "--threads 1025", "--absent 1.5"] {
        let output = store(&folder, format!("bench b.kv {wrong}"));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!folder.join("b.kv").exists());
    }
}

/// Ctrl-C used to leave the store of a bench behind, and printed nothing.
#[test]
fn a_bench_that_is_interrupted_prints_what_there_is() {
    // If the signal comes before the run has begun, there is nothing to print.
    let printed = (0..50).find_map(|_| interrupted_bench());
    assert!(printed.is_some(), "no run was printed");
}

fn interrupted_bench() -> Option<()> {
    let folder = Scratch::new();
    let line = "store bench b.kv --keys 1k -d 10m --block-size 1m --json";
    let mut child = start(&folder, line);
    // The load has ended: the run is about to begin, and lasts ten minutes.
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    has(&line, "\"step\":\"load\"");
    signal(&child, "-INT");
    line.clear();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    has(&said, "interrupted");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let step: serde_json::Value = serde_json::from_str(&line).ok()?;
    assert_eq!(step["step"], "run");
    Some(())
}

/// With a closed stdout every command printed into nothing, and ended with 0.
#[test]
fn a_closed_stdout_is_told() {
    let folder = Scratch::new();
    let run = |command: &str, stdout: &str| {
        let out = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {command} {stdout}"), SENKO])
            .current_dir(folder.path())
            .output()
            .unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    // These print nothing, so they need no stdout.
    for command in [
        "store put s.kv k v --log-size 1m --block-size 1m",
        "store dump s.kv --to rows.jsonl",
        "dbm put d.db k v",
        "dbm dump d.db --to d.jsonl",
    ] {
        let (code, said) = run(command, ">&-");
        assert_eq!(code, Some(0), "{command}: {said}");
    }
    for command in [
        "store get s.kv k",
        "store dump s.kv",
        "store scan s.kv",
        "store stats s.kv",
        "store verify s.kv",
        "dbm get d.db k",
        "dbm dump d.db",
        "dbm range d.db",
        "dbm verify d.db",
        "dbm stats d.db",
        "ssd parts",
        "ssd run uniform:count=10 --profile paper-1gb",
        "plan --ratios",
        "version",
        "--version",
        "--help",
    ] {
        let (code, said) = run(command, ">&-");
        assert_eq!(code, run(command, ">/dev/full").0, "{command}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(
            last, "senko: cannot write to stdout: it is closed",
            "{command}"
        );
    }
}

/// `senko store put k <&-` used to store an empty value: a closed stream reads as an empty one.
#[test]
fn a_closed_stdin_is_no_empty_input() {
    let folder = Scratch::new();
    let run = |command: &str, stdin: &str| {
        Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {command} {stdin}"), SENKO])
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    for command in [
        "store put s.kv k",
        "store put s.kv k --from -",
        "store put s.kv k --from /dev/stdin",
        "store load s.kv",
        "store load s.kv -",
        "dbm load d",
        "dbm load d -",
        "ssd run - --format spc",
        "ssd trace info /dev/stdin",
    ] {
        let out = run(command, "<&-");
        assert!(!out.status.success(), "{command}");
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(said.contains("stdin is closed"), "{command}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(
        !run("store get s.kv k", "<&-").status.success(),
        "nothing was stored"
    );
    // An existing but empty input is a value.
    for (command, stdin) in [
        ("store put s.kv k", "</dev/null"),
        ("store put s.kv l", "<>/dev/null"),
    ] {
        let out = run(command, stdin);
        assert!(out.status.success(), "{command} {stdin}: {out:?}");
    }
    let out = run("store get s.kv l", "<&-");
    assert!(
        out.status.success() && out.stdout.trim_ascii().is_empty(),
        "{out:?}"
    );
}

/// A store keeps the index that it was made with, and works alike with both.
#[test]
fn the_index_is_chosen_when_a_store_is_made() {
    let folder = Scratch::new();
    for (file, args, index) in [
        ("a.kv", "put a.kv k v", "static"),
        ("b.kv", "put b.kv k v --index bloom", "bloom"),
    ] {
        assert!(store(&folder, args).status.success(), "{args:?}");
        let found = store(&folder, format!("get {file} k"));
        assert_eq!(found.stdout.trim_ascii(), b"v", "{file}");
        let stats = store(&folder, format!("stats {file} --json")).stdout;
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        assert_eq!(stats["index"], index, "{stats}");
    }
    let other = store(&folder, "put b.kv l v --index static");
    let told = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{told}");
    has(&told, "bloom");
}
