// SPDX-License-Identifier: Apache-2.0
//! Data directories without a server: decisions of a start, restored state, and refusals.

use senko_io::AlignedBuf;

use super::*;

fn place(name: &str) -> (PathBuf, Settings, [Arc<FlashFile>; 1]) {
    let dir = std::env::temp_dir().join(format!("senko-data-dir-{name}-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("data")).unwrap();
    let settings = Settings {
        shared_memory: dir.clone(),
        threads: 1,
        ..Settings::default()
    };
    let options = FileOptions {
        bytes: 2 << 20,
        ..FileOptions::default()
    };
    let flash = dir.join("flash");
    std::fs::write(&flash, vec![0; 2 << 20]).unwrap();
    let file = FlashFile::open(&flash, &options).unwrap();
    (dir, settings, [Arc::new(file)])
}

/// RESTART-7: the number of a flush rises after a shard was saved with the previous number.
#[test]
fn what_a_saved_shard_missed_is_left_to_the_next_start() {
    let (dir, settings, files) = place("missed");
    for (applied, last) in [(0, 0), (4, 5), (5, 5)] {
        let data_dir = DataDir::open(&dir.join("data"), &settings, &files).unwrap();
        data_dir.begin(1 << 20).unwrap();
        data_dir.words().set_flush_due(77);
        let stopped = [Stopped {
            flushes: applied,
            cas: 1,
            items_unsaved: None,
            flash_items: 0,
            dram_items: 0,
        }];
        data_dir.finish(&stopped, last).unwrap();
        drop(data_dir);
        let data_dir = DataDir::open(&dir.join("data"), &settings, &files).unwrap();
        let restore = data_dir.restore(0).unwrap();
        assert_eq!(
            restore.flushes < data_dir.words().flushes(),
            applied != last
        );
        assert_eq!(
            data_dir.words().flush_due(),
            77,
            "the one to come is left, too"
        );
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A start writes labels and then the superblock. After a kill between the two, no setting is fixed
/// and nothing is lost.
#[test]
fn a_start_that_never_served_leaves_nothing_settled() {
    let (dir, mut settings, files) = place("never");
    let data = dir.join("data");
    for threads in [1, 2, 1] {
        settings.threads = threads;
        let data_dir = DataDir::open(&data, &settings, &files).unwrap();
        let block = data_dir.block().clone();
        let label = DeviceLabel {
            id: block.id,
            number: 0,
            pages: files[0].pages(),
            opened: block.opened + 1,
        };
        label.write(&*files[0]).unwrap();
    }
    std::fs::create_dir(dir.join("elsewhere")).unwrap();
    let elsewhere = DataDir::open(&dir.join("elsewhere"), &settings, &files).unwrap_err();
    assert!(
        elsewhere.0.contains("not of the given data directory"),
        "{elsewhere:?}"
    );
    DataDir::open(&data, &settings, &files)
        .unwrap()
        .begin(1 << 20)
        .unwrap();
    settings.threads = 2;
    let settled = DataDir::open(&data, &settings, &files).unwrap();
    assert_eq!(
        settled.shards(),
        1,
        "the threads are free, the shards are not"
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Shared memory is valid after a kill, whichever files the stop had already written.
#[test]
fn what_a_killed_stop_had_written_goes() {
    let (dir, settings, files) = place("stop");
    let data = dir.join("data");
    let data_dir = DataDir::open(&data, &settings, &files).unwrap();
    data_dir.begin(1 << 20).unwrap();
    drop(data_dir);
    // The other shards' files are from a time with more shards.
    for name in [
        "items-0.senko",
        "items-0.senko.new",
        "index-0.senko.new",
        "index-17.senko",
        "items-17.senko",
    ] {
        std::fs::write(data.join(name), b"a part").unwrap();
    }
    DataDir::open(&data, &settings, &files)
        .unwrap()
        .begin(1 << 20)
        .unwrap();
    let left: Vec<_> = std::fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["super.senko"]);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A changed flash file is refused, and the refusal names the problem.
#[test]
fn labels_tell_flash_files_apart() {
    let (dir, settings, [first]) = place("labels");
    let options = FileOptions {
        bytes: 2 << 20,
        ..FileOptions::default()
    };
    std::fs::write(dir.join("second"), vec![0; 2 << 20]).unwrap();
    let second = Arc::new(FlashFile::open(&dir.join("second"), &options).unwrap());
    let files = [Arc::clone(&first), Arc::clone(&second)];
    let data = dir.join("data");
    let open = |files: &[Arc<FlashFile>]| DataDir::open(&data, &settings, files);
    let refused = |files: &[Arc<FlashFile>], why: &str| {
        let error = open(files).unwrap_err().0;
        assert!(error.contains(why) && error.contains("--reinit"), "{error}");
    };
    open(&files).unwrap().begin(1 << 20).unwrap();
    let older = DeviceLabel::read(&*first).unwrap();
    open(&files).unwrap().begin(1 << 20).unwrap();
    let label = DeviceLabel::read(&*first).unwrap();
    let second_label = DeviceLabel::read(&*second).unwrap();
    refused(&[Arc::clone(&second), Arc::clone(&first)], "order");
    older.write(&*first).unwrap();
    refused(&files, "an older copy");
    label.write(&*first).unwrap();
    let superblock = std::fs::read(data.join("super.senko")).unwrap();
    open(&files).unwrap().begin(1 << 20).unwrap();
    std::fs::write(data.join("super.senko"), superblock).unwrap();
    refused(&files, "the directory is an older copy");
    // A start that was killed before it served had announced labels, and written some of them.
    second_label.write(&*second).unwrap();
    label.write(&*first).unwrap();
    let killed = open(&files).unwrap();
    let mut block = killed.block().clone();
    block.opening += 1;
    killed.write(&mut block).unwrap();
    drop(killed);
    for opened in [label.opened, label.opened + 1] {
        DeviceLabel { opened, ..label }.write(&*first).unwrap();
        open(&files).unwrap();
    }
    let mut page = AlignedBuf::new(1);
    label.encode(&mut page);
    page[8] = 9;
    let tag = Tag::cache(Purpose::Meta);
    first.write(0, &page, tag).unwrap();
    refused(&files, "version 9");
    std::fs::create_dir(dir.join("elsewhere")).unwrap();
    let elsewhere = DataDir::open(&dir.join("elsewhere"), &settings, &files).unwrap_err();
    assert!(elsewhere.0.contains("version 9"), "{elsewhere:?}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// RESTART-8, over several starts after kills.
#[test]
fn cas_values_are_reserved_before_they_are_used() {
    let (dir, settings, files) = place("cas_values");
    let mut given_out = 0;
    for round in 0..5 {
        let data_dir = DataDir::open(&dir.join("data"), &settings, &files).unwrap();
        data_dir.begin(1 << 20).unwrap();
        assert!(data_dir.cas_base() >= given_out, "round {round}");
        given_out = data_dir.cas_base();
        for _ in 0..round * 3 {
            // As many CAS values as may be given out before the next check.
            given_out += RESERVE / 2;
            data_dir.note_cas(given_out);
            data_dir.keep().unwrap();
            assert!(data_dir.block().cas_reserved > given_out + RESERVE / 2 - 1);
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Opening the directory once wrote the superblock and removed the old memory. If a start with
/// `--reinit` was refused after that (too little memory, an item size that does not fit), the old
/// cache was lost.
#[test]
fn what_is_to_be_replaced_is_there_until_something_serves() {
    let (dir, mut settings, files) = place("reinit");
    let data = dir.join("data");
    // Each file in shared memory, as FOLDER/FILE.
    let memory = || {
        let mut ours = Vec::new();
        for folder in std::fs::read_dir(&dir).unwrap() {
            let folder = folder.unwrap().file_name().into_string().unwrap();
            if folder.starts_with("senko-") {
                let files = std::fs::read_dir(dir.join(&folder)).unwrap();
                let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
                ours.extend(files.map(|file| format!("{folder}/{file}")));
            }
        }
        ours.sort();
        ours
    };
    let data_dir = DataDir::open(&data, &settings, &files).unwrap();
    data_dir.restore(0).unwrap();
    data_dir.begin(1 << 20).unwrap();
    let id = data_dir.block().id;
    let number = data_dir.block().memory;
    let used = data_dir.block().cas_reserved;
    drop(data_dir);
    let before = memory();
    assert_eq!(before.len(), 5, "{before:?}");
    settings.reinit = true;
    let refused = DataDir::open(&data, &settings, &files).unwrap();
    assert_ne!(refused.block().id, id);
    refused.restore(0).unwrap();
    drop(refused);
    assert_eq!(memory(), before, "what it made is gone");
    // The last step that can fail is writing the superblock, which has no room for this many files.
    let too_many = vec![Arc::clone(&files[0]); 1000];
    let refused = DataDir::open(&data, &settings, &too_many).unwrap();
    refused.restore(0).unwrap();
    refused.begin(1 << 20).unwrap_err();
    drop(refused);
    assert_eq!(memory(), before, "what was there is there");
    settings.reinit = false;
    let data_dir = DataDir::open(&data, &settings, &files).unwrap();
    assert_eq!(data_dir.block().id, id);
    assert!(matches!(data_dir.from, From::Memory));
    drop(data_dir);
    assert!(before.iter().all(|file| memory().contains(file)));

    // A damaged superblock does not say whose memory must be removed; the flash file does.
    for damaged in [false, true] {
        if damaged {
            std::fs::write(data.join("super.senko"), [0xa5; 8192]).unwrap();
        }
        settings.reinit = true;
        let before = memory();
        let data_dir = DataDir::open(&data, &settings, &files).unwrap();
        data_dir.restore(0).unwrap();
        data_dir.begin(1 << 20).unwrap();
        let ours = format!("senko-{:016x}", data_dir.block().memory);
        let left = memory();
        let of_others = left.iter().filter(|name| !name.starts_with(&ours));
        // The files of the refused start never belonged to a shard.
        let of_others: Vec<_> = of_others.filter(|name| before.contains(name)).collect();
        assert!(
            of_others.iter().all(|name| name.ends_with("/server")),
            "{of_others:?}"
        );
        assert!(!left.contains(&format!("senko-{number:016x}/0.items")));
    }

    // A lost superblock does not say which CAS values are used up (RESTART-8), and the label may
    // belong to another directory.
    let before = memory();
    std::fs::remove_file(data.join("super.senko")).unwrap();
    let data_dir = DataDir::open(&data, &settings, &files).unwrap();
    assert!(data_dir.cas_base() > used);
    data_dir.begin(1 << 20).unwrap();
    assert!(before.iter().all(|file| memory().contains(file)));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A refused start and a server whose directory was removed left folders that no start could use.
#[test]
fn memory_that_no_start_can_use_goes() {
    let (dir, settings, files) = place("unused");
    let data = dir.join("data");
    let folders = || {
        let names = std::fs::read_dir(&dir).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("senko-")).count()
    };
    let open = || {
        let data_dir = DataDir::open(&data, &settings, &files).unwrap();
        data_dir.restore(0).unwrap();
        assert_eq!(folders(), 1);
        data_dir
    };
    drop(open());
    assert_eq!(folders(), 0, "it never served");
    open().begin(1 << 20).unwrap();
    assert_eq!(folders(), 1, "as after a kill");
    drop(open());
    assert_eq!(folders(), 1, "the next start did not serve");
    let removed = open();
    removed.begin(1 << 20).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    drop(removed);
    assert_eq!(folders(), 0, "nobody knows of it");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A folder that a refused start made stayed, empty.
#[test]
fn a_folder_goes_with_the_start_that_made_it() {
    let (dir, ..) = place("made");
    assert!(NewFolder::make(&dir).unwrap().is_none());
    let new = dir.join("new");
    drop(NewFolder::make(&new).unwrap());
    assert!(dir.exists() && !new.exists());
    let made = NewFolder::make(&new).unwrap();
    std::fs::write(new.join("super.senko"), "").unwrap();
    drop(made);
    assert!(new.exists());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A truncated flash file was once extended to its former length before the check, and the cut-off
/// items became silent misses.
#[test]
fn a_flash_file_that_was_cut_off_is_refused() {
    let (dir, settings, files) = place("cut");
    let data = dir.join("data");
    DataDir::open(&data, &settings, &files)
        .unwrap()
        .begin(1 << 20)
        .unwrap();
    let path = files[0].path().to_owned();
    drop(files);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let options = FileOptions {
        bytes: 2 << 20,
        ..FileOptions::default()
    };
    let files = [Arc::new(FlashFile::open(&path, &options).unwrap())];
    let refused = DataDir::open(&data, &settings, &files).unwrap_err();
    assert!(refused.0.contains("it was cut off"), "{refused:?}");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A secret of the directory seeds the hash of keys. The next start needs it to find the stored
/// items. A cache that starts over gets another secret, and every directory has its own.
#[test]
fn the_seed_of_hashes_is_kept_and_is_each_directorys_own() {
    let (dir, mut settings, files) = place("hash-seed");
    let data = dir.join("data");
    let mut seeds = Vec::new();
    for reinit in [false, true] {
        settings.reinit = reinit;
        let data_dir = DataDir::open(&data, &settings, &files).unwrap();
        data_dir.begin(1 << 20).unwrap();
        let seed = data_dir.hash_seed();
        drop(data_dir);
        settings.reinit = false;
        // After a kill, and after a clean stop.
        for _ in 0..2 {
            let data_dir = DataDir::open(&data, &settings, &files).unwrap();
            assert_eq!(data_dir.hash_seed(), seed);
            data_dir.begin(1 << 20).unwrap();
            data_dir.finish(&[], 0).unwrap();
        }
        seeds.push(seed);
    }
    std::fs::create_dir(dir.join("other")).unwrap();
    settings.reinit = true;
    let other = DataDir::open(&dir.join("other"), &settings, &files).unwrap();
    seeds.push(other.hash_seed());
    assert!(seeds.iter().all(|&seed| seed != HashSeed::default()));
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && seeds[0] != seeds[2]);
    drop(other);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A start that was refused because of its data directory left an empty folder in `/dev`.
#[test]
fn no_folder_is_made_in_dev() {
    let name = format!("/dev/senko-none-{}", std::process::id());
    for dir in [Path::new(&name), &Path::new(&name).join("data")] {
        let told = make_folder(dir).unwrap_err();
        assert!(told.0.contains("there is no device"), "{told:?}");
        assert!(!Path::new(&name).exists());
    }
}

/// The names of shared memory were once fixed for all starts. Another user could see one, and make
/// a file with that name after the server had stopped. Then the next start was refused.
#[test]
fn a_taken_name_of_shared_memory_is_drawn_anew() {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
    let (dir, settings, files) = place("taken");
    let data = dir.join("data");
    let folder = |number: u64| dir.join(format!("senko-{number:016x}"));
    let stranger = dir.join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    let data_dir = DataDir::open(&data, &settings, &files).unwrap();
    let mut number = data_dir.block().memory;
    assert_ne!(number, data_dir.block().id, "labels and words tell the id");
    let mode = std::fs::metadata(folder(number)).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(data_dir);
    for (stop, taken) in ["file", "folder", "link", "others"]
        .into_iter()
        .cycle()
        .take(8)
        .enumerate()
    {
        let data_dir = DataDir::open(&data, &settings, &files).unwrap();
        data_dir.restore(0).unwrap();
        data_dir.begin(1 << 20).unwrap();
        assert_eq!(data_dir.block().memory, number, "a name that is free stays");
        if stop < 4 {
            data_dir.finish(&[], 0).unwrap();
            assert!(!folder(number).exists(), "a clean stop leaves none");
        } else {
            // As after a reboot, or a kill.
            std::fs::remove_dir_all(folder(number)).unwrap();
        }
        drop(data_dir);
        let open_to_all = |path: &Path| {
            std::fs::DirBuilder::new().mode(0o777).create(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
            std::fs::write(path.join("server"), vec![0; 4096]).unwrap();
        };
        match taken {
            "file" => std::fs::write(folder(number), b"theirs").unwrap(),
            "link" => symlink(&stranger, folder(number)).unwrap(),
            "folder" => open_to_all(&folder(number)),
            _ => {
                open_to_all(&folder(number));
                // Only root can give a folder away.
                let _ = std::os::unix::fs::chown(folder(number), Some(65_534), None);
            }
        }
        let data_dir = DataDir::open(&data, &settings, &files).unwrap();
        let drawn = data_dir.block().memory;
        assert_ne!(drawn, number, "{taken}");
        match &data_dir.from {
            From::Files(_) => assert!(stop < 4),
            From::Nothing(Some(why)) => assert!(stop >= 4 && why.contains("is gone"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert!(
            std::fs::symlink_metadata(folder(number)).is_ok(),
            "theirs stays"
        );
        assert_eq!(std::fs::read_dir(&stranger).unwrap().count(), 0);
        drop(data_dir);
        // The next start knows the random number, and finds this start's folder.
        let block = Superblock::read(
            &FlashFile::open(&data.join("super.senko"), &FileOptions::default()).unwrap(),
        );
        assert_eq!(block.unwrap().memory, drawn);
        number = drawn;
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
