// SPDX-License-Identifier: Apache-2.0
//! Charts as SVG, for every command that draws: `senko ssd`, `senko device`, and the lab's report.
//!
//! A [`Chart`] has panels one above the other, each with two axes and series. [`Chart::to_svg`]
//! returns a standalone file, [`Chart::to_inline`] a part of a page that has [`STYLE`].
//!
//! Always holds:
//! - Ticks are at round numbers, and each axis names its unit.
//! - A value that is missing, or has no place on its axis, is a gap. Lines do not cross gaps.
//! - It loads nothing, and has no scripts. Light or dark follows the reader's setting.
//! - The size of a picture is bounded: points are drawn on a grid of half pixels, each cell once.

pub mod axis; // scales, ticks and their labels
mod bars; // names on the left, bars or dots to the right

use std::collections::BTreeSet;
use std::fmt::Write;

pub use axis::{Axis, Scale, Unit};
pub use bars::height as bar_height;

const WIDTH: f64 = 760.0;
const RIGHT: f64 = 22.0;
const PLOT: f64 = 260.0;
/// The average width of a letter, in the widest font that `system-ui` means on common systems.
const LETTER: f64 = 7.8;
const TITLE_LETTER: f64 = 9.2;
/// Series of one panel that a reader can tell apart.
pub const COLOURS: usize = 8;

/// Colours and widths of all parts, as CSS. A page with inline charts contains it once.
pub const STYLE: &str = "\
.sk{--sk-bg:#fff;--sk-ink:#222;--sk-soft:#666;--sk-grid:#e4e4e4;\
--sk0:#1f6fb4;--sk1:#c0392b;--sk2:#1b7f4b;--sk3:#7b4fb3;--sk4:#9a6700;--sk5:#555;--sk6:#0d8390;--sk7:#c2308a;\
font:13px system-ui,sans-serif}\
@media(prefers-color-scheme:dark){.sk{--sk-bg:#16181c;--sk-ink:#e6e6e6;--sk-soft:#a8a8a8;--sk-grid:#34373d;\
--sk0:#6cb4f0;--sk1:#ff8a75;--sk2:#5fd08f;--sk3:#c3a0f5;--sk4:#e0b050;--sk5:#b5b5b5;--sk6:#4fd0dd;--sk7:#ff8ad0}}\
@media print{.sk{--sk-bg:#fff;--sk-ink:#222;--sk-soft:#666;--sk-grid:#e4e4e4;\
--sk0:#1f6fb4;--sk1:#c0392b;--sk2:#1b7f4b;--sk3:#7b4fb3;--sk4:#9a6700;--sk5:#555;--sk6:#0d8390;--sk7:#c2308a}}\
.sk text{fill:var(--sk-ink)}.sk .sk-t{font-size:16px}.sk .sk-s{fill:var(--sk-soft)}\
.sk .sk-bg{fill:var(--sk-bg)}.sk .sk-g{stroke:var(--sk-grid);fill:none}\
.sk .sk-f{stroke:var(--sk-soft);fill:none}\
.sk .sk-l{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.sk .sk-d{stroke-dasharray:6 4}\
.sk .sk-p{fill:none;stroke-width:2.5;stroke-linecap:round}.sk .sk-h{fill:var(--sk-bg);stroke-width:1.5}\
.sk .c0{stroke:var(--sk0)}.sk .c1{stroke:var(--sk1)}.sk .c2{stroke:var(--sk2)}\
.sk .c3{stroke:var(--sk3)}.sk .c4{stroke:var(--sk4)}.sk .c5{stroke:var(--sk5)}\
.sk .c6{stroke:var(--sk6)}.sk .c7{stroke:var(--sk7)}\
.sk .b0{fill:var(--sk0)}.sk .b1{fill:var(--sk1)}.sk .b2{fill:var(--sk2)}\
.sk .b3{fill:var(--sk3)}.sk .b4{fill:var(--sk4)}.sk .b5{fill:var(--sk5)}\
.sk .b6{fill:var(--sk6)}.sk .b7{fill:var(--sk7)}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line with a dot at each value.
    Line,
    /// Only a line, for many values.
    Thin,
    /// Only dots, for very many values.
    Dots,
    /// A bar from the axis, as wide as the distance to the next value.
    Bars,
    /// Hollow dots on a dashed line: values that a paper published.
    Published,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub mark: Mark,
    /// The values in the order of the line. A value that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// Which of the eight colours.
    pub colour: usize,
}

/// One pair of axes with the series between them.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The text above its upper right corner.
    pub title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    /// Names instead of numbers on the x axis: value `n` has the nth name.
    names: Vec<String>,
    /// Whether the numbers behind bars have four digits instead of three.
    exact: bool,
}

impl Panel {
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self {
            title: title.to_owned(),
            x,
            y,
            series: Vec::new(),
            names: Vec::new(),
            exact: false,
        }
    }

    /// The panel with one more series, in the next colour.
    pub fn with(mut self, name: &str, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        let colour = self.series.len() % COLOURS;
        self.series.push(Series {
            name: name.to_owned(),
            mark,
            points,
            colour,
        });
        self
    }

    /// The last series in this colour.
    pub fn coloured(mut self, colour: usize) -> Self {
        if let Some(last) = self.series.last_mut() {
            last.colour = colour % COLOURS;
        }
        self
    }
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    panels: Vec<Panel>,
}

impl Chart {
    pub fn new(title: &str, panels: Vec<Panel>) -> Self {
        Self {
            title: title.to_owned(),
            panels,
        }
    }

    /// Horizontal bars: for each name one bar a series, with its value behind it. A value that is
    /// not finite is a gap, and says so. On a logarithmic axis a length says nothing, so that each
    /// value is a dot.
    pub fn bars(title: &str, axis: Axis, names: &[String], series: &[(String, Vec<f64>)]) -> Self {
        let y = Axis::linear("", Unit::Whole(""));
        let mut panel = Panel::new("", axis, y);
        panel.names = names.to_vec();
        for (name, values) in series {
            let points = values.iter().enumerate();
            let points = points.map(|(at, value)| (*value, at as f64)).collect();
            panel = panel.with(name, Mark::Bars, points);
        }
        Self::new(title, vec![panel])
    }

    /// The same with four digits behind each bar, for values that are compared one by one.
    pub fn exact(mut self) -> Self {
        for panel in &mut self.panels {
            panel.exact = true;
        }
        self
    }

    /// The same with the panels of another picture below.
    pub fn and(mut self, below: Chart) -> Self {
        self.panels.extend(below.panels);
        self
    }

    /// The chart as a standalone file.
    pub fn to_svg(&self) -> String {
        self.draw(true)
    }

    /// The chart as a part of a page that has [`STYLE`].
    pub fn to_inline(&self) -> String {
        self.draw(false)
    }

    fn draw(&self, alone: bool) -> String {
        let mut pen = Pen::default();
        for (at, line) in wrap(&self.title, TITLE_LETTER, WIDTH - 24.0)
            .iter()
            .enumerate()
        {
            pen.y = 22.0 + at as f64 * 20.0;
            pen.text(12.0, pen.y, "sk-t", "start", line);
        }
        for panel in &self.panels {
            if panel.names.is_empty() {
                pen.panel(panel);
            } else {
                pen.bars(panel);
            }
        }
        let height = pen.y + 12.0;
        let style = if alone {
            format!("<style>{STYLE}</style>\n")
        } else {
            String::new()
        };
        let size = if alone {
            format!(" width=\"{WIDTH}\" height=\"{height:.0}\"")
        } else {
            String::new()
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"sk\" role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\"{size}>\n\
             <title>{}</title>\n{style}<rect class=\"sk-bg\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            escape(&self.title),
            pen.text
        )
    }
}

#[derive(Default)]
struct Pen {
    text: String,
    /// The lowest line in use.
    y: f64,
}

/// The area between two axes.
struct Area<'a> {
    left: f64,
    top: f64,
    x: &'a Axis,
    y: &'a Axis,
}

impl Area<'_> {
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let held = self.x.holds(x) && self.y.holds(y);
        held.then(|| {
            (
                self.left + self.x.place(x) * (WIDTH - RIGHT - self.left),
                self.top + (1.0 - self.y.place(y)) * PLOT,
            )
        })
    }
}

impl Pen {
    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let class = if class.is_empty() {
            String::new()
        } else {
            format!(" class=\"{class}\"")
        };
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{class} text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    fn path(&mut self, class: &str, path: &str) {
        let _ = writeln!(self.text, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    /// The names of the series, from left to right, in as many lines as they need.
    fn legend(&mut self, series: &[Series]) {
        let named: Vec<&Series> = series.iter().filter(|one| !one.name.is_empty()).collect();
        if named.is_empty() {
            return;
        }
        let (mut x, mut y) = (12.0, self.y + 22.0);
        for one in named {
            let name = shorten(&one.name, LETTER, WIDTH - 80.0);
            let width = 44.0 + width(&name, LETTER);
            if x > 12.0 && x + width > WIDTH {
                (x, y) = (12.0, y + 18.0);
            }
            let colour = one.colour;
            match one.mark {
                Mark::Bars => {
                    let _ = writeln!(
                        self.text,
                        "<rect class=\"b{colour}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>",
                        y - 11.0
                    );
                }
                mark => {
                    let dash = if mark == Mark::Published { " sk-d" } else { "" };
                    self.path(
                        &format!("sk-l c{colour}{dash}"),
                        &format!("M{x:.1} {:.1}h22", y - 4.0),
                    );
                }
            }
            self.text(x + 28.0, y, "", "start", &name);
            x += width;
        }
        self.y = y;
    }

    fn panel(&mut self, panel: &Panel) {
        let all = || panel.series.iter().flat_map(|one| &one.points);
        let bars = panel.series.iter().any(|one| one.mark == Mark::Bars);
        let (mut x, mut y) = (panel.x.clone(), panel.y.clone());
        x.fit(all().map(|point| point.0), false);
        y.fit(all().map(|point| point.1), true);
        self.legend(&panel.series);
        if !panel.title.is_empty() {
            self.y += 20.0;
            let title = shorten(&panel.title, LETTER, WIDTH - 40.0);
            self.text(WIDTH - RIGHT, self.y, "sk-s", "end", &title);
        }
        let ticks = y.ticks();
        let longest = ticks
            .iter()
            .map(|tick| width(&tick.1, LETTER))
            .fold(0.0, f64::max);
        let area = Area {
            left: 42.0 + longest,
            top: self.y + 10.0,
            x: &x,
            y: &y,
        };
        let (bottom, right) = (area.top + PLOT, WIDTH - RIGHT);
        self.frame(&area, &ticks);
        for one in &panel.series {
            let colour = one.colour;
            match one.mark {
                Mark::Dots => self.dots(&area, one),
                Mark::Bars => self.columns(&area, one, bottom),
                Mark::Thin => self.path(&format!("sk-l c{colour}"), &line(&area, &one.points)),
                Mark::Line => self.dotted(&area, one, "", "b", 3.0),
                Mark::Published => self.dotted(&area, one, " sk-d", "sk-h c", 4.5),
            }
        }
        if !bars && all().all(|point| area.place(*point).is_none()) {
            self.text(
                (area.left + right) / 2.0,
                area.top + PLOT / 2.0,
                "sk-s",
                "middle",
                "nothing was measured",
            );
        }
        self.y = bottom + 42.0;
    }

    /// A line with a dot at each value, both in these classes.
    fn dotted(&mut self, area: &Area<'_>, series: &Series, dash: &str, dot: &str, radius: f64) {
        let (points, colour) = (&series.points, series.colour);
        self.path(&format!("sk-l{dash} c{colour}"), &line(area, points));
        for (x, y) in points.iter().filter_map(|point| area.place(*point)) {
            let _ = writeln!(
                self.text,
                "<circle class=\"{dot}{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>"
            );
        }
    }

    fn frame(&mut self, area: &Area<'_>, y_ticks: &[(f64, String)]) {
        let (bottom, right) = (area.top + PLOT, WIDTH - RIGHT);
        for (value, label) in y_ticks {
            let at = area.top + (1.0 - area.y.place(*value)) * PLOT;
            if !label.is_empty() {
                self.path("sk-g", &format!("M{:.1} {at:.1}H{right:.1}", area.left));
                self.text(area.left - 8.0, at + 4.5, "", "end", label);
            }
        }
        let mut free = f64::NEG_INFINITY;
        for (value, label) in area.x.ticks() {
            let at = area.left + area.x.place(value) * (right - area.left);
            self.path(
                "sk-f",
                &format!(
                    "M{at:.1} {bottom:.1}v{}",
                    if label.is_empty() { 3 } else { 6 }
                ),
            );
            let half = width(&label, LETTER) / 2.0;
            // A label that would leave the picture stands further left; one that would touch its
            // neighbour is left out.
            let middle = at.min(WIDTH - half - 1.0);
            if !label.is_empty() && middle - half > free {
                self.text(middle, bottom + 20.0, "", "middle", &label);
                free = middle + half + 6.0;
            }
        }
        self.path(
            "sk-f",
            &format!("M{:.1} {:.1}V{bottom:.1}H{right:.1}", area.left, area.top),
        );
        let caption = shorten(&area.x.caption(), LETTER, right - area.left);
        self.text(
            (area.left + right) / 2.0,
            bottom + 38.0,
            "sk-s",
            "middle",
            &caption,
        );
        let caption = escape(&shorten(&area.y.caption(), LETTER, PLOT));
        let _ = writeln!(
            self.text,
            "<text class=\"sk-s\" transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{caption}</text>",
            area.top + PLOT / 2.0
        );
    }

    /// Points on a grid of half pixels, each cell once.
    fn dots(&mut self, area: &Area<'_>, series: &Series) {
        let half = |pixels: f64| (pixels * 2.0).round() as i64;
        let places = series.points.iter().filter_map(|point| area.place(*point));
        let cells: BTreeSet<(i64, i64)> = places.map(|(x, y)| (half(x), half(y))).collect();
        let mut path = String::new();
        for (x, y) in cells {
            let _ = write!(path, "M{} {}h0", x as f64 / 2.0, y as f64 / 2.0);
        }
        self.path(&format!("sk-p c{}", series.colour), &path);
    }

    /// Upright bars, each as wide as the distance to the next value.
    fn columns(&mut self, area: &Area<'_>, series: &Series, bottom: f64) {
        let steps = series.points.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let step = steps.fold(f64::INFINITY, f64::min);
        let step = if step.is_finite() { step } else { 1.0 };
        for point in &series.points {
            let (Some((x, y)), Some((next, _))) =
                (area.place(*point), area.place((point.0 + step, point.1)))
            else {
                continue;
            };
            let wide = (next.min(WIDTH - RIGHT) - x - 1.0).max(0.5);
            let _ = writeln!(
                self.text,
                "<rect class=\"b{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{:.1}\"/>",
                series.colour,
                bottom - y
            );
        }
    }
}

/// The path of a line that stops at each gap.
fn line(area: &Area<'_>, points: &[(f64, f64)]) -> String {
    let (mut path, mut drawing) = (String::new(), false);
    for point in points {
        let Some((x, y)) = area.place(*point) else {
            drawing = false;
            continue;
        };
        if drawing {
            let _ = write!(path, "L{x:.1} {y:.1}");
        } else {
            // A value between two gaps is a dot.
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        drawing = true;
    }
    path
}

fn width(text: &str, letter: f64) -> f64 {
    text.chars().count() as f64 * letter
}

/// The text, cut with an ellipsis if it is too wide.
fn shorten(text: &str, letter: f64, wide: f64) -> String {
    let fits = (wide / letter).max(2.0) as usize;
    if text.chars().count() <= fits {
        return text.to_owned();
    }
    let cut: String = text.chars().take(fits - 1).collect();
    format!("{}\u{2026}", cut.trim_end())
}

/// The text in at most two lines; what does not fit ends with an ellipsis.
fn wrap(text: &str, letter: f64, wide: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        // A word that is wider than a line, as "page:gc=greedy,reserve=1", breaks behind a comma.
        let parts: Vec<&str> = match width(word, letter) > wide {
            true => word.split_inclusive(',').collect(),
            false => vec![word],
        };
        for (nth, part) in parts.into_iter().enumerate() {
            let last = lines.len() - 1;
            let line = &mut lines[last];
            let longer = width(line, letter) + width(part, letter) + letter > wide;
            if !line.is_empty() && longer && last == 0 {
                lines.push(part.to_owned());
            } else {
                if !line.is_empty() && nth == 0 {
                    line.push(' ');
                }
                line.push_str(part);
            }
        }
    }
    lines
        .iter()
        .map(|line| shorten(line, letter, wide))
        .collect()
}

/// The text with the special characters of SVG and HTML escaped.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> (Axis, Axis) {
        (
            Axis::linear("time", Unit::Number("s")),
            Axis::linear("response", Unit::Number("us")),
        )
    }

    /// A chart of one series without a name.
    fn chart(title: &str, mark: Mark, points: Vec<(f64, f64)>) -> String {
        let (x, y) = axes();
        Chart::new(title, vec![Panel::new("", x, y).with("", mark, points)]).to_svg()
    }

    /// Bars of one series without a name.
    fn bars(axis: Axis, names: &[&str], values: &[f64]) -> Chart {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Chart::bars("bars", axis, &names, &[(String::new(), values.to_vec())])
    }

    /// A line once went straight across a pause.
    #[test]
    fn lines_stop_at_gaps() {
        let points = vec![
            (0.0, 1.0),
            (1.0, 2.0),
            (2.0, f64::NAN),
            (3.0, 2.0),
            (4.0, 1.0),
        ];
        let svg = chart("gaps", Mark::Thin, points);
        let path = svg
            .lines()
            .find(|line| line.contains("class=\"sk-l"))
            .unwrap_or("");
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(path.matches('L').count(), 2, "{path}");
    }

    #[test]
    fn long_titles_wrap_and_are_whole_for_readers_of_text() {
        let title = "a long title of words ".repeat(20);
        let svg = Chart::new(&title, vec![]).to_svg();
        assert_eq!(svg.matches("sk-t\"").count(), 2, "{svg}");
        for line in svg.lines().filter(|line| line.contains("class=\"sk-t\"")) {
            assert!(line.chars().count() < 200, "{line}");
        }
        assert!(svg.contains(&format!("<title>{}</title>", escape(&title))));
    }

    #[test]
    fn text_is_no_markup() {
        let (x, y) = axes();
        let panel = Panel::new("<b>", x, y).with("a & b", Mark::Line, vec![(1.0, 1.0)]);
        let svg = Chart::new("\"<script>\"", vec![panel]).to_inline();
        assert!(!svg.contains("<script") && !svg.contains("<b>") && svg.contains("a &amp; b"));
        assert!(!svg.contains("<style"));
    }

    #[test]
    fn a_bar_that_is_missing_says_so() {
        let axis = Axis::linear("rate", Unit::Number("a second"));
        let svg = bars(axis, &["ours", "theirs"], &[5.0, f64::NAN]).to_svg();
        assert!(
            svg.contains("not measured") && svg.contains(">5</text>"),
            "{svg}"
        );
    }

    /// Of two names that began alike, both ended with the same ellipsis.
    #[test]
    fn a_long_name_has_two_lines() {
        let names = [
            "senko-1000, 64 connections, one request under way",
            "senko-1000, 64 connections, sixteen under way",
        ];
        let axis = Axis::linear("rate", Unit::Number("a second"));
        let svg = bars(axis, &names, &[5.0, 6.0]).to_svg();
        assert!(!svg.contains('\u{2026}'), "{svg}");
        assert!(svg.contains(">sixteen under way</text>"), "{svg}");
        assert!(bar_height(names[0], 1) > bar_height("short", 1));
    }

    /// Beside a stall of 200 ms, all bars of microseconds had no length.
    #[test]
    fn bars_on_a_logarithmic_axis_are_dots() {
        let axis = Axis::log("time", Unit::Nanoseconds);
        let svg = bars(axis, &["mean", "longest", "none"], &[2e4, 2e8, 0.0]).to_svg();
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert!(!svg.contains("<rect class=\"b0\""), "{svg}");
        assert!(
            svg.contains(">0</text>") && !svg.contains("not measured"),
            "{svg}"
        );
        assert!(svg.contains(">1 ms</text>"), "{svg}");
    }

    #[test]
    fn exact_numbers_have_four_digits() {
        let chart = bars(Axis::linear("map", Unit::Number("MiB")), &["map"], &[126.6]);
        assert!(chart.to_svg().contains(">127</text>"));
        assert!(chart.exact().to_svg().contains(">126.6</text>"));
    }

    #[test]
    fn a_panel_without_a_value_says_so() {
        let svg = chart("none", Mark::Line, vec![]);
        assert!(
            svg.contains("nothing was measured") && !svg.contains("NaN"),
            "{svg}"
        );
    }
}
