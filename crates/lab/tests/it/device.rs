// SPDX-License-Identifier: Apache-2.0
//! Devices measured as in paper A, section 4.1: the verdict on simulated drives, which layer they
//! have being known.

use senko_lab::device::{FileTarget, Measured, SimulatedTarget, measure};
use senko_lab::{Options, run};
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

/// The experiment knows each profile's layer from the profile, this test from the list here.
#[test]
fn the_verdict_is_right_for_every_profile() {
    let report = run("device-verdict", &Options::default(), &()).unwrap();
    assert_eq!(report.outcome.bars()["right"], 1.0, "{}", report.text());
    let rows = &report.outcome.tables[0].rows;
    let kinds: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row[0].as_str(), row[5].as_str()))
        .collect();
    let mut expected = Vec::new();
    for (profile, kind) in [
        ("nvme-512gb", "maps pages"),
        ("paper-1gb", "log blocks"),
        ("x25-m", "maps pages"),
        ("x25-e", "maps pages"),
        ("usb-stick", "log blocks"),
        ("tlc-256gb", "maps pages"),
        ("hy27-4gb", "maps pages"),
    ] {
        expected.extend([(profile, kind); 3]);
    }
    assert_eq!(kinds, expected);
}

/// The thesis's table 3: 65 us for a read.
#[test]
fn the_x25_m_reads_as_its_maker_says() {
    let measured = simulated("x25-m", 1);
    let page = measured
        .sizes
        .iter()
        .find(|size| size.bytes == 4096)
        .unwrap();
    let us = page.read_random_ns / 1e3;
    assert!((us / 65.0 - 1.0).abs() < 0.15, "{us} us");
    // Ten channels serve reads side by side.
    let deep = measured
        .depths
        .iter()
        .find(|depth| depth.depth == 32)
        .unwrap();
    assert_eq!(measured.series_ns.len(), 2048);
    assert!(measured.depths[0].reads_per_second * 4.0 < deep.reads_per_second);
    // The same drive and seed give the same times, on any machine.
    assert_eq!(measured.series_ns, simulated("x25-m", 1).series_ns);
    let svg = measured.chart("x25-m").to_svg();
    assert!(svg.contains("4 KiB") && !svg.contains("NaN"));
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
