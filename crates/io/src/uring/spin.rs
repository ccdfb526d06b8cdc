// SPDX-License-Identifier: Apache-2.0
//! Decides whether a thread that waits for a read polls for its end for a while before it sleeps.
//!
//! A fast device answers before a sleeping processor is awake again, above all in a virtual
//! machine. But polling takes processor time, which is wasted if the device needs longer than the
//! thread polls. So the thread polls only if that pays. A read that ends during polling earns some
//! credit; polling in vain costs more. Without credit the thread sleeps at once, except for an
//! occasional try.

use std::time::{Duration, Instant};

/// The most credit.
const MOST: i32 = 16;
/// The cost of a wait in vain.
const IN_VAIN: i32 = 4;
/// Waits without polling after the credit ran out.
const REST: i32 = -256;

#[derive(Default)]
pub(super) struct Spin {
    limit: Duration,
    credit: i32,
}

impl Spin {
    /// Polls for no longer than `limit`; not at all if that is zero.
    pub(super) fn new(limit: Duration) -> Spin {
        Spin { limit, credit: 1 }
    }

    /// Until when to poll now, if it is worth it, in a wait that is no longer than `wait`.
    pub(super) fn begin(&mut self, wait: Option<Duration>) -> Option<Instant> {
        if self.limit.is_zero() {
            return None;
        }
        if self.credit < 0 {
            self.credit += 1;
            return None;
        }
        let limit = wait.map_or(self.limit, |wait| wait.min(self.limit));
        Some(Instant::now() + limit)
    }

    /// Notes that a read ended meanwhile. A request may end a wait too, but says nothing about the
    /// device.
    pub(super) fn paid(&mut self) {
        self.credit = (self.credit + 1).min(MOST);
    }

    /// Notes that nothing happened meanwhile.
    pub(super) fn in_vain(&mut self) {
        self.credit -= IN_VAIN;
        if self.credit < 0 {
            self.credit = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(spin: &mut Spin, waits: usize, found: bool) -> usize {
        let looked = |_: &usize| {
            let looks = spin.begin(None).is_some();
            match (looks, found) {
                (true, true) => spin.paid(),
                (true, false) => spin.in_vain(),
                (false, _) => {}
            }
            looks
        };
        (0..waits).filter(looked).count()
    }

    #[test]
    fn it_looks_while_that_pays_and_seldom_otherwise() {
        let mut spin = Spin::new(Duration::from_micros(50));
        assert_eq!(looks(&mut spin, 1000, true), 1000);
        let in_vain = looks(&mut spin, 10_000, false);
        assert!((10..100).contains(&in_vain), "{in_vain} of 10,000");
        // A device that became fast is noticed.
        assert!(looks(&mut spin, 1000, true) > 700);
    }

    #[test]
    fn without_a_limit_it_never_looks() {
        assert_eq!(looks(&mut Spin::new(Duration::ZERO), 100, true), 0);
        assert_eq!(looks(&mut Spin::default(), 100, true), 0);
    }
}
