// SPDX-License-Identifier: Apache-2.0
//! The transfer engine's model against what can be computed, and against the paper's words.

use senko_ssd::transfer::{Arrivals, Model, simulate};

const ANSWERS: u64 = 200_000;

/// One channel and no serial stage at Poisson arrivals is the M/M/1 queue: a mean response of 1 /
/// (service rate - arrival rate).
#[test]
fn one_channel_is_the_textbook_queue() {
    let model = Model {
        channels: 1,
        channel_ns: 100_000.0,
        serial_ns: 0.0,
        depth: 100_000,
        window: 100_000,
        ..Model::PAPER
    };
    for rate in [2_000.0, 5_000.0, 8_000.0] {
        let load = Arrivals::Open { rate, burst: 1 };
        let out = simulate(&model, load, ANSWERS * 5, 3).unwrap();
        let expected = 1e6 / (10_000.0 - rate);
        assert!(
            (out.mean_us / expected - 1.0).abs() < 0.04,
            "{rate}: {out:?}, {expected}"
        );
        assert!((out.qps / rate - 1.0).abs() < 0.01, "{out:?}");
        assert!(
            (out.channels_busy - rate / 10_000.0).abs() < 0.01,
            "{out:?}"
        );
    }
}

/// Little's law, in every kind of load: commands under way are answers a second times response
/// time, counting only the time in the engine.
#[test]
fn littles_law_holds() {
    for drives in [1, 2, 4] {
        let model = Model {
            drives,
            window: 1000,
            depth: 1000,
            ..Model::PAPER
        };
        let load = Arrivals::Closed {
            clients: 24,
            think_ns: 50_000.0,
        };
        let out = simulate(&model, load, ANSWERS, 1).unwrap();
        let held = out.qps * out.mean_us / 1e6;
        assert!((held / out.under_way - 1.0).abs() < 0.01, "{out:?}");
        let all = out.qps * (out.mean_us + 50.0) / 1e6;
        assert!((all / 24.0 - 1.0).abs() < 0.01, "{out:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_answers() {
    let run = |seed| simulate(&Model::PAPER, Arrivals::Saturated, 10_000, seed).unwrap();
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

/// Section 5.1 and 5.2 in words: one drive is limited by its own queue, four drives by the serial
/// stage; with four parallel stages the drives are the limit.
#[test]
fn the_bottleneck_is_where_the_paper_sees_it() {
    let saturated = |model: Model| simulate(&model, Arrivals::Saturated, ANSWERS, 1).unwrap();
    let one = saturated(Model::PAPER);
    let four = saturated(Model {
        drives: 4,
        ..Model::PAPER
    });
    assert!(
        one.serial_busy < 0.75 && four.serial_busy > 0.85,
        "{one:?} {four:?}"
    );
    assert!(four.qps < 1.6 * one.qps);
    let lanes = Model {
        drives: 4,
        lanes: 4,
        window: 4 * 19,
        ..Model::PAPER
    };
    let lanes_in_order = saturated(lanes);
    let lanes_any_order = saturated(Model {
        in_order: false,
        ..lanes
    });
    assert!(lanes_in_order.qps > 2.5 * one.qps, "{lanes_in_order:?}");
    assert!(lanes_any_order.qps > 3.2 * one.qps, "{lanes_any_order:?}");
}

#[test]
fn engines_that_never_answer_are_refused() {
    let refused = |model: Model, load| simulate(&model, load, 10, 1).unwrap_err().to_string();
    let none = Model {
        depth: 0,
        ..Model::PAPER
    };
    assert_eq!(
        refused(none, Arrivals::Saturated),
        "an engine with 0 depth never answers"
    );
    let open = Arrivals::Open {
        rate: 0.0,
        burst: 1,
    };
    assert_eq!(
        refused(Model::PAPER, open),
        "0 requests a second in bursts of 1"
    );
    let closed = Arrivals::Closed {
        clients: 0,
        think_ns: 0.0,
    };
    assert_eq!(refused(Model::PAPER, closed), "0 clients never ask");
}
