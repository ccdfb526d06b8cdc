// SPDX-License-Identifier: Apache-2.0
//! The recorder of system calls and its model of a power cut, on calls whose outcome is known.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use senko_io::{AlignedBuf, Device, FileOptions, FlashFile, PAGE_SIZE, Purpose, Tag};
use senko_workload::Rng;

use crate::recorded::{Image, Kind, Log, Orders, Recorder, Replay, Scratch, When, mark};

/// The child's work and folder.
const CHILD: &str = "SENKO_IO_RECORDED";

/// The child, which is recorded.
#[test]
fn child() {
    let Ok(text) = std::env::var(CHILD) else {
        return;
    };
    let (work, folder) = text.split_once(' ').unwrap();
    let path = Path::new(folder);
    match work {
        "names" => names(path),
        "device" => device(path),
        "flush" => std::fs::File::open(path.join("x"))
            .unwrap()
            .sync_all()
            .unwrap(),
        _ => panic!("{work}"),
    }
}

/// Plain files: each step is marked.
fn names(path: &Path) {
    let sync = |name: &str| {
        std::fs::File::open(path.join(name))
            .unwrap()
            .sync_all()
            .unwrap()
    };
    let mut file = std::fs::File::create(path.join("new")).unwrap();
    file.write_all(b"first ").unwrap();
    sync("new");
    file.write_all(b"second").unwrap();
    mark("written");
    std::fs::rename(path.join("new"), path.join("x")).unwrap();
    mark("named");
    sync("");
    mark("durable name");
    file.sync_data().unwrap();
    mark("durable");
    file.set_len(3).unwrap();
    mark("cut");
    sync("x");
    std::fs::hard_link(path.join("x"), path.join("y")).unwrap();
    std::fs::remove_file(path.join("x")).unwrap();
    sync("");
    mark("moved");
}

/// Pages of a device, by the calls that the engines use.
fn device(path: &Path) {
    let options = FileOptions {
        bytes: 16 * PAGE_SIZE as u64,
        ..FileOptions::default()
    };
    let file = FlashFile::open(&path.join("x"), &options).unwrap();
    let tag = Tag::dbm(Purpose::Meta);
    let page = |byte: u8| {
        let mut page = AlignedBuf::new(1);
        page.fill(byte);
        page
    };
    file.write(1, &page(1), tag).unwrap();
    file.write_durable(2, &page(2), tag).unwrap();
    mark("two");
    file.flush(tag).unwrap();
    mark("flushed");
    file.write(1, &page(3), tag).unwrap();
    let mut map = file.map(8, 1).unwrap();
    for byte in 4..20 {
        if let Some(map) = &mut map {
            map.fill(byte);
        }
        file.write(3, &page(byte), tag).unwrap();
    }
    file.punch(1, 1, tag).unwrap();
    mark("punched");
    file.flush(tag).unwrap();
    mark("end");
}

fn record(recorder: &Recorder, folder: &Path, work: &str, orders: &Orders) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "calls::child", "--nocapture"]);
    child.env(CHILD, format!("{work} {}", folder.display()));
    child.stdout(std::process::Stdio::null());
    let status = recorder.run(&mut child, orders);
    assert_eq!(status.success(), orders.kill.is_none(), "{status}");
}

/// What cuts at a mark leave, as `describe` tells it.
fn left(log: &Log, at: &str, describe: impl Fn(&Image) -> String) -> BTreeSet<String> {
    let mut replay = Replay::new(log);
    let moment = log.marks().into_iter().find(|(_, text)| text == at);
    replay.move_to(moment.unwrap().0);
    let mut rng = Rng::new(1);
    (0..300)
        .map(|_| describe(&replay.image(&mut rng)))
        .collect()
}

fn texts(image: &Image) -> String {
    let text = |(name, pages): (&String, &crate::recorded::Pages)| {
        format!("{name}={}", String::from_utf8(pages.bytes()).unwrap())
    };
    image.files.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn sets(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_cut_leaves_what_flushes_covered_and_any_of_the_rest() {
    let folder = Scratch::new();
    let recorder = Recorder::new(folder.path());
    record(&recorder, folder.path(), "names", &Orders::default());
    let log = recorder.log();
    let cut = |at| left(&log, at, texts);
    assert_eq!(
        cut("written"),
        sets(&["", "new=first ", "new=first second"])
    );
    let named = [
        "",
        "new=first ",
        "new=first second",
        "x=first ",
        "x=first second",
    ];
    assert_eq!(cut("named"), sets(&named));
    assert_eq!(cut("durable name"), sets(&["x=first ", "x=first second"]));
    assert_eq!(cut("durable"), sets(&["x=first second"]));
    assert_eq!(cut("cut"), sets(&["x=first second", "x=fir"]));
    assert_eq!(cut("moved"), sets(&["y=fir"]));
    assert!(log.calls.iter().any(|call| call.kind == Kind::End));
}

#[test]
fn a_durable_write_covers_itself_and_mapped_memory_is_never_flushed() {
    let folder = Scratch::new();
    let recorder = Recorder::new(folder.path());
    record(&recorder, folder.path(), "device", &Orders::default());
    let log = recorder.log();
    let bytes = |image: &Image, page: usize| {
        let all = image.files["x"].bytes();
        let page = all.get(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
        page.map_or(Vec::new(), <[u8]>::to_vec)
    };
    let seen = |page: usize, at: &str| -> BTreeSet<u8> {
        let mut replay = Replay::new(&log);
        let moment = log
            .marks()
            .into_iter()
            .find(|(_, text)| text == at)
            .unwrap();
        replay.move_to(moment.0);
        let mut rng = Rng::new(2);
        let drawn = (0..300).flat_map(|_| bytes(&replay.image(&mut rng), page));
        drawn.collect()
    };
    assert_eq!(seen(1, "two"), [0, 1].into());
    assert_eq!(seen(1, "flushed"), [1].into());
    assert_eq!(seen(1, "punched"), [0, 1, 3].into());
    assert_eq!(seen(1, "end"), [0].into());
    assert_eq!(seen(3, "end"), [19].into());
    if log.calls.iter().any(|call| call.kind == Kind::Mapped) {
        assert!(seen(8, "end").len() > 1, "the memory of several times");
    }
    // The durable write alone, without the earlier one.
    let alone = left(&log, "two", |image| {
        format!("{:?}", [1, 2].map(|n| bytes(image, n)[0]))
    });
    assert_eq!(alone, sets(&["[0, 2]", "[1, 2]"]));
}

/// What a killed process left unflushed stays so, until a later process flushes the file.
#[test]
fn a_kill_comes_at_the_call_that_was_ordered() {
    let folder = Scratch::new();
    let recorder = Recorder::new(folder.path());
    record(&recorder, folder.path(), "names", &Orders::default());
    let calls = recorder.log().kills();
    let mut contents = Vec::new();
    for number in 1..=calls {
        for when in [When::Before, When::Half, When::After] {
            let folder = Scratch::new();
            let recorder = Recorder::new(folder.path());
            let kill = Some((number, when));
            let delays = Some((number, 50));
            record(&recorder, folder.path(), "names", &Orders { delays, kill });
            let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok();
            contents.push([read("new"), read("x"), read("y")]);
            let log = recorder.log();
            assert_eq!(log.kills(), number - u64::from(when == When::Before));
            if !contents.last().unwrap()[1]
                .as_deref()
                .unwrap_or("")
                .ends_with("second")
            {
                continue;
            }
            record(&recorder, folder.path(), "flush", &Orders::default());
            let log = recorder.log();
            let mut replay = Replay::new(&log);
            replay.move_to(log.end());
            let image = replay.image(&mut Rng::new(number));
            let file = image.files.get("x").or(image.files.get("new"));
            assert!(file.is_none_or(|file| file.bytes() == b"first second"));
        }
    }
    assert_eq!(contents[0], [None, None, None]);
    assert_eq!(
        contents.last().unwrap(),
        &[None, None, Some("fir".to_owned())]
    );
    assert!(contents.contains(&[Some("first ".to_owned()), None, None]));
}

/// Files that nobody else has written; the base of a recording is durable.
#[test]
fn the_content_at_the_start_is_durable() {
    let folder = Scratch::new();
    let file = std::fs::File::create(folder.path().join("x")).unwrap();
    file.write_all_at(b"old", 0).unwrap();
    let recorder = Recorder::new(folder.path());
    record(&recorder, folder.path(), "flush", &Orders::default());
    let log = recorder.log();
    let image = Replay::new(&log).image(&mut Rng::new(1));
    assert_eq!(image.files["x"].bytes(), b"old");
}
