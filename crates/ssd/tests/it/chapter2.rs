// SPDX-License-Identifier: Apache-2.0
//! The thesis's chapter 2: the chip of table 1, DFTL's hits against the size of its cache, and the
//! cost of garbage collection with and without TRIM.

use crate::util::*;

/// Pages of the small drives here.
const PAGES: u64 = 32 * 64;

fn run(drive: &mut Drive, requests: impl Iterator<Item = Request>) -> Report {
    crate::util::run(drive, Load::Closed { depth: 1 }, requests)
}

/// The paper's drive with 40 blocks of 64 pages for 32 of data.
fn drive(layer: &str) -> Drive {
    Drive::new(&small(48, 64, PAGES), &with_layer(layer)).expect("a drive")
}

/// Table 1: pages of 2,048 + 64 bytes, blocks of 128 KB, 4 GB; 25 us, 200 us and 2 ms.
#[test]
fn the_chip_of_table_1() {
    let profile = Profile::find("hy27-4gb").expect("it is built in");
    assert_eq!(profile.geometry.page_bytes, 2048);
    assert_eq!(profile.geometry.spare_bytes, 64);
    assert_eq!(profile.geometry.block_bytes(), 128 << 10);
    assert_eq!(profile.geometry.bytes(), 4 << 30);
    assert_eq!(profile.timing.erase_ns, 2_000_000);
    let mut drive = Drive::new(&profile, &Parts::default()).expect("a drive");
    let transfer = 2112.0 * 0.025;
    let written = run(
        &mut drive,
        [Request::new(Op::Write, 7 * 2048, 2048)].into_iter(),
    );
    assert!((written.writes.max_us - (transfer + 200.0)).abs() < 1.0);
    drive.devices_mut()[0].nand_mut().rest();
    let read = run(
        &mut drive,
        [Request::new(Op::Read, 7 * 2048, 2048)].into_iter(),
    );
    assert!((read.reads.max_us - (transfer + 25.0)).abs() < 1.0);
}

/// With each doubling of its cache, DFTL finds more entries in RAM, and all of them when the whole
/// map fits. Map reads fall accordingly.
#[test]
fn hits_grow_with_the_cache_of_the_map() {
    let found: Vec<(f64, u64)> = [512, 1024, 2048, 4096, 8192, 32_768]
        .iter()
        .map(|bytes| {
            let mut drive = drive(&format!("dftl:cmt-bytes={bytes}"));
            drive.precondition(1.0).expect("new flash");
            let mut rng = Rng::new(3);
            let pages = (0..20_000).map(|_| match rng.below(4) {
                0 => rng.below(PAGES),
                _ => rng.below(PAGES / 8),
            });
            let report = run(&mut drive, pages.map(|page| of_pages(Op::Read, page, 1)));
            let layer = report.layer;
            assert_eq!(layer.map_lookups, 20_000);
            let hits = layer.map_hits as f64 / layer.map_lookups as f64;
            (hits, report.flash.all_reads())
        })
        .collect();
    assert!(
        found.is_sorted_by(|one, next| one.0 <= next.0 && one.1 >= next.1),
        "{found:?}"
    );
    assert!(found[0].0 < 0.5 && found[5].0 > 0.85, "{found:?}");
}

/// Without TRIM, collection moves pages that the host has long deleted.
#[test]
fn trim_spares_collection() {
    let costs = [false, true].map(|trims| {
        let mut drive = drive("page");
        let way = Precondition::Random { times: 2.0 };
        drive.prepare(way, |_, _| true).expect("new flash");
        let half = PAGES / 2;
        if trims {
            let forgotten = (half..PAGES).map(|page| of_pages(Op::Trim, page, 1));
            assert_eq!(run(&mut drive, forgotten).pages.trims, half);
        }
        let mut rng = Rng::new(5);
        let writes = (0..4 * PAGES).map(|_| of_pages(Op::Write, rng.below(half), 1));
        let report = run(&mut drive, writes);
        (report.layer.gc_pages, report.flash.all_erases())
    });
    let [without, with] = costs;
    assert!(with.0 * 2 < without.0 && with.1 < without.1, "{costs:?}");
}
