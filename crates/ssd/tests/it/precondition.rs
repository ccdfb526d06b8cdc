// SPDX-License-Identifier: Apache-2.0
//! Writes before a run: their number, their cost compared with the closed form, when the drive is
//! steady, and the notes for runs with misleading figures.

use senko_ssd::model::greedy_write_amplification;
use senko_ssd::precondition::{MOST_WINDOWS, Preparation};

use crate::util::*;

/// The paper's drive with one plane of `blocks` blocks of 64 pages, of which the host sees
/// `logical`.
fn profile(blocks: u32, logical: u64) -> Profile {
    small(blocks, 64, logical * 64)
}

fn prepared(profile: &Profile, way: &str, no_times: bool) -> (Drive, Preparation) {
    let mut drive = Drive::new(profile, &untimed(no_times)).expect("a drive");
    let way: Precondition = way.parse().expect("a way");
    let found = drive.prepare(way, |_, _| true).expect("new flash");
    (drive, found.expect("nothing ended it"))
}

/// Writes of single pages at random.
fn write(drive: &mut Drive, pages: u64, count: u64) -> Report {
    random(drive, Op::Write, pages, count)
}

fn random(drive: &mut Drive, op: Op, pages: u64, count: u64) -> Report {
    let mut rng = Rng::new(7);
    let requests = (0..count).map(|_| Request::new(op, rng.below(pages) * PAGE, PAGE));
    run(drive, Load::Closed { depth: 1 }, requests)
}

/// Random overwrites come after a fill in order, and the run finds no erased blocks.
#[test]
fn random_overwrites_are_as_many_as_was_asked() {
    for untimed in [false, true] {
        let (mut drive, found) = prepared(&profile(70, 64), "random:1.5x", untimed);
        let capacity = 64 * 64;
        assert_eq!(found.pages_written, capacity + capacity * 3 / 2);
        let windows: Vec<u64> = found.windows.iter().map(|one| one.host_pages).collect();
        assert_eq!(windows, [capacity, capacity / 2]);
        assert_eq!(found.steady, None, "nobody asked");
        assert!(found.erases > 0);
        let report = write(&mut drive, capacity, 256);
        assert!(report.flash.all_erases() > 0, "no erased block was left");
        assert!(untimed || report.seconds > 0.0, "time is back");
    }
}

/// Where write amplification is steady it is that of the closed form.
#[test]
fn steady_is_where_the_closed_form_is() {
    // Besides the reserve, 512 blocks for 400 of data.
    let (mut drive, found) = prepared(&profile(513, 400), "steady", true);
    assert_eq!(found.steady, Some(true));
    let windows = found.windows.len();
    assert!((4..MOST_WINDOWS as usize).contains(&windows), "{windows}");
    let expected = greedy_write_amplification(512.0 / 400.0, 64);
    let last = found.write_amplification().expect("a window");
    assert!((last / expected - 1.0).abs() < 0.03, "{last}, {expected}");
    let report = write(&mut drive, 400 * 64, 100_000);
    assert_eq!(report.steady(), Some(true));
    assert_eq!(report.notes(), [""; 0]);
}

/// A drive of two blocks of data has too few writes in a window for 2 %.
#[test]
fn a_drive_that_never_gets_steady_says_so() {
    let (mut drive, found) = prepared(&profile(5, 2), "steady", true);
    assert_eq!(found.steady, Some(false));
    assert_eq!(found.windows.len(), MOST_WINDOWS as usize);
    let mut report = write(&mut drive, 128, 128);
    report.preparation = Some(found);
    let notes = report.notes().join("\n");
    has(&notes, "did not get steady before the run: after 30");
}

/// Reads of a new drive used to be reported at 5 million a second and 22 GB/s, without a note.
#[test]
fn reads_of_pages_that_nobody_wrote_are_told_of() {
    let profile = profile(70, 64);
    let (mut drive, _) = prepared(&profile, "50", false);
    let report = random(&mut drive, Op::Read, 64 * 64, 1000);
    let share = report.pages.unwritten_reads as f64 / 10.0;
    let [note] = &report.notes()[..] else {
        panic!("{:?}", report.notes());
    };
    assert!((40.0..60.0).contains(&share), "{share}");
    has(note, &format!("Of the reads {share:.1} % asked for pages"));
    let (mut drive, _) = prepared(&profile, "100", false);
    let report = random(&mut drive, Op::Read, 64 * 64, 1000);
    assert_eq!(report.notes(), [""; 0]);
}

/// Reads of trimmed pages on a full drive had the advice to fill the drive first.
#[test]
fn reads_of_trimmed_pages_are_told_of() {
    let profile = profile(70, 64);
    let (mut drive, found) = prepared(&profile, "100", false);
    let report = random(&mut drive, Op::Trim, 64 * 64, 1000);
    assert_eq!(report.pages.trims, 1000);
    let mut report = random(&mut drive, Op::Read, 64 * 64, 1000);
    assert!(report.pages.unwritten_reads > 100);
    // One run that both trims and reads.
    report.pages.trims = 1000;
    report.preparation = Some(found);
    let [note] = &report.notes()[..] else {
        panic!("{:?}", report.notes());
    };
    has(note, "had written or that were trimmed");
    assert!(!note.contains("Begin with"), "{note}");
}

/// A new drive looks too good: it erases nothing at first, and then its write amplification rises.
#[test]
fn a_run_on_a_new_drive_says_what_its_figures_are_worth() {
    let profile = profile(70, 64);
    let (mut drive, found) = prepared(&profile, "0", false);
    assert_eq!(found.pages_written, 0);
    let report = write(&mut drive, 64 * 64, 1000);
    let notes = report.notes();
    has(&notes[0], "erased nothing");
    assert_eq!(report.steady(), None);
    let report = write(&mut drive, 64 * 64, 12_000);
    let notes = report.notes();
    has(&notes[0], "never got steady");
    has(&notes[0], "begins with precondition steady");
    assert_eq!(report.steady(), Some(false));
    // After precondition steady, the note does not recommend it.
    let mut after = report.clone();
    after.preparation = Some(Preparation {
        steady: Some(true),
        ..found
    });
    let notes = after.notes();
    has(&notes[0], "The drive was steady before");
    assert!(!notes[0].contains("precondition"), "{notes:?}");
    let quarters = report.quarters.iter().map(|quarter| quarter.host_pages);
    assert_eq!(quarters.sum::<u64>(), 12_000);
}

#[test]
fn a_preparation_can_be_ended() {
    for way in ["90", "random:2x", "steady"] {
        let mut drive = Drive::new(&profile(70, 64), &Parts::default()).expect("a drive");
        let way: Precondition = way.parse().expect("a way");
        let mut asked = 0;
        let found = drive.prepare(way, |_, _| {
            asked += 1;
            asked < 2 && way != Precondition::InOrder { percent: 90.0 }
        });
        assert_eq!(found.expect("new flash"), None, "{way}");
    }
}

#[test]
fn ways_are_read_and_shown() {
    for text in ["0", "90", "12.5", "random:2x", "random:0.5x", "steady"] {
        let way: Precondition = text.parse().expect(text);
        assert_eq!(way.to_string(), text);
    }
    assert_eq!("90%".parse(), Ok(Precondition::InOrder { percent: 90.0 }));
    assert_eq!("random:3".parse(), Ok(Precondition::Random { times: 3.0 }));
    for wrong in [
        "",
        "101",
        "-1",
        "x",
        "random",
        "random:",
        "random:0x",
        "random:1001x",
    ] {
        let said = wrong.parse::<Precondition>().expect_err(wrong);
        assert!(
            said.contains("must be") || said.contains("not a way"),
            "{said}"
        );
    }
}
