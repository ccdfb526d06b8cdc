// SPDX-License-Identifier: Apache-2.0
//! Paper A, table 2: the size of a translation layer's mapping table.
//!
//! Claim: an 80 GB drive with pages of 2 KB and blocks of 128 KB needs a table of 126.6 MB if it
//! maps pages, and 1.5 MB if it maps blocks. The paper's numbers are MiB, and count fractions of
//! bits: log2 of 41,943,040 pages is 25.3 bits. With entries of whole bits (26 and 20) they are 130
//! and 1.56 MiB. Expected shape: layers with log blocks a little above block-level, with a cached
//! map below page-level and the rest of the table on the flash.
//!
//! The first two rows are the paper's own, with as many pages as there are places. The others are
//! the layers' own figures on that drive with 64 more blocks, which their log blocks and merges
//! need.

use anyhow::Result;
use senko_ssd::ftl::{self, Mapping};
use senko_ssd::geometry::Geometry;
use senko_ssd::nand::{Endurance, Nand};
use senko_ssd::spec::Spec;
use serde_json::json;

use crate::{Experiment, Measure, Options, Outcome, Paper, Progress, Table, untested};

/// The drive of the paper's tables 1 and 2.
const PAGE_BYTES: u32 = 2048;
const PAGES: u32 = 64;
const BLOCKS: u32 = 655_360;

/// Blocks beyond the 80 GB.
const MORE_BLOCKS: u32 = 64;

/// The paper's row, with its MB.
const PAPER: [(&str, u64, f64); 2] = [
    ("page", BLOCKS as u64 * PAGES as u64, 126.6),
    ("block", BLOCKS as u64, 1.5),
];

const MIB: f64 = 1024.0 * 1024.0;

fn row(table: &mut Table, name: &str, paper: Option<f64>, mapping: &Mapping) -> (f64, f64) {
    let fractional = mapping.fractional_bits / 8.0 / MIB;
    let whole = mapping.bits as f64 / 8.0 / MIB;
    let on_flash = mapping.flash_bytes as f64 / MIB;
    table.add([
        ("layer", name.to_owned()),
        (
            "paper MiB",
            paper.map_or("-".to_owned(), |mib| format!("{mib}")),
        ),
        ("MiB, fractional bits", format!("{fractional:.3}")),
        ("MiB, whole bits", format!("{whole:.3}")),
        ("on flash MiB", format!("{on_flash:.1}")),
    ]);
    (fractional, whole)
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "ftl-table2",
    paper: Paper::A,
    source: "paper A, table 2",
    text: "the size of mapping tables by pages and by blocks",
    sentences: &[untested(
        "section 2.2.2, table 2",
        "the mapping table of an 80 GB drive takes 126.6 MB by pages and 1.5 MB by blocks",
        &["lab/experiments/src/experiments/ftl_table2.rs"],
        "arithmetic on the number of pages; a test holds its digits",
    )],
    bars: &[],
    run: Measure::Alone(run),
};

fn run(_: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let mut table =
        Table::titled("Mapping tables of an 80 GiB drive, pages of 2 KiB, blocks of 128 KiB");
    for (name, entries, paper) in PAPER {
        let mapping = Mapping::table(entries, entries);
        let (fractional, whole) = row(&mut table, name, Some(paper), &mapping);
        outcome.bar(format!("{name}_mib"), fractional);
        outcome.bar(format!("{name}_whole_bits_mib"), whole);
    }
    outcome.tables.push(table);

    let geometry = Geometry {
        channels: 1,
        dies: 1,
        planes: 1,
        blocks: BLOCKS + MORE_BLOCKS,
        pages: PAGES,
        page_bytes: PAGE_BYTES,
        spare_bytes: 64,
    };
    let nand = Nand::new(geometry, None, &Endurance::default(), 1)?;
    let mut layers =
        Table::titled("What each layer says of itself on that drive, with its default options");
    let steps = ftl::ALL.len() as u64;
    for (step, entry) in ftl::ALL.iter().enumerate() {
        progress.step(step as u64, steps, entry.name);
        // DFTL's map also lies on the flash, which must have room for it.
        let logical_pages = BLOCKS * PAGES;
        let fits = ftl::build(&Spec::plain(entry.name), &nand, logical_pages);
        let ((layer, spec), note) = match fits {
            Ok(built) => (built, ""),
            Err(_) => {
                let less = logical_pages / 100 * 98;
                let built = ftl::build(&Spec::plain(entry.name), &nand, less)?;
                (built, " (98 % of the pages)")
            }
        };
        let name = format!("{spec}{note}");
        row(&mut layers, &name, None, &layer.mapping());
    }
    outcome.tables.push(layers);
    outcome.setting("geometry", json!(geometry));
    outcome.setting("logical_pages", BLOCKS * PAGES);
    Ok(())
}
