// SPDX-License-Identifier: Apache-2.0
//! Does the simulator's write amplification agree with theory?
//!
//! Claim: under uniform random writes a page-level layer writes A pages for each of the host's,
//! where A has a closed form for greedy and for FIFO collection (Desnoyers 2012 and 2014;
//! `senko_ssd::model`). Expected shape: FIFO is within the noise of the measurement. Greedy is a
//! little above its form, which assumes an infinite number of blocks; the difference grows with
//! smaller over-provisioning.
//!
//! The blocks that alpha counts: 8192 blocks over the logical pages. The flash has one more block,
//! the reserve: when a victim is chosen, every other block is full of data, as in the model. Host
//! and collection write to the same open block, as in the model.
//!
//! The drive is filled once in order, then overwritten at random until it is steady, then measured,
//! in two halves, so that a drift would show. Nothing depends on time, so no noise is probed. The
//! influence of chance falls with the number of writes, and the two halves show how much is left.

use anyhow::Result;
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::model::{fifo_write_amplification, greedy_write_amplification};
use senko_ssd::profile::Profile;
use senko_ssd::{Error, Op, Request};
use senko_workload::Rng;
use serde_json::json;

use super::endurance_loads::request;
use crate::{Bar, Experiment, Measure, Options, Outcome, Paper, Progress, Table};

/// Blocks that hold data.
const BLOCKS: u32 = 8192;
const ALPHAS: [f64; 3] = [1.10, 1.28, 1.50];
const PAGES: [u32; 2] = [64, 128];
const PAGE_BYTES: u64 = 4096;

/// A drive of one plane without times, which writes 4 KB pages; `blocks` and one for the reserve.
pub(crate) fn profile(blocks: u32, pages: u32, logical: u64, ftl: &str) -> Result<Profile, Error> {
    Profile::parse(&format!(
        "name = \"uniform\"\nsource = \"closed forms\"\nuser_bytes = {}\nftl = \"{ftl}\"\n\
         [geometry]\nchannels = 1\ndies = 1\nplanes = 1\nblocks = {}\npages = {pages}\npage_bytes = {PAGE_BYTES}\nspare_bytes = 0\n\
         [timing]\nread_ns = 0\nprogram_ns = 0\nerase_ns = 0\ncommand_ns = 0\nbus_ns_per_byte = 0.0\ncontroller_ns = 0\nram_ns = 0\n\
         background_erase = false\ncopy_back = false\n",
        logical * PAGE_BYTES,
        blocks + 1,
    ))
}

/// This many writes of a page, with all pages equally likely.
pub(crate) fn uniform_writes(
    rng: &mut Rng,
    logical: u64,
    count: u64,
) -> impl Iterator<Item = Result<Request, Error>> {
    (0..count).map(move |_| {
        let offset = rng.below(logical) * PAGE_BYTES;
        Ok(request(Op::Write, offset, PAGE_BYTES))
    })
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    alpha: f64,
    pages: u32,
    greedy: bool,
}

impl Setting {
    fn policy(self) -> &'static str {
        if self.greedy { "greedy" } else { "fifo" }
    }

    fn closed_form(self) -> f64 {
        if self.greedy {
            greedy_write_amplification(self.alpha, self.pages)
        } else {
            fifo_write_amplification(self.alpha)
        }
    }

    /// Write amplification in the first and the second half of the measurement. `warm` and `half`
    /// are multiples of the logical pages.
    fn measure(self, blocks: u32, warm: u64, half: u64, seed: u64) -> Result<[f64; 2]> {
        let physical = f64::from(blocks) * f64::from(self.pages);
        let logical = (physical / self.alpha).round() as u64;
        let ftl = format!("page:gc={}", self.policy());
        let profile = profile(blocks, self.pages, logical, &ftl)?;
        let parts = Parts {
            untimed: true,
            seed,
            ..Parts::default()
        };
        let mut drive = Drive::new(&profile, &parts)?;
        drive.precondition(1.0)?;
        let mut rng = Rng::new(seed);
        let closed = Load::Closed { depth: 1 };
        drive.run(uniform_writes(&mut rng, logical, warm * logical), closed)?;
        let mut halves = [0.0; 2];
        for found in &mut halves {
            let report = drive.run(uniform_writes(&mut rng, logical, half * logical), closed)?;
            *found = report.write_amplification().unwrap_or(f64::NAN);
        }
        Ok(halves)
    }
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for alpha in ALPHAS {
        for pages in PAGES {
            for greedy in [true, false] {
                settings.push(Setting {
                    alpha,
                    pages,
                    greedy,
                });
            }
        }
    }
    settings
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "ssd-closed-form",
    paper: Paper::Design,
    source: "Desnoyers, Analytic models of SSD write performance, 2014",
    text: "Uniform random writes have a write amplification that is known in closed form.",
    sentences: &[],
    bars: &[Bar::less("wa_error_percent", 1.5, 0.5)],
    run: Measure::Alone(run),
};

fn run(options: &Options, progress: &dyn Progress, outcome: &mut Outcome) -> Result<()> {
    let (warm, half) = options.scaled((10, 10), (20, 40));
    let settings = settings();
    let mut table = Table::titled("Write amplification of uniform random writes, 8192 blocks");
    let mut largest = 0.0f64;
    for (done, setting) in settings.iter().enumerate() {
        let doing = format!("{} at alpha {}", setting.policy(), setting.alpha);
        progress.step(done as u64, settings.len() as u64, &doing);
        let seed = options.seed.wrapping_add(done as u64);
        let [first, second] = setting.measure(BLOCKS, warm, half, seed)?;
        // Both halves have as many of the host's writes.
        let measured = (first + second) / 2.0;
        let form = setting.closed_form();
        let error = (measured / form - 1.0) * 100.0;
        largest = largest.max(error.abs());
        table.add([
            ("policy", setting.policy().to_owned()),
            ("alpha", format!("{:.2}", setting.alpha)),
            ("pages/block", setting.pages.to_string()),
            ("pages written, closed form", format!("{form:.4}")),
            ("pages written, simulated", format!("{measured:.4}")),
            ("error %", format!("{error:+.3}")),
            ("first half", format!("{first:.4}")),
            ("second half", format!("{second:.4}")),
        ]);
    }
    outcome.bar("wa_error_percent", largest);
    outcome.setting("blocks", BLOCKS);
    outcome.setting("reserve_blocks_beside", 1);
    outcome.setting("alphas", json!(ALPHAS));
    outcome.setting("pages_per_block", json!(PAGES));
    outcome.setting("warm_overwrites", warm);
    outcome.setting("measured_overwrites", 2 * half);
    outcome.tables.push(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seed is fixed, so the counts are too.
    #[test]
    fn small_drives_are_near_the_closed_forms() {
        for setting in settings() {
            let [first, second] = setting
                .measure(128, 6, 8, 3)
                .expect("a small drive is sound");
            let error = (first + second) / 2.0 / setting.closed_form() - 1.0;
            assert!(error.abs() < 0.04, "{setting:?}: {error}");
        }
    }
}
