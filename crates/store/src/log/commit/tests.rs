// SPDX-License-Identifier: Apache-2.0
//! The protocol of commits under a scheduler that tries interleavings, on a sink that checks
//! COMMIT-1 to COMMIT-4.

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};

use senko_io::IoError;
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

use super::*;

/// The monitor of the scheduler's threads.
struct Scheduled {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Monitor for Scheduled {
    fn new(progress: Progress) -> Scheduled {
        Scheduled {
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        }
    }

    fn when<R>(&self, mut step: impl FnMut(&mut Progress) -> Option<R>) -> R {
        let mut progress = self.progress.lock().expect("no panic");
        loop {
            if let Some(done) = step(&mut progress) {
                return done;
            }
            progress = self.changed.wait(progress).expect("no panic");
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Progress) -> R) -> R {
        let done = change(&mut self.progress.lock().expect("no panic"));
        self.changed.notify_all();
        done
    }
}

/// A log in which every append takes a page. Chunks have two pages.
#[derive(Default)]
struct Device {
    appended: u32,
    written: u32,
    durable: u32,
    writing: bool,
    flushing: bool,
    /// A write, or a flush, failed.
    no_write: bool,
    no_flush: bool,
    flushes: u32,
    /// The operation (write or flush) that fails; 0: none.
    fail_in: u32,
}

impl Device {
    fn fails(&mut self) -> bool {
        let fails = self.fail_in == 1;
        self.fail_in = self.fail_in.saturating_sub(1);
        fails
    }

    fn dead(&self) -> bool {
        self.no_write || self.no_flush
    }
}

fn failure() -> StoreError {
    StoreError::io("a test")(IoError::Os(5))
}

#[derive(Default)]
struct Mock(Mutex<Device>);

impl Mock {
    fn with<R>(&self, f: impl FnOnce(&mut Device) -> R) -> R {
        f(&mut self.0.lock().expect("no panic"))
    }
}

impl Sink for Mock {
    fn end(&self) -> u32 {
        self.with(|d| d.appended)
    }

    fn write(&self, whole: bool) -> Result<u32, StoreError> {
        let (end, fails) = self.with(|d| {
            assert!(!d.writing, "COMMIT-1: two threads write");
            assert!(!d.no_write, "COMMIT-4: a write follows a failed one");
            d.writing = true;
            (
                if whole {
                    d.appended / 2 * 2
                } else {
                    d.appended
                },
                d.fails(),
            )
        });
        thread::yield_now();
        self.with(|d| {
            d.writing = false;
            d.no_write = fails;
            if fails {
                return Err(failure());
            }
            d.written = d.written.max(end);
            Ok(d.written)
        })
    }

    fn flush(&self, written: u32) -> Result<(), StoreError> {
        let (upto, fails) = self.with(|d| {
            assert!(!d.flushing, "COMMIT-1: two threads flush");
            assert!(
                written <= d.written,
                "COMMIT-2: more is said to be written than was"
            );
            assert!(!d.no_flush, "COMMIT-4: a flush follows a failed one");
            d.flushing = true;
            d.flushes += 1;
            (d.written, d.fails())
        });
        thread::yield_now();
        self.with(|d| {
            d.flushing = false;
            d.no_flush = fails;
            if fails {
                return Err(failure());
            }
            d.durable = d.durable.max(upto);
            Ok(())
        })
    }
}

/// Three threads that append and commit. Returns the number of flushes.
fn run(fail_in: u32) -> u32 {
    let sink = Arc::new(Mock::default());
    sink.with(|d| d.fail_in = fail_in);
    let group = Arc::new(Group::<Scheduled>::new(0));
    let threads: Vec<_> = (0..3)
        .map(|nth| {
            let (sink, group) = (sink.clone(), group.clone());
            thread::spawn(move || {
                for turn in 0..2 {
                    let ticket = sink.with(|d| {
                        d.appended += 1;
                        d.appended
                    });
                    let (result, reached): (_, fn(&Device) -> u32) = match (nth + turn) % 4 {
                        0 | 1 => (group.sync(&*sink, ticket), |d| d.durable),
                        2 => (group.write(&*sink, ticket), |d| d.written),
                        _ => (group.write_whole(&*sink), |_| u32::MAX),
                    };
                    match result {
                        Ok(()) => assert!(sink.with(|d| reached(d)) >= ticket),
                        Err(StoreError::Io { .. } | StoreError::ReadOnly(_)) => {
                            assert!(sink.with(|d| d.dead()), "nothing failed");
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let dead = sink.with(|d| d.dead());
    assert_eq!(group.check().is_err(), dead);
    // A thread that arrives now returns too: no thread kept its turn.
    match group.sync(&*sink, sink.end()) {
        Ok(()) => assert!(sink.with(|d| d.durable == d.appended)),
        Err(_) => assert!(sink.with(|d| d.dead())),
    }
    sink.with(|d| d.flushes)
}

#[test]
fn commits_hold_in_many_interleavings() {
    let (shared, all) = (
        StdArc::new(AtomicUsize::new(0)),
        StdArc::new(AtomicUsize::new(0)),
    );
    let (s, a) = (shared.clone(), all.clone());
    shuttle::check_random(
        move || {
            let flushes = run(0);
            a.fetch_add(1, Ordering::Relaxed);
            // Four synced commits and the last one.
            s.fetch_add(usize::from(flushes < 4), Ordering::Relaxed);
        },
        4000,
    );
    let (shared, all) = (shared.load(Ordering::Relaxed), all.load(Ordering::Relaxed));
    assert!(shared > 0, "no flush was shared in {all} runs");
}

#[test]
fn commits_hold_when_few_switches_are_the_worst_ones() {
    shuttle::check_pct(|| assert!(run(0) > 0), 2000, 3);
}

#[test]
fn a_failure_reaches_everyone_and_nothing_is_tried_again() {
    for fail_in in 1..=6 {
        shuttle::check_random(
            move || {
                run(fail_in);
            },
            1000,
        );
    }
}

/// A sink whose write, or flush, panics.
struct Panics {
    in_flush: bool,
}

impl Sink for Panics {
    fn end(&self) -> u32 {
        2
    }
    fn write(&self, _: bool) -> Result<u32, StoreError> {
        assert!(self.in_flush, "a write panics, as the test wants");
        Ok(2)
    }
    fn flush(&self, _: u32) -> Result<(), StoreError> {
        panic!("a flush panics, as the test wants");
    }
}

/// Threads that arrived after the panic once waited forever.
#[test]
fn a_turn_is_given_back_by_who_panics() {
    for in_flush in [false, true] {
        let (group, sink) = (Group::<Threads>::new(0), Panics { in_flush });
        let died = std::panic::AssertUnwindSafe(|| group.sync(&sink, 1));
        assert!(std::panic::catch_unwind(died).is_err());
        for answer in [group.sync(&sink, 2), group.check()] {
            let error = answer.expect_err("it accepts no writes").to_string();
            assert!(
                error.ends_with("the thread that did it panicked"),
                "{error}"
            );
        }
        let written = group.write(&sink, 2);
        assert_eq!(written.is_ok(), in_flush, "what was reached stays reached");
    }
}
