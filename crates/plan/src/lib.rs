// SPDX-License-Identifier: Apache-2.0
//! What to buy for a cache or an engine, and what a drive does: the arithmetic of `senko plan` and
//! the measurement of `senko device`.
//!
//! [`curve`] computes the hit ratios of caches of all sizes. It runs [`requests`] through models of
//! eviction policies ([`policies`], [`count`]). [`ratios`] says how much flash goes with a byte of
//! DRAM, [`wear`] how much an engine writes, and [`device`] measures a file, a raw device or a
//! simulated drive. The experiments use all of them too.

#![deny(unsafe_code)]

pub mod requests; // request streams: traces of keys, Zipf's law
pub mod policies; // models of eviction policies
pub mod count; // runs requests through a policy
pub mod curve; // hit ratios of all sizes
pub mod ratios; // flash for each byte of DRAM, by price, machine and index
pub mod wear; // what a put to an engine costs a drive
pub mod device; // a device measured: times, queue depths, how it maps pages
mod table; // results for people

pub use table::{Table, short};

/// Receives the progress of a run.
pub trait Progress {
    /// `done` of `total` steps are done; `doing` is next.
    fn step(&self, done: u64, total: u64, doing: &str);
}

/// No progress bar.
impl Progress for () {
    fn step(&self, _: u64, _: u64, _: &str) {}
}
