// SPDX-License-Identifier: Apache-2.0
//! What an experiment claims: the paper, the bars with must and goal, published values. Each
//! experiment states its own, and the report and the documents have them from there.
//!
//! Bars say whether the shape of a paper's claim holds here: what must hold is the direction, and
//! the goal is the paper's own figure or near it. Times of the paper's machine are no bars.

/// The description of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The section of the report.
    pub paper: Paper,
    /// The paper, with figure or table, or the design question.
    pub source: &'static str,
    /// Its claim or question, in one sentence.
    pub text: &'static str,
    /// The figures that decide, each with what it must reach and its goal.
    pub bars: &'static [Bar],
    /// Published values, by key.
    pub published: &'static [(&'static str, f64)],
}

impl Claim {
    /// The meaning of a missing figure, for people.
    pub fn would_have_shown(&self) -> String {
        format!(
            "What is missing would have shown whether this holds: {}",
            self.text
        )
    }
}

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

    /// Its heading.
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

    /// Its name in the summary.
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

/// A figure that is compared with two numbers.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    /// Its key in the results.
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
    /// The goal is reached.
    Goal,
    /// It reaches the minimum.
    Must,
    /// It does not.
    Not,
}

impl Standing {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Goal => "goal reached",
            Self::Must => "held",
            Self::Not => "not held",
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

    /// Compares a measured value.
    pub fn held(&self, value: f64) -> Standing {
        let reaches = |bar: f64| {
            if self.less {
                value <= bar
            } else {
                value >= bar
            }
        };
        match (reaches(self.goal), reaches(self.must)) {
            (true, _) => Standing::Goal,
            (_, true) => Standing::Must,
            _ => Standing::Not,
        }
    }
}
