// SPDX-License-Identifier: Apache-2.0
//! The list of experiments. A new one is a file here and a line in [`ALL`].

use crate::Experiment;

// Which eviction policy the DRAM tier should have by default.
pub mod dram_policy;

// Flash GETs against the device's limit and extstore (paper B, figures 7 to 9).
pub mod serve_flash_get;

/// Every experiment that can be run.
pub static ALL: &[&dyn Experiment] = &[&dram_policy::DramPolicy, &serve_flash_get::ServeFlashGet];
