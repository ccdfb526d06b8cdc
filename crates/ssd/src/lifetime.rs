// SPDX-License-Identifier: Apache-2.0
//! The lifetime of a drive under a workload: years at the workload's rate, terabytes written, drive
//! writes per day.
//!
//! Blocks wear: a drive has `blocks * cycles` erases, if wear is level. A run says how many erases
//! a byte of the host costs. A run that begins with erased blocks uses them up before it erases
//! any. So the cost is at least one erase for each block's worth of programmed pages. If wear is
//! uneven, the most worn block ends the drive, and the estimate is reduced by the ratio of its wear
//! to the mean. The rate is that of the arrivals, whether or not the drive keeps up with them.
//! Bytes are those of the host's requests: a write of a part of a page causes as much wear as a
//! write of a whole page, but counts fewer bytes.

use serde::{Deserialize, Serialize};

use crate::report::Report;

const SECONDS_A_DAY: f64 = 86_400.0;
const DAYS_A_YEAR: f64 = 365.25;

/// Years beyond which a number says nothing: other parts of a drive fail before its cells.
pub const LONGEST_YEARS: f64 = 100.0;

/// A life for people, in a fitting unit: a small drive with many writes lasts for hours.
///
/// # Examples
///
/// ```
/// # use senko_ssd::lifetime::show_years;
/// assert_eq!(show_years(8e9), "more than 100 years");
/// assert_eq!(show_years(12.34), "12.3 years");
/// assert_eq!(show_years(0.02), "7.3 days");
/// assert_eq!(show_years(0.001), "8.8 hours");
/// assert_eq!(show_years(1e-5), "5.3 minutes");
/// assert_eq!(show_years(1e-9), "less than a minute");
/// ```
pub fn show_years(years: f64) -> String {
    let days = years * DAYS_A_YEAR;
    let (hours, minutes) = (days * 24.0, days * 24.0 * 60.0);
    match () {
        () if years > LONGEST_YEARS => format!("more than {LONGEST_YEARS} years"),
        () if years >= 1.0 => format!("{years:.1} years"),
        () if days >= 1.0 => format!("{days:.1} days"),
        () if hours >= 1.0 => format!("{hours:.1} hours"),
        () if minutes >= 1.0 => format!("{minutes:.1} minutes"),
        () => "less than a minute".to_owned(),
    }
}

/// An estimate of a drive's life.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lifetime {
    /// Cycles that a block endures.
    pub cycles: u32,
    /// How many times larger the drive is, if only a part of it was simulated. Bytes and years are
    /// for the whole drive.
    pub scale: u32,
    /// Bytes that the host writes in a day at the run's rate.
    pub bytes_a_day: f64,
    /// Bytes that the host can write in the drive's life (TBW, in bytes), if wear is level.
    pub host_bytes: f64,
    /// Years at the run's rate, if wear is level.
    pub years: f64,
    /// Years until the most worn block has used up its cycles, if wear stays as uneven as in the
    /// run.
    pub years_as_worn: f64,
    /// Drive writes per day with which `host_bytes` are used up in five years.
    pub dwpd_5_years: f64,
}

impl Lifetime {
    /// The lifetime of a drive whose blocks endure `cycles` erases, under the workload of a run.
    /// `None` if nothing was erased or written, or no time passed.
    pub fn of(report: &Report, cycles: u32) -> Option<Self> {
        let used_up = report.flash.all_programs() as f64 / f64::from(report.pages_per_block);
        let erases = match report.flash.all_erases() {
            0 => 0.0,
            erases => used_up.max(erases as f64),
        };
        let host = report.host_bytes_written as f64;
        if erases == 0.0 || host == 0.0 || report.arrival_seconds <= 0.0 {
            return None;
        }
        let host_bytes = host / erases * report.blocks as f64 * f64::from(cycles);
        let bytes_a_day = host / report.arrival_seconds * SECONDS_A_DAY;
        let years = host_bytes / bytes_a_day / DAYS_A_YEAR;
        let unevenness = (f64::from(report.wear.max) / report.wear.mean).max(1.0);
        Some(Self {
            cycles,
            scale: 1,
            bytes_a_day,
            host_bytes,
            years,
            years_as_worn: years / unevenness,
            dwpd_5_years: host_bytes / (5.0 * DAYS_A_YEAR) / report.user_bytes as f64,
        })
    }

    /// The lifetime of the whole drive, if one part in `scale` was simulated: it has this many
    /// times the blocks, and the same rate.
    pub fn of_whole(self, scale: u32) -> Self {
        let times = f64::from(scale);
        Self {
            scale,
            host_bytes: self.host_bytes * times,
            years: self.years * times,
            years_as_worn: self.years_as_worn * times,
            ..self
        }
    }
}
