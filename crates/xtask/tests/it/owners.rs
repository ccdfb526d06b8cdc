// SPDX-License-Identifier: Apache-2.0
//! Types that own state: only the files of one folder may write their fields or add methods.

use crate::complain;
use crate::tree::{File, rust_files};

/// A type, and the beginning of the paths of its files.
const OWNERS: [(&str, &str); 24] = [
    ("Shard", "crates/cache/src/shard"),
    ("Dram", "crates/cache/src/dram"),
    ("Flash", "crates/cache/src/flash"),
    ("Worker", "crates/server/src/worker"),
    ("Conns", "crates/server/src/worker/conns.rs"),
    ("Peers", "crates/server/src/worker/peers.rs"),
    ("Timers", "crates/server/src/worker/timers.rs"),
    ("Disk", "crates/server/src/worker/disk.rs"),
    ("Session", "crates/server/src/session.rs"),
    ("Parser", "crates/server/src/session/parser.rs"),
    ("Executor", "crates/server/src/session/executor.rs"),
    ("Value", "crates/server/src/session/value.rs"),
    ("Forwarded", "crates/server/src/session/forwarded.rs"),
    ("Walk", "crates/server/src/session/walk.rs"),
    ("Pages", "crates/dbm/src/pages"),
    ("Readers", "crates/dbm/src/writer/readers.rs"),
    ("Room", "crates/dbm/src/writer/room.rs"),
    ("Progress", "crates/dbm/src/writer/progress.rs"),
    ("Old", "crates/dbm/src/writer/old.rs"),
    ("Changed", "crates/dbm/src/writer/changed.rs"),
    ("Backlog", "crates/dbm/src/writer/backlog.rs"),
    ("Latch", "crates/dbm/src/core/latch.rs"),
    ("Signal", "crates/dbm/src/core/signal.rs"),
    ("Maps", "crates/dbm/src/disk/maps.rs"),
];

/// The crate of a path: `crates/cache/`.
fn crate_of(path: &str) -> &str {
    let end = path
        .match_indices('/')
        .nth(1)
        .map_or(path.len(), |(n, _)| n + 1);
    &path[..end]
}

/// Whether a line opens an `impl` of the type.
fn is_impl(line: &str, name: &str) -> bool {
    let Some(rest) = line.strip_prefix("impl") else {
        return false;
    };
    let what = rest.rsplit(" for ").next().unwrap_or(rest);
    let what = what.trim_start_matches([' ', '<']);
    let end = what
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(what.len());
    &what[..end] == name
}

/// The lines of the type's fields that begin with `pub`.
fn open_fields<'a>(file: &'a File, name: &str) -> Vec<&'a str> {
    let opens = |line: &str| {
        let line = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub ");
        line == format!("struct {name} {{")
    };
    file.text
        .lines()
        .skip_while(|line| !opens(line))
        .skip(1)
        .take_while(|line| *line != "}")
        .filter(|line| line.trim_start().starts_with("pub"))
        .collect()
}

#[test]
fn state_is_written_in_its_own_folder_only() {
    let mut complaints = Vec::new();
    for (name, folder) in OWNERS {
        let mut found = false;
        for file in rust_files() {
            if crate_of(&file.path) != crate_of(folder) {
                continue;
            }
            let own = file.path.starts_with(folder);
            for (number, line) in file.text.lines().enumerate() {
                if !is_impl(line, name) {
                    continue;
                }
                found |= own;
                if !own {
                    complaints.push(format!(
                        "{}:{}: `impl {name}` belongs to {folder}",
                        file.path,
                        number + 1
                    ));
                }
            }
            for field in open_fields(&file, name) {
                complaints.push(format!("{}: {name} has {}", file.path, field.trim()));
            }
        }
        if !found {
            complaints.push(format!("{folder} has no `impl {name}`"));
        }
    }
    complain("state with one owner", complaints);
}

#[test]
fn an_impl_is_known_by_its_type() {
    for line in [
        "impl Shard {",
        "impl Drop for Shard {",
        "impl<T> Deref for Shard<T> {",
    ] {
        assert!(is_impl(line, "Shard"), "{line}");
    }
    for line in [
        "impl Shards {",
        "impl Shard2 {",
        "impl Into<Shard> for Held {",
        "use Shard;",
    ] {
        assert!(!is_impl(line, "Shard"), "{line}");
    }
}
