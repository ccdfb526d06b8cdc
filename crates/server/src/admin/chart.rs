// SPDX-License-Identifier: Apache-2.0
//! Lines of the page ([`super::page`]) as inline SVG: one chart for each thing that is shown, with
//! the time from left to right and its end at the right border. Its words are HTML beside it, since
//! the picture is stretched.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::history::{Line, Point};

/// The units of a picture: x from 0 to `WIDTH`, y from 0 at the top to `HEIGHT`.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 100.0;

/// One of the lines of a chart.
pub(super) struct Series {
    /// The class of its colour, and its name.
    class: &'static str,
    name: &'static str,
    value: fn(&Point) -> Option<f32>,
}

/// What is drawn.
pub(super) struct Chart<'a> {
    pub title: &'a str,
    pub series: &'a [Series],
    /// A value as text.
    pub shown: fn(f64) -> String,
    /// The value at the top, if it is always the same.
    pub top: Option<f64>,
    /// A bound that is drawn as a dashed line, and its name.
    pub bound: Option<(&'a str, f64)>,
}

impl Series {
    pub(super) fn new(
        class: &'static str,
        name: &'static str,
        value: fn(&Point) -> Option<f32>,
    ) -> Series {
        Series { class, name, value }
    }
}

impl<'a> Chart<'a> {
    /// One whose top is the largest value, without a bound.
    pub(super) fn new(title: &'a str, series: &'a [Series], shown: fn(f64) -> String) -> Chart<'a> {
        Chart {
            title,
            series,
            shown,
            top: None,
            bound: None,
        }
    }

    /// Appends the chart with what the line has. The words of a chart are the server's own.
    pub(super) fn draw(&self, line: &Line, now: Instant, out: &mut String) {
        let values = |series: &Series| -> Vec<(Duration, Option<f64>)> {
            let value = series.value;
            line.points(now)
                .map(|(age, point)| (age, value(point).map(f64::from)))
                .collect()
        };
        let all: Vec<_> = self.series.iter().map(values).collect();
        let seen = all.iter().flatten().filter_map(|(_, value)| *value);
        let largest = seen.chain(self.bound.map(|(_, bound)| bound));
        let top = self.top.unwrap_or_else(|| largest.fold(0.0, f64::max));
        let _ = write!(
            out,
            "<figure><figcaption><strong>{}</strong> <span>top: {}</span></figcaption>\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=none role=img aria-label=\"{}\">",
            self.title,
            (self.shown)(top),
            self.title
        );
        let y = |value: f64| {
            let share = if top > 0.0 {
                (value / top).min(1.0)
            } else {
                0.0
            };
            HEIGHT - 1.0 - share * (HEIGHT - 2.0)
        };
        if let Some((_, bound)) = self.bound {
            let y = y(bound);
            let _ = write!(out, "<path class=bound d=\"M0 {y:.1}H{WIDTH}\"/>");
        }
        for (series, values) in self.series.iter().zip(&all) {
            let _ = write!(
                out,
                "<path class={} d=\"{}\"/>",
                series.class,
                path(line, values, y)
            );
        }
        out.push_str("</svg><p>");
        for (series, values) in self.series.iter().zip(&all) {
            let last = values.last().and_then(|(_, value)| *value);
            let last = last.map_or_else(|| "–".to_owned(), self.shown);
            let _ = write!(
                out,
                "<span><i class=\"key {}\"></i>{} {last}</span> ",
                series.class, series.name
            );
        }
        if let Some((name, bound)) = self.bound {
            let _ = write!(out, "<span>{name} {}</span>", (self.shown)(bound));
        }
        out.push_str("</p></figure>");
    }
}

/// The path through the values. It is interrupted where one is missing, or where a step took far
/// longer than usual: then nobody knows what was between.
fn path(line: &Line, values: &[(Duration, Option<f64>)], y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut before: Option<Duration> = None;
    for (age, value) in values {
        let Some(value) = value else {
            before = None;
            continue;
        };
        let share = age.as_secs_f64() / line.period().as_secs_f64();
        let at = (WIDTH * (1.0 - share), y(*value));
        let joined = before.is_some_and(|before| before.saturating_sub(*age) < 3 * line.step());
        let _ = match joined {
            true => write!(path, "L{:.1} {:.1}", at.0, at.1),
            // A step that stands alone is a dot, by the line's round ends.
            false => write!(path, "M{:.1} {:.1}h0", at.0, at.1),
        };
        before = Some(*age);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::super::sums::Sums;
    use super::*;

    /// Time goes to the right, values go up, and a line stops where nobody looked.
    #[test]
    fn a_line_is_drawn_where_it_was_seen() {
        let start = Instant::now();
        let mut history = History::default();
        for (second, bytes) in [(0, 0), (10, 100), (20, 200), (30, 300), (100, 400)] {
            let mut sums = Sums::default();
            sums.cache.dram_bytes = bytes;
            history.add(start + Duration::from_secs(second), sums, 0);
        }
        let series = [
            Series::new("dram", "used", |point| Some(point.dram)),
            Series::new("bad", "none", Point::hits),
        ];
        let chart = Chart {
            bound: Some(("of", 200.0)),
            ..Chart::new("Memory", &series, |bytes| format!("{bytes:.0} B"))
        };
        let mut out = String::new();
        let now = start + Duration::from_secs(100);
        chart.draw(history.lines()[0], now, &mut out);
        for part in [
            "<strong>Memory</strong> <span>top: 400 B</span>",
            "<path class=bound d=\"M0 50.0H600\"/>",
            "<path class=dram d=\"M510.0 74.5h0L520.0 50.0L530.0 25.5M600.0 1.0h0\"/>",
            "<path class=bad d=\"\"/>",
            "used 400 B",
            "none –",
            "of 200 B",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
    }
}
