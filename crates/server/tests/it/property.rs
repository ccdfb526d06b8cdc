// SPDX-License-Identifier: Apache-2.0
//! Random commands from several connections over real sockets, against a model, with DRAM so small that most items live on flash.
//!
//! A run goes in rounds. In a round each connection sends a batch of commands (text and meta, or binary), in bursts and in pieces, and reads
//! the replies at the same time. Between rounds the clock is driven on, and what concerns all connections is
//! settled. Three things are checked: each reply about a key that one connection alone changes, exactly (`own.rs`); values of keys that
//! all write, by the times of what was done (`shared.rs`); that a silent command is silent, which follows from the order of what comes.
//!
//! With large flash nothing may be lost. With small flash, reclaim never rests, and no more keys may be found missing than the server
//! counted drops. The third run has keys of which several have the same tag in the index.
//!
//! `SENKO_TEST_FACTOR=20` runs as many more seeds, `SENKO_PROPERTY_SEED` one in particular.

mod commands; // what is sent
mod own; // keys of one connection: exact replies
mod shared; // keys of all: histories
mod wire; // reading replies

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use senko_cache::Key;
use senko_server::settings::{AdmissionRule, BackendChoice, PolicyKind};

use crate::serve::client::{Client, Place};
use commands::{Layout, Maker, Rng, Use, key_name};
use own::{Context, Flushed, MAX_ITEM, OwnKey};
use shared::{Register, Seen, Span, settle_counter, settle_ledger};
use wire::{Act, Command, Reader, Reply};

/// What a run is made from.
#[derive(Clone, Copy, Debug)]
struct Plan {
    io: BackendChoice,
    threads: usize,
    flash: u64,
    /// Items may be dropped.
    lossy: bool,
    /// Keys come from groups that share their tag.
    twins: bool,
    commands: usize,
    seed: u64,
}

/// A flush_all: when it was sent, when it was answered (`u64::MAX`: not yet), and by which connection.
#[derive(Clone, Copy, Debug)]
struct Flush {
    span: Span,
    by: usize,
}

/// What all connections of a run see.
struct World {
    plan: Plan,
    layout: Layout,
    names: Vec<Vec<u8>>,
    /// Counts on with each burst sent and each piece received: the test's own time.
    time: AtomicU64,
    flushes: Mutex<Vec<Flush>>,
    /// Changes with `flushes`.
    flush_version: AtomicUsize,
    /// What happens to this key is printed (`SENKO_TRACE_KEY`, the number in hexadecimal that its name begins with).
    trace: Option<usize>,
}

/// What a round is for.
#[derive(Clone, Copy, Debug)]
struct Round {
    number: usize,
    now: u32,
    /// Ledgers and counters are used.
    joint: bool,
    /// The connection that flushes in its batch.
    flusher: Option<usize>,
    /// All is stored anew: at the beginning, and after a flush.
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

/// One connection and its keys.
struct Peer {
    number: usize,
    binary: bool,
    stream: TcpStream,
    reader: Reader,
    rng: Rng,
    own: Vec<OwnKey>,
    uniques: Vec<u64>,
    seen: Seen,
    next_id: u64,
    next_opaque: u32,
    commands: usize,
    /// A copy of the world's, and its version.
    flushes: (usize, Vec<Flush>),
    /// Events of silent commands wait for the next reply's time.
    silent: usize,
}

/// Closes the socket when its thread panics, so that the thread that sends ends too.
struct CloseOnPanic<'a>(&'a TcpStream);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.shutdown(Shutdown::Both);
        }
    }
}

/// A part of a batch that is sent at a stretch.
struct Burst {
    bytes: std::ops::Range<usize>,
    /// Pieces are up to two to the power of this long.
    scale: u64,
    /// A flush_all is in it.
    flushes: bool,
    sent: AtomicU64,
}

impl Peer {
    fn new(world: &World, number: usize, port: u16) -> Peer {
        let stream = connect(port);
        let reader = Reader::new(stream.try_clone().unwrap());
        let seed = world.plan.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ (number as u64 + 1) << 32;
        Peer {
            number,
            binary: number % 3 == 2,
            stream,
            reader,
            rng: Rng(seed | 1),
            own: (0..world.layout.own).map(|_| OwnKey::new()).collect(),
            uniques: vec![0; world.names.len()],
            seen: Seen::default(),
            next_id: 0,
            next_opaque: 0,
            commands: 0,
            flushes: (0, Vec::new()),
            silent: 0,
        }
    }

    /// A batch: commands, each with the number of its burst; the bursts; all bytes.
    fn batch(
        &mut self,
        world: &World,
        round: Round,
    ) -> (Vec<(Command, usize)>, Vec<Burst>, Vec<u8>) {
        let count = match self.rng.below(10) {
            _ if round.fill => world.layout.own as u64,
            0..3 => 1 + self.rng.below(10),
            3..7 => 10 + self.rng.below(90),
            _ => 100 + self.rng.below(700),
        };
        let flush_at = (round.flusher == Some(self.number)).then(|| self.rng.below(count));
        let (mut list, mut bursts, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut left, mut from, mut first) = (0, 0, 0);
        let mut maker = Maker {
            rng: &mut self.rng,
            connection: self.number,
            binary: self.binary,
            now: round.now,
            layout: world.layout,
            names: &world.names,
            uniques: &self.uniques,
            next_id: &mut self.next_id,
            next_opaque: &mut self.next_opaque,
            joint: round.joint,
        };
        for n in 0..=count {
            if left == 0 {
                let most = if maker.rng.chance(30) { 300 } else { 20 };
                left = 1 + maker.rng.below(most);
                if n > 0 {
                    let flushes = flush_at.is_some_and(|at| (first as u64..n).contains(&at));
                    bursts.push(burst(from..bytes.len(), flushes, maker.rng));
                    (from, first) = (bytes.len(), list.len());
                }
            }
            left -= 1;
            let command = if n == count {
                maker.mark(&mut bytes)
            } else if flush_at == Some(n) {
                maker.flush(&mut bytes)
            } else if round.fill {
                maker.fill(&mut bytes, n as usize)
            } else {
                maker.command(&mut bytes)
            };
            list.push((command, bursts.len()));
        }
        let flushes = flush_at.is_some_and(|at| at >= first as u64);
        bursts.push(burst(from..bytes.len(), flushes, maker.rng));
        self.commands += list.len();
        (list, bursts, bytes)
    }

    fn round(&mut self, world: &World, round: Round, port: u16) {
        for own in &mut self.own {
            // All that was silent has ended long ago.
            own.last.1 = own.last.1.min(round.began);
        }
        if self.rng.chance(3) {
            self.stream = connect(port);
            self.reader = Reader::new(self.stream.try_clone().unwrap());
        }
        let (list, bursts, bytes) = self.batch(world, round);
        let mut sender = self.stream.try_clone().unwrap();
        let closer = self.stream.try_clone().unwrap();
        let mut pieces = Rng(self.rng.next() | 1);
        let (slow, number) = (self.rng.chance(10), self.number);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for burst in &bursts {
                    let mut rest = &bytes[burst.bytes.clone()];
                    let start = world.time.fetch_add(1, Ordering::SeqCst);
                    burst.sent.store(start, Ordering::SeqCst);
                    if burst.flushes {
                        world.announce(start, number);
                    }
                    while !rest.is_empty() {
                        let piece = (1 + pieces.below(1 << burst.scale)).min(rest.len() as u64);
                        let (now, later) = rest.split_at(piece as usize);
                        if sender.write_all(now).is_err() {
                            return; // the reading side tells
                        }
                        rest = later;
                    }
                }
            });
            let _guard = CloseOnPanic(&closer);
            for (n, (command, burst)) in list.iter().enumerate() {
                if slow && n % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let replies = self.reader.replies(command, &world.names, &world.time);
                let start = bursts[*burst].sent.load(Ordering::SeqCst);
                self.take(world, round, command, &replies, start);
            }
        });
    }

    /// Checks the replies of a command that was sent no earlier than `start`.
    fn take(
        &mut self,
        world: &World,
        round: Round,
        command: &Command,
        replies: &[Reply],
        start: u64,
    ) {
        // The end of a silent command is not known yet.
        let silent = matches!(replies[0], Reply::Silent);
        let end = if silent { u64::MAX } else { self.reader.came };
        let span = Span { start, end };
        if !silent {
            // Whoever got this reply knows that what was sent before it has been done.
            for (_, _, earlier) in &mut self.seen.events[self.silent..] {
                earlier.end = span.end;
            }
        }
        for ((key, act), reply) in command.parts.iter().zip(replies) {
            match act {
                Act::Mark | Act::Flush => self.keyless(world, act, reply, span),
                _ => self.keyed(world, round, command, *key, act, reply, span),
            }
        }
        if !silent {
            self.silent = self.seen.events.len();
        }
    }

    fn keyless(&mut self, world: &World, act: &Act, reply: &Reply, span: Span) {
        let wanted: &[u8] = match (act, self.binary) {
            (_, true) => &[0, 0],
            (Act::Flush, _) => b"OK",
            _ => b"MN",
        };
        let Reply::Said { head, .. } = reply else {
            panic!("no reply to {act:?}")
        };
        assert_eq!(head, wanted, "connection {}", self.number);
        if matches!(act, Act::Flush) {
            let mut flushes = world.flushes.lock().unwrap();
            let open = flushes
                .iter_mut()
                .find(|f| f.by == self.number && f.span.end == u64::MAX);
            open.expect("the flush was announced").span.end = span.end;
            world.flush_version.fetch_add(1, Ordering::SeqCst);
            self.own.iter_mut().for_each(OwnKey::flush);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn keyed(
        &mut self,
        world: &World,
        round: Round,
        command: &Command,
        key: usize,
        act: &Act,
        reply: &Reply,
        span: Span,
    ) {
        if world.trace == Some(key) {
            eprintln!(
                "round {} connection {} now {} {span:?}: {} {:?}\n   {}",
                round.number,
                self.number,
                round.now,
                short(act),
                command.form,
                wire::head_of(reply)
            );
        }
        match world.layout.what(key) {
            Use::Register => self.seen.register(key, command, act, reply, span),
            Use::Ledger => self.seen.ledger(key, act, reply),
            Use::Counter => self.seen.counter(key, command, reply),
            Use::Own => {
                let n = key - self.number * world.layout.own;
                let flushed = self.flushed(world, n, span);
                let at = Context {
                    command,
                    key: &world.names[key],
                    now: round.now,
                    lossy: world.plan.lossy,
                };
                let own = &mut self.own[n];
                if let Err(why) = own.check(&at, act, reply, flushed) {
                    panic!(
                        "{:?} round {} connection {} now {}: key {:?}: {} {:?}\n {why}",
                        world.plan,
                        round.number,
                        self.number,
                        round.now,
                        wire::show(at.key),
                        short(act),
                        command.form,
                    );
                }
                own.last = (span.start, span.end);
                self.uniques[key] = own.seen;
            }
        }
        if world.layout.what(key) == Use::Register
            && let Reply::Said { unique, .. } = reply
            && *unique != 0
            && matches!(act, Act::Get { .. } | Act::MetaGet)
        {
            self.uniques[key] = *unique;
        }
    }

    /// Whether another connection's flush came between the last command for a key and this one.
    fn flushed(&mut self, world: &World, own: usize, span: Span) -> Flushed {
        let version = world.flush_version.load(Ordering::SeqCst);
        if version != self.flushes.0 {
            self.flushes = (version, world.flushes.lock().unwrap().clone());
        }
        let (last_start, last_end) = self.own[own].last;
        let mut flushed = Flushed::No;
        for flush in self.flushes.1.iter().filter(|f| f.by != self.number) {
            let f = flush.span;
            if f.start > last_end && f.end < span.start {
                return Flushed::Surely;
            }
            if f.start < span.end && f.end > last_start {
                flushed = Flushed::Perhaps;
            }
        }
        flushed
    }
}

fn short(act: &Act) -> String {
    match act {
        Act::Store {
            mode,
            value,
            flags,
            expiry,
            compare,
            ..
        } => format!(
            "{mode:?} of {} bytes {:?}, flags {flags}, expiry {expiry}, compare {compare}",
            value.len(),
            wire::show(value)
        ),
        other => format!("{other:?}"),
    }
}

fn burst(bytes: std::ops::Range<usize>, flushes: bool, rng: &mut Rng) -> Burst {
    // Pieces of a few bytes only where that is not too many of them.
    let least = (bytes.len() / 200).max(1).ilog2() as u64;
    Burst {
        bytes,
        scale: (least + rng.below(17)).clamp(1, 20),
        flushes,
        sent: AtomicU64::new(u64::MAX),
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The server's numbers.
struct Stats(String);

impl Stats {
    fn ask(client: &mut Client) -> Stats {
        Stats(client.text("stats\r\n", "END\r\n"))
    }
    fn get(&self, name: &str) -> u64 {
        let start = format!("STAT {name} ");
        let line = self.0.lines().find_map(|l| l.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("no {name} in stats"))
            .parse()
            .unwrap()
    }
    /// What is not zero of flash and evictions, for people.
    fn flash(&self) -> String {
        let of_flash = |l: &&str| {
            ["flash", "tag", "dram", "evict", "store"]
                .iter()
                .any(|word| l.starts_with(&format!("STAT {word}")))
        };
        let lines: Vec<&str> = self
            .0
            .lines()
            .filter(of_flash)
            .filter(|l| !l.ends_with(" 0"))
            .collect();
        lines.join("\n")
    }
    /// Items that are gone though nobody asked for that. `evictions` has those that admission, size, a stalled device or
    /// missing memory kept from flash.
    fn drops(&self) -> u64 {
        [
            "evictions",
            "flash_drops_reclaim",
            "flash_drops_index",
            "tag_drops",
            "flash_read_errors",
            "flash_checksum_errors",
            "flash_write_errors",
        ]
        .iter()
        .map(|name| self.get(name))
        .sum()
    }
}

/// What is settled between rounds.
struct Joint {
    registers: Vec<Register>,
    /// What each ledger was sent since it was emptied.
    ledgers: Vec<Vec<Vec<u8>>>,
    counters: Vec<u64>,
    /// They were stored, and not flushed since.
    there: bool,
}

impl Joint {
    /// Empties ledgers and zeroes counters.
    fn prepare(&mut self, world: &World, client: &mut Client) {
        let first = world.layout.first_ledger();
        for key in first..world.layout.keys() {
            let ledger = key < world.layout.first_counter();
            client.send(b"set ");
            client.send(&world.names[key]);
            client.ask(
                if ledger {
                    " 0 0 0\r\n\r\n"
                } else {
                    " 0 0 1\r\n0\r\n"
                },
                "STORED\r\n",
            );
        }
        self.ledgers.iter_mut().for_each(Vec::clear);
        self.counters.iter_mut().for_each(|c| *c = 0);
        self.there = true;
    }

    fn settle(&mut self, world: &World, peers: &mut [Peer], client: &mut Client, joint: bool) {
        let first = world.layout.first_register();
        let mut events = vec![Vec::new(); world.layout.registers];
        for peer in peers.iter_mut() {
            peer.silent = 0;
            for (key, event, span) in peer.seen.events.drain(..) {
                events[key - first].push((event, span));
            }
        }
        for (n, register) in self.registers.iter_mut().enumerate() {
            register
                .settle(&events[n], world.plan.lossy)
                .unwrap_or_else(|why| {
                    panic!(
                        "{:?}: register {:?}: {why}",
                        world.plan,
                        wire::show(&world.names[first + n])
                    )
                });
        }
        if !joint {
            return;
        }
        for peer in peers.iter_mut() {
            for (key, token) in peer.seen.tokens.drain(..) {
                self.ledgers[key - world.layout.first_ledger()].push(token);
            }
        }
        let mut fetch = |key: usize| {
            client.send(b"get ");
            client.send(&world.names[key]);
            client.send(b"\r\n");
            let line = client.until(b"\r\n");
            assert!(
                line.starts_with(b"VALUE "),
                "{:?}: a shared key is gone",
                world.plan
            );
            let mut value = client.until(b"\r\nEND\r\n");
            value.truncate(value.len() - 7);
            value
        };
        for (n, sent) in self.ledgers.iter().enumerate() {
            settle_ledger(&fetch(world.layout.first_ledger() + n), sent);
        }
        for (n, before) in self.counters.iter_mut().enumerate() {
            let key = world.layout.first_counter() + n;
            let text = fetch(key);
            let value = std::str::from_utf8(&text)
                .unwrap()
                .trim_end()
                .parse()
                .unwrap();
            let (mut numbers, mut counted) = (Vec::new(), 0);
            for peer in peers.iter_mut() {
                numbers.extend(peer.seen.numbers.iter().filter(|x| x.0 == key).map(|x| x.1));
                counted += peer.seen.counted.remove(&key).unwrap_or(0);
            }
            settle_counter(&numbers, value, *before, counted);
            *before = value;
        }
        peers.iter_mut().for_each(|peer| peer.seen.numbers.clear());
    }
}

/// Keys of which each two that follow each other have the same tag, in the same segment and shard, on flash of up to 64 MiB. A tag is the
/// lowest 30 bits of a hash then, bit 31 decides between two shards, and the highest seven hold the segment.
fn twins() -> &'static [Vec<u8>] {
    static TWINS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    TWINS.get_or_init(|| {
        const TRIED: u32 = 1 << 23;
        const SAME: u64 = 0xfe00_0000_bfff_ffff;
        let name = |n: u32| format!("t{n:x}").into_bytes();
        let mut hashes: Vec<(u64, u32)> = (0..TRIED)
            .map(|n| (Key::new(&name(n)).hash & SAME, n))
            .collect();
        hashes.sort_unstable();
        let pairs = hashes.windows(2).filter(|w| w[0].0 == w[1].0);
        pairs.flat_map(|w| [name(w[0].1), name(w[1].1)]).collect()
    })
}

/// Key numbers to names: any, or such that the keys that are used most have a twin, mostly with another connection.
fn names(plan: &Plan, layout: &Layout) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (0..layout.keys()).map(|n| key_name(n, plan.seed)).collect();
    if plan.twins {
        for (n, name) in twins().iter().enumerate().take(50 * layout.connections) {
            names[n % layout.connections * layout.own + n / layout.connections] = name.clone();
        }
    }
    names
}

/// A flush_all of the round just over: keys that were not used since are gone, whatever their next reply says of others.
fn after_flush(world: &World, peers: &mut [Peer], joint: &mut Joint, began: u64) {
    let flushes = world.flushes.lock().unwrap();
    let [flush] = flushes[..] else {
        panic!("one flush a round")
    };
    for peer in peers.iter_mut().filter(|p| p.number != flush.by) {
        for own in &mut peer.own {
            let (start, end) = own.last;
            if start < began || end < flush.span.start {
                own.flush();
            } else if start < flush.span.end {
                own.perhaps_flush();
            }
        }
    }
    for register in &mut joint.registers {
        register.flush(flush.span);
    }
}

/// Drives the clock on. A device that has not written for a second is not waited for: where nothing may be lost, writes have to end before
/// the clock makes a leap.
fn advance(world: &World, place: &Place, client: &mut Client, rng: &mut Rng, crept: &mut u64) {
    let leap = world.plan.lossy || rng.chance(25);
    let ms = match rng.below(100) {
        0..10 => 0,
        10..95 => rng.below(5000),
        95..99 => rng.below(100_000),
        _ => rng.below(6_000_000),
    };
    let ms = if leap {
        ms
    } else {
        rng.below(50).min(900 - *crept)
    };
    *crept = if leap { 0 } else { *crept + ms };
    if leap && !world.plan.lossy {
        // A worker shows what it has submitted every tenth of a second, at the end of a round: the first request is a round, the second is
        // answered from what it showed. What has ended is always shown as it is.
        std::thread::sleep(Duration::from_millis(101));
        Stats::ask(client);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let stats = Stats::ask(client);
            if stats.get("flash_written_bytes") >= stats.get("flash_device_writes_bytes") {
                break;
            }
            assert!(Instant::now() < deadline, "writes do not end: {}", stats.0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    place.clock.fetch_add(ms, Ordering::SeqCst);
    // When this is answered, every worker has seen the new time.
    Stats::ask(client);
}

fn finish(world: &World, peers: &[Peer], joint: &Joint, client: &mut Client, regions: &[u64]) {
    let plan = world.plan;
    let stats = Stats::ask(client);
    let own: u64 = peers.iter().flat_map(|p| &p.own).map(OwnKey::losses).sum();
    let shared: u64 = joint.registers.iter().map(|r| r.losses).sum();
    println!(
        "  {} rounds, {} + {} lost of {} dropped, {} overwritten, {} regions reclaimed, {} flash hits, {} promotions, {} demotions, {} false matches, {} tag drops",
        regions.len(),
        own,
        shared,
        stats.drops(),
        stats.get("flash_overwrites"),
        stats.get("flash_reclaimed_regions"),
        stats.get("flash_hits"),
        stats.get("flash_promotions"),
        stats.get("flash_demotions"),
        stats.get("flash_false_matches"),
        stats.get("tag_drops"),
    );
    assert_eq!(
        stats.get("flash_checksum_errors")
            + stats.get("flash_read_errors")
            + stats.get("store_no_memory"),
        0,
        "{plan:?}: {}",
        stats.0
    );
    if plan.twins {
        // A store that drops a twin unread counts it among the overwritten.
        assert!(
            own + shared <= stats.drops() + stats.get("flash_overwrites"),
            "{plan:?}: {}",
            stats.0
        );
        assert!(
            stats.get("flash_false_matches") > 0 && stats.get("tag_drops") > 0,
            "{plan:?}: {}",
            stats.0
        );
    } else if plan.lossy {
        assert!(
            own + shared <= stats.drops(),
            "{plan:?}: {own} + {shared} lost: {}",
            stats.0
        );
        assert!(own > 0, "{plan:?}: flash was to be too small");
        // In each quarter of the run, in its last as in its first.
        let quarters: Vec<u64> = (1..=4)
            .map(|n| regions[regions.len() * n / 4 - 1])
            .collect();
        assert!(
            quarters[0] > 0 && quarters.windows(2).all(|w| w[0] < w[1]),
            "{plan:?}: regions reclaimed: {quarters:?}"
        );
    } else {
        assert_eq!(
            stats.drops() + stats.get("flash_reclaimed_regions"),
            0,
            "{plan:?}: the plan was to drop nothing: {}",
            stats.0
        );
    }
}

fn run(plan: Plan) -> usize {
    println!("{plan:?}");
    let layout = Layout {
        connections: 6,
        own: 1600,
        registers: 80,
        ledgers: 3,
        counters: 3,
    };
    let place = Place::start(plan.io, plan.threads).restart(|settings| {
        settings.memory = if plan.threads == 1 {
            19 << 20
        } else {
            26 << 20
        };
        settings.max_connections = 64;
        settings.max_item = MAX_ITEM;
        settings.flash[0].bytes = plan.flash;
        settings.flash[0].path.set_extension("small");
        settings.seed = plan.seed;
        settings.admission.rule = AdmissionRule::All;
        settings.policy = if plan.seed % 4 == 3 {
            PolicyKind::Lru
        } else {
            PolicyKind::S3Fifo
        };
        settings.promote_after = 1 + (plan.seed % 3) as u8;
    });
    let world = World {
        plan,
        layout,
        names: names(&plan, &layout),
        time: AtomicU64::new(1),
        flushes: Mutex::new(Vec::new()),
        flush_version: AtomicUsize::new(0),
        trace: std::env::var("SENKO_TRACE_KEY")
            .ok()
            .and_then(|text| usize::from_str_radix(&text, 16).ok()),
    };
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
    let mut rng = Rng(plan.seed | 1);
    let mut regions = Vec::new();
    let (mut on_flash, mut crept, mut empty) = (Vec::new(), 0, true);
    for number in 0.. {
        if peers.iter().map(|p| p.commands).sum::<usize>() >= plan.commands {
            break;
        }
        let fill = std::mem::take(&mut empty);
        let flusher = rng
            .chance(2)
            .then(|| rng.below(layout.connections as u64) as usize);
        let round = Round {
            number,
            now: (place.clock.load(Ordering::SeqCst) / 1000) as u32,
            joint: !plan.lossy && flusher.is_none(),
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
            eprintln!("{}", Stats::ask(&mut place.connect()).flash());
            std::panic::resume_unwind(panic);
        }
        let stats = Stats::ask(&mut client);
        let share = stats.get("flash_items") * 100
            / (stats.get("dram_items") + stats.get("flash_items")).max(1);
        on_flash.push(share);
        regions.push(stats.get("flash_reclaimed_regions"));
        advance(&world, &place, &mut client, &mut rng, &mut crept);
    }
    finish(&world, &peers, &joint, &mut client, &regions);
    on_flash.sort_unstable();
    println!(
        "  {}% of items on flash in half of the rounds",
        on_flash[on_flash.len() / 2]
    );
    assert!(
        on_flash[on_flash.len() / 2] > 50,
        "{plan:?}: most items were to live on flash"
    );
    peers.iter().map(|p| p.commands).sum()
}

/// Both backends, one worker and two, for the seeds from `first` on.
fn on_all(first: u64, plan: Plan) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let count = number("SENKO_TEST_FACTOR").unwrap_or(1);
    for seed in number("SENKO_PROPERTY_SEED").map_or(first..first + count, |seed| seed..seed + 1) {
        let mut total = 0;
        for (n, io) in [BackendChoice::Auto, BackendChoice::Posix]
            .into_iter()
            .enumerate()
        {
            for threads in [1, 2] {
                let seed = seed * 4 + 2 * n as u64 + threads as u64 - 1;
                total += run(Plan {
                    io,
                    threads,
                    seed,
                    ..plan
                });
            }
        }
        assert!(total >= 4 * plan.commands);
    }
}

const PLAN: Plan = Plan {
    io: BackendChoice::Auto,
    threads: 1,
    flash: 640 << 20,
    lossy: false,
    twins: false,
    commands: 100_000,
    seed: 0,
};

// The three together are more than a million commands.

#[test]
fn large_flash_loses_nothing() {
    on_all(1000, PLAN);
}

#[test]
fn small_flash_loses_no_more_than_it_counts() {
    on_all(
        2000,
        Plan {
            flash: 24 << 20,
            lossy: true,
            ..PLAN
        },
    );
}

#[test]
fn keys_with_one_tag_are_not_mistaken_for_each_other() {
    on_all(
        3000,
        Plan {
            flash: 48 << 20,
            lossy: true,
            twins: true,
            commands: 60_000,
            ..PLAN
        },
    );
}
