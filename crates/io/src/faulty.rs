// SPDX-License-Identifier: Apache-2.0
//! The in-memory device that loses, tears, reorders, corrupts and fails from a seed; both faces.

/// The queued face: holds completions back and delivers them in an order drawn from the seed.
pub struct FaultyQueue {}
