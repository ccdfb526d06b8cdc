// SPDX-License-Identifier: Apache-2.0
//! The thesis's table 3 and figures 23 to 25, compared with the profiles `x25-m` and `usb-stick`.
//!
//! The figures of table 3 are rated ones that the maker rounded to two digits, which is up to 2.5 %
//! ([`CLOSE`] is twice that). The profile's free values were chosen to reproduce the figures that
//! depend on a drive's parts: rates, and latencies of single requests. Random writes were not
//! fitted; they follow from the layer. Of figures 23 to 25 the thesis gives the shape, in words and
//! curves without numbers; the shape is turned into counts here.

use crate::util::*;

/// A sequential access, as manufacturers measure it.
const LARGE: u64 = 128 << 10;
const CLOSE: f64 = 0.05;
/// Commands that the X25-M's interface accepts at once.
const DEEP: u32 = 32;

/// Runs requests, this many at once, on an idle drive.
fn run(drive: &mut Drive, depth: u32, requests: impl Iterator<Item = Request>) -> Report {
    drive.rest();
    crate::util::run(drive, Load::Closed { depth }, requests)
}

/// Accesses of a page at random places below `span`.
fn random(seed: u64, op: Op, count: u64, span: u64) -> impl Iterator<Item = Request> {
    let mut rng = Rng::new(seed);
    (0..count).map(move |_| Request::new(op, rng.below(span / PAGE) * PAGE, PAGE))
}

fn in_order(op: Op, count: u64) -> impl Iterator<Item = Request> {
    (0..count).map(move |nth| Request::new(op, nth * LARGE, LARGE))
}

#[track_caller]
fn close(found: f64, table: f64) {
    assert!((found / table - 1.0).abs() < CLOSE, "{found} and {table}");
}

/// Table 3 without random writes. The reads go to written pages: the drive answers others without
/// its flash.
#[test]
fn rates_and_latencies_are_those_of_table_3() {
    let profile = Profile::find("x25-m").expect("it is built in");
    let mut drive = Drive::new(&profile, &Parts::default()).expect("a drive");
    drive.precondition(0.01).expect("new flash");
    let span = 512 << 20;
    let rate = |report: &Report| report.requests_a_second().expect("it has times");
    let bytes = |report: &Report| report.bytes_a_second().expect("it has times");

    let reads = run(&mut drive, DEEP, random(3, Op::Read, 20_000, span));
    close(rate(&reads), 35_000.0);
    assert!(reads.link_share().expect("it has a link") > 0.99);
    let reads = run(&mut drive, DEEP, in_order(Op::Read, 4000));
    close(bytes(&reads).0 / 1e6, 250.0);
    let reads = run(&mut drive, 1, random(4, Op::Read, 2000, span));
    close(reads.reads.mean_us, 65.0);
    let writes = run(&mut drive, 1, random(5, Op::Write, 4000, span));
    close(writes.writes.mean_us, 85.0);
    // More than buffer and write-behind can hold, so that the flash determines the rate.
    let writes = run(&mut drive, DEEP, in_order(Op::Write, 4000));
    close(bytes(&writes).1 / 1e6, 70.0);
    assert!(writes.link_share().expect("it has a link") < 0.5);
}

/// Random writes a second on a tenth of the drive, and on all of it: 6,600 and 300 in table 3.
///
/// The simulated drive does not come as low: 10,000 to 12,000 and 2,400. With 7 % of spare room a
/// page-level layer moves six pages for each page that is written at random. Where the writes go to
/// a tenth of the drive, it moves half a page. At the flash's 70 MB/s these rates follow. The real
/// drive is slower by another factor of 1.7 and 8, for reasons that neither its manufacturer nor
/// the thesis gives. So the test checks the order, the model's own figures, and the table's figures
/// as lower bounds.
#[test]
fn random_writes_are_slower_on_the_whole_drive_as_in_table_3() {
    // A sixteenth of the drive, which has as many planes: spans and spare room keep their shares.
    let mut profile = Profile::find("x25-m").expect("it is built in");
    let pages = profile.user_bytes / 16 / PAGE;
    profile.geometry.blocks = 258;
    profile.user_bytes = pages * PAGE;
    let written = |way: Precondition, share: u64, count: u64| {
        let mut drive = Drive::new(&profile, &Parts::default()).expect("a drive");
        drive.prepare(way, |_, _| true).expect("new flash");
        let span = pages / share * PAGE;
        // Until collection is steady.
        run(&mut drive, DEEP, random(3, Op::Write, count, span));
        let report = run(&mut drive, DEEP, random(4, Op::Write, count, span));
        let rate = report.requests_a_second().expect("it has times");
        (rate, report.write_amplification().expect("it wrote"))
    };
    let (tenth, little) = written(Precondition::InOrder { percent: 100.0 }, 10, pages / 2);
    let (whole, much) = written(Precondition::Random { times: 2.0 }, 1, pages / 8);
    assert!((6_600.0..2.0 * 6_600.0).contains(&tenth), "{tenth}");
    assert!((300.0..tenth / 4.0).contains(&whole), "{whole} and {tenth}");
    assert!((1.2..1.6).contains(&little), "{little}");
    assert!((6.0..8.0).contains(&much), "{much}");
    // The flash programs 70 MB/s, for the host or not.
    assert!(
        whole * much * PAGE as f64 <= 70e6 * (1.0 + CLOSE),
        "{whole}, {much}"
    );
}

/// A stick whose first 256 MiB were written in order, as the thesis did with dd, and a clock.
struct Stick {
    drive: Drive,
    now: Time,
    rng: Rng,
}

/// The drive's contents.
const WRITTEN: u64 = 256 << 20;

impl Stick {
    fn new() -> Self {
        let profile = Profile::find("usb-stick").expect("it is built in");
        let mut drive = Drive::new(&profile, &Parts::default()).expect("a drive");
        let share = WRITTEN as f64 / drive.capacity_bytes() as f64;
        drive.precondition(share).expect("new flash");
        Self {
            drive,
            now: 0,
            rng: Rng::new(5),
        }
    }

    fn access(&mut self, op: Op, offset: u64, bytes: u64) -> Time {
        let before = self.now;
        let done = self.drive.submit(&Request::new(op, offset, bytes), before);
        self.now = done.expect("it fits");
        self.now - before
    }

    fn in_order(&mut self, op: Op, bytes: u64, count: u64) -> Vec<Time> {
        let all = 0..count;
        all.map(|nth| self.access(op, nth * bytes, bytes)).collect()
    }

    fn random(&mut self, op: Op, bytes: u64, count: u64, span: u64) -> Vec<Time> {
        (0..count)
            .map(|_| {
                let place = self.rng.below(span / bytes);
                self.access(op, place * bytes, bytes)
            })
            .collect()
    }
}

fn mean(times: &[Time]) -> f64 {
    times.iter().sum::<Time>() as f64 / times.len() as f64
}

/// Figure 23: random writes are nearly two orders slower than those in order. The thesis sees a
/// smaller distance between reads too. The profile has none: it reads nothing ahead, and its map
/// costs no reads.
#[test]
fn random_writes_to_a_stick_are_two_orders_slower_as_in_figure_23() {
    let ratios: Vec<f64> = (9..15)
        .map(|shift| {
            let bytes = 1 << shift;
            let mut stick = Stick::new();
            let in_order = stick.in_order(Op::Write, bytes, 1024);
            let random = stick.random(Op::Write, bytes, 1024, WRITTEN);
            let reads = stick.in_order(Op::Read, bytes, 64);
            let random_reads = stick.random(Op::Read, bytes, 64, WRITTEN);
            assert_eq!(mean(&reads), mean(&random_reads), "{bytes}");
            mean(&random) / mean(&in_order)
        })
        .collect();
    // One order at each of the sizes of figures 24 and 25, and about two at the best of them.
    assert!(ratios.iter().all(|ratio| *ratio > 10.0), "{ratios:?}");
    let most = ratios.iter().copied().fold(0.0, f64::max);
    assert!((50.0..150.0).contains(&most), "{ratios:?}");
}

/// The writes of a series that took five times the quickest or more.
fn stalls(times: &[Time]) -> Vec<usize> {
    let quickest = times.iter().min().expect("there are some");
    let all = times.iter().enumerate();
    let slow = all.filter(|(_, time)| **time >= 5 * quickest);
    slow.map(|(nth, _)| nth).collect()
}

/// Figure 24: whether writes in order stall at equal distances depends on their size. They do where
/// a write covers a part of a page, since the log block is full before its block is.
#[test]
fn writes_in_order_stall_by_size_as_in_figure_24() {
    for shift in 9..15 {
        let bytes = 1 << shift;
        let mut stick = Stick::new();
        let found = stalls(&stick.in_order(Op::Write, bytes, 2048));
        if bytes >= PAGE {
            assert!(found.is_empty(), "{bytes}: {found:?}");
            continue;
        }
        assert!(found.len() > 10, "{bytes}: {found:?}");
        // 128 pages of the log, or twice that.
        let gaps = found.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| gap % 128 == 0), "{bytes}: {found:?}");
    }
}

/// Figure 25: random writes stall again and again, whatever their size. Each quarter of a series
/// over as much as the series in order covers has stalls and quick writes.
#[test]
fn random_writes_stall_at_all_sizes_as_in_figure_25() {
    for shift in 9..15 {
        let bytes = 1 << shift;
        let mut stick = Stick::new();
        let times = stick.random(Op::Write, bytes, 2048, 2048 * bytes);
        let found = stalls(&times);
        for quarter in 0..4 {
            let within = quarter * 512..(quarter + 1) * 512;
            let slow = found.iter().filter(|nth| within.contains(*nth)).count();
            assert!((1..512).contains(&slow), "{bytes}, {quarter}: {slow}");
        }
    }
}
