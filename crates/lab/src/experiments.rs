// SPDX-License-Identifier: Apache-2.0
//! The list of experiments. A new one is a file here and a line in [`ALL`].

use crate::Experiment;

// Which eviction policy the DRAM tier should have by default.
pub mod dram_policy;

// Flash GETs against the device's limit and extstore (paper B, figures 7 to 9).
pub mod serve_flash_get;

// The same cache with less and less DRAM, against all in DRAM, extstore and swap (paper E, figure 4).
pub mod serve_dram_flash_ratio;

// DRAM per flash item, the memory cap, reads per command.
pub mod serve_memory;

// What is written to flash, and for how many hits.
pub mod serve_endurance;

// The tail of GETs while flash is written and reclaimed.
pub mod serve_tails;

// One worker against two.
pub mod serve_cores;

/// Every experiment that can be run.
pub static ALL: &[&dyn Experiment] = &[
    &dram_policy::DramPolicy,
    &serve_flash_get::ServeFlashGet,
    &serve_dram_flash_ratio::ServeDramFlashRatio,
    &serve_memory::ServeMemory,
    &serve_endurance::ServeEndurance,
    &serve_tails::ServeTails,
    &serve_cores::ServeCores,
];
