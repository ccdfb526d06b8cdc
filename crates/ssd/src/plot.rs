// SPDX-License-Identifier: Apache-2.0
//! Plots as SVG: a trace's requests over time (the endurance paper's figures 2 and 3), wear of blocks, response times over time.
//!
//! The text is self-contained and small: points are drawn on a grid of half pixels, each cell once, so that a trace of any length gives a picture of bounded size.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::report::{Report, SeriesPoint};
use crate::{Op, Request};

const WIDTH: f64 = 900.0;
const PANEL: f64 = 300.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 46.0;
const GAP: f64 = 70.0;
const READ: &str = "#1f6fb4";
const WRITE: &str = "#c0392b";
const INK: &str = "#333333";

/// One picture of panels one above the other.
struct Svg {
    text: String,
    panels: usize,
}

/// The area of a panel with the values at its edges.
#[derive(Clone, Copy)]
struct Panel {
    top: f64,
    x: (f64, f64),
    y: (f64, f64),
}

impl Panel {
    fn x(&self, value: f64) -> f64 {
        let share = (value - self.x.0) / (self.x.1 - self.x.0).max(f64::MIN_POSITIVE);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.y.0) / (self.y.1 - self.y.0).max(f64::MIN_POSITIVE);
        self.top + PANEL - share * PANEL
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Svg {
    fn new(title: &str, panels: usize) -> Self {
        let height = TOP + panels as f64 * (PANEL + GAP);
        let mut text = String::new();
        let _ = write!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"16\" fill=\"{INK}\">{}</text>\n",
            escape(title)
        );
        Self { text, panels: 0 }
    }

    /// A frame with ticks. The names say what the axes count.
    fn panel(&mut self, title: &str, x: (f64, f64, &str), y: (f64, f64, &str)) -> Panel {
        let panel = Panel {
            top: TOP + self.panels as f64 * (PANEL + GAP),
            x: (x.0, x.1),
            y: (y.0, y.1),
        };
        self.panels += 1;
        let (top, bottom, right) = (panel.top, panel.top + PANEL, WIDTH - RIGHT);
        let _ = write!(
            self.text,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{}\" height=\"{PANEL}\" fill=\"none\" stroke=\"{INK}\"/>\n\
             <text x=\"{right}\" y=\"{}\" text-anchor=\"end\" fill=\"{INK}\">{}</text>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>\n\
             <text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>\n",
            right - LEFT,
            top - 6.0,
            escape(title),
            (LEFT + right) / 2.0,
            bottom + 38.0,
            escape(x.2),
            top + PANEL / 2.0,
            escape(y.2)
        );
        for value in ticks(x.0, x.1) {
            let at = panel.x(value);
            let _ = writeln!(
                self.text,
                "<path d=\"M{at:.1} {bottom}v5\" stroke=\"{INK}\"/><text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
                bottom + 19.0,
                number(value)
            );
        }
        for value in ticks(y.0, y.1) {
            let at = panel.y(value);
            let _ = writeln!(
                self.text,
                "<path d=\"M{LEFT} {at:.1}h-5\" stroke=\"{INK}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{INK}\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                number(value)
            );
        }
        panel
    }

    fn line(&mut self, panel: Panel, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
        let mut path = String::new();
        for (x, y) in points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", panel.x(x), panel.y(y));
        }
        let _ = writeln!(
            self.text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }

    fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Round numbers between two, five or so.
fn ticks(from: f64, to: f64) -> impl Iterator<Item = f64> {
    let span = (to - from).max(f64::MIN_POSITIVE);
    let rough = span / 5.0;
    let unit = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * unit)
        .find(|step| *step >= rough)
        .unwrap_or(unit * 10.0);
    let first = (from / step).ceil() as i64;
    let last = (to / step).floor() as i64;
    (first..=last.min(first + 20)).map(move |index| index as f64 * step)
}

fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e6 || (magnitude > 0.0 && magnitude < 1e-3) {
        format!("{value:.1e}")
    } else if magnitude >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// The requests of a trace: time against address, reads and writes apart.
pub fn requests(title: &str, requests: &[Request]) -> String {
    let seconds = |request: &Request| request.time as f64 / 1e9;
    let megabytes = |request: &Request| request.offset as f64 / 1e6;
    let begin = requests.first().map_or(0.0, seconds);
    let end = requests.last().map_or(1.0, seconds).max(begin + 1e-9);
    let top = requests.iter().map(megabytes).fold(1e-3, f64::max);
    let mut svg = Svg::new(title, 2);
    for (op, name, colour) in [(Op::Write, "writes", WRITE), (Op::Read, "reads", READ)] {
        let of_op = requests.iter().filter(|request| request.op == op);
        let title = format!("{} {name}", of_op.clone().count());
        let panel = svg.panel(&title, (begin, end, "time (s)"), (0.0, top, "address (MB)"));
        let cells: BTreeSet<(i64, i64)> = of_op
            .map(|request| {
                let half = |pixels: f64| (pixels * 2.0).round() as i64;
                (
                    half(panel.x(seconds(request))),
                    half(panel.y(megabytes(request))),
                )
            })
            .collect();
        let mut path = String::new();
        for (x, y) in cells {
            let _ = write!(path, "M{} {}h0", x as f64 / 2.0, y as f64 / 2.0);
        }
        let _ = writeln!(
            svg.text,
            "<path d=\"{path}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linecap=\"round\" stroke-opacity=\"0.6\"/>"
        );
    }
    svg.end()
}

/// How many blocks were erased how often.
pub fn erases(title: &str, report: &Report) -> String {
    let wear = &report.wear;
    let from = f64::from(wear.min);
    let to = f64::from(wear.max) + 1.0;
    let top = wear.histogram.iter().map(|bar| bar.2).max().unwrap_or(1);
    let mut svg = Svg::new(title, 1);
    let caption = format!("mean {:.1}, deviation {:.1}", wear.mean, wear.deviation);
    let panel = svg.panel(
        &caption,
        (from, to, "erases of a block"),
        (0.0, f64::from(top.max(1)), "blocks"),
    );
    for (begin, end, blocks) in &wear.histogram {
        let (left, right) = (panel.x(f64::from(*begin)), panel.x(f64::from(*end).min(to)));
        let y = panel.y(f64::from(*blocks));
        let _ = writeln!(
            svg.text,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{READ}\"/>",
            (right - left - 1.0).max(0.5),
            panel.top + PANEL - y
        );
    }
    svg.end()
}

/// Response times over virtual time: the mean and the longest.
pub fn responses(title: &str, report: &Report) -> String {
    let series: Vec<&SeriesPoint> = report
        .series
        .iter()
        .filter(|point| point.count > 0)
        .collect();
    let end = series.last().map_or(1.0, |point| point.second).max(1e-9);
    let mut svg = Svg::new(title, 2);
    type Value = fn(&SeriesPoint) -> f64;
    let kinds: [(&str, Value, &str); 2] = [
        ("mean", |point| point.mean_us, READ),
        ("longest", |point| point.max_us, WRITE),
    ];
    for (name, value, colour) in kinds {
        let top = series.iter().map(|point| value(point)).fold(1e-3, f64::max);
        let panel = svg.panel(
            name,
            (0.0, end, "time (s)"),
            (0.0, top, "response time (us)"),
        );
        svg.line(
            panel,
            series.iter().map(|point| (point.second, value(point))),
            colour,
        );
    }
    svg.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(time: u64, op: Op, offset: u64) -> Request {
        Request {
            time,
            device: 0,
            op,
            offset,
            bytes: 4096,
            stream: 0,
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
        // The middle of the first panel, and the upper right corner of the second.
        assert!(svg.contains("M485 196h0"), "{svg}");
        assert!(svg.contains("M880 416h0"), "{svg}");
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

    #[test]
    fn ticks_are_round() {
        let all: Vec<f64> = ticks(0.0, 10.0).collect();
        assert_eq!(all, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(2e6), "2.0e6");
    }
}
