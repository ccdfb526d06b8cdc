// SPDX-License-Identifier: Apache-2.0
//! The report's table from the papers to the code: no numbered item of a paper is left out.

use std::collections::BTreeSet;

use senko_lab::publish::catalogue::Paper;
use senko_lab::publish::parts::PARTS;

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
