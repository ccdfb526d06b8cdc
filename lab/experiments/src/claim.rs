// SPDX-License-Identifier: Apache-2.0
//! What an experiment judges: sentences of the papers, and the project's own bars. Each experiment
//! states its own, and the report and the documents have them from there.
//!
//! A sentence of a paper (of a figure, a table, or with a number) has tests in its own quantity,
//! written before the run that they judge, with the reason and the day. A bar is what an issue of
//! this project asks for. It says nothing about a paper.
//!
//! Always holds:
//! - CLAIM-1: one figure that goes against a sentence contradicts it, whatever the others say.
//! - CLAIM-2: a figure whose rounds lie on both sides of a limit decides nothing.
//! - CLAIM-3: some value of every test's figure contradicts its sentence, and some holds.
//! - CLAIM-4: a noisy run decides by counts and by times over page reads that took turns with them,
//!   and by no other time.

use serde_json::Value;

/// A paper, or the project's own questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// The thesis on data structures of stores.
    A,
    /// The cache server with a direct transfer engine.
    B,
    /// The architecture of caches for endurance.
    C,
    /// The DBMS for flash.
    D,
    /// The memory extension cache server.
    E,
    /// Questions of this project's design.
    Design,
}

impl Paper {
    /// All, in the report's order.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::Design];

    pub fn title(self) -> &'static str {
        match self {
            Self::A => "Paper A: data structures of key-value stores on SSDs (thesis, 2012)",
            Self::B => "Paper B: an SSD cache server with a direct transfer engine (2015)",
            Self::C => "Paper C: a cache architecture that raises the endurance of SSDs",
            Self::D => "Paper D: a DBMS for flash",
            Self::E => "Paper E: a memory extension cache server",
            Self::Design => "Questions of this project's design",
        }
    }

    pub fn short(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::Design => "design",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Sentence {
    pub place: &'static str,
    /// What it says, with the paper's own figures.
    pub text: &'static str,
    /// Files that implement it, from the project's root.
    pub files: &'static [&'static str],
    pub judged: Judged,
    /// Whether only a run with the paper's own sizes can judge it.
    in_full: bool,
    /// Whether other programs leave its figures alone: counts, and times over page reads that took
    /// turns with them.
    steady: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Judged {
    /// By figures of the experiment.
    By {
        /// The day on which the tests were written, and the reason for their limits.
        why: &'static str,
        /// All have to hold.
        tests: &'static [Test],
    },
    /// Not testable here, for this reason.
    Not(&'static str),
}

pub const fn judged(
    place: &'static str,
    text: &'static str,
    files: &'static [&'static str],
    why: &'static str,
    tests: &'static [Test],
) -> Sentence {
    Sentence {
        place,
        text,
        files,
        judged: Judged::By { why, tests },
        in_full: false,
        steady: false,
    }
}

pub const fn untested(
    place: &'static str,
    text: &'static str,
    files: &'static [&'static str],
    why: &'static str,
) -> Sentence {
    Sentence {
        place,
        text,
        files,
        judged: Judged::Not(why),
        in_full: false,
        steady: false,
    }
}

/// A figure with two limits: up to one it bears a sentence out, from the other on it goes against
/// it. Between the two the sentence holds in part.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The figure's key in the results.
    pub key: &'static str,
    /// The value that is compared: the distance from it counts, if there is one.
    near: Option<f64>,
    less: bool,
    holds: f64,
    against: f64,
}

/// A figure that bears the sentence out from `holds` on, and goes against it below `against`.
pub const fn at_least(key: &'static str, holds: f64, against: f64) -> Test {
    Test {
        key,
        near: None,
        less: false,
        holds,
        against,
    }
}

/// A figure that bears the sentence out up to `holds`, and goes against it above `against`.
pub const fn at_most(key: &'static str, holds: f64, against: f64) -> Test {
    Test {
        less: true,
        ..at_least(key, holds, against)
    }
}

/// A figure that bears the sentence out if it is no further than `holds` from the paper's value,
/// and goes against it if it is further than `against`.
pub const fn near(key: &'static str, paper: f64, holds: f64, against: f64) -> Test {
    Test {
        near: Some(paper),
        ..at_most(key, holds, against)
    }
}

/// What a figure says about a sentence, from bad to good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Says {
    Against,
    Between,
    Holds,
}

impl Test {
    fn says(&self, value: f64) -> Says {
        let value = self.near.map_or(value, |paper| (value - paper).abs());
        let reaches = |limit: f64| match self.less {
            true => value <= limit,
            false => value >= limit,
        };
        match (reaches(self.holds), reaches(self.against)) {
            (true, _) => Says::Holds,
            (_, true) => Says::Between,
            _ => Says::Against,
        }
    }

    /// What a record's figure says; `None` if it was not measured. An error: its rounds disagree
    /// about whether it goes against the sentence.
    fn of(&self, record: &Value) -> Result<Option<Says>, String> {
        let Some(value) = record["bars"][self.key].as_f64() else {
            return Ok(None);
        };
        let (low, high) = spread(record, self.key).unwrap_or((value, value));
        // Rounds below and above the paper's value are as near as that value itself.
        let nearest = self.near.map_or(value, |paper| paper.clamp(low, high));
        let ends = [low, value, nearest, high].map(|round| self.says(round));
        let worst = *ends.iter().min().expect("there are four");
        match worst {
            Says::Against if ends.iter().any(|says| *says != Says::Against) => Err(format!(
                "within noise: {} was {low:.3} to {high:.3}",
                self.key
            )),
            worst => Ok(Some(worst)),
        }
    }

    pub fn limits(&self) -> String {
        let (holds, against) = (self.holds, self.against);
        match (self.near, self.less) {
            (Some(paper), _) => format!("{paper} within {holds}; against beyond {against}"),
            (None, true) => format!("at most {holds}; against above {against}"),
            (None, false) => format!("at least {holds}; against below {against}"),
        }
    }

    /// Whether some possible value contradicts and some holds (CLAIM-3). No figure is negative, and
    /// shares end at one or at a hundred.
    pub fn can_fail(&self) -> bool {
        let most = match self.key {
            key if key.contains("_percent") => 100.0,
            key if key.ends_with("_share") => 1.0,
            _ => f64::INFINITY,
        };
        let values = |from: f64| [from * 0.999, from, from * 1.001 + 1e-9];
        let around = |limit: f64| match self.near {
            Some(paper) => [values(paper - limit), values(paper + limit)].concat(),
            None => values(limit).to_vec(),
        };
        let all = || [around(self.holds), around(self.against)].concat();
        let some = |says: Says| {
            let mut values = all()
                .into_iter()
                .filter(|value| (0.0..=most).contains(value));
            values.any(|value| self.says(value) == says)
        };
        let ordered = match self.less {
            true => self.holds <= self.against,
            false => self.holds >= self.against,
        };
        ordered && some(Says::Against) && some(Says::Holds)
    }
}

/// The lowest and the highest round of a record's figure, if it has rounds.
fn spread(record: &Value, key: &str) -> Option<(f64, f64)> {
    let ends = &record["spread"][key];
    Some((ends[0].as_f64()?, ends[1].as_f64()?))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All figures bear it out.
    Holds,
    /// Figures lie between the limits, or some are missing.
    InPart,
    /// A figure goes against it.
    Contradicted,
    NotTestable,
    /// No run has decided yet, for this reason.
    Open(String),
}

impl Verdict {
    pub fn text(&self) -> String {
        match self {
            Self::Holds => "holds".to_owned(),
            Self::InPart => "holds in part".to_owned(),
            Self::Contradicted => "contradicted".to_owned(),
            Self::NotTestable => "not testable here".to_owned(),
            Self::Open(why) => format!("not decided: {why}"),
        }
    }
}

impl Sentence {
    /// The same sentence, which only a run with the paper's own sizes can judge.
    pub const fn in_full(self) -> Self {
        Self {
            in_full: true,
            ..self
        }
    }

    /// The same sentence, judged by counts or by times over page reads that took turns with them. A
    /// noisy run has these too.
    pub const fn steady(self) -> Self {
        Self {
            steady: true,
            ..self
        }
    }

    pub fn tests(&self) -> &'static [Test] {
        match self.judged {
            Judged::By { tests, .. } => tests,
            Judged::Not(_) => &[],
        }
    }

    pub fn verdict(&self, record: Option<&Value>) -> Verdict {
        if let Judged::Not(_) = self.judged {
            return Verdict::NotTestable;
        }
        let open = |why: &str| Verdict::Open(why.to_owned());
        let Some(record) = record else {
            return open("not run");
        };
        let smaller =
            record["scale"] == "quick" || !record["settings"]["scaled_down_because"].is_null();
        if self.in_full && smaller {
            return open("the run was smaller than the paper's");
        }
        if record["noisy"] == true && !self.steady {
            return open("the run was noisy");
        }
        let said: Vec<_> = self.tests().iter().map(|test| test.of(record)).collect();
        let each = || said.iter().filter_map(|said| said.as_ref().ok());
        if each().any(|says| *says == Some(Says::Against)) {
            return Verdict::Contradicted;
        }
        if let Some(why) = said.iter().find_map(|said| said.as_ref().err()) {
            return open(why);
        }
        match each().flatten().count() {
            0 => {
                let gap = |test: &Test| record["missing"][test.key].as_str();
                open(self.tests().iter().find_map(gap).unwrap_or("not measured"))
            }
            _ if each().all(|says| *says == Some(Says::Holds)) => Verdict::Holds,
            _ => Verdict::InPart,
        }
    }
}

/// A figure of the project's own with a minimum and a goal.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    pub key: &'static str,
    /// Whether less is better.
    pub less: bool,
    /// The value that it must reach.
    pub must: f64,
    /// The value that it should reach.
    pub goal: f64,
}

/// How a figure compares with its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Goal,
    /// It reaches the minimum.
    Must,
    /// It does not.
    Not,
    /// Its rounds lie on both sides of the minimum.
    Noise,
    /// The run has no such figure.
    Missing,
}

impl Standing {
    pub fn text(self) -> &'static str {
        match self {
            Self::Goal => "goal reached",
            Self::Must => "held",
            Self::Not => "not held",
            Self::Noise => "not decided: within noise",
            Self::Missing => "not measured",
        }
    }
}

impl Bar {
    /// A figure that must be at least this, and should be at least `goal`.
    pub const fn more(key: &'static str, must: f64, goal: f64) -> Bar {
        Bar {
            key,
            less: false,
            must,
            goal,
        }
    }

    /// A figure that must be at most this, and should be at most `goal`.
    pub const fn less(key: &'static str, must: f64, goal: f64) -> Bar {
        Bar {
            key,
            less: true,
            must,
            goal,
        }
    }

    fn held(&self, value: f64) -> Standing {
        let reaches = |bar: f64| match self.less {
            true => value <= bar,
            false => value >= bar,
        };
        match (reaches(self.goal), reaches(self.must)) {
            (true, _) => Standing::Goal,
            (_, true) => Standing::Must,
            _ => Standing::Not,
        }
    }

    pub fn standing(&self, record: &Value) -> Standing {
        let Some(value) = record["bars"][self.key].as_f64() else {
            return Standing::Missing;
        };
        let (low, high) = spread(record, self.key).unwrap_or((value, value));
        let missed = [low, high].map(|end| self.held(end) == Standing::Not);
        match missed[0] == missed[1] {
            true => self.held(value),
            false => Standing::Noise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SENTENCE: Sentence = judged(
        "figure 45",
        "sorted blocks get faster",
        &[],
        "2026-11-28: a tenth is beyond noise",
        &[at_most("time", 0.9, 1.0), near("percent", 65.0, 5.0, 15.0)],
    );

    fn verdict(bars: Value, spread: Value) -> Verdict {
        let record = json!({ "scale": "quick", "bars": bars, "spread": spread });
        SENTENCE.verdict(Some(&record))
    }

    /// A time that rose stood beside "holds", since only the counts had bars.
    #[test]
    fn one_figure_against_a_sentence_contradicts_it() {
        let of = |time: f64, percent: f64| {
            verdict(json!({ "time": time, "percent": percent }), json!({}))
        };
        assert_eq!(of(0.8, 68.0), Verdict::Holds);
        assert_eq!(of(0.95, 68.0), Verdict::InPart);
        assert_eq!(of(0.8, 76.0), Verdict::InPart);
        assert_eq!(of(1.44, 65.0), Verdict::Contradicted);
        assert_eq!(of(0.8, 40.0), Verdict::Contradicted);
        assert_eq!(verdict(json!({ "time": 0.8 }), json!({})), Verdict::InPart);
        assert!(matches!(verdict(json!({}), json!({})), Verdict::Open(_)));
        assert!(matches!(SENTENCE.verdict(None), Verdict::Open(_)));
        let record = json!({ "scale": "quick", "bars": { "time": 0.8, "percent": 65.0 } });
        let full = SENTENCE.in_full();
        assert!(matches!(full.verdict(Some(&record)), Verdict::Open(_)));
    }

    /// Beside builds memcached's own times rose with the rate, which contradicted a paper.
    #[test]
    fn a_noisy_run_decides_by_steady_figures_alone() {
        let record = json!({ "noisy": true, "bars": { "time": 1.44, "percent": 65.0 } });
        let noisy = SENTENCE.verdict(Some(&record));
        assert_eq!(noisy, Verdict::Open("the run was noisy".to_owned()));
        let steady = SENTENCE.steady();
        assert_eq!(steady.verdict(Some(&record)), Verdict::Contradicted);
    }

    #[test]
    fn a_figure_inside_its_noise_decides_nothing() {
        let bars = |time: f64| json!({ "time": time, "percent": 65.0 });
        let noisy = verdict(bars(0.95), json!({ "time": [0.8, 1.2] }));
        assert!(matches!(noisy, Verdict::Open(why) if why.contains("0.800 to 1.200")));
        assert_eq!(
            verdict(bars(0.95), json!({ "time": [0.8, 0.97] })),
            Verdict::InPart
        );
        assert_eq!(
            verdict(bars(1.15), json!({ "time": [1.1, 1.2] })),
            Verdict::Contradicted
        );
        let wide = |percent: f64| {
            let bars = json!({ "time": 0.8, "percent": percent });
            verdict(bars, json!({ "percent": [45.0, 85.0] }))
        };
        assert!(matches!(wide(84.0), Verdict::Open(_)));
        let bar = Bar::more("rate", 1.0, 1.5);
        let of = |low: f64, high: f64| {
            bar.standing(&json!({ "bars": { "rate": 1.2 }, "spread": { "rate": [low, high] } }))
        };
        assert_eq!(
            (of(1.1, 1.3), of(0.9, 1.3)),
            (Standing::Must, Standing::Noise)
        );
    }

    #[test]
    fn a_test_that_cannot_fail_is_found() {
        assert!(
            at_least("ratio", 1.1, 1.0).can_fail() && near("x_percent", 65.0, 5.0, 15.0).can_fail()
        );
        for test in [
            at_least("ratio", 1.0, 0.0),
            at_most("x_percent", 50.0, 100.0),
            at_most("ratio", 1.0, 0.5),
            near("x_share", 0.5, 0.1, 0.6),
        ] {
            assert!(!test.can_fail(), "{test:?}");
        }
    }
}
