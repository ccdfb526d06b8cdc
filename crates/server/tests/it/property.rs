// SPDX-License-Identifier: Apache-2.0
//! Random commands from several connections over real sockets, against a model, with DRAM so small
//! that many hits come from flash.
//!
//! A run consists of rounds. In a round each connection sends a batch of commands (text and meta,
//! or binary), in bursts and in pieces, and reads the replies at the same time. Between rounds the
//! clock is advanced, and everything that concerns all connections is settled. Three things are
//! checked. Replies about a key that only one connection changes are checked exactly (`own.rs`).
//! Values of keys that all connections write are checked by the times of the operations
//! (`shared.rs`). The order of the replies shows that a silent command is silent.
//!
//! With large flash nothing may be lost. With small flash, reclaim never stops, and the number of
//! missing keys may not exceed the drops that the server counted. In the third run several keys
//! have the same tag in the index.
//!
//! `SENKO_TEST_FACTOR=20` runs 20 times as many seeds, `SENKO_PROPERTY_SEED` a single one.

mod commands; // what is sent
pub mod keys; // keys and values
pub mod own; // keys of one connection: the model
mod peer; // a connection over a socket
mod replies; // keys of one connection: exact replies
mod settle; // between rounds, and at the end
pub mod shared; // keys of all: histories
pub mod view; // what a connection knows of the keys
pub mod wire; // commands as the checker knows them, reading replies

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use senko_server::settings::{AdmissionRule, BackendChoice, PolicyKind};
use senko_workload::Rng;

use crate::serve::client::Place;
use keys::{Layout, names};
use own::MAX_ITEM;
use peer::Peer;
use settle::{Joint, advance, after_flush, finish, of_flash};
use shared::{Register, Span};

#[derive(Clone, Copy, Debug)]
struct RunSettings {
    io: BackendChoice,
    threads: usize,
    /// `None`: one a thread.
    shards: Option<usize>,
    flash: u64,
    /// Items may be dropped.
    lossy: bool,
    /// Keys come from groups that share their tag.
    twins: bool,
    commands: usize,
    seed: u64,
}

impl RunSettings {
    /// Whether large values go to flash as they arrive. In such a run nothing is flushed, since a
    /// flush refuses what is arriving.
    fn has_uploads(&self) -> bool {
        self.seed.is_multiple_of(2)
    }
}

/// A flush_all: when it was sent, when it was answered (`u64::MAX`: not yet), and its connection.
#[derive(Clone, Copy, Debug)]
struct Flush {
    span: Span,
    by: usize,
}

/// State that all connections of a run see.
struct World {
    run_settings: RunSettings,
    layout: Layout,
    names: Vec<Vec<u8>>,
    /// Incremented with each burst sent and each piece received: the test's own time.
    time: AtomicU64,
    flushes: Mutex<Vec<Flush>>,
    /// Changes with `flushes`.
    flush_version: AtomicUsize,
    /// Steps that touch this key are printed (`SENKO_TRACE_KEY`: the beginning of its name).
    trace: Option<usize>,
}

/// The purpose of a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    number: usize,
    now: u32,
    /// Ledgers and counters are used.
    joint: bool,
    /// The connection that flushes in its batch.
    flusher: Option<usize>,
    /// All keys are stored again: at the beginning, and after a flush.
    fill: bool,
    /// When it began, in the test's own time.
    began: u64,
}

impl World {
    /// A flush_all is about to be sent.
    fn announce(&self, start: u64, by: usize) {
        let span = Span {
            start,
            end: u64::MAX,
        };
        self.flushes.lock().unwrap().push(Flush { span, by });
        self.flush_version.fetch_add(1, Ordering::SeqCst);
    }
}

fn run(run_settings: RunSettings) -> usize {
    println!("{run_settings:?}");
    let layout = Layout {
        connections: 6,
        own: 1600,
        registers: 80,
        ledgers: 3,
        counters: 3,
    };
    let place = Place::start(run_settings.io, 1).restart(|settings| {
        settings.threads = run_settings.threads;
        settings.shards = run_settings.shards;
        let threads = run_settings.threads as u64;
        settings.memory = match run_settings.shards {
            None => 13 + 8 * threads,
            Some(shards) => 17 + 5 * threads + 4 * shards as u64,
        } << 20;
        settings.max_connections = 64;
        settings.max_item = MAX_ITEM;
        settings.flash[0].bytes = run_settings.flash;
        settings.flash[0].path.set_extension("small");
        settings.seed = run_settings.seed;
        settings.admission.rule = AdmissionRule::All;
        if !run_settings.has_uploads() {
            settings.stream_over = settings.max_item;
        }
        settings.policy = if run_settings.seed % 4 == 3 {
            PolicyKind::Lru
        } else {
            PolicyKind::S3Fifo
        };
        settings.promote_after = 1 + (run_settings.seed % 3) as u8;
        settings.sort_small = run_settings.seed % 2 == 1;
    });
    let mut world = World {
        run_settings,
        layout,
        names: names(&layout, run_settings.seed, run_settings.twins),
        time: AtomicU64::new(1),
        flushes: Mutex::new(Vec::new()),
        flush_version: AtomicUsize::new(0),
        trace: None,
    };
    if let Ok(start) = std::env::var("SENKO_TRACE_KEY") {
        world.trace = world
            .names
            .iter()
            .position(|name| name.starts_with(start.as_bytes()));
    }
    let world = world;
    let mut peers: Vec<Peer> = (0..layout.connections)
        .map(|n| Peer::new(&world, n, place.port()))
        .collect();
    let mut joint = Joint {
        registers: (0..layout.registers).map(|_| Register::new()).collect(),
        ledgers: vec![Vec::new(); layout.ledgers],
        counters: vec![0; layout.counters],
        there: false,
    };
    let mut client = place.connect();
    let mut rng = Rng::new(run_settings.seed | 1);
    let mut regions = Vec::new();
    let (mut crept, mut empty) = (0, true);
    for number in 0.. {
        if peers.iter().map(|p| p.commands).sum::<usize>() >= run_settings.commands {
            break;
        }
        let fill = std::mem::take(&mut empty);
        let flusher = (!run_settings.has_uploads() && rng.chance(2))
            .then(|| rng.below(layout.connections as u64) as usize);
        let round = Round {
            number,
            now: (place.clock.load(Ordering::SeqCst) / 1000) as u32,
            joint: !run_settings.lossy && flusher.is_none(),
            flusher,
            fill,
            began: world.time.fetch_add(1, Ordering::SeqCst),
        };
        world.flushes.lock().unwrap().clear();
        world.flush_version.fetch_add(1, Ordering::SeqCst);
        joint.there &= flusher.is_none();
        empty = flusher.is_some();
        if round.joint && !joint.there {
            joint.prepare(&world, &mut client);
        }
        let port = place.port();
        let whole_round = || {
            std::thread::scope(|scope| {
                for peer in &mut peers {
                    let world = &world;
                    scope.spawn(move || peer.round(world, round, port));
                }
            });
            if flusher.is_some() {
                after_flush(&world, &mut peers, &mut joint, round.began);
            }
            joint.settle(&world, &mut peers, &mut client, round.joint);
        };
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(whole_round)) {
            eprintln!("{}", of_flash(&place.connect().stats()));
            std::panic::resume_unwind(panic);
        }
        let stats = client.stats();
        regions.push(stats.get("flash_reclaimed_regions"));
        advance(&world, &place, &mut client, &mut rng, &mut crept);
    }
    finish(&world, &peers, &joint, &mut client, &regions);
    let stats = client.stats();
    let (hits, of_flash) = (stats.get("get_hits"), stats.get("flash_hits"));
    println!("  {of_flash} of {hits} hits came from flash");
    // Usually most of them; a quarter if DRAM mostly holds small items, of which it has room for
    // many.
    assert!(
        of_flash > hits / 10,
        "{run_settings:?}: {of_flash} of {hits} hits tested flash"
    );
    peers.iter().map(|p| p.commands).sum()
}

/// Both backends, one worker and several, for the seeds from `first` on.
fn on_all(first: u64, run_settings: RunSettings) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let count = senko_workload::rounds(1);
    for seed in number("SENKO_PROPERTY_SEED").map_or(first..first + count, |seed| seed..seed + 1) {
        let mut total = 0;
        for (n, io) in [BackendChoice::Auto, BackendChoice::Posix]
            .into_iter()
            .enumerate()
        {
            // With many shards, the memory that each needs is so much that little is dropped.
            let threads = match run_settings.lossy {
                true => &[1, 2][..],
                false => [&[1, 2, 8][..], &[1, 2, 3]][n],
            };
            for (m, &threads) in threads.iter().enumerate() {
                let seed = seed * 6 + 3 * n as u64 + m as u64;
                total += run(RunSettings {
                    io,
                    threads,
                    seed,
                    ..run_settings
                });
            }
        }
        assert!(total >= 4 * run_settings.commands);
    }
}

const SETTINGS: RunSettings = RunSettings {
    io: BackendChoice::Auto,
    threads: 1,
    shards: None,
    flash: 640 << 20,
    lossy: false,
    twins: false,
    commands: 60_000,
    seed: 0,
};

// Together the runs execute a million commands.

#[test]
fn large_flash_loses_nothing() {
    on_all(1000, SETTINGS);
}

/// Workers with several shards, and workers with none.
#[test]
fn any_number_of_workers_serves_any_number_of_shards() {
    for (n, (shards, threads)) in [(8, 3), (3, 1), (2, 3), (8, 16), (2, 8)]
        .into_iter()
        .enumerate()
    {
        run(RunSettings {
            io: [BackendChoice::Auto, BackendChoice::Posix][n % 2],
            threads,
            shards: Some(shards),
            commands: 50_000,
            seed: 4000 + n as u64,
            ..SETTINGS
        });
    }
}

/// This found a deadlock. Reads that waited for a frame kept their region from being reclaimed, and
/// reclaim waited for a frame too. Reads that waited for memory held the frames, and eviction was
/// to free that memory by writing to the full log. Only the clock ended it, a second later, by
/// dropping items; here the clock stands still within a round.
#[test]
fn small_flash_loses_no_more_than_it_counts() {
    on_all(
        2000,
        RunSettings {
            flash: 24 << 20,
            lossy: true,
            ..SETTINGS
        },
    );
}

/// This found two keys with one tag whose records were in one page. The slot of one led to the
/// other's record, which had long been lost or deleted.
#[test]
fn keys_with_one_tag_are_not_mistaken_for_each_other() {
    on_all(
        3000,
        RunSettings {
            flash: 48 << 20,
            lossy: true,
            twins: true,
            commands: 60_000,
            ..SETTINGS
        },
    );
}
