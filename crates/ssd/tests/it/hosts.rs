// SPDX-License-Identifier: Apache-2.0
//! Drives under a host: RAID 0 and queues scale, the host's bytes are counted, and a drive may fail
//! to keep up. Times are computed by hand.

use std::sync::atomic::{AtomicBool, Ordering};

use senko_ssd::lifetime::Lifetime;

use crate::util::*;

/// A read of the paper's drive: 25 us on the flash, nothing on the bus, 1 us in RAM.
const READ_NS: u64 = 26_000;

/// The paper's drive with little flash, pages placed freely, no buffer.
fn profile(interface: Interface) -> Profile {
    Profile {
        interface,
        ..small(64, 32, 1024)
    }
}

/// The time to read 480 pages in order, on full drives, with stripes of a page.
fn reads(interface: Interface, drives: u32, depth: u32) -> u64 {
    let profile = profile(interface);
    let mut drive = Drive::raid0(&profile, &Parts::default(), drives, PAGE).expect("drives");
    drive.precondition(1.0).expect("new flash");
    let requests = (0..480).map(|page| of_pages(Op::Read, page, 1));
    let report = run(&mut drive, Load::Closed { depth }, requests);
    assert_eq!(report.all.count, 480);
    (report.seconds * 1e9).round() as u64
}

/// Four drives used to read as slowly as one, since one interface took the requests of all.
#[test]
fn raid_0_scales_with_every_interface() {
    for drives in [1, 2, 4] {
        for interface in [Interface::Single, Interface::Ncq { depth: 1 }] {
            let time = reads(interface, drives, 2 * drives);
            assert_eq!(time, 480 / u64::from(drives) * READ_NS, "{drives} drives");
        }
    }
    // A closed loop of one request keeps one drive busy.
    assert_eq!(reads(Interface::Single, 4, 1), 480 * READ_NS);
}

/// A request to several drives is done when the last of them is, and each is busy only with its
/// part.
#[test]
fn a_wide_request_is_cut_up() {
    let mut drive =
        Drive::raid0(&profile(Interface::Single), &Parts::default(), 4, 2 * PAGE).expect("drives");
    drive.precondition(1.0).expect("new flash");
    // Pages 1 to 16 with stripes of two: the drives have 4, 4, 4 and 4 of them, one after the
    // other.
    let one = Load::Closed { depth: 1 };
    let report = run(&mut drive, one, [of_pages(Op::Read, 1, 16)]);
    assert_eq!(report.pages.host_reads, 16);
    assert_eq!((report.seconds * 1e9).round() as u64, 4 * 25_000 + 1000);
    // A flush goes to all drives, and is one request.
    let mut flush = Request::flush(0);
    flush.device = 7;
    let report = run(&mut drive, one, [flush]);
    assert_eq!(report.all.count, 1);
}

/// All requests of a folded trace used to go to the first of NVMe's queues. On a drive of 16 planes
/// with four queues of depth 1, four reads are under way at once; there was one.
#[test]
fn every_queue_of_nvme_is_used() {
    for (queues, depth, together) in [(1, 1, 1), (4, 1, 4), (2, 4, 8), (4, 4, 16)] {
        let mut profile = profile(Interface::Nvme { queues, depth });
        profile.geometry.planes = 16;
        profile.geometry.blocks = 4;
        let mut drive = Drive::new(&profile, &Parts::default()).expect("a drive");
        drive.precondition(1.0).expect("new flash");
        let requests = (0..512).map(|page| of_pages(Op::Read, page, 1));
        let report = run(&mut drive, Load::Closed { depth: 16 }, requests);
        assert_eq!(report.pace.most_under_way, 16);
        assert_eq!(report.pace.slots, u64::from(queues * depth));
        let time = (report.seconds * 1e9).round() as u64;
        // Neighbouring pages lie on different planes, so that as many reads overlap as are let
        // through. Where all planes are busy two pages may meet on one.
        let least = 512 / together * READ_NS;
        assert!(
            (least..=least * 3 / 2).contains(&time),
            "{queues} queues of {depth}: {time} ns, and at best {least}"
        );
    }
}

/// Writes of 512 bytes on pages of 16 KiB used to be counted as whole pages: 32 times the drive's
/// TBW, and a write amplification of 1.
#[test]
fn the_hosts_bytes_are_those_it_wrote() {
    let mut profile = profile(Interface::Single);
    profile.geometry.page_bytes = 16_384;
    profile.user_bytes = 1024 * 16_384;
    profile.partial_pages = PartialPages::Whole;
    for parts in [untimed(false), untimed(true)] {
        let life = |bytes: u64| {
            let mut drive = Drive::new(&profile, &parts).expect("a drive");
            drive.precondition(1.0).expect("new flash");
            let requests = (0..4096).map(|at| Request {
                time: at * 1_000_000,
                ..Request::new(Op::Write, at % 1024 * 16_384, bytes)
            });
            let report = run(&mut drive, Load::Open { speed: 1.0 }, requests);
            assert_eq!(report.host_bytes_written, 4096 * bytes);
            assert_eq!(report.pages.host_writes, 4096);
            let erases = Lifetime::of(&report, 1000).expect("blocks were erased");
            (report, erases)
        };
        let ((whole, long), (part, short)) = (life(16_384), life(512));
        // Overwritten in order nothing has to be moved: a page is programmed for each that is
        // written.
        assert_eq!(whole.write_amplification(), Some(1.0));
        assert_eq!(part.write_amplification(), Some(32.0));
        assert_eq!(part.page_write_amplification(), Some(1.0));
        assert_eq!(long.host_bytes, 32.0 * short.host_bytes);
        assert_eq!(long.bytes_a_day, 32.0 * short.bytes_a_day);
        assert_eq!(long.dwpd_5_years, 32.0 * short.dwpd_5_years);
        assert_eq!(long.years, short.years, "the flash wears alike");
    }
}

/// Reads at equal distances of `gap_ns`.
fn paced(gap_ns: u64) -> Report {
    let mut drive = Drive::new(&profile(Interface::Single), &Parts::default()).expect("a drive");
    drive.precondition(1.0).expect("new flash");
    let requests = (0..2000).map(|at| Request {
        time: at * gap_ns,
        ..of_pages(Op::Read, at % 1000, 1)
    });
    run(&mut drive, Load::Open { speed: 1.0 }, requests)
}

/// With twice the drive's maximum load, a run used to report a mean response time of 22 seconds,
/// but not that half of the requests were still waiting.
#[test]
fn a_drive_that_cannot_keep_up_is_told() {
    let fits = paced(READ_NS);
    assert!(!fits.falls_behind());
    assert_eq!(fits.pace.most_under_way, 1);
    assert_eq!(fits.all.max_us, 26.0);
    let behind = paced(READ_NS / 2);
    assert!(behind.falls_behind());
    // When the last of 2000 arrives, after 1999 gaps, 999 are done and one ends at that moment or
    // later.
    assert!((1000..=1001).contains(&behind.pace.under_way_at_last_arrival));
    assert_eq!(behind.seconds, 2000.0 * 26e-6);
    let pace = behind.requests_a_second().expect("it has times");
    assert!((pace - 1e6 / 26.0).abs() < 1e-6, "{pace}");
    let (read, written) = behind.bytes_a_second().expect("it has times");
    assert!((read - pace * 4096.0).abs() < 1e-3 && written == 0.0);
    // A closed loop waits for the drive, which then keeps up at any speed.
    let mut drive = Drive::new(&profile(Interface::Single), &Parts::default()).expect("a drive");
    let requests = (0..2000).map(|at| of_pages(Op::Write, at % 1000, 1));
    assert!(!run(&mut drive, Load::Closed { depth: 500 }, requests).falls_behind());
}

/// Ctrl-C used to discard the counts of a run. Now the run ends at once, however many requests
/// still wait, and reports.
#[test]
fn a_run_that_is_stopped_reports_what_it_did() {
    for parts in [untimed(false), untimed(true)] {
        let mut drive = Drive::new(&profile(Interface::Single), &parts).expect("a drive");
        let stop: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        drive.stop_when(stop);
        let endless = (0u64..).map(|at| {
            stop.store(at == 5000, Ordering::Relaxed);
            Ok::<_, Error>(of_pages(Op::Write, at % 1000, 1))
        });
        let report = drive
            .run(endless, Load::Open { speed: 1.0 })
            .expect("every request fits");
        assert!(report.all.count <= 5001);
        assert_eq!(report.all.count, report.host_bytes_written / PAGE);
        assert!(parts.untimed || report.pace.under_way_at_last_arrival > 0);
        let all = Precondition::InOrder { percent: 100.0 };
        assert!(matches!(drive.prepare(all, |_, _| false), Ok(None)));
    }
}

/// A pipe used to be read three times: for its summary, for whether it has times, and for the run;
/// the second pass found nothing.
#[test]
fn a_pipe_is_read_once() {
    let folder = std::env::temp_dir().join(format!("senko-ssd-pipe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|made| made.success()) {
        let _ = std::fs::remove_dir_all(&folder);
        eprintln!("skipped: there is no mkfifo");
        return;
    }
    let writer = {
        let path = path.clone();
        std::thread::spawn(move || std::fs::write(path, "0,8,512,W,0.0\n0,16,512,R,1.0\n"))
    };
    let name = path.to_str().expect("text");
    let mut workload = Workload::named(name, &TraceSpec::default()).expect("a pipe");
    writer.join().expect("no panic").expect("it was read");
    let _ = std::fs::remove_dir_all(&folder);
    workload.rounds = 3;
    assert_eq!(workload.name(), "pipe");
    assert_eq!(workload.summary().expect("a trace").mix.requests(), 2);
    assert!(workload.timed().expect("a trace"));
    for _ in 0..2 {
        assert_eq!(workload.requests(1 << 20).expect("a trace").count(), 6);
    }
}

/// A trace without a request used to be simulated without a result, and the run ended without an
/// error.
#[test]
fn a_workload_without_requests_is_refused() {
    let path = std::env::temp_dir().join(format!("senko-ssd-empty-{}", std::process::id()));
    std::fs::write(&path, "0,8,0,W,0.0\n0,8,0,W,1.0\n").expect("a file");
    let name = path.to_str().expect("text");
    let workload = Workload::named(name, &TraceSpec::default()).expect("a file");
    let why = workload.summary().err().expect("refused").to_string();
    has(&why, "has no request");
    let mut requests = workload.requests(1 << 20).expect("it opens");
    assert!(requests.next().is_some_and(|request| request.is_err()));
    let _ = std::fs::remove_file(&path);
    let none = Workload::named("seq:count=0", &TraceSpec::default()).expect("a generator");
    assert!(none.summary().is_err());
    assert!(Workload::named("/", &TraceSpec::default()).is_err());
}

/// Times that cannot be added up ended the program, or went round and made the run short.
#[test]
fn requests_after_146_years_are_refused() {
    for parts in [untimed(false), untimed(true)] {
        let refused = |name: &str, speed: f64, rounds: u32| {
            let mut workload = Workload::named(name, &TraceSpec::default()).expect("a generator");
            workload.rounds = rounds;
            let mut drive = Drive::new(&profile(Interface::Single), &parts).expect("a drive");
            let requests = workload.requests(1 << 20).expect("it opens");
            let done = drive.run(requests, Load::Open { speed });
            done.err().map(|error| error.to_string())
        };
        for (name, speed, rounds) in [
            ("seq:count=3,pages=9,rate=1e-30,gaps=even", 1.0, 1),
            ("seq:count=3,pages=9,rate=1", 1e-30, 1),
            ("seq:count=2,pages=9,rate=1e-9,gaps=even", 1.0, 9),
        ] {
            let why = refused(name, speed, rounds).expect("refused");
            has(&why, "more than 146 years");
        }
        assert_eq!(
            refused("seq:count=3,pages=9,rate=1e-9,gaps=even", 1.0, 1),
            None
        );
    }
}

/// A mutant of [`Nand::is_plain`] survived: flash whose programs can fail would have been written
/// in one step, in which none can.
#[test]
fn flash_is_plain_only_if_operations_only_count() {
    let geometry = Geometry::one_plane(16, 16);
    let timing = Some(profile(Interface::Single).timing);
    let plain = Endurance::default();
    let failing = Endurance {
        program_failure: 0.5,
        spare_blocks: 1000,
        ..plain
    };
    let flash = |timing, endurance| Nand::new(geometry, timing, endurance, 1).expect("flash");
    assert!(flash(None, &plain).is_plain());
    assert!(!flash(timing, &plain).is_plain());
    let mut failing = flash(None, &failing);
    assert!(!failing.is_plain());
    // There a run of copies goes page by page, and about half of them fail.
    for page in 0..16 {
        failing.program(page, page, 0, Cause::Host);
    }
    let before = failing.retired();
    failing.copy_run(&(0..16).collect::<Vec<_>>(), 16, 0, Cause::Gc);
    assert!(failing.retired() > before);
    let mut cut = flash(None, &plain);
    cut.cut_power_after(1);
    assert!(!cut.is_plain());
    let mut numbered = flash(None, &plain);
    numbered.keep_sequence();
    assert!(!numbered.is_plain());
}

/// A mutant of the sum in `Blocks::log_table` survived. FAST with 4 log blocks on 64 blocks of 32
/// pages and 1024 logical pages: 32 data blocks and 4 log blocks by number take 6 bits each. For
/// each of the 128 pages of the log, a logical page or none takes 11 bits.
#[test]
fn a_log_table_names_blocks_and_pages() {
    let mut profile = profile(Interface::Single);
    for ftl in ["fast:log-blocks=4", "last:log-blocks=4"] {
        profile.ftl = ftl.to_owned();
        let drive = Drive::new(&profile, &Parts::default()).expect("a drive");
        let mapping = drive.devices()[0].ftl().mapping();
        assert_eq!(mapping.bits, (32 + 4) * 6 + 128 * 11, "{ftl}");
        // With fractions: 6 bits, and log2 of 1025.
        let exact = 36.0 * 6.0 + 128.0 * 1025f64.log2();
        assert!((mapping.fractional_bits - exact).abs() < 1e-6, "{ftl}");
    }
}

/// A profile's mistakes used to be reported in the words of the parser: "expected u32", "missing
/// field".
#[test]
fn a_wrong_key_of_a_profile_is_told_in_a_sentence() {
    let mut profiles = senko_ssd::profile::BUILT_IN.iter();
    let paper = profiles.find(|profile| profile.0 == "paper-1gb");
    let text = paper.expect("it is built in").1;
    let why = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        let told = Profile::parse(&text.replacen(from, to, 1)).err();
        told.expect(to).to_string()
    };
    for (from, to, told) in rows! {
        "page_bytes = 4096", "page_byte = 4096",
            "there is no key page_byte in [geometry]; did you mean page_bytes?";
        "[timing]", "[timings]", "there is no key timings; did you mean timing?";
        "buffer_bytes", "zzz", "there is no key zzz; there are name, source";
        "channels = 1", "channels = \"many\"",
            "channels in [geometry] is \"many\", and must be a whole number from 0 to 4294967295";
        "channels = 1", "channels = -1", "channels in [geometry] is -1";
        "channels = 1", "", "channels is missing in [geometry]";
        "copy_back = false", "copy_back = 0",
            "copy_back in [timing] is 0, and must be true or false";
        "partial_pages = \"whole\"", "partial_pages = \"half\"",
            "must be one of read-modify-write, whole";
        "kind = \"single\"", "kind = \"ncq\"", "[interface] of the kind ncq lacks depth";
        "kind = \"single\"", "kind = \"single\"\ndepth = 3",
            "[interface] of the kind single has no depth";
        "[interface]", "[link]\nkind = \"pcie\"\ngeneration = 4\ncommand_ns = 1000\n[interface]",
            "[link] of the kind pcie lacks lanes";
        "[interface]", "[link]\nkind = \"none\"\nlanes = 4\n[interface]",
            "[link] of the kind none has no lanes";
        "[interface]", "[link]\nkind = \"sata\"\ngeneration = 4\ncommand_ns = 0\n[interface]",
            "generation in [link] is 4, and SATA has 1, 2 and 3";
        "cycles = 100_000", "cycles = = 3", "it is not TOML";
    } {
        let why = why(from, to);
        has(&why, told);
        for word in [
            "u32",
            "i64",
            "expected",
            "missing field",
            "struct",
            "invalid type",
        ] {
            assert!(!why.contains(word) || to.contains("= ="), "{why}");
        }
    }
    let sized = text.replacen("1_073_741_824", "\"1g\"", 1);
    assert_eq!(Profile::parse(&sized).expect("a size").user_bytes, 1 << 30);
    for (name, text) in senko_ssd::profile::BUILT_IN {
        assert!(Profile::parse(text).is_ok(), "{name}");
    }
}
