// SPDX-License-Identifier: Apache-2.0
//! Paper C, section 3: which write buffer suits which load, for every buffer under every
//! translation layer and load.
//!
//! Claim to test: LRU's gain depends on the load, and buffers that know of blocks (BPLRU, PUD-LRU)
//! gain more below log-block layers. Expected shape: above BAST, block-wise buffers are far ahead
//! of LRU by pages, with fewer hits. Padding pays only on a full drive. Above page-level layers
//! only hits count.
//!
//! One pass over each load on a new drive, one access at a time, buffers drained at the end. A
//! second table has PUD-LRU with other choices where its paper gives no exact formula.

use anyhow::Result;
use senko_ssd::device::{Device, Parts};
use senko_ssd::profile::Profile;
use senko_ssd::spec::Spec;
use senko_ssd::{buffer, ftl};

use super::endurance_loads::{self, Load};
use crate::{Bar, Claim, Experiment, Options, Outcome, Paper, Progress, Scale, Table};

/// The experiment.
pub struct EndurancePolicies;

/// Layers with log blocks, which FAB, a buffer of blocks, serves and LRU, one of pages, does not.
const LOG_BLOCKS: [&str; 2] = ["bast", "fast"];
/// Other choices for PUD-LRU.
const PUD_LRU: [&str; 8] = [
    "pud-lru",
    "pud-lru:runs=false",
    "pud-lru:memory=0.5",
    "pud-lru:memory=0",
    "pud-lru:threshold=0.25",
    "pud-lru:threshold=0.5",
    "pud-lru:threshold=2",
    "pud-lru:padding=true",
];
const QUICK_LAYERS: [&str; 3] = ["bast", "fast", "page"];

struct Cell<'a> {
    layer: &'static str,
    load: &'a Load,
    buffer: Spec,
}

struct Measured {
    erases: u64,
    hit_percent: f64,
    write_amplification: f64,
    mean_us: f64,
}

fn measure(profile: &Profile, cell: &Cell) -> Result<Measured> {
    let parts = Parts {
        ftl: Some(Spec::plain(cell.layer)),
        buffer: Some(cell.buffer.clone()),
        ..Parts::default()
    };
    let mut device = Device::new(profile, &parts)?;
    let (end, sum) = cell.load.run(&mut device, 0);
    device.flush(end);
    device.assert_conservation();
    let (pages, flash) = (*device.counts(), *device.nand().counts());
    let writes = pages.host_writes as f64;
    Ok(Measured {
        erases: flash.all_erases(),
        hit_percent: 100.0 * pages.write_hits as f64 / writes,
        write_amplification: flash.all_programs() as f64 / writes,
        mean_us: sum as f64 / cell.load.len() as f64 / 1000.0,
    })
}

impl Experiment for EndurancePolicies {
    fn name(&self) -> &'static str {
        "endurance-policies"
    }

    fn claim(&self) -> Claim {
        Claim {
            paper: Paper::C,
            source: "paper C, section 3",
            text: "what a write buffer gains depends on the load; buffers that know of blocks gain more below log-block layers",
            bars: const { &[Bar::less("fab_over_lru_erases_log_blocks", 1.0, 0.8)] },
            published: &[],
        }
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Outcome> {
        let mut outcome = Outcome::new();
        let buffers: Vec<Spec> = buffer::ALL
            .iter()
            .map(|entry| Spec::plain(entry.name))
            .collect();
        if !options.traces.join("block").exists() {
            let folder = options.traces.display();
            for buffer in &buffers {
                outcome.miss(key(buffer), format!("there are no traces in {folder}"));
            }
            return Ok(outcome);
        }
        let profile = Profile::find("paper-1gb")?;
        let loads = endurance_loads::all(&options.traces, options.scale, &mut outcome)?;
        let layers: Vec<&'static str> = ftl::ALL
            .iter()
            .map(|entry| entry.name)
            .filter(|name| options.scale == Scale::Full || QUICK_LAYERS.contains(name))
            .collect();
        let others = PUD_LRU[1..].iter().map(|text| Ok(text.parse()?));
        let others = others.collect::<Result<Vec<Spec>>>()?;
        let mut cells = Vec::new();
        for layer in &layers {
            for load in &loads {
                for buffer in buffers.iter().chain(&others) {
                    let buffer = buffer.clone();
                    cells.push(Cell {
                        layer,
                        load,
                        buffer,
                    });
                }
            }
        }
        let total = cells.len() as u64;
        progress.step(0, total, "buffers under loads");
        let measured = endurance_loads::parallel(
            &cells,
            |cell| measure(&profile, cell),
            |done| progress.step(done as u64, total, "buffers under loads"),
        );
        let measured = measured.into_iter().collect::<Result<Vec<_>>>()?;
        let each = buffers.len() + others.len();
        let rows: Vec<_> = cells.chunks(each).zip(measured.chunks(each)).collect();
        for layer in &layers {
            outcome
                .tables
                .push(layer_table(layer, buffers.len(), &rows));
        }
        for (place, buffer) in buffers.iter().enumerate() {
            outcome.bar(key(buffer), over_none(&rows, place));
        }
        let at = |name: &str| buffers.iter().position(|buffer| buffer.name() == name);
        if let (Some(by_blocks), Some(by_pages)) = (at("fab"), at("lru")) {
            let over = over(&rows, by_blocks, by_pages, |cell| {
                LOG_BLOCKS.contains(&cell.layer)
            });
            outcome.bar("fab_over_lru_erases_log_blocks", over);
        }
        outcome.tables.push(pud_table(buffers.len(), &rows));
        outcome.setting("profile", profile.name.as_str());
        outcome.setting("buffer_bytes", profile.buffer_bytes);
        outcome.setting("layers", layers.join(", "));
        Ok(outcome)
    }
}

type Row<'a> = (&'a [Cell<'a>], &'a [Measured]);

fn key(buffer: &Spec) -> String {
    format!("erases_over_none_{}", buffer.name().replace('-', "_"))
}

/// Erases with the buffer at this place, divided by those without a buffer: the geometric mean over
/// all layers and loads with erases.
fn over_none(rows: &[Row], place: usize) -> f64 {
    over(rows, place, 0, |_| true)
}

/// Erases of one buffer over those of another: the geometric mean over these layers and all loads
/// that erase anything without a buffer.
fn over(rows: &[Row], place: usize, base: usize, of: impl Fn(&Cell) -> bool) -> f64 {
    let logs: Vec<f64> = rows
        .iter()
        .filter(|(cells, measured)| of(&cells[0]) && measured[0].erases > 0)
        // One is added to both, since some have none left.
        .map(|(_, measured)| {
            let (with, without) = (measured[place].erases, measured[base].erases);
            ((with + 1) as f64 / (without + 1) as f64).ln()
        })
        .collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

fn layer_table(layer: &str, buffers: usize, rows: &[Row]) -> Table {
    let mut table = Table::new(
        format!("{layer}: one pass on a new drive"),
        &[
            "load",
            "buffer",
            "hits %",
            "erases",
            "write amplification",
            "mean response us",
        ],
    );
    for (cells, measured) in rows {
        if cells[0].layer != layer {
            continue;
        }
        for (cell, measured) in cells.iter().zip(*measured).take(buffers) {
            table.row(vec![
                cell.load.name.clone(),
                cell.buffer.to_string(),
                format!("{:.1}", measured.hit_percent),
                measured.erases.to_string(),
                format!("{:.2}", measured.write_amplification),
                format!("{:.0}", measured.mean_us),
            ]);
        }
    }
    table
}

fn pud_table(buffers: usize, rows: &[Row]) -> Table {
    let mut table = Table::new(
        "PUD-LRU, where the original gives no exact formula: erases over none, geometric mean",
        &["choice", "erases over none"],
    );
    let by_default = buffer::ALL
        .iter()
        .position(|entry| entry.name == PUD_LRU[0]);
    let places = by_default.into_iter().chain(buffers..);
    for (name, place) in PUD_LRU.iter().zip(places) {
        table.row(vec![
            (*name).to_owned(),
            format!("{:.3}", over_none(rows, place)),
        ]);
    }
    table
}
