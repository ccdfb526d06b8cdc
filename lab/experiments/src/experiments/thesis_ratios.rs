// SPDX-License-Identifier: Apache-2.0
//! Paper A, chapter 8: figure 49 and tables 10 and 11, with the paper's assumptions and with
//! today's.
//!
//! Claim: flash with its DRAM is cheap once there is about ten times as much flash as DRAM. A
//! machine holds at least 37.5 times as much. An index of 16 bits an element allows 516 times as
//! much with elements of 1 KB. So a machine's DRAM has room to spare.
//!
//! Expected shape: the paper's numbers are reproduced exactly, since they are arithmetic. Today
//! DRAM costs 40 times as much as flash, not 4.5 times, so the price is flat from 90 times on. The
//! index of `senko serve` takes 9 bytes, so elements of 1 KB allow 117 times as much flash. That is
//! less than a machine of today holds, so DRAM runs out first.
//!
//! Nothing is measured; `senko plan --ratios` prints the same for other assumptions.

use anyhow::Result;

use crate::{Bar, Claim, Experiment, Options, Outcome, Paper, Progress};
use senko_plan::ratios::{PAPER, SIZES, TODAY, tables};

/// The experiment.
pub struct ThesisRatios;

impl Experiment for ThesisRatios {
    fn name(&self) -> &'static str {
        "thesis-ratios"
    }

    fn claim(&self) -> Claim {
        Claim {
            paper: Paper::A,
            source: "paper A, chapter 8, figure 49, tables 10 and 11",
            text: "flash is cheap from ten times as much as DRAM on, a machine holds 37.5 times as much, and an index of 16 bits allows 516 times with elements of 1 KB",
            bars: const {
                &[
                    Bar::less("flat_from_paper", 10.1, 10.01),
                    Bar::more("machine_ratio_paper", 37.4, 37.49),
                    Bar::more("index_ratio_1024_paper", 515.0, 515.9),
                ]
            },
            published: &[
                ("flat_from_paper", 10.0),
                ("machine_ratio_paper", 37.5),
                ("index_ratio_1024_paper", 516.0),
            ],
        }
    }

    fn run(&self, _: &Options, progress: &dyn Progress) -> Result<Outcome> {
        progress.step(0, 1, "ratios");
        let mut outcome = Outcome::new();
        let both = [("paper", PAPER), ("today", TODAY)];
        for (name, premises) in both {
            outcome.bar(format!("flat_from_{name}"), premises.flat_from());
            outcome.bar(format!("machine_ratio_{name}"), premises.machine_ratio());
            for size in SIZES {
                let key = format!("index_ratio_{size}_{name}");
                outcome.bar(key, premises.index_ratio(size));
            }
            for (what, value) in [
                ("dram_price", premises.dram_price),
                ("flash_price", premises.flash_price),
                ("index_bits", premises.index_bits),
                ("header_bytes", premises.header_bytes),
            ] {
                outcome.setting(format!("{what}_{name}"), value);
            }
        }
        outcome
            .tables
            .extend(tables(&both).into_iter().map(Into::into));
        Ok(outcome)
    }
}
