// SPDX-License-Identifier: Apache-2.0
//! The progress of a run, with percentage and remaining time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use senko_io::bar;

/// A line on stderr with the progress of a run, if stderr is a terminal and the run is long.
/// Threads share it.
pub struct Progress {
    terminal: bool,
    done: AtomicU64,
    line: Mutex<Line>,
}

struct Line {
    /// The part done, and the whole.
    doing: &'static str,
    unit: &'static str,
    total: u64,
    began: Instant,
    next: Instant,
    shown: bool,
}

impl Progress {
    pub fn new(doing: &'static str, unit: &'static str, total: u64) -> Progress {
        let now = Instant::now();
        Progress {
            terminal: senko_io::say::terminal(),
            done: AtomicU64::new(0),
            line: Mutex::new(Line {
                doing,
                unit,
                total,
                began: now,
                next: now + Duration::from_secs(1),
                shown: false,
            }),
        }
    }

    /// Notes that this many more are done.
    pub fn add(&self, more: u64) {
        let done = self.done.fetch_add(more, Ordering::Relaxed) + more;
        self.show(done);
    }

    /// Notes that this many of the total are done.
    pub fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        if let Ok(mut line) = self.line.lock() {
            line.total = total;
        }
        self.show(done);
    }

    fn show(&self, done: u64) {
        if !self.terminal {
            return;
        }
        let Ok(mut line) = self.line.try_lock() else {
            return;
        };
        let now = Instant::now();
        if now < line.next {
            return;
        }
        let text = told(line.doing, line.unit, done, line.total, now - line.began);
        bar!("\r\x1b[K{text} ");
        line.shown = true;
        line.next = now + Duration::from_millis(200);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let shown = self.line.get_mut().is_ok_and(|line| line.shown);
        if shown {
            bar!("\r\x1b[K");
        }
    }
}

/// `simulating: 25 % (500 of 2000 requests), 30 s left`.
fn told(doing: &str, unit: &str, done: u64, total: u64, past: Duration) -> String {
    if total == 0 || done == 0 {
        return format!("{doing}: {done} {unit}");
    }
    // Pieces of folded requests count too, so there can be a few more than expected.
    let share = (done as f64 / total as f64).min(1.0);
    let left = past.as_secs_f64() * (1.0 - share) / share;
    let percent = (share * 100.0) as u64;
    format!("{doing}: {percent} % ({done} of {total} {unit}), {left:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From "1048576 requests, 3.0 s of the workload" nobody could tell whether to wait for a run.
    #[test]
    fn progress_has_percent_and_time_left() {
        let at = |done, total, seconds| {
            told(
                "simulating",
                "requests",
                done,
                total,
                Duration::from_secs(seconds),
            )
        };
        assert_eq!(
            at(500, 2000, 10),
            "simulating: 25 % (500 of 2000 requests), 30 s left"
        );
        assert_eq!(at(0, 2000, 10), "simulating: 0 requests");
        assert_eq!(
            at(2001, 2000, 10),
            "simulating: 100 % (2001 of 2000 requests), 0 s left"
        );
        assert_eq!(at(7, 0, 1), "simulating: 7 requests");
    }
}
