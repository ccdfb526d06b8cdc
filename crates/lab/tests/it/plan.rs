// SPDX-License-Identifier: Apache-2.0
//! Curves of hit ratios against the simulated policy, on real traces where they are there.

use std::path::Path;

use senko_lab::experiments::dram_policy::requests::{Requests, from_trace, zipf};
use senko_lab::experiments::dram_policy::{Basis, simulate};
use senko_lab::plan::{Curve, FOLLOWED};

/// The largest distance between the curve and the simulation, over sizes from a hundredth of all
/// on.
fn furthest(name: &str, requests: &Requests, followed: usize) -> f64 {
    let curve = Curve::of(requests, Basis::Objects, followed, 7);
    let objects = requests.footprint_objects() as f64;
    let mut furthest = 0f64;
    for share in [0.01, 0.03, 0.1, 0.3, 0.6, 0.9] {
        let size = (objects * share) as u64;
        let simulated = simulate(requests, None, Basis::Objects, size);
        let distance = curve.hit_ratio(size) - simulated.hit_percent() / 100.0;
        furthest = furthest.max(distance.abs());
    }
    eprintln!(
        "{name}: {furthest:.4} with {:.3} of the objects",
        curve.share
    );
    furthest
}

#[test]
fn a_sampled_curve_is_near_the_simulation() {
    let requests = zipf(0.9, 300_000, 1_000_000, None, 3).unwrap();
    assert!(
        furthest("zipf", &requests, usize::MAX) < 1e-9,
        "unsampled, it is exact"
    );
    assert!(furthest("zipf, sampled", &requests, 60_000) < 0.02);
}

#[test]
fn curves_of_real_traces_are_within_two_percent() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(senko_lab::DEFAULT_TRACES)
        .join("kv");
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no {}", senko_lab::DEFAULT_TRACES);
        return;
    };
    for file in files.flatten() {
        let requests = from_trace(&file.path()).unwrap();
        let name = file.file_name().to_string_lossy().into_owned();
        assert!(furthest(&name, &requests, FOLLOWED) < 0.02, "{name}");
    }
}
