// SPDX-License-Identifier: Apache-2.0
//! The progress of a command: a line on stderr with percentage and remaining time.

use std::time::{Duration, Instant};

use senko_io::bar;

/// The remaining time when `share` of the work, 0 to 1, took `past`: `40 s left`, `3 min left`.
/// Empty while nothing is known.
pub fn time_left(past: Duration, share: f64) -> String {
    if share <= 0.0 {
        return String::new();
    }
    let seconds = past.as_secs_f64() * (1.0 - share.min(1.0)) / share;
    match seconds.round() as u64 {
        s @ 0..120 => format!("{s} s left"),
        s @ 120..7200 => format!("{} min left", s / 60),
        s @ 7200..172_800 => format!("{} h left", s / 3600),
        s => format!("{} days left", s / 86_400),
    }
}

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
    fn the_time_left_has_a_unit_that_fits() {
        let left = |seconds, share| time_left(Duration::from_secs(seconds), share);
        assert_eq!(left(10, 0.25), "30 s left");
        assert_eq!(left(10, 1.0), "0 s left");
        assert_eq!(left(10, 1.1), "0 s left");
        assert_eq!(left(10, 0.0), "");
        assert_eq!(left(60, 0.1), "9 min left");
        assert_eq!(left(3600, 0.1), "9 h left");
        assert_eq!(left(86_400, 0.01), "99 days left");
    }

    #[test]
    fn a_bar_has_percent_and_time_left() {
        let bar = Bar::new("committing", "transactions", 200);
        let text = bar.told(50, Duration::from_secs(20));
        assert_eq!(text, "committing: 25 % (50 of 200 transactions), 60 s left");
    }
}
