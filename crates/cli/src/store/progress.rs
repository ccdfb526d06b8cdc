// SPDX-License-Identifier: Apache-2.0
//! One line on stderr with the progress of a long command, if stderr is a terminal.

use std::time::{Duration, Instant};

use senko_io::bar;

const WIDTH: usize = 24;
const EVERY: Duration = Duration::from_millis(100);

/// The line.
pub struct Bar {
    doing: &'static str,
    terminal: bool,
    started: Instant,
    shown: Option<Instant>,
}

impl Bar {
    pub fn new(doing: &'static str) -> Bar {
        Bar {
            doing,
            terminal: senko_io::say::terminal(),
            started: Instant::now(),
            shown: None,
        }
    }

    /// Shows the progress: `part` of the whole, if that is known, and a text.
    pub fn show(&mut self, part: Option<f64>, text: impl FnOnce() -> String) {
        if !self.terminal || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let bar = part.map_or(String::new(), |part| {
            let part = part.clamp(0.0, 1.0);
            let full = (part * WIDTH as f64) as usize;
            format!(
                "[{}{}] {:3.0} %  ",
                "#".repeat(full),
                " ".repeat(WIDTH - full),
                part * 100.0
            )
        });
        bar!("\r\x1b[K{} {bar}{}", self.doing, text());
    }

    /// As [`Bar::show`], for something that is counted.
    pub fn count(&mut self, done: u64, of: Option<u64>, what: &str) {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-3);
        let part = of.map(|of| done as f64 / of.max(1) as f64);
        self.show(part, || {
            format!("{done} {what}, {:.0}/s", done as f64 / seconds)
        });
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown.is_some() {
            bar!("\r\x1b[K");
        }
    }
}
