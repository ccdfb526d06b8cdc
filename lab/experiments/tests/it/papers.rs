// SPDX-License-Identifier: Apache-2.0
//! The report's table from the papers to the code: no numbered item of a paper is left out. And the
//! documents have the bars that the experiments state.

use std::collections::BTreeSet;
use std::path::Path;

use senko_lab::publish::parts::PARTS;
use senko_lab::{Bar, Claim, Paper, experiments};

/// The numbers of one kind in a text: `figures 8 to 10 and 12, table 1`.
fn numbers(text: &str, kind: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let (mut counts, mut up_to) = (false, None);
    for word in text.split_whitespace() {
        let bare = word.trim_end_matches([',', ';']);
        match bare.parse::<u32>() {
            Ok(number) if counts => {
                found.extend(up_to.take().unwrap_or(number)..=number);
            }
            Ok(_) => {}
            Err(_) if bare == "to" => up_to = found.last().copied(),
            Err(_) if bare == "and" => {}
            Err(_) => counts = bare == kind || bare.strip_suffix('s') == Some(kind),
        }
    }
    found
}

#[test]
fn numbers_of_a_text() {
    let text = "section 2.1, figures 1 to 4, 6 and 7, table 11; equations 4 and 5";
    let of = |kind| numbers(text, kind).into_iter().collect::<Vec<_>>();
    assert_eq!(of("figure"), [1, 2, 3, 4, 6, 7]);
    assert_eq!((of("table"), of("equation")), (vec![11], vec![4, 5]));
}

/// The papers' own counts.
#[test]
fn every_figure_table_and_equation_has_a_row() {
    for (paper, kind, count) in [
        (Paper::A, "figure", 53),
        (Paper::A, "table", 11),
        (Paper::A, "equation", 5),
        (Paper::B, "figure", 11),
        (Paper::B, "table", 3),
        (Paper::C, "figure", 3),
        (Paper::C, "table", 1),
        (Paper::D, "figure", 2),
        (Paper::D, "table", 1),
        (Paper::E, "figure", 4),
    ] {
        let of_it = PARTS.iter().filter(|part| part.paper == paper);
        let found: BTreeSet<u32> = of_it.flat_map(|part| numbers(part.part, kind)).collect();
        let all: BTreeSet<u32> = (1..=count).collect();
        assert_eq!(found, all, "{kind}s of {}", paper.title());
    }
}

/// A duplicate row, or two rows with one name, would leave readers guessing.
#[test]
fn rows_differ() {
    let mut seen = BTreeSet::new();
    for part in PARTS {
        let of_it = (part.paper.short(), part.part, part.what);
        assert!(seen.insert(of_it), "{of_it:?} stands twice");
    }
}

/// A number as the table of measurements writes it: `1.05`, `262144`, `20 M`, `10 ms`.
fn number(text: &str) -> Option<f64> {
    let (number, unit) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let factor = if unit == "M" { 1e6 } else { 1.0 };
    Some(number.parse::<f64>().ok()? * factor)
}

/// Bars stood in the report's catalogue and in the documents, and three of them had become
/// different there.
#[test]
fn the_documents_have_the_bars_of_the_experiments() {
    let docs = Path::new("../../docs/measurements");
    let table = std::fs::read_to_string(docs.join("README.md")).unwrap();
    let mut compared = 0;
    for row in table.lines().filter(|line| line.ends_with(".md` |")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [figure, _, bars, pages] = cells[..] else {
            panic!("{row}");
        };
        let pages = pages.split('`').filter(|name| name.ends_with(".md"));
        let text: String = pages
            .map(|name| std::fs::read_to_string(docs.join(name)).unwrap())
            .collect();
        let words: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .collect();
        let claims: Vec<Claim> = experiments()
            .iter()
            .filter(|experiment| words.contains(&experiment.name()))
            .map(|experiment| experiment.claim())
            .collect();
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
        for pair in bars.split(';') {
            let Some((must, goal)) = pair.split_once(',') else {
                continue;
            };
            let (must, goal) = (number(must).unwrap(), number(goal).unwrap());
            let is = |bar: &Bar| near(bar.must, must) && near(bar.goal, goal);
            assert!(
                claims.iter().flat_map(|claim| claim.bars).any(is),
                "no experiment has the bars {pair} of {figure}"
            );
            compared += 1;
        }
    }
    assert!(compared > 50, "only {compared} bars were found");
}
