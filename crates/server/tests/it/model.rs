// SPDX-License-Identifier: Apache-2.0
//! Random commands on sessions, with most items on flash, against the model of `property`.
//!
//! Several connections send deep pipelines, in pieces; disk completions and messages between shards
//! come in random order. All of that happens in one thread, so a seed repeats a run exactly. The
//! keys are few and the values large, so no item is lost because it shares a tag. The flash is
//! large, so nothing is dropped. Any miss of a live key is an error.

use std::io::Cursor;
use std::sync::atomic::AtomicU64;

use senko_workload::Rng;

use crate::property::keys::{Layout, names};
use crate::property::own::{Context, Flushed, MAX_ITEM, OwnKey};
use crate::property::shared::{Register, Span};
use crate::property::view::View;
use crate::property::wire::{Act, Command, Reader, Reply, head_of, short};
use crate::rig::{Rig, RigSettings, START};

const LAYOUT: Layout = Layout {
    connections: 4,
    own: 60,
    registers: 10,
    ledgers: 0,
    counters: 0,
};

/// One connection, and its commands since the last check, each with the time at which it was sent.
struct Client {
    id: u64,
    view: View,
    sent: Vec<(Command, u64)>,
}

/// Clients, keys and clocks of a run.
struct World {
    rig: Rig,
    names: Vec<Vec<u8>>,
    registers: Vec<Register>,
    /// Unix seconds.
    now: u32,
    /// Incremented with each command and each check: the test's own time.
    time: u64,
}

impl World {
    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// Sends a batch of commands in pieces, with other events in between.
    fn send(&mut self, client: &mut Client, rng: &mut Rng) {
        let mut bytes = Vec::new();
        for _ in 0..1 + rng.below(12) {
            let start = self.tick();
            let keys = (LAYOUT, &self.names[..]);
            let mut maker = client.view.maker(rng, keys, self.now, false);
            client.sent.push((maker.command(&mut bytes), start));
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let scale = 4 + rng.below(14);
            let piece = (1 + rng.below(1 << scale)).min(rest.len() as u64) as usize;
            self.rig.send(client.id, &rest[..piece]);
            rest = &rest[piece..];
            for _ in 0..rng.below(4) {
                self.rig.happen();
            }
        }
    }

    /// Lets all commands end, and checks their replies.
    fn check(&mut self, clients: &mut [Client], rng: &mut Rng) {
        for client in &mut *clients {
            let mut bytes = Vec::new();
            let start = self.tick();
            let keys = (LAYOUT, &self.names[..]);
            let mut maker = client.view.maker(rng, keys, self.now, false);
            client.sent.push((maker.mark(&mut bytes), start));
            self.rig.send(client.id, &bytes);
        }
        self.rig.settle();
        let end = self.tick();
        let mut events = vec![Vec::new(); LAYOUT.registers];
        for client in clients {
            let mut reader = Reader::new(Cursor::new(self.rig.answers(client.id)));
            for (command, start) in std::mem::take(&mut client.sent) {
                let replies = reader.replies(&command, &self.names, &AtomicU64::new(0));
                for (part, reply) in command.parts.iter().zip(&replies) {
                    self.take(client, &command, part, reply, Span { start, end });
                }
            }
            assert!(reader.is_done(), "bytes after the last reply");
            for (key, event, span) in client.view.seen.events.drain(..) {
                events[key - LAYOUT.first_register()].push((event, span));
            }
        }
        for (n, register) in self.registers.iter_mut().enumerate() {
            let settled = register.settle(&events[n], false);
            settled.unwrap_or_else(|why| panic!("register {n}: {why}"));
        }
    }

    fn take(
        &self,
        client: &mut Client,
        command: &Command,
        (key, act): &(usize, Act),
        reply: &Reply,
        span: Span,
    ) {
        if matches!(act, Act::Mark) {
            let wanted: &[u8] = if client.view.binary { &[0, 0] } else { b"MN" };
            let is_mark = matches!(reply, Reply::Said { head, .. } if head == wanted);
            return assert!(is_mark, "{}", head_of(reply));
        }
        let at = Context {
            command,
            key: &self.names[*key],
            now: self.now,
            lossy: false,
        };
        let found = (span, Flushed::No);
        if let Err(why) = (client.view).check(&LAYOUT, &at, (*key, act), reply, found) {
            let (act, form) = (short(act), &command.form);
            panic!("connection {}: {act} {form:?}\n {why}", client.view.number);
        }
    }

    fn flush(&mut self, clients: &mut [Client]) {
        let start = self.tick();
        let id = clients[0].id;
        assert_eq!(self.rig.ask(id, b"flush_all\r\n"), b"OK\r\n");
        let end = self.tick();
        for client in clients {
            client.view.own.iter_mut().for_each(OwnKey::flush);
        }
        for register in &mut self.registers {
            register.flush(Span { start, end });
        }
    }
}

/// Stores items that nobody reads, so that others leave DRAM and the write buffers.
fn fill(rig: &mut Rig, id: u64, shards: usize, rng: &mut Rng) {
    let len = 20_000;
    for _ in 0..100 * shards {
        let mut command = format!("set fill{} 0 0 {len} noreply\r\n", rng.next_u64()).into_bytes();
        command.resize(command.len() + len, b'.');
        command.extend_from_slice(b"\r\n");
        rig.send(id, &command);
        rig.happen();
    }
    rig.settle();
}

/// Returns the items that came from flash, and those that another node's shard read.
fn run((shards, workers): (usize, usize), seed: u64, rounds: usize) -> [u64; 2] {
    println!("seed {seed}, {shards} shards, {workers} workers");
    let mut rig_settings = RigSettings {
        shards,
        workers,
        memory: 4 << 20,
        flash_pages: 64 << 10,
        seed,
        ..RigSettings::default()
    };
    rig_settings.settings.max_item = MAX_ITEM;
    let mut world = World {
        rig: Rig::new(&rig_settings),
        names: names(&LAYOUT, seed, false),
        registers: (0..LAYOUT.registers).map(|_| Register::new()).collect(),
        now: START,
        time: 0,
    };
    let mut rng = Rng::new(seed | 1);
    let mut clients: Vec<Client> = (0..LAYOUT.connections)
        .map(|n| Client {
            id: world.rig.connect_to(n % workers),
            view: View::new(n, n == 3, &LAYOUT),
            sent: Vec::new(),
        })
        .collect();
    let filler = world.rig.connect();
    for _ in 0..rounds {
        for _ in 0..1 + rng.below(6) {
            let client = &mut clients[rng.below(LAYOUT.connections as u64) as usize];
            world.send(client, &mut rng);
        }
        if rng.chance(40) {
            world.check(&mut clients, &mut rng);
            if rng.chance(5) {
                world.flush(&mut clients);
            }
            if shards > 1 && rng.chance(15) {
                fill(&mut world.rig, filler, shards, &mut rng);
            }
            let seconds = rng.below(3) as u32;
            world.rig.advance(seconds);
            world.now += seconds;
            world.rig.settle();
        }
    }
    let mut waits = [0; 2];
    for node in &world.rig.nodes {
        let stats = node.shard.stats();
        let dropped = stats.drops_busy
            + stats.drops_index
            + stats.reclaim_drops
            + stats.drops_size
            + stats.evictions;
        assert_eq!(dropped, 0, "the run was to drop nothing: {stats:?}");
        waits[0] += stats.flash_hits + stats.promotions;
        waits[1] += node.stats.read_afar;
    }
    waits
}

#[test]
fn pipelines_see_what_the_model_says() {
    let (mut from_flash, mut afar) = (0, 0);
    // SENKO_MODEL_SEEDS=500 for a long run.
    let seeds = std::env::var("SENKO_MODEL_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8);
    for seed in 1..=seeds {
        for (shards, workers) in [(1, 1), (2, 2), (8, 8), (3, 1), (8, 3), (2, 3), (3, 16)] {
            let number = seed * 1000 + (shards + 16 * workers) as u64;
            let waits = run((shards, workers), number, 100);
            (from_flash, afar) = (from_flash + waits[0], afar + waits[1]);
        }
    }
    println!("{from_flash} items came from flash, {afar} of them from afar");
    assert!(from_flash > 1000 && afar > 100, "{from_flash} {afar}");
}
