// SPDX-License-Identifier: Apache-2.0
//! A store in a file that may only be read.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use senko_store::{Options, Store, StoreError, WriteOptions, repair, verify};

use crate::support::{Folder, small};

fn reading() -> Options {
    Options {
        read_only: true,
        ..Options::default()
    }
}

/// A store with something in a block, in a log and outside; closed well or not.
fn made(path: &Path, closed: bool) {
    let store = Store::open(path, small()).unwrap();
    store.put(b"in a block", b"1").unwrap();
    store.put(b"large", &[7; 300_000]).unwrap();
    store.seal().unwrap();
    store
        .put_with(b"in a log", b"2", WriteOptions::synced())
        .unwrap();
    if closed {
        store.close().unwrap();
    }
}

/// Descriptors of this process on a file, each with its access mode.
fn access_modes(path: &Path) -> Vec<u32> {
    let path = std::fs::canonicalize(path).unwrap();
    let mut modes = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let fd = entry.unwrap().path();
        if std::fs::read_link(&fd).is_ok_and(|to| to == path) {
            let name = fd.file_name().unwrap().to_owned();
            let info = Path::new("/proc/self/fdinfo").join(name);
            let info = std::fs::read_to_string(info).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = u32::from_str_radix(flags.unwrap_or("2").trim(), 8).unwrap();
            modes.push(flags & 3);
        }
    }
    modes
}

fn read_everything(path: &Path, store: &Store) {
    let modes = access_modes(path);
    assert!(!modes.is_empty());
    assert!(
        modes.iter().all(|mode| *mode == 0),
        "all are opened to be read: {modes:?}"
    );
    assert_eq!(
        store.get(b"in a block").unwrap().as_deref(),
        Some(&b"1"[..])
    );
    assert_eq!(store.get(b"in a log").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(store.get(b"large").unwrap().unwrap().len(), 300_000);
    assert_eq!(store.scan().unwrap().count(), 3);
    assert!(store.stats().read_only);
    let refused = store.put(b"key", b"value").unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused}");
    store.sync().unwrap();
}

/// A store on a read-only file system, or in a read-only file, used to be impossible to open for
/// reading.
#[test]
fn a_file_is_opened_to_be_read_and_stays_as_it_is() {
    for closed in [true, false] {
        let folder = Folder::new(&format!("read-{closed}"));
        let path = folder.0.join("kv");
        made(&path, closed);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        let before = std::fs::read(&path).unwrap();
        let times = |meta: std::fs::Metadata| (meta.mtime(), meta.mtime_nsec());
        let modified = times(std::fs::metadata(&path).unwrap());

        let one = Store::open(&path, reading()).unwrap();
        let other = Store::open(&path, reading()).unwrap();
        read_everything(&path, &one);
        read_everything(&path, &other);
        let held = Store::open(&path, small()).unwrap_err().to_string();
        assert!(held.contains("is in use by this process"), "{held}");
        let report = verify(&path, |_, _| ()).unwrap();
        assert_eq!((report.problems.len(), report.elements), (0, 3));
        let saved = folder.0.join("saved");
        assert_eq!(repair(&path, &saved, |_, _| ()).unwrap().salvaged, 3);
        one.close().unwrap();
        drop(other);

        assert_eq!(times(std::fs::metadata(&path).unwrap()), modified);
        assert!(std::fs::read(&path).unwrap() == before, "no byte changed");
        let store = Store::open(&path, small()).unwrap();
        store.put(b"key", b"value").unwrap();
        let held = Store::open(&path, reading()).unwrap_err().to_string();
        assert!(held.contains("is in use by this process"), "{held}");
    }
}

/// Needs the right to mount; without it there is no read-only file system.
#[test]
fn a_store_on_a_read_only_file_system() {
    let folder = Folder::new("mounted");
    let mount = |arguments: &[&str]| {
        let mut command = std::process::Command::new("mount");
        command
            .args(arguments)
            .arg(&folder.0)
            .stderr(std::process::Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=32m", "tmpfs"]) {
        println!("skipped: no right to mount a small file system");
        return;
    }
    let path = folder.0.join("kv");
    made(&path, false);
    let read_only = mount(&["-o", "remount,ro"]);
    let got = Store::open(&path, reading()).map(|store| {
        let got = store.get(b"in a log").unwrap();
        (
            got.map(|value| value.into_vec()),
            store.scan().unwrap().count(),
        )
    });
    let report = verify(&path, |_, _| ());
    let unmounted = std::process::Command::new("umount").arg(&folder.0).status();
    assert!(unmounted.unwrap().success() && read_only);
    assert_eq!(got.unwrap(), (Some(b"2".to_vec()), 3));
    assert_eq!(report.unwrap().problems, []);
}

/// `senko store put` on a btrfs volume used to make a store there, since pages 0, 4, 8 and 12 of
/// such a volume are zero.
#[test]
fn what_holds_data_of_others_is_refused_and_stays_as_it_is() {
    let folder = Folder::new("foreign");
    let path = folder.0.join("volume");
    for (bytes, at, mark, told) in [
        (2 << 20, 0x1_0040, &b"_BHRfS_M"[..], "a btrfs file system"),
        (2 << 20, 4096, b"theirs", "data at byte 4096"),
        (2 << 20, (2 << 20) - 1, b"x", "data at byte 2097151"),
        // Behind the last whole page.
        (2_000_000, 1_999_999, b"x", "data at byte 1999999"),
        (65_537, 65_536, b"x", "data at byte 65536"),
        // Shorter than a store.
        (5000, 4999, b"x", "data at byte 4999"),
        (65_535, 0, b"x", "data at byte 0"),
    ] {
        let mut content = vec![0; bytes];
        content[at..at + mark.len()].copy_from_slice(mark);
        std::fs::write(&path, &content).unwrap();
        match Store::open(&path, small()) {
            Err(StoreError::Foreign(text)) => assert!(text.contains(told), "{text}"),
            other => panic!("{told}: {other:?}"),
        }
        assert!(
            std::fs::read(&path).unwrap() == content,
            "{told}: untouched"
        );
    }
    // A completely empty file is accepted.
    std::fs::write(&path, vec![0; 2 << 20]).unwrap();
    let store = Store::open(&path, small()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
}
