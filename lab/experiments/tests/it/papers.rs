// SPDX-License-Identifier: Apache-2.0
//! The audit of the laboratory. Every table, figure, equation and number of the papers' summaries
//! has a sentence with a verdict, every test can fail, and the documents have the same bars and
//! verdicts as the report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use senko_lab::claim::{Judged, Standing, Verdict};
use senko_lab::{Bar, Paper, Sentence, experiments, publish, run};
use serde_json::json;

use crate::process::quick;

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
fn every_figure_table_and_equation_has_a_verdict() {
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
        let of_it = publish::said(&[]).filter(|said| said.paper == paper);
        let found: BTreeSet<u32> = of_it
            .flat_map(|said| numbers(said.sentence.place, kind))
            .collect();
        let all: BTreeSet<u32> = (1..=count).collect();
        assert_eq!(found, all, "{kind}s of {}", paper.title());
    }
}

/// The numbers of the papers' abstracts, results and conclusions.
#[test]
fn every_number_of_a_summary_has_a_verdict() {
    for (paper, claimed) in [
        (
            Paper::A,
            "126.6 MB; 1.5 MB; 600 ms; 20 ms; 74 %; 100 ms; 354; 2.14 %; 0.046 %; 110.6; \
             112.1; 11.8; 1.5 ms; 1.1 to 1.4 ms; 37.5; 516; a third; 800 us; \
             twice as fast; 400 us; 49 MB",
        ),
        (
            Paper::B,
            "60,000; 65,000; 1.33; 1.44; 477; 502; 85.0; 35.6; 38.0; 92 %; \
             400 to 450 us; 100,000; 1 to 2 ms",
        ),
        (Paper::C, "65.3 %; 66.5 %; 3.0; 77.8 %; 80.6 %; 4.7"),
        (Paper::D, "five times; 56 %; 36 %; 40 bytes"),
        (Paper::E, "1.8 times; 14 %; 87.5 %; 1:16"),
    ] {
        let of_it = || publish::said(&[]).filter(|said| said.paper == paper);
        for number in claimed.split("; ") {
            assert!(
                of_it().any(|said| said.sentence.text.contains(number)),
                "no sentence of {} has {number}",
                paper.title()
            );
        }
    }
}

/// Bars of the papers' claims compared arithmetic with itself, had no power, or counted engines.
#[test]
fn every_verdict_can_fail() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = BTreeSet::new();
    for said in publish::said(&[]) {
        let sentence = said.sentence;
        let name = format!("{}, {}", said.paper.short(), sentence.place);
        assert!(seen.insert(name.clone()), "{name} stands twice");
        for file in sentence.files {
            assert!(root.join(file).is_file(), "there is no {file}");
        }
        let (Judged::By { why, .. } | Judged::Not(why)) = sentence.judged;
        assert!(!why.is_empty(), "{name} has no reason");
        if let Judged::By { tests, .. } = sentence.judged {
            assert!(why.starts_with("20") && !tests.is_empty(), "{name}: {why}");
            // It only computes what the thesis computes.
            assert_ne!(said.experiment, Some("ftl-table2"));
        }
        for test in sentence.tests() {
            assert!(test.can_fail(), "{name}: {test:?}");
        }
    }
    assert!(seen.len() > 90, "only {} sentences", seen.len());
}

fn docs(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../docs/measurements", name]
        .iter()
        .collect();
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of the rows of a table in Markdown whose first cell is as wanted.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with("| "));
    lines.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
}

/// Bars stood in the report's catalogue and in the documents. Five of them were looser in the one
/// than in the other.
#[test]
fn the_documents_have_the_bars_of_the_experiments() {
    let text = docs("README.md");
    let mut told: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for cells in rows(&text) {
        if let [figure, _, _, bars, _] = cells[..]
            && let Some(key) = figure
                .strip_prefix('`')
                .and_then(|key| key.strip_suffix('`'))
        {
            let bars = bars.split_once(", ").expect(key);
            assert!(told.insert(key, bars).is_none(), "{key} stands twice");
        }
    }
    for experiment in experiments() {
        for bar in experiment.bars {
            let name = format!("{}.{}", experiment.name, bar.key);
            let (must, goal) = told
                .remove(&*name)
                .unwrap_or_else(|| panic!("no row of {name}"));
            let is = |text: &str, bar: f64| text.parse::<f64>().is_ok_and(|told| told == bar);
            assert!(
                is(must, bar.must) && is(goal, bar.goal),
                "{name}: {must}, {goal}"
            );
        }
    }
    assert!(told.is_empty(), "no experiment has the bars {told:?}");
}

/// A figure of a cell: `key 1.02 (0.98 to 1.07)`.
fn figure(text: &str) -> Option<(&str, f64, Option<[f64; 2]>)> {
    let (key, rest) = text.trim().split_once(' ')?;
    let (value, ends) = rest.split_once(" (").unwrap_or((rest, ""));
    let ends = ends.trim_end_matches(')').split_once(" to ");
    let ends = ends.map(|(low, high)| [low, high].map(|end| end.parse().unwrap()));
    Some((key, value.parse().ok()?, ends))
}

/// The verdicts of the documents are those of their own figures.
#[test]
fn the_documents_have_the_verdicts_of_their_figures() {
    let text = docs("papers.md");
    let mut told: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for cells in rows(&text).filter(|cells| cells.len() == 5) {
        told.insert((cells[0], cells[1]), cells);
    }
    for said in publish::said(&[]) {
        let sentence = said.sentence;
        let at = (said.paper.short(), sentence.place);
        let row = told.get(&at).unwrap_or_else(|| panic!("no row of {at:?}"));
        let [_, _, words, seen, verdict] = row[..] else {
            panic!("{row:?}");
        };
        assert_eq!(words, sentence.text);
        let figures: Vec<_> = seen.split("; ").filter_map(figure).collect();
        let bars: BTreeMap<_, _> = figures.iter().map(|(key, value, _)| (key, value)).collect();
        let ends = figures
            .iter()
            .filter_map(|(key, _, ends)| Some((key, (*ends)?)));
        let spread: BTreeMap<_, _> = ends.collect();
        let record = json!({ "scale": "full", "bars": bars, "spread": spread });
        match sentence.verdict(Some(&record)) {
            Verdict::NotTestable => {
                assert_eq!((seen, verdict), (why(sentence.judged), "not testable here"))
            }
            // A smaller run may leave open what its figures would say.
            Verdict::Open(_) => assert!(verdict.starts_with("not decided: "), "{at:?}: {verdict}"),
            decided => assert!(
                verdict == decided.text()
                    || verdict.contains("smaller than the paper's")
                    || verdict == "not decided: the run was noisy",
                "{at:?}: {verdict}, and its figures say {}",
                decided.text()
            ),
        }
    }
    assert_eq!(
        told.len(),
        publish::said(&[]).count() + 1,
        "rows and the heading"
    );
}

fn why(judged: Judged) -> &'static str {
    let (Judged::By { why, .. } | Judged::Not(why)) = judged;
    why
}

/// A sentence that named a figure which its experiment never had could only hold in part.
#[test]
fn an_experiment_has_the_figures_of_its_sentences() {
    for name in [
        "ftl-costs",
        "thesis-hash-table",
        "thesis-isam",
        "thesis-misses",
        "transfer-predict",
    ] {
        let report = run(name, &quick(), &()).unwrap();
        let (bars, missing) = (report.outcome.bars(), report.outcome.missing());
        let lacks_a_trace = missing.values().any(|why| why.contains("/nonexistent"));
        for test in report.experiment.sentences.iter().flat_map(Sentence::tests) {
            assert!(
                bars.contains_key(test.key) || lacks_a_trace,
                "{name} has no {}: {missing:?}",
                test.key
            );
        }
    }
}

#[test]
fn a_bar_is_reached_at_its_own_values() {
    let standing = |bar: &Bar, value: f64| bar.standing(&json!({ "bars": { bar.key: value } }));
    for experiment in experiments() {
        for bar in experiment.bars {
            assert_eq!(standing(bar, bar.goal), Standing::Goal, "{}", bar.key);
            assert_ne!(standing(bar, bar.must), Standing::Not, "{}", bar.key);
        }
    }
}
