// SPDX-License-Identifier: Apache-2.0
//! Names on the left, and to the right of each a bar for every series, or a dot where the axis is
//! logarithmic.
//!
//! Always holds:
//! - A name has one line or two; only what does not fit into two ends with an ellipsis.
//! - A value without a number says "not measured". A zero has no place on a logarithmic axis, and
//!   its number stands at the left end.

use std::fmt::Write;

use super::{LETTER, Panel, Pen, RIGHT, Scale, Series, WIDTH, width, wrap};

const NAME: f64 = 270.0;
/// The number behind the longest bar has this room.
const NUMBER: f64 = 62.0;
const LINE: f64 = 15.0;
const GAP: f64 = 8.0;

/// Height of the bars of one name, in units of a picture that is 760 wide.
pub fn height(name: &str, series: usize) -> f64 {
    let lines = wrap(name, LETTER, NAME).len() as f64;
    (thick(series) * series as f64).max(LINE * lines) + GAP
}

/// The numbers behind two bars of a name do not touch.
fn thick(series: usize) -> f64 {
    if series > 1 { 15.0 } else { 16.0 }
}

impl Pen {
    pub(super) fn bars(&mut self, panel: &Panel) {
        let mut axis = panel.x.clone();
        let points = panel.series.iter().flat_map(|one| &one.points);
        axis.fit(points.map(|point| point.0), true);
        self.legend(if panel.series.len() > 1 {
            &panel.series
        } else {
            &[]
        });
        let names: Vec<Vec<String>> = panel
            .names
            .iter()
            .map(|name| wrap(name, LETTER, NAME))
            .collect();
        let longest = names
            .iter()
            .flatten()
            .map(|line| width(line, LETTER))
            .fold(0.0, f64::max);
        let left = longest.min(NAME) + 20.0;
        let right = WIDTH - RIGHT - NUMBER;
        let thick = thick(panel.series.len());
        let top = self.y + 12.0;
        let heights = panel.names.iter();
        let heights: Vec<f64> = heights
            .map(|name| height(name, panel.series.len()))
            .collect();
        let bottom = top + heights.iter().sum::<f64>();
        let mut free = f64::NEG_INFINITY;
        for (value, label) in axis.ticks() {
            let at = left + axis.place(value) * (right - left);
            let half = width(&label, LETTER) / 2.0;
            // A label that would touch its neighbour is left out, and its line with it.
            if !label.is_empty() && at - half > free {
                self.path("sk-g", &format!("M{at:.1} {top:.1}V{bottom:.1}"));
                self.text(at, bottom + 16.0, "", "middle", &label);
                free = at + half + 6.0;
            }
        }
        let zero = if axis.holds(0.0) {
            axis.place(0.0).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let zero = left + zero * (right - left);
        let mut y = top + GAP / 2.0;
        for (at, (lines, row)) in names.iter().zip(heights).enumerate() {
            let inner = row - GAP;
            let first = y + inner / 2.0 + 4.5 - LINE / 2.0 * (lines.len() as f64 - 1.0);
            for (nth, line) in lines.iter().enumerate() {
                self.text(left - 8.0, first + nth as f64 * LINE, "", "end", line);
            }
            let value = |one: &Series| one.points.get(at).map_or(f64::NAN, |point| point.0);
            if !panel.series.iter().any(|one| value(one).is_finite()) {
                let middle = y + inner / 2.0 + 4.5;
                self.text(zero + 4.0, middle, "sk-s", "start", "not measured");
                y += row;
                continue;
            }
            let bars = thick * panel.series.len() as f64;
            let begin = y + (inner - bars) / 2.0;
            for (nth, one) in panel.series.iter().enumerate() {
                let y = begin + nth as f64 * thick;
                let value = value(one);
                let number = match value {
                    value if !value.is_finite() => "not measured".to_owned(),
                    0.0 => "0".to_owned(),
                    value if panel.exact => axis.unit.show_exact(value),
                    value => axis.unit.show(value),
                };
                let mut end = zero;
                if axis.holds(value) {
                    let place = left + axis.place(value).clamp(0.0, 1.0) * (right - left);
                    self.mark(axis.scale, one.colour, (zero, place), y, thick - 2.0);
                    end = zero.max(place);
                }
                let dot = if axis.scale == Scale::Log { 4.0 } else { 0.0 };
                self.text(end + 4.0 + dot, y + thick - 2.5, "sk-s", "start", &number);
            }
            y += row;
        }
        self.path("sk-f", &format!("M{zero:.1} {top:.1}V{bottom:.1}"));
        self.text(
            (left + right) / 2.0,
            bottom + 34.0,
            "sk-s",
            "middle",
            &axis.caption(),
        );
        self.y = bottom + 38.0;
    }

    /// A bar from zero, or a dot at the end of a thin line.
    fn mark(&mut self, scale: Scale, colour: usize, (zero, end): (f64, f64), y: f64, thick: f64) {
        let middle = y + thick / 2.0;
        let _ = match scale {
            Scale::Log => writeln!(
                self.text,
                "<path class=\"sk-g\" d=\"M{zero:.1} {middle:.1}H{end:.1}\"/>\
                 <circle class=\"b{colour}\" cx=\"{end:.1}\" cy=\"{middle:.1}\" r=\"4.5\"/>"
            ),
            _ => writeln!(
                self.text,
                "<rect class=\"b{colour}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{thick:.1}\"/>",
                zero.min(end),
                (end - zero).abs().max(0.5)
            ),
        };
    }
}
