// SPDX-License-Identifier: Apache-2.0
//! Tests of the lab: the result line's shape, the registry, and the policy models against published
//! counts.
#![allow(clippy::unwrap_used)]

// The two policies against published miss counts and a slow model.
mod dram_policy;
// The pieces of the experiments on commits.
mod commits;
// The basic structures of chapter 4.2.
mod basics;
// Devices, and the verdicts on them.
mod device;
// Every numbered item of the papers has its row in the report.
mod papers;
// Curves of hit ratios compared with the simulated policy.
mod plan;
// Engines under test, driven as in an experiment.
mod kv;
// Result lines, tables, provenance.
mod report;
// The machinery of experiments on servers.
mod rig;
// The simulator's tables compared with the papers'.
mod ssd_tables;
// Programs in Python.
mod python;
