// SPDX-License-Identifier: Apache-2.0
//! The list of experiments. A new one is a file here and a line in [`ALL`].

use crate::Experiment;

// Which eviction policy the DRAM tier should have by default.
pub mod dram_policy;

// The direct transfer engine's answers and response times, from its queueing model.
pub mod transfer_fig7_9;

// A 2 MB LRU buffer before BAST on Financial1: the endurance paper's table 1.
pub mod endurance_table1;

// What mapping tables take: the thesis's table 2.
pub mod ftl_table2;

// The simulator's write amplification against closed forms.
pub mod ssd_closed_form;

// How fast the simulator is, and what memory it takes.
pub mod ssd_speed;

/// Every experiment that can be run.
pub static ALL: &[&dyn Experiment] = &[
    &dram_policy::DramPolicy,
    &transfer_fig7_9::TransferFig7To9,
    &endurance_table1::EnduranceTable1,
    &ftl_table2::FtlTable2,
    &ssd_closed_form::SsdClosedForm,
    &ssd_speed::SsdSpeed,
];
