// SPDX-License-Identifier: Apache-2.0
//! Power cuts and kills at the boundary between a process and the kernel. Tests of several crates
//! include this file by its path.
//!
//! A [`Recorder`] runs a program under a library (`recorder.c`) that logs the real calls of the
//! process, with their contents, and can make them longer or kill the process at one of them. So
//! nothing that the product puts between engine and kernel can hide a missing flush from it. A
//! [`Replay`] reads the log and builds the files that a power cut at any moment would have left.
//!
//! What a cut leaves:
//! - A write, a change of length or a hole is there if a flush of its file covers it: one that
//!   began after the call had ended, and ended before the cut. A write with RWF_DSYNC or O_DSYNC
//!   covers itself. Any other call that began before the cut is there, absent, or (a write) torn at
//!   sectors of 512 bytes.
//! - A write does not bring back a length that the file got by an earlier call which is absent: its
//!   pages are then behind the end.
//! - Names change in the order of the calls, as in a journal. The changes up to the last one that a
//!   flush of the folder covers are there, and any number of the following ones. A flush of a file
//!   does not cover its name, although it would on ext4.
//! - Memory that is mapped from a file is never flushed. Each of its sectors is as it was at some
//!   earlier time, or as written through a call.
//! - Calls of a killed process stay unflushed until a later process flushes the file.

#![allow(dead_code, unused_imports)] // each crate uses a part

pub mod engines; // what the tests of both engines do with a record
mod image;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_workload::Rng;

pub use image::{Image, Pages, PagesDevice};

const LOG_BYTES: u64 = 8 << 30;
const FIRST: usize = 4096;
const RECORD: usize = 72;
const MARKS: &str = "SENKO_CALLS_MARKS";

/// When a process kills itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the call.
    Before,
    /// After half of the bytes of a write; another call is made whole.
    Half,
    /// After the call.
    After,
}

/// What a recorded process does beside its calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Orders {
    /// A seed, and the most microseconds that are added before and after calls.
    pub delays: Option<(u64, u64)>,
    /// Kills the process at its call of this number, counted from 1.
    pub kill: Option<(u64, When)>,
}

/// An empty folder, in memory if the system has such a place: the test itself need not wait for a
/// disk.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("senko-calls-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs programs and logs their calls on the files of one folder.
pub struct Recorder {
    folder: PathBuf,
    log: PathBuf,
    marks: PathBuf,
    base: BTreeMap<String, (u64, Vec<u8>)>,
    /// The folder of the log and the marks.
    _beside: Scratch,
}

impl Recorder {
    /// Records `folder`, whose present content is durable.
    pub fn new(folder: &Path) -> Recorder {
        let beside = Scratch::new();
        let mut base = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let content = std::fs::read(entry.path()).unwrap();
            base.insert(name, (entry.metadata().unwrap().ino(), content));
        }
        let (log, marks) = (beside.path().join("calls"), beside.path().join("marks"));
        let file = std::fs::File::create(&log).unwrap();
        file.set_len(LOG_BYTES).unwrap();
        file.write_all_at(&1u64.to_ne_bytes(), 0).unwrap();
        file.write_all_at(&(FIRST as u64).to_ne_bytes(), 8).unwrap();
        std::fs::write(&marks, "").unwrap();
        Recorder {
            folder: std::fs::canonicalize(folder).unwrap(),
            log,
            marks: std::fs::canonicalize(marks).unwrap(),
            base,
            _beside: beside,
        }
    }

    /// Prepares a program that is to be recorded.
    pub fn prepare<'a>(&self, command: &'a mut Command, orders: &Orders) -> &'a mut Command {
        command
            .env("LD_PRELOAD", library())
            .env("SENKO_CALLS_FOLDER", &self.folder)
            .env("SENKO_CALLS_LOG", &self.log)
            .env(MARKS, &self.marks);
        if let Some((seed, micros)) = orders.delays {
            command.env("SENKO_CALLS_DELAYS", format!("{seed} {micros}"));
        }
        if let Some((number, when)) = orders.kill {
            let when = match when {
                When::Before => 'b',
                When::Half => 'h',
                When::After => 'a',
            };
            command.env("SENKO_CALLS_KILL", format!("{number} {when}"));
        }
        command
    }

    /// Runs a program to its end or its kill.
    pub fn run(&self, command: &mut Command, orders: &Orders) -> ExitStatus {
        self.prepare(command, orders).status().unwrap()
    }

    /// Runs a test of this program alone, in a process that finds `told` in a variable.
    pub fn run_test(
        &self,
        test: &str,
        (variable, told): (&str, String),
        orders: &Orders,
    ) -> ExitStatus {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", test, "--nocapture"]);
        child.env(variable, told);
        child.stdout(std::process::Stdio::null());
        self.run(&mut child, orders)
    }

    /// The calls so far. All recorded processes have ended.
    pub fn log(&self) -> Log {
        let file = std::fs::File::open(&self.log).unwrap();
        let mut head = [0; 24];
        file.read_exact_at(&mut head, 0).unwrap();
        let number = |bytes: &[u8], at| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(number(&head, 16), 0, "the log is too small");
        let mut bytes = vec![0; number(&head, 8) as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let (mut calls, mut at) = (Vec::new(), FIRST);
        while at < bytes.len() {
            let word = |nth: usize| number(&bytes, at + 8 * nth);
            let half = |nth: usize| {
                let from = at + 24 + 4 * nth;
                u32::from_ne_bytes(bytes[from..from + 4].try_into().unwrap())
            };
            let size = word(0) as usize;
            let has_ended = word(2) != 0;
            calls.push(Call {
                kind: Kind::of(half(0)),
                process: half(1),
                begin: word(1),
                end: if has_ended { word(2) } else { u64::MAX },
                inode: word(4),
                offset: word(5),
                length: word(6),
                result: if has_ended { word(7) as i64 } else { i64::MAX },
                durable: word(8) != 0,
                payload: (at + RECORD, at + size),
            });
            at += size;
        }
        calls.sort_by_key(|call| call.begin);
        let log = Log {
            calls,
            bytes,
            folder: self.folder.to_str().unwrap().to_owned(),
            base: self.base.clone(),
        };
        for end in log.calls.iter().filter(|call| call.kind == Kind::End) {
            // A write that passed by the library would be missing in the first of the two.
            assert_eq!(
                end.offset, end.length,
                "bytes written, recorded and counted"
            );
        }
        let unknown = log.calls.iter().any(|call| call.kind == Kind::Unknown);
        assert!(!unknown, "a call that the model does not know");
        log
    }
}

/// A size of a test: from the environment, or the default.
pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// The seed of a test, which it prints.
pub fn seed(test: &str) -> u64 {
    let drawn = u64::from(std::process::id()) << 20 ^ test.len() as u64;
    let seed = number("SENKO_TEST_SEED", drawn);
    println!("{test}: SENKO_TEST_SEED={seed}");
    seed
}

/// Removes the empty drafts of some names, as the message asks: the kill may have come before the
/// mark by which a later process knows them.
pub fn remove_empty_drafts(folder: &Path, names: &[&str]) {
    for name in names {
        let draft = folder.join(format!("{name}.part"));
        if std::fs::metadata(&draft).is_ok_and(|draft| draft.len() == 0) {
            std::fs::remove_file(draft).unwrap();
        }
    }
}

/// In a recorded process: notes a text in the order of the calls. All earlier calls of this thread
/// have ended before the mark begins.
pub fn mark(text: &str) {
    use std::io::Write;
    let path = std::env::var_os(MARKS).unwrap();
    let file = std::fs::OpenOptions::new().append(true).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// The compiled library.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(std::fs::File, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        use std::io::Write;
        let id = std::process::id();
        // Not in cargo's folder: an ordinary user runs these tests too.
        let path = std::env::temp_dir().join(format!("senko-recorder-{id}.so"));
        let mut compiler = Command::new("cc")
            .args(["-x", "c", "-O1", "-w", "-shared", "-fPIC", "-", "-o"])
            .arg(&path)
            .args(["-ldl", "-lpthread"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a C compiler");
        let source = include_bytes!("recorder.c");
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(source).unwrap();
        drop(input);
        assert!(compiler.wait().unwrap().success());
        // It has no name, so that nothing is left behind.
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let path = format!("/proc/{id}/fd/{}", file.as_raw_fd());
        (file, PathBuf::from(path))
    });
    path
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Write,
    Flush,
    Length,
    Punch,
    Create,
    Rename,
    Link,
    Unlink,
    Mapped,
    Mark,
    End,
    Unknown,
    Start,
}

impl Kind {
    fn of(number: u32) -> Kind {
        use Kind::*;
        let kinds = [
            Write, Flush, Length, Punch, Create, Rename, Link, Unlink, Mapped, Mark, End, Unknown,
            Start,
        ];
        kinds[number as usize - 1]
    }
}

/// A recorded call.
#[derive(Clone, Debug)]
pub struct Call {
    pub kind: Kind,
    pub process: u32,
    /// Its number in the order before it was made, and after it had returned; `u64::MAX` if it did
    /// not return.
    pub begin: u64,
    pub end: u64,
    inode: u64,
    offset: u64,
    length: u64,
    result: i64,
    durable: bool,
    payload: (usize, usize),
}

/// All calls of some processes, in the order of their beginning.
pub struct Log {
    pub calls: Vec<Call>,
    bytes: Vec<u8>,
    folder: String,
    base: BTreeMap<String, (u64, Vec<u8>)>,
}

impl Log {
    /// The marks, each with the first moment at which it had been made.
    pub fn marks(&self) -> Vec<(u64, String)> {
        let marks = self.calls.iter().filter(|call| call.kind == Kind::Mark);
        let text = |call: &Call| String::from_utf8(self.payload(call).to_vec()).unwrap();
        marks.map(|call| (call.begin + 1, text(call))).collect()
    }

    /// The number of calls that a process can be killed at.
    pub fn kills(&self) -> u64 {
        let none = [
            Kind::Mapped,
            Kind::Mark,
            Kind::End,
            Kind::Unknown,
            Kind::Start,
        ];
        let counted = self.calls.iter().filter(|call| !none.contains(&call.kind));
        counted.count() as u64
    }

    /// Each of these calls in each way, or `most` of all that, drawn.
    pub fn draw_kills(&self, most: u64, rng: &mut Rng) -> Vec<(u64, When)> {
        let all = [When::Before, When::Half, When::After].into_iter();
        let mut kills: Vec<_> = (1..=self.kills())
            .flat_map(|n| all.clone().map(move |when| (n, when)))
            .collect();
        while kills.len() as u64 > most {
            kills.swap_remove(rng.below(kills.len() as u64) as usize);
        }
        kills
    }

    /// The moment after the last call.
    pub fn end(&self) -> u64 {
        let ends = self
            .calls
            .iter()
            .map(|call| call.begin.max(call.end % u64::MAX));
        ends.max().unwrap_or(0) + 1
    }

    fn payload(&self, call: &Call) -> &[u8] {
        &self.bytes[call.payload.0..call.payload.0 + call.length as usize]
    }

    /// The paths of a call on names, relative to the folder.
    fn names(&self, call: &Call) -> Vec<String> {
        let bytes = &self.bytes[call.payload.0..call.payload.1];
        let name = |path: &[u8]| {
            let path = String::from_utf8(path.to_vec()).unwrap();
            let name = path.strip_prefix(&self.folder).unwrap_or(&path);
            name.trim_start_matches('/').to_owned()
        };
        bytes.split(|byte| *byte == 0).map(name).collect()
    }
}

#[derive(Default)]
struct File {
    covered: Pages,
    /// The length that its processes see.
    length: u64,
    /// Indices of the calls that no flush covers, and whether a write makes the file longer.
    pending: Vec<(usize, bool)>,
    /// Indices of the records of its mapped memory.
    mapped: Vec<usize>,
}

#[derive(Clone)]
struct Names {
    files: BTreeMap<String, usize>,
}

impl Names {
    fn apply(&mut self, log: &Log, call: &Call, file: Option<usize>) {
        let names = log.names(call);
        match call.kind {
            Kind::Create => {
                self.files.insert(names[0].clone(), file.unwrap());
            }
            Kind::Rename => {
                let moved = self.files.remove(&names[0]);
                self.files
                    .extend(moved.map(|file| (names[1].clone(), file)));
            }
            Kind::Link => {
                let same = self.files.get(&names[0]).copied();
                self.files.extend(same.map(|file| (names[1].clone(), file)));
            }
            Kind::Unlink => {
                self.files.remove(&names[0]);
            }
            _ => {}
        }
    }
}

/// What happens at a moment of the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begins(usize),
    Covers(usize),
}

/// The files at a moment that moves forward.
pub struct Replay<'a> {
    log: &'a Log,
    events: Vec<(u64, Event)>,
    next: usize,
    files: Vec<File>,
    inodes: HashMap<u64, usize>,
    names: Names,
    /// Changes of names that no flush covers; each with the file of a new name.
    renames: Vec<(usize, Option<usize>)>,
}

impl<'a> Replay<'a> {
    pub fn new(log: &'a Log) -> Replay<'a> {
        let mut events = Vec::new();
        for (nth, call) in log
            .calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.result >= 0)
        {
            events.push((call.begin, Event::Begins(nth)));
            if call.end != u64::MAX && (call.kind == Kind::Flush || call.durable) {
                events.push((call.end, Event::Covers(nth)));
            }
        }
        events.sort_unstable();
        let (mut files, mut inodes) = (Vec::new(), HashMap::new());
        let mut names = BTreeMap::new();
        for (name, (inode, bytes)) in &log.base {
            let mut covered = Pages::default();
            covered.put(0, bytes, 0, &mut || true);
            inodes.insert(*inode, files.len());
            names.insert(name.clone(), files.len());
            files.push(File {
                length: covered.length,
                covered,
                ..File::default()
            });
        }
        Replay {
            log,
            events,
            next: 0,
            files,
            inodes,
            names: Names { files: names },
            renames: Vec::new(),
        }
    }

    /// Moves to a later moment: calls with a lower number have begun or ended.
    pub fn move_to(&mut self, moment: u64) {
        while let Some((_, event)) = self.events.get(self.next).filter(|(at, _)| *at < moment) {
            match *event {
                Event::Begins(nth) => self.begins(nth),
                Event::Covers(nth) => self.covers(nth),
            }
            self.next += 1;
        }
    }

    fn begins(&mut self, nth: usize) {
        let call = &self.log.calls[nth];
        match call.kind {
            Kind::Create => {
                self.inodes.insert(call.inode, self.files.len());
                self.renames.push((nth, Some(self.files.len())));
                self.files.push(File::default());
            }
            Kind::Rename | Kind::Link | Kind::Unlink => self.renames.push((nth, None)),
            Kind::Write | Kind::Length | Kind::Punch => {
                // Of a call that did not return, all may have been done.
                let done = call.length.min(call.result as u64);
                let file = self.file(call);
                let length = match call.kind {
                    Kind::Write => file.length.max(call.offset + done),
                    Kind::Length if call.offset == 1 => file.length.max(call.length),
                    Kind::Length => call.length,
                    _ => file.length,
                };
                let lengthens = length > file.length;
                file.length = length;
                file.pending.push((nth, lengthens));
            }
            Kind::Mapped => self.file(call).mapped.push(nth),
            _ => {}
        }
    }

    fn file(&mut self, call: &Call) -> &mut File {
        let file = self.inodes.get(&call.inode).expect("a file of the folder");
        &mut self.files[*file]
    }

    fn covers(&mut self, nth: usize) {
        let log = self.log;
        let flush = &log.calls[nth];
        if flush.durable {
            let file = self.file(flush);
            file.pending.retain(|(other, _)| *other != nth);
            put(log, flush, &mut file.covered, true, &mut || true);
            return;
        }
        let is_covered = |nth: usize| log.calls[nth].end < flush.begin;
        if !self.inodes.contains_key(&flush.inode) {
            // The folder.
            let covered = self.renames.iter().rposition(|(nth, _)| is_covered(*nth));
            for (nth, file) in self.renames.drain(..covered.map_or(0, |last| last + 1)) {
                self.names.apply(log, &log.calls[nth], file);
            }
            return;
        }
        let file = self.file(flush);
        let covered = |(nth, _): &(usize, bool)| is_covered(*nth);
        for (nth, _) in file.pending.extract_if(.., |call| covered(call)) {
            put(log, &log.calls[nth], &mut file.covered, true, &mut || true);
        }
    }

    /// The number of calls that no flush covers.
    pub fn uncovered(&self) -> usize {
        self.files.iter().map(|file| file.pending.len()).sum()
    }

    /// What a cut at this moment leaves, as drawn.
    pub fn image(&self, rng: &mut Rng) -> Image {
        let mut names = self.names.clone();
        let changes = match rng.below(3) {
            0 => 0,
            1 => self.renames.len(),
            _ => rng.below(self.renames.len() as u64 + 1) as usize,
        };
        for (nth, file) in &self.renames[..changes] {
            names.apply(self.log, &self.log.calls[*nth], *file);
        }
        // Most often nothing is left that no flush covers: that finds a missing flush.
        let style = rng.below(10).saturating_sub(4);
        let mut left: HashMap<usize, Pages> = HashMap::new();
        let mut files = BTreeMap::new();
        for (name, file) in names.files {
            let pages = left
                .entry(file)
                .or_insert_with(|| self.left(&self.files[file], style, rng));
            files.insert(name, pages.clone());
        }
        Image { files }
    }

    fn left(&self, file: &File, style: u64, rng: &mut Rng) -> Pages {
        let mut pages = file.covered.clone();
        let chosen = rng.below(file.pending.len().max(1) as u64) as usize;
        for (place, (nth, lengthens)) in file.pending.iter().enumerate() {
            let call = &self.log.calls[*nth];
            let length = pages.length;
            let is_there = match style {
                0 => false,
                1 => true,
                2 => place == chosen,
                3 => place != chosen,
                _ => rng.below(2) == 0,
            };
            let mut whole = || true;
            let mut torn = || rng.below(2) == 0;
            let is_torn = style == 5 && call.kind == Kind::Write;
            match (is_there, is_torn) {
                (false, _) => {}
                (true, true) => put(self.log, call, &mut pages, false, &mut torn),
                (true, false) => put(self.log, call, &mut pages, false, &mut whole),
            }
            if call.kind == Kind::Write && !lengthens {
                pages.cut(pages.length.min(length));
            }
        }
        self.put_mapped(file, &mut pages, rng);
        pages
    }

    /// Each mapped part stays as it is, or becomes what it was at one or two earlier times.
    fn put_mapped(&self, file: &File, pages: &mut Pages, rng: &mut Rng) {
        let mut parts: BTreeMap<u64, Vec<&Call>> = BTreeMap::new();
        for nth in &file.mapped {
            let call = &self.log.calls[*nth];
            parts.entry(call.offset).or_default().push(call);
        }
        for (offset, states) in parts {
            let recent = states.len() - states.len().min(4);
            let from = if rng.below(2) == 0 { recent } else { 0 };
            let mut drawn = || states[from + rng.below((states.len() - from) as u64) as usize];
            let (one, two) = (drawn(), drawn());
            let how = rng.below(4);
            let mut put = |call: &Call, is_there: &mut dyn FnMut() -> bool| {
                pages.put(offset, self.log.payload_of(call), u64::MAX, is_there);
            };
            match how {
                0 => {}
                1 => put(one, &mut || true),
                2 => put(one, &mut || rng.below(2) == 0),
                _ => {
                    put(one, &mut || true);
                    put(two, &mut || rng.below(2) == 0);
                }
            }
        }
    }
}

impl Log {
    /// The bytes of a write, as far as they were written.
    fn payload_of(&self, call: &Call) -> &[u8] {
        match call.kind {
            Kind::Write => {
                let done = call.length.min(call.result as u64) as usize;
                &self.payload(call)[..done]
            }
            _ => self.payload(call),
        }
    }
}

/// Does a call on a file's bytes.
fn put(
    log: &Log,
    call: &Call,
    pages: &mut Pages,
    covered: bool,
    is_there: &mut dyn FnMut() -> bool,
) {
    match call.kind {
        Kind::Write => {
            let bytes = log.payload_of(call);
            pages.put(call.offset, bytes, call.begin, is_there);
            if covered {
                pages.set_stamps(call.offset, bytes.len() as u64, call.begin);
            }
        }
        // Allocation never shortens.
        Kind::Length if call.offset == 1 => pages.length = pages.length.max(call.length),
        Kind::Length => pages.cut(call.length),
        Kind::Punch => pages.zero(call.offset, call.length),
        _ => {}
    }
}
