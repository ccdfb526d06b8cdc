// SPDX-License-Identifier: Apache-2.0
//! Shards of the server, filled by twenty kinds of requests, compared with what a plan says.

use senko_cache::{Footprint, PolicyKind};
use senko_lab::experiments::serve_endurance::replay::{RULES, Replay};
use senko_plan::count::Basis;
use senko_plan::curve::server::{Served, Servers};
use senko_plan::curve::tiers::{Item, Machine, simulate};
use senko_plan::curve::{Curve, FOLLOWED, HIT_RATIO_ERROR, Policy, WRITTEN_ERROR};
use senko_plan::requests::{Act, Requests};
use senko_workload::zipf::Zipf;
use senko_workload::{Rng, etc};

use crate::kinds::{acting, sized, zipf};

/// Requests of one more kind for the shard: a part of the objects never comes again.
fn scanned(objects: Vec<u32>, every: usize, known: u32) -> Vec<u32> {
    let objects = objects.into_iter().enumerate();
    let scanned = objects.map(|(nth, object)| match nth % every {
        0 => known + (nth / every) as u32,
        _ => object,
    });
    scanned.collect()
}

/// Twenty kinds of requests for a shard, each with the bytes of its DRAM at least. A shard with
/// less gives each of many sizes only a page or two.
fn served() -> Vec<(&'static str, f64, Requests)> {
    let (one, many) = (2.5e6, 10e6);
    let of = |size: u64| move |_: u64| size;
    let etc_size = |n: u64| (etc::key_len(n) + etc::value_len(n, 0, 60_000)) as u64;
    let with = |requests: Requests, size: &dyn Fn(u64) -> u64| Requests {
        sizes: Some((0..requests.footprint_objects() as u64).map(size).collect()),
        ..requests
    };
    let fills: fn(usize) -> &'static [Act] = |nth| match nth % 3 {
        0 => &[Act::Get],
        _ => &[Act::GetThenSet, Act::Set],
    };
    let overwrites: fn(usize) -> &'static [Act] = |nth| match nth % 3 {
        0 => &[Act::Set],
        _ => &[Act::Get],
    };
    let deletes: fn(usize) -> &'static [Act] = |nth| match nth % 5 {
        0 => &[Act::Get, Act::Delete],
        _ => &[Act::Get],
    };
    let all: fn(usize) -> &'static [Act] = |nth| match nth % 7 {
        0 => &[Act::GetThenSet, Act::Set],
        1 => &[Act::Set],
        2 => &[Act::Get, Act::Delete],
        _ => &[Act::Get],
    };
    let shifting = zipf(0.9, 20_000, 200_000).into_iter().enumerate();
    let shifting = shifting.map(|(nth, object)| object + (nth / 20_000) as u32 * 2_000);
    let mut cold = Rng::new(3);
    let hot_and_cold = (0..240_000u32).zip(zipf(0.3, 8_000, 240_000));
    let hot_and_cold = hot_and_cold.map(|(nth, hot)| match nth % 6 {
        0 => 8_000 + cold.below(2_500) as u32,
        _ => hot,
    });
    let looped: Vec<u32> = (0..200_000).map(|nth| nth % 20_000).collect();
    let mut kinds = Vec::new();
    let mut add = |name, least, requests| kinds.push((name, least, requests));
    let thousand = of(1_000);
    add("uniform", one, sized(zipf(0.0, 20_000, 200_000), thousand));
    add("Zipf 0.6", one, sized(zipf(0.6, 25_000, 200_000), thousand));
    add("Zipf 0.8", one, sized(zipf(0.8, 30_000, 200_000), of(700)));
    add(
        "Zipf 0.99",
        one,
        sized(zipf(0.99, 60_000, 300_000), thousand),
    );
    add(
        "Zipf 1.2",
        one,
        sized(zipf(1.2, 150_000, 400_000), thousand),
    );
    add(
        "2,100 bytes",
        one,
        sized(zipf(0.8, 15_000, 120_000), of(2_100)),
    );
    add(
        "100 bytes",
        one,
        sized(zipf(0.8, 150_000, 500_000), of(100)),
    );
    add(
        "tiny",
        one,
        sized(zipf(0.8, 200_000, 600_000), |n| 10 + n % 7),
    );
    add("ETC", many, sized(zipf(0.8, 120_000, 400_000), etc_size));
    let objects = zipf(0.7, 120_000, 400_000);
    add(
        "ETC, deletes",
        many,
        with(acting(objects, deletes), &etc_size),
    );
    let large = |n| 5_000 + n * 7919 % 59_000;
    add("large", many, sized(zipf(0.6, 1_500, 15_000), large));
    let mixed = |n| if n % 50 == 0 { 50_000 } else { 1_000 };
    add("mixed", many, sized(zipf(0.8, 16_000, 120_000), mixed));
    let by_heat = |n| if n < 8_000 { 300 } else { 15_000 };
    let objects = hot_and_cold.collect();
    add("small hot, large cold", many, sized(objects, by_heat));
    add("loop", one, sized(looped, thousand));
    let objects = scanned(zipf(0.8, 20_000, 200_000), 10, 20_000);
    add("scans", one, sized(objects, thousand));
    add("a moving set", one, sized(shifting.collect(), thousand));
    let objects = zipf(0.8, 25_000, 160_000);
    add(
        "look-aside, fills",
        one,
        with(acting(objects, fills), &thousand),
    );
    let objects = zipf(0.8, 20_000, 160_000);
    add(
        "overwrites",
        one,
        with(acting(objects, overwrites), &thousand),
    );
    let objects = zipf(0.8, 25_000, 160_000);
    add("deletes", one, with(acting(objects, deletes), &thousand));
    let objects = scanned(zipf(0.8, 25_000, 140_000), 8, 25_000);
    let name = "fills, overwrites, deletes and scans";
    add(name, one, with(acting(objects, all), &of(1_500)));
    kinds
}

/// Kinds of which a little more or less DRAM or flash finds much more or less. Hits of a loop jump
/// from few to all. And small hot items have few pages of a small DRAM: the two pages that the
/// index takes and gives back while it grows are a tenth of theirs.
const JUMPS: [&str; 2] = ["loop", "small hot, large cold"];

/// What a plan says of a server, and what a shard of that size does.
#[derive(Debug)]
struct Compared {
    planned: Served,
    hits: f64,
    dram_hits: f64,
    written: f64,
    /// Flash that the plan has for the hits that the shard found, beside the flash of the shard.
    flash: f64,
    /// Servers with 5 % less and 5 % more of both tiers.
    near: [Served; 2],
}

impl Compared {
    /// By how much hits, hits in DRAM and bytes written are off what the shard did.
    fn off(&self) -> [f64; 3] {
        let written = self.planned.written - self.planned.unwritten;
        [
            (self.planned.hits - self.hits).abs(),
            (self.planned.dram_hits - self.dram_hits).abs(),
            match self.written > 0.0 {
                true => (written / self.written - 1.0).abs(),
                false => written,
            },
        ]
    }

    /// Whether the shard found and wrote what servers of nearly its size do.
    fn is_near(&self) -> bool {
        let [less, more] = &self.near;
        let between = |of: fn(&Served) -> f64, found: f64, off: f64| {
            let ends = [of(less), of(&self.planned), of(more)];
            let least = ends.iter().copied().fold(f64::MAX, f64::min);
            let most = ends.iter().copied().fold(0.0, f64::max);
            (least - off..=most + off).contains(&found)
        };
        between(|of| of.hits, self.hits, HIT_RATIO_ERROR)
            && between(
                |of| of.written - of.unwritten,
                self.written,
                self.written * WRITTEN_ERROR,
            )
    }
}

/// Plans a server that finds a share of all that can be found, and fills a shard of that size.
/// `None` if no shard is so small.
fn compare(kind: PolicyKind, (requests, least): (&Requests, f64), share: f64) -> Option<Compared> {
    let sizes = requests.sizes.as_ref().unwrap();
    // As a replay names its objects.
    let key_len = |object: usize| format!("{object:x}").len();
    let mut taken = Footprint::default();
    let mut weighed = requests.clone();
    for (object, size) in weighed.sizes.as_mut().unwrap().iter_mut().enumerate() {
        taken.add(key_len(object), *size as u32);
        *size = Footprint::record_bytes(key_len(object), *size as u32);
    }
    let curve = Curve::of_policy(Policy::Lru, &weighed, Basis::Bytes, 0, (FOLLOWED, 1));
    let unit = Machine {
        dram: taken.dram_bytes() as f64 / curve.footprint,
        index: 0.0,
        flash: taken.flash_bytes() as f64 / curve.footprint,
    };
    let policy = match kind {
        PolicyKind::Lru => Policy::Lru,
        PolicyKind::S3Fifo => Policy::S3Fifo,
    };
    let size = |object: usize| sizes[object] + key_len(object) as u64;
    let servers = Servers::new(&curve, policy, size, (unit, Some(9.5)));
    let wanted = share * curve.hit_ratio(u64::MAX);
    let planned = servers.least_of(wanted, wanted * 0.6)?;
    let dram = planned.machine.dram.max(least);
    let flash = match servers.of(dram, 0.0).hits >= wanted {
        true => 0.0,
        false => servers.flash_for(wanted, dram, planned.machine.flash.max(1e6))?,
    };
    if flash > 0.0 && flash < 1.2e6 {
        return None;
    }
    // A small index has more room for each item than a large one.
    let index = servers.of(dram, flash).machine.index * 1.25 + 1e5;
    let machine = Machine { dram, index, flash };
    let memory = machine.memory() as usize;
    let rules = *RULES.iter().find(|rules| rules.name == "all").unwrap();
    let mut replay = Replay::with(kind, (memory, flash as u64), rules, 7).unwrap();
    replay.replay(requests).unwrap();
    let counts = replay.counts();
    // The plan is that of the memory which the shard's items really have.
    let planned = servers.of(replay.shard().items_memory() as f64, flash);
    let lookups = counts.requests as f64;
    let hits = counts.hits as f64 / lookups;
    let Machine { dram, .. } = planned.machine;
    let near = [0.95, 1.05].map(|part| servers.of(dram * part, flash * part));
    let needed = servers.flash_for(hits, planned.machine.dram, flash);
    Some(Compared {
        hits,
        dram_hits: (counts.hits - counts.flash_hits) as f64 / lookups,
        written: counts.written as f64 / requests.all,
        flash: match flash > 0.0 {
            true => needed.unwrap_or(flash) / flash,
            false => 1.0,
        },
        near,
        planned,
    })
}

/// The bytes written were 10 to 25 % too few: a log of one tier told what is written again, what
/// was deleted or stored again in DRAM counted as written, and what went back to DRAM and lost its
/// copy did not. For every kind of requests and every share of its hits, a shard of the planned
/// size finds and writes what the plan says. `SENKO_PLAN_SHARES=all` tries every share for every
/// kind; without, each kind has two.
#[test]
fn a_filled_shard_does_what_the_plan_says() {
    let all = std::env::var("SENKO_PLAN_SHARES").is_ok_and(|value| value == "all");
    let shares: Vec<f64> = (1..=19).step_by(2).map(|n| f64::from(n) / 20.0).collect();
    let kinds = served();
    assert_eq!(kinds.len(), 20);
    let (mut wrong, mut compared) = (Vec::new(), 0);
    let mut worst = [0f64; 3];
    for (nth, (name, least, requests)) in kinds.iter().enumerate() {
        for (at, share) in shares.iter().enumerate() {
            // One of the larger half, and one of all.
            if !all && at != 9 - nth % 4 && at != nth % 10 {
                continue;
            }
            let kind = match (nth + at) % 4 {
                0 => PolicyKind::Lru,
                _ => PolicyKind::S3Fifo,
            };
            let Some(found) = compare(kind, (requests, *least), *share) else {
                println!("{name}, {share}: no shard is so small");
                continue;
            };
            compared += 1;
            let (planned, off) = (found.planned, found.off());
            println!(
                "{name}, {share}, {kind:?}: {:.1} MB of DRAM, {:.1} MB of flash; hits {:.4} of \
                 {:.4}, in DRAM {:.4} of {:.4}, written {:.1}: off by {:.1} %, flash {:.3}",
                planned.machine.dram / 1e6,
                planned.machine.flash / 1e6,
                planned.hits,
                found.hits,
                planned.dram_hits,
                found.dram_hits,
                found.written,
                off[2] * 100.0,
                found.flash,
            );
            let limits = [HIT_RATIO_ERROR, HIT_RATIO_ERROR, WRITTEN_ERROR];
            let is_off = off.iter().zip(limits).any(|(off, limit)| *off > limit);
            if is_off && JUMPS.contains(name) && found.is_near() {
                println!("  as servers of nearly its size");
            } else {
                worst = [0, 1, 2].map(|at| worst[at].max(off[at]));
                if is_off {
                    wrong.push((*name, *share, kind, off));
                }
            }
        }
    }
    println!("{compared} compared; off by at most {worst:.4?}");
    assert!(compared >= 30, "{compared}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The plan for items without a trace is that of a full server: a shard that met each item, and
/// many requests after that, finds and writes as much.
#[test]
fn a_full_shard_does_what_the_plan_for_items_says() {
    const ITEMS: u64 = 20_000;
    let filled: Vec<u32> = (0..ITEMS as u32)
        .map(|nth| nth * 7_919 % ITEMS as u32)
        .collect();
    let requests = |seed: u64, count: usize| {
        let (law, mut rng) = (Zipf::new(ITEMS, 0.8).unwrap(), Rng::new(seed));
        (0..count)
            .map(|_| law.draw(&mut rng) as u32)
            .collect::<Vec<u32>>()
    };
    let warm: Vec<u32> = filled.into_iter().chain(requests(5, 400_000)).collect();
    let sizes =
        |objects: Vec<u32>| Requests::of_lookups(objects, Some(vec![1_000; ITEMS as usize]));
    let curve = Curve::of_zipf(Policy::Lru, ITEMS, 0.8, 1).unwrap();
    let mut taken = Footprint::default();
    (0..1_000).for_each(|_| taken.add(4, 1_000));
    let unit = Machine {
        dram: taken.dram_bytes() as f64 / 1e3,
        index: 0.0,
        flash: taken.flash_bytes() as f64 / 1e3,
    };
    let servers = Servers::new(&curve, Policy::S3Fifo, |_| 1_004, (unit, Some(9.5)));
    let rules = *RULES.iter().find(|rules| rules.name == "all").unwrap();
    for (dram, flash) in [(2.5e6, 6e6), (2.5e6, 16e6), (6e6, 10e6)] {
        let machine = Machine {
            dram,
            index: 3e5,
            flash,
        };
        let mut replay = Replay::new(machine.memory() as usize, flash as u64, rules, 7).unwrap();
        replay.replay(&sizes(warm.clone())).unwrap();
        let before = replay.counts();
        replay.replay(&sizes(requests(6, 200_000))).unwrap();
        let after = replay.counts();
        let planned = servers.of(replay.shard().items_memory() as f64, flash);
        let lookups = (after.requests - before.requests) as f64;
        let found = (after.hits - before.hits) as f64 / lookups;
        let written = (after.written - before.written) as f64 / lookups;
        println!(
            "{machine:?}: {:.4} and {found:.4}, {:.1} and {written:.1}",
            planned.hits, planned.written
        );
        assert!(
            (planned.hits - found).abs() < HIT_RATIO_ERROR,
            "{found}, {planned:?}"
        );
        assert!(
            (planned.written / written - 1.0).abs() < WRITTEN_ERROR,
            "{written}, {planned:?}"
        );
    }
}

/// A quarter and a sixteenth of the objects, with as small a part of DRAM and flash, do what all
/// do.
#[test]
fn a_part_of_the_objects_does_as_all() {
    const ITEMS: u64 = 160_000;
    let law = Zipf::new(ITEMS, 0.99).unwrap();
    let found = |machine: Machine, times: u64| {
        let (mut rng, groups) = (Rng::new(3), ITEMS / times);
        let filled = (0..groups).map(|nth| (nth * 7_919 % groups) as u32);
        let draws = 10 * groups as usize;
        let drawn = (0..2 * draws).map(|_| (law.draw(&mut rng) / times) as u32);
        let requests = Requests::of_lookups(filled.chain(drawn).collect(), None);
        let items = Item::of((0..groups).map(|_| 1_000));
        let part = (1.0 / times as f64, groups as usize + draws);
        let found = simulate(Policy::S3Fifo, (&requests, &items), machine, part);
        [found.hits, found.dram_hits, found.written].map(|count| count / draws as f64)
    };
    for (dram, flash) in [(4e6, 5e6), (4e6, 20e6), (4e6, 80e6), (40e6, 80e6)] {
        let machine = Machine {
            dram,
            index: 1e6,
            flash,
        };
        let all = found(machine, 1);
        for times in [4, 16] {
            let part = found(machine, times);
            println!("{machine:?}: {all:.4?} and of a {times}th {part:.4?}");
            assert!((part[0] - all[0]).abs() < 0.01 && (part[1] - all[1]).abs() < 0.01);
            assert!((part[2] / all[2] - 1.0).abs() < 0.04);
        }
    }
}
