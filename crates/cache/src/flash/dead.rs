// SPDX-License-Identifier: Apache-2.0
//! Estimates how many bytes of a log no slot names any more. Only a log that keeps every live
//! record needs this (`-M`).
//!
//! A reclaim of such a log copies the live records. If all records are live, reclaim gains nothing.
//! So it starts only if enough bytes are known to be dead (KEEP-6). The count is an estimate: a
//! slot knows pages, not bytes. Each reclaimed region corrects the estimate by its gain.
//!
//! Always holds: a lap of the log that gains less than [`Dead::enough`] ends with a count of 0, so
//! no estimate makes reclaim run forever.

use senko_io::PAGE_SIZE;

/// A lap pays if at least this fraction of the used bytes is dead. This bounds the bytes written
/// again for each byte gained.
const PART: u64 = 32;

/// A mean of lengths.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u64,
    bytes: u64,
}

impl Mean {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
    }
    fn get(self, unknown: usize) -> u64 {
        self.bytes.checked_div(self.count).unwrap_or(unknown as u64)
    }
}

/// The dead bytes of one log.
#[derive(Debug, Default)]
pub(crate) struct Dead {
    bytes: u64,
    /// Records of at most a page, and records with more pages than a slot can count.
    small: Mean,
    large: Mean,
    /// Regions reclaimed in this lap, and the bytes gained by it.
    lap_regions: u64,
    lap_gain: i64,
}

impl Dead {
    /// Notes that a record of `len` bytes was placed.
    pub fn placed(&mut self, len: usize) {
        if len <= PAGE_SIZE {
            self.small.add(len);
        } else if len > 15 * PAGE_SIZE {
            self.large.add(len);
        }
    }

    /// Notes that a slot or a clean copy is gone; its record has this many pages
    /// ([`crate::index::Slot::len`]).
    pub fn died(&mut self, pages: usize) {
        self.bytes += match pages {
            0 => self.large.get(16 * PAGE_SIZE),
            1 => self.small.get(PAGE_SIZE / 2),
            pages => (pages * PAGE_SIZE) as u64,
        };
    }

    /// Sets the estimate so that all `used` bytes may be dead, because nothing is known of them or
    /// they are dead.
    pub fn all(&mut self, used: u64) {
        self.bytes = used;
        (self.lap_regions, self.lap_gain) = (0, 0);
    }

    /// Notes that a region was reclaimed. The log has this many regions, and `used` bytes are in
    /// use.
    pub fn reclaimed(&mut self, gain: i64, regions: u64, region_bytes: u64, used: u64) {
        self.bytes = self.bytes.saturating_sub(gain.max(0) as u64);
        self.lap_regions += 1;
        self.lap_gain += gain;
        if self.lap_regions >= regions {
            if self.lap_gain < Dead::enough(region_bytes, used) as i64 {
                self.bytes = 0;
            }
            (self.lap_regions, self.lap_gain) = (0, 0);
        }
    }

    /// Bytes that a lap must gain to be worth it.
    fn enough(region_bytes: u64, used: u64) -> u64 {
        region_bytes.max(used / PART)
    }

    /// Whether reclaim pays.
    pub fn pays(&self, region_bytes: u64, used: u64) -> bool {
        self.bytes >= Dead::enough(region_bytes, used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: u64 = 1 << 20;

    #[test]
    fn reclaim_pays_once_a_region_and_a_32nd_are_dead() {
        let mut dead = Dead::default();
        for _ in 0..100 {
            dead.placed(1000);
        }
        for _ in 0..1048 {
            dead.died(1);
        }
        assert!(!dead.pays(REGION, 4 * REGION));
        dead.died(1);
        assert!(dead.pays(REGION, 4 * REGION) && !dead.pays(REGION, 64 * REGION));
        dead.died(2);
        assert_eq!(dead.bytes, 1_049_000 + 8192);
        // For a large record without a mean, the least size is taken.
        dead.died(0);
        assert_eq!(dead.bytes, 1_049_000 + 8192 + 65_536);
    }

    /// An estimate that is too high must not keep reclaim of a full log running.
    #[test]
    fn a_lap_without_gain_ends_the_estimate() {
        let mut dead = Dead::default();
        dead.all(1 << 40);
        for region in 0..8 {
            assert!(dead.pays(REGION, 8 * REGION), "region {region}");
            dead.reclaimed(
                if region == 0 { -4096 } else { 4096 },
                8,
                REGION,
                8 * REGION,
            );
        }
        assert!(!dead.pays(REGION, 8 * REGION));
        // A lap that gains enough continues.
        dead.all(1 << 40);
        for _ in 0..16 {
            dead.reclaimed(1 << 18, 8, REGION, 8 * REGION);
        }
        assert!(dead.pays(REGION, 8 * REGION));
    }

    /// Slots count up to 15 pages. For larger records the mean is used, which only counts such
    /// records.
    #[test]
    fn a_large_record_that_died_has_the_mean_length_of_large_ones() {
        let mut dead = Dead::default();
        for pages in [1, 2, 15, 20, 24] {
            dead.placed(pages * PAGE_SIZE);
        }
        dead.died(0);
        assert_eq!(dead.bytes, 22 * 4096);
        dead.died(1);
        assert_eq!(dead.bytes, 23 * 4096);
        dead.placed(15 * PAGE_SIZE + 1);
        dead.died(0);
        assert_eq!(dead.bytes, 23 * 4096 + (59 * 4096 + 1) / 3);
    }
}
