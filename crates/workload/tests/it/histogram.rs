// SPDX-License-Identifier: Apache-2.0
//! The histogram compared with sorted numbers.

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
        let ends = |histogram: &Histogram| (histogram.min(), histogram.max(), histogram.len());
        assert_eq!(ends(&histogram), (0, 0, 0));
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (0, 0.0));
        histogram.record_n(9, 3);
        assert_eq!(ends(&histogram), (9, 9, 3));
        histogram.clear();
    }
}

/// The format that HdrHistogram's plotters read: percentiles that rise to 1, values and counts that
/// never fall.
#[test]
fn percentiles_in_hdrhistograms_text_form() {
    let mut histogram = Histogram::new();
    (1..=1000).for_each(|us| histogram.record(us * 1000));
    let text = histogram.percentiles(1e3);
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("       Value     Percentile TotalCount 1/(1-Percentile)")
    );
    assert_eq!(lines.next(), Some(""));
    let rows: Vec<Vec<f64>> = lines
        .by_ref()
        .take_while(|line| !line.starts_with("#[Mean"))
        .map(|line| {
            let words = line.split_whitespace();
            words.map(|word| word.parse().expect("a number")).collect()
        })
        .collect();
    assert!(rows.len() > 20, "{text}");
    for pair in rows.windows(2) {
        assert!(
            (0..3).all(|column| pair[0][column] <= pair[1][column]),
            "{pair:?}"
        );
    }
    assert_eq!(rows[rows.len() - 1][..3], [1000.0, 1.0, 1000.0]);
    let median = rows.iter().find(|row| row[1] == 0.5).expect("there is one");
    assert!(
        (median[0] - 500.0).abs() < 5.0 && median[3] == 2.0,
        "{median:?}"
    );
    assert!(
        text.contains("#[Max     =     1000.000, Total count    =         1000]"),
        "{text}"
    );
    let empty = Histogram::new().percentiles(1.0);
    assert!(empty.contains("Total count    =            0]"), "{empty}");
}
