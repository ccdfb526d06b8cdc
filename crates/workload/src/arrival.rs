// SPDX-License-Identifier: Apache-2.0
//! When the next request is due: the gaps of an open loop.
//!
//! An open-loop load generator draws due times here before the run, and never from the server's
//! answers. So a slow server meets the same demand as a fast one, and latency counts from the due
//! time (no coordinated omission).

use crate::continuous::GeneralizedPareto;
use crate::{Rng, SpecError, etc};

/// The law of the gaps between requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    law: Law,
    mean_ns: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Law {
    Even,
    /// With shape 0: exponential.
    Poisson(GeneralizedPareto),
    Etc {
        gap_us: GeneralizedPareto,
        scale: f64,
    },
}

impl Arrivals {
    /// Equal gaps, for `rate` requests a second.
    ///
    /// # Errors
    /// If `rate` is not a positive finite number.
    pub fn even(rate: f64) -> Result<Self, SpecError> {
        Ok(Self {
            law: Law::Even,
            mean_ns: mean_gap_ns(rate)?,
        })
    }

    /// Exponential gaps (independent users), for `rate` requests a second on average.
    ///
    /// # Errors
    /// If `rate` is not a positive finite number.
    pub fn poisson(rate: f64) -> Result<Self, SpecError> {
        let mean_ns = mean_gap_ns(rate)?;
        let exponential = GeneralizedPareto {
            theta: 0.0,
            sigma: mean_ns,
            xi: 0.0,
        };
        Ok(Self {
            law: Law::Poisson(exponential),
            mean_ns,
        })
    }

    /// The gaps of Facebook's ETC pool: at their own rate (about 52,700 a second) with `None`,
    /// otherwise stretched to `rate`.
    ///
    /// # Errors
    /// If `rate` is not a positive finite number.
    pub fn etc(rate: Option<f64>) -> Result<Self, SpecError> {
        let own_mean_ns = etc::GAP_US
            .mean()
            .expect("the shape of the ETC gaps is below 1, so they have a mean")
            * 1e3;
        let mean_ns = rate.map_or(Ok(own_mean_ns), mean_gap_ns)?;
        let scale = mean_ns / own_mean_ns;
        Ok(Self {
            law: Law::Etc {
                gap_us: etc::GAP_US,
                scale,
            },
            mean_ns,
        })
    }

    pub fn mean_ns(&self) -> f64 {
        self.mean_ns
    }

    /// Draws a gap in nanoseconds. It is not rounded, because summed rounding would change the
    /// rate.
    #[inline]
    pub fn draw_ns(&self, rng: &mut Rng) -> f64 {
        match &self.law {
            Law::Even => self.mean_ns,
            Law::Poisson(law) => law.quantile(rng.next_f64()),
            Law::Etc { gap_us, scale } => gap_us.quantile(rng.next_f64()) * 1e3 * scale,
        }
    }
}

fn mean_gap_ns(rate: f64) -> Result<f64, SpecError> {
    if rate.is_finite() && rate > 0.0 {
        Ok(1e9 / rate)
    } else {
        Err(SpecError::new(format!(
            "a request rate must be a positive number, and {rate} is not"
        )))
    }
}
