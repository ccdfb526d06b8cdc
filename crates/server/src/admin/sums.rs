// SPDX-License-Identifier: Apache-2.0
//! The counters of all workers, added up.

use senko_cache::CacheStats;
use senko_io::{DeviceTimes, DiskStats, Op, PAGE_SIZE, Times};

use crate::latency::SERIES;
use crate::shared::{Shared, ThreadStats};

/// The sums of all workers' published counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub stats: ThreadStats,
    pub cache: CacheStats,
    pub disk: DiskStats,
    pub times: Vec<Times>,
    pub devices: Vec<DeviceTimes>,
    /// Seconds since the oldest item in DRAM was used.
    pub dram_age: u32,
}

impl Sums {
    pub(super) fn of(shared: &Shared) -> Sums {
        let mut sums = Sums::default();
        sums.times.resize(SERIES.len(), Times::default());
        let devices = shared.settings.flash.len();
        sums.devices.resize(devices, DeviceTimes::default());
        shared.for_others(usize::MAX, |any| {
            sums.stats.add(&any.stats);
            sums.cache.add(&any.cache);
            sums.disk.merge(&any.disk);
            let times = sums.times.iter_mut().zip(&any.times);
            times.for_each(|(sum, times)| sum.merge(times));
            let devices = sums.devices.iter_mut().zip(&any.device_times);
            devices.for_each(|(sum, times)| sum.merge(times));
            let ages = any.slabs.iter().map(|class| class.age);
            sums.dram_age = sums.dram_age.max(ages.max().unwrap_or(0));
        });
        sums
    }

    /// The times of one of [`SERIES`].
    pub(super) fn times_of(&self, command: &str, tier: &str) -> Times {
        let at = SERIES.iter().position(|s| *s == (command, tier));
        let times = at.and_then(|at| self.times.get(at));
        times.cloned().unwrap_or_default()
    }

    /// Bytes given to the devices since the start.
    pub(super) fn written(&self) -> u64 {
        self.disk.total(Op::Write).pages * PAGE_SIZE as u64
    }

    /// The counts since `before`, and the present gauges. If a reset of statistics came in between,
    /// they count from the reset.
    pub(super) fn since(&self, before: &Sums) -> Sums {
        let mut recent = self.clone();
        let stats = &mut recent.stats;
        stats.cmd_set = stats.cmd_set.saturating_sub(before.stats.cmd_set);
        let (cache, old) = (&mut recent.cache, &before.cache);
        for (count, old) in [
            (&mut cache.evictions, old.evictions),
            (&mut cache.drops_budget, old.drops_budget),
            (&mut cache.drops_rule, old.drops_rule),
            (&mut cache.drops_busy, old.drops_busy),
            (&mut cache.drops_size, old.drops_size),
            (&mut cache.drops_error, old.drops_error),
            (&mut cache.drops_index, old.drops_index),
            (&mut cache.reclaim_drops, old.reclaim_drops),
        ] {
            *count = count.saturating_sub(old);
        }
        for (times, old) in recent.times.iter_mut().zip(&before.times) {
            times.take_away(old);
        }
        for (times, old) in recent.devices.iter_mut().zip(&before.devices) {
            times.take_away(old);
        }
        recent
    }
}
