// SPDX-License-Identifier: Apache-2.0
//! The amount of work of a model test.

/// The rounds of a model test: `rounds`, multiplied by `SENKO_TEST_FACTOR` if that is set, and at
/// least one.
///
/// # Panics
/// If `SENKO_TEST_FACTOR` is not a number.
///
/// ```
/// assert!(senko_workload::rounds(1) >= 1);
/// ```
pub fn rounds(rounds: u64) -> u64 {
    let factor = std::env::var("SENKO_TEST_FACTOR").map_or(1.0, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("SENKO_TEST_FACTOR={text} is not a number"))
    });
    ((rounds as f64 * factor).ceil() as u64).max(1)
}
