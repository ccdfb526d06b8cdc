// SPDX-License-Identifier: Apache-2.0
//! Charts of tables: values of a table that can be compared are drawn, one chart for each unit.
//!
//! A table whose first column is numeric is drawn as lines over it; any other table as bars by
//! name. Columns with different units never share an axis. A column named "paper ..." holds
//! published values, and these are drawn hollow. A cell without a number is a gap.

use std::collections::BTreeSet;

use senko_ssd::chart::{Axis, Chart, Mark, Panel, Unit};
use serde_json::Value;

/// Bars of one chart, at most; more are unreadable.
const MOST_ROWS: usize = 32;
/// Letters of a row's name, at most: longer names do not fit.
const MOST_LETTERS: usize = 34;
/// Figures of one table, at most.
const MOST_FIGURES: usize = 2;
/// From this ratio on, lines need a logarithmic axis.
const WIDE: f64 = 30.0;

/// A table, as stored in a record.
struct Read {
    title: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Read {
    fn of(table: &Value) -> Option<Self> {
        let texts = |value: &Value| -> Option<Vec<String>> {
            let cells = value.as_array()?.iter();
            cells.map(|cell| Some(cell.as_str()?.to_owned())).collect()
        };
        let read = Self {
            title: table["title"].as_str()?.to_owned(),
            columns: texts(&table["columns"])?,
            rows: table["rows"]
                .as_array()?
                .iter()
                .map(texts)
                .collect::<Option<_>>()?,
        };
        let whole = read.rows.iter().all(|row| row.len() == read.columns.len());
        whole.then_some(read)
    }

    fn values(&self, column: usize) -> Vec<f64> {
        self.rows.iter().map(|row| number(&row[column])).collect()
    }

    /// Whether at least half of a column's cells are numbers, and one differs from 0.
    fn is_measured(&self, column: usize) -> bool {
        let values = self.values(column);
        let numbers = values.iter().filter(|value| value.is_finite()).count();
        numbers * 2 >= values.len().max(1) && values.iter().any(|value| value.abs() > 0.0)
    }

    /// The unit of a column, by its name or its cells, and the factor to the chart's unit.
    fn unit(&self, column: usize) -> Option<(Unit, f64)> {
        let name = &self.columns[column];
        let percent = |row: &Vec<String>| row[column].ends_with('%');
        if self.rows.iter().any(percent) {
            return Some((Unit::Share, 0.01));
        }
        let known = |word: &str| {
            Some(match word {
                "%" => (Unit::Share, 0.01),
                "ns" => (Unit::Nanoseconds, 1.0),
                "us" | "us/element" => (Unit::Nanoseconds, 1e3),
                "ms" => (Unit::Nanoseconds, 1e6),
                "s" | "seconds" => (Unit::Nanoseconds, 1e9),
                "MB" => (Unit::Bytes, 1e6),
                "GB" => (Unit::Bytes, 1e9),
                "KiB" => (Unit::BinaryBytes, 1024.0),
                "MiB" => (Unit::BinaryBytes, 1048576.0),
                "GiB" => (Unit::BinaryBytes, 1073741824.0),
                _ => return None,
            })
        };
        let rate = name.contains(" a ") || name.contains('/');
        let mut words = name.split([' ', ',', '(', ')']);
        words.find_map(|word| known(word).filter(|_| !rate || word == "us/element"))
    }

    /// A column's name. If several columns have the same name, it is preceded by the text before
    /// the colon of the column that begins its part.
    fn name(&self, column: usize) -> String {
        let name = &self.columns[column];
        let twice = self.columns.iter().filter(|other| *other == name).count() > 1;
        let mut before = self.columns[..column].iter().rev();
        let part = before.find_map(|name| name.split_once(": "));
        match part.filter(|_| twice) {
            Some((part, _)) => format!("{part}: {name}"),
            None => name.clone(),
        }
    }

    /// The part of a column's name before the comma, if the name of another column begins with it
    /// too.
    fn shared<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (start, _) = name.split_once(", ")?;
        let begins = |other: &&String| other.split_once(", ").is_some_and(|(it, _)| it == start);
        (self.columns.iter().filter(begins).count() > 1).then_some(start)
    }

    /// The number of columns that name a row: all before the first number, and more until all row
    /// names differ.
    fn naming(&self) -> Option<usize> {
        let first = (1..self.columns.len()).find(|column| self.is_measured(*column))?;
        let unique = |columns: &usize| {
            let names: BTreeSet<&[String]> = self.rows.iter().map(|row| &row[..*columns]).collect();
            names.len() == self.rows.len()
        };
        Some((first..self.columns.len()).find(unique).unwrap_or(first))
    }
}

/// The number at the start of a cell: `12`, `64M`, `3.5 %`, `1.5e3`; NaN if it has none.
fn number(cell: &str) -> f64 {
    let cell = cell.trim();
    if let Ok(number) = cell.parse::<f64>() {
        return number;
    }
    let end = cell
        .find(|letter: char| !(letter.is_ascii_digit() || letter == '.' || letter == '-'))
        .unwrap_or(cell.len());
    let factor = match cell[end..].trim() {
        "" | "%" | "x" | "us" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        _ => return f64::NAN,
    };
    cell[..end]
        .parse::<f64>()
        .map_or(f64::NAN, |number| number * factor)
}

/// Columns of one unit, drawn together.
struct Group {
    name: String,
    unit: Unit,
    columns: Vec<(usize, f64)>,
}

fn groups(table: &Read, from: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for column in from..table.columns.len() {
        if !table.is_measured(column) {
            continue;
        }
        let name = &table.columns[column];
        let (unit, factor) = table.unit(column).unwrap_or((Unit::Number(""), 1.0));
        let key = match unit {
            // Numbers are comparable if their names end alike ("paper QPS", "model QPS") or begin
            // alike ("reads, young blocks", "reads, sorted blocks").
            Unit::Number(_) => {
                let mut words = name.split_whitespace();
                match (words.next(), words.next_back()) {
                    (Some("paper" | "model" | "today"), Some(last)) => last.to_owned(),
                    _ => table.shared(name).unwrap_or(name).to_owned(),
                }
            }
            Unit::Nanoseconds => "time".to_owned(),
            Unit::Share => "share".to_owned(),
            _ => "bytes".to_owned(),
        };
        match groups.iter_mut().find(|group| group.name == key) {
            Some(group) if group.columns.len() < 6 => group.columns.push((column, factor)),
            Some(_) => {}
            None => groups.push(Group {
                name: key,
                unit,
                columns: vec![(column, factor)],
            }),
        }
    }
    groups
}

/// The figures of a table.
pub fn of_table(table: &Value) -> Vec<Chart> {
    let Some(table) = Read::of(table) else {
        return Vec::new();
    };
    if table.rows.is_empty() || table.columns.len() < 2 {
        return Vec::new();
    }
    let x = table.values(0);
    let rising = x.windows(2).all(|pair| pair[0] < pair[1]);
    if x.len() > 2 && rising {
        return lines(&table, &x);
    }
    bars(&table)
}

fn lines(table: &Read, x: &[f64]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for group in groups(table, 1).into_iter().take(MOST_FIGURES) {
        let columns = group.columns.iter();
        let all: Vec<f64> = columns
            .flat_map(|(column, factor)| {
                table
                    .values(*column)
                    .into_iter()
                    .map(move |value| value * factor)
            })
            .collect();
        let whole = x.iter().all(|value| value.fract() == 0.0);
        let plain = if whole {
            Unit::Whole("")
        } else {
            Unit::Number("")
        };
        let (unit, x_factor) = table.unit(0).unwrap_or((plain, 1.0));
        let across_name = bare(&table.columns[0]);
        let across: Vec<f64> = x.iter().map(|value| value * x_factor).collect();
        let x_axis = if is_wide(&across) {
            Axis::log(&across_name, unit)
        } else {
            Axis::linear(&across_name, unit)
        };
        let y_axis = if is_wide(&all) {
            Axis::log(&group.name, group.unit)
        } else {
            Axis::linear(&group.name, group.unit)
        };
        let mut panel = Panel::new("", x_axis, y_axis);
        for (column, factor) in &group.columns {
            let values = table.values(*column);
            let points = across
                .iter()
                .zip(values)
                .map(|(x, y)| (*x, y * factor))
                .collect();
            let name = table.name(*column);
            let mark = if name.starts_with("paper") {
                Mark::Published
            } else {
                Mark::Line
            };
            panel = panel.with(&name, mark, points);
        }
        charts.push(Chart::new(&table.title, vec![panel]));
    }
    charts
}

fn bars(table: &Read) -> Vec<Chart> {
    let Some(first) = table.naming() else {
        return Vec::new();
    };
    let names: Vec<String> = table
        .rows
        .iter()
        .take(MOST_ROWS)
        .map(|row| {
            let cells = row[..first].iter().filter(|cell| *cell != "-");
            short_name(&cells.cloned().collect::<Vec<_>>().join(", "))
        })
        .collect();
    let mut title = table.title.clone();
    if table.rows.len() > MOST_ROWS {
        title.push_str(&format!(
            " (the first {MOST_ROWS} of {} rows)",
            table.rows.len()
        ));
    }
    let mut charts = Vec::new();
    // One bar shows no comparison.
    let compared = |group: &Group| table.rows.len() > 1 || group.columns.len() > 1;
    let groups = groups(table, first).into_iter().filter(compared);
    for group in groups.take(MOST_FIGURES) {
        let series: Vec<(String, Vec<f64>)> = group
            .columns
            .iter()
            .take(4)
            .map(|(column, factor)| {
                let values = table.values(*column).into_iter().take(MOST_ROWS);
                (
                    table.name(*column),
                    values.map(|value| value * factor).collect(),
                )
            })
            .collect();
        let shown = || series.iter().flat_map(|(_, values)| values);
        // All interesting values may be in the rows that are left out.
        if !shown().any(|value| value.abs() > 0.0) {
            continue;
        }
        let name = match series.as_slice() {
            [(name, _)] => bare(name),
            _ => group.name.clone(),
        };
        let axis = Axis::linear(&name, group.unit);
        charts.push(Chart::bars(&title, axis, &names, &series));
    }
    charts
}

/// A row's name, cut with an ellipsis if it is too long.
fn short_name(name: &str) -> String {
    if name.chars().count() <= MOST_LETTERS {
        return name.to_owned();
    }
    let cut: String = name.chars().take(MOST_LETTERS - 1).collect();
    format!("{}\u{2026}", cut.trim_end())
}

/// A column's name without its unit, which the axis shows: `fill %` is `fill`, `s` is `time`.
fn bare(name: &str) -> String {
    const UNITS: [&str; 11] = [
        "%", "ns", "us", "ms", "s", "seconds", "MB", "GB", "KiB", "MiB", "GiB",
    ];
    match name {
        "ns" | "us" | "ms" | "s" | "seconds" => "time".to_owned(),
        "MB" | "GB" | "KiB" | "MiB" | "GiB" => "bytes".to_owned(),
        "%" => "share".to_owned(),
        name => {
            let last = name
                .rsplit_once(' ')
                .filter(|(_, unit)| UNITS.contains(unit));
            last.map_or(name, |(rest, _)| rest).replace("us/", "time/")
        }
    }
}

fn is_wide(values: &[f64]) -> bool {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (least, most) = (
        finite().fold(f64::INFINITY, f64::min),
        finite().fold(0.0, f64::max),
    );
    least > 0.0 && most / least > WIDE
}

/// Published values next to those measured here, as ratios, which need no unit.
pub fn published(pairs: &[(&str, f64, Option<f64>)]) -> Option<Chart> {
    if pairs.is_empty() {
        return None;
    }
    let names: Vec<String> = pairs.iter().map(|pair| pair.0.to_owned()).collect();
    let paper = pairs.iter().map(|pair| pair.1).collect();
    let here = pairs
        .iter()
        .map(|pair| pair.2.unwrap_or(f64::NAN))
        .collect();
    Some(Chart::bars(
        "Published, and measured here",
        Axis::linear("value", Unit::Number("")),
        &names,
        &[("paper".to_owned(), paper), ("here".to_owned(), here)],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_in_cells() {
        assert_eq!(number("12.5 %"), 12.5);
        assert_eq!(number("64M"), 64e6);
        assert!(number("-").is_nan() && number("16 log blocks").is_nan() && number("").is_nan());
    }

    #[test]
    fn a_counted_table_gives_lines_and_published_points() {
        let table = json!({
            "title": "Figures 7 and 8",
            "columns": ["drives", "paper QPS", "model QPS", "paper us", "model us", "busy"],
            "rows": [["1", "45000", "45100", "467", "470", "-"], ["2", "60000", "-", "477", "480", "-"],
                ["4", "65000", "65100", "502", "500", "-"]],
        });
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 2, "QPS and time, each on its own axis");
        assert!(
            charts[0].contains("paper QPS") && charts[0].contains("sk-d"),
            "{}",
            charts[0]
        );
        assert!(charts[1].contains("time (us)"), "{}", charts[1]);
    }

    #[test]
    fn columns_that_begin_alike_share_an_axis() {
        let table = json!({
            "title": "Maps", "columns": ["blocks", "reads, even", "reads, zipf", "writes, even"],
            "rows": [["1", "4", "5", "6"], ["2", "5", "6", "7"], ["3", "6", "7", "8"]],
        });
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 2);
        assert!(charts[0].contains("reads, even") && charts[0].contains("reads, zipf"));
        assert!(!charts[0].contains("writes, even"));
    }

    #[test]
    fn a_named_table_gives_bars() {
        let table = json!({
            "title": "Engines",
            "columns": ["load", "engine", "a second", "p99 us"],
            "rows": [["gets", "ours", "1000", "20"], ["gets", "theirs", "-", "-"]],
        });
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 2);
        assert!(charts[0].contains("gets, theirs") && charts[0].contains("not measured"));
    }

    #[test]
    fn one_bar_alone_is_not_drawn_and_long_names_are_cut() {
        let columns = ["what", "a second", "hits"];
        let one = json!({"title": "a", "columns": columns, "rows": [["x", "1", "2"]]});
        assert!(of_table(&one).is_empty());
        let long = "a name that goes on and on and never ends";
        let two =
            json!({"title": "a", "columns": columns, "rows": [["x", "1", "2"], [long, "3", "4"]]});
        let charts: Vec<String> = of_table(&two).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 2);
        assert!(charts[0].contains("a name that goes on and on and ne\u{2026}"));
    }

    /// Of 60 rows only the last had erases, and 32 bars of zero were drawn.
    #[test]
    fn rows_without_anything_are_not_drawn_for_those_behind_them() {
        let row = |at: u64| json!([format!("row {at}"), if at < 40 { "0" } else { "9" }]);
        let rows: Vec<_> = (0..60).map(row).collect();
        let table = json!({"title": "a", "columns": ["what", "erases"], "rows": rows});
        assert!(of_table(&table).is_empty());
    }

    #[test]
    fn an_axis_has_its_unit_once() {
        let names = ["fill %", "s", "block MiB", "us/element", "reads a second"];
        let bare = names.map(bare);
        assert_eq!(
            bare,
            ["fill", "time", "block", "time/element", "reads a second"]
        );
    }

    #[test]
    fn a_broken_table_gives_nothing() {
        for table in [
            json!(null),
            json!({"title": "a", "columns": ["b"], "rows": [["1"]]}),
            json!({"title": "a", "columns": ["b", "c"], "rows": [["1"]]}),
        ] {
            assert!(of_table(&table).is_empty());
        }
    }
}
