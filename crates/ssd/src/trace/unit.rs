// SPDX-License-Identifier: Apache-2.0
//! The units of a trace's times.

use std::fmt;
use std::str::FromStr;

use super::fields::{MICROSECOND, MILLISECOND, SECOND};
use crate::Error;

/// The unit of a trace's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// 10^-9 s.
    Nanoseconds,
    /// 10^-6 s.
    Microseconds,
    /// 10^-3 s.
    Milliseconds,
    Seconds,
}

impl TimeUnit {
    /// The unit in nanoseconds.
    #[inline]
    pub fn nanoseconds(self) -> u64 {
        match self {
            TimeUnit::Nanoseconds => 1,
            TimeUnit::Microseconds => MICROSECOND,
            TimeUnit::Milliseconds => MILLISECOND,
            TimeUnit::Seconds => SECOND,
        }
    }
}

impl FromStr for TimeUnit {
    type Err = Error;

    fn from_str(text: &str) -> Result<TimeUnit, Error> {
        Ok(match text {
            "ns" => TimeUnit::Nanoseconds,
            "us" => TimeUnit::Microseconds,
            "ms" => TimeUnit::Milliseconds,
            "s" => TimeUnit::Seconds,
            _ => {
                return Err(Error::spec(format!(
                    "\"{text}\" is not a unit of time: ns, us, ms or s"
                )));
            }
        })
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeUnit::Nanoseconds => "ns",
            TimeUnit::Microseconds => "us",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Seconds => "s",
        })
    }
}
