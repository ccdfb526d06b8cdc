// SPDX-License-Identifier: Apache-2.0
//! Counts forks, so that a value knows whether this process made it. `fork.rs` counts.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks that led to this process, since the first ancestor that opened a file.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks led from the first process that opened a file to this one. A value made under
/// another number belongs to a parent.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Notes that this process is the child of one more fork.
pub(super) fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
