// SPDX-License-Identifier: Apache-2.0
//! Fills drives before a measured run, in no virtual time. Later reports show nothing of it except
//! the wear.
//!
//! A fill in order goes through the timeline as the run does, so that its pages lie where a host's
//! writes would be. Random overwrites are only counted: they are many, and the place of each page
//! is random anyway.

use senko_workload::Rng;

use super::{Drive, FILLED_AT_ONCE};
use crate::Error;
use crate::precondition::{
    MOST_WINDOWS, Precondition, Preparation, STEADY_WINDOWS, STEADY_WITHIN, Window, agree,
};

const OVERWRITES: u64 = 0x6f_7665_7277_0000;

impl Drive {
    /// Writes the first `share` of the pages once, in order, in no time. Later reports show nothing
    /// of it.
    pub fn precondition(&mut self, share: f64) -> Result<(), Error> {
        self.fill(self.part(share), &mut |_| true)?;
        self.settle()
    }

    /// Fills the drives in a given way, while `go_on` returns true. `go_on` is called now and then,
    /// with the pages written and their total, if that is known. `None` if it ended the filling.
    ///
    /// # Errors
    /// If a drive wears out.
    pub fn prepare(
        &mut self,
        way: Precondition,
        mut go_on: impl FnMut(u64, u64) -> bool,
    ) -> Result<Option<Preparation>, Error> {
        let before = self.totals();
        let mut found = Preparation {
            way: way.to_string(),
            ..Preparation::default()
        };
        let whole = match way {
            Precondition::InOrder { percent } => {
                let pages = self.part(percent / 100.0);
                self.fill(pages, &mut |done| go_on(done, pages))?
            }
            Precondition::Random { .. } | Precondition::Steady => {
                for device in &mut self.devices {
                    device.nand_mut().stop_time();
                }
                let whole = self.overwrite(way, &mut found, &mut go_on)?;
                for device in &mut self.devices {
                    device.nand_mut().resume_time();
                }
                whole
            }
        };
        if whole {
            self.settle()?;
        }
        let after = self.totals();
        found.pages_written = after.host_pages - before.host_pages;
        found.erases = after.erases - before.erases;
        Ok(whole.then_some(found))
    }

    /// Fills the drives in order and overwrites pages at random. Returns whether it came to its
    /// end.
    fn overwrite(
        &mut self,
        way: Precondition,
        found: &mut Preparation,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, Error> {
        let pages = self.pages();
        let (most, least) = match way {
            Precondition::Random { times } => {
                let most = (pages as f64 * times) as u64;
                (most, most)
            }
            _ => (
                pages * u64::from(MOST_WINDOWS),
                pages * STEADY_WINDOWS as u64,
            ),
        };
        if !self.fill(pages, &mut |done| go_on(done, pages + least))? {
            return Ok(false);
        }
        let mut rng = Rng::for_stream(self.seed, OVERWRITES);
        let mut written = 0;
        while written < most {
            let window = pages.min(most - written);
            let before = self.totals();
            let mut left = window;
            while left > 0 {
                let at_once = left.min(FILLED_AT_ONCE);
                let done = pages + written + window - left;
                if !go_on(done, (pages + least).max(done + left)) {
                    return Ok(false);
                }
                self.overwrite_untimed((0..at_once).map(|_| rng.below(pages)))?;
                left -= at_once;
            }
            written += window;
            let after = self.totals();
            found.windows.push(Window::new(
                after.host_pages - before.host_pages,
                after.programs - before.programs,
            ));
            if way == Precondition::Steady {
                let steady = agree(&found.windows, STEADY_WINDOWS, STEADY_WITHIN);
                found.steady = Some(steady);
                if steady {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// Writes the first pages in order, while `go_on` returns true; it gets the number of written
    /// pages. Returns whether all were written.
    fn fill(&mut self, pages: u64, go_on: &mut dyn FnMut(u64) -> bool) -> Result<bool, Error> {
        let timed = self.devices.iter().any(|device| device.nand().is_timed());
        let mut from = 0;
        while from < pages {
            if !go_on(from) {
                return Ok(false);
            }
            let to = pages.min(from + FILLED_AT_ONCE);
            if timed {
                for page in from..to {
                    let (drive, lpn) = self.place(page);
                    self.devices[drive].write(lpn, true, 0, 0);
                }
            } else {
                self.fill_untimed(from, to)?;
            }
            from = to;
        }
        Ok(true)
    }

    /// Writes everything to the flash, and restarts time at 0.
    fn settle(&mut self) -> Result<(), Error> {
        for device in &mut self.devices {
            device.flush(0);
        }
        self.rest();
        self.check_life()
    }

    /// A share of the pages that the host sees, 0 to 1.
    fn part(&self, share: f64) -> u64 {
        (self.pages() as f64 * share.clamp(0.0, 1.0)) as u64
    }

    fn pages(&self) -> u64 {
        self.capacity_bytes / self.page_bytes
    }
}
