// SPDX-License-Identifier: Apache-2.0
//! Log lines that clients can cause: one in ten seconds for each cause, so that no client fills a
//! disk or hides other lines. The line counts those that were left out.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The pause after a line, in milliseconds.
const PAUSE_MS: u64 = 10_000;

/// One cause of lines, for all workers.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    /// When the next line may be written.
    next_ms: AtomicU64,
    left_out: AtomicU64,
}

/// How many lines were left out before this one; the end of its sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(" (and once more since the last such line)"),
            n => write!(f, " (and {n} times more since the last such line)"),
        }
    }
}

impl Seldom {
    /// Whether the line is to be written at this time; `None`: it is left out, and counted.
    pub(crate) fn may(&self, now_ms: u64) -> Option<LeftOut> {
        let next = self.next_ms.load(Ordering::Relaxed);
        let taken = now_ms >= next
            && (self.next_ms)
                .compare_exchange(
                    next,
                    now_ms + PAUSE_MS,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if !taken {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(LeftOut(self.left_out.swap(0, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_causes_is_one_line_and_a_count() {
        let seldom = Seldom::default();
        let lines: Vec<LeftOut> = (5000..35_000).filter_map(|ms| seldom.may(ms)).collect();
        assert_eq!(lines, [LeftOut(0), LeftOut(9999), LeftOut(9999)]);
        assert_eq!(LeftOut(0).to_string(), "");
        assert!(LeftOut(2).to_string().contains("2 times more"));
    }
}
