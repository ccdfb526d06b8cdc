// SPDX-License-Identifier: Apache-2.0
//! Zones, as examples: a host that follows the rules, a host that skips pages, a host that goes
//! back.

use crate::util::*;

/// Two planes of five blocks of four pages, three zones of two blocks each: eight pages a zone.
fn drive() -> (Nand, Box<dyn Ftl>) {
    let geometry = Geometry {
        planes: 2,
        ..Geometry::one_plane(5, 4)
    };
    let nand = Nand::new(geometry, None, &Endurance::default(), 0).unwrap();
    let (layer, _) = ftl::build(&"zns:blocks=2".parse().unwrap(), &nand, 24).unwrap();
    (nand, layer)
}

#[test]
fn a_host_that_keeps_the_rules_has_no_amplification() {
    let (mut nand, mut layer) = drive();
    for round in 0..5 {
        for zone in [0, 2, 1] {
            for page in zone * 8..zone * 8 + 8 {
                layer.write(&mut nand, page, 0, 0);
            }
        }
        // Pages of a zone alternate between its blocks, which are in different planes.
        let block = |page: u32| layer.locate(page).unwrap() / 4;
        assert_ne!(block(8) % 2, block(9) % 2, "round {round}");
        assert_eq!(block(8), block(10));
        for page in 0..24 {
            layer.trim(&mut nand, page, 0);
        }
        // Each reset erased two blocks.
        assert_eq!(nand.counts().all_erases(), 6 * (round + 1));
    }
    assert_eq!(nand.counts().all_programs(), 5 * 24);
    assert_eq!(layer.counts().full_merges, 0);
}

#[test]
fn a_zone_is_reset_when_its_last_page_is_trimmed() {
    let (mut nand, mut layer) = drive();
    for page in 0..3 {
        layer.write(&mut nand, page, 0, 0);
    }
    layer.trim(&mut nand, 0, 0);
    layer.trim(&mut nand, 2, 0);
    assert_eq!(layer.locate(0), None);
    assert_eq!(nand.counts().all_erases(), 0);
    // Page 3 is at the pointer, though those before it are gone.
    layer.write(&mut nand, 3, 0, 0);
    assert_eq!(layer.counts().full_merges, 0);
    layer.trim(&mut nand, 1, 0);
    layer.trim(&mut nand, 7, 0);
    assert_eq!(nand.counts().all_erases(), 0, "page 3 is left");
    layer.trim(&mut nand, 3, 0);
    assert_eq!(nand.counts().all_erases(), 2);
    layer.write(&mut nand, 0, 0, 0);
    assert_eq!(layer.counts().full_merges, 0, "the pointer is back at 0");
}

#[test]
fn a_write_above_the_pointer_skips() {
    let (mut nand, mut layer) = drive();
    layer.write(&mut nand, 0, 0, 0);
    layer.write(&mut nand, 5, 0, 0);
    assert_eq!(nand.counts().all_programs(), 2);
    assert_eq!(layer.locate(3), None);
    // Now 3 is below the pointer. The zone has 0 and 5: two pages are copied around the new one,
    // and two blocks erased.
    layer.write(&mut nand, 3, 0, 0);
    let counts = nand.counts();
    assert_eq!(counts.programs[Cause::Merge as usize], 2);
    assert_eq!(counts.programs[Cause::Host as usize], 3);
    assert_eq!(counts.erases[Cause::Merge as usize], 2);
    assert_eq!(layer.counts().full_merges, 1);
    for page in [0, 3, 5] {
        assert_eq!(nand.lpn(layer.locate(page).unwrap()), page);
    }
}

#[test]
fn zones_that_do_not_fit_are_refused() {
    let (nand, _) = drive();
    for (text, logical, why) in [
        ("zns:blocks=2", 33, "zns: 5 zones of 2 blocks"),
        ("zns:blocks=0", 8, "1 to 10 blocks, and not 0"),
        ("zns:blocks=11", 8, "1 to 10 blocks, and not 11"),
        ("zns:blocks=10", 8, "need 20 blocks, and the flash has 10"),
    ] {
        let refused = ftl::build(&text.parse().unwrap(), &nand, logical).err();
        let told = refused.expect(text).to_string();
        assert!(told.starts_with("zns: ") && told.contains(why), "{told}");
    }
    assert!(ftl::build(&"zns:blocks=2".parse().unwrap(), &nand, 32).is_ok());
}
