// SPDX-License-Identifier: Apache-2.0
//! Devices measured as in paper A, section 4.1: the verdict on simulated drives, whose layer is
//! known.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use senko_plan::device::fit::fit;
use senko_plan::device::{FileTarget, Measured, SimulatedTarget, Size, Target, measure};
use senko_ssd::device::Parts;
use senko_ssd::drive::Drive;
use senko_ssd::engine_device::SimulatedDevice;
use senko_ssd::profile::Profile;

fn simulated(profile: &str, seed: u64) -> Measured {
    let profile = Profile::find(profile).unwrap();
    let parts = Parts {
        seed,
        ..Parts::default()
    };
    let drive = Drive::new(&profile, &parts).unwrap();
    let mut target = SimulatedTarget::new(SimulatedDevice::new(drive), 256 << 20);
    measure(&mut target, seed, &()).unwrap()
}

/// The time of one kind of access at a size, in microseconds.
fn us(measured: &Measured, bytes: u64, of: fn(&Size) -> f64) -> f64 {
    let mut sizes = measured.sizes.iter();
    of(sizes.find(|size| size.bytes == bytes).unwrap()) / 1e3
}

/// A profile fitted to a drive, from a template of another, gives the drive's times; also through
/// its file.
#[test]
fn a_fitted_profile_has_the_times_of_its_drive() {
    for (drive, like) in [
        ("x25-m", "nvme-512gb"),
        ("nvme-512gb", "x25-m"),
        ("tlc-256gb", "nvme-512gb"),
        ("x25-e", "nvme-512gb"),
    ] {
        let fitted = fit(&simulated(drive, 1), &Profile::find(like).unwrap()).unwrap();
        let (wanted, found) = (fitted.wanted, fitted.found);
        assert_eq!(fitted.off(1.15), [], "{drive}: {wanted:?} {found:?}");
    }
}

/// The thesis's table 3 and figures 18 to 22: 70 MB/s of sequential writes; random writes as fast
/// as sequential ones, at any size of whole pages; no stalls.
/// `crates/ssd/tests/it/thesis_drives.rs` has the table's other figures.
#[test]
fn the_x25_m_writes_as_in_table_3() {
    let measured = simulated("x25-m", 1);
    let written = (4 << 20) as f64 / us(&measured, 4 << 20, |size| size.write_in_order_ns);
    assert!((written / 70.0 - 1.0).abs() < 0.05, "{written} MB/s");
    // Smaller writes in order join in the drive's buffer, and random ones read their page first.
    for size in measured.sizes.iter().filter(|size| size.bytes >= 4096) {
        let ratio = size.write_random_ns / size.write_in_order_ns;
        assert!((0.9..1.1).contains(&ratio), "{ratio} at {}", size.bytes);
    }
    assert_eq!(measured.series_in_order.stalls, 0);
    assert_eq!(measured.series_random.stalls, 0);
}

/// Figures 23 to 25: a random write takes up to a hundred times as long as a sequential one. The
/// series of random writes stalls again and again, the sequential series hardly.
#[test]
fn the_usb_stick_stalls_as_in_figures_23_to_25() {
    let measured = simulated("usb-stick", 1);
    let random = us(&measured, 4096, |size| size.write_random_ns);
    let in_order = us(&measured, 4096, |size| size.write_in_order_ns);
    let ratio = random / in_order;
    assert!((20.0..200.0).contains(&ratio), "{random} and {in_order} us");
    let (in_order, random) = (&measured.series_in_order, &measured.series_random);
    assert!(
        random.stalls > 10 * in_order.stalls.max(1),
        "{} and {}",
        in_order.stalls,
        random.stalls
    );
    // Large writes fill their blocks.
    let large = us(&measured, 4 << 20, |size| size.write_random_ns);
    let of_order = us(&measured, 4 << 20, |size| size.write_in_order_ns);
    assert!(large / of_order < 2.0, "{large} and {of_order} us");
}

/// The thesis's table 3: 65 us for a read, 35,000 a second, 250 MB/s.
#[test]
fn the_x25_m_reads_as_its_maker_says() {
    let measured = simulated("x25-m", 1);
    let page = us(&measured, 4096, |size| size.read_random_ns);
    assert!((page / 65.0 - 1.0).abs() < 0.15, "{page} us");
    // Ten channels serve reads in parallel, as fast as the link transfers them. With more reads
    // under way, the rate does not grow.
    let rates = measured.depths.iter().map(|depth| depth.reads_per_second);
    let rates: Vec<f64> = rates.collect();
    assert!(rates[0] * 2.0 < rates[3], "{rates:?}");
    let most = rates.iter().copied().fold(0.0, f64::max);
    assert!((most / 35_000.0 - 1.0).abs() < 0.05, "{rates:?}");
    let read = (4 << 20) as f64 / us(&measured, 4 << 20, |size| size.read_in_order_ns);
    assert!((read / 250.0 - 1.0).abs() < 0.05, "{read} MB/s");
    assert_eq!(measured.series_in_order.times_ns.len(), 2048);
    // The same drive and seed give the same times, on any machine.
    let again = simulated("x25-m", 1);
    assert_eq!(
        measured.series_random.times_ns,
        again.series_random.times_ns
    );
    let svg = measured.chart("x25-m").to_svg();
    assert!(svg.contains("4 KiB") && !svg.contains("NaN"));
}

/// A file has times by flags, which a simulated drive does not have.
#[test]
fn a_file_is_measured_with_and_without_its_flags() {
    let path = std::env::temp_dir().join(format!("senko-flags-{}", std::process::id()));
    let opened = FileTarget::open(&path, None, 16 << 20);
    let flags = opened.and_then(|mut target| target.by_flags());
    std::fs::remove_file(&path).unwrap();
    match flags {
        Ok(flags) => {
            let ways: Vec<_> = flags.iter().map(|one| (one.direct, one.durable)).collect();
            assert_eq!(
                ways,
                [(true, true), (true, false), (false, true), (false, false)]
            );
            assert!(
                flags
                    .iter()
                    .all(|one| one.read_ns > 0.0 && one.write_ns > 0.0)
            );
        }
        // The folder may be in memory.
        Err(error) => eprintln!("skipped: {error:#}"),
    }
    assert!(simulated("x25-m", 1).flags.is_empty());
}

/// A drive that has no discard, like USB sticks.
struct Deaf(SimulatedTarget);

impl Target for Deaf {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn smallest(&self) -> u64 {
        self.0.smallest()
    }
    fn read(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.0.read(offset, bytes)
    }
    fn write(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.0.write(offset, bytes)
    }
    fn flush(&mut self) -> Result<u64> {
        self.0.flush()
    }
    fn forget_all(&mut self) -> Result<bool> {
        Ok(false)
    }
    fn read_at_once(&mut self, offsets: &[u64], depth: usize) -> Result<u64> {
        self.0.read_at_once(offsets, depth)
    }
}

#[test]
fn a_drive_that_takes_no_discard_is_told_of() {
    let profile = Profile::find("usb-stick").unwrap();
    let drive = Drive::new(&profile, &Parts::default()).unwrap();
    let mut target = Deaf(SimulatedTarget::new(SimulatedDevice::new(drive), 64 << 20));
    let measured = measure(&mut target, 1, &()).unwrap();
    assert!(!measured.series_after_discard);
    let [note] = &measured.notes()[..] else {
        panic!("{:?}", measured.notes());
    };
    assert!(
        note.contains("neither a punch hole nor a discard"),
        "{note}"
    );
    let told = simulated("usb-stick", 1);
    assert!(told.series_after_discard && told.notes().is_empty());
}

/// A drive that another program uses from one read on.
struct Shared {
    drive: SimulatedTarget,
    reads: u64,
    busy_from: u64,
}

impl Target for Shared {
    fn bytes(&self) -> u64 {
        self.drive.bytes()
    }
    fn smallest(&self) -> u64 {
        self.drive.smallest()
    }
    fn read(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.reads += 1;
        let times = if self.reads > self.busy_from { 2 } else { 1 };
        Ok(self.drive.read(offset, bytes)? * times)
    }
    fn write(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.drive.write(offset, bytes)
    }
    fn flush(&mut self) -> Result<u64> {
        self.drive.flush()
    }
    fn forget_all(&mut self) -> Result<bool> {
        self.drive.forget_all()
    }
    fn read_at_once(&mut self, offsets: &[u64], depth: usize) -> Result<u64> {
        self.drive.read_at_once(offsets, depth)
    }
}

/// A profile of a drive that was busy was far off, and only said so in general.
#[test]
fn a_drive_that_is_busy_at_times_is_told_of() {
    let measured = |busy_from| {
        let profile = Profile::find("nvme-512gb").unwrap();
        let drive = Drive::new(&profile, &Parts::default()).unwrap();
        let mut target = Shared {
            drive: SimulatedTarget::new(SimulatedDevice::new(drive), 64 << 20),
            reads: 0,
            busy_from,
        };
        (measure(&mut target, 1, &()).unwrap(), target.reads)
    };
    let (idle, reads) = measured(u64::MAX);
    assert!(idle.notes().is_empty(), "{:?}", idle.notes());
    // Another program came after the times by size.
    let (busy, _) = measured(reads / 2);
    let notes = busy.notes();
    assert!(
        notes.len() == 1 && notes[0].contains("The drive was busy"),
        "{notes:?} {:?}",
        busy.rounds_ns
    );
    for profile in ["x25-m", "usb-stick", "tlc-256gb", "x25-e", "paper-1gb"] {
        let measured = simulated(profile, 2);
        assert!(
            measured.notes().is_empty(),
            "{profile}: {:?}",
            measured.rounds_ns
        );
    }
}

/// A loop device over a file: a raw device whose discards make holes in the file.
struct Loop {
    device: String,
    file: PathBuf,
}

impl Loop {
    /// Its device with sectors of this size, or the reason why there is none.
    fn new(bytes: u64, sector: &str) -> Result<Self, String> {
        // Two tests make one at the same time, with the same sectors.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("senko-loop-{}-{number}", std::process::id()));
        let made = std::fs::File::create(&file).and_then(|made| made.set_len(bytes));
        made.map_err(|error| error.to_string())?;
        let mut losetup = Command::new("losetup");
        let args = ["-f", "--show", "--sector-size", sector];
        let found = losetup.args(args).arg(&file).output();
        let found = found.map_err(|error| format!("losetup: {error}"));
        let told = found.and_then(|out| match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
        });
        match told {
            Ok(device) => Ok(Self { device, file }),
            Err(why) => {
                let _ = std::fs::remove_file(&file);
                Err(why)
            }
        }
    }

    /// Opens the first `bytes`. For a moment, a child that another test is about to start has the
    /// descriptors of this process, including the earlier one of the device.
    fn open(&self, bytes: u64) -> FileTarget {
        loop {
            match FileTarget::open(Path::new(&self.device), Some(&self.device), bytes) {
                Ok(target) => return target,
                Err(error) => {
                    let busy = error.chain().any(|cause| {
                        let cause = cause.downcast_ref::<std::io::Error>();
                        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::ResourceBusy)
                    });
                    assert!(busy, "{error:#}");
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Allocated bytes of the file. While its pages are written back, the file system's count is
    /// not exact.
    fn held(&self) -> u64 {
        let file = std::fs::File::open(&self.file).unwrap();
        file.sync_all().unwrap();
        file.metadata().unwrap().blocks() * 512
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Before the series of single writes to a raw device, there used to be no discard. The discard
/// covers exactly the measured bytes.
#[test]
fn a_raw_device_is_discarded_as_far_as_it_is_measured() {
    let raw = match Loop::new(48 << 20, "512") {
        Ok(raw) => raw,
        Err(why) => return eprintln!("skipped: no loop device: {why}"),
    };
    let path = Path::new(&raw.device);
    let refused = FileTarget::open(path, None, 16 << 20).err().unwrap();
    assert!(refused.to_string().contains("--destroy-data"), "{refused}");
    let mut all = raw.open(48 << 20);
    assert!(all.is_raw());
    for offset in (0..48 << 20).step_by(4 << 20) {
        all.write(offset, 4 << 20).unwrap();
    }
    drop(all);
    let held = raw.held();
    assert!(held >= 48 << 20, "{held}");
    let mut part = raw.open(16 << 20);
    if !part.forget_all().unwrap() {
        return eprintln!("skipped: the loop device takes no discard");
    }
    part.flush().unwrap();
    drop(part);
    let held = raw.held();
    assert!((32 << 20..33 << 20).contains(&held), "{held}");
}

/// The first access was of 512 bytes, which a drive with sectors of 4 KiB refuses: the measurement
/// ended there.
#[test]
fn a_drive_of_large_sectors_is_measured_from_these_on() {
    for (sector, smallest) in [("512", 512), ("4096", 4096)] {
        let raw = match Loop::new(16 << 20, sector) {
            Ok(raw) => raw,
            Err(why) => return eprintln!("skipped: no loop device: {why}"),
        };
        let mut target = raw.open(16 << 20);
        assert_eq!(target.smallest(), smallest);
        target.write(4096, smallest).unwrap();
        target.read(4096, smallest).unwrap();
    }
}

/// The times of a large target were those of its first 256 MiB, under a title with all of it. A
/// simulated drive's began at 4 KiB, where the thesis's figures 18 to 25 begin at 512 bytes: below
/// a page, a write also reads the page.
#[test]
fn a_simulated_drive_is_measured_over_all_bytes_from_512_on() {
    let profile = Profile::find("x25-m").unwrap();
    let drive = Drive::new(&profile, &Parts::default()).unwrap();
    let device = SimulatedDevice::new(drive);
    let mut target = Furthest(SimulatedTarget::new(device, 1 << 30), 0);
    let measured = measure(&mut target, 1, &()).unwrap();
    assert_eq!((measured.bytes, target.1), (1 << 30, 1 << 30));
    let us = |bytes| us(&measured, bytes, |size| size.write_random_ns);
    assert!(us(512) > us(4096) && us(2048) > us(4096), "{measured:?}");
    assert!(us(8192) > us(4096));
}

/// A target, and the end of the furthest write.
struct Furthest(SimulatedTarget, u64);

impl Target for Furthest {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn smallest(&self) -> u64 {
        self.0.smallest()
    }
    fn read(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.0.read(offset, bytes)
    }
    fn write(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        self.1 = self.1.max(offset + bytes);
        self.0.write(offset, bytes)
    }
    fn flush(&mut self) -> Result<u64> {
        self.0.flush()
    }
    fn forget_all(&mut self) -> Result<bool> {
        self.0.forget_all()
    }
    fn read_at_once(&mut self, offsets: &[u64], depth: usize) -> Result<u64> {
        self.0.read_at_once(offsets, depth)
    }
}

/// A discarded file is a hole of the same size.
#[test]
fn a_file_is_a_hole_before_its_series() {
    let path = std::env::temp_dir().join(format!("senko-punched-{}", std::process::id()));
    let opened = FileTarget::open(&path, None, 16 << 20);
    let done = opened.and_then(|mut target| {
        target.write(0, 4 << 20)?;
        let full = std::fs::metadata(&path)?.blocks();
        Ok((full, target.forget_all()?))
    });
    let found = std::fs::metadata(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    match done {
        Ok((full, true)) => {
            assert_eq!(found.len(), 16 << 20);
            assert!(
                full * 512 >= 4 << 20 && found.blocks() * 512 < 1 << 20,
                "{full}"
            );
        }
        Ok((_, false)) => eprintln!("skipped: the file system makes no holes"),
        // The folder may be in memory.
        Err(error) => eprintln!("skipped: {error:#}"),
    }
}

#[test]
fn data_is_overwritten_only_where_its_name_was_typed() {
    let folder = std::env::temp_dir().join(format!("senko-device-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("data");
    std::fs::write(&path, "precious").unwrap();
    for destroy in [None, Some("data"), Some("")] {
        let Err(error) = FileTarget::open(&path, destroy, 64 << 20) else {
            panic!("{destroy:?} was taken");
        };
        assert!(error.to_string().contains("--destroy-data"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
    assert!(FileTarget::open(&folder, None, 64 << 20).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}
