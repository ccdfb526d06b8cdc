// SPDX-License-Identifier: Apache-2.0
//! Draws the key number of the next request.
//!
//! [`Popularity`] is the setting, as a user writes it (`zipf:0.99`); [`KeyChooser`] is the setting
//! bound to a number of keys. [`crate::key::KeySpace`] has the bytes of a key number.

use std::fmt;
use std::str::FromStr;

use crate::permutation::Permutation;
use crate::zipf::Zipf;
use crate::{Rng, SpecError, units};

/// The seed of the permutation that spreads popular keys. It is fixed, because the popular keys are
/// a property of the key space: all connections, and a second run with another seed, must agree on
/// them.
const SPREAD_SEED: u64 = 0x5EED_0F5E_4B0A_0001;

/// YCSB's exponent, the default.
pub const DEFAULT_EXPONENT: f64 = 0.99;

/// A law of popularity, not yet bound to a number of keys.
///
/// Written `uniform`, `zipf[:S]`, `zipf-ordered[:S]`, `latest[:S]`, `hotcold[:KEYS:REQUESTS]` or
/// `sequential`.
#[derive(Clone, Debug, PartialEq)]
pub enum Popularity {
    /// All keys equally often.
    Uniform,
    /// Zipf's law.
    Zipf {
        /// Its exponent.
        s: f64,
        /// Whether ranks are spread over the key space by a permutation; if not, key 0 is the most
        /// popular, then key 1.
        scrambled: bool,
    },
    /// YCSB's "latest": Zipf's law over recency, the newest key is the most popular.
    Latest {
        /// Its exponent.
        s: f64,
    },
    /// A share `requests` of the requests goes to a share `keys` of the keys, evenly within each
    /// part.
    HotCold {
        /// The share of the keys that is hot, in (0, 1).
        keys: f64,
        /// The share of the requests that goes to them, in 0..=1.
        requests: f64,
    },
    /// Key 0, 1, 2, ..., and then from 0 again.
    Sequential,
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Zipf { s, scrambled: true } => write!(f, "zipf:{s}"),
            Self::Zipf {
                s,
                scrambled: false,
            } => write!(f, "zipf-ordered:{s}"),
            Self::Latest { s } => write!(f, "latest:{s}"),
            Self::HotCold { keys, requests } => write!(f, "hotcold:{keys}:{requests}"),
            Self::Sequential => write!(f, "sequential"),
        }
    }
}

impl FromStr for Popularity {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let unknown = || {
            SpecError::new(format!(
                "\"{text}\" is not a key distribution: use uniform, zipf[:S], zipf-ordered[:S], latest[:S], \
                 hotcold[:KEYS:REQUESTS] or sequential"
            ))
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let numbers = parts
            .map(|part| units::number(part).or_else(|_| units::share(part)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| unknown())?;
        let exponent = numbers.first().copied().unwrap_or(DEFAULT_EXPONENT);
        match (name, numbers.as_slice()) {
            ("uniform", []) => Ok(Self::Uniform),
            ("zipf" | "zipf-ordered", [] | [_]) => Ok(Self::Zipf {
                s: exponent,
                scrambled: name == "zipf",
            }),
            ("latest", [] | [_]) => Ok(Self::Latest { s: exponent }),
            ("hotcold", []) => Ok(Self::HotCold {
                keys: 0.2,
                requests: 0.8,
            }),
            ("hotcold", [keys, requests]) => Ok(Self::HotCold {
                keys: *keys,
                requests: *requests,
            }),
            ("sequential", []) => Ok(Self::Sequential),
            _ => Err(unknown()),
        }
    }
}

/// Draws key numbers in `0..keys`.
#[derive(Clone, Debug)]
pub struct KeyChooser {
    keys: u64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Uniform,
    Ordered(Zipf),
    Scrambled(Zipf, Permutation),
    Latest(Zipf),
    HotCold {
        spread: Permutation,
        hot: u64,
        requests: f64,
    },
    Sequential {
        next: u64,
    },
}

impl KeyChooser {
    /// Binds a law to `keys` keys.
    ///
    /// # Errors
    /// If a parameter of the law is out of range, or `keys` is 0 or above
    /// [`crate::zipf::MAX_RANKS`].
    pub fn new(popularity: &Popularity, keys: u64) -> Result<Self, SpecError> {
        // Zipf's check of the number of keys is used for every law.
        Zipf::new(keys, 0.0)?;
        let law = match *popularity {
            Popularity::Uniform => Law::Uniform,
            Popularity::Zipf {
                s,
                scrambled: false,
            } => Law::Ordered(Zipf::new(keys, s)?),
            Popularity::Zipf { s, scrambled: true } => {
                Law::Scrambled(Zipf::new(keys, s)?, Permutation::new(keys, SPREAD_SEED))
            }
            Popularity::Latest { s } => Law::Latest(Zipf::new(keys, s)?),
            Popularity::HotCold {
                keys: share,
                requests,
            } => {
                if !(share > 0.0 && share < 1.0 && (0.0..=1.0).contains(&requests)) {
                    return Err(SpecError::new(format!(
                        "hotcold needs a share of keys between 0 and 1 and a share of requests from 0 to 1, \
                         and {share}:{requests} is not that"
                    )));
                }
                let hot = ((keys as f64 * share).round() as u64).clamp(1, keys);
                Law::HotCold {
                    spread: Permutation::new(keys, SPREAD_SEED),
                    hot,
                    requests,
                }
            }
            Popularity::Sequential => Law::Sequential { next: 0 },
        };
        Ok(Self { keys, law })
    }

    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Sets where `sequential` continues, so that several connections can share the range. Other
    /// laws ignore it.
    pub fn start_at(&mut self, key_id: u64) {
        if let Law::Sequential { next } = &mut self.law {
            *next = key_id % self.keys;
        }
    }

    /// Says that the key space has grown to `keys` keys; key `keys - 1` is the newest.
    ///
    /// `uniform`, `latest` and `sequential` draw from the grown space at once. Zipf and hot/cold
    /// keep the keys they were made for: spreading their ranks again would change the popular keys
    /// at each insertion.
    ///
    /// # Errors
    /// If `keys` is smaller than before or above [`crate::zipf::MAX_RANKS`].
    pub fn grow(&mut self, keys: u64) -> Result<(), SpecError> {
        if keys < self.keys {
            return Err(SpecError::new(format!(
                "a key space of {} keys cannot shrink to {keys}",
                self.keys
            )));
        }
        match &mut self.law {
            Law::Latest(zipf) => zipf.set_ranks(keys)?,
            Law::Uniform | Law::Sequential { .. } => {}
            Law::Ordered(_) | Law::Scrambled(..) | Law::HotCold { .. } => return Ok(()),
        }
        self.keys = keys;
        Ok(())
    }

    /// Draws the next key number.
    #[inline]
    pub fn next_key(&mut self, rng: &mut Rng) -> u64 {
        match &mut self.law {
            Law::Uniform => rng.below(self.keys),
            Law::Ordered(zipf) => zipf.draw(rng),
            Law::Scrambled(zipf, spread) => spread.apply(zipf.draw(rng)),
            Law::Latest(zipf) => self.keys - 1 - zipf.draw(rng),
            Law::HotCold {
                spread,
                hot,
                requests,
            } => {
                let cold = self.keys - *hot;
                let rank = if cold == 0 || rng.next_f64() < *requests {
                    rng.below(*hot)
                } else {
                    *hot + rng.below(cold)
                };
                spread.apply(rank)
            }
            Law::Sequential { next } => {
                let key_id = *next;
                *next = if key_id + 1 >= self.keys {
                    0
                } else {
                    key_id + 1
                };
                key_id
            }
        }
    }
}
