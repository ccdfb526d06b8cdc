// SPDX-License-Identifier: Apache-2.0
//! The list of experiments. A new one is a file here and a line in [`ALL`].

use crate::Experiment;

// Which eviction policy the DRAM tier should have by default.
pub mod dram_policy;

/// Every experiment that can be run.
pub static ALL: &[&dyn Experiment] = &[&dram_policy::DramPolicy];
