// SPDX-License-Identifier: Apache-2.0
//! The block-granular layers and DFTL by themselves: random writes, reads and trims against the
//! shadow, and power cuts at every operation of a run.

use senko_ssd::ftl::{self, Ftl};
use senko_ssd::geometry::{Geometry, NONE};
use senko_ssd::nand::{Cause, Endurance, Nand};
use senko_ssd::shadow::Shadow;
use senko_workload::Rng;

/// Layers with options, each with the geometry of its flash: blocks, pages a block, logical pages.
/// They are as tight as possible.
const LAYERS: &[(&str, (u32, u32, u32))] = &[
    ("block", (10, 8, 64)),
    ("block", (11, 4, 33)),
    ("bast:log-blocks=1", (11, 8, 64)),
    ("bast:log-blocks=3", (13, 4, 31)),
    ("bast:log-blocks=4,victim=round-robin", (14, 8, 61)),
    (
        "bast:log-blocks=1,victim=lowest,rules=flashsim",
        (11, 8, 64),
    ),
    (
        "bast:log-blocks=4,victim=lowest,rules=flashsim",
        (14, 8, 61),
    ),
    ("fast:log-blocks=2", (12, 8, 64)),
    ("fast:log-blocks=5", (14, 4, 27)),
    ("faster:log-blocks=3", (13, 8, 64)),
    ("faster:log-blocks=8,isolation-blocks=3", (18, 8, 64)),
    ("superblock:log-blocks=1,size=1", (11, 8, 64)),
    ("superblock:log-blocks=3,size=3", (13, 8, 62)),
    ("last:log-blocks=3,threshold=2", (13, 8, 64)),
    (
        "last:log-blocks=8,sequential-blocks=2,threshold=3",
        (24, 4, 55),
    ),
    ("dftl:cmt-bytes=8", (18, 8, 64)),
    ("dftl:cmt-bytes=64", (83, 8, 580)),
    ("dftl:cmt-bytes=65536", (90, 4, 300)),
];

fn nand(shape: (u32, u32, u32)) -> Nand {
    let geometry = Geometry {
        page_bytes: 512,
        ..Geometry::one_plane(shape.0, shape.1)
    };
    let mut nand = Nand::new(geometry, None, &Endurance::default(), 1).unwrap();
    nand.keep_sequence();
    nand
}

fn build(spec: &str, nand: &Nand, logical_pages: u32) -> Box<dyn Ftl> {
    let (ftl, full) = ftl::build(&spec.parse().unwrap(), nand, logical_pages).unwrap();
    let (_, again) = ftl::build(&full, nand, logical_pages).unwrap();
    assert_eq!(full, again, "specifications round-trip");
    ftl
}

/// A page: hot ones more often, and runs.
fn choose(rng: &mut Rng, pages: u32, last: u32) -> u32 {
    match rng.below(8) {
        0..3 => (last + 1) % pages,
        3..5 => rng.below(u64::from(pages / 8)) as u32,
        5 => rng.below(u64::from(pages)) as u32 / 8 * 8,
        _ => rng.below(u64::from(pages)) as u32,
    }
}

/// One run. With `cut`, the power goes that many operations after the start and after each
/// recovery.
fn run(spec: &str, shape: (u32, u32, u32), steps: u32, seed: u64, cut: Option<u64>) {
    let mut nand = nand(shape);
    let mut ftl = build(spec, &nand, shape.2);
    let mut shadow = Shadow::new(shape.2);
    let mut rng = Rng::new(seed);
    let (mut last, mut writes) = (0, 0);
    if let Some(cut) = cut {
        nand.cut_power_after(cut);
    }
    for _ in 0..steps {
        last = choose(&mut rng, shape.2, last);
        match rng.below(20) {
            0..14 => {
                let sequence = nand.last_host_sequence();
                let before = nand.counts().programs[Cause::Host as usize];
                ftl.write(&mut nand, last, 0, 0);
                writes += 1;
                if !nand.is_off() {
                    let after = nand.counts().programs[Cause::Host as usize];
                    assert_eq!(after, before + 1, "FTL-2");
                }
                shadow.programmed(last, &nand, sequence);
            }
            14 => {
                shadow.host_trims(last);
                ftl.trim(&mut nand, last, 0);
            }
            _ => {
                let (found, _) = ftl.read(&mut nand, last, 0);
                if !nand.is_off() {
                    shadow.flash_read(last, found, &nand);
                }
            }
        }
        if nand.is_off() {
            // A drive may not notice it at once.
            for _ in 0..rng.below(4) {
                ftl.write(&mut nand, choose(&mut rng, shape.2, last), 0, 0);
            }
            nand.power_on();
            ftl.recover(&mut nand);
            shadow.recovered(&*ftl, &nand);
            nand.cut_power_after(cut.expect("the power goes only then") + rng.below(30));
        }
    }
    nand.power_on();
    for lpn in 0..shape.2 {
        let found = ftl.locate(lpn);
        shadow.flash_read(lpn, found, &nand);
    }
    // The layer has lost no space: a full overwrite still fits, and so does trimming everything.
    for lpn in (0..shape.2).chain((0..shape.2).rev()) {
        let sequence = nand.last_host_sequence();
        ftl.write(&mut nand, lpn, 0, 0);
        shadow.programmed(lpn, &nand, sequence);
        writes += 1;
    }
    for lpn in 0..shape.2 {
        shadow.flash_read(lpn, ftl.locate(lpn), &nand);
    }
    for lpn in 0..shape.2 {
        ftl.trim(&mut nand, lpn, 0);
        assert_eq!(ftl.locate(lpn), None);
    }
    if cut.is_none() {
        let counts = nand.counts();
        assert_eq!(counts.programs[Cause::Host as usize], writes);
        let live = (0..shape.0)
            .flat_map(|block| nand.spare(block))
            .filter(|lpn| **lpn != NONE);
        assert!(live.count() as u64 <= counts.all_programs());
    }
}

fn each(test: impl Fn(&str, (u32, u32, u32)) + std::panic::RefUnwindSafe) {
    for (spec, shape) in LAYERS {
        println!("{spec} on {shape:?}");
        test(spec, *shape);
    }
}

#[test]
fn every_read_is_the_latest_version() {
    each(|spec, shape| {
        for seed in 0..20 {
            println!("seed {seed}");
            run(spec, shape, 3000, seed, None);
        }
    });
}

#[test]
fn the_latest_version_survives_a_cut_at_any_operation() {
    each(|spec, shape| {
        for cut in 0..400 {
            println!("cut {cut}");
            run(spec, shape, 900, cut / 4, Some(cut));
        }
    });
}
