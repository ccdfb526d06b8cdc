// SPDX-License-Identifier: Apache-2.0
//! `senko store` as a user calls it: what it leaves behind when it is broken off, and what it says.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::process::{SENKO, Scratch};

fn store(folder: &Scratch, args: &[&str]) -> Output {
    Command::new(SENKO)
        .arg("store")
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn started(folder: &Scratch, args: &[&str]) -> Child {
    Command::new(SENKO)
        .arg("store")
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A command that must work; gives its stdout.
fn done(folder: &Scratch, args: &[&str]) -> String {
    let output = store(folder, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    out(&output)
}

/// Rows `first..end` as JSON lines, with values of so many bytes.
fn rows(first: u64, end: u64, bytes: usize) -> String {
    let value = "v".repeat(bytes);
    (first..end)
        .map(|row| format!("{{\"key\":\"key{row}\",\"value\":\"{value}\"}}\n"))
        .collect()
}

fn signal(child: &Child, name: &str) {
    // One that ended meanwhile is no failure.
    let _ = Command::new("kill")
        .args([name, &child.id().to_string()])
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

/// Starts a command and sends it a signal as soon as `draft` is there. Gives its exit code where it has one.
fn broken_off(folder: &Scratch, args: &[&str], draft: &Path, name: &str) -> Option<i32> {
    let mut child = started(folder, args);
    while !draft.exists() {
        if let Some(ended) = child.try_wait().unwrap() {
            return ended.code();
        }
        std::thread::yield_now();
    }
    signal(&child, name);
    child.wait().unwrap().code()
}

/// `senko store backup` was killed midway and left `copy.kv` with half of the keys: `verify` found no problem in it, and
/// nobody could tell. The same went for a dump to a file. What has its name is whole.
#[test]
fn a_copy_that_is_broken_off_has_not_its_name() {
    let folder = Scratch::new();
    std::fs::write(folder.join("rows.jsonl"), rows(0, 40_000, 1000)).unwrap();
    done(
        &folder,
        &["load", "data.kv", "rows.jsonl", "--block-size", "4m"],
    );
    for (args, copy) in [
        (&["backup", "data.kv", "copy.kv"][..], "copy.kv"),
        (&["repair", "data.kv", "saved.kv"][..], "saved.kv"),
        (&["dump", "data.kv", "--to", "out.jsonl"][..], "out.jsonl"),
    ] {
        let (copy, draft) = (folder.join(copy), folder.join(&format!("{copy}.part")));
        let mut caught = 0;
        // The process may end before the signal comes: then the copy is whole, and there is another try.
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
                let again = store(&folder, args);
                let said = String::from_utf8_lossy(&again.stderr).into_owned();
                assert!(said.contains("exists already"), "{args:?}: {said}");
                std::fs::remove_file(&draft).unwrap();
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
    assert_eq!(done(&folder, &["scan", "copy.kv", "--count"]), "40000\n");
    assert_eq!(done(&folder, &["scan", "saved.kv", "--count"]), "40000\n");
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

/// On a full tmpfs of 64 MiB, deletes stopped after 17,000 of 60,480 keys, and `compact` failed. The same where other files
/// take the rest of the file system.
#[test]
fn a_store_on_a_full_file_system_is_emptied() {
    let rest = Scratch::new();
    std::fs::write(rest.join("some"), rows(0, 16_000, 1000)).unwrap();
    std::fs::write(rest.join("many"), rows(16_000, 70_000, 1000)).unwrap();
    let (some, many) = (rest.join("some"), rest.join("many"));
    for others in [false, true] {
        let Some(full) = Tmpfs::new(48) else {
            return;
        };
        let folder = &full.0;
        let some = some.to_str().unwrap();
        done(folder, &["load", "data.kv", some, "--block-size", "1m"]);
        if others {
            let mut other = std::fs::File::create(folder.join("other")).unwrap();
            while std::io::Write::write(&mut other, &[1; 65_536]).is_ok_and(|n| n > 0) {}
        }
        let refused = store(folder, &["load", "data.kv", many.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("no space left"), "{said}");
        let held: u64 = done(folder, &["scan", "data.kv", "--count"])
            .trim()
            .parse()
            .unwrap();
        assert!((16_000..60_000).contains(&held), "{held}");
        let deletes: String = (0..held)
            .map(|row| format!("{{\"key\":\"key{row}\",\"value\":null}}\n"))
            .collect();
        std::fs::write(rest.join("deletes"), deletes).unwrap();
        let deletes = rest.join("deletes");
        done(folder, &["load", "data.kv", deletes.to_str().unwrap()]);
        done(folder, &["compact", "data.kv"]);
        assert_eq!(done(folder, &["scan", "data.kv", "--count"]), "0\n");
        done(folder, &["load", "data.kv", some]);
        assert_eq!(done(folder, &["scan", "data.kv", "--count"]), "16000\n");
        done(folder, &["verify", "data.kv"]);
    }
}
