// SPDX-License-Identifier: Apache-2.0
//! Parses numbers and words of a line of text. Every parser of a text format uses these functions.
//! None of them allocates, and none panics on any bytes.

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const MICROSECOND: u64 = 1_000;

/// A number of decimal digits and nothing else; `None` beyond 64 bits too.
#[inline]
pub(super) fn uint(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    let mut value = 0u64;
    if field.len() < 20 {
        // Nineteen digits cannot overflow.
        for &byte in field {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u64::from(digit);
        }
        return Some(value);
    }
    for &byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

#[inline]
pub(super) fn uint32(field: &[u8]) -> Option<u32> {
    u32::try_from(uint(field)?).ok()
}

/// A hexadecimal number, with or without `0x`.
pub(super) fn hex(field: &[u8]) -> Option<u64> {
    let digits = match field {
        [b'0', b'x' | b'X', rest @ ..] => rest,
        _ => field,
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = (byte as char).to_digit(16)?;
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Nanoseconds; 0 for a negative time.
    pub ns: u64,
    pub negative: bool,
}

impl Stamp {
    #[inline]
    pub(super) fn at(ns: u64) -> Stamp {
        Stamp {
            ns,
            negative: false,
        }
    }
}

/// A time of `unit_ns` nanoseconds a unit, with an optional sign and fraction. The fraction's first
/// nine digits count, so times are exact to the nanosecond for units of up to a second. `None` for
/// anything else, and beyond 2^64 ns (584 years).
#[inline]
pub(super) fn time(field: &[u8], unit_ns: u64) -> Option<Stamp> {
    let (negative, digits) = match field {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, field),
    };
    let point = memchr::memchr(b'.', digits);
    let (whole, fraction) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &[][..]),
    };
    let whole = match (whole, fraction) {
        ([], []) => return None,
        ([], _) => 0,
        _ => uint(whole)?,
    };
    let mut part = 0u64;
    let mut scale = 1_000_000_000u64;
    for &byte in fraction {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        if scale > 1 {
            scale /= 10;
            part += u64::from(digit) * scale;
        }
    }
    let part = (u128::from(part) * u128::from(unit_ns) / 1_000_000_000) as u64;
    let ns = whole.checked_mul(unit_ns)?.checked_add(part)?;
    Some(Stamp {
        ns: if negative { 0 } else { ns },
        negative: negative && ns != 0,
    })
}

#[inline]
pub(super) fn commas(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    // Fields are short, so a plain loop is faster than a vector search for each.
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// The words between spaces and tabs.
#[inline]
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    let parts = line.split(u8::is_ascii_whitespace);
    parts.filter(|word| !word.is_empty())
}

/// The fields of a line: separated by commas if it has any, otherwise by spaces and tabs.
#[inline]
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    split(line, memchr::memchr(b',', line).is_some())
}

/// The fields of a line between commas, or between spaces and tabs.
#[inline]
pub(super) fn split(line: &[u8], by_commas: bool) -> impl Iterator<Item = &[u8]> {
    let parts = line.split(move |byte| match by_commas {
        true => *byte == b',',
        false => byte.is_ascii_whitespace(),
    });
    let parts = parts.map(<[u8]>::trim_ascii);
    parts.filter(move |part| by_commas || !part.is_empty())
}

/// Whether a line is a heading: no field begins with a digit, and at least one begins with a
/// letter.
pub(super) fn is_heading(line: &[u8]) -> bool {
    let mut letters = false;
    for field in fields(line) {
        match field.first() {
            Some(first) if first.is_ascii_alphabetic() => letters = true,
            Some(first) if first.is_ascii_digit() || b"-+.".contains(first) => return false,
            _ => {}
        }
    }
    letters
}

/// At most 60 characters of a line, for a message.
pub(super) fn excerpt(line: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&line[..line.len().min(60)]);
    let dots = if line.len() > 60 { "..." } else { "" };
    format!("{}{dots}", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(uint(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(uint(b"18446744073709551616"), None);
        assert_eq!(uint(b"0000000000000000000000000000007"), Some(7));
        assert_eq!(uint(b""), None);
        assert_eq!(uint(b"-1"), None);
        assert_eq!(hex(b"0xffffffffffffffff"), Some(u64::MAX));
        assert_eq!(hex(b"0x10000000000000000"), None);
        assert_eq!(hex(b"2a"), Some(42));
        assert_eq!(hex(b"0x"), None);
    }

    #[test]
    fn times_are_exact() {
        let ns = |text: &[u8], unit| time(text, unit).map(|s| s.ns);
        assert_eq!(ns(b"0.026214", SECOND), Some(26_214_000));
        assert_eq!(ns(b"259.601196", SECOND), Some(259_601_196_000));
        assert_eq!(ns(b"143067.135", MILLISECOND), Some(143_067_135_000));
        assert_eq!(ns(b"1.9999999999", SECOND), Some(1_999_999_999));
        assert_eq!(ns(b".5", SECOND), Some(500_000_000));
        assert_eq!(ns(b"7.", SECOND), Some(7 * SECOND));
        assert_eq!(ns(b".", SECOND), None);
        assert_eq!(ns(b"1.2.3", SECOND), None);
        assert_eq!(ns(b"18446744074", SECOND), None);
        assert_eq!(
            time(b"-0.5", SECOND),
            Some(Stamp {
                ns: 0,
                negative: true
            })
        );
        assert_eq!(time(b"-0", SECOND), Some(Stamp::at(0)));
    }

    #[test]
    fn splits() {
        let by_commas: Vec<&[u8]> = commas(b"a, b ,,c").collect();
        assert_eq!(by_commas, [&b"a"[..], b"b", b"", b"c"]);
        let between: Vec<&[u8]> = words(b"  1\t 22  x ").collect();
        assert_eq!(between, [&b"1"[..], b"22", b"x"]);
        let either: Vec<&[u8]> = fields(b"1, 2 3 ,4").collect();
        assert_eq!(either, [&b"1"[..], b"2 3", b"4"]);
        assert_eq!(fields(b" 1 2\t3").count(), 3);
        assert!(is_heading(b"time, device,address"));
        assert!(!is_heading(b"time 17 R"));
        assert!(!is_heading(b"-.5,x"));
    }
}
