// SPDX-License-Identifier: Apache-2.0
//! Facebook's ETC pool: the sizes of keys and values and the gaps between requests, as fitted to
//! production.
//!
//! [`crate::key`], [`crate::value`] and [`crate::arrival`] use it where the setting says `etc`.
//! Sizes are properties of the key number, so a load phase, a read phase and a checker in another
//! process agree on them without sharing anything.
//!
//! Card. Idea: three closed forms and a table. Source: Atikoglu, Xu, Frachtenberg, Jiang and
//! Paleczny, "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS 2012, section 5.
//! Popularity is not part of the fit; combine with Zipf.
//!
//! Deviations: a key size is rounded to the nearest byte and clamped to 1..=250, memcached's
//! limits. The unclamped law exceeds them less than once in a million keys. A value size of the
//! Pareto part is rounded down, so that it starts at 15, where the table ends. It may be capped,
//! because the law has no upper bound.

use crate::continuous::{GeneralizedExtremeValue, GeneralizedPareto};
use crate::rng::{mix64, unit_interval};

/// Key sizes in bytes, before rounding and clamping.
pub const KEY_SIZE: GeneralizedExtremeValue = GeneralizedExtremeValue {
    mu: 30.7984,
    sigma: 8.20449,
    xi: 0.078688,
};

/// The probabilities of value sizes 0 to 14 bytes.
pub const SMALL_VALUES: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
    0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
];

/// Value sizes of 15 bytes and more, with the probability that remains from [`SMALL_VALUES`].
pub const LARGE_VALUES: GeneralizedPareto = GeneralizedPareto {
    theta: 15.0,
    sigma: 214.476,
    xi: 0.348238,
};

/// Gaps between requests, in microseconds: about 52,700 requests a second.
pub const GAP_US: GeneralizedPareto = GeneralizedPareto {
    theta: 0.0,
    sigma: 16.0292,
    xi: 0.154971,
};

/// The shortest and the longest key, in bytes.
pub const KEY_LIMITS: (usize, usize) = (1, 250);

const KEY_SALT: u64 = 0x6B65_7973_697A_6500;
const VALUE_SALT: u64 = 0x7661_6C73_697A_6500;

/// Size in bytes of a key for the uniform number `u` in (0, 1).
#[inline]
pub fn key_len_at(u: f64) -> usize {
    KEY_SIZE
        .quantile(u)
        .round()
        .clamp(KEY_LIMITS.0 as f64, KEY_LIMITS.1 as f64) as usize
}

/// Size in bytes of a value for the uniform number `u` in (0, 1), at most `cap`.
#[inline]
pub fn value_len_at(u: f64, cap: usize) -> usize {
    let mut below = 0.0;
    for (size, probability) in SMALL_VALUES.iter().enumerate() {
        below += probability;
        if u < below {
            return size.min(cap);
        }
    }
    let rest = ((u - below) / (1.0 - below)).min(1.0 - f64::EPSILON);
    (LARGE_VALUES.quantile(rest) as usize).min(cap)
}

/// The size of key number `key_id`, in bytes.
#[inline]
pub fn key_len(key_id: u64) -> usize {
    key_len_at(unit_interval(mix64(key_id ^ KEY_SALT)))
}

/// The size of value `version` of key number `key_id`, in bytes, at most `cap`. Versions differ in
/// size. A caller that wants the same size for all values of a key always passes the same version.
#[inline]
pub fn value_len(key_id: u64, version: u32, cap: usize) -> usize {
    value_len_at(
        unit_interval(mix64(mix64(key_id ^ VALUE_SALT) ^ u64::from(version))),
        cap,
    )
}
