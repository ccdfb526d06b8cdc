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

pub mod rng; // the seeded generator and the integer mixer under everything else
mod rounds; // the amount of work of a model test
pub mod zipf; // ranks by popularity: Zipf's law for any exponent, in constant time and memory
pub mod permutation; // a bijection over `0..n`, which spreads popular ranks over the key space
pub mod continuous; // real-valued: generalized extreme value and Pareto
pub mod popularity; // which key is requested next: uniform, Zipf, latest, hot and cold, sequential
pub mod etc; // facebook's ETC pool: key sizes, value sizes and gaps between requests
pub mod arrival; // when the next request is due, in an open loop
pub mod key; // converts key numbers to key bytes
pub mod value; // converts key number, version and length to value bytes, and checks each byte
pub mod mix; // operation mixes, YCSB's among them
pub mod drive; // the threads of a benchmark
pub mod histogram; // latencies and sizes, counted in buckets of bounded relative error
mod compress; // decompresses trace files
pub mod trace; // readers for published key-value traces
pub mod units; // the grammar of numbers, sizes, rates, times and shares

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
