// SPDX-License-Identifier: Apache-2.0
//! Times on the command line: microseconds since 1970, dates in UTC, or how long ago; and dates for
//! output.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use senko_workload::units;

const DAY: u64 = 86_400;

/// A moment: microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub u64);

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a time; write microseconds since 1970, a date in UTC such as 2026-01-31T12:00:00Z, \
                 or how long ago, such as 90s, 15m, 2h or 1d"
            )
        };
        if let Ok(micros) = text.parse() {
            return Ok(Moment(micros));
        }
        if let Some(micros) = date(text) {
            return Ok(Moment(micros));
        }
        let ago = units::time_above_zero(text).map_err(|_| wrong())?;
        let now = now().as_micros() as u64;
        let then = now.checked_sub(ago.as_micros() as u64);
        then.map(Moment).ok_or_else(wrong)
    }
}

/// Since 1970.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// `YYYY-MM-DD[THH:MM:SS[.ffffff]][Z]`, in UTC.
fn date(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (day, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let number = |part: &str, digits: usize| {
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<u64>().ok()).flatten()
    };
    let mut parts = day.split('-');
    let year = number(parts.next()?, 4)?;
    let month = number(parts.next()?, 2)?;
    let day = number(parts.next()?, 2)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut times = clock.split(':');
    let hour = number(times.next()?, 2)?;
    let minute = number(times.next()?, 2)?;
    let second = number(times.next()?, 2)?;
    let digits = fraction.len();
    let micros =
        number(fraction, digits)?.checked_mul(10_u64.pow(6_u32.checked_sub(digits as u32)?))?;
    let whole = parts.next().is_none() && times.next().is_none();
    let right = year >= 1970
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !whole || !right {
        return None;
    }
    let days = days_before(year, month) + day - 1;
    Some((days * DAY + hour * 3600 + minute * 60 + second) * 1_000_000 + micros)
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to the first of a month.
fn days_before(year: u64, month: u64) -> u64 {
    let past = year - 1;
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let months: u64 = (1..month).map(|month| days_in(year, month)).sum();
    (year - 1970) * 365 + leaps(past) - leaps(1969) + months
}

/// A readable date, in UTC: `2026-01-31T12:00:00.123456Z`.
pub fn show(micros: u64) -> String {
    let text = show_seconds(micros / 1_000_000);
    match text.strip_suffix('Z') {
        Some(text) => format!("{text}.{:06}Z", micros % 1_000_000),
        None => text,
    }
}

/// As [`show`], for whole seconds.
pub fn show_seconds(seconds: u64) -> String {
    let (days, rest) = (seconds / DAY, seconds % DAY);
    let mut year = 1970 + days / 366;
    if year > 9999 {
        return format!("{seconds} s");
    }
    while days_before(year + 1, 1) <= days {
        year += 1;
    }
    let month = (1..=12)
        .rev()
        .find(|&month| days_before(year, month) <= days)
        .unwrap_or(1);
    let day = days - days_before(year, month) + 1;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_there_and_back() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2001-09-09T01:46:40Z", 1_000_000_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(text.parse(), Ok(Moment(seconds * 1_000_000)), "{text}");
            assert_eq!(show_seconds(seconds), text);
        }
        for day in 0..80_000 {
            let micros = day * DAY * 1_000_000 + 123_456;
            assert_eq!(show(micros).parse(), Ok(Moment(micros)));
        }
        assert_eq!(
            "2001-09-09T01:46:40.5".parse(),
            Ok(Moment(1_000_000_000_500_000))
        );
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "soon",
            "2001-02-29",
            "2001-13-01",
            "1969-12-31",
            "2001-01-01T25:00:00Z",
            "2001-01-01T10:00",
            "2001-01-01T10:00:00.1234567",
            "-5",
            "5y",
        ] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_ago_lies_in_the_past() {
        let Moment(then) = "1h".parse().unwrap();
        let ago = now().as_micros() as u64 - then;
        assert!(ago >= 3_600_000_000);
    }
}
