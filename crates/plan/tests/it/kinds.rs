// SPDX-License-Identifier: Apache-2.0
//! Kinds of requests to plan for. The lab's tests include this file by its path.

use senko_plan::requests::{Act, Requests};
use senko_workload::Rng;
use senko_workload::zipf::Zipf;

/// Look-ups by Zipf's law over objects in random order.
pub fn zipf(exponent: f64, objects: u64, requests: usize) -> Vec<u32> {
    let law = Zipf::new(objects, exponent).unwrap();
    let mut rng = Rng::new(objects);
    let mut order: Vec<u32> = (0..objects as u32).collect();
    for at in 1..order.len() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    (0..requests)
        .map(|_| order[law.draw(&mut rng) as usize])
        .collect()
}

pub fn sized(objects: Vec<u32>, size: impl Fn(u64) -> u64) -> Requests {
    let all = objects.iter().max().map_or(0, |most| u64::from(*most) + 1);
    Requests::of_lookups(objects, Some((0..all).map(size).collect()))
}

/// What each look-up leads to: itself and other requests.
pub fn acting(objects: Vec<u32>, acts: impl Fn(usize) -> &'static [Act]) -> Requests {
    let pairs = objects.iter().enumerate();
    let pairs = pairs.flat_map(|(nth, object)| acts(nth).iter().map(|act| (*object, *act)));
    let (objects, acts): (Vec<u32>, Vec<Act>) = pairs.unzip();
    let lookups = acts
        .iter()
        .filter(|act| matches!(act, Act::Get | Act::GetThenSet));
    Requests {
        lookups: lookups.count() as f64,
        acts,
        ..Requests::of_lookups(objects, None)
    }
}
