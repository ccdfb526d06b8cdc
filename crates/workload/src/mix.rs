// SPDX-License-Identifier: Apache-2.0
//! Operation mixes: how often a request reads, updates, inserts, or reads and then writes; YCSB's
//! A, B, C, D and F.
//!
//! A load generator draws the operation here and the key from the mix's [`Popularity`].
//!
//! Source of the letters: Cooper, Silberstein, Tam, Ramakrishnan and Sears, "Benchmarking Cloud
//! Serving Systems with YCSB", SoCC 2010, and the core workload files of the YCSB project. E is
//! absent, because it scans and memcached has no scan.

use std::str::FromStr;

use crate::popularity::DEFAULT_EXPONENT;
use crate::{Popularity, Rng, SpecError};

/// One request's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read an existing key.
    Read,
    /// Overwrite an existing key.
    Update,
    /// Write a key that did not exist: the key space grows by one.
    Insert,
    /// Read a key, then overwrite it.
    ReadModifyWrite,
}

/// Shares of the operations, and the popularity of the keys they use.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The popularity of the keys that are read, updated, or read and overwritten.
    pub popularity: Popularity,
    shares: [f64; 4],
    // Cumulative shares in units of 2^-32, so that one draw of 32 bits decides.
    limits: [u64; 3],
}

const OPS: [Op; 4] = [Op::Read, Op::Update, Op::Insert, Op::ReadModifyWrite];

impl Mix {
    /// A mix of the given shares, which add up to 1.
    ///
    /// # Errors
    /// If a share is negative or the sum is not 1 (to a part in a million).
    pub fn new(
        read: f64,
        update: f64,
        insert: f64,
        read_modify_write: f64,
        popularity: Popularity,
    ) -> Result<Self, SpecError> {
        let shares = [read, update, insert, read_modify_write];
        let sum: f64 = shares.iter().sum();
        if shares.iter().any(|share| share.is_nan() || *share < 0.0) || (sum - 1.0).abs() > 1e-6 {
            return Err(SpecError::new(format!(
                "the shares of read, update, insert and read-modify-write must add up to 1, and {shares:?} do not"
            )));
        }
        let limit =
            |upto: usize| (shares[..upto].iter().sum::<f64>() * (1u64 << 32) as f64).round() as u64;
        Ok(Self {
            popularity,
            shares,
            limits: [limit(1), limit(2), limit(3)],
        })
    }

    pub fn share(&self, op: Op) -> f64 {
        self.shares[op as usize]
    }

    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> Op {
        let at = rng.next_u64() >> 32;
        OPS[self.limits.iter().filter(|&&limit| at >= limit).count()]
    }
}

/// `a`, `b`, `c`, `d` or `f`, in upper or lower case; also `ycsb-a` and so on.
impl FromStr for Mix {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let lower = text.to_ascii_lowercase();
        let zipf = Popularity::Zipf {
            s: DEFAULT_EXPONENT,
            scrambled: true,
        };
        match lower.strip_prefix("ycsb-").unwrap_or(&lower) {
            "a" => Self::new(0.5, 0.5, 0.0, 0.0, zipf),
            "b" => Self::new(0.95, 0.05, 0.0, 0.0, zipf),
            "c" => Self::new(1.0, 0.0, 0.0, 0.0, zipf),
            "d" => Self::new(
                0.95,
                0.0,
                0.05,
                0.0,
                Popularity::Latest {
                    s: DEFAULT_EXPONENT,
                },
            ),
            "e" => Err(SpecError::new(
                "YCSB's workload E scans keys in order, and these keys have none: use A, B, C, D or F",
            )),
            "f" => Self::new(0.5, 0.0, 0.0, 0.5, zipf),
            _ => Err(SpecError::new(format!(
                "\"{text}\" is not a YCSB workload: use A, B, C, D or F"
            ))),
        }
    }
}
