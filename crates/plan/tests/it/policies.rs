// SPDX-License-Identifier: Apache-2.0
//! The policy models, compared with slow models with lists.

use senko_plan::policies::{Lru, Policy, S3Fifo, S3FifoSettings};
use senko_workload::Rng;

const PAPER: S3FifoSettings = S3FifoSettings {
    promote_at: 2,
    fill_main_first: false,
};

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
        for (promote_at, fill_main_first) in [(2, false), (2, true), (1, true)] {
            let settings = S3FifoSettings {
                promote_at,
                fill_main_first,
            };
            let mut policy = S3Fifo::new(capacity, objects as usize, settings);
            for _ in 0..2000 {
                let object = rng.below(objects);
                policy.access(object as u32, weights[object as usize]);
            }
        }
    }
}
