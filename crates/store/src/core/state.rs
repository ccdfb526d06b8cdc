// SPDX-License-Identifier: Apache-2.0
//! The parts of an open store that change. Each owns its fields; `core.rs` puts them together.

pub(crate) mod counters; // what was done since the opening
pub(crate) mod health; // whether the store takes writes
pub(crate) mod logs; // who appends, and the next log
pub(crate) mod manifests; // what the manifest says, and its commits
pub(crate) mod pins; // versions that snapshots hold
pub(crate) mod requests; // what the background is asked to do
pub(crate) mod view; // the version that readers see
