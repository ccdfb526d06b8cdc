// SPDX-License-Identifier: Apache-2.0
//! The tests of both engines with records of their calls: rounds of cuts, and operations that are
//! killed. An engine's file is `data` in its folder; a copy of it is `copy`.

use std::path::Path;
use std::process::ExitStatus;

use senko_workload::Rng;

use super::{Image, Log, Orders, Recorder, Replay, Scratch, When};

/// Opens what drawn power cuts after `from` leave, every second one at a moment of `near`. `open`
/// gets the moment, what is left and, for some, a folder for the files; by the moment, `made` says
/// whether the file must be there. Returns how many cuts there were.
pub fn cut(
    log: &Log,
    (from, cuts): (u64, u64),
    near: &[u64],
    rng: &mut Rng,
    made: impl Fn(u64) -> bool,
    mut open: impl FnMut(u64, &Image, Option<&Path>) -> Result<(), String>,
) -> u64 {
    let mut moments: Vec<u64> = (0..cuts)
        .map(|_| match rng.below(2) {
            0 if !near.is_empty() => near[rng.below(near.len() as u64) as usize],
            _ => from + rng.below(log.end() - from),
        })
        .filter(|moment| *moment >= from)
        .collect();
    moments.sort_unstable();
    let mut replay = Replay::new(log);
    for (nth, moment) in moments.iter().enumerate() {
        replay.move_to(*moment);
        let image = replay.image(rng);
        let made = made(*moment);
        if !image.files.contains_key("data") {
            assert!(!made, "the file is gone");
            continue;
        }
        // A file without its first length is only a matter of the file layer.
        let folder = (nth % 16 == 0 || !made).then(Scratch::new);
        if let Err(text) = open(*moment, &image, folder.as_ref().map(Scratch::path)) {
            let (end, unflushed) = (log.end(), replay.uncovered());
            panic!("cut at {moment} of {end}, {unflushed} calls unflushed: {text}");
        }
    }
    moments.len() as u64
}

/// How the child of an engine runs: on a path, with threads, writes and a seed.
pub type Run<'a> = &'a dyn Fn(&Recorder, &Path, (u64, u64, u64), &Orders);

/// Rounds of cuts until there are as many as were asked for, or `is_over`.
pub struct Rounds<'a> {
    pub seed: u64,
    pub cuts: u64,
    pub is_over: &'a dyn Fn(u64) -> bool,
    pub run: Run<'a>,
    pub cut: &'a dyn Fn(&Log, u64, u64, &mut Rng) -> u64,
}

impl Rounds<'_> {
    fn each(&self, mut round: impl FnMut(usize, &Recorder, &Path, &mut Rng) -> u64) {
        let (mut rng, mut done) = (Rng::new(self.seed), 0);
        for nth in 0.. {
            if done >= self.cuts || (self.is_over)(done) {
                break;
            }
            let folder = Scratch::new();
            let recorder = Recorder::new(folder.path());
            done += round(nth, &recorder, &folder.path().join("data"), &mut rng);
        }
        println!("{done} cuts");
    }

    /// A process with 1, 2 or 8 threads makes so many writes in all, its calls take drawn times.
    pub fn of_whole_runs(&self, writes: impl Fn(u64) -> u64) {
        self.each(|nth, recorder, path, rng| {
            let threads = [8, 2, 1][nth % 3];
            let micros = [2000, 300, 0][rng.below(3) as usize];
            let orders = Orders {
                delays: Some((self.seed + nth as u64, micros)),
                kill: None,
            };
            let numbers = (threads, writes(threads), rng.next_u64() >> 1);
            (self.run)(recorder, path, numbers, &orders);
            let cuts = (self.cuts / 3).clamp(1, 2000);
            (self.cut)(&recorder.log(), 0, cuts, rng)
        });
    }

    /// A process is killed at one of its calls, early or up to `late`; then another one writes.
    pub fn after_a_kill(&self, late: u64) {
        self.each(|nth, recorder, path, rng| {
            let when = [When::Before, When::Half, When::After][rng.below(3) as usize];
            let first = Orders {
                delays: None,
                kill: Some((1 + rng.below([8, late][nth % 2]), when)),
            };
            let numbers = (2, 100_000, rng.next_u64() >> 1);
            (self.run)(recorder, path, numbers, &first);
            let from = recorder.log().end();
            let (threads, writes) = ([1, 2][nth % 2], rng.below(30));
            let numbers = (threads, writes, rng.next_u64() >> 1);
            (self.run)(recorder, path, numbers, &Orders::default());
            let cuts = (self.cuts / 8).clamp(1, 500);
            (self.cut)(&recorder.log(), from, cuts, rng)
        });
    }
}

/// One process does an operation on a prepared file, to its end or its kill. The test and the
/// variable are those of the worker.
pub fn operate_once(
    (test, variable): (&str, &str),
    operation: &str,
    prepared: &[u8],
    kill: Option<(u64, When)>,
) -> (ExitStatus, Scratch, Log) {
    let folder = Scratch::new();
    let path = folder.path().join("data");
    std::fs::write(&path, prepared).unwrap();
    let recorder = Recorder::new(folder.path());
    let copy = folder.path().join("copy");
    let told = format!("{operation} {} {}", path.display(), copy.display());
    let orders = Orders { delays: None, kill };
    let status = recorder.run_test(test, (variable, told), &orders);
    (status, folder, recorder.log())
}

/// A folder has the file and its copy, and nothing else.
pub fn nothing_else_is_left(folder: &Path, what: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(name == "data" || name == "copy", "{what}: {name:?} is left");
    }
}
