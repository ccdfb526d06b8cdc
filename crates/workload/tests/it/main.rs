// SPDX-License-Identifier: Apache-2.0
//! Tests of the workload crate: laws against their closed forms, values against damage, traces
//! against published counts.
#![allow(clippy::unwrap_used)]

// Goodness-of-fit tests and the checks of every distribution.
mod distributions;
// Histogram against sorted numbers.
mod histogram;
// Keys: limits, uniqueness, reading back.
mod key;
// Trace readers on hand-made samples and, where present, on the real traces.
mod trace;
// The grammar of numbers, sizes, rates and times.
mod units;
// Values: every damaged byte is seen.
mod value;
