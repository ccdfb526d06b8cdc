// SPDX-License-Identifier: Apache-2.0
//! Counts of non-negative numbers (latencies in nanoseconds, sizes in bytes) in buckets of bounded
//! relative error.
//!
//! Each thread of a benchmark records into its own histogram, and these are merged at the end.

/// A log-linear histogram.
///
/// Idea: numbers under 256 have a bucket each; above, each power of two is cut into 128 equal
/// buckets, so that a bucket's width is at most 1/128 of its numbers. The bucket is found with a
/// count of leading zeros and a shift; nothing saturates and no range has to be chosen. Recording
/// is an addition to one of 59 KB of counters, of which a run uses few. Source: the layout of Gil
/// Tene's HdrHistogram, with a fixed precision over all of `u64`. Deviation: a percentile is the
/// middle of its bucket (within 0.4 % of the true number), limited to the recorded range. Minimum,
/// maximum and mean are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    sum: u128,
    min: u64,
    max: u64,
}

const SUB_BITS: u32 = 7;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) << SUB_BITS;

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    pub fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            total: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Counts `value` once.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts `value` `times` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.counts[bucket_of(value)] += times;
        self.total += times;
        self.sum += u128::from(value) * u128::from(times);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }

    /// How many numbers were counted.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The smallest number counted; 0 when empty.
    pub fn min(&self) -> u64 {
        if self.is_empty() { 0 } else { self.min }
    }

    /// The largest number counted; 0 when empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean of the numbers counted; 0 when empty.
    pub fn mean(&self) -> f64 {
        if self.is_empty() {
            0.0
        } else {
            self.sum as f64 / self.total as f64
        }
    }

    /// The number that a share `q` (0 to 1) of the counted numbers does not exceed; 0.99 is the
    /// 99th percentile. 0 when empty.
    pub fn quantile(&self, q: f64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let rank = ((q * self.total as f64).ceil() as u64).clamp(1, self.total);
        // The ends are known exactly.
        if rank == self.total {
            return self.max;
        }
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let (low, width) = bucket_bounds(bucket);
                return (low + (width - 1) / 2).clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// The distribution of percentiles in HdrHistogram's text form (`.hgrm`), which its plotters
    /// read: value, percentile, count up to there, 1/(1-percentile). Values are divided by `unit`.
    /// As in HdrHistogram, each half of the rest to 100 % is cut into five.
    pub fn percentiles(&self, unit: f64) -> String {
        const TICKS_PER_HALF: f64 = 5.0;
        let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
        let (mut next, mut seen) = (0.0, 0);
        for (low, high, count) in self.buckets() {
            seen += count;
            let reached = seen as f64 / self.total as f64;
            // The end is known exactly.
            let value = if seen == self.total {
                self.max
            } else {
                (low + (high - low) / 2).clamp(self.min, self.max)
            };
            while next <= reached && next < 1.0 {
                text.push_str(&format!(
                    "{:12.3} {next:2.12} {seen:10} {:14.2}\n",
                    value as f64 / unit,
                    1.0 / (1.0 - next)
                ));
                if seen == self.total {
                    break;
                }
                let halves = (1.0_f64 / (1.0 - next)).log2().floor() + 1.0;
                next += 1.0 / (TICKS_PER_HALF * halves.exp2());
            }
        }
        if self.total > 0 {
            let value = self.max as f64 / unit;
            text.push_str(&format!("{value:12.3} {:2.12} {:10}\n", 1.0, self.total));
        }
        let squares: f64 = self
            .buckets()
            .map(|(low, high, count)| {
                let middle = (low + (high - low) / 2) as f64;
                (middle - self.mean()).powi(2) * count as f64
            })
            .sum();
        let deviation = (squares / self.total.max(1) as f64).sqrt();
        text.push_str(&format!(
            "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n",
            self.mean() / unit,
            deviation / unit
        ));
        text.push_str(&format!(
            "#[Max     = {:12.3}, Total count    = {:12}]\n",
            self.max as f64 / unit,
            self.total
        ));
        text.push_str(&format!(
            "#[Buckets = {:12}, SubBuckets     = {:12}]\n",
            u64::BITS - SUB_BITS,
            2 * SUB
        ));
        text
    }

    /// The buckets that are not empty, from low to high: lowest number, highest number, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(bucket, &count)| {
                let (low, width) = bucket_bounds(bucket);
                (low, low + (width - 1), count)
            })
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    // The power of two above the linear part; 0 for both halves of the linear part.
    let shift = (64 - SUB_BITS - 1).saturating_sub((value | SUB).leading_zeros());
    (u64::from(shift) * SUB + (value >> shift)) as usize
}

/// The lowest number of a bucket, and how many numbers the bucket covers.
fn bucket_bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    ((bucket - shift * SUB) << shift, 1 << shift)
}
