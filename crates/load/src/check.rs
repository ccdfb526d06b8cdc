// SPDX-License-Identifier: Apache-2.0
//! Checks whether an answer is the correct value, and finds out what is wrong if it is not.
//!
//! [`crate::connection`] passes each complete hit here. The bytes are checked by themselves
//! ([`senko_workload::value`]), and the [`crate::ledger`] knows the correct versions. Every value
//! is sent with its version as the item's flags. So values too short to carry a version are checked
//! exactly as well. Flags of one write with bytes of another are noticed too.

use std::fmt;
use std::ops::RangeInclusive;

use senko_workload::{Mismatch, check_value_version, fill_value};

mod changed; // counters and texts

pub use changed::{check_count, check_counter, check_number, check_text};

/// The kinds of faults that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// Bytes that were never written for this key.
    Wrong,
    /// Parts of two versions in one value.
    Torn,
    /// A whole value that an answered set had replaced before the get was sent.
    Stale,
    /// A value whose expiry had passed.
    Expired,
    /// A counter or a text that lacks changes which were acknowledged before.
    Lost,
}

impl FaultKind {
    pub const ALL: [FaultKind; 5] = [
        FaultKind::Wrong,
        FaultKind::Torn,
        FaultKind::Stale,
        FaultKind::Expired,
        FaultKind::Lost,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Wrong => "wrong",
            FaultKind::Torn => "torn",
            FaultKind::Stale => "stale",
            FaultKind::Expired => "expired",
            FaultKind::Lost => "lost",
        }
    }
}

/// A wrong answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// The key's number; the key itself in [`Fault::key`].
    pub key_id: u64,
    /// The key as it was sent.
    pub key: String,
    /// The first bad byte of the value, if there is one.
    pub offset: Option<usize>,
    /// One sentence.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: key {}", self.kind.name(), self.key)?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// What a value should be.
pub struct Expected<'a> {
    pub key_id: u64,
    pub versions: RangeInclusive<u32>,
    pub len_of: &'a dyn Fn(u32) -> usize,
}

/// A fault, before the key's bytes are added.
pub struct Finding {
    kind: FaultKind,
    offset: Option<usize>,
    detail: String,
}

impl Finding {
    pub fn on(self, key_id: u64, key: &[u8]) -> Fault {
        let key = String::from_utf8_lossy(key).into_owned();
        Fault {
            kind: self.kind,
            key_id,
            key,
            offset: self.offset,
            detail: self.detail,
        }
    }

    /// A finding with no offset.
    pub fn plain(kind: FaultKind, detail: impl Into<String>) -> Finding {
        Finding {
            kind,
            offset: None,
            detail: detail.into(),
        }
    }
}

/// Checks a whole value and the flags it came with.
pub fn check(value: &[u8], flags: u32, expected: &Expected<'_>) -> Result<(), Finding> {
    // The flags name the version, so the bytes are checked only against that version: any others do
    // not belong to the flags.
    match check_value_version(value, expected.key_id, flags..=flags) {
        Ok(_) if value.len() == (expected.len_of)(flags) => {}
        Ok(_) => {
            let detail = format!(
                "{} bytes of version {flags}, which has {}",
                value.len(),
                (expected.len_of)(flags)
            );
            return Err(Finding {
                kind: FaultKind::Wrong,
                offset: Some(value.len()),
                detail,
            });
        }
        Err(mismatch) => return Err(diagnose(value, flags, expected, &mismatch)),
    }
    check_versions(flags, &expected.versions)
}

fn check_versions(version: u32, right: &RangeInclusive<u32>) -> Result<(), Finding> {
    let (oldest, newest) = (*right.start(), *right.end());
    if version < oldest {
        let detail = format!(
            "version {version}, though version {oldest} was stored before the get was sent"
        );
        Err(Finding::plain(FaultKind::Stale, detail))
    } else if version > newest {
        let detail = format!("version {version}, though the newest that was sent is {newest}");
        Err(Finding::plain(FaultKind::Wrong, detail))
    } else {
        Ok(())
    }
}

/// The bytes do not match the version in the flags. Finds where they differ, and whether the rest
/// belongs to another version.
#[cold]
fn diagnose(value: &[u8], flags: u32, expected: &Expected<'_>, mismatch: &Mismatch) -> Finding {
    let key_id = expected.key_id;
    let mut right = vec![0; value.len()];
    fill_value(&mut right, key_id, flags);
    let offset = value.iter().zip(&right).position(|(a, b)| a != b);
    // The value's own head names its version.
    let head = value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let others = head.into_iter().chain(near(&expected.versions, flags));
    if let Some(at) = offset {
        // A page or more may be of another version. One matching aligned word proves that; a single
        // byte does not.
        let from = at.next_multiple_of(8).min(value.len());
        let tail = &value[from..value.len().min(from + 8)];
        for version in others.filter(|version| *version != flags) {
            fill_value(&mut right, key_id, version);
            let head_too = right[..at] == value[..at] && at >= 8;
            if (tail.len() == 8 && right[from..from + 8] == *tail) || head_too {
                let detail = format!(
                    "flags of version {flags}, bytes of version {version} (the value has {} bytes)",
                    value.len()
                );
                return Finding {
                    kind: FaultKind::Torn,
                    offset,
                    detail,
                };
            }
        }
    }
    Finding {
        kind: FaultKind::Wrong,
        offset,
        detail: format!("{mismatch}, flags {flags}"),
    }
}

/// Versions of which a torn value may have parts: the correct ones and some earlier ones, those
/// nearest to `version` first.
fn near(versions: &RangeInclusive<u32>, version: u32) -> impl Iterator<Item = u32> {
    const REACH: u32 = 64;
    let newest = (*versions.end()).min(version.saturating_add(REACH));
    let oldest = version.saturating_sub(REACH);
    (oldest..=newest).rev()
}

#[cfg(test)]
mod tests {
    use super::*;
    use senko_workload::Rng;

    fn value(key_id: u64, version: u32, len: usize) -> Vec<u8> {
        let mut value = vec![0; len];
        fill_value(&mut value, key_id, version);
        value
    }

    fn kind(
        value: &[u8],
        flags: u32,
        versions: RangeInclusive<u32>,
    ) -> Result<(), (FaultKind, Option<usize>)> {
        let len = value.len();
        let expected = Expected {
            key_id: 9,
            versions,
            len_of: &|_| len,
        };
        check(value, flags, &expected).map_err(|finding| (finding.kind, finding.offset))
    }

    #[test]
    fn right_values_of_every_length_pass() {
        for len in (0..70).chain([1000, 4096, 70_000]) {
            assert_eq!(kind(&value(9, 3, len), 3, 2..=4), Ok(()), "length {len}");
        }
    }

    #[test]
    fn old_values_are_stale_and_future_ones_wrong() {
        assert_eq!(
            kind(&value(9, 3, 100), 3, 4..=6),
            Err((FaultKind::Stale, None))
        );
        assert_eq!(
            kind(&value(9, 7, 100), 7, 4..=6),
            Err((FaultKind::Wrong, None))
        );
        assert_eq!(kind(&[], 3, 4..=6), Err((FaultKind::Stale, None)));
    }

    #[test]
    fn any_changed_byte_is_found_at_its_place() {
        let mut rng = Rng::new(5);
        for len in [1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 200, 4096] {
            for _ in 0..50 {
                let mut bad = value(9, 3, len);
                let at = rng.below(len as u64) as usize;
                bad[at] ^= 1 << rng.below(8);
                let found = kind(&bad, 3, 3..=3).expect_err("a byte was changed");
                assert_eq!(found.1, Some(at), "length {len}");
            }
        }
    }

    #[test]
    fn parts_of_two_versions_are_torn() {
        for (len, cut) in [(64, 16), (4096, 2048), (10_000, 4096), (100, 40)] {
            let mut bad = value(9, 3, len);
            bad[cut..].copy_from_slice(&value(9, 4, len)[cut..]);
            assert_eq!(
                kind(&bad, 3, 3..=4),
                Err((FaultKind::Torn, Some(cut))),
                "length {len}, cut at {cut}"
            );
            let found = kind(&bad, 4, 3..=4).expect_err("the head is of another version");
            assert_eq!(found.0, FaultKind::Torn, "length {len}, cut at {cut}");
        }
        let found = kind(&value(9, 4, 100), 3, 3..=4).expect_err("flags of another version");
        assert_eq!(found.0, FaultKind::Torn);
    }

    #[test]
    fn values_of_other_keys_and_other_lengths_are_wrong() {
        assert_eq!(
            kind(&value(8, 3, 100), 3, 3..=3).map_err(|found| found.0),
            Err(FaultKind::Wrong)
        );
        assert_eq!(
            kind(&value(9, 3, 100)[..99], 3, 3..=3).map_err(|found| found.0),
            Err(FaultKind::Wrong)
        );
        let expected = Expected {
            key_id: 9,
            versions: 3..=3,
            len_of: &|_| 100,
        };
        assert!(
            check(&value(9, 3, 99), 3, &expected).is_err(),
            "whole, but of a length that version does not have"
        );
    }
}
