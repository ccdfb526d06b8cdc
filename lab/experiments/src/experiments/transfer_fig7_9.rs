// SPDX-License-Identifier: Apache-2.0
//! Paper B, figures 7 to 9: answers a second and response time of the cache server with the direct
//! transfer engine, for 1, 2 and 4 drives.
//!
//! Claim: 45, 60 and 65 thousand answers a second and 467, 477 and 502 us under a load that never
//! pauses. One drive reaches 92 % of its own random-read rate. With four drives the serial stage in
//! the engine is the limit (section 5). Expected shape: answers grow less than drives, and response
//! times hardly. Their standard deviation, 85 us with one drive, falls by more than half with
//! several: more drives answer more steadily (section 5.2). With several serial stages and answers
//! in any order, answers grow with the drives to several hundred thousand at one or two
//! milliseconds, as the paper hopes.
//!
//! The queueing model of `senko_ssd::transfer` with one set of four fitted parameters for all six
//! figures. Figure 9's curve is the model with four drives under open load, while the paper's load
//! client sends in step rather than at random; it is shown, but has no bar.

use anyhow::Result;
use senko_ssd::transfer::{Arrivals, Model, simulate};
use serde_json::json;

use crate::{Bar, Claim, Experiment, Options, Outcome, Paper, Progress, Scale, Table};

/// The experiment.
pub struct TransferFig7To9;

/// Drives, answers a second, response time in us and its standard deviation, as the paper measured.
const PAPER: [(u32, f64, f64, f64); 3] = [
    (1, 45_000.0, 467.0, 85.0),
    (2, 60_000.0, 477.0, 35.6),
    (4, 65_000.0, 502.0, 38.0),
];

impl Experiment for TransferFig7To9 {
    fn name(&self) -> &'static str {
        "transfer-fig7-9"
    }

    fn claim(&self) -> Claim {
        Claim {
            paper: Paper::B,
            source: "paper B, figures 7 to 9",
            text: "45, 60 and 65 thousand answers a second at 467, 477 and 502 us with 1, 2 and 4 drives",
            bars: const {
                &[
                    Bar::less("qps_error_percent", 8.0, 4.0),
                    Bar::less("latency_error_percent", 15.0, 8.0),
                    Bar::less("deviation_4_over_1", 0.8, 0.45),
                ]
            },
            published: &[
                ("qps_1", 45_000.0),
                ("qps_2", 60_000.0),
                ("qps_4", 65_000.0),
                ("latency_us_1", 467.0),
                ("latency_us_2", 477.0),
                ("latency_us_4", 502.0),
                ("deviation_us_1", 85.0),
                ("deviation_us_2", 35.6),
                ("deviation_us_4", 38.0),
                ("deviation_2_over_1", 0.419),
                ("deviation_4_over_1", 0.447),
            ],
        }
    }

    fn run(&self, options: &Options, progress: &dyn Progress) -> Result<Outcome> {
        let answers = match options.scale {
            Scale::Full => 5_000_000,
            Scale::Quick => 500_000,
        };
        let mut outcome = Outcome::new();
        outcome.setting("model", json!(Model::PAPER));
        outcome.setting(
            "fitted",
            json!(["channel_ns", "serial_ns", "depth", "window"]),
        );
        outcome.setting("answers", answers);
        let mut table = Table::new(
            "Figures 7 and 8: a load that never pauses",
            &[
                "drives",
                "paper QPS",
                "model QPS",
                "paper us",
                "model us",
                "paper deviation us",
                "model deviation us",
                "serial stage busy",
                "channels busy",
            ],
        );
        let (mut qps_error, mut latency_error) = (0.0f64, 0.0f64);
        let mut one_deviation = f64::NAN;
        for (step, (drives, qps, latency, deviation)) in PAPER.into_iter().enumerate() {
            progress.step(step as u64, 7, "a load that never pauses");
            let model = Model {
                drives,
                ..Model::PAPER
            };
            let out = simulate(&model, Arrivals::Saturated, answers, options.seed)?;
            qps_error = qps_error.max((out.qps / qps - 1.0).abs() * 100.0);
            latency_error = latency_error.max((out.mean_us / latency - 1.0).abs() * 100.0);
            table.row(vec![
                drives.to_string(),
                format!("{qps:.0}"),
                format!("{:.0}", out.qps),
                format!("{latency:.0}"),
                format!("{:.0}", out.mean_us),
                format!("{deviation:.1}"),
                format!("{:.1}", out.deviation_us),
                format!("{:.0} %", out.serial_busy * 100.0),
                format!("{:.0} %", out.channels_busy * 100.0),
            ]);
            outcome.bar(format!("qps_{drives}"), out.qps);
            outcome.bar(format!("latency_us_{drives}"), out.mean_us);
            outcome.bar(format!("deviation_us_{drives}"), out.deviation_us);
            if drives == 1 {
                one_deviation = out.deviation_us;
            } else {
                let over_one = out.deviation_us / one_deviation;
                outcome.bar(format!("deviation_{drives}_over_1"), over_one);
            }
        }
        outcome.bar("qps_error_percent", qps_error);
        outcome.bar("latency_error_percent", latency_error);
        outcome.tables.push(table);
        progress.step(3, 7, "open load");
        outcome.tables.push(figure_9(answers, options.seed)?);
        progress.step(4, 7, "without the bottleneck");
        outcome
            .tables
            .push(without_bottleneck(answers, options.seed)?);
        progress.step(7, 7, "done");
        Ok(outcome)
    }
}

fn figure_9(answers: u64, seed: u64) -> Result<Table> {
    let mut table = Table::new(
        "Figure 9: four drives, open load (Poisson, and in bursts of 16)",
        &["QPS", "us", "p99 us", "us in bursts", "p99 us in bursts"],
    );
    let model = Model {
        drives: 4,
        ..Model::PAPER
    };
    for rate in [5e3, 10e3, 20e3, 30e3, 40e3, 50e3, 55e3, 60e3] {
        let run = |burst| simulate(&model, Arrivals::Open { rate, burst }, answers / 5, seed);
        let (single, bursts) = (run(1)?, run(16)?);
        table.row(vec![
            format!("{:.0}", single.qps),
            format!("{:.0}", single.mean_us),
            format!("{:.0}", single.p99_us),
            format!("{:.0}", bursts.mean_us),
            format!("{:.0}", bursts.p99_us),
        ]);
    }
    Ok(table)
}

/// Section 5's question: what removes the bottleneck.
fn without_bottleneck(answers: u64, seed: u64) -> Result<Table> {
    let mut table = Table::new(
        "Section 5: what removes the bottleneck (a load that never pauses)",
        &[
            "engine",
            "4 drives: QPS",
            "us",
            "p99 us",
            "16 drives: QPS",
            "us",
            "p99 us",
        ],
    );
    let paper = Model::PAPER;
    let wide = |model: Model| Model {
        window: model.drives * model.depth,
        ..model
    };
    type Change = fn(Model) -> Model;
    let engines: [(&str, Change); 5] = [
        ("as in the paper", |model| model),
        ("a window of all command queues", |model| Model {
            window: model.drives * model.depth,
            ..model
        }),
        ("that, and a serial stage of half the time", |model| Model {
            serial_ns: model.serial_ns / 2.0,
            ..model
        }),
        ("that window, and a serial stage for each drive", |model| {
            Model {
                lanes: model.drives,
                ..model
            }
        }),
        ("that, and answers as they come", |model| Model {
            lanes: model.drives,
            in_order: false,
            ..model
        }),
    ];
    for (index, (name, change)) in engines.into_iter().enumerate() {
        let mut cells = vec![name.to_owned()];
        for drives in [4, 16] {
            let model = Model { drives, ..paper };
            let model = change(if index < 2 { model } else { wide(model) });
            let out = simulate(&model, Arrivals::Saturated, answers / 2, seed)?;
            cells.extend([
                format!("{:.0}", out.qps),
                format!("{:.0}", out.mean_us),
                format!("{:.0}", out.p99_us),
            ]);
        }
        table.row(cells);
    }
    Ok(table)
}
