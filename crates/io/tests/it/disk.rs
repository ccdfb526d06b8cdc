// SPDX-License-Identifier: Apache-2.0
//! Device operations through the event loop: many at a time, completed in any order, with their
//! data checked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use senko_io::fault::{Fault, FaultSwitch};
use senko_io::{
    AlignedBuf, Backend, Event, FileOptions, FlashFile, IoError, Op, PAGE_SIZE, Purpose, Queue, Tag,
};
use senko_workload::Rng;

use crate::support::{Folder, PATIENCE, config, event_loop, on_both, poll_until, seed};

const TAG: Tag = Tag::cache(Purpose::Lookup);
const PAGES: u64 = 2048;

fn open(folder: &Folder) -> Arc<FlashFile> {
    let options = FileOptions {
        bytes: PAGES * PAGE_SIZE as u64,
        ..FileOptions::default()
    };
    Arc::new(FlashFile::open(&folder.file("flash"), &options).unwrap())
}

/// Random reads, writes and flushes are in flight together, checked against a model of each page's
/// version. A page is not written while it is read.
#[test]
fn random_operations_against_a_model() {
    let seed = seed("random_operations_against_a_model");
    on_both(|backend| {
        let mut rng = Rng::new(seed);
        let folder = Folder::new();
        let mut io = event_loop(&config(backend));
        let device = io.attach(open(&folder));
        // Sixteen stripes; each has at most one operation in flight.
        const STRIPE: u64 = PAGES / 16;
        let mut model = vec![0u8; PAGES as usize];
        let mut busy: HashMap<u64, (u64, usize)> = HashMap::new();
        let mut submitted = 0;
        let mut events = Vec::new();
        let mut pages_read = 0;
        while submitted < 5000 || !busy.is_empty() {
            while submitted < 5000 && busy.len() < 12 {
                let stripe = rng.below(16);
                if busy.contains_key(&stripe) {
                    continue;
                }
                let pages = 1 + rng.below(32) as usize;
                let page = stripe * STRIPE + rng.below(STRIPE - pages as u64 + 1);
                submitted += 1;
                match rng.below(20) {
                    0 => io.flush(device, TAG, stripe),
                    1..=9 => {
                        let Some(mut frame) = io.frame(pages) else {
                            continue;
                        };
                        frame.fill(0xee);
                        io.read(device, page, pages, frame, TAG, stripe);
                        pages_read += pages as u64;
                    }
                    _ => {
                        let first = rng.below(5) as usize;
                        let mut buf = AlignedBuf::new(first + pages + 1);
                        let version = rng.below(255) as u8;
                        buf[first * PAGE_SIZE..(first + pages) * PAGE_SIZE].fill(version);
                        model[page as usize..page as usize + pages].fill(version);
                        io.write(
                            device,
                            page,
                            Arc::new(buf),
                            first,
                            pages,
                            Tag::cache(Purpose::Admit),
                            stripe,
                        );
                    }
                }
                busy.insert(stripe, (page, pages));
            }
            assert_eq!(io.disk_in_flight(), busy.len());
            io.poll(Some(PATIENCE), &mut events).unwrap();
            assert!(!events.is_empty());
            for event in events.drain(..) {
                let Event::Disk(done) = event else {
                    panic!("unexpected {event:?}")
                };
                let (page, pages) = busy.remove(&done.token).unwrap();
                done.result.unwrap();
                assert_eq!(done.buf.is_some(), done.op == Op::Read);
                if let Some(frame) = done.buf {
                    for nth in 0..pages {
                        let version = model[page as usize + nth];
                        let bytes = &frame[nth * PAGE_SIZE..(nth + 1) * PAGE_SIZE];
                        assert!(
                            bytes.iter().all(|byte| *byte == version),
                            "page {}",
                            page + nth as u64
                        );
                    }
                }
            }
        }
        let stats = io.disk_stats();
        assert_eq!(stats.get(Purpose::Lookup, Op::Read).pages, pages_read);
        assert_eq!(
            stats.total(Op::Write).ops,
            stats.get(Purpose::Admit, Op::Write).ops
        );
        assert_eq!(stats.total(Op::Read).errors, 0);
        assert_eq!(io.frames().usage().1, 0);
        println!(
            "{backend:?}: direct, frames registered: {}",
            io.frames_registered()
        );
    });
}

#[test]
fn out_of_range_is_an_error_not_an_operation() {
    on_both(|backend| {
        let folder = Folder::new();
        let mut io = event_loop(&config(backend));
        let device = io.attach(open(&folder));
        let frame = io.frame(2).unwrap();
        io.read(device, PAGES - 1, 2, frame, TAG, 5);
        let frame = io.frame(2).unwrap();
        io.read(device, u64::MAX, 2, frame, TAG, 6);
        io.discard(device, 0, 10, TAG, 7);
        let events = poll_until(&mut io, |events| events.len() == 3);
        for (nth, event) in events.iter().enumerate() {
            let Event::Disk(done) = event else { panic!() };
            assert_eq!(done.token, 5 + nth as u64);
            let expected = if nth < 2 {
                Err(IoError::Os(libc::EINVAL))
            } else {
                Ok(())
            };
            assert_eq!(done.result, expected);
            assert_eq!(done.buf.is_some(), nth < 2, "the frame comes back");
        }
        assert_eq!(io.disk_stats().total(Op::Read).errors, 2);
        assert_eq!(
            io.disk_stats().total(Op::Discard).ops,
            0,
            "it was not opened for discard"
        );
    });
}

/// The file is truncated without the device's knowledge: the read reports how many bytes it has
/// read.
#[test]
fn a_short_read_says_so() {
    on_both(|backend| {
        let folder = Folder::new();
        let mut io = event_loop(&config(backend));
        let device = io.attach(open(&folder));
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(folder.file("flash"))
            .unwrap();
        file.set_len(3 * PAGE_SIZE as u64).unwrap();
        let frame = io.frame(4).unwrap();
        io.read(device, 0, 4, frame, TAG, 1);
        let events = poll_until(&mut io, |events| !events.is_empty());
        let Event::Disk(done) = &events[0] else {
            panic!()
        };
        assert_eq!(
            done.result,
            Err(IoError::Short {
                want: 4 * PAGE_SIZE,
                got: 3 * PAGE_SIZE
            })
        );
        assert!(done.buf.is_some());
    });
}

#[test]
fn discard_when_asked() {
    on_both(|backend| {
        let folder = Folder::new();
        let path = folder.file("flash");
        let options = FileOptions {
            bytes: 64 * PAGE_SIZE as u64,
            discard: true,
            ..FileOptions::default()
        };
        let mut io = event_loop(&config(backend));
        let device = io.attach(Arc::new(FlashFile::open(&path, &options).unwrap()));
        let mut buf = AlignedBuf::new(64);
        buf.fill(1);
        io.write(device, 0, Arc::new(buf), 0, 64, TAG, 1);
        poll_until(&mut io, |events| !events.is_empty());
        io.discard(device, 8, 8, TAG, 2);
        let events = poll_until(&mut io, |events| !events.is_empty());
        let Event::Disk(done) = &events[0] else {
            panic!()
        };
        done.result.unwrap();
        let frame = io.frame(32).unwrap();
        io.read(device, 0, 32, frame, TAG, 3);
        let events = poll_until(&mut io, |events| !events.is_empty());
        let Event::Disk(done) = &events[0] else {
            panic!()
        };
        for (nth, page) in done
            .buf
            .as_ref()
            .unwrap()
            .chunks(PAGE_SIZE)
            .take(32)
            .enumerate()
        {
            let expected = u8::from(!(8..16).contains(&nth));
            assert!(page.iter().all(|byte| *byte == expected), "page {nth}");
        }
    });
}

/// Operations in flight when the loop is dropped are completed before its memory is freed.
#[test]
fn dropping_with_writes_in_flight() {
    on_both(|backend| {
        let folder = Folder::new();
        {
            let mut io = event_loop(&config(backend));
            let device = io.attach(open(&folder));
            for nth in 0..200u64 {
                let mut buf = AlignedBuf::new(8);
                buf.fill(nth as u8);
                io.write(device, nth * 8, Arc::new(buf), 0, 8, TAG, nth);
            }
            for nth in 0..8 {
                let frame = io.frame(32).unwrap();
                io.read(device, nth * 32, 32, frame, TAG, nth);
            }
        }
        let bytes = std::fs::read(folder.file("flash")).unwrap();
        for nth in 0..200usize {
            let part = &bytes[nth * 8 * PAGE_SIZE..(nth + 1) * 8 * PAGE_SIZE];
            assert!(part.iter().all(|byte| *byte == nth as u8), "write {nth}");
        }
    });
}

/// More operations than the ring has entries, submitted at once.
#[test]
fn more_than_the_ring_holds() {
    on_both(|backend: Backend| {
        let folder = Folder::new();
        let config = senko_io::LoopConfig {
            frames: vec![(1, 20_000)],
            ..config(backend)
        };
        let mut io = event_loop(&config);
        let device = io.attach(open(&folder));
        let mut buf = AlignedBuf::new(PAGES as usize);
        for (nth, page) in buf.chunks_mut(PAGE_SIZE).enumerate() {
            page[..8].copy_from_slice(&(nth as u64).to_le_bytes());
        }
        io.write(device, 0, Arc::new(buf), 0, PAGES as usize, TAG, 0);
        poll_until(&mut io, |events| !events.is_empty());
        for nth in 0..20_000u64 {
            let frame = io.frame(1).unwrap();
            io.read(device, nth % PAGES, 1, frame, TAG, nth);
        }
        let events = poll_until(&mut io, |events| events.len() == 20_000);
        for event in events {
            let Event::Disk(done) = event else { panic!() };
            let frame = done.buf.unwrap();
            assert_eq!(frame[..8], (done.token % PAGES).to_le_bytes());
        }
    });
}

/// A loop that polls for the end of a read before it sleeps gets it, and also wakes and times out
/// while a read does not end.
#[test]
fn looking_for_reads_before_sleeping() {
    on_both(|backend| {
        let folder = Folder::new();
        let switch = FaultSwitch::new();
        let options = FileOptions {
            bytes: PAGES * PAGE_SIZE as u64,
            faults: Some(Arc::clone(&switch)),
            ..FileOptions::default()
        };
        let file = FlashFile::open(&folder.file("flash"), &options).unwrap();
        let mut io = event_loop(&config(backend));
        let device = io.attach(Arc::new(file));
        io.set_spin(Duration::from_micros(200));
        for nth in 0..500 {
            let frame = io.frame(1).unwrap();
            io.read(device, nth, 1, frame, TAG, nth);
            let events = poll_until(&mut io, |events| !events.is_empty());
            assert!(matches!(&events[..], [Event::Disk(done)] if done.token == nth));
        }
        switch.inject(Some(Op::Read), 0..PAGES, Fault::Stall);
        let frame = io.frame(1).unwrap();
        io.read(device, 0, 1, frame, TAG, 0);
        let mut events = Vec::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            io.poll(Some(Duration::from_millis(5)), &mut events)
                .unwrap();
        }
        assert!(events.is_empty());
        let waker = io.waker();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        let events = poll_until(&mut io, |events| !events.is_empty());
        assert!(matches!(&events[..], [Event::Woken]));
        switch.clear();
        let events = poll_until(&mut io, |events| !events.is_empty());
        assert!(matches!(&events[..], [Event::Disk(done)] if done.result.is_ok()));
        assert_eq!(io.disk_in_flight(), 0);
    });
}
