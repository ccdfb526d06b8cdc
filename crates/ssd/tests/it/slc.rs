// SPDX-License-Identifier: Apache-2.0
//! The cache of single-level blocks: which pages go through it, when it is folded, and what that
//! costs. `everything.rs` checks that nothing is lost.

use crate::util::*;

/// Blocks have 96 pages, and 32 in single-level mode.
const PAGES: u64 = 96;

/// One plane of 64 blocks for 48 of data. A page takes 200 us, and 40 us in single-level mode.
fn drive(layer: &str) -> Drive {
    let mut profile = small(64, PAGES as u32, 48 * PAGES);
    profile.slc = Some(SingleLevel {
        bits: 3,
        read_ns: 20_000,
        program_ns: 40_000,
    });
    let parts = Parts {
        check: true,
        ..with_layer(layer)
    };
    Drive::new(&profile, &parts).expect("a drive")
}

/// Writes pages in order, `every` apart, or one after the other where that is 0.
fn write(drive: &mut Drive, from: u64, count: u64, every: Time) -> Report {
    for device in drive.devices_mut() {
        device.nand_mut().rest();
    }
    let requests = (0..count).map(|n| Request {
        time: n * every,
        ..Request::new(Op::Write, (from + n) % (48 * PAGES) * PAGE, PAGE)
    });
    let load = match every {
        0 => Load::Closed { depth: 1 },
        _ => Load::Open { speed: 1.0 },
    };
    run(drive, load, requests)
}

/// Counts are consistent: each page of the host is programmed once for it, and each page folded
/// once more.
fn check(report: &Report) {
    let (flash, layer) = (&report.flash, &report.layer);
    assert_eq!(flash.programs[Cause::Host as usize], report.pages.evicted);
    assert_eq!(flash.programs[Cause::Fold as usize], layer.folded_pages);
    assert_eq!(flash.erases[Cause::Fold as usize], layer.folded_blocks);
    assert!(layer.slc_pages <= report.pages.evicted);
}

/// While the cache has room, a page takes the time of single-level cells. Then each page waits for
/// its share of folding too, and the rate falls below that of a drive without a cache.
#[test]
fn the_rate_falls_when_the_cache_is_full() {
    let mut with = drive("page:slc-blocks=8");
    let first = write(&mut with, 0, 8 * 32, 0);
    check(&first);
    assert_eq!(first.layer.slc_pages, 8 * 32);
    assert_eq!(first.layer.folded_blocks, 0);
    // 40 us on the flash and 1 us in RAM.
    assert_eq!(first.writes.max_us.round(), 41.0);
    let later = write(&mut with, 8 * 32, 1024, 0);
    check(&later);
    assert_eq!(later.layer.folded_blocks, 1024 / 32);
    assert_eq!(later.layer.folded_pages, 1024);
    assert_eq!(later.write_amplification(), Some(2.0));
    let without = write(&mut drive("page"), 0, 1024, 0);
    let pace = |report: &Report| report.requests_a_second().expect("there is time");
    assert!(pace(&first) > 4.0 * pace(&without), "{first:?}");
    assert!(pace(&later) < pace(&without), "{later:?}");
}

/// A pause of a few milliseconds between writes is idle time: the cache is folded in it, and never
/// becomes full.
#[test]
fn idle_time_empties_the_cache() {
    let mut drive = drive("page:slc-blocks=3");
    let report = write(&mut drive, 0, 1024, 20_000_000);
    check(&report);
    assert_eq!(report.layer.slc_pages, 1024);
    // All that is left is the open block's.
    assert!(report.layer.folded_pages >= 1024 - 64, "{report:?}");
    assert_eq!(report.writes.p99_us.round(), 41.0);
}

/// The cache's share of free space shrinks as the drive fills, and is given back before anything is
/// collected.
#[test]
fn a_share_of_free_space_shrinks() {
    let mut drive = drive("page:slc-share=0.5");
    let empty = write(&mut drive, 0, 31 * 32, 0);
    check(&empty);
    assert_eq!(empty.layer.folded_blocks, 0, "31 of 62 spare blocks");
    assert_eq!(empty.layer.slc_pages, 31 * 32);
    let rest = write(&mut drive, 31 * 32, 48 * PAGES - 31 * 32, 0);
    check(&rest);
    assert!(rest.layer.folded_blocks > 31, "{:?}", rest.layer);
    assert_eq!(rest.layer.gc_blocks, 0, "the cache gave way");
    let again = write(&mut drive, 0, 48 * PAGES, 0);
    check(&again);
    let full = write(&mut drive, 0, 8 * 32, 0);
    check(&full);
    assert_eq!(full.layer.slc_pages, 0, "no free block is left for it");
}

/// Pages that are overwritten in the cache are not folded.
#[test]
fn overwrites_in_the_cache_cost_nothing_more() {
    let mut drive = drive("page:slc-blocks=4");
    let (mut blocks, mut programs) = (0, 0);
    for _ in 0..100 {
        let report = write(&mut drive, 0, 32, 0);
        check(&report);
        blocks += report.layer.folded_blocks;
        programs += report.flash.all_programs();
    }
    assert_eq!((blocks, programs), (100 - 4, 3200));
}

#[test]
fn a_cache_that_cannot_be_is_refused() {
    let mut profile = Profile::find("paper-1gb").expect("it is built in");
    let refused = |profile: &Profile, layer: &str| {
        let made = Drive::new(profile, &with_layer(layer));
        made.err().expect("it is refused").to_string()
    };
    assert!(refused(&profile, "page:slc-blocks=1").contains("[slc]"));
    profile.slc = Some(SingleLevel {
        bits: 3,
        read_ns: 1,
        program_ns: 1,
    });
    assert!(refused(&profile, "page:slc-share=1.5").contains("0 to 1"));
    assert!(refused(&profile, "page:slc-share=0.5,slc-blocks=1").contains("not both"));
    assert!(refused(&profile, "page:slc-blocks=2000").contains("logical pages"));
    profile.slc = profile.slc.map(|slc| SingleLevel { bits: 1, ..slc });
    assert!(refused(&profile, "page").contains("bits in [slc]"));
}
