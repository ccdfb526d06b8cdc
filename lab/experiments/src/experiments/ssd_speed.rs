// SPDX-License-Identifier: Apache-2.0
//! How fast is the simulator, and how much memory does a simulated terabyte take?
//!
//! Claim: a desktop computer can simulate the lifetime of a drive of current size. Expected shape:
//! the small drive's tables fit the processor's cache. The large drive's tables wait for main
//! memory, two to five times as long. Full latencies cost more than ten times as much as counts
//! alone.
//!
//! Write-amplification mode: uniform writes of 4 KB pages, greedy, 128 pages a block, alpha 1.28.
//! Before, the drive was filled and overwritten until collection was as busy as it gets (the table
//! shows the write amplification reached). Batches of pages go to [`Device::write_many`]; the
//! result also has the rate of single requests (as from a trace). Drawing the random numbers is
//! part of the time. Latency mode: 4 KB requests, half of them reads, 32 under way, on 8 channels
//! of 4 planes.
//!
//! There is one thread. Seconds are the thread's own time on its core, if the system reports it. So
//! other work on the machine has little influence. The table has the seconds of the clock as well.
//! A TB is 10^12 bytes; the large drive has 2^40.

use std::time::Instant;

use anyhow::Result;
use senko_ssd::device::{Device, Parts};
use senko_ssd::drive::{Drive, Load};
use senko_ssd::profile::Profile;
use senko_ssd::{Error, Op};
use senko_workload::Rng;

use super::endurance_loads::request;
use super::ssd_closed_form::{profile, uniform_writes};
use crate::rig::process;
use crate::{Bar, Experiment, Measure, Options, Outcome, Paper, Progress, Table};

const ALPHA: f64 = 1.28;
const PAGES: u32 = 128;
const SMALL: u64 = 1 << 18;
const LARGE: u64 = 1 << 28;
/// Memory that the large drive takes, and a reserve.
const LARGE_NEEDS: u64 = 3_200_000_000;
const REPEATS: usize = 5;

/// Time on the core and on the clock, in seconds.
#[derive(Clone, Copy, Debug)]
struct Took {
    core: f64,
    clock: f64,
}

struct Watch {
    core: Option<f64>,
    clock: Instant,
}

/// The time that this thread has had a core, in seconds.
fn core_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ns / 1e9)
}

impl Watch {
    fn start() -> Self {
        Self {
            core: core_seconds(),
            clock: Instant::now(),
        }
    }

    fn stop(&self) -> Took {
        let clock = self.clock.elapsed().as_secs_f64();
        let core = match (self.core, core_seconds()) {
            (Some(before), Some(after)) if after > before => after - before,
            _ => clock,
        };
        Took { core, clock }
    }
}

fn resident() -> Option<u64> {
    process::kernel_bytes("/proc/self/status", "VmRSS")
}

/// A rate, and the write amplification that was reached.
#[derive(Clone, Copy, Debug)]
struct Rate {
    took: Took,
    count: u64,
    amplification: f64,
}

impl Rate {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.took.core
    }
}

/// The parts and the profile of a drive of this many logical pages, with alpha at least [`ALPHA`].
fn uniform_profile(logical: u64) -> Result<(Profile, Parts), Error> {
    let blocks = (logical as f64 * ALPHA / f64::from(PAGES)).ceil() as u32;
    let parts = Parts {
        untimed: true,
        ..Parts::default()
    };
    Ok((profile(blocks, PAGES, logical, "page:gc=greedy")?, parts))
}

/// Writes pages drawn at random, in batches.
fn overwrite(device: &mut Device, rng: &mut Rng, count: u64) -> Rate {
    let logical = u64::from(device.logical_pages());
    let before = *device.nand().counts();
    let mut batch = vec![0; 4096];
    let watch = Watch::start();
    let mut left = count;
    while left > 0 {
        let size = left.min(batch.len() as u64);
        let batch = &mut batch[..size as usize];
        batch
            .iter_mut()
            .for_each(|page| *page = rng.below(logical) as u32);
        device.write_many(batch, 0);
        left -= size;
    }
    let took = watch.stop();
    device.assert_conservation();
    let counts = device.nand().counts().since(&before);
    Rate {
        took,
        count,
        amplification: counts.all_programs() as f64 / count as f64,
    }
}

/// A drive that was filled once in order.
fn filled(logical: u64) -> Result<Device> {
    let (profile, parts) = uniform_profile(logical)?;
    let mut device = Device::new(&profile, &parts)?;
    let pages: Vec<u32> = (0..4096).collect();
    for first in (0..logical as u32).step_by(pages.len()) {
        let batch: Vec<u32> = pages.iter().map(|page| first + page).collect();
        device.write_many(&batch, 0);
    }
    Ok(device)
}

/// The same, as requests through the host's interface.
fn small_by_requests(seed: u64, overwrites: u64) -> Result<Rate> {
    let (profile, parts) = uniform_profile(SMALL)?;
    let mut drive = Drive::new(&profile, &parts)?;
    drive.precondition(1.0)?;
    let mut rng = Rng::new(seed);
    let closed = Load::Closed { depth: 32 };
    drive.run(uniform_writes(&mut rng, SMALL, 10 * SMALL), closed)?;
    let count = overwrites * SMALL;
    let watch = Watch::start();
    let report = drive.run(uniform_writes(&mut rng, SMALL, count), closed)?;
    Ok(Rate {
        took: watch.stop(),
        count,
        amplification: report.write_amplification().unwrap_or(f64::NAN),
    })
}

const LATENCY_DRIVE: &str = r#"
name = "latency"
source = "times of a current TLC drive, rounded"
ftl = "page:gc=greedy"
user_bytes = 1_073_741_824
[geometry]
channels = 8
dies = 2
planes = 2
# 2624 blocks of 128 pages: alpha is 1.28, with a block of reserve in each plane beside.
blocks = 83
pages = 128
page_bytes = 4096
spare_bytes = 128
[timing]
read_ns = 50_000
program_ns = 600_000
erase_ns = 3_000_000
command_ns = 200
bus_ns_per_byte = 0.8
controller_ns = 3_000
ram_ns = 1_000
background_erase = false
copy_back = false
[interface]
kind = "ncq"
depth = 32
"#;

fn latency(seed: u64, count: u64) -> Result<Vec<Rate>> {
    let profile = Profile::parse(LATENCY_DRIVE)?;
    let mut drive = Drive::new(&profile, &Parts::default())?;
    drive.precondition(1.0)?;
    let mut rng = Rng::new(seed);
    let mut rates = Vec::new();
    for _ in 0..=REPEATS {
        let requests = (0..count).map(|_| {
            let op = match rng.next_u64() & 1 {
                0 => Op::Read,
                _ => Op::Write,
            };
            Ok::<_, Error>(request(op, rng.below(SMALL) * 4096, 4096))
        });
        let watch = Watch::start();
        let report = drive.run(requests, Load::Closed { depth: 32 })?;
        rates.push(Rate {
            took: watch.stop(),
            count,
            amplification: report.write_amplification().unwrap_or(f64::NAN),
        });
    }
    // The first run makes the drive steady.
    rates.remove(0);
    Ok(rates)
}

fn median(rates: &[Rate]) -> Rate {
    let mut sorted = rates.to_vec();
    sorted.sort_by(|one, two| one.per_second().total_cmp(&two.per_second()));
    sorted[sorted.len() / 2]
}

fn small(seed: u64, overwrites: u64) -> Result<Vec<Rate>> {
    let mut device = filled(SMALL)?;
    let mut rng = Rng::new(seed);
    overwrite(&mut device, &mut rng, 10 * SMALL);
    Ok((0..REPEATS)
        .map(|_| overwrite(&mut device, &mut rng, overwrites * SMALL))
        .collect())
}

/// The large drive: its rate and the memory it took, or why there is none.
fn large(seed: u64, warm: f64, measured: f64) -> Result<Result<(Rate, u64), String>> {
    let Some(available) = process::available_memory() else {
        return Ok(Err(
            "the system does not say how much memory is available".into()
        ));
    };
    if available < LARGE_NEEDS {
        return Ok(Err(format!(
            "it needs {LARGE_NEEDS} bytes of memory, and {available} are available"
        )));
    }
    let before = resident();
    let mut device = filled(LARGE)?;
    let mut rng = Rng::new(seed);
    overwrite(&mut device, &mut rng, (LARGE as f64 * warm) as u64);
    let rate = overwrite(&mut device, &mut rng, (LARGE as f64 * measured) as u64);
    match (before, resident()) {
        (Some(before), Some(after)) => Ok(Ok((rate, after.saturating_sub(before)))),
        _ => Ok(Err("the system does not say what memory is resident".into())),
    }
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "ssd-speed",
    paper: Paper::Design,
    source: "the design's own question",
    text: "A drive's whole life can be simulated on one core: tens of millions of page writes a second.",
    sentences: &[],
    bars: &[
        Bar::more("wa_writes_per_s_1gb", 20e6, 50e6),
        Bar::more("latency_requests_per_s", 1e6, 2e6),
    ],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let seed = options.seed;
    let (overwrites, requests, warm, measured) =
        options.scaled((100, 1_000_000, 1.25, 0.25), (400, 4_000_000, 3.0, 1.0));
    let mut table = Table::titled("Simulated per second, one core");
    let mut row = |what: &str, rate: &Rate| {
        table.add([
            ("what", what.to_owned()),
            ("M/s, of core", format!("{:.2}", rate.per_second() / 1e6)),
            (
                "M/s, of clock",
                format!("{:.2}", rate.count as f64 / rate.took.clock / 1e6),
            ),
            ("write amplification", format!("{:.3}", rate.amplification)),
            ("core seconds", format!("{:.2}", rate.took.core)),
        ]);
    };
    progress.step(0, 5, "page writes on 1 GB");
    let rates = small(seed, overwrites)?;
    let before = median(&rates);
    row("page writes, 1 GB", &before);
    outcome.bar("wa_writes_per_s_1gb", before.per_second());
    progress.step(1, 5, "write requests on 1 GB");
    row(
        "write requests, 1 GB",
        &small_by_requests(seed, overwrites)?,
    );
    progress.step(2, 5, "requests with latencies");
    let rate = median(&latency(seed, requests)?);
    row("requests with latencies, 1 GB", &rate);
    outcome.bar("latency_requests_per_s", rate.per_second());
    progress.step(3, 5, "page writes on 1 TB");
    match large(seed, warm, measured)? {
        Ok((rate, bytes)) => {
            row("page writes, 1 TB", &rate);
            outcome.bar("wa_writes_per_s_1tb", rate.per_second());
            let terabytes = LARGE as f64 * 4096.0 / 1e12;
            outcome.bar("bytes_per_tb", bytes as f64 / terabytes);
            outcome.setting("resident_bytes_of_2^40", bytes);
        }
        Err(why) => {
            outcome.miss("wa_writes_per_s_1tb", why.clone());
            outcome.miss("bytes_per_tb", why);
        }
    }
    progress.step(4, 5, "page writes on 1 GB again");
    let after = median(&small(seed, overwrites)?);
    row("page writes, 1 GB, again", &after);
    outcome.probe(before.per_second(), after.per_second());
    outcome.setting("alpha", ALPHA);
    outcome.setting("pages_per_block", PAGES);
    outcome.setting("gc", "greedy");
    outcome.setting("page_bytes", 4096);
    outcome.setting("bytes_1gb", SMALL * 4096);
    outcome.setting("bytes_1tb", LARGE * 4096);
    outcome.setting("warm_overwrites_1tb", warm);
    outcome.setting("latency_reads_percent", 50);
    outcome.setting("latency_depth", 32);
    outcome.setting("second", "of the thread's time on its core");
    outcome.tables.push(table);
    Ok(())
}
