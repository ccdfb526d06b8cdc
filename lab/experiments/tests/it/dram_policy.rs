// SPDX-License-Identifier: Apache-2.0
//! The policy models, compared with published counts if the traces are there.

use std::path::PathBuf;

use senko_lab::experiments::dram_policy::simulate;
use senko_plan::count::Basis;
use senko_plan::policies::S3FifoSettings;
use senko_plan::requests::{self, Requests};

const PAPER: S3FifoSettings = S3FifoSettings {
    promote_at: 2,
    fill_main_first: false,
};
const FILL: S3FifoSettings = S3FifoSettings {
    promote_at: 2,
    fill_main_first: true,
};

fn trace(name: &str) -> Option<Requests> {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../../shared/traces/kv",
        name,
    ]
    .iter()
    .collect();
    if !path.exists() {
        eprintln!("skipped: no ../shared/traces");
        return None;
    }
    Some(requests::from_trace(&path).unwrap())
}

#[test]
fn lru_gives_the_arc_papers_hit_ratios() {
    // Megiddo and Modha, FAST 2003.
    for (name, sizes) in [
        (
            "ARC_OLTP.lis.zst",
            &[
                (1000, 32.83),
                (2000, 42.47),
                (5000, 53.65),
                (10_000, 60.70),
                (15_000, 64.63),
            ][..],
        ),
        ("ARC_P3.lis.zst", &[(32_768, 3.57)]),
    ] {
        let Some(stream) = trace(name) else { return };
        for &(pages, percent) in sizes {
            let measured = simulate(&stream, None, Basis::Objects, pages).hit_percent();
            assert!(
                (measured - percent).abs() < 0.0051,
                "{name} at {pages}: {measured}, {percent} published"
            );
        }
    }
}

#[test]
fn byte_sized_simulations_give_libcachesims_miss_counts() {
    // The expected counts of libCacheSim's own regression test (test_evictionAlgo.c), which runs
    // this trace at 1/8 to 8/8 GiB.
    const LRU: [u64; 8] = [
        93_374, 89_783, 83_572, 81_722, 72_494, 72_104, 71_972, 71_704,
    ];
    const S3_FIFO_V0: [u64; 8] = [
        89_307, 82_387, 77_041, 76_791, 71_300, 70_343, 70_455, 70_355,
    ];
    const S3_FIFO: [u64; 8] = [
        90_117, 80_915, 75_060, 72_191, 69_815, 65_542, 60_799, 56_045,
    ];
    let Some(stream) = trace("cloudphysics_114k.oracleGeneral") else {
        return;
    };
    let misses = |settings| -> Vec<u64> {
        (1..=8)
            .map(|eighth| {
                let counts = simulate(&stream, settings, Basis::Bytes, eighth << 27);
                counts.requests - counts.hits
            })
            .collect()
    };
    assert_eq!(misses(None), LRU);
    assert_eq!(misses(Some(PAPER)), S3_FIFO_V0);
    assert_eq!(misses(Some(FILL)), S3_FIFO);
}
