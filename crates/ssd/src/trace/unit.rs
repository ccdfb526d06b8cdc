// SPDX-License-Identifier: Apache-2.0
//! The units of a trace's times.

use std::fmt;
use std::str::FromStr;

use super::fields::{MICROSECOND, MILLISECOND, SECOND};
use crate::Error;

/// The unit of a trace's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

/// The units with their names, and each in nanoseconds.
const UNITS: [(TimeUnit, &str, u64); 4] = [
    (TimeUnit::Nanoseconds, "ns", 1),
    (TimeUnit::Microseconds, "us", MICROSECOND),
    (TimeUnit::Milliseconds, "ms", MILLISECOND),
    (TimeUnit::Seconds, "s", SECOND),
];

impl TimeUnit {
    /// The unit in nanoseconds.
    #[inline]
    pub fn nanoseconds(self) -> u64 {
        UNITS[self as usize].2
    }
}

impl FromStr for TimeUnit {
    type Err = Error;

    fn from_str(text: &str) -> Result<TimeUnit, Error> {
        let unit = UNITS.iter().find(|unit| unit.1 == text);
        unit.map(|unit| unit.0).ok_or_else(|| {
            Error::Spec(format!("\"{text}\" is not a unit of time: ns, us, ms or s"))
        })
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(UNITS[*self as usize].1)
    }
}
