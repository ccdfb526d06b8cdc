// SPDX-License-Identifier: Apache-2.0
//! Generated loads: the shares, addresses, sizes and times that were requested, and the same ones
//! for the same seed.

use senko_ssd::generate::{Arrival, Generator, Pattern, Phase};

use crate::util::*;

fn generate(text: &str) -> Vec<Request> {
    let generator: Generator = text.parse().unwrap_or_else(|error| panic!("{error}"));
    generator.collect()
}

fn share(requests: &[Request], which: impl Fn(&Request) -> bool) -> f64 {
    requests.iter().filter(|request| which(request)).count() as f64 / requests.len() as f64
}

fn share_of(requests: &[Request], op: Op) -> f64 {
    share(requests, |request| request.op == op)
}

fn near(found: f64, expected: f64, by: f64) {
    assert!(
        (found - expected).abs() <= by,
        "{found} is not near {expected}"
    );
}

#[test]
fn the_same_text_gives_the_same_requests() {
    let text = "zipf:theta=0.9,count=5e3,writes=0.5,rate=1000/hotcold:count=5e3,seed=7";
    assert_eq!(generate(text), generate(text));
    assert_ne!(
        generate("uniform:count=100"),
        generate("uniform:count=100,seed=2")
    );
    // Phases of one seed do not repeat each other.
    let twice = generate("uniform:count=100/uniform:count=100");
    assert_ne!(twice[..100], twice[100..]);
}

#[test]
fn uniform() {
    let requests = generate("uniform:pages=1000,count=2e5,writes=0.3,trims=0.1");
    assert_eq!(requests.len(), 200_000);
    let mut hits = vec![0u32; 1000];
    for request in &requests {
        assert_eq!(request.bytes, 4096);
        assert_eq!(request.offset % 4096, 0);
        assert_eq!(request.time, 0);
        hits[(request.offset / 4096) as usize] += 1;
    }
    // 200 each on average; a deviation of 7 standard deviations does not happen.
    assert!(
        hits.iter().all(|&hits| (100..300).contains(&hits)),
        "{hits:?}"
    );
    near(share_of(&requests, Op::Write), 0.3, 0.01);
    near(share_of(&requests, Op::Trim), 0.1, 0.01);
}

#[test]
fn sequential_wraps() {
    let requests = generate("seq:pages=10,start=100,size=12k,count=5");
    let pages: Vec<u64> = requests
        .iter()
        .map(|request| request.offset / 4096)
        .collect();
    assert_eq!(pages, [100, 103, 106, 100, 103]);
    assert!(requests.iter().all(|request| request.op == Op::Write));
}

#[test]
fn zipf_and_hot_cold() {
    let first = |pages: u64| move |request: &Request| request.offset < pages * 4096;
    let requests = generate("zipf:theta=1,pages=1000,scatter=0,count=1e5");
    // The first page has 1 / H(1000) of all.
    near(share(&requests, first(1)), 1.0 / 7.4855, 0.005);
    let scattered = generate("zipf:theta=1,pages=1000,count=1e5");
    assert!(share(&scattered, first(1)) < 0.1);
    let requests = generate("hotcold:r=0.8,f=0.2,pages=1000,count=1e5");
    near(share(&requests, first(200)), 0.8, 0.01);
    near(share(&requests, first(100)), 0.4, 0.01);
}

#[test]
fn streams() {
    let requests = generate("hotcold:r=0.5,f=0.1,pages=1000,count=1e4,stream=3,split=1");
    let hot = |request: &Request| request.offset < 100 * 4096;
    assert!(
        requests
            .iter()
            .all(|request| request.stream == if hot(request) { 3 } else { 4 })
    );
    assert!(
        generate("seq:count=5,stream=2")
            .iter()
            .all(|request| request.stream == 2)
    );
}

#[test]
fn sizes_stay_inside() {
    let inside = |request: &Request| request.offset + request.bytes <= 65_536;
    let requests = generate("uniform:pages=16,size=4k*3+64k*1,count=1e4,page=4k");
    let large = |request: &Request| request.bytes == 65_536;
    near(share(&requests, large), 0.25, 0.02);
    assert!(requests.iter().all(inside));
    let requests = generate("zipf:pages=16,size=20k,count=1e3");
    assert!(requests.iter().all(inside));
}

#[test]
fn arrivals() {
    let requests = generate("uniform:count=1e5,rate=1e5");
    let last = requests[requests.len() - 1].time as f64;
    near(last / 1e9, 1.0, 0.02);
    assert!(requests.is_sorted_by_key(|request| request.time));
    let even = generate("uniform:count=3e3,rate=3000,gaps=even");
    assert_eq!(even[2999].time / 1000, 999_999);
    // A closed phase starts where the one before ended.
    let phases = generate("uniform:count=10,rate=1000,gaps=even/uniform:count=5");
    assert!(
        phases[10..]
            .iter()
            .all(|request| request.time == phases[9].time)
    );
}

#[test]
fn flushes_come_on_top() {
    let requests = generate("seq:count=7,flush=3");
    let ops: Vec<bool> = requests
        .iter()
        .map(|request| request.op == Op::Flush)
        .collect();
    assert_eq!(
        ops,
        [false, false, false, true, false, false, false, true, false]
    );
}

#[test]
fn in_code() {
    let mut phase = Phase::new(Pattern::Uniform, 100, 10);
    phase.arrival = Arrival::Even(1e9);
    let mut generator = Generator::new(vec![phase]).expect("a phase");
    assert_eq!(generator.remaining(), 10);
    assert_eq!(generator.next().map(|request| request.time), Some(1));
    assert_eq!(generator.remaining(), 9);
}

#[test]
fn what_is_impossible_is_told() {
    for (text, why) in [
        ("unifrom", "is not a generator"),
        ("uniform:pages=0", "at least one page"),
        ("uniform:theta=1", "no option theta"),
        ("uniform:count=1.5", "not a whole number"),
        ("uniform:writes=0.9,trims=0.2", "between 0 and 1"),
        ("uniform:size=8k,pages=1", "is not possible"),
        ("uniform:rate=-1", "a request rate"),
        ("uniform:rate=5,gaps=odd", "poisson or even"),
        ("zipf:theta=77", "exponent"),
        ("hotcold:f=0", "no hot or no cold"),
        ("hotcold:r=nan", "no hot or no cold"),
        ("uniform:writes=nan", "between 0 and 1"),
        ("uniform:pages=1e15,page=1t", "2^64"),
    ] {
        let error = text.parse::<Generator>().err().expect(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
