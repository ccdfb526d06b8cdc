// SPDX-License-Identifier: Apache-2.0
//! The page-level layer: hand-computed examples of collection, streams, runs of pages against
//! single pages, and the closed forms.

use proptest::prelude::*;
use senko_ssd::model::{fifo_write_amplification, greedy_write_amplification};

use crate::util::*;
use senko_workload::Rng;

fn geometry(planes: u32, blocks: u32, pages: u32) -> Geometry {
    Geometry {
        planes,
        ..Geometry::one_plane(blocks, pages)
    }
}

/// Flash without times, and a layer on it.
fn drive(spec: &str, geometry: Geometry, logical: u32) -> (Nand, Box<dyn Ftl>) {
    let nand = Nand::new(geometry, None, &Endurance::default(), 3).unwrap();
    let (layer, _) = ftl::build(&spec.parse().unwrap(), &nand, logical).unwrap();
    (nand, layer)
}

fn write(nand: &mut Nand, layer: &mut dyn Ftl, pages: impl IntoIterator<Item = u32>) {
    for page in pages {
        layer.write(nand, page, 0, 0);
    }
}

/// Four blocks of four pages, eight logical pages, greedy.
#[test]
fn greedy_collects_into_the_block_that_the_host_writes_to() {
    let (mut nand, mut layer) = drive("page", geometry(1, 4, 4), 8);
    let layer = &mut *layer;
    // Block 0: 0 1 2 3, block 1: 4 5 6 7, block 2: 0 1 2 4. Block 3 is the reserve. Valid are 3 in
    // block 0, and 5 6 7 in block 1.
    write(&mut nand, layer, (0..8).chain([0, 1, 2, 4]));
    assert_eq!(nand.counts().all_erases(), 0, "nothing had to move yet");
    // The open block is full and only the reserve is free: block 0 is collected. Its page 3 goes to
    // block 3, then 0 is written there.
    write(&mut nand, layer, [0]);
    assert_eq!(layer.locate(3), Some(12));
    assert_eq!(layer.locate(0), Some(13));
    assert_eq!(nand.counts().programs[Cause::Gc as usize], 1);
    assert_eq!(nand.counts().reads[Cause::Gc as usize], 1);
    assert_eq!(nand.counts().erases[Cause::Gc as usize], 1);
    // Block 3 is full after two more: 3 - - 0. It has two valid pages, blocks 1 and 2 have three
    // each. Its pages go to block 0.
    write(&mut nand, layer, [0, 0, 5]);
    assert_eq!(layer.locate(3), Some(0));
    assert_eq!(layer.locate(0), Some(1));
    assert_eq!(layer.locate(5), Some(2));
    assert_eq!(layer.counts().gc_blocks, 2);
    assert_eq!(layer.counts().gc_pages, 3);
    assert_eq!(nand.counts().all_programs(), 8 + 4 + 4 + 3);
    // A trimmed page is not moved: block 1 has 6 and 7, without 7 it is the emptiest.
    layer.trim(&mut nand, 7, 0);
    assert_eq!(layer.locate(7), None);
    write(&mut nand, layer, [5, 5]);
    assert_eq!(layer.counts().gc_blocks, 3);
    assert_eq!(layer.counts().gc_pages, 4);
    assert_eq!(nand.erases(1), 1);
}

/// Six blocks of four pages. An old block has three valid pages and the youngest has two. Which one
/// is collected?
#[test]
fn each_policy_has_its_victim() {
    let victims = [
        ("page:gc=greedy", 4, "it has the fewest valid pages"),
        ("page:gc=fifo", 0, "it is the oldest"),
        ("page:gc=windowed,window=1", 0, "nothing else is looked at"),
        (
            "page:gc=windowed,window=4",
            0,
            "block 4 is beyond the window",
        ),
        ("page:gc=windowed,window=5", 4, "all are looked at"),
        ("page:gc=d-choices,d=100", 4, "nearly surely it is drawn"),
        // Block 0: (4 - 3) / (2 * 3) * age 5 = 0.83. Block 4: (4 - 2) / (2 * 2) * age 1 = 0.5.
        // Collecting the others gains nothing.
        ("page:gc=cost-benefit", 0, "it is five times as old"),
    ];
    // Blocks 0 to 3: 0 to 15. Block 4: 0 16 17 16; then 17 is trimmed.
    let cases = victims.map(|(spec, victim, why)| (spec, [0, 16, 17, 16], 17, victim, why));
    // With 0 16 16 16 in block 4, and 0 trimmed, it gains (4 - 1) / 2 * age 1 = 1.5.
    let emptier = (
        "page:gc=cost-benefit",
        [0, 16, 16, 16],
        0,
        4,
        "it is emptier",
    );
    for (spec, last, trimmed, victim, why) in cases.into_iter().chain([emptier]) {
        let (mut nand, mut layer) = drive(spec, geometry(1, 6, 4), 18);
        write(&mut nand, &mut *layer, (0..16).chain(last));
        layer.trim(&mut nand, trimmed, 0);
        write(&mut nand, &mut *layer, [17]);
        let erased: Vec<u32> = (0..6).filter(|block| nand.erases(*block) > 0).collect();
        assert_eq!(erased, [victim], "{spec}: {why}");
    }
}

/// Hot pages between cold ones: if they are separated, they die together and nothing moves.
#[test]
fn streams_keep_hot_pages_from_cold_ones() {
    let moved = |streams: u32| {
        let spec = format!("page:streams={streams},separate=true");
        let (mut nand, mut layer) = drive(&spec, geometry(1, 24, 8), 128);
        // 120 cold pages are written once, and between them 8 hot ones over and over.
        for cold in 0..120 {
            layer.write(&mut nand, cold, 0, 0);
            layer.write(&mut nand, 120 + cold % 8, 1, 0);
        }
        for round in 0..400 {
            layer.write(&mut nand, 120 + round % 8, 1, 0);
        }
        layer.counts().gc_pages
    };
    assert_eq!(moved(2), 0);
    assert!(moved(1) > 60);
}

#[test]
fn streams_and_planes_have_open_blocks_of_their_own() {
    let (mut nand, mut layer) = drive("page:streams=2", geometry(2, 16, 8), 128);
    for page in 0..8 {
        layer.write(&mut nand, page, (page % 2) as u16, 0);
    }
    let block = |page: u32| layer.locate(page).unwrap() / 8;
    // Pages of one stream lie on two blocks, one in each plane, and those of the other stream on
    // two others.
    assert_eq!(block(0), block(4));
    assert_eq!(block(2), block(6));
    assert_ne!(block(0) % 2, block(2) % 2);
    let of = |stream: u32| [block(stream), block(stream + 2)];
    assert!(of(0).iter().all(|block| !of(1).contains(block)));
    // A third stream shares blocks with the first.
    let first_stream = of(0);
    layer.write(&mut nand, 8, 2, 0);
    assert!(first_stream.contains(&(layer.locate(8).unwrap() / 8)));
}

/// Every specification of a layer equals what the layer reports about itself, and impossible ones
/// are refused.
#[test]
fn specifications() {
    let geometry = geometry(1, 32, 8);
    let nand = Nand::new(geometry, None, &Endurance::default(), 0).unwrap();
    let good = [
        "page",
        "page:gc=cost-benefit,separate=true",
        "page:gc=d-choices,d=3",
        "page:gc=windowed,window=7,streams=4",
        "page:background=0,gc=fifo,reserve=2",
    ];
    for text in good {
        let (_, spec) = ftl::build(&text.parse().unwrap(), &nand, 200).unwrap();
        let (_, again) = ftl::build(&spec, &nand, 200).unwrap();
        assert_eq!(again, spec);
    }
    let bad = [
        ("page:gc=best", "greedy, cost-benefit"),
        ("page:d=3", "gc=greedy"),
        ("page:gc=windowed,window=0", "at least"),
        ("page:streams=0", "streams"),
        ("page:streams=65537", "1 to 65536"),
        ("page:streams=65536", "200 logical pages"),
        ("page:reserve=0", "reserve"),
        ("page:reserve=9", "do not fit|200 logical pages"),
    ];
    for (text, part) in bad {
        let refused = ftl::build(&text.parse().unwrap(), &nand, 200).err();
        let why = refused.expect(text).to_string();
        let fits = part.split('|').any(|part| why.contains(part));
        assert!(fits, "{text}: {why}");
    }
}

/// The counts of valid pages have 16 bits.
#[test]
fn blocks_of_more_than_65535_pages_are_refused() {
    let build = |pages| {
        let nand = Nand::new(geometry(1, 4, pages), None, &Endurance::default(), 0).unwrap();
        ftl::build(&"page".parse().unwrap(), &nand, 100).err()
    };
    assert!(build(65_535).is_none());
    let why = build(65_536).expect("too many").to_string();
    has(&why, "at most 65535 pages");
}

/// 3 planes of 5 blocks of 4 pages: each of 16 logical pages is at one of 60 places.
#[test]
fn the_map_of_pages_names_every_page_of_the_flash() {
    let (_, layer) = drive("page", geometry(3, 5, 4), 16);
    let mapping = layer.mapping();
    assert_eq!((mapping.bits, mapping.flash_bytes), (16 * 6, 0));
    assert!((mapping.fractional_bits - 16.0 * 60f64.log2()).abs() < 1e-9);
}

/// It is plane 0's turn, but a read keeps it busy: the page goes to plane 1. When the next page
/// comes both are busy, and the read will be over before the program.
#[test]
fn a_page_goes_to_the_plane_that_is_idle_first() {
    let timing = Profile::find("paper-1gb").unwrap().timing;
    let two_dies = Geometry {
        dies: 2,
        ..geometry(1, 8, 4)
    };
    let mut nand = Nand::new(two_dies, Some(timing), &Endurance::default(), 3).unwrap();
    let (mut layer, _) = ftl::build(&"page".parse().unwrap(), &nand, 16).unwrap();
    let first = layer.write(&mut nand, 0, 0, 0);
    let idle = layer.write(&mut nand, 1, 0, first).max(first);
    let (_, read) = layer.read(&mut nand, 0, idle);
    let written = layer.write(&mut nand, 2, 0, idle);
    layer.write(&mut nand, 3, 0, idle);
    assert!(idle < read && read < written, "{idle} {read} {written}");
    let plane = |page| layer.locate(page).unwrap() / 4 % 2;
    assert_eq!([0, 1, 2, 3].map(plane), [0, 1, 1, 0]);
}

/// The power fails while five of eight blocks are erased. The layer finds its pages, continues in
/// the block that was being filled, and collects nothing.
#[test]
fn a_recovery_with_free_blocks_moves_nothing() {
    let (mut nand, mut layer) = drive("page", geometry(1, 8, 4), 8);
    nand.keep_sequence();
    write(&mut nand, &mut *layer, (0..8).chain([0, 1, 2]));
    layer.recover(&mut nand);
    assert_eq!(nand.counts().all_programs(), 11);
    assert_eq!(nand.counts().all_erases(), 0);
    let places: Vec<u32> = (0..8).map(|page| layer.locate(page).unwrap()).collect();
    assert_eq!(places, [8, 9, 10, 3, 4, 5, 6, 7]);
    write(&mut nand, &mut *layer, [3]);
    assert_eq!(layer.locate(3), Some(11));
}

/// An idle drive collects a block only if it gains a quarter of it: two pages of eight.
#[test]
fn an_idle_drive_collects_what_gains_a_quarter() {
    let (mut nand, mut layer) = drive("page:background=9", geometry(1, 6, 8), 16);
    write(&mut nand, &mut *layer, 0..8);
    assert_eq!(layer.idle(&mut nand, 0), None, "all pages are valid");
    write(&mut nand, &mut *layer, [0]);
    assert_eq!(layer.idle(&mut nand, 0), None, "seven are");
    write(&mut nand, &mut *layer, [1]);
    assert!(layer.idle(&mut nand, 0).is_some(), "six are");
    assert_eq!((layer.counts().gc_blocks, layer.counts().gc_pages), (1, 6));
}

/// Uniform random writes after `warm` times the logical pages; programs of the flash for each of
/// the host's.
fn measure(spec: &str, blocks: u32, pages: u32, alpha: f64, rounds: (u64, u64)) -> f64 {
    // One block besides those that alpha counts: the reserve.
    let logical = (f64::from(blocks * pages) / alpha).round() as u32;
    let (mut nand, mut layer) = drive(spec, geometry(1, blocks + 1, pages), logical);
    let fill: Vec<u32> = (0..logical).collect();
    layer.write_many(&mut nand, &fill, 0);
    let mut rng = Rng::new(11);
    let mut batch = vec![0; 1000];
    let mut before = *nand.counts();
    let (warm, counted) = rounds;
    for round in 0..(warm + counted) * u64::from(logical) / 1000 {
        if round == warm * u64::from(logical) / 1000 {
            before = *nand.counts();
        }
        for page in &mut batch {
            *page = rng.below(logical.into()) as u32;
        }
        layer.write_many(&mut nand, &batch, 0);
    }
    let counts = nand.counts().since(&before);
    counts.all_programs() as f64 / counts.programs[Cause::Host as usize] as f64
}

/// A smaller form of the experiment `ssd-closed-form`. The seed is fixed, so the counts are too.
#[test]
fn closed_forms_hold() {
    for (alpha, pages) in [(1.10, 64), (1.28, 64), (1.50, 32)] {
        let greedy = measure("page:gc=greedy", 512, pages, alpha, (8, 20));
        let fifo = measure("page:gc=fifo", 512, pages, alpha, (8, 20));
        let off = |measured: f64, form: f64| (measured / form - 1.0).abs();
        let form = greedy_write_amplification(alpha, pages);
        assert!(off(greedy, form) < 0.01, "greedy {alpha}: {greedy}, {form}");
        let form = fifo_write_amplification(alpha);
        assert!(off(fifo, form) < 0.01, "fifo {alpha}: {fifo}, {form}");
    }
}

/// Greedy is the best; a random block is the worst, and has a closed form too: 1 / (1 - 1 / alpha).
/// Windows are between FIFO and greedy.
#[test]
fn policies_are_ordered() {
    let of = |spec: &str| measure(spec, 256, 32, 1.2, (6, 10));
    let (greedy, fifo) = (of("page:gc=greedy"), of("page:gc=fifo"));
    let [one, two, ten] = [1, 2, 10].map(|d| of(&format!("page:gc=d-choices,d={d}")));
    assert!(
        greedy < ten && ten < two && two < one,
        "{greedy} {ten} {two} {one}"
    );
    assert!((one - 6.0).abs() < 0.15, "a random block: {one}");
    let window = of("page:gc=windowed,window=64");
    assert!(greedy < window && window < fifo, "{greedy} {window} {fifo}");
    let benefit = of("page:gc=cost-benefit");
    assert!(
        greedy * 0.99 < benefit && benefit < fifo,
        "{greedy} {benefit} {fifo}"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Write { pages: Vec<u32>, stream: u16 },
    Trim { first: u32, count: u32 },
    Idle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = prop_oneof![3 => 0u32..40, 2 => 0u32..1000];
    let write = (prop::collection::vec(page, 1..400), 0u16..4);
    let step = prop_oneof![
        6 => write.prop_map(|(pages, stream)| Step::Write { pages, stream }),
        3 => (0u32..1000, 1u32..60).prop_map(|(first, count)| Step::Trim { first, count }),
        1 => Just(Step::Idle),
    ];
    prop::collection::vec(step, 1..60)
}

fn spec() -> impl Strategy<Value = String> {
    let policy = prop::sample::select(vec![
        "greedy",
        "cost-benefit",
        "fifo",
        "d-choices,d=2",
        "windowed,window=3",
    ]);
    let rest = (1u32..4, any::<bool>(), 1u32..3);
    let page = (policy, rest).prop_map(|(policy, (streams, separate, reserve))| {
        format!("page:gc={policy},streams={streams},separate={separate},reserve={reserve}")
    });
    // A superblock fills and gives back its blocks in one step.
    let superblock = (1u32..4).prop_map(|size| format!("superblock:log-blocks=5,size={size}"));
    prop_oneof![3 => page, 1 => superblock]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Runs of pages have the same effect on flash, table and counts as single pages.
    #[test]
    fn runs_of_pages_are_single_pages(
        steps in steps(),
        spec in spec(),
        planes in prop::sample::select(vec![1u32, 1, 1, 3]),
        pages in 1u32..20,
        blocks in 9u32..40,
    ) {
        let geometry = geometry(planes, blocks, pages);
        let logical = planes * (blocks - 7) * pages;
        let (mut nand, mut layer) = drive(&spec, geometry, logical);
        let (mut nand_one, mut layer_one) = drive(&spec, geometry, logical);
        for step in steps {
            match step {
                Step::Write { mut pages, stream } => {
                    pages.iter_mut().for_each(|page| *page %= logical);
                    layer.write_many(&mut nand, &pages, stream);
                    for page in pages {
                        layer_one.write(&mut nand_one, page, stream, 0);
                    }
                }
                Step::Trim { first, count } => {
                    let lpns = first % logical..(first % logical + count).min(logical);
                    layer.trim_many(&mut nand, lpns.clone());
                    for page in lpns {
                        layer_one.trim(&mut nand_one, page, 0);
                    }
                }
                Step::Idle => {
                    let done = layer.idle(&mut nand, 0);
                    prop_assert_eq!(done, layer_one.idle(&mut nand_one, 0));
                }
            }
            prop_assert_eq!(nand.counts(), nand_one.counts());
        }
        prop_assert_eq!(layer.counts(), layer_one.counts());
        prop_assert_eq!(nand.wear(), nand_one.wear());
        prop_assert_eq!(nand.last_host_sequence(), nand_one.last_host_sequence());
        for block in 0..nand.blocks() {
            prop_assert_eq!(nand.spare(block), nand_one.spare(block));
        }
        for page in 0..logical {
            let place = layer.locate(page);
            prop_assert_eq!(place, layer_one.locate(page));
            prop_assert!(place.is_none_or(|place| nand.lpn(place) == page));
        }
    }
}

/// Runs without times collect whole pages in batches; the result is the same as with one request
/// after the other.
#[test]
fn runs_without_times_do_what_single_requests_do() {
    let mut profile = Profile::find("paper-1gb").unwrap();
    profile.partial_pages = PartialPages::ReadModifyWrite;
    profile.ftl = "page:streams=2".to_owned();
    profile.geometry = geometry(2, 40, 16);
    profile.user_bytes = 1000 * 4096;
    let parts = Parts {
        untimed: true,
        seed: 5,
        ..Parts::default()
    };
    for (drives, buffer) in [(1, "none"), (2, "none"), (2, "lru")] {
        profile.buffer = buffer.to_owned();
        profile.buffer_bytes = 50 * 4096;
        let new = || Drive::raid0(&profile, &parts, drives, 8 * 4096).unwrap();
        let (mut run, mut single) = (new(), new());
        run.precondition(0.5).unwrap();
        single.precondition(0.5).unwrap();
        let mut rng = Rng::new(u64::from(drives));
        let mut request = || {
            let op = match rng.below(20) {
                0 => Op::Flush,
                1..4 => Op::Read,
                4 => Op::Trim,
                _ => Op::Write,
            };
            let sectors = run.capacity_bytes() / 512;
            let offset = rng.below(sectors - 128);
            // Half of the requests cover whole pages.
            let align = if rng.below(2) == 0 { 8 } else { 1 };
            let sectors = match op {
                Op::Flush => 0,
                _ => (rng.below(64) / align + 1) * align,
            };
            Request {
                stream: rng.below(3) as u16,
                ..Request::new(op, offset / align * align * 512, sectors * 512)
            }
        };
        let requests: Vec<Request> = (0..5000).map(|_| request()).collect();
        let source = requests.iter().map(|request| Ok::<_, Error>(*request));
        let report = run.run(source, Load::Closed { depth: 8 }).unwrap();
        for request in &requests {
            single.submit(request, 0).unwrap();
        }
        assert_eq!(report.all.count, 5000);
        for (one, other) in run.devices().iter().zip(single.devices()) {
            assert_eq!(one.counts(), other.counts());
            assert_eq!(one.nand().counts(), other.nand().counts());
            assert!(one.nand().counts().all_erases() > 100);
            for page in 0..one.logical_pages() {
                assert_eq!(one.ftl().locate(page), other.ftl().locate(page));
            }
        }
    }
}
