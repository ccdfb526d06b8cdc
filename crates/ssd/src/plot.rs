// SPDX-License-Identifier: Apache-2.0
//! Charts of traces and runs: a trace's requests over time (the endurance paper's figures 2 and 3),
//! wear of blocks, and response times over time. [`crate::chart`] draws them.

use crate::chart::{Axis, Chart, Mark, Panel, Unit};
use crate::report::{SeriesPoint, Wear};
use crate::{Op, Request};

const READ: usize = 0;
const WRITE: usize = 1;

/// The requests of a trace: time against address, with reads and writes separate.
pub fn requests(title: &str, requests: &[Request]) -> String {
    let begin = requests.first().map_or(0, |request| request.time) as f64;
    let end = requests
        .last()
        .map_or(1e9, |request| request.time as f64)
        .max(begin + 1.0);
    let top = requests
        .iter()
        .map(|request| request.offset)
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let mut panels = Vec::new();
    for (op, name, colour) in [(Op::Write, "writes", WRITE), (Op::Read, "reads", READ)] {
        let of_op = requests.iter().filter(|request| request.op == op);
        let points: Vec<(f64, f64)> = of_op
            .map(|request| (request.time as f64, request.offset as f64))
            .collect();
        let title = format!("{} {name}", points.len());
        let x = Axis::linear("time", Unit::Nanoseconds).within(begin, end);
        let y = Axis::linear("address", Unit::Bytes).within(0.0, top);
        let panel = Panel::new(&title, x, y).with("", Mark::Dots, points);
        panels.push(panel.coloured(colour));
    }
    Chart::new(title, panels).to_svg()
}

pub fn erases(title: &str, wear: &Wear) -> String {
    let from = f64::from(wear.min);
    let to = f64::from(wear.max) + 1.0;
    let caption = format!("mean {:.1}, deviation {:.1}", wear.mean, wear.deviation);
    let bars = wear.histogram.iter();
    let bars = bars.map(|bar| (f64::from(bar.from), f64::from(bar.blocks)));
    let x = Axis::linear("erases of a block", Unit::Whole("")).within(from, to);
    let y = Axis::linear("blocks", Unit::Whole(""));
    let panel = Panel::new(&caption, x, y).with("", Mark::Bars, bars.collect());
    Chart::new(title, vec![panel.coloured(READ)]).to_svg()
}

/// Response times over virtual time: the mean and the longest. Seconds without a request are gaps.
pub fn responses(title: &str, series: &[SeriesPoint]) -> String {
    let last = series.iter().rev().find(|point| point.count > 0);
    let end = last.map_or(1.0, |point| point.second).max(1e-9) * 1e9;
    type Value = fn(&SeriesPoint) -> f64;
    let kinds: [(&str, Value, usize); 2] = [
        ("mean", |point| point.mean_us, READ),
        ("longest", |point| point.max_us, WRITE),
    ];
    let mut panels = Vec::new();
    for (name, value, colour) in kinds {
        let points = series.iter().map(|point| {
            let us = if point.count > 0 {
                value(point)
            } else {
                f64::NAN
            };
            (point.second * 1e9, us * 1e3)
        });
        let x = Axis::linear("time", Unit::Nanoseconds).within(0.0, end);
        let y = Axis::linear("response time", Unit::Nanoseconds);
        let panel = Panel::new(name, x, y).with("", Mark::Thin, points.collect());
        panels.push(panel.coloured(colour));
    }
    Chart::new(title, panels).to_svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(time: u64, op: Op, offset: u64) -> Request {
        Request {
            time,
            ..Request::new(op, offset, 4096)
        }
    }

    #[test]
    fn reads_and_writes_stand_apart() {
        let all = [
            request(0, Op::Write, 0),
            request(5_000_000_000, Op::Write, 50_000_000),
            request(10_000_000_000, Op::Read, 100_000_000),
        ];
        let svg = requests("a < b", &all);
        assert!(svg.contains("a &lt; b") && svg.contains("2 writes") && svg.contains("1 reads"));
        // The upper right corner of the second panel, which has the whole longest address.
        assert!(
            svg.contains("address (MB)") && svg.contains("time (s)"),
            "{svg}"
        );
        assert!(svg.contains("M738 "), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_million_requests_make_a_small_picture() {
        let all: Vec<Request> = (0..1_000_000)
            .map(|n| request(n * 1000, Op::Write, n % 7 * 1000))
            .collect();
        assert!(requests("", &all).len() < 400_000);
        assert!(requests("", &[]).contains("0 reads"));
    }
}
