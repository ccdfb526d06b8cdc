// SPDX-License-Identifier: Apache-2.0
//! The histogram against sorted numbers.

use senko_workload::{Histogram, Rng};

#[test]
fn quantiles_are_within_half_a_percent_of_the_sorted_numbers() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let mut whole = Histogram::new();
        let mut parts = [Histogram::new(), Histogram::new()];
        let mut numbers: Vec<u64> = (0..50_000)
            .map(|_| rng.next_u64() >> rng.below(64))
            .collect();
        for (i, &number) in numbers.iter().enumerate() {
            whole.record(number);
            parts[i % 2].record(number);
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        numbers.sort_unstable();
        for histogram in [&whole, &merged] {
            assert_eq!(histogram.len(), 50_000);
            assert_eq!(
                (histogram.min(), histogram.max()),
                (numbers[0], numbers[49_999])
            );
            let mean = numbers.iter().map(|&n| n as f64).sum::<f64>() / 50_000.0;
            assert!((histogram.mean() / mean - 1.0).abs() < 1e-9);
            for q in [
                0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1.0,
            ] {
                let rank = ((q * 50_000.0f64).ceil() as usize).clamp(1, 50_000);
                let (given, right) = (histogram.quantile(q) as f64, numbers[rank - 1] as f64);
                assert!(
                    (given - right).abs() <= right * 0.005,
                    "seed {seed}, q {q}: {given} for {right}"
                );
            }
            assert_eq!(
                histogram.buckets().map(|(_, _, count)| count).sum::<u64>(),
                50_000
            );
        }
    }
}

#[test]
fn every_number_falls_into_its_bucket_and_buckets_adjoin() {
    let edges = (0..64).flat_map(|bit| {
        let power = 1u64 << bit;
        [
            power - 1,
            power,
            power + 1,
            power | power >> 1,
            power | power >> 7,
            (power | (power - 1)),
        ]
    });
    for number in edges.chain(0..5000).chain([u64::MAX, u64::MAX - 1]) {
        let mut histogram = Histogram::new();
        histogram.record(number);
        let (low, high, count) = histogram.buckets().next().unwrap();
        assert!(
            low <= number && number <= high && count == 1,
            "{number} in {low}..={high}"
        );
        assert!(high - low <= number / 128, "{number} in {low}..={high}");
        assert_eq!(histogram.quantile(0.5), number);
    }
    let mut histogram = Histogram::new();
    (0..100_000).for_each(|number| histogram.record(number));
    let mut next = 0;
    for (low, high, count) in histogram.buckets() {
        assert_eq!(low, next);
        assert!(count == high - low + 1 || high >= 99_999);
        next = high + 1;
    }
}

#[test]
fn empty_and_cleared_histograms_say_zero() {
    let mut histogram = Histogram::default();
    histogram.record_n(5, 0);
    for _ in 0..2 {
        assert!(histogram.is_empty());
        assert_eq!(
            (
                histogram.min(),
                histogram.max(),
                histogram.quantile(0.5),
                histogram.len()
            ),
            (0, 0, 0, 0)
        );
        assert_eq!(histogram.mean(), 0.0);
        histogram.record_n(9, 3);
        assert_eq!(
            (histogram.min(), histogram.max(), histogram.len()),
            (9, 9, 3)
        );
        histogram.clear();
    }
}
