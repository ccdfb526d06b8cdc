// SPDX-License-Identifier: Apache-2.0
//! Every translation layer under every write buffer: random requests with trims and flushes, every
//! read checked against the latest version, power cuts at any operation, conservation at the end.
//!
//! `SENKO_TEST_FACTOR=20` runs 20 times as many seeds, and 0.2 a fifth. A failure prints parts and
//! seed; `SENKO_SSD_SEED` and `SENKO_SSD_PARTS` (layer/buffer) run only these.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use senko_ssd::buffer::Surroundings;

use crate::util::*;

/// Planes, blocks a plane, pages a block, logical pages.
type Shape = (u32, u32, u32, u32);

/// Small, so that merges and collection happen all the time.
const SHAPES: [Shape; 3] = [(1, 48, 8, 208), (2, 32, 4, 160), (4, 24, 16, 960)];

/// Block-granular layers and DFTL on flash that is as tight as possible.
const TIGHT: [(&str, Shape); 18] = rows! {
    "block", (1, 10, 8, 64);
    "block", (1, 11, 4, 33);
    "bast:log-blocks=1", (1, 11, 8, 64);
    "bast:log-blocks=3", (1, 13, 4, 31);
    "bast:log-blocks=4,victim=round-robin", (1, 14, 8, 61);
    "bast:log-blocks=1,victim=lowest,rules=flashsim", (1, 11, 8, 64);
    "bast:log-blocks=4,victim=lowest,rules=flashsim", (1, 14, 8, 61);
    "fast:log-blocks=2", (1, 12, 8, 64);
    "fast:log-blocks=5", (1, 14, 4, 27);
    "faster:log-blocks=3", (1, 13, 8, 64);
    "faster:log-blocks=8,isolation-blocks=3", (1, 18, 8, 64);
    "superblock:log-blocks=1,size=1", (1, 11, 8, 64);
    "superblock:log-blocks=3,size=3", (1, 13, 8, 62);
    "last:log-blocks=3,threshold=2", (1, 13, 8, 64);
    "last:log-blocks=8,sequential-blocks=2,threshold=3", (1, 24, 4, 55);
    "dftl:cmt-bytes=8", (1, 18, 8, 64);
    "dftl:cmt-bytes=64", (1, 83, 8, 580);
    "dftl:cmt-bytes=65536", (1, 90, 4, 300);
};

/// Layers with the options that make them fit on so little flash.
fn layers() -> Vec<Spec> {
    let plain = ftl::ALL.iter().map(|entry| Spec::plain(entry.name));
    let small = [
        "bast:log-blocks=3",
        "fast:log-blocks=4",
        "faster:log-blocks=4",
        "last:log-blocks=6",
        "dftl:cmt-bytes=128",
        "page:gc=cost-benefit",
        "page:gc=fifo",
        "page:gc=d-choices",
        "page:gc=windowed",
        "page:separate=true,reserve=2",
        "page:streams=3",
        "page:slc-blocks=2",
        "page:slc-share=0.5",
        "zns:blocks=3",
    ];
    let known = |spec: &Spec| ftl::ALL.iter().any(|entry| entry.name == spec.name());
    let small = small.iter().map(|text| text.parse().unwrap());
    plain.chain(small.filter(known)).collect()
}

fn buffers() -> Vec<Spec> {
    let names = buffer::ALL.iter().map(|entry| Spec::plain(entry.name));
    names.collect()
}

fn profile(shape: Shape) -> Profile {
    let (planes, blocks, pages, logical) = shape;
    let mut profile = small(blocks, pages, logical.into());
    profile.geometry.channels = planes.min(2);
    profile.geometry.planes = planes / planes.min(2);
    profile.slc = Some(nand::SingleLevel {
        bits: 3,
        read_ns: 20_000,
        program_ns: 50_000,
    });
    profile
}

/// The host's next request. Pages are hot and cold; sometimes writes come in runs.
struct Host {
    rng: Rng,
    pages: u32,
    run: Option<(u32, u32)>,
}

impl Host {
    fn page(&mut self) -> u32 {
        if let Some((next, left)) = self.run {
            self.run = (left > 1 && next + 1 < self.pages).then_some((next + 1, left - 1));
            return next;
        }
        let hot = self.rng.below(4) > 0;
        let span = if hot { self.pages / 6 } else { self.pages };
        let page = self.rng.below(u64::from(span)) as u32;
        if self.rng.below(24) == 0 {
            self.run = Some((page, 2 + self.rng.below(40) as u32));
        }
        page
    }
}

fn run(layer: &Spec, buffer: &Spec, shape: Shape, cuts: bool, seed: u64) {
    let profile = profile(shape);
    let capacity = [0, 1, 5, 16, 40][seed as usize % 5];
    let parts = Parts {
        ftl: Some(layer.clone()),
        buffer: Some(buffer.clone()),
        buffer_pages: Some(capacity.max(1)),
        untimed: seed.is_multiple_of(2),
        check: true,
        seed,
    };
    let around = Surroundings {
        capacity: capacity.max(1),
        pages_per_block: profile.geometry.pages,
        logical_pages: profile.user_pages(),
        ftl: layer.clone(),
    };
    let mut device = Device::new(&profile, &parts).unwrap();
    let mut host = Host {
        rng: Rng::new(seed),
        pages: device.logical_pages(),
        run: None,
    };
    let (mut now, mut next_cut) = (0, 0);
    for step in 0..6000 {
        if cuts && step == next_cut {
            device.nand_mut().cut_power_after(1 + host.rng.below(60));
            next_cut = step + 20 + host.rng.below(400);
        }
        let page = host.page();
        let done = match host.rng.below(100) {
            0..60 => device.write(page, host.rng.below(8) > 0, (page % 3) as u16, now),
            60..92 => device.read(page, now),
            92..98 => device.trim(page, now),
            98 => device.idle(now).unwrap_or(now),
            _ => device.flush(now),
        };
        assert!(done >= now, "time runs backwards: {done} after {now}");
        now = done;
        if device.nand().is_off() {
            let (empty, _) = buffer::build(buffer, &around).unwrap();
            device.power_cycle(empty);
        }
        assert!(device.buffer().len() <= capacity.max(1), "BUFFER-3");
    }
    device.nand_mut().power_on();
    device.flush(now);
    // The layer has lost no space: everything fits once more.
    for page in (0..host.pages).rev() {
        device.read(page, now);
        device.write(page, true, 0, now);
    }
    device.flush(now);
    for page in 0..host.pages {
        device.read(page, now);
        device.trim(page, now);
        assert_eq!(device.ftl().locate(page), None);
    }
    if !cuts {
        device.assert_conservation();
    }
    let erases = device.nand().counts().all_erases();
    assert!(erases > 10, "only {erases} erases: this tests little");
}

fn all(cuts: bool) {
    let seeds = senko_workload::rounds(5);
    let only = std::env::var("SENKO_SSD_SEED").ok();
    let only: Option<u64> = only.map(|text| text.parse().unwrap());
    let parts = std::env::var("SENKO_SSD_PARTS").ok();
    let mut runs = 0;
    for layer in layers() {
        for buffer in buffers() {
            let name = format!("{layer}/{buffer}");
            if parts.as_ref().is_some_and(|parts| *parts != name) {
                continue;
            }
            for seed in only.map_or(0..seeds, |seed| seed..seed + 1) {
                let shape = SHAPES[seed as usize % SHAPES.len()];
                let test = AssertUnwindSafe(|| run(&layer, &buffer, shape, cuts, seed));
                if let Err(panic) = catch_unwind(test) {
                    eprintln!("SENKO_SSD_PARTS={name} SENKO_SSD_SEED={seed}");
                    resume_unwind(panic);
                }
                runs += 1;
            }
        }
    }
    assert!(runs > 0 || parts.is_some());
}

/// The layers by themselves, with more seeds than under every buffer.
#[test]
fn layers_work_on_tight_flash() {
    let none = Spec::plain("none");
    for (layer, shape) in TIGHT {
        let layer: Spec = layer.parse().unwrap();
        for seed in 0..senko_workload::rounds(60) {
            println!("{layer} on {shape:?}, seed {seed}");
            run(&layer, &none, shape, !seed.is_multiple_of(4), seed);
        }
    }
}

#[test]
fn reads_return_the_latest_version() {
    all(false);
}

#[test]
fn power_cuts_lose_only_what_the_buffer_held() {
    all(true);
}

/// Programs and erases fail, blocks die, spare blocks replace them, and no layer above notices,
/// until there is no spare block left.
#[test]
fn failing_blocks_are_replaced_until_none_is_left() {
    for layer in layers() {
        let mut profile = profile(SHAPES[0]);
        profile.endurance = nand::Endurance {
            cycles: 200,
            cycles_spread: 0.2,
            enforce: true,
            program_failure: 0.0005,
            erase_failure: 0.001,
            spare_blocks: 6,
            wear_threshold: Some(8),
        };
        let parts = Parts {
            ftl: Some(layer.clone()),
            check: true,
            seed: 7,
            ..Parts::default()
        };
        let mut device = Device::new(&profile, &parts).unwrap();
        let mut rng = Rng::new(7);
        let pages = u64::from(device.logical_pages());
        let mut now = 0;
        while device.nand().worn_out().is_none() {
            let span = if rng.below(4) > 0 { pages / 6 } else { pages };
            now = device.write(rng.below(span) as u32, true, 0, now);
            now = device.read(rng.below(pages) as u32, now);
            assert!(
                device.counts().host_writes < 10_000_000,
                "{layer} never wears out"
            );
        }
        assert_eq!(
            device.nand().retired(),
            6,
            "{layer}: {:?}",
            device.nand().worn_out()
        );
        device.assert_conservation();
    }
}
