// SPDX-License-Identifier: Apache-2.0
//! The progress of a command: a line on stderr with percentage and remaining time.

use std::time::{Duration, Instant};

use senko_io::bar;
use senko_io::say::time_left;

/// A line that changes while one thread works, where stderr is a terminal. `senko ssd` has one that
/// threads share.
pub struct Bar {
    terminal: bool,
    doing: &'static str,
    unit: &'static str,
    total: u64,
    began: Instant,
    next: Instant,
    shown: bool,
}

impl Bar {
    /// Nothing of `total` is done yet.
    pub fn new(doing: &'static str, unit: &'static str, total: u64) -> Bar {
        let began = Instant::now();
        Bar {
            terminal: senko_io::say::terminal(),
            doing,
            unit,
            total,
            began,
            next: began + Duration::from_secs(1),
            shown: false,
        }
    }

    /// Notes that this many are done.
    pub fn done(&mut self, done: u64) {
        let now = Instant::now();
        if !self.terminal || now < self.next {
            return;
        }
        self.next = now + Duration::from_millis(200);
        self.shown = true;
        let text = self.told(done, now - self.began);
        bar!("\r\x1b[K{text} ");
    }

    fn told(&self, done: u64, past: Duration) -> String {
        let share = done as f64 / self.total.max(1) as f64;
        format!(
            "{}: {:.0} % ({done} of {} {}), {}",
            self.doing,
            share * 100.0,
            self.total,
            self.unit,
            time_left(past, share)
        )
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown {
            bar!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_percent_and_time_left() {
        let bar = Bar::new("committing", "transactions", 200);
        let text = bar.told(50, Duration::from_secs(20));
        assert_eq!(text, "committing: 25 % (50 of 200 transactions), 60 s left");
    }
}
