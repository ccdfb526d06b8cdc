// SPDX-License-Identifier: Apache-2.0
//! Paper A, chapter 2: the cost to a drive of a small cache of the map, of a host that sends no
//! TRIM, and of random writes.
//!
//! Claims:
//! - DFTL needs 1 MB of its 49 MB map in RAM under the load of a bank, and 4 MB under TPC-H
//!   (2.2.5). A trace is run twice, and the second time counts.
//! - Without TRIM, collection keeps pages that the host forgot (2.2.4).
//! - A layer with log blocks switches them for writes in order. It merges them for random writes,
//!   and then a write sometimes takes very long (2.2.3, figures 8 to 10).
//! - A layer that maps pages takes random writes as they come (figure 11).
//!
//! Expected shape: hits grow with the cache, sooner for a skewed load than for an even one. Write
//! amplification falls with the forgotten share only if the host sends TRIM. Writes in order cause
//! no full merge; random ones cause one every few writes.
//!
//! The map's hits are those of Financial1, if the trace is there, and of generated loads: DFTL's
//! own loads were not published. All figures are the simulator's, in its drives' own time, and the
//! same on every machine.

use anyhow::{Result, ensure};
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::ftl::{FtlCounts, Mapping};
use senko_ssd::precondition::Precondition;
use senko_ssd::profile::Profile;
use senko_ssd::report::Report;
use senko_ssd::spec::Spec;
use senko_ssd::{Error, Op, Request};
use senko_workload::Rng;
use senko_workload::permutation::Permutation;
use senko_workload::zipf::Zipf;

use super::endurance_loads::{folded, request};
use crate::{
    Experiment, Measure, Options, Outcome, Paper, Progress, Table, at_least, at_most, judged,
    untested,
};

const TRACE: &str = "block/Financial1_first10k.spc";
const MIB: f64 = 1_048_576.0;
/// The share of DFTL's map in RAM: one part in this many. The paper's 1 MB and 4 MB are a 49th and
/// a 12th.
const PARTS: [u64; 7] = [256, 128, 64, 49, 32, 12, 4];
/// Shares of the drive that the host forgot, in percent.
const FORGOTTEN: [u64; 4] = [0, 25, 50, 75];
/// Single writes of a series, as in the thesis.
const SERIES: u64 = 2048;
/// A write that takes this many times the median in order is a stall.
const STALL: f64 = 10.0;
const PAGE: u64 = 4096;

pub static EXPERIMENT: Experiment = Experiment {
    name: "ftl-costs",
    paper: Paper::A,
    source: "paper A, sections 2.2.3 to 2.2.5, figures 8 to 12",
    text: "what a small part of a map in RAM finds, what collection writes with TRIM and without, and what random writes cost with log blocks",
    sentences: &[
        judged(
            "section 2.2.3, figures 8 and 9",
            "writes in order switch log blocks, and cause no merge",
            &["crates/ssd/src/ftl/bast.rs", "crates/ssd/src/ftl/logs.rs"],
            "2026-11-28: the thesis says \"no further work at all\": one merge goes against it",
            &[at_most("full_merges_log_blocks_in_order", 0.0, 0.0)],
        ),
        judged(
            "section 2.2.3, figure 10",
            "random writes cause merges, and are slow again and again",
            &["crates/ssd/src/ftl/bast.rs", "crates/ssd/src/ftl/logs.rs"],
            "2026-11-28: a stall takes ten times the usual write; a tenth of the writes is \"again and again\", fewer than one in a hundred is not",
            &[
                at_least("stalls_log_blocks_random", 205.0, 20.0),
                at_least("longest_over_usual_log_blocks_random", 10.0, 3.0),
            ],
        ),
        judged(
            "section 2.2.4, figure 11",
            "a layer that maps pages takes random writes as fast as writes in order, as long as there is room",
            &["crates/ssd/src/ftl/page.rs"],
            "2026-11-28: the figure is the longest random write over the usual one in order; half as much again is still alike, and a factor of three is not",
            &[at_most("longest_over_usual_pages_random", 1.5, 3.0)],
        ),
        judged(
            "section 2.2.4, figure 12",
            "without TRIM collection keeps what the host forgot, and gets less efficient",
            &["crates/ssd/src/ftl/page/victims.rs"],
            "2026-11-28: half of the drive was forgotten, so at least half as many pages again have to be written; no more goes against it",
            &[at_least(
                "pages_written_without_over_with_trim_50",
                1.5,
                1.0,
            )],
        ),
        judged(
            "section 2.2.5, a bank",
            "1 MB of DFTL's 49 MB map in RAM finds enough under a bank's load",
            &["crates/ssd/src/ftl/dftl.rs", "crates/ssd/src/ftl/cmt.rs"],
            "2026-11-28: a miss costs a read of flash, so \"enough\" is a miss in ten requests at most, and one in four is not; the trace's first 10,000 requests ran before, to warm the map",
            &[at_least("dftl_hit_percent_financial1_49th", 90.0, 75.0)],
        ),
        untested(
            "section 2.2.5, TPC-H",
            "4 MB of the map are enough under TPC-H",
            &["crates/ssd/src/ftl/dftl.rs"],
            "the load was not published",
        ),
        untested(
            "section 2.2.5, other layers",
            "FAST, superblocks, LAST and FASTer; FASTer is said to be faster than mapping by pages",
            &["crates/ssd/src/ftl.rs"],
            "claims of others that the thesis quotes",
        ),
    ],
    bars: &[],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    maps(options, progress, outcome)?;
    forgotten(options, progress, outcome)?;
    series(options, progress, outcome)?;
    Ok(())
}

fn on_page(op: Op, page: u64) -> Request {
    request(op, page * PAGE, PAGE)
}

fn drive_with(drive: &mut Drive, requests: impl Iterator<Item = Request>) -> Result<Report> {
    let requests = requests.map(Ok::<_, Error>);
    Ok(drive.run(requests, Load::Closed { depth: 1 })?)
}

/// The paper's drive of 1 GB with a layer.
fn drive(layer: Spec) -> Result<Drive> {
    let parts = Parts {
        ftl: Some(layer),
        ..Parts::default()
    };
    Ok(Drive::new(&Profile::find("paper-1gb")?, &parts)?)
}

/// Hits of DFTL's cache by its size, and what misses cost.
fn maps(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let paper = Mapping::table((32 << 30) / 2048, (32 << 30) / 2048);
    outcome.setting("dftl_map_mib_32gb", paper.fractional_bits / 8.0 / MIB);
    let path = options.traces.join(TRACE);
    let requests = options.scaled(100_000, 2_000_000);
    let pages = Profile::find("paper-1gb")?.user_bytes / PAGE;
    let whole = (Mapping::table(pages, pages).fractional_bits / 8.0) as u64;
    let mut table = Table::new(
        "DFTL's cache: hits by the share of the map that is in RAM, and flash operations of the map a request",
        &[
            "map in RAM %",
            "hits %, zipf 0.99",
            "hits %, even",
            "hits %, Financial1",
            "map operations, zipf 0.99",
            "map operations, even",
            "map operations, Financial1",
        ],
    );
    let zipf = Zipf::new(pages, 0.99)?;
    let order = Permutation::new(pages, options.seed);
    for (at, part) in PARTS.into_iter().enumerate() {
        progress.step(at as u64, PARTS.len() as u64, "caches of a map");
        let bytes = whole / part;
        let layer = || Spec::plain("dftl").with("cmt-bytes", bytes);
        let mut cells = vec![format!("{:.2}", 100.0 / part as f64)];
        let mut costs = Vec::new();
        for kind in ["zipf", "even", "financial1"] {
            let mut drive = drive(layer())?;
            drive.precondition(1.0)?;
            let mut rng = Rng::new(options.seed);
            let mut draw = |even: bool| {
                let page = match even {
                    true => rng.below(pages),
                    false => order.apply(zipf.draw(&mut rng)),
                };
                // Both reads and writes, as in a bank's load, look up the map.
                let is_read = rng.below(4) == 0;
                on_page(if is_read { Op::Read } else { Op::Write }, page)
            };
            let report = match kind {
                "financial1" if !path.exists() => {
                    cells.push("-".to_owned());
                    costs.push("-".to_owned());
                    continue;
                }
                "financial1" => {
                    let workload = folded(&path.to_string_lossy())?;
                    let bytes = drive.capacity_bytes();
                    // The first pass warms the cache.
                    drive.run(workload.requests(bytes)?, Load::Closed { depth: 1 })?;
                    drive.run(workload.requests(bytes)?, Load::Closed { depth: 1 })?
                }
                kind => drive_with(&mut drive, (0..requests).map(|_| draw(kind == "even")))?,
            };
            let hits = 100.0 * report.layer.map_hits as f64 / report.layer.map_lookups as f64;
            cells.push(format!("{hits:.2}"));
            let flash = report.flash.all_reads() + report.flash.all_programs();
            let own = report.pages.host_reads + report.pages.host_writes;
            let moved = 2 * report.layer.gc_pages;
            costs.push(format!(
                "{:.3}",
                flash.saturating_sub(own + moved) as f64 / own as f64
            ));
            if part == 49 {
                outcome.bar(format!("dftl_hit_percent_{kind}_49th"), hits);
            }
            if part == 12 {
                outcome.bar(format!("dftl_hit_percent_{kind}_12th"), hits);
            }
        }
        cells.extend(costs);
        table.row(cells);
    }
    if !path.exists() {
        let why = format!("there is no {}", path.display());
        for part in ["49th", "12th"] {
            outcome.miss(format!("dftl_hit_percent_financial1_{part}"), why.clone());
        }
    }
    outcome.setting("requests", requests);
    outcome.tables.push(table);
    Ok(())
}

/// The cost of random writes on a full drive after the host discarded a share of it.
fn forgotten(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let mut table = Table::new(
        "Collection after the host forgot a share of a full drive: pages written for each of its own",
        &[
            "forgotten %",
            "pages written, without TRIM",
            "pages written, with TRIM",
        ],
    );
    for (at, percent) in FORGOTTEN.into_iter().enumerate() {
        progress.step(at as u64, FORGOTTEN.len() as u64, "collection");
        let mut cells = vec![percent.to_string()];
        let mut both = [f64::NAN; 2];
        for trims in [false, true] {
            let mut drive = drive(Spec::plain("page"))?;
            drive.prepare(Precondition::Random { times: 1.0 }, |_, _| true)?;
            let pages = drive.capacity_bytes() / PAGE;
            let kept = pages - pages * percent / 100;
            if trims {
                drive_with(
                    &mut drive,
                    (kept..pages).map(|page| on_page(Op::Trim, page)),
                )?;
            }
            let mut rng = Rng::new(options.seed);
            let writes = (0..pages).map(|_| on_page(Op::Write, rng.below(kept)));
            let report = drive_with(&mut drive, writes)?;
            let written = report.page_write_amplification().unwrap_or(f64::NAN);
            cells.push(format!("{written:.3}"));
            both[usize::from(trims)] = written;
        }
        if percent == 50 {
            let [without, with] = both;
            outcome.bar("pages_written_without_trim_50", without);
            outcome.bar("pages_written_with_trim_50", with);
            outcome.bar("pages_written_without_over_with_trim_50", without / with);
        }
        table.row(cells);
    }
    outcome.tables.push(table);
    Ok(())
}

struct Series {
    /// The times, rising.
    us: Vec<f64>,
    layer: FtlCounts,
}

impl Series {
    fn median(&self) -> f64 {
        self.us[self.us.len() / 2]
    }

    fn longest(&self) -> f64 {
        self.us[self.us.len() - 1]
    }
}

/// Single writes of a page over the first half of a drive that was written before.
fn writes(layer: &str, random: bool, seed: u64) -> Result<Series> {
    let mut profile = Profile::find("usb-stick")?;
    // A part of the stick has the same blocks and times.
    profile.user_bytes = 64 << 20;
    profile.geometry.blocks = 192;
    profile.ftl = layer.to_owned();
    let mut drive = Drive::new(&profile, &Parts::default())?;
    drive.precondition(1.0)?;
    let pages = drive.capacity_bytes() / PAGE;
    let mut rng = Rng::new(seed);
    let mut now = 0;
    let mut times = Vec::new();
    let before = drive.devices()[0].ftl().counts();
    for at in 0..SERIES {
        let page = if random { rng.below(pages) } else { at % pages };
        let done = drive.submit(&on_page(Op::Write, page), now)?;
        times.push((done - now) as f64 / 1e3);
        now = done;
    }
    let layer = drive.devices()[0].ftl().counts().since(&before);
    times.sort_unstable_by(f64::total_cmp);
    let series = Series { us: times, layer };
    ensure!(series.median() > 0.0, "the drive wrote in no time");
    Ok(series)
}

fn series(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    progress.step(0, 1, "single writes");
    let mut table = Table::titled(
        "2,048 single writes to a full drive: merges of log blocks, and writes that stall",
    );
    for (name, layer) in [("log_blocks", "bast:log-blocks=4"), ("pages", "page")] {
        let mut in_order = None;
        for (order, random) in [("in_order", false), ("random", true)] {
            let seen = writes(layer, random, options.seed)?;
            let (median, longest) = (seen.median(), seen.longest());
            let usual = *in_order.get_or_insert(median);
            let stalls = seen.us.iter().filter(|us| **us > STALL * usual).count();
            table.add([
                ("layer", layer.to_owned()),
                ("order", order.replace('_', " ")),
                ("median us", format!("{median:.0}")),
                ("longest us", format!("{longest:.0}")),
                ("stalls", stalls.to_string()),
                ("switches", seen.layer.switch_merges.to_string()),
                ("partial merges", seen.layer.partial_merges.to_string()),
                ("full merges", seen.layer.full_merges.to_string()),
                ("pages collected", seen.layer.gc_pages.to_string()),
            ]);
            let merges = seen.layer.full_merges as f64;
            outcome.bar(format!("stalls_{name}_{order}"), stalls as f64);
            outcome.bar(format!("full_merges_{name}_{order}"), merges);
            outcome.bar(
                format!("longest_over_usual_{name}_{order}"),
                longest / usual,
            );
        }
    }
    outcome.setting("writes", SERIES);
    outcome.tables.push(table);
    Ok(())
}
