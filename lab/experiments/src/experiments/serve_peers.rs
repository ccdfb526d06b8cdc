// SPDX-License-Identifier: Apache-2.0
//! Other designs for small items on flash, as models beside this project's own cache: misses, DRAM,
//! and writes.
//!
//! Expected shape: Kangaroo rewrites a page for a few objects, so it writes several times what it
//! admits; the cache and groups that are written whole write little more. Kangaroo's index is the
//! smallest.
//!
//! All get the same look-ups, with ETC's sizes (at most 1 KiB of key and value), the same DRAM for
//! objects, index and buffers, and the same flash. What is missing is stored. The cache is the
//! server's own shard (`serve_endurance/replay.rs`), with and without reinsertion; its rivals are
//! models (`serve_peers/`) behind LRU in DRAM, where an object takes what it takes in the shard.
//! The second half of the requests counts.
//!
//! *Admitted*: bytes of keys and values that go from DRAM to flash, without what is written again.
//! The shard counts records; the mean head of all objects, rounded up, is taken from them.
//! *Written*: what the device gets. *Programmed*: what a simulated drive without trim makes of it,
//! if the cache takes 93 % of the drive, as Kangaroo does. *DRAM an item*: index and filters. Write
//! buffers are in the same DRAM, but not in this figure.
//!
//! *At equal misses*: Kangaroo gets the flash with which it misses as often as the shard.

pub mod kangaroo; // a log in front of sets
pub mod nemo; // groups of sets, written once
pub mod tier; // DRAM in front of either

use anyhow::{Context, Result, ensure};
use senko_cache::Footprint;
use senko_plan::requests::{self, Requests};
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::profile::Profile;
use senko_ssd::spec::Spec;
use senko_ssd::{Error, Request};
use senko_workload::etc;

use super::engine_wear;
use super::serve_endurance::replay::{RULES, Replay, Rules, key_of};
use crate::rig::Steps;
use crate::{Bar, Experiment, Measure, Options, Outcome, Paper, Progress, Table};
use kangaroo::{Kangaroo, PAPER};
use nemo::Nemo;
use tier::{Cached, Object, RECORD_HEAD, Tier};

/// The real key-value traces: name in keys, file.
const TRACES: [(&str, &str); 2] = [("oltp", "ARC_OLTP.lis.zst"), ("p3", "ARC_P3.lis.zst")];
/// Flash as a share of the objects' bytes, and DRAM as a share of the flash.
const SHARES: (f64, f64) = (0.4, 1.0 / 12.0);
/// The least sizes of both.
const LEAST: (u64, u64) = (16 << 20, 2 << 20);
/// Bytes of key and value, at least and at most.
const BYTES: (u64, u64) = (16, 1024);
/// The share of the drive that the flash takes.
const USED: f64 = 0.93;
/// Blocks of the drive for one of its profile's.
const SMALLER_BLOCKS: u32 = 8;
/// Misses are equal if their ratios differ by less.
const EQUAL: f64 = 0.002;

pub static EXPERIMENT: Experiment = Experiment {
    name: "serve-peers",
    paper: Paper::Design,
    source: "design question; Kangaroo (SOSP 2021) and Nemo (ASPLOS 2026) as models",
    text: "misses, DRAM and flash writes of the cache and of other designs for small items",
    sentences: &[],
    bars: &[Bar::less("written_over_kangaroo_at_equal_misses", 0.3, 0.1)],
    run: Measure::Alone(run),
};

struct Seen {
    miss_ratio: f64,
    index_bytes: f64,
    items: f64,
    admitted: f64,
    writes: Vec<Request>,
}

impl Seen {
    fn written_over_admitted(&self) -> f64 {
        self.writes.iter().map(|write| write.bytes).sum::<u64>() as f64 / self.admitted
    }
}

/// The look-ups of a run, with the sizes of DRAM and flash.
struct Stream {
    halves: [Requests; 2],
    objects: Vec<Object>,
    costs: Vec<u32>,
    memory: u64,
    flash: u64,
    seed: u64,
}

impl Stream {
    fn new(mut requests: Requests, sizes: Vec<u64>, seed: u64) -> Stream {
        let footprint = Footprint::default();
        let objects: Vec<Object> = (0..)
            .zip(&sizes)
            .map(|(id, bytes)| of(id, *bytes))
            .collect();
        let cost = |object: &Object| {
            let key = key_of(object.id).len();
            footprint.chunk_bytes(key, object.bytes - key as u32, true) as u32
        };
        let costs = objects.iter().map(cost).collect();
        let flash = (sizes.iter().sum::<u64>() as f64 * SHARES.0) as u64;
        let flash = flash.max(LEAST.0) >> 20 << 20;
        // A replay takes the sizes of values.
        let values = (0..)
            .zip(&sizes)
            .map(|(id, bytes)| bytes - key_of(id).len() as u64);
        let values: Vec<u64> = values.collect();
        let second = requests.objects.split_off(requests.objects.len() / 2);
        let half = |objects| Requests::of_lookups(objects, Some(values.clone()));
        Stream {
            halves: [half(requests.objects), half(second)],
            objects,
            costs,
            memory: ((flash as f64 * SHARES.1) as u64).max(LEAST.1),
            flash,
            seed,
        }
    }

    /// Mean bytes of an object in the models' pages.
    fn mean(&self) -> f64 {
        let stored = self.objects.iter().map(Object::stored);
        stored.sum::<usize>() as f64 / self.objects.len() as f64
    }

    /// The shard's own bytes beside key and value, on average.
    fn head(&self) -> f64 {
        let head = |object: &Object| {
            let key = key_of(object.id).len();
            Footprint::record_bytes(key, object.bytes - key as u32) - u64::from(object.bytes)
        };
        self.objects.iter().map(head).sum::<u64>() as f64 / self.objects.len() as f64
    }

    fn shard(&self, rules: Rules) -> Result<Seen> {
        let mut replay = Replay::new(self.memory as usize, self.flash, rules, self.seed)?;
        replay.replay(&self.halves[0])?;
        let (before, stats) = (replay.counts(), replay.shard().stats());
        let written = replay.writes().len();
        replay.replay(&self.halves[1])?;
        let (after, now) = (replay.counts(), replay.shard().stats());
        ensure!(
            now.reclaim_regions > stats.reclaim_regions,
            "the flash was not full"
        );
        let heads = (now.demotions - stats.demotions) as f64 * self.head();
        Ok(Seen {
            miss_ratio: 1.0
                - (after.hits - before.hits) as f64 / (after.requests - before.requests) as f64,
            index_bytes: now.index_bytes as f64,
            items: now.flash_items as f64,
            admitted: (now.admitted_bytes - stats.admitted_bytes) as f64 - heads,
            writes: replay.writes()[written..].to_vec(),
        })
    }

    fn model(&self, tier: impl Tier) -> Seen {
        let mut cache = Cached::new(tier, self.memory, self.objects.len());
        let mut look_up = |half: &Requests| {
            for id in &half.objects {
                let id = *id as usize;
                cache.get(self.objects[id], self.costs[id]);
            }
            let tier = &cache.tier;
            (
                cache.requests,
                cache.misses,
                tier.admitted(),
                tier.writes().len(),
            )
        };
        let before = look_up(&self.halves[0]);
        let after = look_up(&self.halves[1]);
        let tier = &cache.tier;
        Seen {
            miss_ratio: (after.1 - before.1) as f64 / (after.0 - before.0) as f64,
            index_bytes: tier.index_bytes() as f64,
            items: tier.items() as f64,
            admitted: (after.2 - before.2) as f64,
            writes: tier.writes()[before.3..].to_vec(),
        }
    }

    fn kangaroo(&self, flash: u64) -> Seen {
        self.model(Kangaroo::new(flash, self.mean(), PAPER, self.seed))
    }

    /// Kangaroo with the flash that gives this miss ratio, and that flash.
    fn kangaroo_that_misses(&self, ratio: f64) -> Result<(u64, Seen)> {
        let (mut low, mut high) = (self.flash / 4, self.flash * 4);
        for _ in 0..10 {
            let flash = ((low as f64 * high as f64).sqrt()) as u64;
            let seen = self.kangaroo(flash);
            if (seen.miss_ratio - ratio).abs() < EQUAL {
                return Ok((flash, seen));
            }
            match seen.miss_ratio > ratio {
                true => low = flash,
                false => high = flash,
            }
        }
        anyhow::bail!(
            "no flash up to four times as large gives Kangaroo a miss ratio of {ratio:.3}"
        )
    }
}

fn of(id: u32, bytes: u64) -> Object {
    Object {
        id,
        version: 0,
        bytes: bytes as u32,
    }
}

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let steps = Steps::new(progress, 3 * (1 + TRACES.len() as u64) + 1);
    outcome.setting("flash_share_of_objects", SHARES.0);
    outcome.setting("dram_share_of_flash", SHARES.1);
    outcome.setting("flash_share_of_drive", USED);
    outcome.setting("record_head_of_models", RECORD_HEAD);
    let (keys, requests) = options.scaled((1_000_000, 5_000_000), (4_000_000, 24_000_000));
    outcome.setting("keys", keys);
    outcome.setting("requests", requests);
    let zipf = requests::zipf(0.99, keys, requests, Some(0), options.seed)?;
    let sizes = zipf.sizes.clone().context("the requests have no sizes")?;
    let sizes = sizes.iter().map(|bytes| (*bytes).clamp(BYTES.0, BYTES.1));
    let stream = Stream::new(zipf, sizes.collect(), options.seed);
    let shard = compare("etc", &stream, &steps, outcome)?;
    steps.next("Kangaroo at equal misses");
    let key = "written_over_kangaroo_at_equal_misses";
    match stream.kangaroo_that_misses(shard.miss_ratio) {
        Ok((flash, seen)) => {
            outcome.bar(
                "kangaroo_flash_at_equal_misses",
                flash as f64 / stream.flash as f64,
            );
            outcome.bar(
                key,
                shard.written_over_admitted() / seen.written_over_admitted(),
            );
        }
        Err(error) => outcome.miss(key, format!("{error:#}")),
    }
    let longest = options.scaled(1_000_000, usize::MAX);
    for (name, file) in TRACES {
        let trace = requests::from_trace(&options.traces.join("kv").join(file));
        let ended = trace.and_then(|mut trace| {
            trace.objects.truncate(longest);
            let size = |id| (etc::key_len(id) + etc::value_len(id, 0, 1024)) as u64;
            let sizes = (0..trace.footprint_objects() as u64).map(size);
            let sizes = sizes.map(|bytes| bytes.clamp(BYTES.0, BYTES.1)).collect();
            compare(
                name,
                &Stream::new(trace, sizes, options.seed),
                &steps,
                outcome,
            )
        });
        if let Err(error) = ended {
            outcome.miss(format!("miss_ratio.{name}"), format!("{error:#}"));
        }
    }
    Ok(())
}

/// Runs all contenders on a stream; returns what the shard came to.
fn compare(name: &str, stream: &Stream, steps: &Steps<'_>, outcome: &mut Outcome) -> Result<Seen> {
    let title = format!(
        "{name}: {} objects, {:.1} MB of DRAM, {:.0} MB of flash",
        stream.objects.len(),
        stream.memory as f64 / 1e6,
        stream.flash as f64 / 1e6
    );
    let mut table = Table::new(
        title,
        &[
            "design",
            "misses",
            "DRAM bytes an item",
            "written over admitted",
            "programmed over admitted",
            "items",
        ],
    );
    steps.next(&format!("{name}: the cache"));
    let shard = stream.shard(RULES[0])?;
    let fifo = stream.shard(RULES[1])?;
    steps.next(&format!("{name}: Kangaroo"));
    let kangaroo = stream.kangaroo(stream.flash);
    steps.next(&format!("{name}: like Nemo"));
    let nemo = stream.model(Nemo::new(stream.flash, stream.mean()));
    for (who, seen) in [
        ("cache", &shard),
        ("cache_fifo", &fifo),
        ("kangaroo", &kangaroo),
        ("nemo_like", &nemo),
    ] {
        let programmed = programmed(&seen.writes, stream.flash)?;
        let figures = [
            ("miss_ratio", seen.miss_ratio),
            ("dram_bytes_per_item", seen.index_bytes / seen.items),
            ("written_over_admitted", seen.written_over_admitted()),
            ("programmed_over_admitted", programmed / seen.admitted),
        ];
        let mut cells = vec![who.to_owned()];
        for (figure, value) in figures {
            outcome.bar(format!("{figure}.{name}.{who}"), value);
            cells.push(format!("{value:.3}"));
        }
        cells.push(format!("{:.0}", seen.items));
        table.row(cells);
    }
    outcome.tables.push(table);
    Ok(shard)
}

/// Bytes that a drive programs for these writes when it gets them a second time. The rest of the
/// drive was never written, and nothing is trimmed.
fn programmed(writes: &[Request], flash: u64) -> Result<f64> {
    let bytes = (flash as f64 / USED) as u64 >> 20 << 20;
    let mut profile = engine_wear::resized(Profile::find("x25-m")?, bytes);
    // A small drive would have too few of the profile's blocks.
    profile.geometry.pages /= SMALLER_BLOCKS;
    profile.geometry.blocks *= SMALLER_BLOCKS;
    let parts = Parts {
        ftl: Some("page".parse()?),
        buffer: Some(Spec::plain("none")),
        untimed: true,
        ..Parts::default()
    };
    let mut drive = Drive::new(&profile, &parts)?;
    let mut run = || {
        let writes = writes.iter().map(|write| Ok::<_, Error>(*write));
        drive.run(writes, Load::Closed { depth: 1 })
    };
    run()?;
    let report = run()?;
    Ok(report.flash.all_programs() as f64 * report.page_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_have_every_write_and_runs_repeat() {
        let zipf = requests::zipf(0.99, 300_000, 600_000, Some(0), 1).unwrap();
        let sizes = zipf.sizes.clone().unwrap();
        let sizes = sizes.iter().map(|bytes| (*bytes).clamp(BYTES.0, BYTES.1));
        let stream = Stream::new(zipf, sizes.collect(), 1);
        let mut replay =
            Replay::new(stream.memory as usize, stream.flash, RULES[0], stream.seed).unwrap();
        for half in &stream.halves {
            replay.replay(half).unwrap();
        }
        let recorded = replay.writes().iter().map(|write| write.bytes);
        let counted = replay.shard().stats().device_write_bytes;
        assert_eq!(recorded.sum::<u64>(), counted);
        for once in [
            |stream: &Stream| stream.shard(RULES[0]),
            |stream: &Stream| Ok(stream.kangaroo(stream.flash)),
        ] {
            let (one, two) = (once(&stream).unwrap(), once(&stream).unwrap());
            assert_eq!(one.miss_ratio, two.miss_ratio);
            assert_eq!(one.writes, two.writes);
            assert!(
                one.writes
                    .iter()
                    .all(|w| w.offset + w.bytes <= stream.flash)
            );
            assert!(one.written_over_admitted() > 1.0 && one.miss_ratio < 0.9);
        }
    }
}
