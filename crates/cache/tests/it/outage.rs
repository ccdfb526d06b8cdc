// SPDX-License-Identifier: Apache-2.0
//! A device stalls or fails for a while, again and again. Every fetch and every allocation ends,
//! and no read returns a wrong value. Keys that were missed, deleted or overwritten meanwhile do
//! not come back with the device.

use senko_cache::{DeviceState, Fetch, Fetched, HashSeed, Key, Lookup, PolicyKind, Scanned, Want};

use crate::model::{Run, config_of, policy_of, seeds};
use crate::stream::whole;

/// The behaviour of the device for a while.
fn phase(run: &mut Run) {
    (run.queue.stalled, run.queue.fail_one_in) = match run.rng.below(8) {
        0..3 => (false, 0),
        3..5 => (true, 0),
        5 => (false, 1),
        6 => (false, 2),
        _ => (false, 30),
    };
}

fn well(run: &mut Run) {
    (run.queue.stalled, run.queue.fail_one_in) = (false, 0);
}

fn all_up(run: &Run) -> bool {
    run.shard.devices().all(|d| d.state == DeviceState::Up)
}

#[test]
fn a_device_that_comes_and_goes_leaves_nothing_wrong() {
    for seed in seeds(5_000_000, 4) {
        let policy = policy_of(seed);
        let pages = if seed % 4 < 2 { 8 << 20 } else { 64 << 20 } >> 12;
        let mut run = Run::new(config_of(2 << 20, pages, policy, seed), 3000, 200_000, seed);
        run.steady_step = 40;
        for n in 0..80_000 {
            if n % 500 == 0 {
                phase(&mut run);
            }
            run.step();
        }
        // The device works again, and after a while it is in use.
        well(&mut run);
        for _ in 0..100_000 {
            run.step();
            if all_up(&run) {
                break;
            }
        }
        assert!(
            all_up(&run),
            "seed {seed}: {:?}",
            run.shard.devices().collect::<Vec<_>>()
        );
        run.drain();
        let s = run.shard.stats();
        assert!(
            s.device_outages > 3
                && s.device_returns > 3
                && s.flash_read_timeouts > 10
                && s.flash_misses_out > 10,
            "seed {seed}: {s:?}"
        );
        let before = run.shard.stats().demotions;
        run.steps(20_000);
        run.drain();
        assert!(
            run.shard.stats().demotions > before,
            "seed {seed}: flash is not used again"
        );
        for n in 0..run.keys {
            run.get(n);
            run.device(2);
        }
        run.drain();
    }
}

#[test]
fn a_device_that_never_answers_again_holds_up_nobody() {
    for seed in seeds(6_000_000, 2) {
        let config = config_of(2 << 20, 16 << 20 >> 12, PolicyKind::Lru, seed);
        let mut run = Run::new(config, 3000, 300_000, seed);
        run.steady_step = 40;
        run.steps(20_000);
        run.queue.stalled = true;
        run.steps(40_000);
        assert!(
            run.shard.devices().all(|d| d.state == DeviceState::Out),
            "seed {seed}"
        );
        for _ in 0..200 {
            run.steady_ms += 100;
            run.shard.set_steady(run.steady_ms);
            run.shard.tick(&mut run.queue);
            run.take_done();
        }
        assert!(
            run.waiting.is_empty(),
            "seed {seed}: {} fetches wait",
            run.waiting.len()
        );
    }
}

#[test]
fn a_large_item_without_memory_to_put_it_together_in_is_a_counted_miss() {
    let config = config_of(2 << 20, 16 << 20 >> 12, PolicyKind::Lru, 7);
    let mut run = Run::new(config, 3000, 1000, 7);
    let key = Key::new(b"large", HashSeed::default());
    let large = vec![b'x'; 150_000];
    let mut draft = run
        .shard
        .alloc(&mut run.queue, &key, 0, 0, large.len())
        .expect("there is room");
    run.shard.fill(&mut run.queue, &mut draft, &large);
    run.shard.link(draft, None);
    while !matches!(run.shard.lookup(&key), Lookup::Flash(_)) {
        run.step();
    }
    run.drain();
    // All items in DRAM are being sent as answers.
    let mut items = Vec::new();
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        cursor = run.shard.scan(from, |found| {
            if let Scanned::Dram(item) = found {
                items.push(item);
            }
        });
    }
    let pins: Vec<u64> = items.iter().map(|&item| run.shard.pin(item)).collect();
    // And incoming values take the rest.
    let mut drafts = Vec::new();
    let other = Key::new(b"other", HashSeed::default());
    while let Ok(draft) = run.shard.alloc(&mut run.queue, &other, 0, 0, 50_000) {
        drafts.push(draft);
    }
    let fetch = |run: &mut Run| {
        let Lookup::Flash(at) = run.shard.lookup(&key) else {
            panic!("it is on flash");
        };
        match run.shard.fetch(&mut run.queue, &key, at, Want::Answer, 1) {
            Fetch::Now(fetched) => fetched,
            Fetch::Queued => loop {
                let completion = run.queue.complete_one().expect("a read is under way");
                run.shard.on_disk(&mut run.queue, completion);
                if let Some(done) = run.shard.next_done(&mut run.queue) {
                    return done.fetched;
                }
            },
        }
    };
    // It needs no memory for items, due for promotion or not.
    for _ in 0..4 {
        let Fetched::Answer(item) = fetch(&mut run) else {
            panic!("it is sent piece by piece");
        };
        let (item, buf) = whole(&mut run.shard, &mut run.queue, item).expect("it is whole");
        assert_eq!(&buf[item.value], &large);
    }
    drafts.into_iter().for_each(|draft| run.shard.abort(draft));
    pins.into_iter().for_each(|pin| run.shard.unpin(pin));
    let Fetched::Resident(item) = fetch(&mut run) else {
        panic!("it is due for promotion");
    };
    let mut value = Vec::new();
    run.shard.copy_value(item, &mut value);
    assert_eq!(value, large);
}
