// SPDX-License-Identifier: Apache-2.0
//! Closed forms of write amplification for uniform random writes. Tests compare the page-level
//! layer with them.
//!
//! Idea: under uniform random writes every valid page is as likely to be overwritten as any other.
//! So a block's valid pages decay exponentially from its closing to its collection. The balance of
//! pages written and freed has one solution. Source: Desnoyers, "Analytic models of SSD write
//! performance", ACM Transactions on Storage 10(2), 2014 (first at SYSTOR 2012). Deviation: none in
//! the formulas. `alpha` is the ratio of flash pages that can hold data to logical pages. In a
//! simulation these are the pages of all blocks except the reserve of collection, because the
//! reserve holds no data when a victim is chosen.

/// `w * e^w = x` for `w >= -1`: the principal branch of Lambert's function. It is NaN below -1/e.
fn lambert_w0(x: f64) -> f64 {
    // Near the branch point Halley's steps start from a series in sqrt(2(ex + 1)), elsewhere from
    // logarithms. Both are close enough to converge.
    let mut w = if x < -0.25 {
        let p = (2.0 * (std::f64::consts::E * x + 1.0)).max(0.0).sqrt();
        -1.0 + p - p * p / 3.0
    } else if x < 3.0 {
        x.ln_1p() * 0.7
    } else {
        x.ln() - x.ln().ln()
    };
    let branch_point = -(-1.0f64).exp();
    if x.is_nan() || x < branch_point - 1e-15 {
        return f64::NAN;
    }
    if x <= branch_point {
        return -1.0;
    }
    for _ in 0..64 {
        let e = w.exp();
        let f = w * e - x;
        let slope = e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0);
        let step = f / slope;
        if !step.is_finite() {
            break;
        }
        w -= step;
        if step.abs() <= 1e-15 * w.abs() {
            break;
        }
    }
    w
}

/// Write amplification under greedy collection: blocks of `pages` pages, `alpha` physical for each
/// logical page.
///
/// `A = N / (N - X0 + 1)`, `X0 = 1/2 - (N/alpha) W0(-k alpha e^(-k alpha))`, `k = 1 + 1/(2N)`.
pub fn greedy_write_amplification(alpha: f64, pages: u32) -> f64 {
    let n = f64::from(pages);
    let k = 1.0 + 1.0 / (2.0 * n);
    let x0 = 0.5 - n / alpha * lambert_w0(-k * alpha * (-k * alpha).exp());
    n / (n - x0 + 1.0)
}

/// Write amplification if the block that was filled first is collected first (in Desnoyers' paper:
/// LRU).
///
/// `A = alpha / (alpha + W0(-alpha e^(-alpha)))`.
pub fn fifo_write_amplification(alpha: f64) -> f64 {
    alpha / (alpha + lambert_w0(-alpha * (-alpha).exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lambert_inverts_its_branch() {
        let branch_point = -(-1.0f64).exp();
        for step in 1..2000 {
            let w = -1.0 + f64::from(step) * 0.01;
            let x = w * w.exp();
            assert!((lambert_w0(x) - w).abs() < 1e-9, "W0({x}) is {w}");
        }
        assert_eq!(lambert_w0(0.0), 0.0);
        assert!((lambert_w0(1.0) - 0.567_143_290_409_783_8).abs() < 1e-15);
        assert_eq!(lambert_w0(branch_point), -1.0);
        assert!(lambert_w0(-0.4).is_nan());
    }

    /// Values from the literature, with the digits published there.
    #[test]
    fn known_write_amplifications() {
        let known = [
            (1.10, 5.24, 5.45, 5.68),
            (1.28, 2.40, 2.44, 2.48),
            (1.50, 1.68, 1.70, 1.72),
        ];
        for (alpha, greedy_64, greedy_128, fifo) in known {
            let near = |computed: f64, known: f64| (computed - known).abs() <= 0.005 + 1e-9;
            assert!(near(greedy_write_amplification(alpha, 64), greedy_64));
            assert!(near(greedy_write_amplification(alpha, 128), greedy_128));
            assert!(near(fifo_write_amplification(alpha), fifo));
        }
    }
}
