// SPDX-License-Identifier: Apache-2.0
//! The clock that a server goes by: the system's when it started, and from then on the time that
//! has passed, as memcached's.
//!
//! Every worker asks it once a round. A system clock that is set, forward or back, changes nothing
//! in a running server: an item with a time to live of two seconds is gone two seconds after it was
//! set. Over a restart time does not go back (RESTART-9). If the system's clock is behind the
//! latest second of an earlier server, the clock starts from that second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clock.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Since 1970, at the start.
    start: Duration,
    /// Since the machine's start, then.
    since: Duration,
    /// The source of time in a test.
    driven: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// Starts from the system's clock, or from Unix second `least` if that is later. `driven` has
    /// the Unix milliseconds instead, where a test drives it.
    pub fn start(driven: Option<Arc<AtomicU64>>, least: u32) -> Clock {
        // First, so that it is never behind the system's: nothing is served a moment longer than
        // clients expect.
        let since = senko_io::since_boot();
        let system = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let least = Duration::from_secs(u64::from(least));
        let start = if driven.is_some() {
            least
        } else {
            system.max(least)
        };
        Clock {
            start,
            since,
            driven,
        }
    }

    /// Unix milliseconds now.
    pub fn now_ms(&self) -> u64 {
        match &self.driven {
            Some(clock) => clock
                .load(Ordering::Acquire)
                .max(self.start.as_millis() as u64),
            None => {
                let passed = senko_io::since_boot().saturating_sub(self.since);
                (self.start + passed).as_millis() as u64
            }
        }
    }

    /// Seconds by which it is ahead of the system's, at its start.
    pub fn ahead(driven: Option<&AtomicU64>, least: u32) -> u64 {
        let system = match driven {
            Some(clock) => clock.load(Ordering::Acquire) / 1000,
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        };
        u64::from(least).saturating_sub(system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It stood still after the system clock had been set back an hour, until that clock had caught
    /// up. For this hour, items with a time to live of seconds were served.
    #[test]
    fn it_goes_on_from_the_later_second() {
        let system = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()) as u32;
        let clock = Clock::start(None, system + 3600);
        let start = clock.now_ms();
        assert!(start >= u64::from(system + 3600) * 1000);
        std::thread::sleep(Duration::from_millis(30));
        assert!((start + 30..start + 30_000).contains(&clock.now_ms()));
        assert!((3590..=3600).contains(&Clock::ahead(None, system + 3600)));
        let clock = Clock::start(None, 1);
        assert!(clock.now_ms() / 1000 >= u64::from(system));
    }
}
