// SPDX-License-Identifier: Apache-2.0
//! Zipf's law over ranks `0..n`: rank `r` has a probability proportional to `(r + 1)^-s`.
//!
//! [`crate::popularity`] draws ranks here and turns them into key numbers.

use crate::{Rng, SpecError};

/// The largest number of ranks, 2^40: up to there the rounding of `H` in `f64` stays under a
/// hundredth of a rank's bar.
pub const MAX_RANKS: u64 = 1 << 40;
/// The largest exponent accepted. With a larger one nearly every draw is rank 0, so the setting is
/// a mistake.
pub const MAX_EXPONENT: f64 = 5.0;

/// Zipf's law by rejection-inversion.
///
/// Idea: the histogram of `k^-s` lies under the curve `x^-s`, whose integral `H` has a closed
/// inverse. Draw `u` uniformly over the range of `H`, invert, and round to the nearest rank. Accept
/// if `u` falls inside the rank's bar; a precomputed width (`squeeze`) accepts most draws without
/// further work. Fewer than 1.2 draws are needed on average for any `n` and `s`. Source: Hörmann
/// and Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions",
/// ACM TOMACS 6(3), 1996. It is exact (unlike the approximation of Gray et al. that YCSB uses) and
/// O(1) in time and memory. `n` can grow at the cost of one evaluation of `H`. Deviation: `H` and
/// its inverse are written with `expm1(t)/t` and `ln1p(t)/t`, so that `s` = 1 and its neighbourhood
/// need no special case.
#[derive(Clone, Debug)]
pub struct Zipf {
    ranks: u64,
    exponent: f64,
    h_first: f64,
    h_last: f64,
    squeeze: f64,
}

impl Zipf {
    /// Zipf's law over `ranks` ranks with exponent `exponent` (0 is uniform; YCSB's "zipfian" is
    /// 0.99).
    ///
    /// # Errors
    /// If `ranks` is 0 or above [`MAX_RANKS`], or `exponent` is not in `0..=MAX_EXPONENT`.
    pub fn new(ranks: u64, exponent: f64) -> Result<Self, SpecError> {
        check_ranks(ranks)?;
        if !(0.0..=MAX_EXPONENT).contains(&exponent) {
            return Err(SpecError::new(format!(
                "Zipf's exponent must lie between 0 and {MAX_EXPONENT}, and {exponent} does not"
            )));
        }
        let mut zipf = Self {
            ranks,
            exponent,
            h_first: 0.0,
            h_last: 0.0,
            squeeze: 0.0,
        };
        zipf.h_first = zipf.integral(1.5) - 1.0;
        zipf.h_last = zipf.integral(ranks as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse_integral(zipf.integral(2.5) - zipf.density(2.0));
        Ok(zipf)
    }

    /// Changes the number of ranks, for a key space that grows.
    ///
    /// # Errors
    /// If `ranks` is 0 or above [`MAX_RANKS`].
    pub fn set_ranks(&mut self, ranks: u64) -> Result<(), SpecError> {
        check_ranks(ranks)?;
        self.ranks = ranks;
        self.h_last = self.integral(ranks as f64 + 0.5);
        Ok(())
    }

    /// Draws a rank in `0..ranks`; 0 is the most popular.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.h_last + rng.next_f64() * (self.h_first - self.h_last);
            let x = self.inverse_integral(u);
            let k = ((x + 0.5) as u64).clamp(1, self.ranks);
            let rank = k as f64;
            if rank - x <= self.squeeze || u >= self.integral(rank + 0.5) - self.density(rank) {
                return k - 1;
            }
        }
    }

    /// `x^-s`.
    #[inline]
    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// `H(x) = (x^(1-s) - 1) / (1-s)`, `ln x` at `s` = 1.
    #[inline]
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.exponent) * log) * log
    }

    /// The inverse of [`Self::integral`].
    #[inline]
    fn inverse_integral(&self, y: f64) -> f64 {
        // Rounding may bring the product just below -1, where the logarithm is not defined.
        let t = (y * (1.0 - self.exponent)).max(-1.0);
        (ln1p_over(t) * y).exp()
    }
}

fn check_ranks(ranks: u64) -> Result<(), SpecError> {
    if (1..=MAX_RANKS).contains(&ranks) {
        Ok(())
    } else {
        Err(SpecError::new(format!(
            "a key space needs between 1 and {MAX_RANKS} keys, and {ranks} is outside"
        )))
    }
}

/// `expm1(t) / t`, continued to 1 at 0.
#[inline]
fn expm1_over(t: f64) -> f64 {
    if t.abs() > 1e-8 {
        t.exp_m1() / t
    } else {
        1.0 + t * 0.5 * (1.0 + t / 3.0)
    }
}

/// `ln(1 + t) / t`, continued to 1 at 0.
#[inline]
fn ln1p_over(t: f64) -> f64 {
    if t.abs() > 1e-8 {
        t.ln_1p() / t
    } else {
        1.0 - t * (0.5 - t / 3.0)
    }
}
