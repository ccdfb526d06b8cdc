// SPDX-License-Identifier: Apache-2.0
//! Commands that write a file: never over a file that they read, that a process uses, or that only
//! has the name of a device.

use std::path::Path;

use senko_io::{AlignedBuf, Device, Engine, FileOptions, FlashFile, PAGE_SIZE, Purpose, Tag};

use crate::process::{SENKO, Scratch, has, refused, run};

const SIZE: usize = 32 << 20;
const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};

/// A file that this process uses, as a server uses its flash file.
fn used(path: &Path) -> FlashFile {
    std::fs::write(path, vec![7; SIZE]).unwrap();
    FlashFile::open(path, &FileOptions::default()).unwrap()
}

/// `senko device` took no lock: it overwrote a store that a load had open, and cut a running
/// server's flash file from 128 MiB to 16 MiB.
#[test]
fn a_file_in_use_is_neither_measured_nor_drawn_over() {
    let folder = Scratch::new();
    let path = folder.join("flash");
    let held = used(&path);
    let name = path.to_str().unwrap();
    let by = format!("is in use by process {}", std::process::id());
    let mut commands = vec![vec![
        "device",
        name,
        "--destroy-data",
        name,
        "--size",
        "16m",
    ]];
    commands.push(vec!["device", "sim:x25-m", "--svg", name]);
    commands.push(vec!["device", "sim:x25-m", "--write-profile", name]);
    commands.push(vec!["ssd", "trace", "plot", "seq:count=9", "-o", name]);
    for args in commands {
        let told = refused(SENKO, &folder, &args);
        assert!(told.contains(&by), "{args:?}: {told}");
        // Not by its name: the close would drop the record of who has the file.
        let mut left = AlignedBuf::new(SIZE / PAGE_SIZE);
        held.read(0, &mut left, TAG).unwrap();
        assert!(left.iter().all(|byte| *byte == 7));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE as u64);
    }
    drop(held);
    // What nobody uses is overwritten, as its name was typed twice. A larger file keeps its size.
    let args = format!("device {name} --destroy-data {name} --size 16m");
    let output = run(SENKO, &folder, args);
    assert!(output.status.success(), "{output:?}");
    let steps = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        steps.ends_with("[7/8] single random writes\n[8/8] done\n"),
        "{steps}"
    );
    let left = std::fs::read(&path).unwrap();
    assert!(left.len() == 32 << 20 && left[16 << 20..].iter().all(|byte| *byte == 7));
    // Nearly all that was written were zeros, which drives and file systems compress.
    let mut pages: Vec<&[u8]> = left[..16 << 20].chunks(4096).collect();
    let mut counts = [0u32; 256];
    left[..16 << 20]
        .iter()
        .for_each(|byte| counts[usize::from(*byte)] += 1);
    assert!(counts.iter().all(|count| *count < (16 << 20) / 200));
    pages.sort_unstable();
    pages.dedup();
    assert_eq!(pages.len(), (16 << 20) / 4096);
}

/// A picture of a trace was written over it, under any name of the file.
#[test]
fn a_result_does_not_take_the_place_of_what_was_read() {
    let folder = Scratch::new();
    let (name, path) = ("trace", folder.join("trace"));
    std::fs::write(&path, "0,0,4096,w,0.5\n0,8,4096,w,0.6\n").unwrap();
    std::fs::hard_link(&path, folder.join("trace.second")).unwrap();
    std::os::unix::fs::symlink(name, folder.join("trace.link")).unwrap();
    let before = std::fs::read(&path).unwrap();
    for ending in ["", ".second", ".link"] {
        let output = format!("./{name}{ending}");
        for args in [
            format!("ssd trace plot {name} -o {output}"),
            format!("ssd run {name} --plot-erases {output} --json"),
            format!("ssd compare {name} --plot {output} --json"),
        ] {
            let told = refused(SENKO, &folder, &args);
            assert!(told.contains("would overwrite it"), "{args:?}: {told}");
            assert_eq!(std::fs::read(&path).unwrap(), before, "{args:?}");
        }
    }
}

/// Pictures, profiles and histograms replaced whatever had their names, without a word.
#[test]
fn a_result_does_not_replace_a_file_unless_forced() {
    let folder = Scratch::new();
    let path = folder.join("mine");
    std::fs::create_dir(folder.join("h")).unwrap();
    std::fs::write(folder.join("h/load-set.hgrm"), "mine").unwrap();
    for args in [
        "device sim:x25-m --size 16m --svg mine",
        "device sim:x25-m --write-profile mine",
        "ssd trace plot seq:count=9 -o mine",
        "ssd run seq:count=9 --plot-erases mine",
        "ssd run seq:count=9 --plot-responses mine",
        "ssd compare seq:count=9 --plot mine",
    ] {
        std::fs::write(&path, "mine").unwrap();
        let told = refused(SENKO, &folder, &args);
        let wanted = "mine exists already: name another file, or replace it with --force";
        assert!(told.ends_with(wanted), "{args:?}: {told}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine", "{args:?}");
        // What holds nothing may be replaced, such as a new file of mktemp.
        std::fs::write(&path, "").unwrap();
        let output = run(SENKO, &folder, args);
        assert!(output.status.success(), "{output:?}");
        let output = run(SENKO, &folder, format!("{args} --force"));
        assert!(output.status.success(), "{output:?}");
        if args.contains("write-profile") {
            let steps = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = "[8/9] fitting the profile\n[9/9] done\n";
            assert!(steps.ends_with(last), "{steps}");
        }
        assert_ne!(std::fs::read(&path).unwrap(), b"mine", "{args:?}");
    }
    let args = "load -s 127.0.0.1:1 --histograms h";
    let told = refused(SENKO, &folder, &args);
    has(&told, "h/load-set.hgrm exists already");
}

/// An empty file of the user was left with 256 MB of the measurement's.
#[test]
fn an_empty_file_is_empty_after_its_measurement() {
    let folder = Scratch::new();
    std::fs::write(folder.join("mine"), "").unwrap();
    let output = run(SENKO, &folder, "device mine --size 16m");
    // Nothing was told of what takes long after the last measurement.
    let steps = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = "[8/9] removing what was written\n[9/9] done\n";
    assert!(steps.ends_with(last), "{steps}");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let left = std::fs::metadata(folder.join("mine")).unwrap();
    assert_eq!(left.len(), 0);
}

/// `senko device /dev/sda` on a machine without that disk made a file in memory, filled it and
/// printed a verdict. `serve --flash`, a store and a database made such files, too.
#[test]
fn a_device_that_is_not_there_is_told() {
    let folder = Scratch::new();
    let name = format!("/dev/senko-none-{}", std::process::id());
    let flash = format!("{name}:64m");
    std::os::unix::fs::symlink(&name, folder.join("link")).unwrap();
    for args in [
        &format!("device {name} --size 16m"),
        &format!("serve -p 0 -m 64m --flash {flash}"),
        &format!("store put {name} a b"),
        "store put link a b",
        &format!("store bench {name} --keys 10"),
        &format!("dbm put {name} a b"),
        &format!("device sim:x25-m --svg {name}"),
        &format!("device sim:x25-m --write-profile {name}"),
    ] {
        let told = refused(SENKO, &folder, &args);
        assert!(told.contains("there is no device"), "{args:?}: {told}");
        assert!(!Path::new(&name).exists(), "{args:?}");
    }
}

/// A measurement followed a link, made the file where it led to, and removed the link. One in
/// `/dev/shm` gave the figures of memory as those of a drive.
#[test]
fn a_measurement_follows_no_link_and_takes_no_memory() {
    let folder = Scratch::new();
    std::fs::write(folder.join("data"), "precious").unwrap();
    for to in ["nothing", "data"] {
        let link = folder.join("link");
        std::os::unix::fs::symlink(to, &link).unwrap();
        let args = "device link --destroy-data link --size 16m";
        let told = refused(SENKO, &folder, &args);
        has(&told, &format!("is a link to {to}"));
        if to == "nothing" {
            let told = refused(SENKO, &folder, "store bench link --keys 10");
            has(&told, "is a link to");
        }
        assert!(link.symlink_metadata().unwrap().is_symlink());
        std::fs::remove_file(&link).unwrap();
    }
    assert!(!folder.join("nothing").exists());
    assert_eq!(std::fs::read(folder.join("data")).unwrap(), b"precious");
    if Path::new("/dev/shm").is_dir() {
        let name = format!("/dev/shm/senko-measured-{}", std::process::id());
        let told = refused(SENKO, &folder, format!("device {name} --size 16m"));
        has(&told, "lies in memory");
        assert!(!Path::new(&name).exists());
    }
}
