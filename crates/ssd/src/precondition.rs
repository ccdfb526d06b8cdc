// SPDX-License-Identifier: Apache-2.0
//! Fills a drive before the measured run, and the result of that.
//!
//! A new drive gives too good results, because it has erased blocks for every write and collects
//! nothing. So a run may begin on a drive that was filled in order, overwritten at random, or
//! overwritten until its write amplification is steady. [`Precondition`] names the method.
//! [`crate::drive::Drive::prepare`] runs it in no virtual time. [`Preparation`] has the result.
//!
//! The rule of `steady`: the drive is filled in order and then overwritten page by page at random,
//! in windows of one capacity each. It is steady when the write amplification of the last
//! [`STEADY_WINDOWS`] windows lies within [`STEADY_WITHIN`] of their mean. After [`MOST_WINDOWS`]
//! windows it gives up and reports that.

use std::fmt;
use std::str::FromStr;

use senko_workload::units;
use serde::{Deserialize, Serialize};

/// This many windows in a row must agree.
pub const STEADY_WINDOWS: usize = 3;

/// The most by which write amplification of those windows may vary, as a share of their mean.
pub const STEADY_WITHIN: f64 = 0.02;

/// After this many windows a drive counts as not steady.
pub const MOST_WINDOWS: u32 = 30;

/// The most overwrites that `random` takes, as a multiple of the capacity.
const MOST_TIMES: f64 = 1000.0;

/// How a drive is filled before the measured run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precondition {
    /// The first part of the capacity is written once, in order.
    InOrder {
        /// The share of the capacity, in percent.
        percent: f64,
    },
    /// The whole capacity is written in order, then single pages at random.
    Random {
        /// Bytes of the random overwrites, as a multiple of the capacity.
        times: f64,
    },
    /// As [`Precondition::Random`], until write amplification is steady.
    Steady,
}

impl Default for Precondition {
    fn default() -> Self {
        Self::InOrder { percent: 0.0 }
    }
}

impl Precondition {
    /// Refuses values out of range.
    ///
    /// # Errors
    /// If a percentage is not within 0 to 100, or a multiple not above 0 and at most 1000.
    pub fn check(self) -> Result<(), String> {
        match self {
            Self::InOrder { percent } if !(0.0..=100.0).contains(&percent) => {
                Err(format!("precondition is {percent}, and must be 0 to 100"))
            }
            Self::Random { times } if !(times > 0.0 && times <= MOST_TIMES) => Err(format!(
                "precondition is random:{times}x, and must be more than 0 and at most {MOST_TIMES} times the capacity"
            )),
            _ => Ok(()),
        }
    }
}

impl FromStr for Precondition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a way to fill a drive; write a percentage such as 90, random:2x, or steady"
            )
        };
        let trimmed = text.trim();
        let way = if trimmed == "steady" {
            Self::Steady
        } else if let Some(times) = trimmed.strip_prefix("random:") {
            let times = times.strip_suffix('x').unwrap_or(times);
            Self::Random {
                times: units::number(times).map_err(|_| wrong())?,
            }
        } else {
            let number = trimmed.strip_suffix('%').unwrap_or(trimmed);
            Self::InOrder {
                percent: units::number(number).map_err(|_| wrong())?,
            }
        };
        way.check()?;
        Ok(way)
    }
}

impl fmt::Display for Precondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOrder { percent } => write!(f, "{percent}"),
            Self::Random { times } => write!(f, "random:{times}x"),
            Self::Steady => f.write_str("steady"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    pub host_pages: u64,
    pub programmed_pages: u64,
    /// The ratio of the second to the first.
    pub write_amplification: f64,
}

impl Window {
    pub fn new(host_pages: u64, programmed_pages: u64) -> Self {
        Self {
            host_pages,
            programmed_pages,
            write_amplification: programmed_pages as f64 / host_pages.max(1) as f64,
        }
    }
}

/// Whether the last `count` windows lie within a share of their mean. False if there are not as
/// many.
pub fn agree(windows: &[Window], count: usize, within: f64) -> bool {
    let Some(from) = windows.len().checked_sub(count) else {
        return false;
    };
    let last = windows[from..]
        .iter()
        .map(|window| window.write_amplification);
    let (least, most) = last
        .clone()
        .fold((f64::MAX, f64::MIN), |(least, most), one| {
            (least.min(one), most.max(one))
        });
    let mean = last.sum::<f64>() / count.max(1) as f64;
    most - least <= within * mean
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preparation {
    pub way: String,
    /// Pages that were written, over all drives.
    pub pages_written: u64,
    pub erases: u64,
    /// The random overwrites, one window per capacity; the last one may be shorter.
    pub windows: Vec<Window>,
    /// Whether write amplification was steady at the end; `None` if that was not requested.
    pub steady: Option<bool>,
}

impl Preparation {
    /// Write amplification of the last window of random overwrites.
    pub fn write_amplification(&self) -> Option<f64> {
        self.windows.last().map(|window| window.write_amplification)
    }
}
