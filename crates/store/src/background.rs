// SPDX-License-Identifier: Apache-2.0
//! The work of the background: logs become blocks, maps and blocks are joined.

pub(crate) mod compact; // live elements out of old blocks
pub(crate) mod jobs; // the threads, and whoever does their work
pub(crate) mod merge; // several maps to one
pub(crate) mod seal; // a log to a block
