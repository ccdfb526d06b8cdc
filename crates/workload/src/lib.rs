// SPDX-License-Identifier: Apache-2.0
//! The requests of a benchmark or a simulation: the key, the operation, the length of the value,
//! the time, and the bytes.
//!
//! The load generator, the store's bench, the SSD simulator and the lab draw their requests from
//! this crate. So a setting such as "Zipf 0.99, ETC sizes" means the same thing to all of them.
//!
//! Always holds:
//! - There is no I/O: no file, no socket. No request depends on a clock. Trace readers take an
//!   `impl Read` that the caller opened.
//! - The same seed gives the same requests. Integer results are the same on every machine. Results
//!   of `ln`, `exp` or `pow` may differ in the last bit between the platforms' maths libraries.
//! - Key `i` always has the same bytes, and value `(i, version, length)` always has the same bytes.
//!   So a checker only needs to remember the versions.
//! - No request needs an allocation, except the one reused line buffer of the text trace readers.

#![deny(unsafe_code)]

// The seeded generator and the integer mixer under everything else.
pub mod rng;

// The amount of work of a model test.
mod rounds;

// Ranks by popularity: Zipf's law for any exponent, in constant time and memory.
pub mod zipf;

// A bijection over `0..n`, which spreads popular ranks over the key space.
pub mod permutation;

// Real-valued distributions: generalized extreme value, generalized Pareto, exponential.
pub mod continuous;

// Which key is requested next: uniform, Zipf, latest, hot and cold, sequential.
pub mod popularity;

// Facebook's ETC pool: key sizes, value sizes and gaps between requests.
pub mod etc;

// When the next request is due, in an open loop.
pub mod arrival;

// Converts key numbers to key bytes.
pub mod key;

// Converts key number, version and length to value bytes, and checks each byte.
pub mod value;

// Operation mixes, YCSB's among them.
pub mod mix;

// The threads of a benchmark.
pub mod drive;

// Latencies and sizes, counted in buckets of bounded relative error.
pub mod histogram;

// Decompresses trace files.
mod compress;

// Readers for published key-value traces.
pub mod trace;

// The grammar of numbers, sizes, rates, times and shares, for every option and generator.
pub mod units;

pub use arrival::Arrivals;
pub use compress::{Compression, Decompressed, decompress};
pub use histogram::Histogram;
pub use key::{KeyShape, KeySpace};
pub use mix::{Mix, Op};
pub use popularity::{KeyChooser, Popularity};
pub use rng::Rng;
pub use rounds::rounds;
pub use value::{Mismatch, ValueLen, check_value, check_value_version, fill_value};

/// A setting that cannot be used, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub(crate) String);

impl SpecError {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}
