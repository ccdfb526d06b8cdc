// SPDX-License-Identifier: Apache-2.0
//! Large values piece by piece (STREAM-1 to STREAM-3): every byte, whatever the shard does
//! meanwhile; damage in any piece; what a stream holds, and what it does not.

use senko_cache::{
    AfarRead, Fetch, Fetched, FlashItem, HashSeed, Key, Lookup, PieceRead, Shard, Stream, Want,
};
use senko_io::{FramePool, PAGE_SIZE, Queue};
use senko_workload::Rng;

use crate::model::{Run, config, seeds};
use crate::queue::MemoryQueue;

/// Bytes of a piece.
const PIECE: usize = 64 << 10;

/// Reads the next piece of a stream, which must be intact.
fn next_piece(
    shard: Option<&mut Shard>,
    queue: &mut MemoryQueue,
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
) -> Option<bool> {
    let piece = stream.next_read()?;
    let frames = FramePool::new(&[(PieceRead::PAGES, 1)]);
    let mut frame = frames.take(PieceRead::PAGES).expect("a frame");
    let mut pages = piece.pages();
    if let Some(shard) = shard {
        pages = shard.fill_buffered(&piece, &mut frame);
    }
    if pages > 0 {
        AfarRead::submit_piece(&piece, queue, (pages, frame), 1);
        let ended = queue.complete_last();
        if ended.result.is_err() {
            return Some(false);
        }
        frame = ended.buf.expect("a frame");
    }
    let Some(range) = piece.check(&frame) else {
        return Some(false);
    };
    bytes.extend_from_slice(&frame[range]);
    Some(true)
}

/// As [`whole`], for a record of this shard, or of another worker's.
pub fn whole_of(
    mut shard: Option<&mut Shard>,
    queue: &mut MemoryQueue,
    mut item: FlashItem,
) -> Option<(FlashItem, Vec<u8>)> {
    let Some(mut rest) = item.rest.take() else {
        let buf = item.buf.to_vec();
        return Some((item, buf));
    };
    let mut buf = item.buf[..rest.begun()].to_vec();
    while let Some(intact) = next_piece(shard.as_deref_mut(), queue, &mut rest, &mut buf) {
        if !intact {
            rest.damaged();
            return None;
        }
    }
    Some((item, buf))
}

/// The bytes of an item from flash, all pieces of it, in which its ranges hold; `None` if a piece
/// is damaged or can't be read.
pub fn whole(
    shard: &mut Shard,
    queue: &mut MemoryQueue,
    item: FlashItem,
) -> Option<(FlashItem, Vec<u8>)> {
    let read = whole_of(Some(&mut *shard), queue, item);
    if read.is_none() {
        shard.count_broken(true);
    }
    read
}

pub fn value_of(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251 + len) as u8).collect()
}

pub fn store(run: &mut Run, name: &[u8], value: &[u8]) {
    let key = Key::new(name, HashSeed::default());
    let mut draft = loop {
        match run.shard.alloc(&mut run.queue, &key, 0, 0, value.len()) {
            Ok(draft) => break draft,
            Err(_) => pass(run),
        }
    };
    run.shard.fill(&mut run.queue, &mut draft, value);
    run.shard.link(draft, None);
}

/// One device operation ends, and time passes.
pub fn pass(run: &mut Run) {
    if let Some(completion) = run.queue.complete_one() {
        run.shard.on_disk(&mut run.queue, completion);
    }
    run.shard.tick(&mut run.queue);
    assert!(run.shard.next_done(&mut run.queue).is_none());
}

/// Values of this size, until a key has left DRAM and the write buffers.
fn push_out(run: &mut Run, name: &[u8], len: usize) {
    let key = Key::new(name, HashSeed::default());
    let mut more = 0;
    for n in 0.. {
        store(run, format!("filler {n}").as_bytes(), &value_of(len));
        more += usize::from(matches!(run.shard.lookup(&key), Lookup::Flash(_)));
        if more > 8 {
            break;
        }
        assert!(n < 1000, "it leaves DRAM");
    }
    while run.queue.pending() > 0 {
        pass(run);
    }
}

pub fn fetch(run: &mut Run, name: &[u8], want: Want) -> Fetched {
    let key = Key::new(name, HashSeed::default());
    let Lookup::Flash(at) = run.shard.lookup(&key) else {
        return Fetched::Absent;
    };
    match run.shard.fetch(&mut run.queue, &key, at, want, 1) {
        Fetch::Now(fetched) => fetched,
        Fetch::Queued => loop {
            let completion = run.queue.complete_one().expect("a read is under way");
            run.shard.on_disk(&mut run.queue, completion);
            if let Some(done) = run.shard.next_done(&mut run.queue) {
                break done.fetched;
            }
        },
    }
}

fn answer(run: &mut Run, name: &[u8]) -> FlashItem {
    match fetch(run, name, Want::Answer) {
        Fetched::Answer(item) => item,
        other => panic!("it comes from flash: {other:?}"),
    }
}

/// A run whose items are due for promotion at the third access.
fn run(flash_pages: u64) -> Run {
    let mut config = config(6 << 20, flash_pages);
    config.promote_after = 3;
    Run::new(config, 1, 1, 1)
}

#[test]
fn values_around_each_number_of_pieces_come_back() {
    let mut run = run(16 << 10);
    let around = |n: usize| n - 80..n - 20;
    let sizes = [1, 2, 3, 5].map(|n| n * (PIECE - 4)).into_iter();
    let sizes = sizes.flat_map(around).step_by(3);
    let edges = [PIECE - 1, PIECE, PIECE + 1, 10 * PIECE, 1 << 20];
    let sizes: Vec<usize> = sizes.chain(edges).collect();
    for (n, &len) in sizes.iter().enumerate() {
        store(&mut run, format!("large {n}").as_bytes(), &value_of(len));
    }
    push_out(
        &mut run,
        format!("large {}", sizes.len() - 1).as_bytes(),
        100_000,
    );
    let before = run.shard.stats();
    let mut from_flash = 0;
    for (n, &len) in sizes.iter().enumerate() {
        let name = format!("large {n}");
        let key = Key::new(name.as_bytes(), HashSeed::default());
        if matches!(run.shard.lookup(&key), Lookup::Dram(_)) {
            continue;
        }
        from_flash += 1;
        let item = answer(&mut run, name.as_bytes());
        let record = 50 + name.len() + len.to_string().len() + len;
        assert_eq!(item.rest.is_some(), record > PIECE, "{len}");
        let (item, buf) = whole(&mut run.shard, &mut run.queue, item).expect("it is whole");
        assert!(buf[item.value] == value_of(len), "{len}");
        let text = item.answer.expect("a large value has its answer");
        assert!(buf[..text.end].ends_with(b"\r\nEND\r\n"), "{len}");
    }
    let after = run.shard.stats();
    assert_eq!(after.flash_hits - before.flash_hits, from_flash);
    assert!(from_flash > 60, "{from_flash} of {}", sizes.len());
    assert_eq!(
        (after.dram_items, after.promotions, after.evictions),
        (before.dram_items, before.promotions, before.evictions),
        "nothing is promoted, nothing is evicted"
    );
}

#[test]
fn damage_in_any_piece_is_seen_before_a_byte_of_it_is_used() {
    let len = 5 * PIECE - 1000;
    let pages = len.div_ceil(PAGE_SIZE) as u64;
    for page in 0..=pages {
        let mut run = run(4096);
        store(&mut run, b"large", &value_of(len));
        push_out(&mut run, b"large", len);
        let first = run.queue.page_with(b"VALUE large ").expect("it is there");
        run.queue.flip_in(first + page, (page * 97 % 3000) as usize);
        let piece = page as usize / PieceRead::PAGES;
        match fetch(&mut run, b"large", Want::Answer) {
            Fetched::Absent => assert_eq!(piece, 0),
            Fetched::Answer(mut item) => {
                let mut rest = item.rest.take().expect("it has pieces");
                let mut buf = item.buf[..rest.begun()].to_vec();
                let mut read = |buf: &mut Vec<u8>, rest: &mut Stream| {
                    next_piece(Some(&mut run.shard), &mut run.queue, rest, buf)
                };
                let mut intact = (0..).map_while(|_| read(&mut buf, &mut rest));
                let good = intact.by_ref().take_while(|&intact| intact).count();
                if page < pages {
                    assert_eq!(good + 1, piece, "page {page}");
                    let value = item.value.start..buf.len();
                    assert!(buf[value.clone()] == value_of(len)[..value.len()]);
                    rest.damaged();
                    drop(rest);
                    assert!(run.shard.next_done(&mut run.queue).is_none());
                    assert!(matches!(
                        fetch(&mut run, b"large", Want::Answer),
                        Fetched::Absent
                    ));
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Starts to bring a large item to DRAM, as a command does that needs it there.
fn begin_to_gather(run: &mut Run) {
    let key = Key::new(b"large", HashSeed::default());
    let Lookup::Flash(at) = run.shard.lookup(&key) else {
        panic!("it is on flash");
    };
    let fetch = (run.shard).fetch(&mut run.queue, &key, at, Want::Resident, 1);
    assert!(matches!(fetch, Fetch::Queued));
}

/// Device operations end in any order, until the item is there, or is not.
fn gather_on(run: &mut Run) -> Fetched {
    let mut most = 0;
    loop {
        most = most.max(run.queue.reading());
        let completion = run.queue.complete_one().expect("a read is under way");
        run.shard.on_disk(&mut run.queue, completion);
        if let Some(done) = run.shard.next_done(&mut run.queue) {
            let whole = matches!(done.fetched, Fetched::Resident(_));
            assert!(most == 4 || !whole, "pieces are read side by side: {most}");
            return done.fetched;
        }
    }
}

/// Whether every large frame is free.
fn all_frames_are_free(queue: &mut MemoryQueue) -> bool {
    let frames: Vec<_> = (0..4).map(|_| queue.frame(PieceRead::PAGES)).collect();
    frames.iter().all(Option::is_some)
}

#[test]
fn a_large_record_comes_to_dram_by_reads_side_by_side() {
    for seed in seeds(1, 10) {
        let mut run = Run::new(config(6 << 20, 8 << 10), 1, 1, seed);
        let value = value_of(9 * PIECE + seed as usize);
        store(&mut run, b"large", &value);
        push_out(&mut run, b"large", 100_000);
        begin_to_gather(&mut run);
        let Fetched::Resident(item) = gather_on(&mut run) else {
            panic!("it is whole, seed {seed}");
        };
        let mut bytes = Vec::new();
        run.shard.copy_value(item, &mut bytes);
        assert!(bytes == value, "seed {seed}");
        assert_eq!(run.queue.reading(), 0);
        assert!(all_frames_are_free(&mut run.queue));
    }
}

/// Damage, a read error, or a device that is silent, in any piece: the item is a miss once, and
/// neither memory nor a frame is lost.
#[test]
fn a_large_record_that_can_not_be_gathered_is_a_miss_and_holds_nothing() {
    let len = 8 * PIECE - 1000;
    let pages = len.div_ceil(PAGE_SIZE) as u64;
    for (n, page) in (0..pages).step_by(5).enumerate() {
        for fault in ["damage", "error", "silence"] {
            let mut run = Run::new(config(6 << 20, 8 << 10), 1, 1, page + 1);
            store(&mut run, b"large", &value_of(len));
            push_out(&mut run, b"large", len);
            let before = run.shard.stats().dram_items;
            begin_to_gather(&mut run);
            match fault {
                "damage" => {
                    let first = run.queue.page_with(b"VALUE large ").expect("it is there");
                    run.queue.flip_in(first + page, (page * 97 % 3000) as usize);
                }
                "error" => {
                    for _ in 0..n % 8 {
                        let ended = run.queue.complete_one().expect("a piece");
                        run.shard.on_disk(&mut run.queue, ended);
                        assert!(run.shard.next_done(&mut run.queue).is_none());
                    }
                    run.queue.fail_one_in = 1;
                }
                _ => {
                    for _ in 0..n % 8 {
                        let ended = run.queue.complete_one().expect("a piece");
                        run.shard.on_disk(&mut run.queue, ended);
                        assert!(run.shard.next_done(&mut run.queue).is_none());
                    }
                    // It does not answer for a minute.
                    let mut done = None;
                    for _ in 0..600 {
                        run.steady_ms += 100;
                        run.shard.set_steady(run.steady_ms);
                        run.shard.tick(&mut run.queue);
                        done = done.or(run.shard.next_done(&mut run.queue));
                    }
                    let done = done.expect("the command has an answer");
                    assert!(matches!(done.fetched, Fetched::Absent));
                }
            }
            if fault != "silence" {
                let gathered = gather_on(&mut run);
                assert!(
                    matches!(gathered, Fetched::Absent),
                    "{fault} at page {page}: {gathered:?}"
                );
            }
            run.queue.fail_one_in = 0;
            while run.queue.pending() > 0 {
                pass(&mut run);
            }
            assert!(all_frames_are_free(&mut run.queue), "{fault}, page {page}");
            assert!(matches!(
                fetch(&mut run, b"large", Want::Resident),
                Fetched::Absent
            ));
            // As many items as before have room.
            for n in 0..20 {
                store(&mut run, format!("more {n}").as_bytes(), &value_of(len));
            }
            let after = run.shard.stats().dram_items;
            assert_eq!(after, before, "{fault} at page {page}");
        }
    }
}

/// Reclaim waits for a stream, and knows which. The stream is told, and its end lets reclaim go on.
#[test]
fn reclaim_waits_for_a_stream_and_for_nothing_else() {
    let mut run = run(2048);
    let value = value_of(6 * PIECE);
    store(&mut run, b"large", &value);
    push_out(&mut run, b"large", value.len());
    let mut item = answer(&mut run, b"large");
    let mut rest = item.rest.take().expect("it has pieces");
    let mut buf = item.buf[..rest.begun()].to_vec();
    assert!(!rest.is_awaited());
    let mut n = 0;
    while !rest.is_awaited() {
        store(&mut run, format!("more {n}").as_bytes(), &value_of(900));
        n += 1;
        assert!(n < 100_000, "reclaim comes to its region");
    }
    let regions = run.shard.stats().reclaim_regions;
    for _ in 0..200 {
        pass(&mut run);
    }
    assert_eq!(
        run.shard.stats().reclaim_regions,
        regions,
        "its region stays"
    );
    assert!(matches!(
        fetch(&mut run, b"large", Want::Answer),
        Fetched::Absent
    ));
    let mut queue = std::mem::replace(&mut run.queue, MemoryQueue::new(1, &[], 1));
    while let Some(intact) = next_piece(Some(&mut run.shard), &mut queue, &mut rest, &mut buf) {
        assert!(intact);
    }
    run.queue = queue;
    assert!(buf[item.value.clone()] == value);
    drop(rest);
    for _ in 0..200 {
        pass(&mut run);
    }
    assert!(run.shard.stats().reclaim_regions > regions);
}

/// Streams of all ages beside stores, deletes, flushes and reclaim: each gives the value that its
/// key had at the look-up.
#[test]
fn a_stream_gives_the_value_of_its_look_up() {
    let mut ended = 0;
    for seed in seeds(1, 4) {
        let mut run = run(4096);
        let mut rng = Rng::new(seed);
        let mut lens: [Option<usize>; 40] = [None; 40];
        let mut streams: Vec<(usize, FlashItem, Box<Stream>, Vec<u8>)> = Vec::new();
        for _ in 0..10_000 {
            let n = rng.below(40) as usize;
            let name = format!("key {n}").into_bytes();
            match rng.below(16) {
                0..5 => {
                    let len = 1000 + rng.below(400_000) as usize;
                    // A stream that reclaim waits for may be in the way of a store.
                    streams.retain(|(_, _, stream, _)| !stream.is_awaited());
                    store(&mut run, &name, &value_of(len));
                    lens[n] = Some(len);
                }
                5 => {
                    run.shard.flush_all();
                    lens = [None; 40];
                }
                // Each holds one of the four large frames.
                6..10 if streams.len() < 4 => {
                    if let Fetched::Answer(mut item) = fetch(&mut run, &name, Want::Answer) {
                        let len = lens[n].expect("it was stored");
                        match item.rest.take() {
                            Some(rest) => {
                                let buf = item.buf[..rest.begun()].to_vec();
                                streams.push((len, item, rest, buf));
                            }
                            None => assert!(item.buf[item.value.clone()] == value_of(len)),
                        }
                    }
                }
                _ if streams.is_empty() => pass(&mut run),
                _ => {
                    let some = rng.below(streams.len() as u64) as usize;
                    let (_, _, stream, buf) = &mut streams[some];
                    match next_piece(Some(&mut run.shard), &mut run.queue, stream, buf) {
                        Some(intact) => assert!(intact, "seed {seed}"),
                        None => {
                            let (len, item, _, buf) = streams.swap_remove(some);
                            assert!(buf[item.value] == value_of(len), "seed {seed}");
                            ended += 1;
                        }
                    }
                }
            }
        }
        let s = run.shard.stats();
        assert_eq!(s.flash_checksum_errors, 0, "{s:?}");
        assert!(s.reclaim_regions > 20, "{s:?}");
    }
    assert!(ended > 100, "{ended}");
}
