// SPDX-License-Identifier: Apache-2.0
//! Work besides commits: checkpoints, the cleaner, the length of the device, room for commits.

pub(crate) mod admit; // makes sure that a commit has room
pub(crate) mod checkpoint;
mod cleaner;
pub(crate) mod idle; // free space that nobody needed for a while
pub(crate) mod maintain; // what is due, and the thread that does it
pub(crate) mod record; // what a checkpoint says
mod shrink; // gives storage back
mod sink; // where pages are written
