// SPDX-License-Identifier: Apache-2.0
//! Real-valued distributions by inverse transform: a uniform number through the inverse of the
//! distribution function.
//!
//! [`crate::etc`] and [`crate::arrival`] are built from these. Each has the uniform number as an
//! argument. The number can come from a generator (a fresh draw) or from a key's hash (a property
//! of that key).

/// Generalized extreme value distribution: location `mu`, scale `sigma` > 0, shape `xi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneralizedExtremeValue {
    pub mu: f64,
    pub sigma: f64,
    /// Shape; 0 is Gumbel's distribution.
    pub xi: f64,
}

impl GeneralizedExtremeValue {
    /// The quantile of `u` in (0, 1).
    #[inline]
    pub fn quantile(&self, u: f64) -> f64 {
        let log = -u.ln();
        if self.xi == 0.0 {
            self.mu - self.sigma * log.ln()
        } else {
            self.mu + self.sigma * (log.powf(-self.xi) - 1.0) / self.xi
        }
    }

    /// The probability of a value at or below `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        let z = (x - self.mu) / self.sigma;
        if self.xi == 0.0 {
            return (-(-z).exp()).exp();
        }
        let base = 1.0 + self.xi * z;
        if base <= 0.0 {
            return if self.xi > 0.0 { 0.0 } else { 1.0 };
        }
        (-base.powf(-1.0 / self.xi)).exp()
    }
}

/// Generalized Pareto distribution: location `theta`, scale `sigma` > 0, shape `xi`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneralizedPareto {
    /// Location: the smallest value.
    pub theta: f64,
    pub sigma: f64,
    /// Shape; 0 is the exponential distribution. With 1 and above there is no mean.
    pub xi: f64,
}

impl GeneralizedPareto {
    /// The quantile of `u` in (0, 1).
    #[inline]
    pub fn quantile(&self, u: f64) -> f64 {
        let log = (-u).ln_1p();
        if self.xi == 0.0 {
            self.theta - self.sigma * log
        } else {
            self.theta + self.sigma * (-self.xi * log).exp_m1() / self.xi
        }
    }

    /// The probability of a value at or below `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        let z = (x - self.theta) / self.sigma;
        if z <= 0.0 {
            return 0.0;
        }
        if self.xi == 0.0 {
            return -(-z).exp_m1();
        }
        let base = 1.0 + self.xi * z;
        if base <= 0.0 {
            1.0
        } else {
            1.0 - base.powf(-1.0 / self.xi)
        }
    }

    /// The mean, if it exists (`xi` < 1).
    pub fn mean(&self) -> Option<f64> {
        (self.xi < 1.0).then(|| self.theta + self.sigma / (1.0 - self.xi))
    }
}
