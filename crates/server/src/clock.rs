// SPDX-License-Identifier: Apache-2.0
//! The server's clock. It starts from the system's clock and then advances with the elapsed time,
//! as in memcached.
//!
//! Every worker reads it once a round. Setting the system clock, forward or back, does not affect a
//! running server: an item with a time to live of two seconds expires two seconds after it was
//! stored. The time does not go back over a restart either (RESTART-9). If the system's clock is
//! behind the latest second of an earlier server, the clock starts from that second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug)]
pub struct Clock {
    /// The time since 1970, at the start.
    start: Duration,
    /// The time since the machine's boot, at the start.
    since: Duration,
    /// The source of time in a test.
    driven: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// Starts from the system's clock, or from Unix second `least` if that is later. If a test
    /// drives the clock, `driven` has the Unix milliseconds instead.
    pub fn start(driven: Option<Arc<AtomicU64>>, least: u32) -> Clock {
        // Read first, so that this clock is never behind the system's. So no item is served longer
        // than clients expect.
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

    /// Seconds by which it was ahead of the system's clock at its start.
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

    /// When the system clock was set back an hour, the server's clock once stood still until the
    /// system's had caught up. For this hour, the server returned items with a time to live of
    /// seconds.
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
