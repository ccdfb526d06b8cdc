// SPDX-License-Identifier: Apache-2.0
//! A simulated drive as a device: data against a map, time against the flash's operations.

use std::collections::HashMap;

use senko_io::{Device, Engine, PAGE_SIZE, Purpose, Tag};
use senko_ssd::engine_device::SimulatedDevice;

use crate::util::*;

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Admit,
};

fn device(profile: &str) -> SimulatedDevice {
    let profile = Profile::find(profile).unwrap();
    SimulatedDevice::new(Drive::new(&profile, &Parts::default()).unwrap())
}

#[test]
fn data_is_what_was_written_last() {
    let device = device("paper-1gb");
    let mut model: HashMap<u64, u8> = HashMap::new();
    let mut rng = Rng::new(11);
    for _ in 0..3000 {
        let page = rng.below(200);
        match rng.below(10) {
            0..5 => {
                let byte = rng.below(256) as u8;
                device.write(page, &[byte; 2 * PAGE_SIZE], TAG).unwrap();
                model.extend([(page, byte), (page + 1, byte)]);
            }
            5 => {
                device.discard(page, 3, TAG).unwrap();
                model.retain(|at, _| !(page..page + 3).contains(at));
            }
            6 => device.flush(TAG).unwrap(),
            _ => {
                let mut buf = [1; 3 * PAGE_SIZE];
                device.read(page, &mut buf, TAG).unwrap();
                for (page, bytes) in (page..).zip(buf.chunks(PAGE_SIZE)) {
                    let expected = model.get(&page).copied().unwrap_or(0);
                    assert!(bytes.iter().all(|byte| *byte == expected), "page {page}");
                }
            }
        }
    }
    assert!(device.report().pages.host_writes > 1000);
}

/// One read of a written page takes the cell's 25 us and a page's way through RAM. `links.rs` has
/// the times of batches.
#[test]
fn time_is_virtual() {
    let single = device("paper-1gb");
    single.write(0, &[1; PAGE_SIZE], TAG).unwrap();
    let before = single.now();
    single.read(0, &mut [0; PAGE_SIZE], TAG).unwrap();
    assert_eq!(single.now() - before, 26_000);
}

#[test]
fn what_is_not_there_is_refused() {
    let device = device("paper-1gb");
    let last = device.pages() - 1;
    device.write(last, &[1; PAGE_SIZE], TAG).unwrap();
    assert!(device.write(last, &[1; 2 * PAGE_SIZE], TAG).is_err());
    assert!(device.read(u64::MAX, &mut [0; PAGE_SIZE], TAG).is_err());
    assert!(device.read(0, &mut [0; 100], TAG).is_err());
    assert!(device.discard(0, u64::MAX, TAG).is_err());
}
