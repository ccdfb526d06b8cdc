// SPDX-License-Identifier: Apache-2.0
//! Key number to key bytes, and back.
//!
//! Key numbers come from [`crate::popularity`]; the bytes go into requests. A key is
//!
//! ```text
//!   prefix | number in decimal | filler: a lower-case letter, then letters and digits derived from the number
//!   user     1234                kq2mw0z81...
//! ```
//!
//! The digits end at the first letter, so the number can be read back and two numbers never share a
//! key. The filler differs from key to key, so a server that compares only a part of the key is
//! detected.
//!
//! Always holds: a key has 1 to 250 bytes, none of them blank or a control character (memcached's
//! rules).

use std::fmt;
use std::str::FromStr;

use crate::rng::mix64;
use crate::{SpecError, etc, units};

/// The longest key, in bytes (memcached's limit).
pub const MAX_KEY_LEN: usize = 250;
/// The longest prefix, which leaves room for a number of 20 digits.
pub const MAX_PREFIX_LEN: usize = MAX_KEY_LEN - 20;

const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz01";

/// The length of keys. Written as a number of bytes, `etc`, or `shortest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    /// Every key has this many bytes.
    Fixed(usize),
    /// Facebook's ETC key sizes, a property of the key number. A key whose number needs more bytes
    /// than its size gets them; with a prefix of 5 bytes and a million keys this happens to one key
    /// in a million.
    Etc,
    /// Prefix and number, no filler.
    Shortest,
}

impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(len) => write!(f, "{len}"),
            Self::Etc => write!(f, "etc"),
            Self::Shortest => write!(f, "shortest"),
        }
    }
}

impl FromStr for KeyShape {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "etc" => Ok(Self::Etc),
            "shortest" => Ok(Self::Shortest),
            _ => units::size(text, 1)
                .map(|bytes| Self::Fixed(bytes as usize))
                .map_err(|_| {
                    SpecError::new(format!(
                        "\"{text}\" is not a key size: use a number of bytes, etc or shortest"
                    ))
                }),
        }
    }
}

/// The keys of a benchmark: a prefix, a shape, and the numbers `0..keys`.
#[derive(Clone, Debug)]
pub struct KeySpace {
    prefix: Vec<u8>,
    shape: KeyShape,
}

impl KeySpace {
    /// Keys with numbers up to `largest`, after `prefix`.
    ///
    /// # Errors
    /// If the prefix is longer than [`MAX_PREFIX_LEN`] or has a byte that memcached keys must not
    /// have, or if a fixed size is above [`MAX_KEY_LEN`] or too small for prefix and number.
    pub fn new(prefix: &str, shape: KeyShape, largest: u64) -> Result<Self, SpecError> {
        if prefix.len() > MAX_PREFIX_LEN {
            return Err(SpecError::new(format!(
                "a key prefix may have {MAX_PREFIX_LEN} bytes, and this one has {}",
                prefix.len()
            )));
        }
        if prefix.bytes().any(|byte| byte <= b' ' || byte == 0x7F) {
            return Err(SpecError::new(
                "a key prefix may not hold blanks or control characters",
            ));
        }
        if let KeyShape::Fixed(len) = shape {
            let needed = prefix.len() + decimal_len(largest);
            if len > MAX_KEY_LEN || len < needed {
                return Err(SpecError::new(format!(
                    "keys of {len} bytes do not fit: the prefix and the number {largest} need {needed} bytes, \
                     and {MAX_KEY_LEN} is the limit"
                )));
            }
        }
        Ok(Self {
            prefix: prefix.as_bytes().to_vec(),
            shape,
        })
    }

    /// The length of key `key_id`, in bytes.
    #[inline]
    pub fn key_len(&self, key_id: u64) -> usize {
        let needed = self.prefix.len() + decimal_len(key_id);
        match self.shape {
            KeyShape::Fixed(len) => len.max(needed),
            KeyShape::Etc => etc::key_len(key_id).max(needed),
            KeyShape::Shortest => needed,
        }
    }

    /// Writes key `key_id` to the front of `out` and returns the part that it takes.
    #[inline]
    pub fn write<'a>(&self, key_id: u64, out: &'a mut [u8; MAX_KEY_LEN]) -> &'a [u8] {
        let len = self.key_len(key_id);
        let digits_from = self.prefix.len();
        let filler_from = digits_from + decimal_len(key_id);
        out[..digits_from].copy_from_slice(&self.prefix);
        let mut rest = key_id;
        for byte in out[digits_from..filler_from].iter_mut().rev() {
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let mut word = key_id;
        for chunk in out[filler_from..len].chunks_mut(8) {
            word = mix64(word);
            for (byte, bits) in chunk.iter_mut().zip(word.to_le_bytes()) {
                *byte = LETTERS[usize::from(bits & 63)];
            }
        }
        if filler_from < len {
            out[filler_from] = b'a' + (word % 26) as u8;
        }
        &out[..len]
    }

    /// Appends key `key_id` to `out`, which grows only when it lacks the capacity.
    pub fn append(&self, key_id: u64, out: &mut Vec<u8>) {
        let mut buffer = [0; MAX_KEY_LEN];
        out.extend_from_slice(self.write(key_id, &mut buffer));
    }

    /// The number in `key`, or `None` if these bytes are not exactly a key of this space.
    pub fn parse(&self, key: &[u8]) -> Option<u64> {
        let rest = key.strip_prefix(self.prefix.as_slice())?;
        let mut key_id = 0u64;
        for &byte in rest.iter().take_while(|byte| byte.is_ascii_digit()) {
            key_id = key_id
                .checked_mul(10)?
                .checked_add(u64::from(byte - b'0'))?;
        }
        let mut buffer = [0; MAX_KEY_LEN];
        (self.write(key_id, &mut buffer) == key).then_some(key_id)
    }
}

#[inline]
fn decimal_len(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}
