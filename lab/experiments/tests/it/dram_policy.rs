// SPDX-License-Identifier: Apache-2.0
//! The policy models, compared with a slow model with lists, and with published counts if the
//! traces are there.

use std::path::PathBuf;

use senko_lab::experiments::dram_policy::simulate;
use senko_plan::count::Basis;
use senko_plan::policies::{Lru, Policy, S3Fifo, S3FifoSettings};
use senko_plan::requests::{self, Requests};
use senko_workload::Rng;

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
fn lru_matches_a_plain_list() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let objects = 1 + rng.below(40) as usize;
        let capacity = 1 + rng.below(100);
        let weights: Vec<u64> = (0..objects).map(|_| 1 + rng.below(30)).collect();
        let mut lru = Lru::new(capacity, objects);
        let mut list: Vec<u32> = Vec::new();
        for _ in 0..500 {
            let object = rng.below(objects as u64) as u32;
            let weight = weights[object as usize];
            let expected = list.contains(&object);
            assert_eq!(lru.access(object, weight), expected, "seed {seed}");
            if expected {
                list.retain(|&other| other != object);
            } else if weight > capacity {
                continue;
            }
            list.push(object);
            while list
                .iter()
                .map(|&other| weights[other as usize])
                .sum::<u64>()
                > capacity
            {
                list.remove(0);
            }
        }
    }
}

/// S3-FIFO with lists and no clever state, straight from the paper's text, objects of weight 1.
struct PlainS3Fifo {
    capacity: usize,
    small: Vec<(u32, u8)>,
    main: Vec<(u32, u8)>,
    ghost: Vec<u32>,
}

impl PlainS3Fifo {
    fn access(&mut self, object: u32) -> bool {
        if let Some(entry) = self
            .small
            .iter_mut()
            .chain(&mut self.main)
            .find(|entry| entry.0 == object)
        {
            entry.1 = (entry.1 + 1).min(3);
            return true;
        }
        let was_ghost = self.ghost.contains(&object);
        self.ghost.retain(|&other| other != object);
        let small_capacity = (self.capacity / 10).max(1);
        while self.small.len() + self.main.len() >= self.capacity {
            if self.main.len() > self.capacity - small_capacity || self.small.is_empty() {
                while !self.main.is_empty() {
                    let (oldest, hits) = self.main.remove(0);
                    if hits == 0 {
                        break;
                    }
                    self.main.push((oldest, hits - 1));
                }
            } else {
                while !self.small.is_empty() {
                    let (oldest, hits) = self.small.remove(0);
                    if hits < 2 {
                        self.ghost.push(oldest);
                        break;
                    }
                    self.main.push((oldest, 0));
                }
            }
            let ghosts = (self.capacity as f64 * 0.9) as usize;
            while self.ghost.len() > ghosts {
                self.ghost.remove(0);
            }
        }
        if was_ghost {
            self.main.push((object, 0))
        } else {
            self.small.push((object, 0))
        }
        false
    }
}

#[test]
fn s3_fifo_matches_plain_lists() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let capacity = 1 + rng.below(60);
        let objects = 1 + rng.below(200);
        let mut policy = S3Fifo::new(capacity, objects as usize, PAPER);
        let mut plain = PlainS3Fifo {
            capacity: capacity as usize,
            small: Vec::new(),
            main: Vec::new(),
            ghost: Vec::new(),
        };
        for step in 0..2000 {
            // Half of the requests are for a tenth of the objects, so that all queues have traffic.
            let range = if rng.below(2) == 0 {
                objects
            } else {
                objects.div_ceil(10)
            };
            let object = rng.below(range) as u32;
            assert_eq!(
                policy.access(object, 1),
                plain.access(object),
                "seed {seed}, step {step}, capacity {capacity}"
            );
        }
    }
}

#[test]
fn policies_survive_any_weights() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let objects = 1 + rng.below(100);
        let capacity = 1 + rng.below(1000);
        let weights: Vec<u64> = (0..objects)
            .map(|_| rng.below(1 + rng.clone().below(400)))
            .collect();
        for settings in [
            PAPER,
            FILL,
            S3FifoSettings {
                promote_at: 1,
                fill_main_first: true,
            },
        ] {
            let mut policy = S3Fifo::new(capacity, objects as usize, settings);
            for _ in 0..2000 {
                let object = rng.below(objects);
                policy.access(object as u32, weights[object as usize]);
            }
        }
    }
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
