// SPDX-License-Identifier: Apache-2.0
//! Power cuts and kills of a server with a data directory, from a record of its system calls. After
//! a cut the cache starts with what a clean stop saved, or empty; after a kill also with what was
//! in shared memory. It never answers with an old, deleted or torn value, and it never refuses to
//! start.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::ExitStatus;

use senko_server::server::{RunningServer, Server};
use senko_server::settings::{FlashSpec, Settings};
use senko_workload::Rng;
use senko_workload::rng::mix64;

use crate::recorded::{Log, Orders, Recorder, Replay, Scratch, mark, number, seed};
use crate::serve::client::Client;

/// The child's folder, threads, and whether it keeps DRAM; only the child has it.
const CHILD: &str = "SENKO_SERVER_RECORDED";

/// About 21 MB with their values: most are on flash.
const KEYS: u64 = 12_000;
const BATCH: u64 = 200;
/// Batches of each life of the server, after the first one has set every key.
const LIFE: u64 = 12;
const LIVES: u64 = 3;
/// The number of items that were kept follows.
const MARK_STOPPED: &str = "stopped";
const MARK_STARTING: &str = "starting";

/// Operation `n`: the key, and whether it is set or deleted.
fn operation(n: u64) -> (u64, bool) {
    match n {
        n if n < KEYS => (n, true),
        n => (mix64(n) % KEYS, mix64(n) >> 32 & 3 != 0),
    }
}

fn value(key: u64, n: u64) -> String {
    format!("{key}.{n}.").repeat(150)
}

fn start(folder: &Path, memory: &Path, threads: usize, keep_dram: bool) -> RunningServer {
    let settings = Settings {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        memory: 40 << 20,
        threads,
        flash: vec![FlashSpec {
            path: folder.join("flash"),
            bytes: 64 << 20,
        }],
        data_dir: Some(folder.to_owned()),
        shared_memory: memory.to_owned(),
        keep_dram,
        draw_hash_seed: false,
        ..Settings::default()
    };
    Server::start(settings).unwrap()
}

/// Returns the number of items that the next start will have.
fn stop(server: RunningServer) -> u64 {
    server.shutdown();
    let kept = server.join().unwrap();
    kept.flash_items + kept.dram_items
}

/// The child: lives of a server with a clean stop after each, and one client that marks how far it
/// came.
#[test]
fn child() {
    let Ok(text) = std::env::var(CHILD) else {
        return;
    };
    let words: Vec<&str> = text.split(' ').collect();
    let (folder, memory) = (Path::new(words[0]), Path::new(words[1]));
    let (threads, keep_dram) = (words[2].parse().unwrap(), words[3] == "true");
    let mut batch = 0;
    for life in 1..=LIVES {
        mark(MARK_STARTING);
        let server = start(folder, memory, threads, keep_dram);
        let mut client = Client::connect(server.local_port().unwrap());
        while batch < KEYS / BATCH + life * LIFE {
            let mut request = String::new();
            for n in batch * BATCH..(batch + 1) * BATCH {
                let (key, is_set) = operation(n);
                if is_set {
                    let value = value(key, n);
                    let length = value.len();
                    request += &format!("set k{key} 0 0 {length} noreply\r\n{value}\r\n");
                } else {
                    request += &format!("delete k{key} noreply\r\n");
                }
            }
            client.ask(&(request + "mn\r\n"), "MN\r\n");
            batch += 1;
            mark(&batch.to_string());
        }
        drop(client);
        let kept = stop(server);
        mark(&format!("{MARK_STOPPED} {kept}"));
    }
}

/// Runs the child in a folder, and with shared memory in another one.
fn run(
    (folder, memory): (&Path, &Path),
    threads: usize,
    keep_dram: bool,
    orders: &Orders,
) -> (ExitStatus, Log) {
    let recorder = Recorder::new(folder);
    let (path, shared) = (folder.display(), memory.display());
    let told = format!("{path} {shared} {threads} {keep_dram}");
    let status = recorder.run_test("calls::child", (CHILD, told), orders);
    (status, recorder.log())
}

/// Starts a server on what a cut or a kill left, and compares every key with the operations that
/// were answered (`done`) or under way. Returns the number of items.
fn check(folder: &Path, memory: &Path, threads: usize, keep_dram: bool, done: u64) -> u64 {
    let server = start(folder, memory, threads, keep_dram);
    let mut client = Client::connect(server.local_port().unwrap());
    let mut state: HashMap<u64, u64> = HashMap::new();
    for n in 0..done * BATCH {
        match operation(n) {
            (key, true) => drop(state.insert(key, n)),
            (key, false) => drop(state.remove(&key)),
        }
    }
    let under_way: HashSet<(u64, u64)> = (done * BATCH..(done + 1) * BATCH)
        .map(|n| (operation(n).0, n))
        .collect();
    let mut items = 0;
    for part in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let request: String = part.iter().map(|key| format!("get k{key}\r\n")).collect();
        client.send(request.as_bytes());
        for key in part {
            let answer = String::from_utf8(client.until(b"END\r\n")).unwrap();
            if answer == "END\r\n" {
                continue;
            }
            items += 1;
            let body = answer.split("\r\n").nth(1).unwrap();
            let n: u64 = body.split('.').nth(1).unwrap().parse().unwrap();
            assert_eq!(body, value(*key, n), "key {key}");
            let is_right = state.get(key) == Some(&n) || under_way.contains(&(*key, n));
            let right = state.get(key);
            assert!(
                is_right,
                "key {key} has the value of {n}, after {done} batches it is {right:?}"
            );
        }
    }
    drop(client);
    stop(server);
    items
}

/// `SENKO_SERVER_CUTS` sets the number of cuts.
#[test]
fn a_power_cut_brings_nothing_old_back() {
    let mut rng = Rng::new(seed("cuts"));
    let (cuts, mut done, mut warm) = (number("SENKO_SERVER_CUTS", 40), 0, 0);
    for round in 0.. {
        if done >= cuts {
            break;
        }
        let (threads, keep_dram) = ([2, 1][round % 2], [true, false, false, true][round % 4]);
        let (folder, memory) = (Scratch::new(), Scratch::new());
        let orders = Orders {
            delays: Some((rng.next_u64() >> 1, 200)),
            kill: None,
        };
        let places = (folder.path(), memory.path());
        let (status, log) = run(places, threads, keep_dram, &orders);
        assert!(status.success(), "{status}");
        let marks = log.marks();
        let near: Vec<u64> = marks
            .iter()
            .filter(|(_, text)| text.parse::<u64>().is_err())
            .map(|(at, _)| *at)
            .collect();
        let mut moments: Vec<u64> = (0..(cuts / 4).clamp(1, 500))
            .map(|_| match rng.below(3) {
                0 => rng.below(log.end()),
                // Starts and stops.
                1 => near[rng.below(near.len() as u64) as usize],
                _ => near[rng.below(near.len() as u64) as usize].saturating_sub(20) + rng.below(60),
            })
            .collect();
        moments.sort_unstable();
        let mut replay = Replay::new(&log);
        for moment in &moments {
            replay.move_to(*moment);
            let mut before = marks.iter().filter(|(at, _)| at <= moment);
            let batches = before
                .clone()
                .filter_map(|(_, text)| text.parse().ok())
                .max();
            let kept = before.next_back().and_then(|(_, text)| {
                let kept = text.strip_prefix(MARK_STOPPED)?;
                Some(kept.trim().parse::<u64>().unwrap())
            });
            // Shared memory is gone.
            let (left, memory) = (Scratch::new(), Scratch::new());
            replay.image(&mut rng).write_to(left.path());
            println!("cut at {moment} of {}, {batches:?} batches", log.end());
            let (left, memory) = (left.path(), memory.path());
            let items = check(left, memory, threads, keep_dram, batches.unwrap_or(0));
            assert!(kept.is_none_or(|kept| items == kept), "{items} of {kept:?}");
            warm += u64::from(items > 0);
        }
        done += moments.len() as u64;
    }
    println!("{done} cuts, {warm} of them with items");
    assert!(warm > 0, "no cut came after a stop");
}

/// `SENKO_SERVER_CALLS` sets the number of kills, with each number of threads, with and without
/// saved DRAM.
#[test]
fn a_kill_at_any_call_brings_nothing_old_back() {
    let mut rng = Rng::new(seed("kills at calls"));
    let (most, mut done, mut warm) = (number("SENKO_SERVER_CALLS", 6), 0, 0);
    for (threads, keep_dram) in [(2, true), (1, false), (2, false), (1, true)] {
        let start = |kill| {
            let (folder, memory) = (Scratch::new(), Scratch::new());
            let orders = Orders { delays: None, kill };
            let places = (folder.path(), memory.path());
            let (status, log) = run(places, threads, keep_dram, &orders);
            (status, log, folder, memory)
        };
        let (status, log, ..) = start(None);
        assert!(status.success(), "{status}");
        let calls = log.kills();
        for kill in log.draw_kills(most, &mut rng) {
            let (status, log, folder, memory) = start(Some(kill));
            // The number of calls differs from run to run.
            if status.success() {
                continue;
            }
            let batches = log.marks().into_iter();
            let batches = batches.filter_map(|(_, text)| text.parse().ok()).max();
            println!("{threads} threads, {keep_dram}, {kill:?} of {calls}, {batches:?} batches");
            let (folder, memory) = (folder.path(), memory.path());
            let items = check(folder, memory, threads, keep_dram, batches.unwrap_or(0));
            done += 1;
            warm += u64::from(items > 0);
        }
    }
    println!("{done} kills, {warm} of them left items");
    assert!(warm > 0, "no server kept items");
}
