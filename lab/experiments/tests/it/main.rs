// SPDX-License-Identifier: Apache-2.0
//! Tests of the lab: the result line's shape, the registry, and the policy models against published
//! counts.
#![allow(clippy::unwrap_used)]

mod dram_policy; // the two policies against published miss counts
mod commits; // the pieces of the experiments on commits
mod basics; // the basic structures of chapter 4.2
mod device; // the verdicts on simulated drives
mod papers; // every item of the papers has its row, and documents have the bars
mod plan; // the hit ratios of plans
#[path = "../../../../crates/plan/tests/it/kinds.rs"]
mod kinds; // kinds of requests
mod filled; // shards that are filled as planned
mod kv; // engines under test, driven as in an experiment
mod process; // the program in a scratch folder
mod program; // `senko-lab` from outside, and its machinery against a real server
mod page; // the page of all results, in a browser
mod report; // result lines, tables, provenance
mod rig; // the machinery of experiments on servers
mod ssd_tables; // the simulator's tables compared with the papers'
mod python; // programs in Python
