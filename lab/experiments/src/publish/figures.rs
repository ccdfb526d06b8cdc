// SPDX-License-Identifier: Apache-2.0
//! Charts of tables: values of a table that can be compared are drawn, one chart for each unit.
//!
//! A table whose first column counts gives lines over it. So does one in which a later column
//! rises within the rows of each name: a line a name. Any other gives bars by name, in as many
//! figures as fit on printed pages. Columns with different units never share an axis. A column
//! named "paper ..." holds published values, and is drawn hollow. A cell without a number is a gap.

mod read; // tables of records

use std::ops::Range;

use senko_ssd::chart::{Axis, COLOURS, Chart, Mark, Panel, Unit, bar_height};
use serde_json::Value;

use read::Read;

/// Units of one table that are drawn, at most.
const MOST_FIGURES: usize = 3;
/// Figures of one unit of a table, at most.
const MOST_PARTS: usize = 8;
/// All bars of a figure fit on a printed page.
const PAGE: f64 = 850.0;
/// From this ratio on, lines need a logarithmic axis.
const WIDE: f64 = 30.0;
/// From this ratio on, bars do: the shortest would have no length.
const WIDE_BARS: f64 = 200.0;

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
        // "4 drives: QPS" is alike "16 drives: QPS".
        let name = &table.columns[column];
        let name = name
            .split_once(": ")
            .map_or(name.as_str(), |(_, name)| name);
        let (unit, factor) = table.unit(column).unwrap_or((Unit::Number(""), 1.0));
        let key = match unit {
            // Numbers are alike where their names end alike, "paper QPS", "model QPS", or begin
            // alike, "reads, young blocks", "reads, sorted blocks", or are a server's rates.
            Unit::Number(_) => {
                let mut words = name.split_whitespace();
                match (words.next(), words.next_back()) {
                    (Some("paper" | "model" | "today"), Some(last)) => last.to_owned(),
                    _ if is_rate(name) => "a second".to_owned(),
                    _ => table.shared(name).unwrap_or(name).to_owned(),
                }
            }
            // A processor's time for a request is no response time.
            Unit::Nanoseconds if is_processor(name) => "processor time".to_owned(),
            Unit::Nanoseconds => "time".to_owned(),
            Unit::Share => "share".to_owned(),
            _ => "bytes".to_owned(),
        };
        match groups.iter_mut().find(|group| group.name == key) {
            Some(group) if group.columns.len() < COLOURS => group.columns.push((column, factor)),
            Some(_) => {}
            None => groups.push(Group {
                name: key,
                unit,
                columns: vec![(column, factor)],
            }),
        }
    }
    // A column of zeros tells something beside others, and nothing alone.
    groups.retain(|group| {
        let columns = group.columns.iter();
        let mut values = columns.flat_map(|(column, _)| table.values(*column));
        values.any(|value| value.abs() > 0.0)
    });
    groups
}

fn is_rate(name: &str) -> bool {
    matches!(name, "requests/s" | "hits/s" | "from flash/s")
}

fn is_processor(name: &str) -> bool {
    matches!(name, "server us" | "load us" | "cpu us")
}

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
        let all = vec![(String::new(), (0..x.len()).collect())];
        return lines(&table, 0, &all);
    }
    let within = table.rising();
    match within.and_then(|column| Some((column, table.lines(column)?))) {
        Some((column, names)) => lines(&table, column, &names),
        None => bars(&table),
    }
}

/// Lines over a column, for each name one a column of a group. Where that is too many, each column
/// has a figure of its own.
fn lines(table: &Read, over: usize, names: &[(String, Vec<usize>)]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for group in groups(table, over + 1).into_iter().take(MOST_FIGURES) {
        if group.columns.len() * names.len() <= COLOURS {
            charts.push(line_chart(table, over, names, &group));
            continue;
        }
        for column in group.columns.iter().take(MOST_PARTS) {
            let group = Group {
                name: bare(&table.name(column.0)),
                unit: group.unit,
                columns: vec![*column],
            };
            charts.push(line_chart(table, over, names, &group));
        }
    }
    charts
}

fn line_chart(table: &Read, over: usize, names: &[(String, Vec<usize>)], group: &Group) -> Chart {
    let x = table.values(over);
    let whole = x.iter().all(|value| value.fract() == 0.0);
    let plain = if whole {
        Unit::Whole("")
    } else {
        Unit::Number("")
    };
    let (unit, factor) = table.unit(over).unwrap_or((plain, 1.0));
    let across: Vec<f64> = x.iter().map(|value| value * factor).collect();
    let first: Vec<f64> = names.first().map_or(Vec::new(), |(_, rows)| {
        rows.iter().map(|row| across[*row]).collect()
    });
    let axis = |name: &str, unit, log| {
        if log {
            Axis::log(name, unit)
        } else {
            Axis::linear(name, unit)
        }
    };
    let values = |(column, factor): &(usize, f64)| -> Vec<f64> {
        let values = table.values(*column).into_iter();
        values.map(|value| value * factor).collect()
    };
    let all: Vec<f64> = group.columns.iter().flat_map(values).collect();
    let mut panel = Panel::new(
        "",
        axis(&bare(&table.columns[over]), unit, multiplies(&first)),
        axis(
            &group.name,
            group.unit,
            group.unit != Unit::Share && is_wide(&all, WIDE),
        ),
    );
    for column in &group.columns {
        let (values, name) = (values(column), table.name(column.0));
        for (row_name, rows) in names {
            let points = rows
                .iter()
                .map(|row| (across[*row], values[*row]))
                .collect();
            let name = match (row_name.as_str(), group.columns.len()) {
                ("", _) => name.clone(),
                (row_name, 1) => row_name.to_owned(),
                (row_name, _) => format!("{row_name}: {name}"),
            };
            let mark = if name.starts_with("paper") {
                Mark::Published
            } else {
                Mark::Line
            };
            panel = panel.with(&name, mark, points);
        }
    }
    Chart::new(&table.title, vec![panel])
}

fn bars(table: &Read) -> Vec<Chart> {
    let Some((names, first)) = table.naming() else {
        return Vec::new();
    };
    let mut charts = Vec::new();
    // One bar shows no comparison.
    let compared = |group: &Group| table.rows.len() > 1 || group.columns.len() > 1;
    let groups = groups(table, first).into_iter().filter(compared);
    for group in groups.take(MOST_FIGURES) {
        let series: Vec<(String, Vec<f64>)> = group
            .columns
            .iter()
            .map(|(column, factor)| {
                let values = table.values(*column).into_iter();
                let values = values.map(|value| value * factor).collect();
                (table.name(*column), values)
            })
            .collect();
        let name = match series.as_slice() {
            [(name, _)] => bare(name),
            _ => group.name.clone(),
        };
        let firsts: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        let parts = pages(&names, &firsts, series.len());
        let all: Vec<f64> = series
            .iter()
            .flat_map(|(_, values)| values.clone())
            .collect();
        // A share is seen against the whole.
        let log = group.unit != Unit::Share && is_wide(&all, WIDE_BARS);
        let shown = parts.len().min(MOST_PARTS);
        for (nth, rows) in parts.iter().take(MOST_PARTS).enumerate() {
            let part: Vec<(String, Vec<f64>)> = series
                .iter()
                .map(|(name, values)| (name.clone(), values[rows.clone()].to_vec()))
                .collect();
            let values: Vec<f64> = part.iter().flat_map(|(_, values)| values.clone()).collect();
            // Rows of a part that had nothing are in the table.
            if !values.iter().any(|value| value.abs() > 0.0) {
                continue;
            }
            let axis = if log {
                Axis::log(&name, group.unit)
            } else {
                Axis::linear(&name, group.unit)
            };
            let mut title = table.title.clone();
            if parts.len() > 1 {
                title.push_str(&format!(" ({} of {})", nth + 1, parts.len()));
            }
            if shown < parts.len() && nth + 1 == shown {
                title.push_str("; the table below has the rest");
            }
            charts.push(Chart::bars(&title, axis, &names[rows.clone()], &part));
        }
    }
    charts
}

/// Rows in parts that fit on a page each. Rows with one first cell stay together where they fit.
fn pages(names: &[String], firsts: &[&str], series: usize) -> Vec<Range<usize>> {
    let heights: Vec<f64> = names.iter().map(|name| bar_height(name, series)).collect();
    let high = |rows: &Range<usize>| heights[rows.clone()].iter().sum::<f64>();
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut begin = 0;
    while begin < names.len() {
        let alike = firsts[begin..]
            .iter()
            .take_while(|cell| **cell == firsts[begin]);
        let end = begin + alike.count();
        match parts.last_mut() {
            Some(part) if high(&(part.start..end)) <= PAGE => part.end = end,
            _ => {
                // A name with more rows than a page has is cut.
                let mut part = begin..begin;
                for row in begin..end {
                    if high(&(part.start..row + 1)) > PAGE && !part.is_empty() {
                        parts.push(part);
                        part = row..row;
                    }
                    part.end = row + 1;
                }
                parts.push(part);
            }
        }
        begin = end;
    }
    parts
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

/// Whether positive values lie so far apart that a linear axis would hide the small ones.
fn is_wide(values: &[f64], ratio: f64) -> bool {
    let some = || {
        values
            .iter()
            .copied()
            .filter(|value| *value != 0.0 && !value.is_nan())
    };
    let (least, most) = (
        some().fold(f64::INFINITY, f64::min),
        some().fold(0.0, f64::max),
    );
    least > 0.0 && most / least > ratio
}

/// Whether the values of a horizontal axis grow by factors, as 16, 64, 256, and not by steps.
fn multiplies(values: &[f64]) -> bool {
    let steps = || values.windows(2).map(|pair| pair[1] - pair[0]);
    let (least, most) = (
        steps().fold(f64::INFINITY, f64::min),
        steps().fold(0.0, f64::max),
    );
    values.iter().all(|value| *value > 0.0) && most >= 3.0 * least && is_wide(values, 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn one_bar_alone_is_not_drawn() {
        let columns = ["what", "a second", "hits"];
        let one = json!({"title": "a", "columns": columns, "rows": [["x", "1", "2"]]});
        assert!(of_table(&one).is_empty());
    }

    /// Of 60 rows the first 32 were drawn, and a stranger could not see the others.
    #[test]
    fn more_rows_than_a_page_has_are_more_figures() {
        let row = |at: u64| json!([format!("load {}", at / 20), format!("row {at}"), "9"]);
        let rows: Vec<_> = (0..60).map(row).collect();
        let table = json!({"title": "a", "columns": ["load", "what", "erases"], "rows": rows});
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 3, "a load stays together");
        for (nth, chart) in charts.iter().enumerate() {
            assert!(chart.contains(&format!("a ({} of 3)", nth + 1)), "{chart}");
            let height = chart.split("viewBox=\"0 0 760 ").nth(1).unwrap_or("");
            let height: f64 = height
                .split('"')
                .next()
                .unwrap_or("")
                .parse()
                .unwrap_or(f64::NAN);
            assert!(height < 1000.0, "it breaks over pages: {height}");
        }
        assert!(charts[2].contains("load 2, row 59"));
    }

    /// Rows of nothing were drawn for those behind them.
    #[test]
    fn parts_without_anything_are_not_drawn() {
        let row = |at: u64| json!([format!("row {at}"), if at < 40 { "0" } else { "9" }]);
        let rows: Vec<_> = (0..60).map(row).collect();
        let table = json!({"title": "a", "columns": ["what", "erases"], "rows": rows});
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 1);
        assert!(charts[0].contains("a (2 of 2)"));
    }

    /// Table 1's 64 rows were bars, of which half were left out: they are lines over the column
    /// that rises.
    #[test]
    fn a_column_that_rises_for_each_name_gives_lines() {
        let rows: Vec<_> = ["lru", "fifo"]
            .iter()
            .flat_map(|name| [1, 8, 64].map(|x| json!([name, "new", x.to_string(), "5", "7 %"])))
            .collect();
        let columns = ["victim", "drive", "log blocks", "erases", "fewer"];
        let table = json!({"title": "a", "columns": columns, "rows": rows});
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 2, "erases, and a share");
        assert_eq!(charts[0].matches("<circle").count(), 6, "{}", charts[0]);
        assert!(charts[0].contains(">fifo, new<") && charts[0].contains(">log blocks<"));
    }

    /// The figure was of the requests, and not of what was measured with them.
    #[test]
    fn settings_are_not_drawn() {
        let columns = ["stream", "requests", "objects", "error"];
        let rows = [
            ["a", "2000000", "394246", "0.0086"],
            ["b", "4", "5", "0.002"],
        ];
        let table = json!({"title": "a", "columns": columns, "rows": rows});
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 1);
        assert!(charts[0].contains(">error<"));
    }

    /// QPS of four drives were left out, for their name was not that of two drives.
    #[test]
    fn parts_of_a_table_share_an_axis() {
        let columns = ["window", "2 drives: QPS", "us", "4 drives: QPS", "us"];
        let rows = [
            ["24", "5", "6", "7", "8"],
            ["32", "5", "6", "7", "8"],
            ["40", "5", "6", "7", "8"],
        ];
        let table = json!({"title": "a", "columns": columns, "rows": rows});
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 2);
        assert!(charts[0].contains("2 drives: QPS") && charts[0].contains("4 drives: QPS"));
    }

    /// LRU, which found nothing at all, was left out beside the policies that found something.
    #[test]
    fn zeros_are_drawn_beside_others_and_not_alone() {
        let columns = ["cache", "hits %, lru", "hits %, s3_fifo", "erases"];
        let rows = [
            ["1", "0.0", "3.0", "0"],
            ["2", "0.0", "4.0", "0"],
            ["3", "0.0", "5.0", "0"],
        ];
        let table = json!({"title": "a", "columns": columns, "rows": rows});
        let charts: Vec<String> = of_table(&table).iter().map(Chart::to_inline).collect();
        assert_eq!(charts.len(), 1);
        assert!(charts[0].contains("hits %, lru"), "{}", charts[0]);
    }

    /// Rows were named by the requests that were measured of them, or by how long they took.
    #[test]
    fn rows_have_names_and_no_figures() {
        let named = |columns: [&str; 4], rows: [[&str; 4]; 2]| -> Vec<String> {
            let table = json!({"title": "a", "columns": columns, "rows": rows});
            Read::of(&table)
                .and_then(|table| table.naming())
                .map_or(Vec::new(), |names| names.0)
        };
        let columns = ["contender", "load", "requests/s", "mean us"];
        let rows = [
            ["senko", "peak", "85620", "9"],
            ["senko", "peak", "88723", "8"],
        ];
        assert_eq!(named(columns, rows), ["senko, peak", "senko, peak (2)"]);
        let columns = ["server", "seconds", "device MB", "page fill"];
        let rows = [["fifo", "6", "221", "0.98"], ["budget", "8", "67", "0.97"]];
        assert_eq!(named(columns, rows), ["fifo", "budget"]);
        let columns = ["policy", "alpha", "pages/block", "erases"];
        let rows = [["fifo", "1.1", "64", "7"], ["fifo", "1.1", "128", "8"]];
        assert_eq!(named(columns, rows), ["fifo, 1.1, 64", "fifo, 1.1, 128"]);
    }

    /// A fill of 2 to 98 % by steps of two was drawn over a logarithmic axis.
    #[test]
    fn what_grows_by_steps_has_a_linear_axis() {
        let steps: Vec<f64> = (1..50).map(|step| f64::from(step) * 2.0).collect();
        assert!(!multiplies(&steps));
        assert!(multiplies(&[16.0, 64.0, 256.0]) && !multiplies(&[1.0, 2.0, 4.0]));
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
