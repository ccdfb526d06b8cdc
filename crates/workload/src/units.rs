// SPDX-License-Identifier: Apache-2.0
//! The one grammar for numbers, sizes, rates, times and shares in options, settings files and
//! generators.
//!
//! ```text
//!   number  = digits [ "." digits ] [ "e" [ "+" | "-" ] digits ]      4000, 1.5, 4e6
//!   count   = number [ "k" | "m" | "g" | "t" ]          powers of 1000: 4m is 4,000,000
//!   size    = number [ "k" | "m" | "g" | "t" ] [ "b" | "ib" ]   powers of 1024: 4k is 4096 bytes
//!   time    = number [ "ns" | "us" | "ms" | "s" | "m" | "h" | "d" ]
//!   rate    = (count | size) [ "/" ( "s" | "min" | "h" | "day" ) ]
//!   share   = number from 0 to 1 | number from 0 to 100 "%"
//! ```
//!
//! Case is ignored, and blanks are allowed before a suffix. The binary's options, `senko ssd`'s
//! generators and the laws of this crate all use this, so they refuse the same texts with the same
//! messages. Counts and sizes are exact: they are never converted to a floating-point number.

use std::time::Duration;

use crate::SpecError;

/// Sizes are below this number of bytes, so that sums of them fit into 64 bits.
const TOO_MANY_BYTES: u128 = 1 << 62;
/// The longest time, 300 years: more is a typing error.
const LONGEST_SECONDS: f64 = 1e10;
/// Digits and decimal places beyond these are refused; products then fit into 128 bits.
const MOST_DIGITS: usize = 18;

/// A decimal number, exact: `digits` times ten to the power `exponent`.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// Cuts a number off the front of `text`; also returns the suffix after it, in small letters.
    fn cut(text: &str) -> Option<(Decimal, String)> {
        let text = text.trim().to_ascii_lowercase();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (plain, mut rest) = text.split_at(end);
        let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
        let mut exponent = -(fraction.len() as i32);
        if let Some(power) = rest.strip_prefix('e') {
            let sign = usize::from(power.starts_with(['+', '-']));
            let digits = power[sign..].bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0 {
                let power_of_ten: i32 = power[..sign + digits].parse().ok()?;
                exponent = exponent.checked_add(power_of_ten)?;
                rest = &power[sign + digits..];
            }
        }
        let digits = format!("{whole}{fraction}");
        if whole.is_empty() && fraction.is_empty() || digits.contains('.') {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        let number = if significant.is_empty() {
            0
        } else if significant.len() <= MOST_DIGITS || fraction.is_empty() {
            // A whole number beyond 128 bits stays too large, whatever follows.
            significant.parse().unwrap_or(u128::MAX)
        } else {
            exponent += (significant.len() - MOST_DIGITS) as i32;
            significant[..MOST_DIGITS].parse().ok()?
        };
        let decimal = Decimal {
            digits: number,
            exponent,
        };
        Some((decimal, rest.trim().to_owned()))
    }

    /// The whole part of the product with `unit`, and whether there is a fraction. `None` beyond
    /// 128 bits.
    fn times(self, unit: u64) -> Option<(u128, bool)> {
        let product = self.digits.checked_mul(u128::from(unit))?;
        if product == 0 {
            return Some((0, true));
        }
        match (
            self.exponent,
            10_u128.checked_pow(self.exponent.unsigned_abs()),
        ) {
            (0.., power) => Some((product.checked_mul(power?)?, true)),
            (_, Some(power)) => Some((product / power, product.is_multiple_of(power))),
            (_, None) => Some((0, false)),
        }
    }

    fn to_f64(self) -> f64 {
        // The standard library converts the text form to the nearest number.
        format!("{}e{}", self.digits, self.exponent)
            .parse()
            .unwrap_or(f64::INFINITY)
    }
}

/// A whole number with an optional suffix `k`, `m`, `g` or `t` for powers of 1000, such as `200k`,
/// `4m` or `4e6`. `T` is an unsigned integer.
///
/// # Errors
/// If the text is not such a number, or the number is too large for `T`.
pub fn count<T: TryFrom<u64>>(text: &str) -> Result<T, SpecError> {
    let wrong = || {
        SpecError::new(format!(
            "\"{text}\" is not a whole number; write digits, with k, m or g for thousands, millions or billions, such as 4000000 or 4m"
        ))
    };
    let (number, suffix) = Decimal::cut(text).ok_or_else(wrong)?;
    let unit = match suffix.as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    let most = u64::MAX >> (64 - 8 * size_of::<T>().clamp(1, 8));
    let too_large = || {
        SpecError::new(format!(
            "\"{text}\" is too large a number; at most {most} fits here"
        ))
    };
    let (whole, exact) = number.times(unit).ok_or_else(too_large)?;
    if !exact {
        return Err(wrong());
    }
    u64::try_from(whole)
        .ok()
        .filter(|&whole| whole <= most)
        .and_then(|whole| T::try_from(whole).ok())
        .ok_or_else(too_large)
}

/// Bytes: a number with an optional suffix `k`, `m`, `g` or `t` for powers of 1024, which may end
/// in `b` or `ib`. A number without a suffix counts `plain` bytes. A fraction of a byte is dropped.
///
/// # Errors
/// If the text is not such a size, or the size is 2^62 bytes or more.
pub fn size(text: &str, plain: u64) -> Result<u64, SpecError> {
    let wrong = || {
        SpecError::new(format!(
            "\"{text}\" is not a size; write a number with a suffix k, m, g or t, such as 256m"
        ))
    };
    let (number, suffix) = Decimal::cut(text).ok_or_else(wrong)?;
    let unit = match suffix.as_str() {
        "" => plain,
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    match number.times(unit) {
        Some((whole, _)) if whole < TOO_MANY_BYTES => Ok(whole as u64),
        _ => Err(SpecError::new(format!("\"{text}\" is too large a size"))),
    }
}

/// A time: a number with a suffix `ns`, `us`, `ms`, `s`, `m` (or `min`), `h` or `d`. A number
/// without a suffix counts `plain`. Zero is a valid time; an option that needs more uses
/// [`time_above_zero`].
///
/// # Errors
/// If the text is not such a time, or the time is longer than 300 years.
pub fn time(text: &str, plain: Duration) -> Result<Duration, SpecError> {
    let wrong = || {
        SpecError::new(format!(
            "\"{text}\" is not a time; write a number with a suffix ms, s, m, h or d, such as 15m"
        ))
    };
    let (number, suffix) = Decimal::cut(text).ok_or_else(wrong)?;
    let unit = match suffix.as_str() {
        "" => u64::try_from(plain.as_nanos()).unwrap_or(u64::MAX),
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        suffix => seconds_of(suffix).ok_or_else(wrong)? * 1_000_000_000,
    };
    let too_long = || SpecError::new(format!("\"{text}\" is too long a time"));
    let (nanos, _) = number.times(unit).ok_or_else(too_long)?;
    if nanos > LONGEST_SECONDS as u128 * 1_000_000_000 {
        return Err(too_long());
    }
    let seconds = (nanos / 1_000_000_000) as u64;
    Ok(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// As [`time`], seconds without a suffix, and not zero.
///
/// # Errors
/// Also if the time is zero.
pub fn time_above_zero(text: &str) -> Result<Duration, SpecError> {
    match time(text, Duration::from_secs(1))? {
        Duration::ZERO => Err(SpecError::new(format!(
            "\"{text}\" is not a time at all; write more than 0, such as 15m"
        ))),
        time => Ok(time),
    }
}

/// The seconds of the units that times and rates share.
fn seconds_of(unit: &str) -> Option<u64> {
    match unit {
        "s" | "sec" | "second" => Some(1),
        "m" | "min" | "minute" => Some(60),
        "h" | "hour" => Some(3600),
        "d" | "day" => Some(86_400),
        _ => None,
    }
}

/// Splits `NUMBER/UNIT`: the text of the number, and the seconds of the unit, if there is one.
fn per(text: &str) -> Option<(&str, Option<u64>)> {
    match text.split_once('/') {
        Some((number, unit)) => {
            let seconds = seconds_of(&unit.trim().to_ascii_lowercase())?;
            Some((number, Some(seconds)))
        }
        None => Some((text, None)),
    }
}

/// Requests a second: a number above 0 as in [`count`], which may have a fraction. The unit is a
/// second, unless `/s`, `/min`, `/h` or `/day` follows: `50000`, `50k`, `3m/h`.
pub fn rate(text: &str) -> Result<f64, SpecError> {
    let wrong = || {
        SpecError::new(format!(
            "\"{text}\" is not a rate; write requests a second, such as 50000, 50k or 3m/h"
        ))
    };
    let (number, seconds) = per(text).ok_or_else(wrong)?;
    let (number, suffix) = Decimal::cut(number).ok_or_else(wrong)?;
    let unit = match suffix.as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        _ => return Err(wrong()),
    };
    let rate = number.to_f64() * unit / seconds.unwrap_or(1) as f64;
    if rate.is_finite() && rate > 0.0 {
        Ok(rate)
    } else {
        Err(wrong())
    }
}

/// Bytes, and the seconds in which they pass: a [`size`] and `/s`, `/min`, `/h` or `/day`. Without
/// a unit the seconds are `None`.
pub fn byte_rate(text: &str) -> Result<(u64, Option<u64>), SpecError> {
    let wrong = || {
        SpecError::new(format!(
            "\"{text}\" is not a rate; write bytes per second or day, such as 20m/s or 100g/day"
        ))
    };
    let (bytes, seconds) = per(text).ok_or_else(wrong)?;
    Ok((size(bytes, 1).map_err(|_| wrong())?, seconds))
}

/// A number that may have a fraction: digits, a point, an exponent; no suffix.
pub fn number(text: &str) -> Result<f64, SpecError> {
    let wrong = || {
        SpecError::new(format!(
            "\"{text}\" is not a number; write one such as 0.99"
        ))
    };
    match Decimal::cut(text).ok_or_else(wrong)? {
        (number, suffix) if suffix.is_empty() && number.to_f64().is_finite() => Ok(number.to_f64()),
        _ => Err(wrong()),
    }
}

/// A share from 0 to 1, or in percent: `0.9` and `90%` are the same.
///
/// # Errors
/// If the text is not a number, or is out of range.
pub fn share(text: &str) -> Result<f64, SpecError> {
    let wrong = || {
        SpecError::new(format!(
            "\"{text}\" is not a share; write a number from 0 to 1, or a percentage, such as 0.9 or 90%"
        ))
    };
    let (number, suffix) = Decimal::cut(text).ok_or_else(wrong)?;
    let share = match suffix.as_str() {
        "" => number.to_f64(),
        "%" => number.to_f64() / 100.0,
        _ => return Err(wrong()),
    };
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(wrong())
    }
}

/// The word of `known` that `word` most likely means; `None` if none is similar.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace(['_', ' '], "-");
    let word = plain(word);
    let distance = |candidate: &str| strsim::damerau_levenshtein(&word, &plain(candidate));
    // A third of a word's letters may be wrong, and at least one. With more errors it is another
    // word.
    known
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .map(|(_, candidate)| candidate)
}
