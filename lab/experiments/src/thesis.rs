// SPDX-License-Identifier: Apache-2.0
//! A run of an experiment on block layouts: the flash file, windows of gets, figures.
//!
//! One thread gets uniformly random keys, one after the other, as in the thesis; a window is this
//! many gets or this many seconds. After each get a random page of the same file is read. Times are
//! reported in microseconds and as multiples of that page read. Only the multiples are compared,
//! without the slowest two percent of both, since the speed of a shared disk changes.
//!
//! The counts of the layouts are compared with the kernel's count of this process's reads, and with
//! the device's counter. So a cache that answers would be noticed. Files are in a folder that is
//! removed with the run, also on a signal.

pub mod bed; // where the structures of chapter 4.2 run

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use senko_io::{Device, FileOptions, FileSystem, FlashFile};
use senko_store::index::Candidates;
use senko_store::index::bloom_map::best_hashes;
use senko_thesis::bloom::BlockBloom;
use senko_thesis::{BlockIndex, Built, Counts, Geometry, Keys, Layout, Reader, get, sorted};
use senko_workload::{Rng, check_value};
use serde_json::json;

use crate::rig::probe::on_core;
use crate::rig::{Bench, Steps, median, process};
use crate::{Outcome, Progress, Scale, Table};

/// The names of the block sizes in keys of results: 16, 64 and 256 MB in the thesis and in a full
/// run of its elements. `block_bytes` in the settings has those of the run.
pub const SIZES: [&str; 3] = ["small", "middle", "large"];
/// Bits an element of the map over blocks.
pub const BLOCK_BITS: u32 = 16;

/// The sizes of the data and of windows.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Elements, if there is room for so many.
    pub elements: u64,
    pub value_bytes: usize,
    pub page_bytes: usize,
    /// Pages of a block, for each of [`SIZES`].
    pub block_pages: [u32; 3],
    /// Gets of a window, at most.
    pub gets: u64,
    /// Time of a window, at most.
    pub time: Duration,
}

impl Size {
    /// The thesis's elements, pages and blocks. A quick run has a 64th of the elements and a 16th
    /// of the block size.
    pub fn of_the_thesis(scale: Scale) -> Size {
        let full = Size {
            elements: 64 << 20,
            value_bytes: 1000,
            page_bytes: 32 << 10,
            block_pages: [512, 2048, 8192],
            gets: 200_000,
            time: Duration::from_secs(20),
        };
        match scale {
            Scale::Full => full,
            Scale::Quick => Size {
                elements: 1 << 20,
                block_pages: [32, 128, 512],
                gets: 20_000,
                time: Duration::from_millis(700),
                ..full
            },
        }
    }

    fn geometries(&self, elements: u64) -> [Geometry; 3] {
        self.block_pages.map(|block_pages| Geometry {
            elements,
            page_bytes: self.page_bytes,
            block_pages,
            value_bytes: self.value_bytes,
            first_element: 0,
            first_page: 0,
        })
    }

    /// The number of elements, halved until an eighth of the free space stays free.
    fn fitting(&self, free: u64) -> Result<u64> {
        let mut elements = self.elements;
        while elements >= 1 << 16 {
            if file_bytes(&self.geometries(elements)) <= free - free / 8 {
                return Ok(elements);
            }
            elements /= 2;
        }
        bail!("the disk has {free} bytes free, too few; name another folder with --scratch")
    }
}

/// A window of gets.
#[derive(Clone, Debug)]
pub struct Window {
    pub counts: Counts,
    /// Mean time of a get, in microseconds.
    pub mean_us: f64,
    /// Mean time of a get divided by that of the device's page read, both without the slowest two
    /// percent.
    pub times_device: f64,
    /// The same of each fifth of the window.
    fifths: Vec<f64>,
    /// Mean time of those page reads, in microseconds.
    device_us: f64,
    /// Reads of gets and probes.
    all_reads: u64,
    all_bytes: u64,
    /// Bytes that the kernel says this process read from devices.
    process_bytes: Option<u64>,
    /// Reads of the device, including those of other processes.
    disk_reads: Option<u64>,
}

impl Window {
    /// A count divided by the number of gets.
    pub fn per_get(&self, count: impl FnOnce(&Counts) -> u64) -> f64 {
        count(&self.counts) as f64 / self.counts.gets as f64
    }

    /// Pages searched by a get.
    pub fn pages(&self) -> f64 {
        self.per_get(|counts| counts.pages)
    }

    /// Blocks searched by a get.
    pub fn blocks(&self) -> f64 {
        self.per_get(|counts| counts.blocks)
    }
}

/// The figures of a layout with one block size.
#[derive(Clone, Debug)]
pub struct Row {
    pub layout: &'static str,
    /// Its block size, of [`SIZES`].
    pub size: &'static str,
    /// Bytes of a block, in MiB.
    mib: u64,
    /// Gets of existing keys.
    pub present: Window,
    /// Gets of absent keys.
    pub absent: Window,
}

/// Which keys are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Present,
    Absent,
}

/// The state of a run.
pub struct ThesisRun<'a> {
    /// What is next.
    pub steps: Steps<'a>,
    pub keys: Keys,
    /// A geometry for each of [`SIZES`].
    pub geometries: Vec<Geometry>,
    pub outcome: &'a mut Outcome,
    /// What was measured so far.
    pub rows: Vec<Row>,
    /// The elements that are requested, unless all are.
    pub only: Option<Range<u64>>,
    bench: &'a Bench<'a>,
    file: FlashFile,
    limits: Size,
    gets: Table,
    builds: Table,
}

impl<'a> ThesisRun<'a> {
    /// A run of the thesis's size.
    pub fn open(
        bench: &'a Bench<'a>,
        progress: &'a dyn Progress,
        outcome: &'a mut Outcome,
        steps: u64,
    ) -> Result<ThesisRun<'a>> {
        let size = Size::of_the_thesis(bench.options.scale);
        ThesisRun::sized(bench, progress, outcome, steps, size)
    }

    /// Makes the file: with this many elements, or as many as there is room for, which is noted.
    pub fn sized(
        bench: &'a Bench<'a>,
        progress: &'a dyn Progress,
        outcome: &'a mut Outcome,
        steps: u64,
        size: Size,
    ) -> Result<ThesisRun<'a>> {
        let free = FileSystem::of(bench.scratch.folder())?.free;
        let geometries = size.geometries(size.fitting(free)?).to_vec();
        let options = FileOptions {
            bytes: file_bytes(&geometries),
            ..FileOptions::default()
        };
        bench.scratch.need(options.bytes)?;
        let file = FlashFile::open(&bench.scratch.path("blocks"), &options)?;
        settings(outcome, size.elements, &geometries);
        outcome.setting("o_direct", file.direct());
        Ok(ThesisRun {
            steps: Steps::new(progress, steps),
            keys: Keys::new(bench.options.seed),
            geometries,
            outcome,
            rows: Vec::new(),
            only: None,
            bench,
            file,
            limits: size,
            gets: Table::titled("Gets of uniformly random keys, one thread"),
            builds: Table::new(
                "Building",
                &["blocks", "what", "s", "MB/s", "written/keys+values"],
            ),
        })
    }

    /// Continues with fewer elements, in the same file.
    pub fn elements(&mut self, elements: u64) {
        for geometry in &mut self.geometries {
            geometry.elements = geometry.elements.min(elements);
        }
        let elements = self.geometries[0].elements;
        settings(self.outcome, elements, &self.geometries);
    }

    /// The flash file.
    pub fn device(&self) -> &dyn Device {
        &self.file
    }

    /// Notes what building took.
    pub fn built(&mut self, size: &str, layout: &str, built: Built) {
        let payload = self.geometries[0].payload_bytes() as f64;
        self.builds.add([
            ("blocks", size.to_owned()),
            ("what", layout.to_owned()),
            ("s", format!("{:.4}", built.seconds)),
            (
                "MB/s",
                format!("{:.0}", built.written as f64 / built.seconds / 1e6),
            ),
            (
                "written/keys+values",
                format!("{:.4}", built.written as f64 / payload),
            ),
        ]);
    }

    /// Builds the map over blocks of a size.
    pub fn block_map(&mut self, size: usize) -> BlockBloom {
        let geometry = self.geometries[size];
        self.map(size, "map over blocks", |keys| {
            BlockBloom::build(keys, &geometry, BLOCK_BITS)
        })
    }

    /// Builds a map in DRAM, and notes how long that took.
    pub fn map<T>(&mut self, size: usize, what: &str, build: impl FnOnce(&Keys) -> T) -> T {
        let start = Instant::now();
        let map = build(&self.keys);
        let seconds = start.elapsed().as_secs_f64();
        self.builds.add([
            ("blocks", SIZES[size].to_owned()),
            ("what", what.to_owned()),
            ("s", format!("{seconds:.4}")),
            ("MB/s", "-".to_owned()),
            ("written/keys+values", "-".to_owned()),
        ]);
        map
    }

    /// Measures a layout whose blocks have the size `SIZES[size]`; `written` bytes of the file
    /// belong to it.
    /// A key that is lost, or found though it was never put, is an error.
    pub fn measure(
        &mut self,
        size: usize,
        written: u64,
        index: &dyn BlockIndex,
        layout: &dyn Layout,
    ) -> Result<()> {
        self.steps
            .next(&format!("{} with blocks of {}", layout.name(), SIZES[size]));
        let present = self.window(size, written, index, layout, Asked::Present)?;
        let absent = self.window(size, written, index, layout, Asked::Absent)?;
        let row = Row {
            layout: layout.name(),
            size: SIZES[size],
            mib: self.geometries[size].block_bytes() >> 20,
            present,
            absent,
        };
        let geometry = self.geometries[size];
        let payload = geometry.payload_bytes() as f64;
        let dram = (index.dram_bytes() + layout.dram_bytes()) as f64 / geometry.elements as f64;
        let fill = payload / written as f64;
        self.gets.add(row.cells(&geometry, dram, fill));
        self.bars(&row, dram);
        self.rows.push(row);
        Ok(())
    }

    fn bars(&mut self, row: &Row, dram: f64) {
        let Row { layout, size, .. } = row;
        let (present, absent) = (&row.present, &row.absent);
        let mut bar =
            |what: &str, number: f64| self.outcome.bar(format!("{what}_{layout}_{size}"), number);
        bar("mean_us", present.mean_us);
        bar("times_device_page_read", present.times_device);
        bar("pages_per_get", present.pages());
        bar("reads_per_get", present.per_get(Counts::reads));
        bar("absent_mean_us", absent.mean_us);
        bar("absent_reads_per_get", absent.per_get(Counts::reads));
        bar("dram_bytes_per_key", dram);
    }

    fn window(
        &self,
        size: usize,
        written: u64,
        index: &dyn BlockIndex,
        layout: &dyn Layout,
        asked: Asked,
    ) -> Result<Window> {
        let geometry = self.geometries[size];
        let asking = Asking {
            device: &self.file,
            keys: &self.keys,
            only: self.only.clone().unwrap_or(0..geometry.elements),
            limits: self.limits,
            seed: self.bench.options.seed,
        };
        let process = process::io(std::process::id()).ok();
        let disk = self.bench.disk_counts();
        let mut took = on_core(self.bench.server_core(), || {
            asking.gets(&geometry, written, index, layout, asked)
        })??;
        let disk_reads =
            disk.and_then(|before| Some(self.bench.disk_counts()?.since(&before).reads));
        let process_bytes = process
            .and_then(|before| Some(process::io(std::process::id()).ok()?.read - before.read));
        let bare = took.page_reads.len() as u64;
        let fifths = took.fifths();
        Ok(Window {
            counts: took.counts,
            fifths,
            mean_us: mean(&took.gets),
            device_us: mean(&took.page_reads),
            times_device: calm_mean(&mut took.gets) / calm_mean(&mut took.page_reads),
            all_reads: took.counts.reads() + bare,
            all_bytes: took.counts.bytes + bare * geometry.page_bytes as u64,
            process_bytes,
            disk_reads,
        })
    }

    pub fn row(&self, layout: &str, size: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.layout == layout && row.size == size)
    }

    /// A time divided by another, both in device page reads: the median of the windows' fifths.
    pub fn time_ratio(&mut self, key: &str, over: (&str, &str), under: (&str, &str)) {
        self.time_ratio_for_each(key, over, under, |_| 1.0);
    }

    /// The same with both times divided by a count of their windows.
    pub fn time_ratio_for_each(
        &mut self,
        key: &str,
        over: (&str, &str),
        under: (&str, &str),
        count: impl Fn(&Window) -> f64,
    ) {
        self.ratio(key, over, under, |over, under| {
            let counts = count(over) / count(under);
            let fifths = over.fifths.iter().zip(&under.fifths);
            fifths.map(|(over, under)| over / under / counts).collect()
        });
    }

    /// Pages searched by a get, divided by those of another layout.
    pub fn pages_ratio(&mut self, key: &str, over: (&str, &str), under: (&str, &str)) {
        self.ratio(key, over, under, |over, under| {
            vec![over.pages() / under.pages()]
        });
    }

    fn ratio(
        &mut self,
        key: &str,
        over: (&str, &str),
        under: (&str, &str),
        ratios: impl Fn(&Window, &Window) -> Vec<f64>,
    ) {
        match (self.row(over.0, over.1), self.row(under.0, under.1)) {
            (Some(over), Some(under)) => {
                let ratios = ratios(&over.present, &under.present);
                self.outcome.rounds(key, ratios);
            }
            _ => self.outcome.miss(key, "one of the two was not measured"),
        }
    }

    /// Adds to the outcome what holds for all runs.
    pub fn finish(mut self) {
        for size in SIZES {
            if let Some(row) = self.rows.iter().find(|row| row.size == size) {
                self.outcome
                    .bar(format!("blocks_per_get_{size}"), row.present.blocks());
                self.outcome
                    .bar(format!("absent_blocks_per_get_{size}"), row.absent.blocks());
            }
        }
        let mut seen = self.rows.iter();
        let first = seen.next().map_or("", |row| row.layout);
        let [small, .., large] = SIZES;
        let ends = (self.row(first, large), self.row(first, small));
        if let (Some(large), Some(small)) = ends {
            let ratio = large.present.blocks() / small.present.blocks();
            self.outcome.bar("blocks_per_get_large_over_small", ratio);
        }
        let page_reads = self.rows.iter().map(|row| row.present.device_us).collect();
        if let Some(middle) = median(page_reads) {
            self.outcome.bar("device_page_read_us", middle);
        }
        self.accounts();
        let by_size = by_size(&self.rows);
        let tables = &mut self.outcome.tables;
        tables.insert(0, self.gets);
        tables.splice(0..0, by_size);
        if !self.builds.rows.is_empty() {
            tables.insert(1, self.builds);
        }
    }

    /// Compares the layouts' counts with the kernel's.
    fn accounts(&mut self) {
        let windows = || self.rows.iter().flat_map(|row| [&row.present, &row.absent]);
        let reads: u64 = windows().map(|window| window.all_reads).sum();
        let bytes: u64 = windows().map(|window| window.all_bytes).sum();
        let process: Option<u64> = windows().map(|window| window.process_bytes).sum();
        let disk: Option<u64> = windows().map(|window| window.disk_reads).sum();
        let mut put = |key: &str, kernel: Option<u64>, counted: u64| match kernel {
            Some(kernel) => self.outcome.bar(key, kernel as f64 / counted as f64),
            None => self
                .outcome
                .miss(key, "the kernel's account is not available"),
        };
        put("process_bytes_over_counted", process, bytes);
        put("disk_reads_over_counted", disk, reads);
    }
}

impl Row {
    /// The report draws the first two groups of columns, so settings come last.
    fn cells(&self, geometry: &Geometry, dram: f64, fill: f64) -> [(&'static str, String); 14] {
        let (present, absent) = (&self.present, &self.absent);
        let pages = present.pages();
        let reads = |window: &Window| window.per_get(Counts::reads);
        [
            ("blocks", format!("{} MiB", self.mib)),
            ("layout", self.layout.to_owned()),
            ("mean us", format!("{:.1}", present.mean_us)),
            ("absent us", format!("{:.1}", absent.mean_us)),
            ("pages/get", format!("{pages:.3}")),
            ("x page read", format!("{:.2}", present.times_device)),
            ("blocks/get", format!("{:.3}", present.blocks())),
            ("reads/get", format!("{:.3}", reads(present))),
            ("us/page", format!("{:.1}", present.mean_us / pages)),
            ("absent reads", format!("{:.4}", reads(absent))),
            ("DRAM B/key", format!("{dram:.3}")),
            ("fill %", format!("{:.1}", fill * 100.0)),
            ("number", geometry.blocks().to_string()),
            ("pages/block", geometry.block_pages.to_string()),
        ]
    }
}

/// Layouts whose figures are drawn over the size of blocks.
const DRAWN: [&str; 8] = [
    "unsorted16",
    "unsorted24",
    "hash16",
    "hash24",
    "sorted_scattered",
    "sorted_head",
    "sorted_dram",
    "store_static",
];
/// The number of layouts in a figure.
const MOST_DRAWN: usize = 6;

/// Searches and times by block size, as in the thesis's figures; nothing unless every size was
/// measured.
fn by_size(rows: &[Row]) -> Vec<Table> {
    let row = |layout: &str, size: &str| {
        let mut rows = rows.iter();
        rows.find(|row| row.layout == layout && row.size == size)
    };
    let whole = |layout: &&&str| SIZES.iter().all(|size| row(layout, size).is_some());
    let drawn: Vec<&str> = DRAWN
        .iter()
        .filter(whole)
        .take(MOST_DRAWN)
        .copied()
        .collect();
    let Some(first) = drawn.first() else {
        return Vec::new();
    };
    let columns = |what: &str| {
        let of_each = drawn.iter().map(|layout| format!("{what}, {layout}"));
        let mut columns = vec!["block MiB".to_owned()];
        columns.extend(of_each);
        columns
    };
    let mut searched = columns("pages a get");
    searched.push("blocks a get".to_owned());
    let timed = columns("mean us");
    let mut tables = [
        Table::new(
            "Pages and blocks searched, by the size of blocks",
            &searched,
        ),
        Table::new("Time of a get, by the size of blocks", &timed),
    ];
    for size in SIZES {
        let number = row(first, size).map_or(String::new(), |row| row.mib.to_string());
        let rows = || drawn.iter().filter_map(|layout| row(layout, size));
        let pages = rows().map(|row| row.present.pages());
        let mut cells = vec![number.clone()];
        cells.extend(pages.map(|pages| format!("{pages:.3}")));
        let blocks = row(first, size).map(|row| row.present.blocks());
        cells.push(blocks.map_or("-".to_owned(), |blocks| format!("{blocks:.3}")));
        tables[0].row(cells);
        let mut cells = vec![number];
        cells.extend(rows().map(|row| format!("{:.1}", row.present.mean_us)));
        tables[1].row(cells);
    }
    tables.into()
}

/// The state of the measuring thread.
struct Asking<'r> {
    device: &'r dyn Device,
    keys: &'r Keys,
    only: Range<u64>,
    limits: Size,
    seed: u64,
}

impl Asking<'_> {
    /// Runs gets. Each get of an existing key is followed by a page read that needs only the
    /// device, so both meet the same conditions of device and processor.
    fn gets(
        self,
        geometry: &Geometry,
        written: u64,
        index: &dyn BlockIndex,
        layout: &dyn Layout,
        asked: Asked,
    ) -> Result<Took> {
        let mut took = Took::default();
        let mut rng = Rng::for_stream(self.seed, asked as u64);
        let mut reader = Reader::new(self.device, geometry.page_bytes);
        let mut bare = Reader::new(self.device, geometry.page_bytes);
        let mut blocks = Candidates::new();
        // Most absent keys cost no read, so many more of them are requested in the same time.
        let most = match asked {
            Asked::Present => self.limits.gets,
            Asked::Absent => self.limits.gets * 10,
        };
        let start = Instant::now();
        while reader.counts.gets < most && start.elapsed() < self.limits.time {
            let number = match asked {
                Asked::Present => self.only.start + rng.below(self.only.end - self.only.start),
                Asked::Absent => geometry.elements + rng.below(1 << 40),
            };
            let wanted = self.keys.wanted(number);
            let before = Instant::now();
            let found = get(index, layout, &wanted, &mut reader, &mut blocks)?;
            took.gets.push(before.elapsed().as_secs_f64() * 1e6);
            let value = found.map(|place| check_value(&reader.bytes()[place], number));
            let name = layout.name();
            match (value, asked) {
                (Some(Ok(_)), Asked::Present) => {
                    let page =
                        rng.below(written / geometry.page_bytes as u64) * geometry.device_pages();
                    let before = Instant::now();
                    bare.page(page)?;
                    took.page_reads.push(before.elapsed().as_secs_f64() * 1e6);
                }
                (None, Asked::Absent) => {}
                (None, Asked::Present) => bail!("{name}: key {number} was not found"),
                (Some(Err(_)), _) => bail!("{name}: key {number} has another's value"),
                (Some(_), Asked::Absent) => bail!("{name}: key {number} was found, but never put"),
            }
        }
        took.counts = reader.counts;
        Ok(took)
    }
}

/// The times of a window.
#[derive(Clone, Debug, Default)]
struct Took {
    counts: Counts,
    /// Microseconds of each get.
    gets: Vec<f64>,
    /// And of each page read.
    page_reads: Vec<f64>,
}

impl Took {
    /// The mean time of a get over that of a page read, in each fifth of the window.
    fn fifths(&self) -> Vec<f64> {
        let each = (self.page_reads.len() / 5).max(1);
        let parts = self.gets.chunks(each).zip(self.page_reads.chunks(each));
        let ratio = |(gets, reads): (&[f64], &[f64])| {
            calm_mean(&mut gets.to_vec()) / calm_mean(&mut reads.to_vec())
        };
        parts.take(5).map(ratio).collect()
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// The mean without the slowest two percent; on a shared machine these were delayed by other work.
fn calm_mean(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    mean(&times[..times.len() - times.len() / 50])
}

/// Bytes of the largest file of any layout: hash lists and the like in the store's own blocks take
/// three percent more than the thesis's.
fn file_bytes(geometries: &[Geometry]) -> u64 {
    let largest = geometries.iter().map(sorted::file_bytes).max().unwrap_or(0);
    (largest + largest / 32).next_multiple_of(1 << 20)
}

fn settings(outcome: &mut Outcome, asked: u64, geometries: &[Geometry]) {
    let first = geometries[0];
    outcome.setting("elements", first.elements);
    if first.elements < 64 << 20 {
        let why = if first.elements < asked {
            "the disk has no room for more"
        } else {
            "quick"
        };
        outcome.setting("elements_of_the_thesis", 64 << 20);
        outcome.setting("scaled_down_because", why);
    }
    outcome.setting("key_bytes", 8);
    outcome.setting("value_bytes", first.value_bytes);
    outcome.setting("element_header_bytes", senko_thesis::page::ELEMENT_HEADER);
    outcome.setting("page_bytes", first.page_bytes);
    outcome.setting("elements_per_page", first.per_page());
    outcome.setting("block_index_bits", BLOCK_BITS);
    outcome.setting("block_index_functions", best_hashes(BLOCK_BITS));
    let named = |number: fn(&Geometry) -> u64| {
        let pairs = SIZES.iter().zip(geometries);
        json!(
            pairs
                .map(|(size, geometry)| (*size, number(geometry)))
                .collect::<std::collections::BTreeMap<_, _>>()
        )
    };
    outcome.setting("block_bytes", named(Geometry::block_bytes));
    outcome.setting("blocks", named(|geometry| u64::from(geometry.blocks())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_halved_until_they_fit() {
        let size = Size::of_the_thesis(Scale::Full);
        let gib = 1 << 30;
        assert_eq!(size.fitting(1000 * gib).unwrap(), 64 << 20);
        assert_eq!(size.fitting(64 * gib).unwrap(), 32 << 20);
        assert_eq!(size.fitting(3 * gib).unwrap(), 2 << 20);
        assert!(size.fitting(1 << 20).is_err());
    }
}
