// SPDX-License-Identifier: Apache-2.0
//! Random commands against a map, with most items on flash.
//!
//! Several connections, each with its own keys, send deep pipelines; disk completions and messages
//! between shards come in random order. Because no other connection touches its keys, each
//! connection must see exactly the values of the map, in order. The keys are few and the values
//! large, so no item is lost because it shares a tag. The flash is large, so nothing is dropped.
//! Any miss of a live key is an error.

use std::collections::HashMap;

use senko_workload::Rng;

use crate::rig::{Rig, RigSettings, START};
use crate::session::packet;

#[derive(Clone, Debug)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    expiry: u32,
}

/// One connection's keys, and the replies that it still expects.
struct Client {
    id: u64,
    binary: bool,
    map: HashMap<String, Entry>,
    expected: Vec<u8>,
    /// Binary replies: opcode, status, body.
    packets: Vec<(u8, u16, Vec<u8>)>,
    log: Vec<String>,
}

const KEYS: u64 = 30;

impl Client {
    fn key_name(&self, rng: &mut Rng) -> String {
        let (n, client) = (rng.below(KEYS), self.id);
        format!("c{client}-key{n}-{}", "x".repeat((n * 7 % 60) as usize))
    }
    fn live(&mut self, key: &str, now: u32) -> Option<&mut Entry> {
        self.map
            .get_mut(key)
            .filter(|entry| entry.expiry == 0 || entry.expiry > now)
    }
    fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.expected.extend_from_slice(bytes.as_ref());
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(100) {
        0..30 => rng.below(40),
        30..60 => rng.below(4000),
        60..95 => 4000 + rng.below(30_000),
        _ => 60_000 + rng.below(30_000),
    };
    let seed = rng.next_u64();
    (0..len)
        .map(|i| b'a' + ((seed >> (i % 50)) as u8 ^ i as u8) % 26)
        .collect()
}

/// Expiry arguments and their meaning.
fn exptime(rng: &mut Rng, now: u32) -> (i64, u32) {
    match rng.below(10) {
        0..7 => (0, 0),
        7 => (-1, 1),
        8 => {
            let after = 1 + rng.below(20) as u32;
            (i64::from(after), now + after)
        }
        _ => {
            let at = now + 1 + rng.below(20) as u32;
            (i64::from(at), at)
        }
    }
}

/// A number as memcached reads it: white space ends it.
fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value)
        .ok()?
        .trim_start_matches(' ')
        .split(' ')
        .next()?
        .parse()
        .ok()
}

/// A number in the place of a value of `width` bytes.
fn padded(n: u64, width: usize) -> Vec<u8> {
    let mut text = n.to_string().into_bytes();
    text.resize(width.max(text.len()), b' ');
    text
}

/// One text command, and its effect on the map.
fn text_command(client: &mut Client, rng: &mut Rng, now: u32, key: &str, reads: bool) -> Vec<u8> {
    let kind = if reads {
        9 + rng.below(2)
    } else {
        rng.below(16)
    };
    let quiet = rng.chance(10);
    let noreply = if quiet { " noreply" } else { "" };
    let mut command = Vec::new();
    let mut reply = String::new();
    match kind {
        0..3 => {
            let (mut mode, value, flags) = (rng.below(5), value(rng), rng.below(1 << 20) as u32);
            let old = client.live(key, now).map_or(0, |old| old.value.len());
            if (BIGGEST - 500..BIGGEST + 500).contains(&(old + value.len())) {
                // Not so close to the limit that the size of headers matters.
                mode = 0;
            }
            let (exptime, expiry) = exptime(rng, now);
            let name = ["set", "add", "replace", "append", "prepend"][mode as usize];
            command.extend_from_slice(
                format!(
                    "{name} {key} {flags} {exptime} {}{noreply}\r\n",
                    value.len()
                )
                .as_bytes(),
            );
            command.extend_from_slice(&value);
            command.extend_from_slice(b"\r\n");
            let old = client.live(key, now).cloned();
            let new = match (name, old) {
                ("set", _) | ("add", None) | ("replace", Some(_)) => Some(Entry {
                    value,
                    flags,
                    expiry,
                }),
                ("append", Some(old)) => Some(Entry {
                    value: [&old.value[..], &value].concat(),
                    ..old
                }),
                ("prepend", Some(old)) => Some(Entry {
                    value: [&value[..], &old.value].concat(),
                    ..old
                }),
                _ => None,
            };
            match new {
                // A value larger than the largest item is not stored.
                Some(new) if new.value.len() < BIGGEST => {
                    client.map.insert(key.to_owned(), new);
                    reply += "STORED\r\n";
                }
                _ => reply += "NOT_STORED\r\n",
            }
        }
        3 => {
            let n = rng.below(1000);
            command.extend_from_slice(
                format!("set {key} 0 0 {}{noreply}\r\n{n}\r\n", n.to_string().len()).as_bytes(),
            );
            client.map.insert(
                key.to_owned(),
                Entry {
                    value: n.to_string().into_bytes(),
                    flags: 0,
                    expiry: 0,
                },
            );
            reply += "STORED\r\n";
        }
        4 => {
            let cas = u64::MAX - 5;
            command
                .extend_from_slice(format!("cas {key} 0 0 1 {cas}{noreply}\r\nx\r\n").as_bytes());
            reply += if client.live(key, now).is_some() {
                "EXISTS\r\n"
            } else {
                "NOT_FOUND\r\n"
            };
        }
        5 => {
            command.extend_from_slice(format!("delete {key}{noreply}\r\n").as_bytes());
            reply += if client.live(key, now).is_some() {
                "DELETED\r\n"
            } else {
                "NOT_FOUND\r\n"
            };
            client.map.remove(key);
        }
        6 => {
            let (incr, delta) = (rng.chance(50), rng.below(500));
            let name = if incr { "incr" } else { "decr" };
            command.extend_from_slice(format!("{name} {key} {delta}{noreply}\r\n").as_bytes());
            match client.live(key, now) {
                None => reply += "NOT_FOUND\r\n",
                Some(entry) => match number(&entry.value) {
                    None => {
                        reply += "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
                    }
                    Some(old) => {
                        let new = if incr {
                            old.wrapping_add(delta)
                        } else {
                            old.saturating_sub(delta)
                        };
                        entry.value = padded(new, entry.value.len());
                        reply += &format!("{new}\r\n");
                    }
                },
            }
        }
        7 => {
            let (exptime, expiry) = exptime(rng, now);
            command.extend_from_slice(format!("touch {key} {exptime}{noreply}\r\n").as_bytes());
            match client.live(key, now) {
                None => reply += "NOT_FOUND\r\n",
                Some(entry) => {
                    entry.expiry = expiry;
                    reply += "TOUCHED\r\n";
                }
            }
        }
        8 => return meta_command(client, rng, now, key),
        9 => return meta_get(client, rng, now, key),
        _ => return get_command(client, rng, now, key),
    }
    if !quiet {
        client.say(&reply);
    }
    command
}

fn get_command(client: &mut Client, rng: &mut Rng, now: u32, key: &str) -> Vec<u8> {
    let touch = rng.chance(15).then(|| exptime(rng, now));
    let mut line = match touch {
        Some((exptime, _)) => format!("gat {exptime}"),
        None => "get".to_owned(),
    };
    let mut keys = vec![key.to_owned()];
    while rng.chance(40) && keys.len() < 30 {
        keys.push(client.key_name(rng));
    }
    for key in &keys {
        line += &format!(" {key}");
        if let Some(entry) = client.live(key, now) {
            if let Some((_, expiry)) = touch {
                entry.expiry = expiry;
            }
            let entry = entry.clone();
            client.say(format!(
                "VALUE {key} {} {}\r\n",
                entry.flags,
                entry.value.len()
            ));
            client.say(&entry.value);
            client.say("\r\n");
        }
    }
    client.say("END\r\n");
    (line + "\r\n").into_bytes()
}

fn meta_get(client: &mut Client, rng: &mut Rng, now: u32, key: &str) -> Vec<u8> {
    let (value, ttl, quiet) = (
        rng.chance(70),
        rng.chance(20).then(|| rng.below(20) as u32),
        rng.chance(20),
    );
    let mut line = format!("mg {key} t f s O77");
    line += if value { " v" } else { "" };
    line += if quiet { " q" } else { "" };
    if let Some(ttl) = ttl {
        line += &format!(" T{ttl}");
    }
    let reply = match client.live(key, now) {
        None if quiet => Vec::new(),
        None => b"EN O77\r\n".to_vec(),
        Some(entry) => {
            let left = if entry.expiry == 0 {
                "-1".to_owned()
            } else {
                (entry.expiry - now).to_string()
            };
            let len = entry.value.len();
            let head = if value {
                format!("VA {len}")
            } else {
                "HD".to_owned()
            };
            let mut reply = format!("{head} t{left} f{} s{len} O77\r\n", entry.flags).into_bytes();
            if value {
                reply.extend_from_slice(&entry.value);
                reply.extend_from_slice(b"\r\n");
            }
            if let Some(ttl) = ttl {
                entry.expiry = if ttl == 0 { 0 } else { now + ttl };
            }
            reply
        }
    };
    client.say(reply);
    (line + "\r\n").into_bytes()
}

fn meta_command(client: &mut Client, rng: &mut Rng, now: u32, key: &str) -> Vec<u8> {
    match rng.below(3) {
        0 => {
            let (value, flags) = (value(rng), rng.below(100) as u32);
            let mut command = format!("ms {key} {} F{flags} T0 k O1\r\n", value.len()).into_bytes();
            command.extend_from_slice(&value);
            command.extend_from_slice(b"\r\n");
            client.map.insert(
                key.to_owned(),
                Entry {
                    value,
                    flags,
                    expiry: 0,
                },
            );
            client.say(format!("HD k{key} O1\r\n"));
            command
        }
        1 => {
            let there = client.live(key, now).is_some();
            client.map.remove(key);
            client.say(if there { "HD\r\n" } else { "NF\r\n" });
            format!("md {key}\r\n").into_bytes()
        }
        _ => {
            let reply = match client.live(key, now) {
                None => {
                    client.map.insert(
                        key.to_owned(),
                        Entry {
                            value: b"7".to_vec(),
                            flags: 0,
                            expiry: 0,
                        },
                    );
                    "VA 1\r\n7\r\n".to_owned()
                }
                Some(entry) => match number(&entry.value) {
                    None => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
                        .to_owned(),
                    Some(old) => {
                        let new = old.wrapping_add(3);
                        entry.value = padded(new, entry.value.len());
                        let new = new.to_string();
                        format!("VA {}\r\n{new}\r\n", new.len())
                    }
                },
            };
            client.say(reply);
            format!("ma {key} N0 J7 D3 v\r\n").into_bytes()
        }
    }
}

/// One binary command.
fn binary_command(client: &mut Client, rng: &mut Rng, now: u32, key: &str, reads: bool) -> Vec<u8> {
    let kind = if reads { 9 } else { rng.below(10) };
    let quiet = rng.chance(20);
    let key_bytes = key.as_bytes();
    let reply: (u16, Vec<u8>);
    let (opcode, quiet_opcode, extras, body);
    let mut get = false;
    match kind {
        0..3 => {
            let (new, flags) = (value(rng), rng.below(1 << 20) as u32);
            (opcode, quiet_opcode) = (0x01, 0x11);
            extras = [flags.to_be_bytes(), [0; 4]].concat();
            client.map.insert(
                key.to_owned(),
                Entry {
                    value: new.clone(),
                    flags,
                    expiry: 0,
                },
            );
            body = new;
            reply = (0, Vec::new());
        }
        3 => {
            (opcode, quiet_opcode) = (0x04, 0x14);
            (extras, body) = (Vec::new(), Vec::new());
            let there = client.live(key, now).is_some();
            client.map.remove(key);
            reply = if there {
                (0, Vec::new())
            } else {
                (1, b"Not found".to_vec())
            };
        }
        4 => {
            (opcode, quiet_opcode) = (0x05, 0x15);
            extras = [
                &3u64.to_be_bytes()[..],
                &9u64.to_be_bytes(),
                &0u32.to_be_bytes(),
            ]
            .concat();
            body = Vec::new();
            reply = match client.live(key, now) {
                None => {
                    client.map.insert(
                        key.to_owned(),
                        Entry {
                            value: b"9".to_vec(),
                            flags: 0,
                            expiry: 0,
                        },
                    );
                    (0, 9u64.to_be_bytes().to_vec())
                }
                Some(entry) => match number(&entry.value) {
                    None => (
                        6,
                        b"Non-numeric server-side value for incr or decr".to_vec(),
                    ),
                    Some(old) => {
                        let new = old.wrapping_add(3);
                        entry.value = padded(new, entry.value.len());
                        (0, new.to_be_bytes().to_vec())
                    }
                },
            };
        }
        5 => {
            (opcode, quiet_opcode) = (0x0e, 0x19);
            (extras, body) = (Vec::new(), vec![b'z'; rng.below(50) as usize]);
            // Not so close to the limit that the size of headers matters.
            if client
                .live(key, now)
                .is_some_and(|old| old.value.len() > BIGGEST - 500)
            {
                return Vec::new();
            }
            reply = match client.live(key, now) {
                Some(entry) if entry.value.len() + body.len() < BIGGEST => {
                    entry.value.extend_from_slice(&body);
                    (0, Vec::new())
                }
                _ => (5, b"Not stored.".to_vec()),
            };
        }
        6 => {
            (opcode, quiet_opcode) = (0x1d, 0x1e);
            let after = 1 + rng.below(20) as u32;
            (extras, body) = (after.to_be_bytes().to_vec(), Vec::new());
            get = true;
            reply = match client.live(key, now) {
                Some(entry) => {
                    entry.expiry = now + after;
                    (0, [&entry.flags.to_be_bytes()[..], &entry.value].concat())
                }
                None => (1, b"Not found".to_vec()),
            };
        }
        _ => {
            (opcode, quiet_opcode) = (0x0c, 0x0d);
            (extras, body) = (Vec::new(), Vec::new());
            get = true;
            reply = match client.live(key, now) {
                Some(entry) => (
                    0,
                    [&entry.flags.to_be_bytes()[..], key_bytes, &entry.value].concat(),
                ),
                None => (1, key_bytes.to_vec()),
            };
        }
    }
    let opcode = if quiet { quiet_opcode } else { opcode };
    // A quiet get is silent on a miss, any other quiet command on success.
    if !quiet || (reply.0 == 0) == get {
        client.packets.push((opcode, reply.0, reply.1));
    }
    packet(opcode, key_bytes, &extras, &body, 0)
}

/// Values from about this size on are refused.
const BIGGEST: usize = 100_000;

fn check(rig: &mut Rig, client: &mut Client, seed: u64) {
    let answer = rig.answers(client.id);
    if client.binary {
        let mut rest = &answer[..];
        for expected in std::mem::take(&mut client.packets) {
            assert!(
                rest.len() >= 24,
                "seed {seed}: {} bytes where {:?} was expected",
                rest.len(),
                (expected.0, expected.1)
            );
            let body = u32::from_be_bytes(rest[8..12].try_into().unwrap()) as usize;
            let got = (
                rest[1],
                u16::from_be_bytes([rest[6], rest[7]]),
                rest[24..24 + body].to_vec(),
            );
            assert!(
                got == expected,
                "seed {seed}: {:?} {} where {:?} {}",
                (got.0, got.1),
                got.2.len(),
                (expected.0, expected.1),
                expected.2.len()
            );
            rest = &rest[24 + body..];
        }
        assert!(
            rest.is_empty(),
            "seed {seed}: {} bytes too many",
            rest.len()
        );
        return;
    }
    let expected = std::mem::take(&mut client.expected);
    if answer != expected {
        let at = answer
            .iter()
            .zip(&expected)
            .take_while(|(a, b)| a == b)
            .count();
        let show = |bytes: &[u8]| {
            String::from_utf8_lossy(
                &bytes[at.saturating_sub(80).min(bytes.len())..(at + 80).min(bytes.len())],
            )
            .into_owned()
        };
        for line in &client.log {
            eprintln!("{line}");
        }
        panic!(
            "seed {seed}: at byte {at}\n got {:?}\n not {:?}",
            show(&answer),
            show(&expected)
        );
    }
    client.log.clear();
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
    let mut rig_settings = RigSettings {
        shards,
        workers,
        memory: 3 << 20,
        flash_pages: 64 << 10,
        seed,
        ..RigSettings::default()
    };
    rig_settings.settings.max_item = BIGGEST + 200;
    let mut rig = Rig::new(&rig_settings);
    let mut rng = Rng::new(seed | 1);
    let mut now = START;
    let mut clients: Vec<Client> = (0..4)
        .map(|n| Client {
            id: rig.connect_to(n % workers),
            binary: n == 3,
            map: HashMap::new(),
            expected: Vec::new(),
            packets: Vec::new(),
            log: Vec::new(),
        })
        .collect();
    let filler = rig.connect();
    for _ in 0..rounds {
        for _ in 0..1 + rng.below(6) {
            let client = &mut clients[rng.below(4) as usize];
            let mut bytes = Vec::new();
            // Gets, and perhaps a last command that changes something.
            let (count, reads) = (1 + rng.below(12), rng.chance(50));
            for n in 1..=count {
                let key = client.key_name(&mut rng);
                let reads = reads && (n < count || rng.chance(50));
                let command = if client.binary {
                    binary_command(client, &mut rng, now, &key, reads)
                } else {
                    text_command(client, &mut rng, now, &key, reads)
                };
                client
                    .log
                    .push(String::from_utf8_lossy(&command[..command.len().min(60)]).into_owned());
                bytes.extend_from_slice(&command);
            }
            // In pieces, with other events in between.
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let scale = 4 + rng.below(14);
                let piece = (1 + rng.below(1 << scale)).min(rest.len() as u64) as usize;
                rig.send(client.id, &rest[..piece]);
                rest = &rest[piece..];
                for _ in 0..rng.below(4) {
                    rig.happen();
                }
            }
        }
        if rng.chance(40) {
            rig.settle();
            for client in &mut clients {
                check(&mut rig, client, seed);
            }
            if rng.chance(5) {
                let client = &mut clients[0];
                rig.send(client.id, b"flush_all\r\n");
                client.say("OK\r\n");
                rig.settle();
                clients.iter_mut().for_each(|client| client.map.clear());
            }
            if shards > 1 && rng.chance(15) {
                fill(&mut rig, filler, shards, &mut rng);
            }
            let seconds = rng.below(3) as u32;
            rig.advance(seconds);
            now += seconds;
            rig.settle();
        }
    }
    let mut waits = [0; 2];
    for node in &rig.nodes {
        let stats = node.shard.stats();
        let dropped = stats.drops_busy
            + stats.drops_index
            + stats.reclaim_drops
            + stats.drops_size
            + stats.evictions;
        assert_eq!(
            dropped, 0,
            "seed {seed}: the run was to drop nothing: {stats:?}"
        );
        waits[0] += stats.flash_hits + stats.promotions;
        waits[1] += node.stats.read_afar;
    }
    waits
}

#[test]
fn pipelines_see_what_the_map_says() {
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
