// SPDX-License-Identifier: Apache-2.0
//! The report of all results as one HTML page, for `senko-lab report`.
//!
//! Always holds:
//! - The page needs nothing else: no script, no font, no picture from elsewhere.
//! - It follows the reader's light or dark setting, fits a phone, and prints.
//! - A figure that was not measured is a gap, with the reason.

pub mod parts; // the code for each part of a paper
pub mod figures; // charts of tables

use std::fmt::Write;

use senko_plan::short;
use senko_ssd::chart::{self, escape};
use serde_json::Value;

use crate::claim::{Claim, Paper, Standing};
use crate::results::{date, latest, newest};
use crate::{Experiment, experiments};
use parts::PARTS;

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#fff;--ink:#222;--soft:#666;--line:#ddd;--good:#1b7f4b;--bad:#b3261e;--gap:#8a5a00}\
@media(prefers-color-scheme:dark){:root{--bg:#16181c;--ink:#e6e6e6;--soft:#a8a8a8;--line:#34373d;--good:#5fd08f;--bad:#ff8a75;--gap:#e0b050}}\
@media print{:root{--bg:#fff;--ink:#222;--soft:#666;--line:#ddd;--good:#1b7f4b;--bad:#b3261e;--gap:#8a5a00}}\
body{margin:0 auto;max-width:62rem;padding:1rem;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.7rem;line-height:1.2}h2{margin-top:3rem;border-bottom:2px solid var(--line)}h3{margin-top:2.2rem}\
a{color:inherit}.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}.gap{color:var(--gap)}\
.wide{overflow-x:auto;margin:.8rem 0}table{border-collapse:collapse;font-size:.87rem}\
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
figure{margin:1.2rem 0;overflow-x:auto}figure svg{display:block;width:100%;min-width:34rem;height:auto}\
code{font-size:.9em;overflow-wrap:anywhere}details{margin:.5rem 0}summary{cursor:pointer}\
@media(max-width:40rem){.stack thead{display:none}.stack tr,.stack td{display:block;overflow-wrap:anywhere}\
.stack td{border:0;padding:.1rem 0}.stack tr{border-bottom:1px solid var(--line);padding:.5rem 0}}\
@media print{figure,tr{break-inside:avoid}h2,h3{break-after:avoid}figure{overflow:visible}figure svg{min-width:0}.wide{overflow:visible}h2{break-before:page}}";

/// The page, and the number of its figures.
pub fn page(records: &[Value]) -> (String, usize) {
    let mut page = Page::default();
    page.head(records);
    page.summary(records);
    for paper in Paper::ALL {
        let _ = writeln!(
            page.text,
            "<h2 id=\"paper-{}\">{}</h2>",
            paper.short(),
            escape(paper.title())
        );
        for experiment in of_paper(paper) {
            page.experiment(*experiment, records);
        }
    }
    page.parts();
    page.text.push_str("</body></html>\n");
    (page.text, page.figures)
}

/// The experiments of a section.
fn of_paper(paper: Paper) -> impl Iterator<Item = &'static &'static dyn Experiment> {
    experiments()
        .iter()
        .filter(move |experiment| experiment.claim().paper == paper)
}

/// The verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The results have no run.
    NotRun,
    /// It ran, but measured nothing.
    NotMeasured,
    /// All bars reach their goals.
    Goal,
    /// All bars hold.
    Holds,
    /// Some bars hold; others were not measured.
    HoldsInPart,
    /// At least one bar does not hold.
    Not,
    /// There are figures, but no bar to compare them with.
    Measured,
}

impl Verdict {
    /// The verdict of a record.
    pub fn of(claim: &Claim, record: Option<&Value>) -> Self {
        let Some(record) = record else {
            return Self::NotRun;
        };
        if record["bars"]
            .as_object()
            .is_none_or(|bars| bars.is_empty())
        {
            return Self::NotMeasured;
        }
        let held: Vec<Option<Standing>> = claim
            .bars
            .iter()
            .map(|bar| {
                record["bars"][bar.key]
                    .as_f64()
                    .map(|value| bar.held(value))
            })
            .collect();
        let measured = || held.iter().flatten();
        if measured().any(|held| *held == Standing::Not) {
            Self::Not
        } else if measured().next().is_none() {
            Self::Measured
        } else if held.contains(&None) || record["stopped"] == true {
            Self::HoldsInPart
        } else if measured().all(|held| *held == Standing::Goal) {
            Self::Goal
        } else {
            Self::Holds
        }
    }

    fn show(self) -> (&'static str, &'static str) {
        match self {
            Self::NotRun => ("gap", "not run"),
            Self::NotMeasured => ("gap", "not measured"),
            Self::Goal => ("good", "holds, goals reached"),
            Self::Holds => ("good", "holds"),
            Self::HoldsInPart => ("gap", "holds where measured"),
            Self::Not => ("bad", "does not hold"),
            Self::Measured => ("soft", "measured, no bar"),
        }
    }
}

#[derive(Default)]
struct Page {
    text: String,
    figures: usize,
}

impl Page {
    fn head(&mut self, records: &[Value]) {
        let newest = records
            .iter()
            .filter_map(|record| record["time"].as_u64())
            .max();
        let newest = newest.map_or("an unknown day".to_owned(), date);
        let _ = writeln!(
            self.text,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline';img-src data:\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>Senko: the papers, measured here</title>\n<style>{STYLE}{}</style></head><body>\n\
             <h1>The papers, measured here</h1>\n\
             <p>What each paper claims, and what this machine measured. {} runs are on record; the newest ended {}. \
             An experiment that lacked something leaves a gap, with the reason. Absolute times differ between machines; \
             compare ratios.</p>",
            chart::STYLE,
            records.len(),
            escape(&newest)
        );
    }

    fn summary(&mut self, records: &[Value]) {
        self.text.push_str(
            "<h2 id=\"summary\">Summary</h2>\n<div class=\"wide\"><table class=\"stack\"><thead><tr><th>paper</th><th>claim</th>\
             <th>here</th><th>verdict</th></tr></thead><tbody>\n",
        );
        for paper in Paper::ALL {
            for experiment in of_paper(paper) {
                let claim = experiment.claim();
                let record = latest(records, experiment.name());
                let (class, verdict) = Verdict::of(&claim, record).show();
                let _ = writeln!(
                    self.text,
                    "<tr><td>{}</td><td>{} <span class=\"soft\">({}; <a href=\"#{}\">{}</a>)</span></td><td>{}</td>\
                     <td class=\"{class}\">{verdict}</td></tr>",
                    paper.short(),
                    escape(claim.text),
                    escape(claim.source),
                    experiment.name(),
                    experiment.name(),
                    here(&claim, record)
                );
            }
        }
        self.text.push_str("</tbody></table></div>\n");
    }

    fn experiment(&mut self, experiment: &dyn Experiment, records: &[Value]) {
        let (name, claim) = (experiment.name(), experiment.claim());
        let record = latest(records, name);
        let (class, verdict) = Verdict::of(&claim, record).show();
        let _ = writeln!(
            self.text,
            "<h3 id=\"{name}\">{name} <span class=\"{class}\">{verdict}</span></h3>\n<p>{}. <span class=\"soft\">({})</span></p>",
            escape(claim.text.trim_end_matches('.')),
            escape(claim.source)
        );
        let Some(record) = record else {
            let _ = writeln!(
                self.text,
                "<p class=\"gap\">A gap: this was not run. <code>senko-lab run {name} --quick</code> measures it.</p>"
            );
            return;
        };
        if let Some(newer) = newest(records, name)
            && !std::ptr::eq(newer, record)
        {
            let _ = writeln!(
                self.text,
                "<p class=\"gap\">The newest run, {}, measured nothing: {}. These are the figures of an older one, {}.</p>",
                escape(&when(newer)),
                escape(first_gap(newer)),
                escape(&when(record))
            );
        }
        if record["stopped"] == true {
            self.text.push_str("<p class=\"gap\">The run was stopped before its end; these are the figures up to then.</p>\n");
        }
        if record["noisy"] == true {
            self.text.push_str("<p class=\"gap\">The run was noisy: a probe before and after it differs by more than 15 %.</p>\n");
        }
        self.bars(&claim, record);
        self.gaps(record);
        let pairs: Vec<(&str, f64, Option<f64>)> = claim
            .published
            .iter()
            .map(|(key, value)| (*key, *value, record["bars"][*key].as_f64()))
            .collect();
        for chart in figures::published(&pairs) {
            self.figure(&chart);
        }
        for table in record["tables"].as_array().into_iter().flatten() {
            for chart in figures::of_table(table) {
                self.figure(&chart);
            }
            self.table(table);
        }
        self.settings(name, record);
    }

    fn figure(&mut self, chart: &chart::Chart) {
        self.figures += 1;
        let _ = writeln!(self.text, "<figure>{}</figure>", chart.to_inline());
    }

    fn bars(&mut self, claim: &Claim, record: &Value) {
        if claim.bars.is_empty() {
            return;
        }
        self.text.push_str(
            "<div class=\"wide\"><table><thead><tr><th>figure</th><th>here</th><th>must</th><th>goal</th><th></th></tr></thead><tbody>\n",
        );
        for bar in claim.bars {
            let sign = if bar.less { "at most" } else { "at least" };
            let value = record["bars"][bar.key].as_f64();
            let (class, held) = match value.map(|value| bar.held(value)) {
                Some(Standing::Not) => ("bad", Standing::Not.text()),
                Some(held) => ("good", held.text()),
                None => ("gap", "not measured"),
            };
            let _ = writeln!(
                self.text,
                "<tr><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"n\">{sign} {}</td><td class=\"n\">{}</td>\
                 <td class=\"{class}\">{held}</td></tr>",
                bar.key,
                value.map_or("-".to_owned(), short),
                short(bar.must),
                short(bar.goal)
            );
        }
        self.text.push_str("</tbody></table></div>\n");
    }

    fn gaps(&mut self, record: &Value) {
        let Some(missing) = record["missing"]
            .as_object()
            .filter(|gaps| !gaps.is_empty())
        else {
            return;
        };
        self.text.push_str("<p class=\"gap\">Gaps:</p><ul>\n");
        // A library that is missing leaves several gaps, with one reason.
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for (key, why) in missing {
            let why = why.as_str().unwrap_or("no reason was given");
            let key = format!("<code>{}</code>", escape(key));
            match reasons.iter_mut().find(|reason| reason.0 == why) {
                Some((_, keys)) => keys.push(key),
                None => reasons.push((why, vec![key])),
            }
        }
        for (why, keys) in reasons {
            let _ = writeln!(
                self.text,
                "<li class=\"gap\">{}: {}</li>",
                keys.join(", "),
                escape(why)
            );
        }
        self.text.push_str("</ul>\n");
        if let Ok(experiment) = crate::find(record["experiment"].as_str().unwrap_or("")) {
            let _ = writeln!(
                self.text,
                "<p class=\"gap\">{}</p>",
                escape(&experiment.claim().would_have_shown())
            );
        }
    }

    fn table(&mut self, table: &Value) {
        let title = table["title"].as_str().unwrap_or("");
        let _ = write!(
            self.text,
            "<details><summary>Table: {}</summary><div class=\"wide\"><table><thead><tr>",
            escape(title)
        );
        for column in table["columns"].as_array().into_iter().flatten() {
            let _ = write!(
                self.text,
                "<th>{}</th>",
                escape(column.as_str().unwrap_or(""))
            );
        }
        self.text.push_str("</tr></thead><tbody>\n");
        for row in table["rows"].as_array().into_iter().flatten() {
            self.text.push_str("<tr>");
            for (at, cell) in row.as_array().into_iter().flatten().enumerate() {
                let class = if at == 0 { "" } else { " class=\"n\"" };
                let _ = write!(
                    self.text,
                    "<td{class}>{}</td>",
                    escape(cell.as_str().unwrap_or(""))
                );
            }
            self.text.push_str("</tr>\n");
        }
        self.text.push_str("</tbody></table></div></details>\n");
    }

    fn settings(&mut self, name: &str, record: &Value) {
        let quick = if record["scale"] == "quick" {
            " --quick"
        } else {
            ""
        };
        let seed = record["settings"]["seed"].as_u64().unwrap_or(1);
        let took = record["took_seconds"].as_f64();
        let took = took.map_or(String::new(), |seconds| {
            format!(", which took {seconds:.0} s")
        });
        let day = when(record);
        let _ = writeln!(
            self.text,
            "<p class=\"soft\">Again: <code>senko-lab run {name}{quick} --seed {seed}</code>{took}. Run {day}.</p>\n\
             <details><summary>Settings, machine, device, commit, every figure</summary><div class=\"wide\"><table><tbody>",
            took = escape(&took),
            day = escape(&day)
        );
        for part in ["commit", "machine", "device", "settings", "bars"] {
            match &record[part] {
                Value::Object(fields) => {
                    for (key, value) in fields {
                        self.setting(&format!("{part}.{key}"), value);
                    }
                }
                value => self.setting(part, value),
            }
        }
        self.text.push_str("</tbody></table></div></details>\n");
    }

    fn setting(&mut self, key: &str, value: &Value) {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(
            self.text,
            "<tr><td><code>{}</code></td><td><code>{}</code></td></tr>",
            escape(key),
            escape(&text)
        );
    }

    fn parts(&mut self) {
        self.text.push_str(
            "<h2 id=\"code\">From the papers to the code</h2>\n<div class=\"wide\"><table class=\"stack\"><thead><tr><th>paper</th><th>part</th>\
             <th>what</th><th>files</th><th>experiment, or why there is none</th></tr></thead><tbody>\n",
        );
        for part in PARTS {
            let files: Vec<String> = part
                .files
                .iter()
                .map(|file| format!("<code>{file}</code>"))
                .collect();
            let measured = match part.measured.strip_prefix("none: ") {
                Some(why) => format!("<span class=\"gap\">{}</span>", escape(why)),
                None => format!("<a href=\"#{0}\">{0}</a>", part.measured),
            };
            let _ = writeln!(
                self.text,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{measured}</td></tr>",
                part.paper.short(),
                escape(part.part),
                escape(part.what),
                files.join("<br>")
            );
        }
        self.text.push_str("</tbody></table></div>\n");
    }
}

/// The day of a run.
fn when(record: &Value) -> String {
    let time = record["time"].as_u64();
    time.map_or("an unknown day".to_owned(), date)
}

/// The reason why a run measured nothing.
fn first_gap(record: &Value) -> &str {
    let gaps = record["missing"].as_object();
    let why = gaps.and_then(|gaps| gaps.values().next());
    why.and_then(Value::as_str)
        .unwrap_or("nothing was measured")
}

/// The summary's cell of what was measured: the bars and what was published, or else ratios, or
/// else the first figures.
fn here(claim: &Claim, record: Option<&Value>) -> String {
    let Some(record) = record else {
        return "-".to_owned();
    };
    let Some(bars) = record["bars"].as_object().filter(|bars| !bars.is_empty()) else {
        return format!("<span class=\"gap\">{}</span>", escape(first_gap(record)));
    };
    let keys: Vec<&str> = match claim.bars.is_empty() && claim.published.is_empty() {
        false => {
            let keys = claim.bars.iter().map(|bar| bar.key);
            let published = claim.published.iter().map(|(key, _)| *key);
            let more = published.filter(|key| claim.bars.iter().all(|bar| bar.key != *key));
            keys.chain(more).collect()
        }
        true => {
            // A ratio says more about a claim than a time or a count. The agreement of counts with
            // the kernel's says nothing about a claim.
            let of_claim = |key: &&str| !key.ends_with("_over_counted");
            let keys = || bars.keys().map(String::as_str).filter(of_claim);
            let is_ratio = |key: &&str| key.contains("_over_");
            let rest = keys().filter(|key| !is_ratio(key));
            keys().filter(is_ratio).chain(rest).take(4).collect()
        }
    };
    let shown: Vec<String> = keys
        .into_iter()
        .filter_map(|key| {
            Some(format!(
                "{} {}",
                escape(key),
                short(bars.get(key)?.as_f64()?)
            ))
        })
        .collect();
    if shown.is_empty() {
        return "-".to_owned();
    }
    shown.join("<br>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_part_of_a_paper_has_its_files_and_its_experiment() {
        let names: Vec<&str> = experiments().iter().map(|one| one.name()).collect();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for part in PARTS {
            for file in part.files {
                assert!(root.join(file).is_file(), "there is no {file}");
            }
            let why = part.measured.strip_prefix("none: ");
            assert!(
                why.is_some() || names.contains(&part.measured),
                "{}",
                part.measured
            );
        }
    }

    /// For half of the papers' claims the verdict was "measured, no bar": nobody was told whether
    /// the shape holds.
    #[test]
    fn every_claim_of_a_paper_has_bars() {
        for experiment in experiments() {
            let (name, claim) = (experiment.name(), experiment.claim());
            assert!(
                claim.paper == Paper::Design || !claim.bars.is_empty(),
                "{name} has no bar"
            );
            for bar in claim.bars {
                assert_eq!(bar.held(bar.goal), Standing::Goal, "{}", bar.key);
                assert_ne!(bar.held(bar.must), Standing::Not, "{name}, {}", bar.key);
            }
        }
    }

    #[test]
    fn verdicts_follow_the_bars() {
        let claim = crate::find("serve-endurance").expect("it exists").claim();
        let of = |bars: Value| Verdict::of(&claim, Some(&json!({ "bars": bars })));
        assert_eq!(Verdict::of(&claim, None), Verdict::NotRun);
        assert_eq!(of(json!({})), Verdict::NotMeasured);
        assert_eq!(of(json!({"other": 1.0})), Verdict::Measured);
        assert_eq!(of(json!({"host_wa_fifo": 1.0})), Verdict::HoldsInPart);
        assert_eq!(of(json!({"host_wa_fifo": 1.2})), Verdict::Not);
        let all =
            |fifo: f64| json!({"host_wa_fifo": fifo, "host_wa_reinsert": 1.1, "page_fill": 0.99});
        assert_eq!(of(all(1.0)), Verdict::Goal);
        assert_eq!(of(all(1.04)), Verdict::Holds);
    }

    #[test]
    fn a_page_without_results_is_whole_and_says_so() {
        let (page, figures) = page(&[]);
        assert_eq!(figures, 0);
        assert!(page.contains("A gap: this was not run") && page.ends_with("</html>\n"));
        assert!(!page.contains("<script") && !page.contains("src=\"http"));
    }

    #[test]
    fn what_a_record_says_is_no_markup() {
        let record = json!({
            "experiment": "ftl-table2", "scale": "quick", "bars": { "page_mib": 126.6, "<i>": 1 },
            "missing": { "a": "<script>alert(1)</script>", "k": "no libdb", "l": "no libdb" }, "settings": { "b": "<img src=x>" },
            "tables": [{ "title": "<b>", "columns": ["<u>", "us"], "rows": [["<s>", "5"]] }],
        });
        let (page, figures) = page(&[record]);
        assert!(figures >= 2);
        // A gap names the figures that it stands for.
        assert!(page.contains("What is missing would have shown"));
        // One library that is missing was told of once for each figure.
        assert!(page.contains("<code>k</code>, <code>l</code>: no libdb"));
        for mark in ["<script", "<img", "<b>", "<u>", "<s>", "<i>"] {
            assert!(!page.contains(mark), "{mark}");
        }
    }
}
