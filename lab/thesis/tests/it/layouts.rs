// SPDX-License-Identifier: Apache-2.0
//! The thesis's block layouts have exactly the elements put, whatever the geometry; a failing
//! device is an error.

use senko_io::faulty::FaultyDevice;
use senko_io::{Device, Op};
use senko_store::index::Candidates;
use senko_thesis::bloom::BlockBloom;
use senko_thesis::hashed::{self, Hashed, Sized};
use senko_thesis::ours::{self, StaticIndex};
use senko_thesis::sorted::{self, Head, InDram, Scattered, SortedFile};
use senko_thesis::system::{Kind, Named, Old, System, Young};
use senko_thesis::unsorted::{self, Unsorted};
use senko_thesis::{BlockIndex, Geometry, Keys, Layout, Reader, get};
use senko_workload::check_value;

/// Pages of the last block that are partly filled or empty; pages of one element; headers of
/// several pages.
const GEOMETRIES: [Geometry; 5] = [
    of(1, 4096, 4, 1000),
    of(1000, 4096, 8, 1000),
    of(5000, 8192, 32, 100),
    of(997, 4096, 64, 2500),
    of(2500, 4096, 1030, 2000),
];

const fn of(elements: u64, page_bytes: usize, block_pages: u32, value_bytes: usize) -> Geometry {
    Geometry {
        elements,
        page_bytes,
        block_pages,
        value_bytes,
        first_element: 0,
        first_page: 0,
    }
}

fn device(bytes: u64) -> std::sync::Arc<FaultyDevice> {
    FaultyDevice::new(bytes / 4096, 1)
}

/// Every key that was put has its value; other keys are not found.
fn check(
    device: &dyn Device,
    keys: &Keys,
    geometry: &Geometry,
    index: &dyn BlockIndex,
    layout: &dyn Layout,
) -> Reads {
    let mut reader = Reader::new(device, geometry.page_bytes);
    let mut blocks = Candidates::new();
    let name = layout.name();
    let mut find = |number, reader: &mut Reader<'_>| {
        get(index, layout, &keys.wanted(number), reader, &mut blocks).unwrap()
    };
    for number in 0..geometry.elements {
        let found = find(number, &mut reader);
        let place = found.unwrap_or_else(|| panic!("{name} {geometry:?}: {number} is lost"));
        assert_eq!(place.len(), geometry.value_bytes);
        check_value(&reader.bytes()[place], number)
            .unwrap_or_else(|wrong| panic!("{name} {geometry:?}: {number}: {wrong:?}"));
    }
    let present = reader.counts;
    for number in geometry.elements..geometry.elements + 2000 {
        let found = find(number, &mut reader);
        // Read in a single block, so that the map over blocks hides nothing.
        let block = (number % u64::from(geometry.blocks())) as u32;
        let alone = layout.look(block, &keys.wanted(number), &mut reader);
        let none = (None, None);
        assert_eq!(
            (found, alone.unwrap()),
            none,
            "{name} {geometry:?}: {number} was never put"
        );
    }
    Reads {
        per_present: present.reads() as f64 / present.gets as f64,
        blocks: present.blocks as f64 / present.gets as f64,
    }
}

#[derive(Debug)]
struct Reads {
    per_present: f64,
    blocks: f64,
}

#[test]
fn every_layout_is_exact() {
    for (seed, geometry) in (1..).zip(&GEOMETRIES) {
        let keys = Keys::new(seed);
        let device = device(sorted::file_bytes(geometry));
        let index = BlockBloom::build(&keys, geometry, 16);

        let check_layout = |layout: &dyn Layout| check(&*device, &keys, geometry, &index, layout);

        unsorted::write(&*device, &keys, geometry).unwrap();
        for bits in [4, 16, 24] {
            check_layout(&Unsorted::new("unsorted", &keys, geometry, bits));
        }

        let (file, _) = SortedFile::write(&*device, &keys, geometry).unwrap();
        check_layout(&Scattered::cold(file.clone()));
        check_layout(&Scattered::warm(file.clone()));
        let head = check_layout(&Head(file.clone()));
        assert!(
            head.per_present < 2.01 * head.blocks,
            "{geometry:?}: {head:?}"
        );
        let dram = check_layout(&InDram(file));
        assert!(
            dram.per_present < 1.01 * dram.blocks,
            "{geometry:?}: {dram:?}"
        );

        let (file, _) = hashed::write(&*device, &keys, geometry).unwrap();
        // The store's blocks have their own header after the elements.
        let larger = FaultyDevice::new(4 * sorted::file_bytes(geometry) / 4096 + 64, 1);
        let (blocks, _) = ours::write(&*larger, &keys, geometry).unwrap();
        let store = check(&*larger, &keys, geometry, &index, &blocks);
        assert!(store.per_present <= store.blocks, "{geometry:?}");
        let exact = StaticIndex::build(&keys, geometry, 8.0);
        let store = check(&*larger, &keys, geometry, &exact, &blocks);
        assert_eq!(store.per_present, 1.0, "{geometry:?}");

        for sized in [Sized::All, Sized::Third] {
            check_layout(&Hashed::new("hash", &keys, &file, 16, sized));
        }
    }
}

#[test]
fn overwritten_pages_hold_the_same() {
    for (seed, geometry) in (1..).zip(&GEOMETRIES[..4]) {
        let keys = Keys::new(seed);
        let device = device(hashed::file_bytes(geometry));
        let index = BlockBloom::build(&keys, geometry, 16);
        let (file, done) = hashed::overwrite(&*device, &keys, geometry).unwrap();
        assert_eq!(
            (done.elements, done.writes),
            (geometry.elements, geometry.elements)
        );
        assert!(done.reads >= done.writes);
        let layout = Hashed::new("hash", &keys, &file, 16, Sized::All);
        check(&*device, &keys, geometry, &index, &layout);
    }
}

/// Young blocks that become sorted: no element is lost, however many blocks stay young.
#[test]
fn a_system_holds_every_element_once() {
    let kinds = [
        (Young::Unsorted(24), Old::Scattered),
        (Young::Hashed(16, Sized::All), Old::Head),
        (Young::Hashed(16, Sized::Eighth), Old::Head),
    ];
    for (seed, geometry) in (1..).zip(&GEOMETRIES) {
        let keys = Keys::new(seed);
        for (young, old) in kinds {
            for (most_young, fill) in [(1, 1.0), (3, 1.0), (3, 2.0 / 3.0), (100, 1.0)] {
                let bytes = 4 * sorted::file_bytes(geometry);
                let places = (most_young as u64 + 1) * geometry.block_bytes();
                let device = device(bytes + places);
                let kind = Kind {
                    young,
                    old,
                    most_young,
                    fill,
                    bits: 16,
                };
                let system = System::fill(&*device, &keys, geometry, kind).unwrap();
                let (new, sorted) = system.parts();
                assert_eq!((sorted.start, sorted.end), (0, new.start));
                assert_eq!(new.end, geometry.elements);
                let layout = Named("system", &system);
                check(&*device, &keys, geometry, &system, &layout);
                // All but the young blocks were read back and written a second time.
                assert_eq!(system.cost.sorted > 0, sorted.end > 0);
                assert_eq!(system.cost.read > 0, sorted.end > 0);
            }
        }
    }
}

/// A block that loses an element when it is sorted is an error, not a smaller block.
#[test]
fn a_system_on_a_full_or_failing_device_is_an_error() {
    let (geometry, keys) = (GEOMETRIES[1], Keys::new(1));
    let kind = Kind {
        young: Young::Hashed(16, Sized::All),
        old: Old::Head,
        most_young: 1,
        fill: 1.0,
        bits: 16,
    };
    let small = device(4 * geometry.block_bytes());
    let told = System::fill(&*small, &keys, &geometry, kind).err().unwrap();
    assert!(told.to_string().contains("no room"), "{told:#}");
    let failing = device(4 * sorted::file_bytes(&geometry));
    failing.fail_nth(Op::Read, 3, libc::EIO);
    assert!(System::fill(&*failing, &keys, &geometry, kind).is_err());
}

/// Hashes that many keys share: ranges overlap, and a look-up continues over several pages.
#[test]
fn keys_with_equal_hashes_are_told_apart() {
    for bits in [3, 6, 9] {
        let geometry = of(2000, 4096, 600, 1000);
        let keys = Keys::new(9).colliding(bits);
        let device = device(sorted::file_bytes(&geometry));
        let index = BlockBloom::build(&keys, &geometry, 16);
        let (file, _) = SortedFile::write(&*device, &keys, &geometry).unwrap();
        let check_layout = |layout: &dyn Layout| check(&*device, &keys, &geometry, &index, layout);
        check_layout(&Scattered::cold(file.clone()));
        check_layout(&Scattered::warm(file.clone()));
        check_layout(&Head(file.clone()));
        check_layout(&InDram(file));
        let larger = FaultyDevice::new(4 * sorted::file_bytes(&geometry) / 4096 + 64, 1);
        let (blocks, _) = ours::write(&*larger, &keys, &geometry).unwrap();
        check(&*larger, &keys, &geometry, &index, &blocks);
        let (file, _) = hashed::write(&*device, &keys, &geometry).unwrap();
        check_layout(&Hashed::new("hash", &keys, &file, 16, Sized::All));
    }
}

#[test]
fn a_device_that_fails_is_an_error() {
    let geometry = GEOMETRIES[1];
    let keys = Keys::new(1);
    let device = device(sorted::file_bytes(&geometry));
    device.fail_nth(Op::Write, 1, libc::EIO);
    assert!(SortedFile::write(&*device, &keys, &geometry).is_err());
    device.fail_nth(Op::Flush, 1, libc::EIO);
    assert!(unsorted::write(&*device, &keys, &geometry).is_err());
    let (file, _) = SortedFile::write(&*device, &keys, &geometry).unwrap();
    let index = BlockBloom::build(&keys, &geometry, 16);
    let mut reader = Reader::new(&*device, geometry.page_bytes);
    for layout in [
        &Scattered::cold(file.clone()) as &dyn Layout,
        &Head(file.clone()),
        &InDram(file),
    ] {
        device.fail_nth(Op::Read, 1, libc::EIO);
        let found = get(
            &index,
            layout,
            &keys.wanted(1),
            &mut reader,
            &mut Candidates::new(),
        );
        assert!(found.is_err(), "{}", layout.name());
    }
}
