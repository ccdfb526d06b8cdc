// SPDX-License-Identifier: Apache-2.0
//! Write buffers, computed by hand: which pages leave, and in which order. Blocks have four pages,
//! so pages 0 to 3 are block 0, 4 to 7 block 1, and so on.

use senko_ssd::buffer::{Buffer, Leave, Outgoing, Surroundings};

/// A page that leaves: dirty, or as padding.
use Leave::{Dirty, Pad};

use crate::util::*;

fn built(spec: &str, capacity: usize) -> Result<(Box<dyn Buffer>, Spec), Error> {
    let around = Surroundings {
        capacity,
        pages_per_block: 4,
        logical_pages: 64,
        ftl: "bast".parse().unwrap(),
    };
    buffer::build(&spec.parse().unwrap(), &around)
}

fn make(spec: &str, capacity: usize) -> Box<dyn Buffer> {
    built(spec, capacity).unwrap().0
}

/// Writes pages; returns those that left.
fn write(buffer: &mut Box<dyn Buffer>, pages: &[u32]) -> Vec<(u32, Leave)> {
    let mut out = Outgoing::default();
    for page in pages {
        buffer.write(*page, &mut out);
    }
    out.pages
}

fn drain(buffer: &mut Box<dyn Buffer>) -> Vec<(u32, Leave)> {
    let mut out = Outgoing::default();
    buffer.drain(&mut out);
    assert!(out.pages.iter().all(|(page, _)| !buffer.contains(*page)));
    out.pages
}

fn dirty(pages: &[u32]) -> Vec<(u32, Leave)> {
    pages.iter().map(|page| (*page, Dirty)).collect()
}

#[test]
fn none_passes_pages_on() {
    let mut buffer = make("none", 0);
    assert_eq!(write(&mut buffer, &[5, 5, 2]), dirty(&[5, 5, 2]));
    assert!(!buffer.contains(5) && buffer.is_empty());
}

#[test]
fn lru_lets_the_page_go_that_was_written_longest_ago() {
    let mut buffer = make("lru", 3);
    assert_eq!(write(&mut buffer, &[1, 9, 20]), []);
    // Page 1 is written again, so 9 is the oldest.
    assert_eq!(write(&mut buffer, &[1, 30]), dirty(&[9]));
    // A read does not make a page young.
    assert!(buffer.read(20));
    assert_eq!(write(&mut buffer, &[31]), dirty(&[20]));
    assert_eq!(drain(&mut buffer), dirty(&[1, 30, 31]));
    // With the option it does.
    let mut buffer = make("lru:touch-reads=true", 2);
    write(&mut buffer, &[1, 2]);
    assert!(buffer.read(1));
    assert_eq!(write(&mut buffer, &[3]), dirty(&[2]));
    // And if reads fill the buffer, a page that was only read leaves without a write.
    let mut buffer = make("lru:fill-reads=true", 2);
    let mut out = Outgoing::default();
    buffer.read_from_flash(1, &mut out);
    assert!(buffer.read(1));
    assert_eq!(write(&mut buffer, &[2, 3]), []);
    assert!(!buffer.contains(1));
    // A read replaces a page that was written.
    buffer.read_from_flash(4, &mut out);
    assert_eq!(out.pages, dirty(&[2]));
    // The first write to it saves nothing.
    assert_eq!([(); 2].map(|()| buffer.write(4, &mut out)), [false, true]);
    assert_eq!(drain(&mut buffer), dirty(&[3, 4]));
}

#[test]
fn fab_lets_the_largest_block_go() {
    let mut buffer = make("fab", 6);
    // Three pages of block 2, two of block 0, one of block 5.
    assert_eq!(write(&mut buffer, &[20, 9, 0, 11, 8, 3]), []);
    // The buffer is full: block 2 leaves as a whole, in ascending order.
    assert_eq!(write(&mut buffer, &[40]), dirty(&[8, 9, 11]));
    // Blocks 0 and 10 have two pages each now; block 0 was written longer ago.
    assert_eq!(write(&mut buffer, &[41, 50]), []);
    assert_eq!(write(&mut buffer, &[60]), dirty(&[0, 3]));
    // Page 20, alone in its block, stays to the end, however old it is.
    assert_eq!(drain(&mut buffer), dirty(&[40, 41, 20, 50, 60]));
}

#[test]
fn cflru_lets_clean_pages_of_its_window_go_first() {
    // Four pages, of which the two least recently used are the clean-first region.
    let mut buffer = make("cflru", 4);
    let mut out = Outgoing::default();
    // From the oldest: 1 dirty, 2 clean, 3 dirty, 4 dirty. The window has 1 and 2.
    buffer.write(1, &mut out);
    buffer.read_from_flash(2, &mut out);
    buffer.write(3, &mut out);
    buffer.write(4, &mut out);
    // Page 2 leaves though 1 is older: it costs nothing.
    assert_eq!(write(&mut buffer, &[5]), []);
    assert!(!buffer.contains(2) && buffer.contains(1));
    // No clean page in the window any more: the oldest dirty one leaves.
    assert_eq!(write(&mut buffer, &[6]), dirty(&[1]));
    // A clean page outside the window stays: 7 is the youngest, and 3 leaves.
    buffer.read_from_flash(7, &mut out);
    assert_eq!(out.pages, dirty(&[3]));
    assert!(buffer.contains(7));
    // A write to a clean page saves no write to the flash, and makes it dirty.
    out.pages.clear();
    assert!(!buffer.write(7, &mut out));
    assert!(buffer.write(7, &mut out));
    // A flush lets the dirty pages go.
    assert_eq!(drain(&mut buffer), dirty(&[4, 5, 6, 7]));
}

#[test]
fn bplru_pads_blocks_and_lets_the_oldest_go() {
    let mut buffer = make("bplru", 4);
    // Block 0: pages 1 and 3. Block 2: page 8. A write to block 0 makes all of it young, so block 2
    // is the oldest.
    assert_eq!(write(&mut buffer, &[1, 8, 3, 20]), []);
    // Block 2 leaves whole: page 8 from the buffer, 9 to 11 from the flash.
    let padded = [(8, Dirty), (9, Pad), (10, Pad), (11, Pad)];
    assert_eq!(write(&mut buffer, &[30]), padded);
    // Then block 0, in the order of its pages, whatever the order of the writes.
    let padded = [(0, Pad), (1, Dirty), (2, Pad), (3, Dirty)];
    assert_eq!(write(&mut buffer, &[31, 21]), padded);
}

#[test]
fn bplru_compensates_for_sequential_blocks() {
    let mut buffer = make("bplru", 6);
    // Block 4 is the oldest. Then block 1 is written from its first page to its last, so it counts
    // as the oldest.
    assert_eq!(write(&mut buffer, &[16, 4, 5, 6, 7, 20]), []);
    assert_eq!(write(&mut buffer, &[24]), dirty(&[4, 5, 6, 7]));
    // The same pages in another order are not a sequential block: block 4 leaves first.
    let mut buffer = make("bplru:padding=false", 6);
    assert_eq!(write(&mut buffer, &[16, 4, 6, 5, 7, 20, 24]), dirty(&[16]));
    // Nor without compensation.
    let mut buffer = make("bplru:padding=false,compensation=false", 6);
    assert_eq!(write(&mut buffer, &[16, 4, 5, 6, 7, 20, 24]), dirty(&[16]));
}

#[test]
fn lb_clock_looks_at_blocks_from_its_hand_on() {
    let mut buffer = make("lb-clock", 5);
    // The circle: blocks 0 (1 page), 1 (2 pages), 2 (2 pages), all with their bits set.
    assert_eq!(write(&mut buffer, &[0, 4, 8, 5, 9]), []);
    // The hand goes round, clears every bit and stands on block 0, which it meets clear. All are
    // candidates: blocks 1 and 2 are the largest, and 1 was cleared first.
    assert_eq!(write(&mut buffer, &[12]), dirty(&[4, 5]));
    // Block 2 is written again: its bit is set. The hand still stands on block 0, clear; of the
    // candidates (only 0) it leaves, though 2 is larger.
    assert_eq!(write(&mut buffer, &[8, 13, 16]), dirty(&[0]));
    // Blocks 2 (2 pages), 3 (2 pages), 4 (1 page), all set: the hand clears them from block 2 on,
    // and 2, cleared first, leaves.
    assert_eq!(write(&mut buffer, &[17]), dirty(&[8, 9]));
    assert_eq!(drain(&mut buffer), dirty(&[12, 13, 16, 17]));
}

#[test]
fn lb_clock_lets_sequential_blocks_go() {
    let mut buffer = make("lb-clock", 6);
    // Block 1 is written in order to its end and loses its bit at once: it is the only candidate.
    assert_eq!(
        write(&mut buffer, &[16, 4, 5, 6, 7, 17, 24]),
        dirty(&[4, 5, 6, 7])
    );
    // Without that rule the bit stays; the hand clears all, and the largest leaves all the same,
    // but a written one stays.
    let mut buffer = make("lb-clock:sequential=false", 4);
    assert_eq!(write(&mut buffer, &[0, 4, 8, 12, 16]), dirty(&[0]));
}

#[test]
fn pud_lru_keeps_what_is_written_often() {
    // Six pages. Block 0 is written four times (pages 0 and 1, between writes to others), blocks 1,
    // 2 and 3 once.
    let mut buffer = make("pud-lru", 6);
    assert_eq!(write(&mut buffer, &[0, 4, 1, 5, 0, 8, 1, 12]), []);
    // Time is 8. The distance of block 0 is (8 - 1) / 4 = 1.75, of block 1 (two updates from 2 on)
    // 6 / 2 = 3, of blocks 2 and 3 2 and 0. The threshold, the mean of the distances when six pages
    // had been written, holds 0 among the frequently updated; block 1 is the largest of the others.
    assert_eq!(write(&mut buffer, &[16]), dirty(&[4, 5]));
    assert!(buffer.contains(0) && buffer.contains(1));
    // LRU by block would have let block 1 go too, but FAB block 0, as the first that has two pages.
    let mut fab = make("fab", 6);
    assert_eq!(
        write(&mut fab, &[4, 0, 5, 1, 5, 8, 5, 12, 16]),
        dirty(&[0, 1])
    );
}

#[test]
fn rent_weighs_room_with_time() {
    // Block 0 has one page and was written 8 writes before the one that needs room; block 1 has two
    // and 5 before; power 1: rents are 8 and 10.
    let story = [0, 4, 5, 8, 12, 13, 8, 8, 8];
    // Times: 0 at 1, block 1 at 3, block 3 (pages 12, 13) at 6, block 2 at 9.
    let mut buffer = make("rent:power=1", 6);
    assert_eq!(write(&mut buffer, &story), []);
    // At 9: block 0 owes 8 * 1, block 1 6 * 2, block 3 3 * 2, block 2 nothing.
    assert_eq!(write(&mut buffer, &[20]), dirty(&[4, 5]));
    // Power 0 is LRU by block.
    let mut buffer = make("rent:power=0", 6);
    write(&mut buffer, &story);
    assert_eq!(write(&mut buffer, &[20]), dirty(&[0]));
    // With padding the block is made whole.
    let mut buffer = make("rent:power=0,padding=true", 6);
    write(&mut buffer, &story);
    let padded = [(0, Dirty), (1, Pad), (2, Pad), (3, Pad)];
    assert_eq!(write(&mut buffer, &[20]), padded);
}

#[test]
fn rent_counts_uses_and_gaps() {
    // As with `seldom` below: block 0 is used three times, blocks 1 and 2 once; at 5 their ages
    // over uses are 0, 3 and 1, at 6 1/3, gone and 2.
    let mut buffer = make("rent:power=0,uses=1", 3);
    assert_eq!(write(&mut buffer, &[0, 4, 0, 8, 0, 12]), dirty(&[4]));
    assert_eq!(write(&mut buffer, &[16]), dirty(&[8]));
    // Blocks 0 and 1 are written in turn, four times each, then block 2 once, then block 1 only. At
    // 15 block 0 has age 8 and a mean gap of 15/4; block 2 has age 6 and came 7 ago: it leaves,
    // though block 0 was written longer ago.
    let story = [0, 4, 0, 4, 0, 4, 0, 4, 8, 4, 4, 4, 4, 4, 4];
    let mut buffer = make("rent:power=0,gaps=true", 3);
    assert_eq!(write(&mut buffer, &story), []);
    assert_eq!(write(&mut buffer, &[12]), dirty(&[8]));
    let mut buffer = make("rent:power=0", 3);
    write(&mut buffer, &story);
    assert_eq!(write(&mut buffer, &[12]), dirty(&[0]));
}

#[test]
fn seldom_divides_age_by_uses() {
    let mut buffer = make("seldom", 3);
    // Block 0 is used three times, at 1, 3 and 5; block 1 at 2, block 2 at 4.
    assert_eq!(write(&mut buffer, &[0, 4, 0, 8, 0]), []);
    // At 5: block 1 has age 3 for one use, block 2 age 1.
    assert_eq!(write(&mut buffer, &[12]), dirty(&[4]));
    // At 6: block 2 has 2, block 0 1/3.
    assert_eq!(write(&mut buffer, &[16]), dirty(&[8]));
    // At 8, after a second write to block 3: block 0 owes 3/3, block 4 1/1, and of equals the one
    // with fewer uses leaves.
    assert_eq!(write(&mut buffer, &[12, 20]), dirty(&[16]));
}

#[test]
fn trimmed_pages_do_not_leave() {
    for entry in buffer::ALL {
        if entry.name == "none" {
            continue;
        }
        let mut buffer = make(entry.name, 4);
        write(&mut buffer, &[0, 1, 9]);
        buffer.trim(1);
        buffer.trim(9);
        buffer.trim(40);
        assert_eq!(buffer.len(), 1, "{}", entry.name);
        let left = drain(&mut buffer);
        let left: Vec<_> = left.into_iter().filter(|(_, how)| *how == Dirty).collect();
        assert_eq!(left, dirty(&[0]), "{}", entry.name);
    }
}

#[test]
fn specifications_round_trip_and_errors_are_sentences() {
    for spec in [
        "lru:touch-reads=true",
        "lru:fill-reads=true",
        "cflru:window=0.25",
        "bplru:compensation=false,padding=false",
        "lb-clock:padding=true,sequential=false",
        "pud-lru:memory=0.5,padding=true,runs=false,threshold=2",
        "rent:padding=true,power=4",
        "rent:gaps=true,power=16,uses=0.5",
    ] {
        assert_eq!(built(spec, 4).unwrap().1.to_string(), spec);
    }
    // An option with its default is not repeated.
    let (_, plain) = built("lru:fill-reads=false", 4).unwrap();
    assert_eq!(plain.to_string(), "lru");
    let error = |spec: &str, capacity| built(spec, capacity).err().unwrap().to_string();
    assert!(error("cflru:window=2", 4).contains("from 0 to 1"));
    assert!(error("fab:size=2", 4).contains("no options"));
    assert!(error("arc", 4).contains("there are none, lru"));
    assert!(error("lru", 0).contains("needs RAM"));
}

/// Megiddo and Modha, FAST 2003: LRU on their traces, with every reference taken as a write.
#[test]
fn lru_gives_the_arc_papers_hit_ratios() {
    for (name, sizes) in [
        (
            "ARC_OLTP.lis.zst",
            &[
                (1000, "32.83"),
                (2000, "42.47"),
                (5000, "53.65"),
                (10_000, "60.70"),
                (15_000, "64.63"),
            ][..],
        ),
        ("ARC_P3.lis.zst", &[(32_768, "3.57")]),
    ] {
        let Some(path) = real(&format!("kv/{name}")) else {
            return;
        };
        let mut pages = Vec::new();
        for request in Reader::open(&path, &TraceSpec::default()).unwrap() {
            let Request { offset, bytes, .. } = request.unwrap();
            pages.extend((offset / 4096..(offset + bytes) / 4096).map(|page| page as u32));
        }
        for (capacity, percent) in sizes {
            let mut lru = make("lru", *capacity);
            let mut out = Outgoing::default();
            let mut hits = 0;
            for page in &pages {
                hits += u64::from(lru.write(*page, &mut out));
                out.pages.clear();
            }
            let measured = format!("{:.2}", 100.0 * hits as f64 / pages.len() as f64);
            assert_eq!(measured, *percent, "{name} at {capacity}");
        }
    }
}
