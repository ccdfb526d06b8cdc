// SPDX-License-Identifier: Apache-2.0
//! A log alone: places, marks, restarts.

use senko_io::PageBuf;

use super::*;

/// A queue that only records the writes: device, first page, first page of the buffer, pages,
/// token.
#[derive(Default)]
struct Writes(Vec<(DeviceId, u64, usize, usize, u64)>);

impl Queue for Writes {
    fn frame(&mut self, _: usize) -> Option<PageBuf> {
        unreachable!("nothing is read")
    }
    fn read(&mut self, _: DeviceId, _: u64, _: usize, _: PageBuf, _: Tag, _: u64) {
        unreachable!("nothing is read")
    }
    fn write(
        &mut self,
        device: DeviceId,
        page: u64,
        _: Arc<AlignedBuf>,
        first: usize,
        pages: usize,
        _: Tag,
        token: u64,
    ) {
        self.0.push((device, page, first, pages, token));
    }
    fn flush(&mut self, _: DeviceId, _: Tag, _: u64) {
        unreachable!("nothing is flushed")
    }
    fn discard(&mut self, _: DeviceId, _: u64, _: u64, _: Tag, _: u64) {
        unreachable!("nothing is discarded")
    }
}

/// A log of four regions of 16 pages, with this many chunks of four pages. Its slice has six pages
/// more than it uses.
fn log(chunks: usize) -> Log {
    let slice = DeviceSlice {
        device: 3,
        first_page: 1000,
        pages: 70,
    };
    Log::new((0, 1), slice, 128, 16, 4, chunks)
}

/// Moves the log on until its head and tail are these.
fn stand(log: &mut Log, tail: u64, head: u64) {
    (log.tail, log.head) = (tail, head);
    (log.lap, log.head_at) = (head / 64, head % 64);
}

/// Places a record whose first `prefix` bytes are not its value's; returns position and offset.
fn place(log: &mut Log, len: usize, prefix: usize, tag: u64) -> Result<(u64, usize), NoPlace> {
    let record = Sizes { len, prefix, tag };
    let place = log.place_record(record, false)?;
    Ok((place.position, place.offset))
}

fn slice_of_64_pages() -> DeviceSlice {
    DeviceSlice {
        device: 0,
        first_page: 0,
        pages: 64,
    }
}

/// A completion once cleared the whole write buffer, up to 1 MiB at once. Now a page is cleared
/// when it is given out.
#[test]
fn a_page_of_a_buffer_that_was_used_before_is_cleared_when_it_is_given_out() {
    let mut log = Log::new((0, 0), slice_of_64_pages(), 0, 16, 4, 3);
    let mut writes = Writes::default();
    for round in 0..12 {
        let (position, offset) = place(&mut log, 4000, 100, round).expect("room");
        let page = log.buffered(position).expect("it is in a buffer");
        assert!(page.iter().all(|&byte| byte == 0), "round {round}");
        log.put(position, offset, &[7; 4000]);
        log.settle(&mut writes, 0);
        for (.., token) in writes.0.drain(..) {
            let spare = log.spare.len();
            log.written(token, true);
            let used = log.spare[spare].iter().filter(|&&byte| byte == 7).count();
            assert_eq!(used, 4 * 4000, "a completion clears nothing");
        }
    }
    assert!(log.written_to() > 0);
    // A probe writes zeros.
    assert!(log.write_probe(&mut writes, 0));
    let probe = log.probe.take().expect("it is under way");
    assert!(probe[..4 * PAGE_SIZE].iter().all(|&byte| byte == 0));
}

/// Two keys A and B with the same tag once lay in one page. B was promoted, which kept its copy
/// there. A was deleted. When B was demoted, its slot named the page again, and a get of A followed
/// it to A's old record. So a page takes only one of them.
#[test]
fn two_keys_with_one_tag_do_not_share_a_page() {
    let mut log = Log::new((0, 0), slice_of_64_pages(), 0, 16, 4, 4);
    let mut page = |tag| place(&mut log, 100, 50, tag).map(|(position, _)| position);
    let (a, other, b) = (page(7), page(8), page(7));
    assert!(
        matches!((&a, &other, &b), (Ok(0), Ok(0), Ok(1))),
        "{a:?} {other:?} {b:?}"
    );
    assert_eq!(log.page_bytes, 2 * 4096, "two pages were opened");
}

/// A mark with a single wrong field must be refused, for each field.
#[test]
fn a_mark_fits_only_if_all_of_it_does() {
    let good = LogMark {
        head: 80,
        written: 80,
        tail: 16,
        flushed: 80,
        regions: vec![16, 0, 3, 1],
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
        |mark| mark.regions.truncate(3),
        |mark| mark.regions[2] = 17,
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!bad.fits(64, 16), "change {n}");
    }
}

/// A demotion uses the oldest write to tell whether the device has been stalled for long.
#[test]
fn the_oldest_write_under_way_is_known() {
    let mut log = Log::new((0, 0), slice_of_64_pages(), 0, 16, 4, 4);
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
/// place to the next record, and counts nothing for the missing value.
#[test]
fn a_stream_that_is_given_up_before_its_first_page_leaves_no_trace() {
    let mut log = Log::new((0, 0), slice_of_64_pages(), 0, 16, 4, 4);
    assert!(matches!(place(&mut log, 100, 50, 7), Ok((0, _))));
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
    let mut log = Log::new((0, 0), slice_of_64_pages(), 0, 16, 4, 4);
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

/// Slots name pages of the shard, and a lap modulo 4. The log returns that position, and knows
/// which of them a later lap has overwritten.
#[test]
fn a_page_and_a_lap_name_one_position() {
    let mut log = log(4);
    assert_eq!(
        (log.regions(), log.pages(), log.region_pages()),
        (4, 64, 16)
    );
    assert_eq!((log.base(), log.device(), log.most_pages()), (128, 3, 24));
    log.live(7, None);
    stand(&mut log, 80, 133);
    assert_eq!((log.used_pages(), log.free_pages()), (53, 11));
    assert_eq!((log.place_of(133), log.device_page(133)), ((133, 2), 1005));
    assert_eq!(log.place_of(80), (144, 1));
    assert_eq!(log.position_of(132, 2), Some(132), "the newest page");
    assert_eq!(log.position_of(133, 2), None, "not placed yet");
    assert_eq!(log.position_of(133, 1), None, "before the tail");
    assert_eq!(log.position_of(143, 1), None, "the last before the tail");
    assert_eq!(log.position_of(144, 1), Some(80), "the oldest page");
    assert_eq!(log.position_of(144, 2), None, "of another lap");
    // Region 8 of the log, in life 7.
    assert_eq!((log.generation(133), log.generation(127)), (16, 15));
    assert_eq!(log.probe_page(), 1005);
    stand(&mut log, 0, 5);
    assert_eq!(log.position_of(132, 0), Some(4));
    assert_eq!(log.position_of(133, 3), None, "there was no lap before");
}

/// Records do not cross the end of the slice: the pages left there stay empty. If all records are
/// kept, a record also leaves pages for reclaim, and the empty pages count.
#[test]
fn a_record_that_does_not_fit_the_end_of_the_slice_begins_at_its_start() {
    let at_end = || {
        let mut log = log(6);
        stand(&mut log, 16, 60);
        log
    };
    let mut queue = Writes::default();
    assert_eq!(at_end().place(4, 4), Ok(60), "it just fits");
    assert_eq!(at_end().place(5, 5), Ok(64));
    // 20 pages are free, and 4 of them lie at the end.
    assert_eq!(at_end().room(5, 11), Ok(()));
    assert_eq!(at_end().room(5, 12), Err(NoPlace::Space));
    assert_eq!(at_end().room(4, 16), Ok(()));
    assert_eq!(at_end().room(4, 17), Err(NoPlace::Space));

    let mut log = at_end();
    assert_eq!(log.room_now(&mut queue, 10, 7, 1), Err(NoPlace::Space));
    assert_eq!(
        log.head, 60,
        "nothing is skipped for a record that will not fit"
    );
    assert_eq!(log.room_now(&mut queue, 10, 6, 1), Ok(()));
    assert_eq!((log.head, log.page_bytes), (64, 4 * 4096));
    let mut log = at_end();
    assert_eq!(log.room_now(&mut queue, 4, 17, 1), Err(NoPlace::Space));
    assert_eq!(log.room_now(&mut queue, 4, 16, 1), Ok(()));
    assert_eq!(log.head, 60, "nothing need be skipped");
    // Without that guarantee the end is left empty at once: reclaim frees the pages that are
    // missing.
    assert_eq!(log.room_now(&mut queue, 17, 0, 1), Err(NoPlace::Space));
    assert_eq!(log.head, 64);

    let mut log = at_end();
    assert_eq!(log.begin_stream(4 * PAGE_SIZE, 0), Ok(60));
    assert_eq!(log.room_now(&mut queue, 5, 0, 1), Err(NoPlace::Buffers));
    assert_eq!(log.place(1, 1), Err(NoPlace::Buffers));
    assert_eq!(log.begin_stream(PAGE_SIZE, 0), Err(NoPlace::Buffers));
    assert_eq!(log.head, 60, "the pages belong to the stream");
}

/// A value of 30 pages comes where 24 pages are left in the slice, and all buffers together have
/// 16. The end of the slice is left empty in parts, as buffers come back. Then the value goes out
/// as its bytes come in.
#[test]
fn a_long_stream_skips_the_end_of_the_slice_in_parts() {
    let mut queue = Writes::default();
    let mut log = log(4);
    stand(&mut log, 32, 40);
    let len = 30 * PAGE_SIZE - 5;
    assert_eq!(log.begin_stream(len, 3), Err(NoPlace::Space));
    assert_eq!(log.begin_stream(len, 2), Err(NoPlace::Buffers));
    assert_eq!((log.head, log.record_bytes), (56, 0));
    log.settle(&mut queue, 5);
    let written = |n: u64| TOKEN_WRITE << 56 | 1 << 40 | n;
    assert_eq!(
        queue.0,
        [(3, 1040, 0, 4, written(40)), (3, 1044, 0, 4, written(44))]
    );
    assert_eq!(log.oldest_write_ms(), Some(5));
    assert_eq!((log.written(40, true), log.written(44, true)), (4, 4));
    assert_eq!(log.oldest_write_ms(), None);
    assert_eq!(log.begin_stream(len, 2), Ok(64));
    assert_eq!((log.head, log.record_bytes), (64, len as u64));
    assert_eq!(log.stream(10), None, "no buffer is free");
    log.settle(&mut queue, 6);
    assert_eq!((log.written(48, true), log.written(52, true)), (4, 4));
    assert_eq!(log.stream(10), Some((64, 4)), "one buffer at a time");
    assert_eq!(
        log.stream(3),
        Some((68, 3)),
        "as many as there are bytes for"
    );
    assert_eq!(log.stream(10), Some((71, 1)), "the rest of the buffer");
    assert_eq!(log.stream(10), None);
    let mut next = 72;
    while next < 94 {
        log.settle(&mut queue, 7);
        for &(_, page, ..) in &queue.0[4..] {
            log.written(page - 1000 + if page < 1040 { 64 } else { 0 }, true);
        }
        let (position, pages) = log.stream(10).expect("a buffer came back");
        assert_eq!(position, next);
        next += pages;
    }
    assert_eq!((next, log.head, log.is_streaming()), (94, 94, false));
    assert_eq!(log.stream(10), None, "it is at its end");
    // The record begins in region 0 and ends 14 pages into region 1.
    let firsts: Vec<u32> = log.regions.iter().map(|r| r.first_record).collect();
    assert_eq!(firsts, [0, 14, 0, 0]);
}

/// A stream needs chunks besides the two that stay open for small records.
#[test]
fn what_is_larger_than_the_buffers_is_streamed() {
    let log = log(6);
    assert!(!log.must_stream(16 * PAGE_SIZE));
    assert!(log.must_stream(16 * PAGE_SIZE + 1));
}

/// Reclaim reads a region from the first record that starts in it. The middle regions of a large
/// record have no such record.
#[test]
fn regions_know_where_their_first_record_starts() {
    let mut log = log(16);
    assert_eq!(
        (log.place(4, 4), log.place(40, 40), log.place(10, 10)),
        (Ok(0), Ok(4), Ok(44))
    );
    let firsts: Vec<u32> = log.regions.iter().map(|r| r.first_record).collect();
    assert_eq!(firsts, [0, 16, 12, 6]);
    assert_eq!(log.page_bytes, 54 * 4096);
    assert_eq!(log.oldest_region_first(), 0);
    stand(&mut log, 96, 118);
    assert_eq!(log.oldest_region_first(), 96 + 12);
    // Reads prevent the reclaim of a region, wherever in it their record starts.
    log.pin(96, true);
    log.pin(111, true);
    log.pin(112, true);
    assert_eq!(log.oldest_region_pins(), 2);
    log.pin(96, false);
    log.pin(111, false);
    assert_eq!(log.oldest_region_pins(), 0);
    assert_eq!((log.free_pages(), log.free_oldest(0, 9)), (42, 2));
    // The device still discards the region: its pages are not free yet.
    assert_eq!(
        (log.tail(), log.free_pages(), log.used_pages()),
        (112, 42, 6)
    );
    log.discards.end(2, 9);
    assert_eq!((log.free_pages(), log.oldest_region_pins()), (58, 1));
}

/// Bytes in write buffers are read from there until their write has ended. Writes may end in any
/// order, but buffers are freed in the order of the log.
#[test]
fn buffered_pages_are_those_whose_writes_have_not_ended() {
    let mut log = log(4);
    let mut queue = Writes::default();
    assert_eq!(log.place(6, 6), Ok(0));
    let bytes: Vec<u8> = (0..9000_u32).map(|n| (n % 251) as u8).collect();
    log.put(2, 100, &bytes);
    let mut frame = vec![1; 6 * PAGE_SIZE];
    assert_eq!(log.copy_buffered(0, 6, &mut frame), 0);
    let start = 2 * PAGE_SIZE + 100;
    assert_eq!(&frame[start..start + 9000], bytes);
    let others = frame[..start].iter().chain(&frame[start + 9000..]);
    assert_eq!(others.filter(|&&byte| byte != 0).count(), 0);
    assert!(log.buffered(5).is_some() && log.buffered(6).is_none());
    log.close(&mut queue, 1);
    assert_eq!(
        log.place(1, 1),
        Err(NoPlace::Buffers),
        "a closed log takes nothing"
    );
    let sent: Vec<(u64, usize)> = queue.0.iter().map(|write| (write.1, write.3)).collect();
    assert_eq!(sent, [(1000, 4), (1004, 2)]);
    assert_eq!(log.written(4, true), 2);
    assert!(!log.is_written() && log.buffered(5).is_some());
    assert_eq!((log.spare.len(), log.written_to()), (2, 0));
    assert_eq!(log.written(8, true), 0, "no such write");
    assert_eq!(log.written(0, false), 4);
    assert!(log.is_written() && log.buffered(5).is_none());
    assert_eq!((log.spare.len(), log.written_to()), (4, 6));
    let invalid: Vec<u64> = (0..6).filter(|&n| log.is_unwritten(n)).collect();
    assert_eq!(invalid, [0, 1, 2, 3]);
    assert!(log.is_invalid(3) && log.is_invalid_for_good(3) && !log.is_invalid(4));
}

/// Small records fill the first page of a large one, up to a multiple of four bytes. They do not
/// if less room is left than the smallest record takes, or if the prefix needs the room.
#[test]
fn small_records_fill_the_front_of_a_large_one() {
    let mut log = log(8);
    assert_eq!(place(&mut log, 2 * PAGE_SIZE - 1003, 60, 7), Ok((0, 1000)));
    assert_eq!(
        place(&mut log, 500, 50, 7),
        Ok((2, 0)),
        "the tag is there already"
    );
    assert_eq!(
        place(&mut log, 1001, 50, 8),
        Ok((2, 500)),
        "too long for the front"
    );
    assert_eq!(place(&mut log, 1000, 50, 8), Ok((0, 0)));
    assert_eq!(place(&mut log, 2 * PAGE_SIZE - 31, 60, 9), Ok((3, 0)));
    assert_eq!(place(&mut log, 2 * PAGE_SIZE - 32, 60, 9), Ok((5, 32)));
    assert_eq!(place(&mut log, PAGE_SIZE + 1, 300, 9), Ok((7, 3796)));
    let records = 2 * PAGE_SIZE - 1003 + 500 + 1001 + 1000 + 4 * PAGE_SIZE - 63 + PAGE_SIZE + 1;
    assert_eq!(log.record_bytes, records as u64);
    // If all records are kept, a record larger than a frame shares no page.
    log.keep_all(20);
    assert_eq!(place(&mut log, 15 * PAGE_SIZE + 96, 60, 9), Ok((9, 4000)));
}

/// With `-M` a log keeps two regions and a record free for reclaim, which starts only if it pays:
/// when as much as a region is dead.
#[test]
fn a_log_that_keeps_all_has_a_reserve() {
    let mut log = log(4);
    assert_eq!((log.reserve(), log.most_pages()), (0, 24));
    assert!(log.may_take() && log.reclaim_pays());
    log.keep_all(20);
    assert_eq!(
        (log.reserve(), log.most_pages()),
        (48, 16),
        "no record exceeds a region"
    );
    log.keep_all(5);
    assert_eq!((log.reserve(), log.most_pages()), (37, 5));
    stand(&mut log, 32, 32 + 26);
    assert!(log.may_take(), "38 pages are free");
    // Nor does it matter that a region of them is still being discarded.
    log.discards.begin(0, 1);
    assert!(log.may_take() && log.free_pages() == 22);
    log.discards.end(0, 1);
    stand(&mut log, 32, 32 + 27);
    assert!(!log.may_take() && !log.runs_out());
    // Of 18 dead pages, reclaim gains two. Then a third would be too many.
    log.dead.all(18 * PAGE_SIZE as u64);
    assert!(log.may_take() && log.runs_out());
    log.gained(15);
    log.gained(15);
    assert!(log.reclaim_pays());
    log.gained(15);
    assert!(!log.reclaim_pays());
    // After a flush all used pages are dead: 27 pages are more than a region, 15 are not.
    log.flush_all();
    assert!(log.reclaim_pays());
    stand(&mut log, 32, 32 + 15);
    log.flush_all();
    assert!(!log.reclaim_pays());
    for _ in 0..2 {
        log.died(8);
    }
    assert!(log.reclaim_pays(), "23 dead pages");
}

/// Two regions are kept ahead of the head, and more while a record waits for more.
#[test]
fn a_record_that_waits_for_space_has_more_reclaimed() {
    let mut log = log(4);
    stand(&mut log, 0, 32);
    assert!(!log.runs_out(), "two regions are free");
    stand(&mut log, 0, 33);
    assert!(log.runs_out());
    stand(&mut log, 16, 47);
    assert!(!log.runs_out(), "33 pages are free");
    // 20 pages do not fit into the 17 at the end of the slice, so both are needed.
    log.want(20);
    assert!(log.runs_out(), "33 pages of 37");
    stand(&mut log, 32, 60);
    assert!(log.runs_out(), "36 pages");
    stand(&mut log, 32, 59);
    assert!(!log.runs_out(), "37 pages");
    stand(&mut log, 32, 61);
    assert!(!log.runs_out(), "the record waits no longer");
}

/// A probe writes at the head, at most a chunk and never beyond the end of the slice.
#[test]
fn a_probe_writes_free_pages_at_the_head() {
    let mut queue = Writes::default();
    let mut log = log(3);
    stand(&mut log, 16, 62);
    assert!(log.write_probe(&mut queue, 1));
    assert_eq!(queue.0, [(3, 1062, 0, 2, TOKEN_PROBE << 56 | 1)]);
    assert_eq!(log.spare.len(), 2);
    log.probe_written();
    assert_eq!(log.spare.len(), 3);
    stand(&mut log, 16, 77);
    assert!(log.write_probe(&mut queue, 1));
    assert_eq!(
        (queue.0[1].1, queue.0[1].3),
        (1013, 3),
        "three pages are free"
    );
    log.probe_written();
    stand(&mut log, 16, 80);
    assert!(!log.write_probe(&mut queue, 1), "no page is free");
    stand(&mut log, 16, 20);
    let spare = std::mem::take(&mut log.spare);
    assert!(!log.write_probe(&mut queue, 1), "no buffer is free");
    log.spare = spare;
    assert!(log.write_probe(&mut queue, 1));
    assert_eq!((queue.0[2].1, queue.0[2].3), (1020, 4));
    assert_eq!(log.head, 20, "the head stays");
}

/// A log continues with the region after the head's region, whatever was written of that region.
#[test]
fn a_log_goes_on_with_a_region_of_its_own() {
    let mark = LogMark {
        head: 85,
        written: 80,
        tail: 48,
        flushed: 50,
        regions: vec![3, 7, 16, 0],
    };
    let mut log = log(4);
    log.go_on(&mark);
    assert_eq!((log.head, log.lap, log.head_at), (96, 1, 32));
    assert_eq!((log.used_pages(), log.free_pages()), (48, 16));
    assert_eq!(
        log.oldest_region_first(),
        48,
        "region 3 begins with a record"
    );
    let wanted = LogMark {
        head: 96,
        written: 96,
        ..mark.clone()
    };
    assert_eq!(log.mark(), wanted);
    assert!(log.is_invalid_for_good(49) && !log.is_invalid(50));
    // Nothing is known of dead records, so reclaim may read everything.
    log.keep_all(5);
    assert!(log.reclaim_pays());
}

/// Records of one size cross from page to page, but not from region to region: a region is
/// reclaimed by itself, and the generation of its records is that of their first page (LOG-7).
#[test]
fn no_small_record_crosses_the_end_of_a_region() {
    let mut log = Log::new((0, 0), slice_of_64_pages(), 0, 16, 4, 16);
    let mut queue = Writes::default();
    let (mut ends, mut crossed, len) = (Vec::new(), 0, 2101);
    for tag in 0.. {
        let record = Sizes {
            len,
            prefix: 50,
            tag,
        };
        let Ok(place) = log.place_record(record, false) else {
            break;
        };
        let Place {
            position,
            offset,
            end,
        } = place;
        assert!(place.pages() == 1 || offset + len > PAGE_SIZE);
        log.put(position, offset, &[7; 2101]);
        log.end_record(&place);
        let last = position + place.pages() as u64 - 1;
        assert_eq!(position / 16, last / 16, "{place:?}");
        if place.pages() > 1 {
            crossed += 1;
            let page = log.buffered(last).expect("it is in a buffer");
            let after = (end % PAGE_SIZE) as u16;
            assert_eq!(
                page[..4],
                [255, 0, after.to_le_bytes()[0], after.to_le_bytes()[1]]
            );
            assert_eq!(page[usize::from(after) - 4..usize::from(after)], [7; 4]);
        }
        // No two records overlap.
        let begin = position * PAGE_SIZE as u64 + offset as u64;
        ends.push((begin, position * PAGE_SIZE as u64 + end as u64));
        log.settle(&mut queue, 0);
        for (.., token) in queue.0.drain(..) {
            log.written(token, true);
        }
    }
    ends.sort_unstable();
    assert!(ends.windows(2).all(|two| two[0].1 <= two[1].0), "{ends:?}");
    assert!(crossed > 10, "{crossed}");
    let firsts: Vec<u32> = log.regions.iter().map(|r| r.first_record).collect();
    assert_eq!((log.head, firsts), (64, vec![0; 4]));
}

/// A log whose records cross, and whose newest page has room for the start of one.
fn crossing() -> Log {
    let mut log = Log::new((0, 0), slice_of_64_pages(), 0, 32, 4, 12);
    for tag in 0.. {
        let crosses = place(&mut log, 2100, 50, tag).is_ok_and(|(_, at)| at > 2100);
        if crosses && log.open_pages.lose() {
            return log;
        }
        assert!(tag < 100, "records cross");
        let mut queue = Writes::default();
        log.settle(&mut queue, 0);
        for (.., token) in queue.0.drain(..) {
            log.written(token, true);
        }
    }
    unreachable!("some record crosses")
}

#[test]
fn a_record_crosses_only_from_a_page_that_takes_its_start() {
    let offset = |log: &mut Log, prefix, tag| place(log, 3900, prefix, tag).expect("room").1;
    assert!(offset(&mut crossing(), 50, 1000) > 0, "it crosses");
    assert_eq!(
        offset(&mut crossing(), 3900, 1000),
        0,
        "its head and key do not fit"
    );
    // LOG-4: the tag of the record that crossed into the page is not in it, others are.
    let mut log = crossing();
    let head = log.head;
    assert_eq!(
        place(&mut log, 3000, 50, 1000).map(|(page, _)| page),
        Ok(head - 1)
    );
    assert_eq!(offset(&mut log, 50, 1000), 0, "the page has the tag");
    // A flush would reach only the records before the head.
    let mut log = crossing();
    log.flush_all();
    assert_eq!(offset(&mut log, 50, 1000), 0);
    // A log that keeps all has as full pages after reclaim as before (KEEP-5).
    let mut log = crossing();
    log.keep_all(5);
    assert_eq!(offset(&mut log, 50, 1000), 0);
    let mut log = crossing();
    log.keep_all(5);
    let record = Sizes {
        len: 3900,
        prefix: 50,
        tag: 1000,
    };
    assert!(
        log.place_record(record, true)
            .is_ok_and(|place| place.offset > 0)
    );
}
