// SPDX-License-Identifier: Apache-2.0
//! Waking a loop from other threads: no message is lost, however wake-ups and rounds interleave.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use senko_io::Event;

use crate::support::{PATIENCE, config, event_loop, on_both};

#[test]
fn messages_from_threads_all_arrive() {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let (to, from) = mpsc::channel();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (to, waker) = (to.clone(), io.waker());
                std::thread::spawn(move || {
                    for nth in 0..EACH {
                        to.send(thread * EACH + nth).unwrap();
                        waker.wake();
                        if nth % 1000 == 0 {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                })
            })
            .collect();
        let mut sum = 0;
        let mut count = 0;
        let mut events = Vec::new();
        while count < THREADS * EACH {
            io.poll(Some(PATIENCE), &mut events).unwrap();
            assert!(!events.is_empty(), "a wake-up got lost at {count}");
            for event in events.drain(..) {
                assert!(matches!(event, Event::Woken), "{event:?}");
                // Only after a wake-up: there must be no message without one.
                while let Ok(number) = from.try_recv() {
                    sum += number;
                    count += 1;
                }
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
        let all = THREADS * EACH;
        assert_eq!(sum, all * (all - 1) / 2);
    });
}

#[test]
fn wakes_before_a_round_are_one_event() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let waker = io.waker();
        let mut events = Vec::new();
        for _ in 0..100 {
            for _ in 0..10 {
                waker.wake();
            }
            io.poll(None, &mut events).unwrap();
            assert_eq!(events.len(), 1);
            events.clear();
            io.poll(Some(Duration::ZERO), &mut events).unwrap();
            assert!(events.is_empty(), "{events:?}");
        }
        drop(io);
        waker.wake();
    });
}

/// A wait without events lasts as long as requested, and returns no event.
#[test]
fn timeouts_pass() {
    on_both(|backend| {
        let mut io = event_loop(&config(backend));
        let mut events = Vec::new();
        let started = Instant::now();
        io.poll(Some(Duration::from_millis(30)), &mut events)
            .unwrap();
        assert!(started.elapsed() >= Duration::from_millis(30));
        assert!(events.is_empty());
    });
}
