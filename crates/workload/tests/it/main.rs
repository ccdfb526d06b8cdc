// SPDX-License-Identifier: Apache-2.0
//! Tests of the workload crate: laws against their closed forms, values against damage, traces
//! against published counts.
#![allow(clippy::unwrap_used)]

/// An array of tuples, a row a line.
macro_rules! rows {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}

mod distributions; // goodness-of-fit tests and the checks of every distribution
mod histogram; // histogram against sorted numbers
mod key; // keys: limits, uniqueness, reading back
mod trace; // trace readers on hand-made samples and, where present, on the real traces
mod units; // the grammar of numbers, sizes, rates and times
mod value; // values: every damaged byte is seen
