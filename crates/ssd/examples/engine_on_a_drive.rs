// SPDX-License-Identifier: Apache-2.0
//! Two ways to store records on a simulated drive: overwriting them in place, and appending them to
//! a log. Both write the same pages; the drive's time is virtual, so the program never waits.
//!
//!     cargo run -p senko_ssd --example engine_on_a_drive

use senko_io::{Device, Engine, PAGE_SIZE, Purpose, Tag};
use senko_ssd::device::Parts;
use senko_ssd::drive::Drive;
use senko_ssd::engine_device::SimulatedDevice;
use senko_ssd::profile::Profile;

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};

/// Records that are updated, one a page.
const RECORDS: u64 = 20_000;
const UPDATES: u64 = 2;

/// Where the `n`-th update goes.
type Place = fn(n: u64) -> u64;

/// In place: records are visited in an order that looks random. The factor and the number of
/// records have no common divisor, so each record is visited.
fn in_place(n: u64) -> u64 {
    n * 7919 % RECORDS
}

/// A log of twice the records: updates follow each other.
fn appended(n: u64) -> u64 {
    n % (2 * RECORDS)
}

/// Makes the updates on its own drive, and gives its virtual seconds and write amplification.
fn run(place: Place) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let profile = Profile::find("usb-stick")?;
    let device = SimulatedDevice::new(Drive::new(&profile, &Parts::default())?);
    for n in 0..RECORDS * UPDATES {
        device.write(place(n), &[n as u8; PAGE_SIZE], TAG)?;
    }
    device.flush(TAG)?;
    let amplification = device.report().write_amplification();
    Ok((device.now() as f64 / 1e9, amplification.unwrap_or_default()))
}

/// Prints what both ways cost.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ways: [(&str, Place); 2] = [("in place", in_place), ("appended", appended)];
    let mut amplifications = Vec::new();
    for (name, place) in ways {
        let (seconds, amplification) = run(place)?;
        println!("{name}: {seconds:.1} s on the drive, write amplification {amplification:.2}");
        amplifications.push(amplification);
    }
    assert!(
        amplifications[0] > amplifications[1],
        "a drive that maps blocks copies the rest of a block for each write in place"
    );
    Ok(())
}
