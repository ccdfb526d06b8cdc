// SPDX-License-Identifier: Apache-2.0
//! A log alone: places, marks, what a restart finds.

use super::*;

fn slice_of_64_pages() -> DeviceSlice {
    DeviceSlice {
        device: 0,
        first_page: 0,
        pages: 64,
    }
}

/// Two keys with one tag, A and B, came to lie in one page, and B was promoted, which kept its copy
/// there. A was deleted; when B was demoted its slot named the page again, and a get of A followed
/// it to what A had been. So a page takes one of them.
#[test]
fn two_keys_with_one_tag_do_not_share_a_page() {
    let mut log = Log::new(0, slice_of_64_pages(), 0, 16, 4, 4);
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
    let mut log = Log::new(0, slice_of_64_pages(), 0, 16, 4, 4);
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

/// A large value was announced, and its client hung up before the first byte. The log gives the
/// place to the next record, and counts nothing for the one that never came.
#[test]
fn a_stream_that_is_given_up_before_its_first_page_leaves_no_trace() {
    let mut log = Log::new(0, slice_of_64_pages(), 0, 16, 4, 4);
    assert!(matches!(log.place_small(100, 7), Ok((0, _))));
    let bytes = log.record_bytes;
    assert!(matches!(log.begin_stream(20 * PAGE_SIZE, 0), Ok(1)));
    assert_eq!(log.record_bytes, bytes + 20 * PAGE_SIZE as u64);
    log.cancel_stream(20 * PAGE_SIZE);
    assert_eq!((log.record_bytes, log.is_streaming()), (bytes, false));
    assert!(matches!(log.begin_stream(20 * PAGE_SIZE, 0), Ok(1)));
}

/// A client hung up in the middle of a large value that reached into a second region. The first
/// record of that region is the next one, and reclaim must begin to read there: what lies before it
/// is the middle of the value. The log is in its second lap, where positions exceed the slice.
#[test]
fn a_region_begins_with_the_record_after_a_broken_stream() {
    let mut log = Log::new(0, slice_of_64_pages(), 0, 16, 4, 4);
    (log.head, log.tail) = (64 + 20, 64 + 16);
    (log.lap, log.head_at) = (1, 20);
    assert!(matches!(log.begin_stream(28 * PAGE_SIZE, 0), Ok(84)));
    for _ in 0..4 {
        assert!(matches!(log.stream(4), Some((_, 4))));
    }
    // Pages 84 to 99 are taken. The value would have ended at page 112, which is the first of the
    // next region, so that no record would have begun in the region from page 96 on.
    assert_eq!((log.head, log.regions[2].first_record), (100, 16));
    log.break_stream();
    assert!(!log.is_streaming());
    let firsts: Vec<u32> = log.regions.iter().map(|r| r.first_record).collect();
    assert_eq!(firsts, [0, 0, 4, 0]);
    log.break_stream();
    assert_eq!(log.regions[2].first_record, 4, "there is nothing to break");
}
