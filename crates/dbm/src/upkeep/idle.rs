// SPDX-License-Identifier: Apache-2.0
//! Free space that no commit needed for a while. Only that is given back to the file system.
//!
//! Card: the low point of two windows, as an estimate of the working set (Denning 1968). A segment
//! that is given back costs a write of zeros when it is needed again (SEGMENT-3). Free space rises
//! with each checkpoint and falls until the next one. What was free at its lowest point in the last
//! window and the one under way is idle. A window is the time in which the log reaches its limit,
//! so that all changed pages are written once.

use crate::sync::Mutex;

#[derive(Default)]
struct Lows {
    /// The least of the window under way, and the log's entries of changes when it began.
    now: Option<u64>,
    began: u64,
    /// The least of the window before.
    before: u64,
}

/// The least number of spare pages that checkpoints found.
#[derive(Default)]
pub(crate) struct Idle(Mutex<Lows>);

impl Idle {
    /// Notes how many pages are spare when a checkpoint begins, after so many entries of changes.
    /// Returns how many were so in two windows of `window` entries.
    pub fn see(&self, spare: u64, changes: u64, window: u64) -> u64 {
        let mut lows = self.0.lock();
        if changes - lows.began >= window {
            lows.before = lows.now.take().unwrap_or(0);
            lows.began = changes;
        }
        let now = lows.now.map_or(spare, |least| least.min(spare));
        lows.now = Some(now);
        now.min(lows.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_free_for_a_whole_window_is_idle() {
        let idle = Idle::default();
        // A new database keeps all of its space for a window.
        for changes in 1..10 {
            assert_eq!(idle.see(100, changes, 10), 0);
        }
        assert_eq!(idle.see(100, 10, 10), 100);
        assert_eq!(idle.see(40, 15, 10), 40, "a low point counts at once");
        for changes in 16..30 {
            assert_eq!(idle.see(100, changes, 10), 40, "and in the window after it");
        }
        assert_eq!(idle.see(100, 30, 10), 100);
    }
}
