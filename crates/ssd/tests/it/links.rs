// SPDX-License-Identifier: Apache-2.0
//! The link to the host, and writes that end before their pages are on the flash. Times are
//! computed by hand.

use senko_io::{Device as _, Engine, PAGE_SIZE, Purpose, ReadRequest, Tag};
use senko_ssd::engine_device::SimulatedDevice;
use senko_ssd::link::Link;

use crate::util::*;

/// A byte in ten nanoseconds: a page takes 40,960 ns. A command takes 1,000.
const SLOW: Link = Link::Other {
    bytes_per_second: 100_000_000,
    command_ns: 1000,
    write_command_ns: None,
};

/// The paper's drive with 16 planes of little flash, pages placed freely: 25 us for a read, 200 us
/// for a program, 1 us in RAM.
fn profile(link: Link) -> Profile {
    let mut profile = small(8, 32, 1024);
    profile.geometry.planes = 16;
    profile.interface = Interface::Ncq { depth: 32 };
    profile.link = link;
    profile
}

/// The time of requests, all at once, on a drive whose pages are all written.
fn time(profile: &Profile, requests: Vec<Request>) -> u64 {
    let mut drive = Drive::new(profile, &Parts::default()).expect("a drive");
    drive.precondition(1.0).expect("new flash");
    let report = run(&mut drive, Load::Closed { depth: 32 }, requests);
    (report.seconds * 1e9).round() as u64
}

#[test]
fn data_passes_the_link_after_a_read_and_before_a_write() {
    let slow = profile(SLOW);
    // Command, cells, RAM, data. The last seven of eight pages are transferred after the first.
    let read = time(&slow, vec![of_pages(Op::Read, 0, 1)]);
    assert_eq!(read, 1000 + 25_000 + 1000 + 40_960);
    let eight = time(&slow, vec![of_pages(Op::Read, 0, 8)]);
    assert_eq!(eight, read + 7 * 40_960);
    // Command, data, cells, RAM. The first page's program overlaps the transfer of the others.
    let write = time(&slow, vec![of_pages(Op::Write, 0, 1)]);
    assert_eq!(write, 1000 + 40_960 + 200_000 + 1000);
    let eight = time(&slow, vec![of_pages(Op::Write, 0, 8)]);
    assert_eq!(eight, write + 7 * 40_960);
    // A part of a page is as much data as it has.
    let part = Request {
        bytes: 512,
        ..of_pages(Op::Read, 0, 1)
    };
    assert_eq!(time(&slow, vec![part]), 1000 + 25_000 + 1000 + 5120);
    // A flush has no data.
    assert_eq!(time(&slow, vec![Request::flush(0)]), 1000);
    assert_eq!(
        time(&profile(Link::None), vec![of_pages(Op::Read, 0, 8)]),
        26_000
    );
}

/// However many reads are under way, the link transfers one after the other, without a gap. On PCIe
/// reads do not wait for the data of writes.
#[test]
fn a_link_is_full_or_has_nothing_to_do() {
    let reads = (0..32).map(|page| of_pages(Op::Read, page, 1));
    let all = time(&profile(SLOW), reads.collect());
    let busy = 32 * (1000 + 40_960);
    assert!((busy..busy + 27_000).contains(&all), "{all} and {busy}");

    let both = |link| {
        let page = |nth: u64| match nth % 2 {
            0 => of_pages(Op::Read, nth, 1),
            _ => of_pages(Op::Write, nth, 1),
        };
        time(&profile(link), (0..32).map(page).collect())
    };
    let limit = Some(100_000_000);
    let sata = both(Link::Sata {
        generation: 3,
        command_ns: 0,
        write_command_ns: None,
        bytes_per_second: limit,
    });
    let pcie = both(Link::Pcie {
        generation: 3,
        lanes: 1,
        command_ns: 0,
        bytes_per_second: limit,
    });
    // The last write's program may be added.
    let of_sata = 32 * 40_960..32 * 40_960 + 250_000;
    let of_pcie = 16 * 40_960..16 * 40_960 + 250_000;
    assert!(
        of_sata.contains(&sata) && of_pcie.contains(&pcie),
        "{sata} {pcie}"
    );
}

/// Each drive of a RAID 0 has its own link.
#[test]
fn every_drive_has_its_link() {
    let profile = profile(SLOW);
    let mut drive = Drive::raid0(&profile, &Parts::default(), 4, PAGE).expect("drives");
    drive.precondition(1.0).expect("new flash");
    let read = [of_pages(Op::Read, 0, 4)];
    let report = run(&mut drive, Load::Closed { depth: 1 }, read);
    let seconds = 1e-9 * f64::from(1000 + 25_000 + 1000 + 40_960);
    assert!((report.seconds - seconds).abs() < 1e-12);
    assert_eq!(report.busy.links, 4);
    assert!((report.busy.link_seconds - 4.0 * 41_960e-9).abs() < 1e-12);
}

/// A write that pushed a page out of a full buffer used to take a program's 200 us, although drives
/// answer once they have the data.
#[test]
fn writes_end_before_their_pages_are_on_the_flash_and_flushes_after() {
    let mut profile = profile(Link::None);
    profile.buffer = "lru".to_owned();
    profile.buffer_bytes = 4 * PAGE;
    let mut times = |behind: u32| {
        profile.write_behind_pages = behind;
        let mut drive = Drive::new(&profile, &Parts::default()).expect("a drive");
        let (mut now, mut times) = (0, Vec::new());
        let writes = (0..12).map(|page| of_pages(Op::Write, page, 1));
        for one in writes.chain([Request::flush(0)]) {
            let done = drive.submit(&one, now).expect("it fits");
            times.push(done - now);
            now = done;
        }
        times
    };
    // Four fill the buffer; then each waits for a program.
    let waits = times(0);
    assert_eq!(waits[..4], [1000; 4]);
    assert_eq!(waits[4..12], [201_000; 8]);
    // Six programs may be under way. The seventh waits for the first, which began 6 us before.
    let behind = times(6);
    assert_eq!(behind[..10], [1000; 10]);
    assert_eq!(behind[10], 200_000 - 6 * 1000 + 1000);
    // The flush waits for all that were under way, and programs the four of the buffer.
    assert!(behind[12] >= 200_000, "{behind:?}");
    let all: u64 = behind.iter().sum();
    assert!(all < waits.iter().sum::<u64>() / 2, "{behind:?}");
}

/// On a stick that takes one request at a time, the reads of a batch of 64 used to overlap.
#[test]
fn a_batch_has_no_more_under_way_than_the_interface_takes() {
    let time = |interface| {
        let mut profile = profile(Link::None);
        profile.interface = interface;
        let mut drive = Drive::new(&profile, &Parts::default()).expect("a drive");
        drive.precondition(1.0).expect("new flash");
        let device = SimulatedDevice::new(drive);
        let mut bufs = vec![[0; PAGE_SIZE]; 16];
        let pages = (0..).zip(&mut bufs);
        let mut batch: Vec<ReadRequest<'_>> = pages
            .map(|(page, buf)| ReadRequest::new(page, buf))
            .collect();
        let tag = Tag {
            engine: Engine::Lab,
            purpose: Purpose::Admit,
        };
        device.read_batch(&mut batch, tag).expect("they fit");
        device.now()
    };
    assert_eq!(time(Interface::Single), 16 * 26_000);
    assert_eq!(time(Interface::Ncq { depth: 4 }), 4 * 26_000);
    assert_eq!(time(Interface::Ncq { depth: 32 }), 26_000);
}
