// SPDX-License-Identifier: Apache-2.0
//! A bound on the bytes a second of a dump, a restore or a fill.

use std::time::{Duration, Instant};

use super::TransferError;

/// How often the caller's flag is looked at in a sleep.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes a second, on average since it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    began: Instant,
    /// 0: no bound.
    rate: u64,
}

impl Pace {
    pub fn new(rate: u64) -> Pace {
        Pace {
            began: Instant::now(),
            rate,
        }
    }

    /// Sleeps while more bytes than these would be too many. `go_on` fails if the caller's flag is
    /// set.
    pub fn keep(
        &self,
        bytes: u64,
        mut go_on: impl FnMut() -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        while let Some(left) = self.left(bytes) {
            go_on()?;
            std::thread::sleep(left.min(LOOK));
        }
        Ok(())
    }

    /// How long it would sleep.
    pub fn left(&self, bytes: u64) -> Option<Duration> {
        if self.rate == 0 {
            return None;
        }
        let due = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let left = due.checked_sub(self.began.elapsed());
        left.filter(|left| !left.is_zero())
    }
}
