// SPDX-License-Identifier: Apache-2.0
//! Tables as they lie in a record: which columns count, in which units, and what names a row.

use std::collections::{BTreeMap, BTreeSet};

use senko_ssd::chart::{COLOURS, Unit};
use serde_json::Value;

/// Columns that say how a row was measured, or whose cells have different units: nothing to draw.
const SETTINGS: [&str; 15] = [
    "amount",
    "blocks",
    "bytes",
    "figure",
    "keys",
    "number",
    "objects",
    "other",
    "ours",
    "pages/block",
    "puts of the killed",
    "records",
    "requests",
    "rounds",
    "seconds",
];

/// A table, as it lies in a record.
pub struct Read {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Read {
    /// The table of a record, if it is whole.
    pub fn of(table: &Value) -> Option<Self> {
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

    /// The numbers of a column; NaN where a cell has none.
    pub fn values(&self, column: usize) -> Vec<f64> {
        self.rows.iter().map(|row| number(&row[column])).collect()
    }

    /// Whether at least half of a column's cells are numbers, which say what was measured.
    pub fn is_measured(&self, column: usize) -> bool {
        let values = self.values(column);
        let numbers = values.iter().filter(|value| value.is_finite()).count();
        !self.is_setting(column) && numbers > 0 && numbers * 2 >= values.len()
    }

    fn is_setting(&self, column: usize) -> bool {
        let name = self.columns[column].as_str();
        SETTINGS.contains(&name) || name.starts_with("cache, ")
    }

    /// The unit of a column, by its name or its cells, and the factor to what the chart counts in.
    pub fn unit(&self, column: usize) -> Option<(Unit, f64)> {
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
        // Of a rate, "ns a look-up", the unit is not the whole one; a percentage stays one.
        let rate = name.contains(" a ") || name.contains('/');
        let whole = |word: &str| !rate || matches!(word, "%" | "us/element");
        let mut words = name.split([' ', ',', '(', ')']);
        words.find_map(|word| known(word).filter(|_| whole(word)))
    }

    /// A column's name; of several with one name, with what stands before the colon of the column
    /// that begins its part.
    pub fn name(&self, column: usize) -> String {
        let name = &self.columns[column];
        let twice = self.columns.iter().filter(|other| *other == name).count() > 1;
        let mut before = self.columns[..column].iter().rev();
        let part = before.find_map(|name| name.split_once(": "));
        match part.filter(|_| twice) {
            Some((part, _)) => format!("{part}: {name}"),
            None => name.clone(),
        }
    }

    /// The part of a column's name before the comma, if another column's name begins with it too.
    pub fn shared<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (start, _) = name.split_once(", ")?;
        let begins = |other: &&String| other.split_once(", ").is_some_and(|(it, _)| it == start);
        (self.columns.iter().filter(begins).count() > 1).then_some(start)
    }

    /// The rows' names, and the first column that names none. Names are the cells before the first
    /// number, and more until no two rows have one name. Rows that are alike even so are counted.
    pub fn naming(&self) -> Option<(Vec<String>, usize)> {
        let first = (1..self.columns.len()).find(|column| self.is_measured(*column))?;
        let is_result =
            |column: &usize| self.unit(*column).is_some() || self.columns[*column].ends_with("/s");
        let end = (first..self.columns.len()).find(is_result);
        let end = end.unwrap_or(self.columns.len() - 1).max(first);
        let unique = |columns: &[usize]| {
            let name = |row: &Vec<String>| -> Vec<String> {
                columns.iter().map(|column| row[*column].clone()).collect()
            };
            let names: BTreeSet<Vec<String>> = self.rows.iter().map(name).collect();
            names.len() == self.rows.len()
        };
        let from = (first..=end).find(|from| unique(&(0..*from).collect::<Vec<_>>()));
        let (from, differ) = (from.unwrap_or(first), from.is_some());
        let mut columns: Vec<usize> = (0..from).collect();
        // How long a row took, or how many there were, only names it where nothing else does.
        for setting in (1..from).filter(|column| self.is_setting(*column)) {
            let fewer: Vec<usize> = columns
                .iter()
                .copied()
                .filter(|it| *it != setting)
                .collect();
            if !differ || unique(&fewer) {
                columns = fewer;
            }
        }
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let name = |row: &Vec<String>| {
            let cells = columns.iter().map(|column| row[*column].as_str());
            let name = cells
                .filter(|cell| *cell != "-")
                .collect::<Vec<_>>()
                .join(", ");
            let times = seen.entry(name.clone()).or_insert(0);
            *times += 1;
            match *times {
                1 => name,
                times => format!("{name} ({times})"),
            }
        };
        Some((self.rows.iter().map(name).collect(), from))
    }

    /// The column that rises within the rows of one name, if there are such rows: "log blocks" of
    /// "victim, drive, log blocks". Each name's rows give a line over it.
    pub fn rising(&self) -> Option<usize> {
        (1..self.columns.len().min(4)).find(|column| self.lines(*column).is_some())
    }

    /// The rows of each name, where `column` rises within the rows of every name.
    pub fn lines(&self, column: usize) -> Option<Vec<(String, Vec<usize>)>> {
        let x = self.values(column);
        if self.columns[column] == "seed" || x.iter().any(|x| x.is_nan()) {
            return None;
        }
        let mut lines: Vec<(&[String], Vec<usize>)> = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            match lines.iter_mut().find(|line| *line.0 == row[..column]) {
                Some(line) => line.1.push(at),
                None => lines.push((&row[..column], vec![at])),
            }
        }
        let rises = |rows: &[usize]| rows.windows(2).all(|pair| x[pair[0]] < x[pair[1]]);
        let long = |rows: &[usize]| rows.len() > 2 && rises(rows);
        let good = (2..=COLOURS).contains(&lines.len()) && lines.iter().all(|line| long(&line.1));
        let name = |cells: &[String]| cells.join(", ");
        good.then(|| {
            lines
                .into_iter()
                .map(|(cells, rows)| (name(cells), rows))
                .collect()
        })
    }
}

/// The number at the start of a cell: `12`, `64M`, `3.5 %`, `1.5e3`; NaN where there is none.
pub fn number(cell: &str) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_cells() {
        assert_eq!(number("12.5 %"), 12.5);
        assert_eq!(number("64M"), 64e6);
        assert!(number("-").is_nan() && number("16 log blocks").is_nan() && number("").is_nan());
    }
}
