// SPDX-License-Identifier: Apache-2.0
//! Values that go to flash as they arrive (UPLOAD-1 to UPLOAD-4): every byte at all sizes, beside
//! all other commands, on a log that comes round, with failing devices and clients that stop.

use senko_cache::{
    AllocError, Draft, Fetched, HashSeed, Key, Lookup, NewUpload, PolicyKind, Progress,
    ShardConfig, Want,
};

use crate::model::{Run, config, config_of, policy_of, seeds};
use crate::stream::{fetch, pass, store, value_of, whole};

const NEW: NewUpload = NewUpload {
    flags: 7,
    expiry: 0,
    len: 0,
    cas: None,
    binary_key: false,
    waits: true,
};

/// Flash of 16 MiB, for items of up to 2 MiB, with buffers for some uploads to have more than two.
fn large_items() -> ShardConfig {
    ShardConfig {
        max_item: 2 << 20,
        upload_bytes: 768 << 10,
        ..config(6 << 20, 16 << 20 >> 12)
    }
}

fn begin(run: &mut Run, name: &[u8], len: usize) -> Option<Draft> {
    let key = Key::new(name, HashSeed::default());
    assert!(run.shard.uploads(len));
    for _ in 0..10_000 {
        match run
            .shard
            .upload(&mut run.queue, &key, &NewUpload { len, ..NEW })
        {
            Ok(draft) => return draft,
            Err(AllocError::Busy) => pass(run),
            Err(e) => panic!("{e}"),
        }
    }
    panic!("an upload never begins");
}

/// Sends bytes until all are taken.
fn send(run: &mut Run, draft: &mut Draft, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let taken = run.shard.fill(&mut run.queue, draft, bytes);
        bytes = &bytes[taken..];
        if !bytes.is_empty() {
            pass(run);
        }
    }
}

/// Stores a draft whose bytes have come, or drops it if it failed. Returns which.
fn outcome(run: &mut Run, name: &[u8], draft: Draft) -> Progress {
    let key = Key::new(name, HashSeed::default());
    loop {
        match run.shard.progress(&draft) {
            Progress::Writing => pass(run),
            Progress::Here => {
                run.shard.store(draft, &key, None);
                return Progress::Here;
            }
            failed => {
                run.shard.abort(draft);
                return failed;
            }
        }
    }
}

/// As [`outcome`]; false if it failed.
fn end(run: &mut Run, name: &[u8], draft: Draft) -> bool {
    outcome(run, name, draft) == Progress::Here
}

fn upload(run: &mut Run, name: &[u8], value: &[u8]) -> bool {
    let mut draft = begin(run, name, value.len()).expect("room on flash");
    send(run, &mut draft, value);
    end(run, name, draft)
}

fn read(run: &mut Run, name: &[u8]) -> Option<Vec<u8>> {
    match fetch(run, name, Want::Peek) {
        Fetched::Answer(item) => {
            assert_eq!(item.meta.flags, 7);
            let (item, bytes) = whole(&mut run.shard, &mut run.queue, item)?;
            Some(bytes[item.value].to_vec())
        }
        Fetched::Absent => None,
        other => panic!("{other:?}"),
    }
}

/// Sizes around those at which a record gets another piece, or its end reaches into one.
#[test]
fn every_byte_at_every_size() {
    let mut run = Run::new(large_items(), 1, 1, 1);
    let piece = (64 << 10) - 4;
    let mut sizes = vec![(64 << 10) + 1, 100_000, 1 << 20];
    for n in 2..5 {
        // Head, text and the end of the answer take about 60 bytes.
        sizes.extend((n * piece - 80)..(n * piece - 40));
    }
    for len in sizes {
        let (before, value) = (run.shard.stats(), value_of(len));
        assert!(upload(&mut run, b"key", &value));
        let after = run.shard.stats();
        assert_eq!(
            after.dram_items, before.dram_items,
            "it takes no memory for items"
        );
        assert!(
            read(&mut run, b"key").is_some_and(|read| read == value),
            "{len}"
        );
    }
    let s = run.shard.stats();
    assert_eq!((s.evictions, s.promotions, s.uploads_failed), (0, 0, 0));
    assert_eq!(s.flash_checksum_errors, 0);
}

#[test]
fn beside_all_other_commands_on_a_small_log() {
    for seed in seeds(7_000_000, 4) {
        let policy = policy_of(seed);
        let config = config_of(8 << 20, 8 << 20 >> 12, policy, seed);
        let mut run = Run::new(config, 400, 500_000, seed);
        run.large = 40;
        run.steps(40_000);
        run.drain();
        let s = run.shard.stats();
        assert!(
            s.uploads > 500 && s.reclaim_regions > 100,
            "seed {seed}: {s:?}"
        );
        assert_eq!(s.flash_checksum_errors, 0, "seed {seed}");
        run.assert_misses(seed);
    }
}

#[test]
fn failed_writes_store_nothing() {
    for seed in seeds(7_100_000, 4) {
        let config = config_of(8 << 20, 16 << 20 >> 12, PolicyKind::Lru, seed);
        let mut run = Run::new(config, 200, 400_000, seed);
        run.large = 40;
        run.queue.fail_one_in = 60;
        run.queue.tear_one_in = 20;
        for n in 0..30_000 {
            run.step();
            if n % 20 == 0 {
                run.queue.flip_a_bit();
            }
        }
        run.queue.fail_one_in = 0;
        run.drain();
        let s = run.shard.stats();
        assert!(
            run.failed_uploads > 20 && s.uploads > 20,
            "seed {seed}: {s:?}"
        );
    }
}

/// A client that stops sending holds nothing up: the log comes round, and its value is refused.
#[test]
fn a_slow_client_never_stops_reclaim() {
    let mut run = Run::new(config(4 << 20, 8 << 20 >> 12), 1, 1, 3);
    let value = value_of(200_000);
    let mut slow = begin(&mut run, b"slow", value.len()).expect("room on flash");
    send(&mut run, &mut slow, &value[..150_000]);
    let begun = run.shard.stats().reclaim_regions;
    for n in 0..200 {
        let name = format!("key {n}");
        assert!(upload(&mut run, name.as_bytes(), &value));
        assert!(read(&mut run, name.as_bytes()).is_some_and(|read| read == value));
        store(&mut run, format!("small {n}").as_bytes(), &value[..9000]);
    }
    assert!(
        run.shard.stats().reclaim_regions > begun + 40,
        "the log came round"
    );
    send(&mut run, &mut slow, &value[150_000..]);
    assert_eq!(outcome(&mut run, b"slow", slow), Progress::Failed);
    assert!(read(&mut run, b"slow").is_none());
}

/// Only uploads for many laps, after a few small records that stay in write buffers.
#[test]
fn the_head_never_stays_behind() {
    let mut run = Run::new(large_items(), 1, 1, 4);
    let small = value_of(3000);
    for round in 0..300 {
        if round % 40 == 0 {
            for n in 0..2000 {
                store(&mut run, format!("small {n}").as_bytes(), &small);
            }
        }
        let value = value_of(300_000 + round * 1000);
        assert!(upload(&mut run, b"large", &value));
        assert!(
            read(&mut run, b"large").is_some_and(|read| read == value),
            "{round}"
        );
    }
    let s = run.shard.stats();
    assert_eq!((s.flash_checksum_errors, s.uploads_failed), (0, 0));
}

#[test]
fn a_flush_refuses_what_is_arriving_and_nothing_later() {
    let mut run = Run::new(config(4 << 20, 8 << 20 >> 12), 1, 1, 5);
    let value = value_of(200_000);
    for _ in 0..20 {
        assert!(upload(&mut run, b"before", &value));
        let mut draft = begin(&mut run, b"meanwhile", value.len()).expect("room on flash");
        send(&mut run, &mut draft, &value[..70_000]);
        run.shard.flush_all();
        send(&mut run, &mut draft, &value[70_000..]);
        assert_eq!(outcome(&mut run, b"meanwhile", draft), Progress::Flushed);
        assert!(upload(&mut run, b"after", &value));
        store(&mut run, b"small", &value[..9000]);
        assert!(read(&mut run, b"before").is_none() && read(&mut run, b"meanwhile").is_none());
        assert!(read(&mut run, b"after").is_some_and(|read| read == value));
        let small = Key::new(b"small", HashSeed::default());
        assert_ne!(run.shard.lookup(&small), Lookup::Miss);
    }
}

/// Values up to a large part of the log are taken, whatever DRAM has; larger ones are not.
#[test]
fn a_value_may_be_larger_than_dram() {
    let mut config = config(4 << 20, 32 << 20 >> 12);
    config.max_item = 7 << 20;
    let mut run = Run::new(config.clone(), 1, 1, 6);
    let value = value_of(6 << 20);
    for n in 0..12 {
        let name = format!("key {n}");
        assert!(upload(&mut run, name.as_bytes(), &value), "{n}");
        assert!(read(&mut run, name.as_bytes()).is_some_and(|read| read == value));
    }
    let key = Key::new(b"key", HashSeed::default());
    let len = 8 << 20;
    let refused = run
        .shard
        .upload(&mut run.queue, &key, &NewUpload { len, ..NEW });
    assert_eq!(refused.err(), Some(AllocError::TooLarge));
    // DRAM can't hold what flash does not take.
    let refused = run.shard.alloc(&mut run.queue, &key, 0, 0, value.len());
    assert_eq!(refused.err(), Some(AllocError::OutOfMemory));
    config.max_item = 16 << 20;
    let refused = senko_cache::Shard::new(config).expect_err("flash is too small for it");
    assert!(refused.to_string().contains("give more flash"), "{refused}");
}

/// As many uploads as there are buffers; the next one waits, or goes to DRAM.
#[test]
fn uploads_have_their_buffers_or_do_not_begin() {
    let mut run = Run::new(config(4 << 20, 32 << 20 >> 12), 1, 1, 7);
    let value = value_of(100_000);
    let mut drafts: Vec<Draft> = (0..2)
        .map(|n| begin(&mut run, &[b'a' + n], value.len()).expect("buffers"))
        .collect();
    let mut third = |waits| {
        let key = Key::new(b"c", HashSeed::default());
        let len = value.len();
        let new = NewUpload { len, waits, ..NEW };
        run.shard.upload(&mut run.queue, &key, &new)
    };
    assert!(matches!(third(true), Err(AllocError::Busy)));
    assert!(matches!(third(false), Ok(None)));
    for draft in &mut drafts {
        send(&mut run, draft, &value);
    }
    let (b, a) = (drafts.pop().expect("two"), drafts.pop().expect("two"));
    run.shard.abort(b);
    assert!(end(&mut run, b"a", a));
    while run.queue.pending() > 0 {
        pass(&mut run);
    }
    for _ in 0..2 {
        drafts.push(begin(&mut run, b"d", value.len()).expect("the buffers are back"));
    }
    for draft in drafts {
        run.shard.abort(draft);
    }
    assert!(
        read(&mut run, b"a").is_some_and(|read| read == value) && read(&mut run, b"b").is_none()
    );
}
