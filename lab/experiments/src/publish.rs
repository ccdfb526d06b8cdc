// SPDX-License-Identifier: Apache-2.0
//! The report of all results as one HTML page, for `senko-lab report`.
//!
//! Always holds:
//! - The page needs nothing else: no script, no font, no picture from elsewhere.
//! - It follows the reader's light or dark setting, fits a phone, and prints.
//! - A figure that was not measured is a gap, with the reason.

pub mod parts; // what no experiment measures
pub mod figures; // charts of tables

use std::fmt::Write;

use senko_plan::short;
use senko_ssd::chart::{self, escape};
use serde_json::Value;

use crate::claim::{Judged, Paper, Sentence, Standing, Test, Verdict};
use crate::results::{date, latest, newest};
use crate::{Bar, Experiment, experiments};
use parts::UNMEASURED;

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
            page.experiment(experiment, records);
        }
    }
    page.code();
    page.text.push_str("</body></html>\n");
    (page.text, page.figures)
}

fn of_paper(paper: Paper) -> impl Iterator<Item = &'static &'static Experiment> {
    experiments()
        .iter()
        .filter(move |experiment| experiment.paper == paper)
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
             <h1>Senko: the papers, measured here</h1>\n{}\
             <p>What each paper claims, and what this machine measured. {} runs are on record; the newest ended {}. \
             An experiment that lacked something leaves a gap, with the reason. A sentence of a paper holds, holds in part, is \
             contradicted, or is not testable here; one figure that goes against it contradicts it. A figure whose rounds lie on \
             both sides of a limit decides nothing, and a noisy run decides by counts and \
             by times over page reads that took turns with them. Absolute times differ between machines; \
             compare ratios.</p>",
            chart::STYLE,
            measured_on(records),
            records.len(),
            escape(&newest)
        );
    }

    fn summary(&mut self, records: &[Value]) {
        self.text
            .push_str("<h2 id=\"summary\">What the papers say</h2>\n");
        let verdicts: Vec<Verdict> = said(records).map(|said| said.verdict).collect();
        let count = |of: &dyn Fn(&Verdict) -> bool| verdicts.iter().filter(|one| of(one)).count();
        let _ = writeln!(
            self.text,
            "<p>Of {} sentences, {} hold, {} hold in part, {} are contradicted, {} are not testable here, and \
             {} are not decided.</p>",
            verdicts.len(),
            count(&|verdict| *verdict == Verdict::Holds),
            count(&|verdict| *verdict == Verdict::InPart),
            count(&|verdict| *verdict == Verdict::Contradicted),
            count(&|verdict| *verdict == Verdict::NotTestable),
            count(&|verdict| matches!(verdict, Verdict::Open(_))),
        );
        self.open_table(&["paper", "where", "what it says", "here", "verdict"]);
        for said in said(records) {
            let sentence = said.sentence;
            let place = match said.experiment {
                Some(name) => format!("<a href=\"#{name}\">{}</a>", escape(sentence.place)),
                None => escape(sentence.place),
            };
            let here = match sentence.judged {
                Judged::Not(why) => escape(why),
                Judged::By { .. } => escape(&in_words(&said.figures())).replace("; ", "<br>"),
            };
            let (class, verdict) = shown(&said.verdict);
            let _ = writeln!(
                self.text,
                "<tr><td>{}</td><td>{place}</td><td>{}</td><td>{here}</td><td class=\"{class}\">{verdict}</td></tr>",
                said.paper.short(),
                escape(sentence.text),
            );
        }
        self.text
            .push_str("</tbody></table></div>\n<h2 id=\"bars\">The project's own bars</h2>\n");
        for experiment in experiments() {
            let name = experiment.name;
            if let Some(record) = latest(records, name).filter(|_| !experiment.bars.is_empty()) {
                let _ = writeln!(self.text, "<p><a href=\"#{name}\">{name}</a></p>");
                self.bars(experiment.bars, record);
            }
        }
    }

    fn open_table(&mut self, columns: &[&str]) {
        let head: String = columns
            .iter()
            .map(|name| format!("<th>{name}</th>"))
            .collect();
        let _ = writeln!(
            self.text,
            "<div class=\"wide\"><table class=\"stack\"><thead><tr>{head}</tr></thead><tbody>"
        );
    }

    fn experiment(&mut self, experiment: &Experiment, records: &[Value]) {
        let name = experiment.name;
        let record = latest(records, name);
        let _ = writeln!(
            self.text,
            "<h3 id=\"{name}\">{name}</h3>\n<p>{}. <span class=\"soft\">({})</span></p>",
            escape(experiment.text.trim_end_matches('.')),
            escape(experiment.source)
        );
        self.sentences(experiment.sentences, record);
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
        self.bars(experiment.bars, record);
        self.gaps(record);
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

    /// The tests of an experiment's sentences, with the reasons for their limits.
    fn sentences(&mut self, sentences: &[Sentence], record: Option<&Value>) {
        if sentences.is_empty() {
            return;
        }
        self.open_table(&[
            "what the paper says",
            "figures and limits",
            "why these",
            "verdict",
        ]);
        for sentence in sentences {
            let (limits, why) = match sentence.judged {
                Judged::Not(why) => (String::new(), why),
                Judged::By { why, tests } => {
                    let limit = |test: &Test| in_words(&format!("{}: {}", test.key, test.limits()));
                    let limits: Vec<String> = tests.iter().map(limit).collect();
                    (limits.join("<br>"), why)
                }
            };
            let (class, verdict) = shown(&sentence.verdict(record));
            let _ = writeln!(
                self.text,
                "<tr><td>{}: {}</td><td>{limits}</td><td>{}</td><td class=\"{class}\">{verdict}</td></tr>",
                escape(sentence.place),
                escape(sentence.text),
                escape(why)
            );
        }
        self.text.push_str("</tbody></table></div>\n");
    }

    fn bars(&mut self, bars: &[Bar], record: &Value) {
        if bars.is_empty() {
            return;
        }
        self.open_table(&["figure", "here", "must", "goal", ""]);
        for bar in bars {
            let sign = if bar.less { "at most" } else { "at least" };
            let standing = bar.standing(record);
            let class = match standing {
                Standing::Goal | Standing::Must => "good",
                Standing::Not => "bad",
                Standing::Noise | Standing::Missing => "gap",
            };
            let _ = writeln!(
                self.text,
                "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{sign} {}</td><td class=\"n\">{}</td>\
                 <td class=\"{class}\">{}</td></tr>",
                in_words(bar.key),
                figure(record, bar.key).map_or("-".to_owned(), |seen| escape(&seen)),
                short(bar.must),
                short(bar.goal),
                standing.text()
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
                escape(&experiment.would_have_shown())
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

    fn code(&mut self) {
        self.text
            .push_str("<h2 id=\"code\">From the papers to the code</h2>\n");
        self.open_table(&["paper", "where", "files"]);
        for said in said(&[]) {
            let files = said.sentence.files.iter();
            let files: Vec<String> = files.map(|file| format!("<code>{file}</code>")).collect();
            let _ = writeln!(
                self.text,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                said.paper.short(),
                escape(said.sentence.place),
                files.join("<br>")
            );
        }
        self.text.push_str("</tbody></table></div>\n");
    }
}

/// The machines, devices and commits of the runs, as a line for each kind.
fn measured_on(records: &[Value]) -> String {
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let machine = |record: &Value| {
        let of = &record["machine"];
        let gib = of["memory_bytes"].as_f64()? / f64::from(1 << 30);
        let (cpu, cores, kernel) = (text(&of["cpu"]), text(&of["cores"]), text(&of["kernel"]));
        Some(format!(
            "{cpu}, {cores} cores, {gib:.0} GiB of memory, Linux {kernel}"
        ))
    };
    let device = |record: &Value| {
        let fields = record["device"]
            .as_object()
            .filter(|fields| !fields.is_empty())?;
        let of = |name: &&str| fields.get(*name).filter(|value| !value.is_null()).map(text);
        Some(
            ["model", "name"]
                .iter()
                .filter_map(of)
                .collect::<Vec<_>>()
                .join(" "),
        )
    };
    let commit = |record: &Value| Some(text(&record["commit"]["hash"]).get(..12)?.to_owned());
    type Of<'a> = &'a dyn Fn(&Value) -> Option<String>;
    let kinds: [(&str, Of<'_>); 3] = [
        ("Machine", &machine),
        ("Drive", &device),
        ("Commit", &commit),
    ];
    let mut lines = String::new();
    for (kind, of) in kinds {
        let all: std::collections::BTreeSet<String> = records.iter().filter_map(of).collect();
        if !all.is_empty() {
            let all: Vec<String> = all.into_iter().collect();
            let _ = writeln!(
                lines,
                "<p class=\"soft\">{kind}: {}</p>",
                escape(&all.join("; "))
            );
        }
    }
    lines
}

/// A figure's key as words, its unit behind it: `gets_over_fio`, `open_after_kill_s`.
fn in_words(key: &str) -> String {
    const UNITS: [(&str, &str); 7] = [
        ("_s", ", s"),
        ("_ms", ", ms"),
        ("_us", ", us"),
        ("_ns", ", ns"),
        ("_mb", ", MB"),
        ("_percent", ", %"),
        ("_bytes", ", bytes"),
    ];
    let word = |word: &str| {
        let (bare, end) = match word.split_once(':') {
            Some((bare, _)) => (bare, ":"),
            None => (word, ""),
        };
        let unit = UNITS
            .iter()
            .find_map(|(end, unit)| Some((bare.strip_suffix(end)?, *unit)));
        let (name, unit) = unit.unwrap_or((bare, ""));
        name.replace('_', " ") + unit + end
    };
    let words = key.split(' ').map(|of| match of.contains('_') {
        true => word(of),
        false => of.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A sentence of a paper, with the verdict of the newest run.
pub struct Said<'r> {
    pub paper: Paper,
    /// The experiment that judges it, or says why it cannot.
    pub experiment: Option<&'static str>,
    pub sentence: &'static Sentence,
    pub verdict: Verdict,
    record: Option<&'r Value>,
}

impl Said<'_> {
    /// What was measured: `key value (lowest to highest)` of each test.
    pub fn figures(&self) -> String {
        let tests = self.sentence.tests().iter();
        let each = tests.filter_map(|test| {
            figure(self.record?, test.key).map(|seen| format!("{} {seen}", test.key))
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

/// Every sentence of the papers, in their order.
pub fn said(records: &[Value]) -> impl Iterator<Item = Said<'_>> {
    let measured = |experiment: &&'static Experiment| {
        let experiment = *experiment;
        let record = latest(records, experiment.name);
        experiment.sentences.iter().map(move |sentence| Said {
            paper: experiment.paper,
            experiment: Some(experiment.name),
            verdict: sentence.verdict(record),
            sentence,
            record,
        })
    };
    Paper::ALL.into_iter().flat_map(move |paper| {
        let rest = UNMEASURED.iter().filter(move |(of, _)| *of == paper);
        let rest = rest
            .flat_map(|(_, sentences)| *sentences)
            .map(move |sentence| Said {
                paper,
                experiment: None,
                sentence,
                verdict: Verdict::NotTestable,
                record: None,
            });
        of_paper(paper).flat_map(measured).chain(rest)
    })
}

/// The table of `docs/measurements/papers.md`.
pub fn markdown(records: &[Value]) -> String {
    let mut text =
        "| paper | where | what it says | seen | verdict |\n|---|---|---|---|---|\n".to_owned();
    for said in said(records) {
        let seen = match said.sentence.judged {
            Judged::Not(why) => why.to_owned(),
            Judged::By { .. } => said.figures(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {seen} | {} |",
            said.paper.short(),
            said.sentence.place,
            said.sentence.text,
            said.verdict.text()
        );
    }
    text
}

/// A record's figure, with its lowest and its highest round.
fn figure(record: &Value, key: &str) -> Option<String> {
    let value = short(record["bars"][key].as_f64()?);
    let ends = &record["spread"][key];
    Some(match (ends[0].as_f64(), ends[1].as_f64()) {
        (Some(low), Some(high)) => format!("{value} ({} to {})", short(low), short(high)),
        _ => value,
    })
}

/// A verdict's class and words.
fn shown(verdict: &Verdict) -> (&'static str, String) {
    let class = match verdict {
        Verdict::Holds => "good",
        Verdict::InPart | Verdict::Open(_) => "gap",
        Verdict::Contradicted => "bad",
        Verdict::NotTestable => "soft",
    };
    (class, escape(&verdict.text()))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_without_results_is_whole_and_says_so() {
        let (page, figures) = page(&[]);
        assert_eq!(figures, 0);
        assert!(page.contains("A gap: this was not run") && page.ends_with("</html>\n"));
        assert!(!page.contains("<script") && !page.contains("src=\"http"));
    }

    #[test]
    fn figures_are_named_in_words() {
        assert_eq!(in_words("stop_first_answer_s"), "stop first answer, s");
        assert_eq!(
            in_words("gets_over_fio: at least 1"),
            "gets over fio: at least 1"
        );
        assert_eq!(in_words("right 1; p99_us 2"), "right 1; p99, us 2");
    }

    #[test]
    fn what_a_record_says_is_no_markup() {
        let record = json!({
            "experiment": "ftl-table2", "scale": "quick", "bars": { "page_mib": 126.6, "<i>": 1 },
            "missing": { "a": "<script>alert(1)</script>", "k": "no libdb", "l": "no libdb" }, "settings": { "b": "<img src=x>" },
            "tables": [{ "title": "<b>", "columns": ["<u>", "us"], "rows": [["<s>", "5"], ["<i>", "7"]] }],
        });
        let (page, figures) = page(&[record]);
        assert!(figures >= 1);
        // A gap names the figures that it stands for.
        assert!(page.contains("What is missing is a part of this"));
        // One library that is missing was told of once for each figure.
        assert!(page.contains("<code>k</code>, <code>l</code>: no libdb"));
        for mark in ["<script", "<img", "<b>", "<u>", "<s>", "<i>"] {
            assert!(!page.contains(mark), "{mark}");
        }
    }
}
