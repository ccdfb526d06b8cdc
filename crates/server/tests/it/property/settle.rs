// SPDX-License-Identifier: Apache-2.0
//! Between rounds: shared keys are settled and the clock is advanced. At the end: the required
//! values of the server's counters.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use senko_workload::Rng;

use super::World;
use super::own::OwnKey;
use super::peer::Peer;
use super::shared::{Register, settle_counter, settle_ledger};
use super::wire;
use crate::serve::client::{Client, PATIENCE, Place, Stats};

/// The non-zero counters of flash and evictions, for people.
pub fn of_flash(stats: &Stats) -> String {
    let is_shown = |l: &&str| {
        let words = ["flash", "tag", "dram", "evict", "store"];
        let of_flash = (words.iter()).any(|word| l.starts_with(&format!("STAT {word}")));
        of_flash && !l.ends_with(" 0")
    };
    let lines: Vec<&str> = stats.0.lines().filter(is_shown).collect();
    lines.join("\n")
}

/// Items that were lost without a request. `evictions` includes those that admission, size, a
/// stalled device or missing memory kept from flash.
fn drops(stats: &Stats) -> u64 {
    [
        "evictions",
        "flash_drops_reclaim",
        "flash_drops_index",
        "tag_drops",
        "flash_read_errors",
        "flash_checksum_errors",
        "flash_write_errors",
    ]
    .map(|name| stats.get(name))
    .iter()
    .sum()
}

/// The state that is settled between rounds.
pub struct Joint {
    pub registers: Vec<Register>,
    /// The tokens that were sent to each ledger since it was emptied.
    pub ledgers: Vec<Vec<Vec<u8>>>,
    pub counters: Vec<u64>,
    /// They were stored, and not flushed since.
    pub there: bool,
}

impl Joint {
    /// Empties ledgers and zeroes counters.
    pub fn prepare(&mut self, world: &World, client: &mut Client) {
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

    pub fn settle(&mut self, world: &World, peers: &mut [Peer], client: &mut Client, joint: bool) {
        let first = world.layout.first_register();
        let mut events = vec![Vec::new(); world.layout.registers];
        for peer in peers.iter_mut() {
            peer.silent = 0;
            for (key, event, span) in peer.view.seen.events.drain(..) {
                events[key - first].push((event, span));
            }
        }
        for (n, register) in self.registers.iter_mut().enumerate() {
            register
                .settle(&events[n], world.run_settings.lossy)
                .unwrap_or_else(|why| {
                    panic!(
                        "{:?}: register {:?}: {why}",
                        world.run_settings,
                        wire::show(&world.names[first + n])
                    )
                });
        }
        if !joint {
            return;
        }
        for peer in peers.iter_mut() {
            for (key, token) in peer.view.seen.tokens.drain(..) {
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
                world.run_settings
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
                numbers.extend(
                    peer.view
                        .seen
                        .numbers
                        .iter()
                        .filter(|x| x.0 == key)
                        .map(|x| x.1),
                );
                counted += peer.view.seen.counted.remove(&key).unwrap_or(0);
            }
            settle_counter(&numbers, value, *before, counted);
            *before = value;
        }
        peers
            .iter_mut()
            .for_each(|peer| peer.view.seen.numbers.clear());
    }
}

/// After a flush_all in this round: unused keys are gone, whatever their next reply says about
/// others.
pub fn after_flush(world: &World, peers: &mut [Peer], joint: &mut Joint, began: u64) {
    let flushes = world.flushes.lock().unwrap();
    let [flush] = flushes[..] else {
        panic!("one flush a round")
    };
    for peer in peers.iter_mut().filter(|p| p.view.number != flush.by) {
        for own in &mut peer.view.own {
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

/// Advances the clock. A device that has not written for a second is no longer waited for, so if
/// nothing may be lost, writes must end before the clock leaps.
pub fn advance(world: &World, place: &Place, client: &mut Client, rng: &mut Rng, crept: &mut u64) {
    let leap = world.run_settings.lossy || rng.chance(25);
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
    if leap && !world.run_settings.lossy {
        // A worker publishes its submitted operations every tenth of a second, at the end of a
        // round. The first request is a round; the second is answered from what it published. The
        // counts of ended commands are always current.
        std::thread::sleep(Duration::from_millis(101));
        client.stats();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = client.stats();
            if stats.get("flash_written_bytes") >= stats.get("flash_device_writes_bytes") {
                break;
            }
            assert!(Instant::now() < deadline, "writes do not end: {}", stats.0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    place.clock.fetch_add(ms, Ordering::SeqCst);
    // When this is answered, every worker has read the new time.
    client.stats();
}

pub fn finish(world: &World, peers: &[Peer], joint: &Joint, client: &mut Client, regions: &[u64]) {
    let run_settings = world.run_settings;
    let stats = client.stats();
    let own: u64 = peers
        .iter()
        .flat_map(|p| &p.view.own)
        .map(OwnKey::losses)
        .sum();
    let shared: u64 = joint.registers.iter().map(|r| r.losses).sum();
    println!(
        "  {} rounds, {} + {} lost of {} dropped, {} overwritten, {} regions reclaimed, {} flash hits, {} promotions, {} demotions, {} false matches, {} tag drops",
        regions.len(),
        own,
        shared,
        drops(&stats),
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
        "{run_settings:?}: {}",
        stats.0
    );
    if run_settings.twins {
        // A store that drops a twin unread counts it among the overwritten.
        assert!(
            own + shared <= drops(&stats) + stats.get("flash_overwrites"),
            "{run_settings:?}: {}",
            stats.0
        );
        assert!(
            stats.get("flash_false_matches") > 0 && stats.get("tag_drops") > 0,
            "{run_settings:?}: {}",
            stats.0
        );
    } else if run_settings.lossy {
        assert!(
            own + shared <= drops(&stats),
            "{run_settings:?}: {own} + {shared} lost: {}",
            stats.0
        );
        assert!(own > 0, "{run_settings:?}: flash was to be too small");
        // In each quarter of the run, the last as well as the first.
        let quarters: Vec<u64> = (1..=4)
            .map(|n| regions[regions.len() * n / 4 - 1])
            .collect();
        assert!(
            quarters[0] > 0 && quarters.windows(2).all(|w| w[0] < w[1]),
            "{run_settings:?}: regions reclaimed: {quarters:?}"
        );
    } else {
        assert_eq!(
            drops(&stats) + stats.get("flash_reclaimed_regions"),
            0,
            "{run_settings:?}: the run was to drop nothing: {}",
            stats.0
        );
    }
}
