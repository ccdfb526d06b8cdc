// SPDX-License-Identifier: Apache-2.0
//! Results for people: tables and short numbers.

/// A table for people.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The heading of each column.
    pub columns: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it does not have one cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(
            cells.len(),
            self.columns.len(),
            "a row of \"{}\" has the wrong number of cells",
            self.title
        );
        self.rows.push(cells);
    }

    /// Title and table in Markdown, with aligned columns so that it reads well in a terminal too.
    pub fn to_markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells
                .chain([self.columns[column].chars().count(), 3])
                .max()
                .unwrap_or(3)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| {
                    // Names are aligned left, numbers right.
                    if column == 0 {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            format!("| {} |\n", padded.join(" | "))
        };
        let rule: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(column, &width)| {
                if column == 0 {
                    "-".repeat(width)
                } else {
                    format!("{}:", "-".repeat(width - 1))
                }
            })
            .collect();
        let mut text = format!(
            "**{}**\n\n{}{}",
            self.title,
            line(&self.columns),
            line(&rule)
        );
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }
}

/// A number with three significant digits or so.
pub fn short(value: f64) -> String {
    let places = match value.abs() {
        1000.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        0.01.. => 3,
        _ => 5,
    };
    let text = format!("{value:.places$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
