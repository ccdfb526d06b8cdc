// SPDX-License-Identifier: Apache-2.0
//! The count of forks, by which a value knows whether this process made it. `fork.rs` counts.

use std::sync::atomic::{AtomicU32, Ordering};

/// Forks that this process is the child of, since the first of its line that opened a file.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks this process is away from the first that opened a file. A value that was made
/// under another number belongs to a parent.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// This process is the child of one more fork.
pub(super) fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
