// SPDX-License-Identifier: Apache-2.0
//! Each law compared with its closed form, with fixed seeds. The bounds are loose enough (five or
//! more standard deviations) for a correct implementation to pass with any seed. The samples are
//! large enough for a wrong one to fail.

use std::collections::HashSet;

use senko_workload::continuous::{GeneralizedExtremeValue, GeneralizedPareto};
use senko_workload::permutation::Permutation;
use senko_workload::zipf::{MAX_RANKS, Zipf};
use senko_workload::{Arrivals, KeyChooser, Mix, Op, Popularity, Rng, etc};

const SEED: u64 = 20_240_229;

/// Pearson's chi-square, as standard deviations above its expectation. Cells expected under 10
/// times are pooled.
fn chi_square_sigmas(counts: &[u64], probabilities: &[f64]) -> f64 {
    assert_eq!(counts.len(), probabilities.len());
    let total: u64 = counts.iter().sum();
    let (mut chi, mut cells) = (0.0, 0);
    let (mut pooled_seen, mut pooled_expected) = (0.0, 0.0);
    for (&seen, &probability) in counts.iter().zip(probabilities) {
        pooled_seen += seen as f64;
        pooled_expected += probability * total as f64;
        if pooled_expected >= 10.0 {
            chi += (pooled_seen - pooled_expected).powi(2) / pooled_expected;
            cells += 1;
            (pooled_seen, pooled_expected) = (0.0, 0.0);
        }
    }
    assert!(
        pooled_seen < 60.0,
        "{pooled_seen} draws fell where {pooled_expected} were expected"
    );
    let freedom = f64::from(cells - 1).max(1.0);
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// Kolmogorov and Smirnov's distance times the root of the sample size; above 2.0 in fewer than 1
/// of 1,000 correct samples.
fn ks_statistic(mut sample: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = sample
        .iter()
        .enumerate()
        .map(|(i, &x)| {
            let at = cdf(x);
            (at - i as f64 / n)
                .abs()
                .max((at - (i + 1) as f64 / n).abs())
        })
        .fold(0.0, f64::max);
    distance * n.sqrt()
}

fn zipf_probabilities(n: u64, s: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-s)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[test]
fn rng_sequence_is_pinned() {
    // Recorded results name seeds, so the sequence may not change between versions. These are the
    // first outputs of the authors' code when its state is seeded, as they advise, with SplitMix64
    // from 0.
    let mut rng = Rng::new(0);
    let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
    assert_eq!(
        first,
        [
            5_987_356_902_031_041_503,
            7_051_070_477_665_621_255,
            6_633_766_593_972_829_180
        ]
    );
    assert_eq!(senko_workload::rng::mix64(0), 0xE220_A839_7B1D_CDAF);
}

#[test]
fn rng_below_is_uniform_and_in_range() {
    let mut rng = Rng::new(SEED);
    for bound in [1, 2, 3, 7, 10, 1000] {
        let mut counts = vec![0; bound as usize];
        for _ in 0..100_000 {
            counts[rng.below(bound) as usize] += 1;
        }
        if bound > 1 {
            let sigmas = chi_square_sigmas(&counts, &vec![1.0 / bound as f64; bound as usize]);
            assert!(sigmas < 5.0, "bound {bound}: {sigmas} sigmas");
        }
    }
    // A bound for which the plain multiplication would be visibly biased: a third of the range must
    // get a third.
    let bound = 3 << 62;
    let low = (0..30_000).filter(|_| rng.below(bound) < 1 << 62).count();
    assert!((9_500..10_500).contains(&low), "{low} of 30000");
    let mut seen = HashSet::new();
    for stream in 0..1000 {
        assert!(seen.insert(Rng::for_stream(SEED, stream).next_u64()));
    }
}

#[test]
fn unit_interval_is_open() {
    assert!(senko_workload::rng::unit_interval(0) > 0.0);
    assert!(senko_workload::rng::unit_interval(u64::MAX) < 1.0);
}

#[test]
fn zipf_matches_its_law() {
    let mut rng = Rng::new(SEED);
    for n in [1, 2, 10, 1000, 20_000] {
        for s in [
            0.0,
            0.2,
            0.5,
            0.99,
            1.0 - 1e-10,
            1.0,
            1.0 + 1e-7,
            1.2,
            2.0,
            3.0,
        ] {
            let zipf = Zipf::new(n, s).unwrap();
            let mut counts = vec![0; n as usize];
            for _ in 0..200_000 {
                counts[zipf.draw(&mut rng) as usize] += 1;
            }
            let sigmas = chi_square_sigmas(&counts, &zipf_probabilities(n, s));
            assert!(sigmas < 6.0, "n {n}, s {s}: {sigmas} sigmas");
        }
    }
}

#[test]
fn zipf_over_many_ranks_keeps_head_and_tail() {
    let mut rng = Rng::new(SEED);
    for n in [1_000_000_000, MAX_RANKS] {
        for s in [0.0f64, 0.5, 0.99, 1.0, 1.5, 3.0] {
            let zipf = Zipf::new(n, s).unwrap();
            // Euler and Maclaurin's formula gives the sum over the ranks from k on, far more
            // exactly than the test needs.
            let tail = |k: f64| {
                let integral = |x: f64| {
                    if s == 1.0 {
                        x.ln()
                    } else {
                        x.powf(1.0 - s) / (1.0 - s)
                    }
                };
                integral(n as f64) - integral(k)
                    + (k.powf(-s) + (n as f64).powf(-s)) / 2.0
                    + s * k.powf(-s - 1.0) / 12.0
            };
            let head = |k: u64| (1..=k).map(|rank| (rank as f64).powf(-s)).sum::<f64>();
            let sum = head(99) + tail(100.0);
            let draws = 200_000;
            let (mut first, mut hundred, mut half) = (0, 0, 0);
            for _ in 0..draws {
                let rank = zipf.draw(&mut rng);
                assert!(rank < n);
                first += u64::from(rank == 0);
                hundred += u64::from(rank < 100);
                half += u64::from(rank >= n / 2);
            }
            for (seen, p) in [
                (first, 1.0 / sum),
                (hundred, head(100) / sum),
                (half, tail((n / 2 + 1) as f64) / sum),
            ] {
                let expected = p * draws as f64;
                let sigma = (expected * (1.0 - p)).max(0.0).sqrt().max(1.0);
                assert!(
                    (seen as f64 - expected).abs() < 6.0 * sigma,
                    "n {n}, s {s}: {seen} seen, {expected} expected"
                );
            }
        }
    }
}

#[test]
fn zipf_grows_like_a_new_one() {
    let mut grown = Zipf::new(10, 0.99).unwrap();
    grown.set_ranks(5000).unwrap();
    let fresh = Zipf::new(5000, 0.99).unwrap();
    let (mut a, mut b) = (Rng::new(SEED), Rng::new(SEED));
    for _ in 0..10_000 {
        assert_eq!(grown.draw(&mut a), fresh.draw(&mut b));
    }
}

#[test]
fn zipf_refuses_what_it_cannot_do() {
    for (n, s) in [
        (0, 1.0),
        (MAX_RANKS + 1, 1.0),
        (10, -0.1),
        (10, f64::NAN),
        (10, 6.0),
    ] {
        assert!(Zipf::new(n, s).is_err(), "{n} {s}");
    }
}

#[test]
fn permutation_is_a_bijection() {
    for n in (1..70).chain([127, 128, 129, 1000, 65_535, 65_536, 100_003]) {
        for seed in 0..3 {
            let permutation = Permutation::new(n, seed);
            let mut seen = vec![false; n as usize];
            for x in 0..n {
                let y = permutation.apply(x) as usize;
                assert!(!seen[y], "n {n}, seed {seed}: {y} twice");
                seen[y] = true;
            }
        }
    }
    for n in [(1 << 40) + 1, MAX_RANKS, u64::MAX] {
        let permutation = Permutation::new(n, 1);
        let places: HashSet<u64> = (0..10_000).map(|x| permutation.apply(x)).collect();
        assert_eq!(places.len(), 10_000);
        assert!(places.iter().all(|&y| y < n));
    }
}

#[test]
fn permutation_spreads_the_popular_ranks() {
    // The first thousand ranks must fall evenly into a hundred slices of the range, and not next to
    // one another.
    let n = 1_000_000;
    let permutation = Permutation::new(n, 7);
    let mut slices = vec![0; 100];
    let mut places: Vec<u64> = (0..1000).map(|x| permutation.apply(x)).collect();
    for place in &places {
        slices[(place * 100 / n) as usize] += 1;
    }
    let sigmas = chi_square_sigmas(&slices, &[0.01; 100]);
    assert!(sigmas.abs() < 6.0, "{sigmas} sigmas");
    places.sort_unstable();
    let neighbours = places
        .windows(2)
        .filter(|pair| pair[1] - pair[0] == 1)
        .count();
    assert!(neighbours < 20, "{neighbours} of 1000 are neighbours");
}

#[test]
fn continuous_laws_match_their_distribution_functions() {
    let mut rng = Rng::new(SEED);
    let mut sample = |quantile: &dyn Fn(f64) -> f64| -> Vec<f64> {
        (0..50_000).map(|_| quantile(rng.next_f64())).collect()
    };
    for xi in [-0.3, 0.0, 0.078688, 0.5] {
        let law = GeneralizedExtremeValue {
            mu: 30.7984,
            sigma: 8.20449,
            xi,
        };
        let ks = ks_statistic(sample(&|u| law.quantile(u)), |x| law.cdf(x));
        assert!(ks < 2.2, "extreme value, xi {xi}: {ks}");
    }
    for xi in [-0.3, 0.0, 0.154971, 0.348238, 1.5] {
        let law = GeneralizedPareto {
            theta: 15.0,
            sigma: 214.476,
            xi,
        };
        let ks = ks_statistic(sample(&|u| law.quantile(u)), |x| law.cdf(x));
        assert!(ks < 2.2, "Pareto, xi {xi}: {ks}");
    }
    // The closed forms themselves, at points computed by hand.
    let gev = GeneralizedExtremeValue {
        mu: 0.0,
        sigma: 1.0,
        xi: 0.0,
    };
    assert!((gev.cdf(0.0) - (-1.0f64).exp()).abs() < 1e-12);
    let pareto = GeneralizedPareto {
        theta: 0.0,
        sigma: 1.0,
        xi: 1.0,
    };
    assert!((pareto.cdf(1.0) - 0.5).abs() < 1e-12);
    assert_eq!(pareto.mean(), None);
    assert_eq!(
        GeneralizedPareto {
            theta: 1.0,
            sigma: 1.0,
            xi: 0.5
        }
        .mean(),
        Some(3.0)
    );
}

#[test]
fn etc_sizes_match_the_published_fit() {
    let keys = 400_000u64;
    let mut key_counts = vec![0u64; 251];
    let mut value_counts = vec![0u64; 15];
    let mut large = Vec::new();
    for key_id in 0..keys {
        key_counts[etc::key_len(key_id)] += 1;
        match etc::value_len(key_id, 0, usize::MAX) {
            small @ 0..15 => value_counts[small] += 1,
            // Rounded down: the middle of the byte represents it.
            rest => large.push(rest as f64 + (etc_fraction(key_id))),
        }
    }
    let key_probabilities: Vec<f64> = (0..=250)
        .map(|len| {
            let upto = |x: f64| etc::KEY_SIZE.cdf(x);
            match len {
                0 => 0.0,
                1 => upto(1.5),
                250 => 1.0 - upto(249.5),
                _ => upto(f64::from(len) + 0.5) - upto(f64::from(len) - 0.5),
            }
        })
        .collect();
    let sigmas = chi_square_sigmas(&key_counts, &key_probabilities);
    assert!(sigmas < 6.0, "key sizes: {sigmas} sigmas");

    value_counts.push(large.len() as u64);
    let small: f64 = etc::SMALL_VALUES.iter().sum();
    let mut value_probabilities = etc::SMALL_VALUES.to_vec();
    value_probabilities.push(1.0 - small);
    let sigmas = chi_square_sigmas(&value_counts, &value_probabilities);
    assert!(sigmas < 6.0, "small values: {sigmas} sigmas");

    let ks = ks_statistic(large, |x| etc::LARGE_VALUES.cdf(x));
    assert!(ks < 2.5, "large values: {ks}");
}

/// A fixed fraction of a byte for each key undoes the rounding down, for a test of a continuous
/// law.
fn etc_fraction(key_id: u64) -> f64 {
    senko_workload::rng::unit_interval(senko_workload::rng::mix64(!key_id))
}

#[test]
fn etc_sizes_are_properties_of_the_key_and_obey_the_cap() {
    for key_id in 0..20_000 {
        assert_eq!(etc::key_len(key_id), etc::key_len(key_id));
        assert!(etc::value_len(key_id, 3, 100) <= 100);
        assert_eq!(
            etc::value_len(key_id, 3, 100),
            etc::value_len(key_id, 3, usize::MAX).min(100)
        );
    }
    let changes = (0..1000)
        .filter(|&key_id| etc::value_len(key_id, 0, 4096) != etc::value_len(key_id, 1, 4096))
        .count();
    assert!(
        changes > 800,
        "versions should differ in size, and only {changes} of 1000 did"
    );
    assert_eq!(etc::key_len_at(1e-300), 1);
    assert_eq!(etc::key_len_at(1.0 - 1e-16), 250);
    assert_eq!(etc::value_len_at(1e-12, 4096), 0);
    assert_eq!(etc::value_len_at(1.0 - 1e-16, 4096), 4096);
}

#[test]
fn arrivals_keep_their_rate() {
    let mut rng = Rng::new(SEED);
    for arrivals in [
        Arrivals::even(10_000.0).unwrap(),
        Arrivals::poisson(10_000.0).unwrap(),
        Arrivals::etc(Some(10_000.0)).unwrap(),
    ] {
        let mean = (0..400_000)
            .map(|_| arrivals.draw_ns(&mut rng))
            .sum::<f64>()
            / 400_000.0;
        assert!(
            (mean / 100_000.0 - 1.0).abs() < 0.02,
            "{arrivals:?}: {mean} ns"
        );
        assert!((arrivals.mean_ns() - 100_000.0).abs() < 1e-6);
    }
    let own = Arrivals::etc(None).unwrap();
    assert!((own.mean_ns() - 18_968.8).abs() < 0.1, "{}", own.mean_ns());
    let gaps: Vec<f64> = (0..50_000).map(|_| own.draw_ns(&mut rng) / 1e3).collect();
    assert!(ks_statistic(gaps, |x| etc::GAP_US.cdf(x)) < 2.2);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(Arrivals::poisson(rate).is_err());
    }
}

fn draw_counts(popularity: &str, keys: u64, draws: u64) -> Vec<u64> {
    let mut chooser = KeyChooser::new(&popularity.parse().unwrap(), keys).unwrap();
    let mut rng = Rng::new(SEED);
    let mut counts = vec![0; keys as usize];
    for _ in 0..draws {
        counts[chooser.next_key(&mut rng) as usize] += 1;
    }
    counts
}

#[test]
fn choosers_follow_their_laws() {
    let probabilities = zipf_probabilities(500, 0.99);
    assert!(chi_square_sigmas(&draw_counts("uniform", 500, 100_000), &[1.0 / 500.0; 500]) < 6.0);
    assert!(chi_square_sigmas(&draw_counts("zipf-ordered", 500, 100_000), &probabilities) < 6.0);
    let latest: Vec<u64> = draw_counts("latest:0.99", 500, 100_000)
        .into_iter()
        .rev()
        .collect();
    assert!(chi_square_sigmas(&latest, &probabilities) < 6.0);

    // Scrambling moves the popularity to other keys and changes nothing else.
    let mut scrambled = draw_counts("zipf", 500, 100_000);
    assert!(chi_square_sigmas(&scrambled, &probabilities) > 100.0);
    scrambled.sort_unstable_by(|a, b| b.cmp(a));
    let top: u64 = scrambled[..50].iter().sum();
    let expected: f64 = probabilities[..50].iter().sum::<f64>() * 100_000.0;
    assert!(
        (top as f64 / expected - 1.0).abs() < 0.02,
        "{top} and {expected}"
    );

    let mut hot = draw_counts("hotcold:0.1:0.9", 500, 100_000);
    hot.sort_unstable_by(|a, b| b.cmp(a));
    let top: u64 = hot[..50].iter().sum();
    assert!((89_000..91_000).contains(&top), "{top}");

    assert_eq!(draw_counts("sequential", 7, 21), [3; 7]);
}

#[test]
fn choosers_grow_as_documented() {
    let mut rng = Rng::new(SEED);
    let mut latest = KeyChooser::new(&"latest".parse().unwrap(), 100).unwrap();
    for keys in 101..=1000 {
        latest.grow(keys).unwrap();
        assert!(latest.next_key(&mut rng) < keys);
    }
    let newest = (0..10_000)
        .filter(|_| latest.next_key(&mut rng) == 999)
        .count();
    assert!(
        (1100..1500).contains(&newest),
        "{newest} of 10000 for the newest of 1000, 1309 expected"
    );
    assert!(latest.grow(10).is_err());

    let mut zipf = KeyChooser::new(&"zipf".parse().unwrap(), 100).unwrap();
    zipf.grow(1000).unwrap();
    assert!((0..10_000).all(|_| zipf.next_key(&mut rng) < 100));

    let mut sequential = KeyChooser::new(&Popularity::Sequential, 10).unwrap();
    sequential.start_at(8);
    let drawn: Vec<u64> = (0..4).map(|_| sequential.next_key(&mut rng)).collect();
    assert_eq!(drawn, [8, 9, 0, 1]);
}

#[test]
fn popularity_reads_what_it_writes() {
    for text in [
        "uniform",
        "zipf:1.2",
        "zipf-ordered:0.5",
        "latest:0.99",
        "hotcold:0.2:0.8",
        "sequential",
    ] {
        let popularity: Popularity = text.parse().unwrap();
        assert_eq!(popularity.to_string(), text);
    }
    for text in [
        "",
        "zipff",
        "zipf:",
        "zipf:x",
        "zipf:1:2",
        "uniform:1",
        "hotcold:0.1",
        "latest:0.9:",
        "hotcold:NaN:0.5",
        "zipf:-1",
    ] {
        assert!(text.parse::<Popularity>().is_err(), "{text}");
    }
    for text in [
        "hotcold:0:0.5",
        "hotcold:1:0.5",
        "hotcold:0.5:1.5",
        "latest:99",
    ] {
        assert!(
            KeyChooser::new(&text.parse().unwrap(), 10).is_err(),
            "{text}"
        );
    }
    assert!(KeyChooser::new(&Popularity::Uniform, 0).is_err());
}

#[test]
fn mixes_draw_their_shares() {
    let mut rng = Rng::new(SEED);
    for (name, shares) in [
        ("a", [0.5, 0.5, 0.0, 0.0]),
        ("B", [0.95, 0.05, 0.0, 0.0]),
        ("ycsb-c", [1.0, 0.0, 0.0, 0.0]),
        ("d", [0.95, 0.0, 0.05, 0.0]),
        ("YCSB-F", [0.5, 0.0, 0.0, 0.5]),
    ] {
        let mix: Mix = name.parse().unwrap();
        let mut counts = [0u64; 4];
        for _ in 0..100_000 {
            counts[mix.draw(&mut rng) as usize] += 1;
        }
        for (op, (count, share)) in [Op::Read, Op::Update, Op::Insert, Op::ReadModifyWrite]
            .into_iter()
            .zip(counts.into_iter().zip(shares))
        {
            assert!((mix.share(op) - share).abs() < 1e-12);
            let sigma = (share * (1.0 - share) * 100_000.0f64).sqrt();
            assert!(
                (count as f64 - share * 100_000.0).abs() <= 6.0 * sigma,
                "{name} {op:?}: {count}"
            );
        }
    }
    assert_eq!(
        "d".parse::<Mix>().unwrap().popularity,
        Popularity::Latest { s: 0.99 }
    );
    assert!("e".parse::<Mix>().unwrap_err().to_string().contains("scan"));
    assert!("g".parse::<Mix>().is_err());
    for shares in [
        [0.5, 0.4, 0.0, 0.0],
        [1.5, -0.5, 0.0, 0.0],
        [f64::NAN, 1.0, 0.0, 0.0],
    ] {
        assert!(
            Mix::new(
                shares[0],
                shares[1],
                shares[2],
                shares[3],
                Popularity::Uniform
            )
            .is_err()
        );
    }
}
