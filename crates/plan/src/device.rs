// SPDX-License-Identifier: Apache-2.0
//! A device measured as in paper A, section 4.1: times by size, queue depths, a series of single
//! writes. Random writes over growing ranges show whether it maps pages or has log blocks. This is
//! for `senko device`.
//!
//! A drive that maps pages writes a random page about as fast as the next one. This holds while its
//! collector finds blocks without valid pages, which is so if all writes go to a small range. A
//! drive with log blocks must merge as soon as the range has more blocks than the drive has logs,
//! and each merge copies a whole block. So the cost of a random write is measured over ranges from
//! [`LEAST`] on, and compared with a write in order.
//!
//! All times are the target's own. A simulated drive gives the same result on any machine.

pub mod fit; // a profile for the simulator
pub mod target; // files, raw devices and simulated drives

use anyhow::{Context, Result};
use senko_ssd::chart::{Axis, Chart, Mark, Panel, Unit};
use senko_workload::Rng;
use serde::Serialize;

use crate::Progress;
pub use target::{FileTarget, Found, SimulatedTarget, Target};

/// The largest access, in bytes.
pub const LARGEST: u64 = 4 << 20;
/// The smallest target, in bytes.
pub const LEAST: u64 = 16 << 20;
/// The widest range of random writes, in bytes.
const WIDEST: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Single writes of the series: as many as in the thesis.
const SERIES: usize = 2048;
/// Bytes of random writes over each range: more than write buffers hold.
const WRITTEN: u64 = 64 << 20;
/// A series of one kind ends after this many nanoseconds of the target's time.
const LONGEST_NS: u64 = 10_000_000_000;
/// If a random write takes this many times a write in order, merges are the reason.
const MERGES: f64 = 4.0;
/// A write that takes this many times the median is a stall.
const STALL: u64 = 10;
/// Random reads of a round. A round stands between two steps, to see whether the drive stays as it
/// is.
const ROUND: usize = 64;
/// If a round's reads take this many times another's, something else used the drive.
const BUSY: f64 = 1.5;
const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Mean times of accesses of one size, in nanoseconds; `None` if the target is too small.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Size {
    /// Bytes of an access.
    pub bytes: u64,
    /// Reads, one after the other in order.
    pub read_in_order_ns: f64,
    /// Reads at random places.
    pub read_random_ns: f64,
    pub write_in_order_ns: f64,
    /// Writes at random places.
    pub write_random_ns: f64,
}

/// Random reads of 4 KiB at a depth.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Depth {
    /// Reads under way at once.
    pub depth: usize,
    pub reads_per_second: f64,
}

/// The cost of the flags of an open file: mean times of sequential accesses of 4 KiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Flags {
    /// Whether it bypasses the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Whether a write returns when it is durable (`O_DSYNC`).
    pub durable: bool,
    /// A read, in nanoseconds.
    pub read_ns: f64,
    /// A write, in nanoseconds.
    pub write_ns: f64,
}

/// Single writes of 4 KiB, one after the other, as in the thesis's figures 21 to 25.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The time of each, in nanoseconds.
    pub times_ns: Vec<u64>,
    /// Their median.
    pub median_ns: u64,
    /// Writes that took at least ten times the median in order.
    pub stalls: usize,
}

impl Series {
    /// From these times; `in_order` is the median in order, if these are other writes.
    fn of(times_ns: Vec<u64>, in_order: Option<u64>) -> Series {
        let mut sorted = times_ns.clone();
        sorted.sort_unstable();
        let median_ns = sorted[sorted.len() / 2];
        let limit = in_order.unwrap_or(median_ns).saturating_mul(STALL);
        Series {
            stalls: sorted.iter().filter(|ns| **ns >= limit).count(),
            times_ns,
            median_ns,
        }
    }
}

/// Random writes of 4 KiB over a range.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Span {
    /// The range, in bytes.
    pub bytes: u64,
    /// Mean time of a write.
    pub mean_ns: f64,
    /// Writes that were made.
    pub writes: u64,
}

/// How a device maps pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// A table of pages: a random write costs about as much as one in order.
    Pages,
    /// Log blocks that are merged.
    LogBlocks,
}

/// The verdict and its basis.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// How the device maps pages.
    pub mapping: Mapping,
    /// Mean time of a write of 4 KiB in order, over a range that was written before.
    pub in_order_ns: f64,
    /// A random write over the widest range, compared with one in order.
    pub random_over_in_order: f64,
    /// Random writes over all ranges.
    pub spans: Vec<Span>,
    /// The reasons, as sentences.
    pub evidence: Vec<String>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Bytes that were used.
    pub bytes: u64,
    /// By size.
    pub sizes: Vec<Size>,
    /// Mean time of a flush after a write of 4 KiB.
    pub flush_ns: f64,
    /// Median times of rounds of random reads of 4 KiB, between the other steps.
    pub rounds_ns: Vec<u64>,
    /// By queue depth.
    pub depths: Vec<Depth>,
    /// Whether, before the series in order, the device was told that nothing is stored.
    pub series_after_discard: bool,
    /// Writes in order.
    pub series_in_order: Series,
    /// Writes at random places, where all was written before.
    pub series_random: Series,
    /// By the flags of the open file; empty for a simulated drive, which has none.
    pub flags: Vec<Flags>,
    /// How the device maps pages.
    pub verdict: Verdict,
}

/// Measures a target, whose data is lost.
pub fn measure(target: &mut dyn Target, seed: u64, progress: &dyn Progress) -> Result<Measured> {
    let mut rng = Rng::new(seed);
    let fill = target.bytes();
    let pages = fill / PAGE;
    let mut rounds = Rounds {
        rng: Rng::new(seed ^ 1),
        pages,
        medians_ns: Vec::new(),
    };
    // First, because what was forgotten is not stored, and a read of it would be no read of flash.
    progress.step(0, STEPS, "single writes in order, where nothing is stored");
    let series_after_discard = target.forget_all()?;
    let in_order = series(target, (0..SERIES as u64).map(|nth| nth % pages))?;
    progress.step(1, STEPS, "filling");
    for offset in (0..fill / PAGE * PAGE).step_by(LARGEST as usize) {
        target.write(offset, LARGEST.min(fill - offset))?;
    }
    rounds.read(target)?;
    progress.step(2, STEPS, "random writes over wider and wider ranges");
    let verdict = verdict(target, &mut rng)?;
    rounds.read(target)?;
    progress.step(3, STEPS, "times by size");
    let sizes = sizes(target, fill, &mut rng)?;
    rounds.read(target)?;
    progress.step(4, STEPS, "flushes");
    let mut flush = 0;
    for nth in 0..FLUSHES {
        target.write(nth * PAGE, PAGE)?;
        flush += target.flush()?;
    }
    rounds.read(target)?;
    progress.step(5, STEPS, "queue depths");
    let mut depths = Vec::new();
    for depth in DEPTHS {
        let reads = 512.max(depth * 32);
        let offsets: Vec<u64> = (0..reads).map(|_| rng.below(fill / PAGE) * PAGE).collect();
        let ns = target.read_at_once(&offsets, depth)?;
        let reads_per_second = reads as f64 * 1e9 / ns.max(1) as f64;
        depths.push(Depth {
            depth,
            reads_per_second,
        });
    }
    rounds.read(target)?;
    progress.step(6, STEPS, "flags of the open file");
    let flags = target.by_flags()?;
    rounds.read(target)?;
    progress.step(7, STEPS, "single random writes");
    // On a full drive: one that was told to forget everything has nothing to merge.
    let random = series(target, (0..SERIES).map(|_| rng.below(pages)))?;
    let series_in_order = Series::of(in_order, None);
    let series_random = Series::of(random, Some(series_in_order.median_ns));
    rounds.read(target)?;
    Ok(Measured {
        bytes: target.bytes(),
        sizes,
        flush_ns: flush as f64 / FLUSHES as f64,
        rounds_ns: rounds.medians_ns,
        depths,
        series_after_discard,
        series_in_order,
        series_random,
        flags,
        verdict,
    })
}

/// Rounds of random reads of 4 KiB, from a seed of their own.
struct Rounds {
    rng: Rng,
    pages: u64,
    medians_ns: Vec<u64>,
}

impl Rounds {
    fn read(&mut self, target: &mut dyn Target) -> Result<()> {
        let mut times = Vec::new();
        for _ in 0..ROUND {
            times.push(target.read(self.rng.below(self.pages) * PAGE, PAGE)?);
        }
        times.sort_unstable();
        self.medians_ns.push(times[ROUND / 2]);
        Ok(())
    }
}

/// The times of single writes to these pages.
fn series(target: &mut dyn Target, pages: impl Iterator<Item = u64>) -> Result<Vec<u64>> {
    pages.map(|page| target.write(page * PAGE, PAGE)).collect()
}

/// Steps of a measurement. Its caller may have more, and says when all are done.
pub const STEPS: u64 = 8;
const FLUSHES: u64 = 64;

fn sizes(target: &mut dyn Target, fill: u64, rng: &mut Rng) -> Result<Vec<Size>> {
    let mut sizes = Vec::new();
    let mut bytes = target.smallest();
    while bytes <= LARGEST {
        let places = fill / bytes;
        let count = (LARGEST / bytes).clamp(16, 256).min(places);
        let random: Vec<u64> = (0..count).map(|_| rng.below(places) * bytes).collect();
        let begin = rng.below(places - count + 1);
        let in_order: Vec<u64> = (begin..begin + count).map(|place| place * bytes).collect();
        let mut mean = |offsets: &[u64], write: bool| -> Result<f64> {
            let (mut total, mut done) = (0, 0);
            for offset in offsets {
                total += if write {
                    target.write(*offset, bytes)?
                } else {
                    target.read(*offset, bytes)?
                };
                done += 1;
                if total > LONGEST_NS {
                    break;
                }
            }
            Ok(total as f64 / f64::from(done.max(1)))
        };
        sizes.push(Size {
            bytes,
            read_in_order_ns: mean(&in_order, false)?,
            read_random_ns: mean(&random, false)?,
            write_in_order_ns: mean(&in_order, true)?,
            write_random_ns: mean(&random, true)?,
        });
        bytes *= 2;
    }
    Ok(sizes)
}

/// Mean time of page writes at these places, until there are enough or they take too long.
fn mean_write(target: &mut dyn Target, offsets: impl Iterator<Item = u64>) -> Result<(f64, u64)> {
    let (mut total, mut writes) = (0u64, 0);
    for offset in offsets {
        total += target.write(offset, PAGE)?;
        writes += 1;
        if total > LONGEST_NS {
            break;
        }
    }
    Ok((total as f64 / writes.max(1) as f64, writes))
}

fn verdict(target: &mut dyn Target, rng: &mut Rng) -> Result<Verdict> {
    let widest = WIDEST.min(target.bytes());
    let count = WRITTEN / PAGE;
    let pages = widest / PAGE;
    let (in_order, _) = mean_write(target, (0..count).map(|nth| nth % pages * PAGE))?;
    let mut spans = Vec::new();
    let mut bytes = 1 << 20;
    while bytes <= widest {
        let places: Vec<u64> = (0..count).map(|_| rng.below(bytes / PAGE) * PAGE).collect();
        let (mean_ns, writes) = mean_write(target, places.into_iter())?;
        spans.push(Span {
            bytes,
            mean_ns,
            writes,
        });
        bytes *= 4;
    }
    let last = spans.last().context("the target is too small")?;
    let ratio = last.mean_ns / in_order.max(1.0);
    let mapping = if ratio >= MERGES {
        Mapping::LogBlocks
    } else {
        Mapping::Pages
    };
    let show = |ns: f64| Unit::Nanoseconds.show(ns);
    let mut evidence = vec![format!(
        "a random write of 4 KiB over {} takes {}, {ratio:.1} times a write in order ({}); {} from {MERGES} times on",
        Unit::BinaryBytes.show(last.bytes as f64),
        show(last.mean_ns),
        show(in_order),
        "a drive merges blocks"
    )];
    let narrow = &spans[0];
    evidence.push(format!(
        "over {} it takes {}: {}",
        Unit::BinaryBytes.show(narrow.bytes as f64),
        show(narrow.mean_ns),
        if last.mean_ns > 2.0 * narrow.mean_ns {
            "the range matters, as with a limited number of log blocks"
        } else {
            "the range hardly matters, as with a table of pages"
        }
    ));
    Ok(Verdict {
        mapping,
        in_order_ns: in_order,
        random_over_in_order: ratio,
        spans,
        evidence,
    })
}

impl Measured {
    /// Notes for a reader of the figures, as sentences; none if all is well.
    pub fn notes(&self) -> Vec<String> {
        let busy = self.busy().map(|(least, most)| {
            let show = |ns: u64| Unit::Nanoseconds.show(ns as f64);
            format!(
                "The drive was busy: random reads of 4 KiB took {} at one time and {} at another. \
                 The figures, and a profile made of them, may be far off. Measure again when \
                 nothing else uses the drive.",
                show(least),
                show(most)
            )
        });
        let refused = "The target takes neither a punch hole nor a discard, so the single writes in order went to a drive that was full. A layer with log blocks may merge during them.";
        let refused = (!self.series_after_discard).then(|| refused.to_owned());
        refused.into_iter().chain(busy).collect()
    }

    /// The second least and the second most of the rounds' times, if they show that something else
    /// used the drive at times. One round may have met the drive's own collection.
    fn busy(&self) -> Option<(u64, u64)> {
        let mut rounds = self.rounds_ns.clone();
        rounds.sort_unstable();
        let (least, most) = (*rounds.get(1)?, *rounds.iter().nth_back(1)?);
        (most as f64 > BUSY * least as f64).then_some((least, most))
    }

    /// The measurement as pictures: times by size, rates by depth, the series, the ranges.
    pub fn chart(&self, title: &str) -> Chart {
        let size = |value: fn(&Size) -> f64| {
            self.sizes
                .iter()
                .map(|size| (size.bytes as f64, value(size)))
                .collect::<Vec<_>>()
        };
        let x = Axis::log("size", Unit::BinaryBytes);
        let sizes = Panel::new("times by size", x, Axis::log("time", Unit::Nanoseconds))
            .with(
                "reads in order",
                Mark::Line,
                size(|size| size.read_in_order_ns),
            )
            .with("random reads", Mark::Line, size(|size| size.read_random_ns))
            .with(
                "writes in order",
                Mark::Line,
                size(|size| size.write_in_order_ns),
            )
            .with(
                "random writes",
                Mark::Line,
                size(|size| size.write_random_ns),
            );
        let depths = self
            .depths
            .iter()
            .map(|depth| (depth.depth as f64, depth.reads_per_second));
        let x = Axis::log("reads under way", Unit::Number(""));
        let y = Axis::linear("reads a second", Unit::Number(""));
        let depths = Panel::new("random reads of 4 KiB by queue depth", x, y).with(
            "",
            Mark::Line,
            depths.collect(),
        );
        let x = Axis::linear("write", Unit::Whole(""));
        let y = Axis::log("time", Unit::Nanoseconds);
        let mut series = Panel::new("single writes of 4 KiB", x, y);
        for (name, of) in [
            ("in order", &self.series_in_order),
            ("random", &self.series_random),
        ] {
            let times = of.times_ns.iter().enumerate();
            let points = times.map(|(nth, ns)| (nth as f64, *ns as f64)).collect();
            series = series.with(name, Mark::Dots, points);
        }
        let spans = self
            .verdict
            .spans
            .iter()
            .map(|span| (span.bytes as f64, span.mean_ns));
        let x = Axis::log("range", Unit::BinaryBytes);
        let y = Axis::log("time of a write", Unit::Nanoseconds);
        let spans = Panel::new("random writes of 4 KiB by their range", x, y).with(
            "",
            Mark::Line,
            spans.collect(),
        );
        Chart::new(title, vec![sizes, depths, series, spans])
    }
}
