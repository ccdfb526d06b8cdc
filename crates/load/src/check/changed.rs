// SPDX-License-Identifier: Apache-2.0
//! Counters and texts: parses a value, and knows the correct counts.
//!
//! [`crate::connection`] passes the answers of gets and `incr` here. [`crate::changes`] has the
//! form of values, and [`crate::tracks`] knows how many changes a value may have.

use std::ops::RangeInclusive;

use super::{Expected, FaultKind, Finding, check, check_versions};
use crate::changes::{self, CHUNK, Change};

/// A chunk that begins with this many correct bytes, and differs after them, is torn.
const HALF: usize = CHUNK / 2;

/// Checks the number that an `incr` or a `decr` returned; returns its version and count.
pub fn check_number(number: u64, versions: &RangeInclusive<u32>) -> Result<(u32, i64), Finding> {
    let Some((version, count)) = changes::counted(number) else {
        let detail = format!("the number {number}, which no set or change makes");
        return Err(Finding::plain(FaultKind::Wrong, detail));
    };
    check_versions(version, versions)?;
    Ok((version, count))
}

/// Checks a whole counter and its flags; returns its version and count.
pub fn check_counter(
    value: &[u8],
    flags: u32,
    versions: &RangeInclusive<u32>,
) -> Result<(u32, i64), Finding> {
    let Some(number) = changes::number(value) else {
        let shown = &value[..value.len().min(changes::LONGEST_COUNTER)];
        let detail = format!("a counter holds \"{}\"", shown.escape_ascii());
        return Err(Finding::plain(FaultKind::Wrong, detail));
    };
    if let Some((version, _)) = changes::counted(number)
        && version != flags
    {
        let detail = format!("flags of version {flags}, the number {number} of version {version}");
        return Err(Finding::plain(FaultKind::Torn, detail));
    }
    check_number(number, versions)
}

/// Checks a whole text and its flags; returns its version and its number of chunks.
pub fn check_text(
    value: &[u8],
    flags: u32,
    expected: &Expected<'_>,
) -> Result<(u32, i64), Finding> {
    let base = (expected.len_of)(flags);
    let front = changes::chunk(expected.key_id, Change::Prepend);
    let back = changes::chunk(expected.key_id, Change::Append);
    let before = value
        .chunks_exact(CHUNK)
        .take_while(|chunk| **chunk == front)
        .count()
        * CHUNK;
    let whole = value
        .len()
        .checked_sub(base)
        .is_some_and(|more| more % CHUNK == 0);
    let torn = |offset: usize| {
        let detail = format!(
            "{} bytes of version {flags}, which are not its {base} and whole chunks of {CHUNK}",
            value.len()
        );
        Finding {
            kind: FaultKind::Torn,
            offset: Some(offset),
            detail,
        }
    };
    let Some(middle) = value.get(before..before + base) else {
        return Err(torn(value.len()));
    };
    if let Err(finding) = check(middle, flags, expected) {
        let at = finding.offset.map(|offset| before + offset);
        let half = value[before..].starts_with(&front[..HALF]);
        // A stale version is intact, and its chunks say nothing more.
        if (half || !whole) && finding.kind == FaultKind::Wrong {
            return Err(torn(at.unwrap_or(before)));
        }
        return Err(Finding {
            offset: at,
            ..finding
        });
    }
    for (number, chunk) in value[before + base..].chunks(CHUNK).enumerate() {
        if *chunk == back {
            continue;
        }
        let inside = chunk.iter().zip(&back).position(|(a, b)| a != b);
        let offset = before + base + number * CHUNK + inside.unwrap_or(chunk.len());
        // Two halves together are as long as a whole chunk.
        if !whole || chunk.starts_with(&back[..HALF]) {
            return Err(torn(offset));
        }
        return Err(Finding {
            kind: FaultKind::Wrong,
            offset: Some(offset),
            detail: format!("appended chunk {number} is none of ours"),
        });
    }
    Ok((flags, ((value.len() - base) / CHUNK) as i64))
}

/// Checks a count against the bounds of its key.
///
/// # Errors
/// If acknowledged changes are missing, or there are more than were sent.
pub fn check_count(version: u32, count: i64, right: &RangeInclusive<i64>) -> Result<(), Finding> {
    let (least, most) = (*right.start(), *right.end());
    if right.contains(&count) {
        return Ok(());
    }
    let (kind, why) = if count < least {
        (FaultKind::Lost, "the least that was acknowledged before")
    } else {
        (FaultKind::Wrong, "the most that was sent until then")
    };
    let bound = if count < least { least } else { most };
    let detail = format!("version {version} has come to {count}, and {why} makes {bound}");
    Err(Finding::plain(kind, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::{chunk, counter};
    use senko_workload::{Rng, fill_value};

    const KEY: u64 = 9;

    fn text(base: usize, before: usize, after: usize) -> Vec<u8> {
        let mut middle = vec![0; base];
        fill_value(&mut middle, KEY, 3);
        [
            chunk(KEY, Change::Prepend).repeat(before),
            middle,
            chunk(KEY, Change::Append).repeat(after),
        ]
        .concat()
    }

    fn look(value: &[u8], base: usize, versions: RangeInclusive<u32>) -> Result<i64, FaultKind> {
        let expected = Expected {
            key_id: KEY,
            versions,
            len_of: &|_| base,
        };
        check_text(value, 3, &expected)
            .map(|(version, count)| {
                assert_eq!(version, 3);
                count
            })
            .map_err(|finding| finding.kind)
    }

    #[test]
    fn whole_texts_tell_their_chunks() {
        for base in [0, 1, 7, 8, 15, 16, 17, 32, 300] {
            for (before, after) in [(0, 0), (3, 0), (0, 4), (2, 5)] {
                let value = text(base, before, after);
                assert_eq!(look(&value, base, 3..=3), Ok((before + after) as i64));
                assert_eq!(look(&value, base, 4..=5), Err(FaultKind::Stale));
                assert_eq!(look(&value, base, 1..=2), Err(FaultKind::Wrong));
            }
        }
    }

    #[test]
    fn half_chunks_are_torn_wherever_they_are() {
        let whole = text(300, 2, 3);
        for cut in 1..CHUNK {
            // At the end, at the front, between two chunks, and in the middle of the base.
            assert_eq!(
                look(&whole[..whole.len() - cut], 300, 3..=3),
                Err(FaultKind::Torn),
                "{cut} bytes less at the end"
            );
            for at in [0, 2 * CHUNK, 200, 2 * CHUNK + 300] {
                let mut bad = whole.clone();
                bad.drain(at..at + cut);
                let found = look(&bad, 300, 3..=3);
                assert!(
                    matches!(found, Err(FaultKind::Torn | FaultKind::Wrong)),
                    "{cut} bytes less at {at}: {found:?}"
                );
            }
        }
        assert_eq!(look(&[], 300, 3..=3), Err(FaultKind::Torn));
    }

    #[test]
    fn any_changed_byte_of_a_text_is_found_at_its_place() {
        let mut rng = Rng::new(8);
        let whole = text(100, 2, 3);
        let expected = Expected {
            key_id: KEY,
            versions: 3..=3,
            len_of: &|_| 100,
        };
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1 << rng.below(8);
            let found = check_text(&bad, 3, &expected).expect_err("a byte was changed");
            // A wrong prepended chunk is taken for a part of the base.
            let base = at >= 2 * CHUNK;
            assert!(!base || found.offset == Some(at), "byte {at}");
        }
    }

    #[test]
    fn counters_are_numbers_of_their_version() {
        let digits = |number: u64| number.to_string().into_bytes();
        let kind = |value: &[u8], flags, versions| {
            check_counter(value, flags, &versions).map_err(|finding| finding.kind)
        };
        assert_eq!(kind(&digits(counter(5) + 7), 5, 5..=5), Ok((5, 7)));
        assert_eq!(kind(&digits(counter(5) - 7), 5, 4..=6), Ok((5, -7)));
        assert_eq!(kind(&digits(counter(5)), 6, 5..=6), Err(FaultKind::Torn));
        assert_eq!(kind(&digits(counter(5)), 5, 6..=6), Err(FaultKind::Stale));
        assert_eq!(kind(&digits(counter(5)), 5, 1..=4), Err(FaultKind::Wrong));
        for bad in [&b"12 "[..], b"", b"-1", b"0012", b"\x00\x01"] {
            assert_eq!(kind(bad, 5, 5..=5), Err(FaultKind::Wrong));
        }
        let number = check_number(u64::MAX, &(0..=u32::MAX)).map_err(|finding| finding.kind);
        assert_eq!(number, Err(FaultKind::Wrong));
    }

    #[test]
    fn missing_changes_are_lost_and_too_many_are_wrong() {
        let kind = |count| check_count(1, count, &(3..=5)).map_err(|finding| finding.kind);
        assert_eq!(kind(2), Err(FaultKind::Lost));
        assert_eq!((kind(3), kind(5)), (Ok(()), Ok(())));
        assert_eq!(kind(6), Err(FaultKind::Wrong));
    }
}
