// SPDX-License-Identifier: Apache-2.0
//! Axes: the position of a value, the round ticks, and their labels.
//!
//! A linear axis has one unit for all of its ticks, chosen by its longest value and named once. A
//! logarithmic axis spans too much for that, so each tick has its own unit.

/// Between a value and the end of its axis, as a ratio: a line along the frame is not seen.
const ROOM: f64 = 1.1;
/// Values from here on have no place: their differences would be no numbers.
const LARGEST: f64 = 1e100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers of this unit, which may be empty: 1000 becomes 1 k on long axes.
    Number(&'static str),
    /// Whole things: no tick is between two of them.
    Whole(&'static str),
    /// Bytes, shown as kB, MB, GB.
    Bytes,
    /// Bytes that are powers of two, shown as KiB, MiB, GiB.
    BinaryBytes,
    /// Nanoseconds, shown as us, ms, s.
    Nanoseconds,
    /// Shares from 0 to 1, shown in percent.
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios; only values above 0 have a place.
    Log,
}

#[derive(Clone, Debug)]
pub struct Axis {
    /// The name, without the unit.
    pub name: String,
    pub unit: Unit,
    pub scale: Scale,
    /// Both ends; `None`: those of the values.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    pub fn linear(name: &str, unit: Unit) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            scale: Scale::Linear,
            range: None,
        }
    }

    pub fn log(name: &str, unit: Unit) -> Self {
        Self {
            scale: Scale::Log,
            ..Self::linear(name, unit)
        }
    }

    /// The same axis with fixed ends.
    pub fn within(mut self, from: f64, to: f64) -> Self {
        self.range = Some((from, to));
        self
    }

    pub(super) fn holds(&self, value: f64) -> bool {
        value.abs() < LARGEST
            && match self.scale {
                Scale::Linear => true,
                Scale::Log => value > 0.0,
            }
    }

    /// A value on a scale with equal distances.
    pub(super) fn flat(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        }
    }

    /// The ends for these values, at round numbers. `zero`: the axis begins at 0, so that lengths
    /// can be compared.
    pub(super) fn fit(&mut self, values: impl Iterator<Item = f64>, zero: bool) {
        if self.range.is_some() {
            return;
        }
        let held = values.filter(|value| self.holds(*value));
        let (mut from, mut to) = held.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| {
            (a.min(value), b.max(value))
        });
        if from > to {
            (from, to) = if self.scale == Scale::Log {
                (1.0, 10.0)
            } else {
                (0.0, 1.0)
            };
        }
        match self.scale {
            Scale::Linear => {
                if zero {
                    (from, to) = (from.min(0.0), to.max(0.0));
                }
                if from == to {
                    to = from + if from == 0.0 { 1.0 } else { from.abs() };
                }
                let step = self.step(from, to);
                from = (from / step + 1e-9).floor() * step;
                to = (to / step - 1e-9).ceil() * step;
            }
            Scale::Log => {
                // A line that hugs the frame is hard to see; sizes on a horizontal axis end where
                // they end.
                if from == to {
                    (from, to) = (from / 2.0, to * 2.0);
                }
                if self.unit != Unit::BinaryBytes {
                    let room = if zero { ROOM } else { 1.0 };
                    (from, to) = (round_down(from / room), round_up(to * room));
                } else if zero {
                    (from, to) = (from.log2().floor().exp2(), to.log2().ceil().exp2());
                }
            }
        }
        self.range = Some((from, to));
    }

    fn ends(&self) -> (f64, f64) {
        self.range.unwrap_or((0.0, 1.0))
    }

    /// The position of a value between the ends, 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let (from, to) = self.ends();
        let (from, to) = (self.flat(from), self.flat(to));
        (self.flat(value) - from) / (to - from).max(f64::MIN_POSITIVE)
    }

    /// The factor of the labels and their unit: 1e9 and "GB".
    fn shown(&self) -> (f64, &'static str) {
        let (from, to) = self.ends();
        self.unit.of(from.abs().max(to.abs()))
    }

    /// The name with the unit of the ticks.
    pub(super) fn caption(&self) -> String {
        let unit = match self.scale {
            Scale::Linear => self.shown().1,
            Scale::Log => match self.unit {
                Unit::Number(name) | Unit::Whole(name) => name,
                _ => "",
            },
        };
        if unit.is_empty() {
            self.name.clone()
        } else {
            format!("{} ({unit})", self.name)
        }
    }

    fn step(&self, from: f64, to: f64) -> f64 {
        let scale = self.unit.of(from.abs().max(to.abs())).0;
        let rough = ((to - from) / scale / 6.0).max(f64::MIN_POSITIVE);
        let unit = 10f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
        let step = factors
            .map(|factor| factor * unit)
            .find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(unit * 10.0) * scale;
        match self.unit {
            Unit::Whole(_) => step.max(1.0),
            _ => step,
        }
    }

    /// Values with a tick, and its label; minor ticks have an empty label.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let (from, to) = self.ends();
        match self.scale {
            Scale::Linear => {
                let step = self.step(from, to);
                let (scale, _) = self.shown();
                let first = (from / step - 1e-6).ceil() as i64;
                let last = (to / step + 1e-6).floor() as i64;
                (first..=last.min(first + 20))
                    .map(|index| {
                        let value = index as f64 * step;
                        (value, digits(value / scale))
                    })
                    .collect()
            }
            Scale::Log if self.unit == Unit::BinaryBytes => {
                let (first, last) = (from.log2().ceil() as i32, to.log2().floor() as i32);
                let every = ((last - first) / 7 + 1).max(1);
                (first..=last)
                    .map(|power| {
                        let value = 2f64.powi(power);
                        let label = if (power - first) % every == 0 {
                            self.unit.show(value)
                        } else {
                            String::new()
                        };
                        (value, label)
                    })
                    .collect()
            }
            Scale::Log => self.log_ticks(from, to),
        }
    }

    fn log_ticks(&self, from: f64, to: f64) -> Vec<(f64, String)> {
        let decades = (to / from).log10();
        let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
        let every = (decades / 8.0).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for power in first..=last {
            for factor in 1..10 {
                let value = f64::from(factor) * 10f64.powi(power);
                if value < from * 0.999 || value > to * 1.001 {
                    continue;
                }
                let labelled = match factor {
                    1 => (power - first) % every == 0,
                    2 | 5 => decades < 2.5,
                    _ => decades < 0.8,
                };
                if labelled || decades < 6.0 {
                    let label = if labelled {
                        self.unit.show(value)
                    } else {
                        String::new()
                    };
                    ticks.push((value, label));
                }
            }
        }
        ticks
    }
}

impl Unit {
    /// The factor of a label for values of this size, and the unit.
    fn of(self, size: f64) -> (f64, &'static str) {
        let largest = |units: &[(f64, &'static str)]| {
            let fits = units.iter().rev().find(|unit| size >= unit.0 * 0.999);
            *fits.unwrap_or(&units[0])
        };
        match self {
            Unit::Number(name) | Unit::Whole(name) => (1.0, name),
            Unit::Bytes => largest(&[
                (1.0, "B"),
                (1e3, "kB"),
                (1e6, "MB"),
                (1e9, "GB"),
                (1e12, "TB"),
                (1e15, "PB"),
            ]),
            Unit::BinaryBytes => largest(&[
                (1.0, "B"),
                (1024.0, "KiB"),
                (1048576.0, "MiB"),
                (1073741824.0, "GiB"),
                (1099511627776.0, "TiB"),
            ]),
            Unit::Nanoseconds => largest(&[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")]),
            Unit::Share => (0.01, "%"),
        }
    }

    /// A value with its unit: `150 GB`, `65 us`, `12.5 %`.
    pub fn show(self, value: f64) -> String {
        self.text(value, 0)
    }

    /// The same with a fourth digit where it counts: `126.6 MB`.
    pub fn show_exact(self, value: f64) -> String {
        self.text(value, 1)
    }

    fn text(self, value: f64, more: usize) -> String {
        let (scale, name) = self.of(value.abs());
        let text = precise(value / scale, more);
        match self {
            // The axis names the unit already.
            Unit::Number(_) | Unit::Whole(_) => text,
            _ => format!("{text} {name}"),
        }
    }
}

/// A number with the digits that a label needs: 0.25, 6.5, 250, 12 k, 3.5 M.
fn digits(value: f64) -> String {
    precise(value, 0)
}

/// The same with more places behind the point.
fn precise(value: f64, more: usize) -> String {
    let size = value.abs();
    let (value, suffix) = match size {
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    if size > 0.0 && size < 1e-4 {
        return format!("{value:.0e}");
    }
    // Three significant digits, or four before the point.
    let places = match value.abs() {
        1000.0.. => 0,
        100.0.. => more,
        10.0.. => 1 + more,
        1.0.. => 2 + more,
        0.1.. => 3 + more,
        0.01.. => 4 + more,
        _ => 5 + more,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{}{suffix}", if text == "-0" { "0" } else { text })
}

/// The next of 1, 2, 5, 10 at or below.
fn round_down(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor());
    let fits = [5.0, 2.0, 1.0]
        .into_iter()
        .find(|factor| factor * unit <= value * 1.001);
    fits.unwrap_or(1.0) * unit
}

/// The next of 1, 2, 5, 10 at or above.
fn round_up(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor());
    let fits = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * unit >= value * 0.999);
    fits.unwrap_or(10.0) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        let ticks = axis.ticks().into_iter();
        ticks
            .map(|(_, label)| label)
            .filter(|label| !label.is_empty())
            .collect()
    }

    /// An axis up to 150 GB was once labelled "150000 MB".
    #[test]
    fn a_linear_axis_has_one_fitting_unit() {
        let mut axis = Axis::linear("address", Unit::Bytes);
        axis.fit([0.0, 150e9].into_iter(), true);
        assert_eq!(axis.caption(), "address (GB)");
        assert_eq!(labels(&axis), ["0", "50", "100", "150"]);
        let mut axis = Axis::linear("size", Unit::BinaryBytes);
        axis.fit([0.0, 4.0 * 1048576.0].into_iter(), true);
        assert_eq!(axis.caption(), "size (MiB)");
        assert_eq!(labels(&axis), ["0", "1", "2", "3", "4"]);
    }

    /// Blocks are erased a whole number of times, but ticks were once at fifths of an erase.
    #[test]
    fn whole_things_have_no_ticks_between_them() {
        let mut axis = Axis::linear("erases", Unit::Whole(""));
        axis.fit([0.0, 2.0].into_iter(), true);
        assert_eq!(labels(&axis), ["0", "1", "2"]);
    }

    #[test]
    fn log_ticks_have_units_of_their_own() {
        let mut axis = Axis::log("time", Unit::Nanoseconds);
        axis.fit([65e3, 31e6].into_iter(), false);
        assert_eq!(labels(&axis), ["100 us", "1 ms", "10 ms"]);
        assert!(axis.place(65e3) > 0.0 && axis.place(31e6) < 1.0);
        let mut axis = Axis::log("size", Unit::BinaryBytes);
        axis.fit([512.0, 4096.0].into_iter(), false);
        assert_eq!(labels(&axis), ["512 B", "1 KiB", "2 KiB", "4 KiB"]);
        // Writes of 1.01 ms lay on the frame itself.
        let mut axis = Axis::log("time", Unit::Nanoseconds);
        axis.fit([1.01e6, 115e6].into_iter(), true);
        assert_eq!(axis.range, Some((0.5e6, 200e6)));
        // A line hugged the upper frame, above its last label.
        let mut axis = Axis::log("memory", Unit::BinaryBytes);
        axis.fit([700.0, 110e3].into_iter(), true);
        assert_eq!(axis.range, Some((512.0, 131_072.0)));
        let mut axis = Axis::log("rate", Unit::Number("a second"));
        axis.fit([12e3, 90e3].into_iter(), false);
        assert_eq!(labels(&axis), ["10 k", "20 k", "50 k", "100 k"]);
        assert!(!axis.holds(0.0) && !axis.holds(f64::NAN));
    }

    #[test]
    fn an_axis_without_values_is_still_one() {
        for mut axis in [
            Axis::linear("x", Unit::Number("")),
            Axis::log("x", Unit::Bytes),
        ] {
            axis.fit([f64::NAN].into_iter(), true);
            assert!(!labels(&axis).is_empty());
        }
        let mut axis = Axis::linear("x", Unit::Number("us"));
        axis.fit([7.0].into_iter(), false);
        assert!(axis.place(7.0).is_finite() && labels(&axis).len() > 1);
    }
}
