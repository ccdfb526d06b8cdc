// SPDX-License-Identifier: Apache-2.0
//! The results of a run: response times, operations of the flash by cause, wear, memory, lifetime.

mod course; // whether write amplification was steady during a run

use senko_workload::Histogram;
use serde::{Deserialize, Serialize};

use crate::device::{Device, PageCounts};
use crate::ftl::{FtlCounts, Mapping};
use crate::link::LinkBusy;
use crate::nand::{Busy, Counts};
use crate::precondition::{Preparation, Window};
use crate::{Op, Time};

pub(crate) use course::Course;

/// Most buckets of a series. When they are full, pairs of buckets are joined.
const SERIES: usize = 512;

#[derive(Clone, Debug)]
struct Series {
    width: Time,
    /// Count, sum and largest of each bucket.
    buckets: Vec<(u64, u64, Time)>,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            width: 1_000_000,
            buckets: Vec::new(),
        }
    }
}

impl Series {
    fn record(&mut self, at: Time, response: Time) {
        let mut index = (at / self.width) as usize;
        while index >= SERIES {
            self.width *= 2;
            index = (at / self.width) as usize;
            self.buckets = self
                .buckets
                .chunks(2)
                .map(|pair| {
                    let add = |a: (u64, u64, Time), b: &(u64, u64, Time)| {
                        (a.0 + b.0, a.1 + b.1, a.2.max(b.2))
                    };
                    pair.iter().fold((0, 0, 0), add)
                })
                .collect();
        }
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, (0, 0, 0));
        }
        let bucket = &mut self.buckets[index];
        *bucket = (bucket.0 + 1, bucket.1 + response, bucket.2.max(response));
    }
}

/// Response times of a run, by operation.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// Reads, writes, trims and flushes, in the order of [`crate::Op`].
    by_op: [Histogram; 4],
    /// Requested bytes, in the same order.
    bytes: [u64; 4],
    series: Series,
    first: Option<Time>,
    last: Time,
    last_arrival: Time,
}

impl Responses {
    /// Adds requests of each kind, with their bytes, that took no time and arrived between `first`
    /// and `last`.
    pub fn in_no_time(counts: [u64; 4], bytes: [u64; 4], first: Option<Time>, last: Time) -> Self {
        let mut responses = Self {
            bytes,
            first,
            last,
            last_arrival: last,
            ..Self::default()
        };
        for (histogram, count) in responses.by_op.iter_mut().zip(counts) {
            histogram.record_n(0, count);
        }
        responses
    }

    /// Notes that a request for this many bytes is done.
    pub fn record(&mut self, op: u8, bytes: u64, arrived: Time, done: Time) {
        self.bytes[op as usize] += bytes;
        self.by_op[op as usize].record(done - arrived);
        self.series.record(arrived, done - arrived);
        self.first = Some(self.first.map_or(arrived, |first| first.min(arrived)));
        self.last = self.last.max(done);
        self.last_arrival = self.last_arrival.max(arrived);
    }

    /// Notes that the drive had work until then, for no request.
    pub fn lasts_until(&mut self, done: Time) {
        self.last = self.last.max(done);
    }
}

/// A distribution of response times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    /// 99 % are at most this.
    pub p99_us: f64,
    /// 99.9 % are at most this.
    pub p999_us: f64,
    pub max_us: f64,
}

impl ResponseTimes {
    fn of(histogram: &Histogram) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1000.0,
            p50_us: us(histogram.quantile(0.5)),
            p99_us: us(histogram.quantile(0.99)),
            p999_us: us(histogram.quantile(0.999)),
            max_us: us(histogram.max()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// When the bucket begins, in seconds.
    pub second: f64,
    pub count: u64,
    pub mean_us: f64,
    pub max_us: f64,
}

/// Whether the drives kept up with the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Whether requests came at their own times. A closed loop waits for the drive, so the drive
    /// always keeps up.
    pub open: bool,
    /// Commands that the interfaces of all drives accept at once.
    pub slots: u64,
    /// The most requests waiting or under way at once.
    pub most_under_way: u64,
    /// How many there were when the last one arrived, including it.
    pub under_way_at_last_arrival: u64,
}

/// With fewer requests than this under way at the end, a drive is not called too slow, because a
/// burst can have as many.
const A_BURST: u64 = 16;

/// If a larger share of reads is of pages that were never written, a note says so.
const SOME_READS: f64 = 0.01;
/// Advice to a run that read pages which were never written.
const FILL_FIRST: &str = " Begin with precondition 100, random:2x or steady.";
/// The other reason for such reads, if the workload trims.
const OR_TRIMMED: &str = " or that were trimmed";

/// Total busy time of the flash, over all planes and buses of all drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BusyTimes {
    pub planes: u64,
    pub buses: u64,
    pub read_seconds: f64,
    pub program_seconds: f64,
    /// Erasing blocks, including in the background.
    pub erase_seconds: f64,
    pub bus_seconds: f64,
    /// Links to the host; 0 if none is modelled.
    #[serde(default)]
    pub links: u64,
    /// Commands and data on links, in the direction that was busier.
    #[serde(default)]
    pub link_seconds: f64,
}

impl BusyTimes {
    fn add(&mut self, device: &Device, busy: &Busy) {
        let seconds = |ns: Time| ns as f64 / 1e9;
        let geometry = device.nand().geometry();
        self.planes += u64::from(geometry.all_planes());
        self.buses += u64::from(geometry.channels);
        self.read_seconds += seconds(busy.read_ns);
        self.program_seconds += seconds(busy.program_ns);
        self.erase_seconds += seconds(busy.erase_ns);
        self.bus_seconds += seconds(busy.bus_ns);
    }

    fn add_link(&mut self, busy: &LinkBusy) {
        self.links += 1;
        self.link_seconds += busy.to_drive_ns.max(busy.to_host_ns) as f64 / 1e9;
    }
}

/// How evenly blocks are worn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wear {
    pub mean: f64,
    pub deviation: f64,
    pub min: u32,
    pub max: u32,
    /// How many blocks had how many erases.
    pub histogram: Vec<WornBlocks>,
}

/// Blocks with about as many erases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WornBlocks {
    /// The least number of erases.
    pub from: u32,
    /// The first number of erases above the bucket.
    pub to: u32,
    pub blocks: u32,
}

impl Wear {
    fn of(erases: &[u32]) -> Self {
        let count = erases.len() as f64;
        let mean = erases.iter().map(|n| f64::from(*n)).sum::<f64>() / count;
        let variance = erases
            .iter()
            .map(|n| (f64::from(*n) - mean).powi(2))
            .sum::<f64>()
            / count;
        let (min, max) = erases
            .iter()
            .fold((u32::MAX, 0), |(min, max), n| (min.min(*n), max.max(*n)));
        let width = ((max - min) / 32 + 1).max(1);
        let mut histogram = vec![0; ((max - min) / width + 1) as usize];
        for n in erases {
            histogram[((n - min) / width) as usize] += 1;
        }
        let histogram = (min..).step_by(width as usize).zip(histogram);
        Self {
            mean,
            deviation: variance.sqrt(),
            min,
            max,
            histogram: histogram
                .map(|(from, blocks)| WornBlocks {
                    from,
                    to: from + width,
                    blocks,
                })
                .collect(),
        }
    }
}

/// The results of a run, over all drives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The translation layer, with its parameters.
    pub ftl: String,
    /// The write buffer, with its parameters.
    pub buffer: String,
    pub drives: usize,
    /// Whether operations had times.
    pub timed: bool,
    /// From the first arrival to the last completion, in virtual seconds.
    pub seconds: f64,
    /// Virtual seconds from the first arrival to the last. It is less than the duration if the
    /// drives did not keep up.
    pub arrival_seconds: f64,
    pub all: ResponseTimes,
    pub reads: ResponseTimes,
    pub writes: ResponseTimes,
    /// Trims and flushes.
    pub others: ResponseTimes,
    pub series: Vec<SeriesPoint>,
    pub pace: Pace,
    /// Bytes that the host wrote, as requested: less than whole pages if requests are smaller.
    pub host_bytes_written: u64,
    pub host_bytes_read: u64,
    /// The pages that host, buffer and layer passed to each other.
    pub pages: PageCounts,
    pub page_bytes: u64,
    pub flash: Counts,
    pub layer: FtlCounts,
    pub mapping: Mapping,
    /// Tables of the buffer, in bytes.
    pub buffer_table_bytes: u64,
    /// Wear since the drive was new.
    pub wear: Wear,
    pub retired: u32,
    pub pages_per_block: u32,
    /// All blocks, without spare ones.
    pub blocks: u64,
    /// Bytes that the host sees.
    pub user_bytes: u64,
    pub busy: BusyTimes,
    /// The host's page writes in quarters, in their order. Empty if there were too few.
    pub quarters: Vec<Window>,
    /// The writes before the run, if [`crate::run::Setup::run`] made them.
    pub preparation: Option<Preparation>,
}

/// Figures that follow from a report's counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Derived {
    pub write_amplification: Option<f64>,
    pub flash_write_amplification: Option<f64>,
    pub write_hit_ratio: Option<f64>,
    pub read_hit_ratio: Option<f64>,
    pub erases: u64,
    pub page_write_amplification: Option<f64>,
    pub requests_per_second: Option<f64>,
    pub read_bytes_per_second: Option<f64>,
    pub written_bytes_per_second: Option<f64>,
    /// Whether the drives kept up with the host.
    pub keeps_up: bool,
    pub host_bytes_written: u64,
    pub host_bytes_read: u64,
    pub flash_bytes_programmed: u64,
    /// Bytes of the mapping table in RAM.
    pub mapping_bytes: u64,
    pub steady: Option<bool>,
}

/// The counts at a moment, from which a later report is computed.
#[derive(Clone, Debug)]
pub struct Before(Vec<(PageCounts, Counts, FtlCounts, Busy, LinkBusy)>);

impl Report {
    pub fn counts_of(devices: &[Device]) -> Before {
        Before(
            devices
                .iter()
                .map(|device| {
                    (
                        *device.counts(),
                        *device.nand().counts(),
                        device.ftl().counts(),
                        device.nand().busy(),
                        device.link_busy().unwrap_or_default(),
                    )
                })
                .collect(),
        )
    }

    /// The report of everything since `before`.
    pub fn new(devices: &[Device], before: &Before, responses: Responses) -> Self {
        let mut pages = PageCounts::default();
        let mut flash = Counts::default();
        let mut layer = FtlCounts::default();
        let mut mapping = Mapping::default();
        let mut erases = Vec::new();
        let mut busy = BusyTimes::default();
        for (device, then) in devices.iter().zip(&before.0) {
            let (pages_then, flash_then, layer_then, busy_then, link_then) = then;
            if let Some(link) = device.link_busy() {
                busy.add_link(&link.since(link_then));
            }
            busy.add(device, &device.nand().busy().since(busy_then));
            pages.add(&device.counts().since(pages_then));
            flash.add(&device.nand().counts().since(flash_then));
            layer.add(&device.ftl().counts().since(layer_then));
            mapping = mapping.and(device.ftl().mapping());
            erases.extend_from_slice(device.nand().wear());
        }
        let mut all = Histogram::new();
        let mut others = Histogram::new();
        responses.by_op.iter().for_each(|one| all.merge(one));
        responses.by_op[2..]
            .iter()
            .for_each(|one| others.merge(one));
        let first = &devices[0];
        let geometry = first.nand().geometry();
        let page_bytes = u64::from(geometry.page_bytes);
        let width = responses.series.width;
        let point = |(index, (count, sum, max)): (usize, &(u64, u64, Time))| SeriesPoint {
            second: index as f64 * width as f64 / 1e9,
            count: *count,
            mean_us: *sum as f64 / (*count).max(1) as f64 / 1000.0,
            max_us: *max as f64 / 1000.0,
        };
        Self {
            ftl: first.specs().0.to_string(),
            buffer: first.specs().1.to_string(),
            drives: devices.len(),
            timed: first.nand().is_timed(),
            seconds: (responses.last - responses.first.unwrap_or(responses.last)) as f64 / 1e9,
            arrival_seconds: (responses.last_arrival
                - responses.first.unwrap_or(responses.last_arrival))
                as f64
                / 1e9,
            all: ResponseTimes::of(&all),
            reads: ResponseTimes::of(&responses.by_op[0]),
            writes: ResponseTimes::of(&responses.by_op[1]),
            others: ResponseTimes::of(&others),
            series: responses
                .series
                .buckets
                .iter()
                .enumerate()
                .map(point)
                .collect(),
            pace: Pace::default(),
            host_bytes_written: responses.bytes[Op::Write as usize],
            host_bytes_read: responses.bytes[Op::Read as usize],
            pages,
            page_bytes,
            flash,
            layer,
            mapping,
            buffer_table_bytes: devices
                .iter()
                .map(|device| device.buffer().table_bytes())
                .sum(),
            wear: Wear::of(&erases),
            retired: devices.iter().map(|device| device.nand().retired()).sum(),
            pages_per_block: geometry.pages,
            blocks: devices.len() as u64 * u64::from(geometry.all_blocks()),
            user_bytes: devices
                .iter()
                .map(|device| u64::from(device.logical_pages()) * page_bytes)
                .sum(),
            busy,
            quarters: Vec::new(),
            preparation: None,
        }
    }

    /// Whether write amplification was steady: in each of the last three quarters of the host's
    /// writes it lies within a tenth of their mean. `None` for a run that wrote too little, or
    /// erased nothing.
    pub fn steady(&self) -> Option<bool> {
        if self.flash.all_erases() == 0 {
            return None;
        }
        course::steady(&self.quarters)
    }

    /// Notes for a reader of the figures, as sentences; none if all is well.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let list = |windows: &[Window]| {
            let all = windows.iter();
            let all = all.map(|window| format!("{:.2}", window.write_amplification));
            all.collect::<Vec<_>>().join(", ")
        };
        if let Some(preparation) = &self.preparation
            && preparation.steady == Some(false)
        {
            let windows = &preparation.windows;
            notes.push(format!(
                "The drive did not get steady before the run: after {} capacities of random overwrites the last three had write amplifications of {}.",
                windows.len(),
                list(&windows[windows.len().saturating_sub(3)..])
            ));
        }
        if self.flash.all_programs() > 0 && self.flash.all_erases() == 0 {
            notes.push(
                "The run erased nothing: there were erased blocks for all that was written. Write amplification and wear say nothing about a drive in use; begin with precondition steady, or write more.".to_owned(),
            );
        }
        if self.steady() == Some(false) {
            let before = self.preparation.as_ref();
            let longer = match before.and_then(|before| before.steady) {
                Some(true) => {
                    "The drive was steady before, under other writes; a longer run shows where these end"
                }
                _ => {
                    "A longer run, or one that begins with precondition steady, shows where it ends"
                }
            };
            notes.push(format!(
                "Write amplification never got steady: the quarters of the writes had {}. {longer}.",
                list(&self.quarters)
            ));
        }
        let (unwritten, reads) = (self.pages.unwritten_reads, self.pages.host_reads);
        if unwritten as f64 > SOME_READS * reads as f64 {
            let share = unwritten as f64 / reads as f64 * 100.0;
            let filled = self.preparation.as_ref().map_or(0, |it| it.pages_written);
            let (trimmed, advice) = match (self.pages.trims, filled) {
                (0, _) => ("", FILL_FIRST),
                (_, 0) => (OR_TRIMMED, FILL_FIRST),
                _ => (OR_TRIMMED, ""),
            };
            notes.push(format!(
                "Of the reads {share:.1} % asked for pages that nobody had written{trimmed}, which a drive answers without its flash: rates and response times flatter.{advice}"
            ));
        }
        notes
    }

    pub fn derived(&self) -> Derived {
        Derived {
            write_amplification: self.write_amplification(),
            flash_write_amplification: self.flash_write_amplification(),
            write_hit_ratio: self.write_hit_ratio(),
            read_hit_ratio: self.read_hit_ratio(),
            erases: self.flash.all_erases(),
            page_write_amplification: self.page_write_amplification(),
            requests_per_second: self.requests_a_second(),
            read_bytes_per_second: self.bytes_a_second().map(|pace| pace.0),
            written_bytes_per_second: self.bytes_a_second().map(|pace| pace.1),
            keeps_up: !self.falls_behind(),
            host_bytes_written: self.host_bytes_written,
            host_bytes_read: self.host_bytes_read,
            flash_bytes_programmed: self.flash.all_programs() * self.page_bytes,
            mapping_bytes: self.mapping.bits.div_ceil(8),
            steady: self.steady(),
        }
    }

    /// Whether requests came faster than the drives complete them. This is so if many requests were
    /// not done when the last one arrived. They must be more than a hundredth of all, more than a
    /// burst, and more than the interfaces hold at once. Response times of such a run grow with its
    /// length and do not describe the drive.
    pub fn falls_behind(&self) -> bool {
        let usual = self.pace.slots.max(A_BURST).max(self.all.count / 100);
        self.pace.open && self.pace.under_way_at_last_arrival > usual
    }

    /// Completed requests a second. `None` if there is no time.
    pub fn requests_a_second(&self) -> Option<f64> {
        self.a_second(self.all.count)
    }

    /// Bytes a second that the host read, and that it wrote.
    pub fn bytes_a_second(&self) -> Option<(f64, f64)> {
        let read = self.a_second(self.host_bytes_read)?;
        Some((read, self.a_second(self.host_bytes_written)?))
    }

    /// The shares of the time for which planes and buses were busy, 0 to 1. `None` if there is no
    /// time.
    pub fn busy_shares(&self) -> Option<(f64, f64)> {
        let busy = &self.busy;
        let share = |busy: f64, of: u64| (busy / (of as f64 * self.seconds)).min(1.0);
        let cells = busy.read_seconds + busy.program_seconds + busy.erase_seconds;
        (self.timed && self.seconds > 0.0).then(|| {
            (
                share(cells, busy.planes),
                share(busy.bus_seconds, busy.buses),
            )
        })
    }

    /// The share of the time for which the link to the host was busy, 0 to 1. `None` if there is no
    /// time or no link.
    pub fn link_share(&self) -> Option<f64> {
        let busy = &self.busy;
        let share = busy.link_seconds / (busy.links as f64 * self.seconds);
        (self.timed && self.seconds > 0.0 && busy.links > 0).then(|| share.min(1.0))
    }

    fn a_second(&self, count: u64) -> Option<f64> {
        (self.timed && self.seconds > 0.0).then(|| count as f64 / self.seconds)
    }

    /// Bytes that the flash programmed for each that the host wrote.
    pub fn write_amplification(&self) -> Option<f64> {
        let programmed = self.flash.all_programs() * self.page_bytes;
        ratio(programmed, self.host_bytes_written)
    }

    /// Pages that the flash programmed for each that the host wrote, or wrote a part of.
    pub fn page_write_amplification(&self) -> Option<f64> {
        ratio(self.flash.all_programs(), self.pages.host_writes)
    }

    /// Pages that the flash programmed for each that left the buffer.
    pub fn flash_write_amplification(&self) -> Option<f64> {
        ratio(self.flash.all_programs(), self.pages.evicted)
    }

    /// The share of the host's page writes that overwrote a page in the buffer.
    pub fn write_hit_ratio(&self) -> Option<f64> {
        ratio(self.pages.write_hits, self.pages.host_writes)
    }

    /// The share of the host's page reads that the buffer served.
    pub fn read_hit_ratio(&self) -> Option<f64> {
        ratio(self.pages.read_hits, self.pages.host_reads)
    }
}

/// A number of bytes in readable form, with a decimal unit, as usual for drives and their wear.
pub fn show_bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0} B")
    } else {
        format!("{value:.2} {}", units[unit])
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
