// SPDX-License-Identifier: Apache-2.0
//! A log alone: places, marks, what a restart finds.

use super::*;

/// Two keys with one tag, A and B, came to lie in one page, and B was promoted, which kept its copy
/// there. A was deleted; when B was demoted its slot named the page again, and a get of A followed
/// it to what A had been. So a page takes one of them.
#[test]
fn two_keys_with_one_tag_do_not_share_a_page() {
    let slice = DeviceSlice {
        device: 0,
        first_page: 0,
        pages: 64,
    };
    let mut log = Log::new(0, slice, 0, 16, 4, 4);
    let mut page = |tag| log.place_small(100, tag).map(|(position, _)| position);
    let (a, other, b) = (page(7), page(8), page(7));
    assert!(
        matches!((&a, &other, &b), (Ok(0), Ok(0), Ok(1))),
        "{a:?} {other:?} {b:?}"
    );
    assert_eq!(log.page_bytes, 2 * 4096, "two pages were opened");
}

/// A mark that is wrong in one thing only was to be refused: each is.
#[test]
fn a_mark_fits_only_if_all_of_it_does() {
    let good = LogMark {
        head: 80,
        written: 80,
        tail: 16,
        flushed: 80,
        first_records: vec![16, 0, 3, 1],
    };
    assert!(good.fits(64, 16));
    type Change = fn(&mut LogMark);
    let changes: [Change; 8] = [
        |mark| mark.tail = 96,
        |mark| mark.head = 81,
        |mark| (mark.head, mark.tail) = (1 << 47, (1 << 47) - 16),
        |mark| mark.written = 81,
        |mark| mark.flushed = 81,
        |mark| mark.tail = 17,
        |mark| mark.first_records.truncate(3),
        |mark| mark.first_records[2] = 17,
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!bad.fits(64, 16), "change {n}");
    }
}

/// By the oldest write a demotion tells whether the device has stood still for long.
#[test]
fn the_oldest_write_under_way_is_known() {
    let slice = DeviceSlice {
        device: 0,
        first_page: 0,
        pages: 64,
    };
    let mut log = Log::new(0, slice, 0, 16, 4, 4);
    assert_eq!(log.oldest_write_ms(), None);
    for submitted_ms in [70, 90] {
        log.in_flight.push(Chunk {
            buf: log.spare.pop().expect("a spare chunk"),
            first: 0,
            used: 4,
            submitted_ms,
            written: false,
        });
    }
    assert_eq!(log.oldest_write_ms(), Some(70));
}
