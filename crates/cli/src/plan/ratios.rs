// SPDX-License-Identifier: Apache-2.0
//! `senko plan --ratios`: flash for each byte of DRAM, as in chapter 8 of paper A.

use std::io::Write;

use anyhow::{Context, Result};
use senko_plan::ratios::{PAPER, Premises, SIZES, TODAY, tables};
use serde_json::json;

use super::PlanArgs;

/// The assumptions from these options: the paper's with `--paper`, otherwise present ones.
pub fn premises(args: &PlanArgs) -> Premises {
    let base = if args.paper { PAPER } else { TODAY };
    Premises {
        dram_price: args.dram_price.unwrap_or(base.dram_price),
        flash_price: args.flash_price.unwrap_or(base.flash_price),
        machine_dram: args.machine_dram.map_or(base.machine_dram, |b| b as f64),
        machine_flash: args.machine_flash.map_or(base.machine_flash, |b| b as f64),
        index_bits: args.index_bits.unwrap_or(base.index_bits),
        ..base
    }
}

/// Prints the tables, or one JSON object.
pub fn main(args: &PlanArgs) -> Result<()> {
    let premises = premises(args);
    let mut out = crate::prose::stdout();
    if args.json {
        let sizes = SIZES.map(|size| {
            json!({ "bytes": size, "flash_over_dram": premises.index_ratio(size),
                "share_of_machine_dram": premises.index_share(size) })
        });
        let line = json!({
            "dram_price": premises.dram_price, "flash_price": premises.flash_price,
            "flat_from": premises.flat_from(), "machine_flash_over_dram": premises.machine_ratio(),
            "index_bits": premises.index_bits, "header_bytes": premises.header_bytes,
            "sizes": sizes,
        });
        return writeln!(out, "{line}").context("cannot write to stdout");
    }
    let tables = tables(&[("", premises)]);
    let texts: Vec<String> = tables.iter().map(senko_plan::Table::to_markdown).collect();
    write!(
        out,
        "DRAM at {} a GB, flash at {}; an index of {} bits for each item, and {} bytes besides key and value\n\n{}",
        premises.dram_price,
        premises.flash_price,
        premises.index_bits,
        premises.header_bytes,
        texts.join("\n")
    )
    .context("cannot write to stdout")
}
