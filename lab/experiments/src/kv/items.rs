// SPDX-License-Identifier: Apache-2.0
//! Converts key numbers to keys and values.
//!
//! A key is twice its number, as 8 bytes, big-endian; the odd numbers between are absent keys. So
//! engines that keep keys in order must search, and cannot recognise an absent key by the key
//! ranges of their files. Values are those of [`senko_workload::value`]: they name key and version,
//! and every byte can be checked.

use anyhow::{Result, anyhow, ensure};
use senko_workload::value::{check_value, fill_value};
use serde::{Deserialize, Serialize};

pub const KEY_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemShape {
    /// Bytes of a value; at least 8, so that it names its key.
    pub value_bytes: usize,
}

impl ItemShape {
    pub fn bytes(&self) -> u64 {
        (KEY_BYTES + self.value_bytes) as u64
    }

    /// Fills `value` for a key number.
    pub fn value(&self, key: u64, version: u32, value: &mut Vec<u8>) {
        value.resize(self.value_bytes, 0);
        fill_value(value, key, version);
    }

    /// Checks an engine's value and returns its version. With `whole` it compares byte by byte,
    /// otherwise only the length, so that checking takes no processor time from the engine.
    pub fn check(&self, key: u64, value: &[u8], whole: bool) -> Result<u32> {
        ensure!(
            value.len() == self.value_bytes,
            "key {key} has a value of {} bytes, and {} were put",
            value.len(),
            self.value_bytes
        );
        if whole {
            return check_value(value, key).map_err(|wrong| anyhow!("{wrong}"));
        }
        let version: [u8; 4] = value[..4].try_into().expect("a value has at least 8 bytes");
        Ok(u32::from_le_bytes(version))
    }
}

pub fn present(number: u64) -> [u8; KEY_BYTES] {
    (number * 2).to_be_bytes()
}

/// A key next to that of `number`, which is never put.
pub fn absent(number: u64) -> [u8; KEY_BYTES] {
    (number * 2 + 1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_order_of_numbers_and_leave_room() {
        assert!(present(1) < absent(1) && absent(1) < present(2));
        assert!(present(255) < present(256));
    }

    #[test]
    fn a_wrong_value_is_seen() {
        let shape = ItemShape { value_bytes: 100 };
        let mut value = Vec::new();
        shape.value(7, 3, &mut value);
        assert_eq!(shape.check(7, &value, true).unwrap(), 3);
        assert_eq!(shape.check(7, &value, false).unwrap(), 3);
        assert!(shape.check(8, &value, true).is_err());
        value[60] ^= 1;
        assert!(shape.check(7, &value, true).is_err());
        assert!(shape.check(7, &value[..99], false).is_err());
    }
}
