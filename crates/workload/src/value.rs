// SPDX-License-Identifier: Apache-2.0
//! Converts key number, version and length to value bytes, and checks each byte.
//!
//! A load generator writes values from [`fill_value`] and checks the values that it reads with
//! [`check_value`] or [`check_value_version`]. No stored state is needed: every byte follows from
//! key number, version and length. So a wrong, torn, stale, truncated or misplaced byte is noticed,
//! in this process or in a later one.
//!
//! ```text
//!   length 8 and more                        length 1 to 7
//!   0        4            8          16      0
//!   | version | seal      | id ^ mask | body | low bytes of (code + version * odd)
//!   (each field little-endian, cut at the value's length)
//!
//!   seed = mix(key number, version, length)
//!   seal = 32 bits of seed        mask = mix(version, length)        body word i = scramble(seed + i * odd)
//! ```
//!
//! - The version is in plain form, so a value of at least 8 bytes shows its version. The seal ties
//!   it to its key and length.
//! - The key number is masked by version and length, so a value of another key names its owner.
//! - Each body word depends on its place, so shifted or swapped pages differ. Values are checked 8
//!   bytes at a time, without a table.
//! - A value under 8 bytes has no room for that, so it is checked against a range of versions. The
//!   values of successive versions always differ (an odd multiplier is a bijection), until they
//!   wrap at 256^length.
//! - An empty value has no byte to check.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::rng::mix64;
use crate::{SpecError, etc, units};

/// The shortest value that carries its version.
pub const SELF_CHECKED_LEN: usize = 8;

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
const SCRAMBLE: u64 = 0xD6E8_FEB8_6659_FD93;
const SHORT_ODD: u64 = 0xA24B_AED4_963E_E407;
const HEADER_LEN: usize = 16;

/// The reason why a value is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The value is intact, but belongs to another key.
    #[error("the value of key {expected} holds the value of key {found}, version {version}")]
    WrongKey {
        /// The key number of the request.
        expected: u64,
        /// The key number of the received value.
        found: u64,
        /// The version of the received value.
        version: u32,
    },
    /// The value is intact and of this key, but its version is outside the expected range.
    #[error("the value of key {key_id} is version {found}, and {oldest} to {newest} were expected")]
    WrongVersion {
        key_id: u64,
        /// The version of the received value.
        found: u32,
        /// The oldest correct version.
        oldest: u32,
        /// The newest correct version.
        newest: u32,
    },
    /// The first bytes, which contain version and key, are not consistent for any key: the value is
    /// torn, damaged, truncated, or not from this generator.
    #[error(
        "the value of key {key_id} ({len} bytes) has a damaged head: version, key and length do not fit together"
    )]
    Head {
        key_id: u64,
        /// The length of the received value, in bytes.
        len: usize,
    },
    /// The head is right, but a later byte is wrong.
    #[error(
        "the value of key {key_id}, version {version} ({len} bytes) is wrong from byte {offset} on"
    )]
    Body {
        key_id: u64,
        /// The version in the head.
        version: u32,
        /// The length of the value, in bytes.
        len: usize,
        /// The first wrong byte.
        offset: usize,
    },
    /// A value under [`SELF_CHECKED_LEN`] bytes fits none of the expected versions.
    #[error(
        "the value of key {key_id} ({len} bytes) fits none of the versions {oldest} to {newest}"
    )]
    Short {
        key_id: u64,
        /// The length of the received value, in bytes.
        len: usize,
        /// The oldest correct version.
        oldest: u32,
        /// The newest correct version.
        newest: u32,
    },
    /// A value under [`SELF_CHECKED_LEN`] bytes cannot be checked without a range of versions.
    #[error(
        "the value of key {key_id} has {len} bytes, too few to carry a version: check it with a range of versions"
    )]
    TooShort {
        key_id: u64,
        /// The length of the received value, in bytes.
        len: usize,
    },
}

/// Fills `value` with the bytes of version `version` of key number `key_id` at this length.
#[inline]
pub fn fill_value(value: &mut [u8], key_id: u64, version: u32) {
    let len = value.len();
    if len < SELF_CHECKED_LEN {
        let word = short_word(key_id, version, len);
        value.copy_from_slice(&word.to_le_bytes()[..len]);
        return;
    }
    let seed = seed(key_id, version, len);
    let head = head(seed, key_id, version, len);
    if len < HEADER_LEN {
        value.copy_from_slice(&head[..len]);
        return;
    }
    value[..HEADER_LEN].copy_from_slice(&head);
    let mut state = seed;
    let mut chunks = value[HEADER_LEN..].chunks_exact_mut(8);
    for chunk in &mut chunks {
        state = state.wrapping_add(ODD);
        chunk.copy_from_slice(&scramble(state).to_le_bytes());
    }
    let tail = chunks.into_remainder();
    let word = scramble(state.wrapping_add(ODD)).to_le_bytes();
    tail.copy_from_slice(&word[..tail.len()]);
}

/// Checks every byte of a value of at least [`SELF_CHECKED_LEN`] bytes that should belong to
/// `key_id`, and returns its version.
///
/// # Errors
/// [`Mismatch::TooShort`] for a shorter value, otherwise the error and its place.
#[inline]
pub fn check_value(value: &[u8], key_id: u64) -> Result<u32, Mismatch> {
    let len = value.len();
    if len < SELF_CHECKED_LEN {
        return Err(Mismatch::TooShort { key_id, len });
    }
    let version = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
    let seed = seed(key_id, version, len);
    let head_len = len.min(HEADER_LEN);
    if value[..head_len] != head(seed, key_id, version, len)[..head_len] {
        return Err(diagnose_head(value, key_id, version));
    }
    match first_body_difference(value, seed) {
        None => Ok(version),
        Some(offset) => Err(Mismatch::Body {
            key_id,
            version,
            len,
            offset,
        }),
    }
}

/// Checks every byte of a value of any length that should belong to `key_id` and be one of
/// `versions`, and returns its version.
///
/// If a value under [`SELF_CHECKED_LEN`] bytes matches several of the versions, the newest is
/// returned. An empty value matches all.
///
/// # Errors
/// The error and its place. An empty range of versions matches no value.
#[inline]
pub fn check_value_version(
    value: &[u8],
    key_id: u64,
    versions: RangeInclusive<u32>,
) -> Result<u32, Mismatch> {
    let (oldest, newest) = (*versions.start(), *versions.end());
    let len = value.len();
    if len >= SELF_CHECKED_LEN {
        let found = check_value(value, key_id)?;
        return if versions.contains(&found) {
            Ok(found)
        } else {
            Err(Mismatch::WrongVersion {
                key_id,
                found,
                oldest,
                newest,
            })
        };
    }
    if !versions.is_empty() {
        let mut word = [0; 8];
        word[..len].copy_from_slice(value);
        let mask = (1u64 << (8 * len)) - 1;
        // The versions with these bytes are equal modulo 256^len, so the result is the newest of
        // them in the range.
        let steps = short_word(key_id, newest, len).wrapping_sub(u64::from_le_bytes(word));
        let back = steps.wrapping_mul(inverse_odd(SHORT_ODD)) & mask;
        if back <= u64::from(newest - oldest) {
            return Ok(newest - back as u32);
        }
    }
    Err(Mismatch::Short {
        key_id,
        len,
        oldest,
        newest,
    })
}

#[inline]
fn seed(key_id: u64, version: u32, len: usize) -> u64 {
    mix64(mix64(key_id) ^ mix64(u64::from(version) | (len as u64) << 32).rotate_left(17))
}

#[inline]
fn mask(version: u32, len: usize) -> u64 {
    mix64(!(u64::from(version) | (len as u64) << 32))
}

#[inline]
fn head(seed: u64, key_id: u64, version: u32, len: usize) -> [u8; HEADER_LEN] {
    let first = u64::from(version) | scramble(seed) >> 32 << 32;
    let second = key_id ^ mask(version, len);
    let mut head = [0; HEADER_LEN];
    head[..8].copy_from_slice(&first.to_le_bytes());
    head[8..].copy_from_slice(&second.to_le_bytes());
    head
}

/// One multiplication per word, so that filling keeps up with memory. The states differ by an odd
/// step and never repeat.
#[inline]
fn scramble(state: u64) -> u64 {
    let product = (state ^ (state >> 32)).wrapping_mul(SCRAMBLE);
    product ^ (product >> 32)
}

#[inline]
fn short_word(key_id: u64, version: u32, len: usize) -> u64 {
    mix64(mix64(key_id) ^ len as u64).wrapping_add(u64::from(version).wrapping_mul(SHORT_ODD))
}

/// The inverse of an odd number modulo 2^64 (Newton's iteration doubles the correct low bits: 3, 6,
/// 12, 24, 48, 96).
const fn inverse_odd(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut round = 0;
    while round < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

#[inline]
fn first_body_difference(value: &[u8], seed: u64) -> Option<usize> {
    const BLOCK: usize = 64;
    let body = value.get(HEADER_LEN..)?;
    let mut state = seed;
    let mut blocks = body.chunks_exact(BLOCK);
    for (number, block) in (&mut blocks).enumerate() {
        // The differences of a block are gathered without a branch; their place is searched for
        // only if there is one.
        let before = state;
        let mut difference = 0;
        for word in block.chunks_exact(8) {
            state = state.wrapping_add(ODD);
            difference |= scramble(state) ^ load_word(word);
        }
        if difference != 0 {
            return difference_in(block, before).map(|offset| HEADER_LEN + number * BLOCK + offset);
        }
    }
    let rest = blocks.remainder();
    difference_in(rest, state).map(|offset| value.len() - rest.len() + offset)
}

/// The first byte of `part` that differs from the body words after `state`.
fn difference_in(part: &[u8], mut state: u64) -> Option<usize> {
    for (number, bytes) in part.chunks(8).enumerate() {
        state = state.wrapping_add(ODD);
        let difference =
            (scramble(state) ^ load_word(bytes)) & (u64::MAX >> (64 - 8 * bytes.len()));
        if difference != 0 {
            return Some(number * 8 + difference.trailing_zeros() as usize / 8);
        }
    }
    None
}

/// Up to 8 bytes as a little-endian word.
#[inline]
fn load_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The head does not match `key_id`, so find the key that the value belongs to.
#[cold]
fn diagnose_head(value: &[u8], key_id: u64, version: u32) -> Mismatch {
    let len = value.len();
    if len >= HEADER_LEN {
        let found = load_word(&value[8..HEADER_LEN]) ^ mask(version, len);
        if found != key_id
            && value[..HEADER_LEN] == head(seed(found, version, len), found, version, len)
        {
            return Mismatch::WrongKey {
                expected: key_id,
                found,
                version,
            };
        }
    }
    Mismatch::Head { key_id, len }
}

/// The length of values. Written as a number of bytes, `MIN-MAX` (uniform), `etc`, or `etc:CAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueLen {
    /// Every value has this many bytes.
    Fixed(usize),
    /// Uniform between two lengths, including both.
    Uniform {
        /// The shortest.
        min: usize,
        /// The longest.
        max: usize,
    },
    /// Facebook's ETC value sizes, at most `cap`.
    Etc {
        /// The longest.
        cap: usize,
    },
}

impl ValueLen {
    /// The default cap of `etc`: memcached's default largest item, less room for key and header.
    pub const ETC_CAP: usize = (1 << 20) - 1024;

    /// The length of version `version` of key number `key_id`, in bytes: the same on every call. A
    /// caller that wants the same length for all versions of a key passes 0 for the version.
    #[inline]
    pub fn len_of(&self, key_id: u64, version: u32) -> usize {
        match *self {
            Self::Fixed(len) => len,
            Self::Uniform { min, max } => {
                let bits = mix64(mix64(key_id.wrapping_add(ODD)) ^ u64::from(version));
                min + ((u128::from(bits) * (max - min + 1) as u128) >> 64) as usize
            }
            Self::Etc { cap } => etc::value_len(key_id, version, cap),
        }
    }

    /// The longest length that can occur, in bytes.
    pub fn longest(&self) -> usize {
        match *self {
            Self::Fixed(len) => len,
            Self::Uniform { max, .. } => max,
            Self::Etc { cap } => cap,
        }
    }
}

impl fmt::Display for ValueLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(len) => write!(f, "{len}"),
            Self::Uniform { min, max } => write!(f, "{min}-{max}"),
            Self::Etc { cap } => write!(f, "etc:{cap}"),
        }
    }
}

impl FromStr for ValueLen {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || {
            SpecError::new(format!(
                "\"{text}\" is not a value size: use a number of bytes below 2^31, MIN-MAX, etc or etc:CAP"
            ))
        };
        let number = |part: &str| {
            units::size(part, 1)
                .ok()
                .filter(|&n| n < 1 << 31)
                .map(|n| n as usize)
                .ok_or_else(wrong)
        };
        if text == "etc" {
            Ok(Self::Etc { cap: Self::ETC_CAP })
        } else if let Some(cap) = text.strip_prefix("etc:") {
            Ok(Self::Etc { cap: number(cap)? })
        } else if let Some((min, max)) = text.split_once('-') {
            let (min, max) = (number(min)?, number(max)?);
            if min <= max {
                Ok(Self::Uniform { min, max })
            } else {
                Err(wrong())
            }
        } else {
            Ok(Self::Fixed(number(text)?))
        }
    }
}
