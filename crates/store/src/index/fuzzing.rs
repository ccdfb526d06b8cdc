// SPDX-License-Identifier: Apache-2.0
//! Decoding and look-ups on arbitrary bytes, for the fuzz target of encoded maps.

use super::{BlockMap, Candidates, MAX_BLOCKS, decode};
use crate::KeyHash;
use crate::hash::mix;

/// Decodes a map and, if that succeeds, looks up some keys and encodes it again.
///
/// # Panics
/// If a look-up returns something that no map may return, or the map encodes to other bytes.
pub fn map(bytes: &[u8]) {
    let Ok(map) = decode(bytes) else { return };
    let key = |n: u64| KeyHash {
        order: mix(n),
        check: mix(n ^ 1 << 63) as u32,
    };
    let keys: Vec<KeyHash> = (1..200).map(key).collect();
    let mut all = vec![Candidates::new(); keys.len()];
    map.candidates_of(&keys, &mut all);
    for found in &all {
        assert!(found.is_sorted_by(|a, b| a > b), "newest first, each once");
        assert!(found.iter().all(|block| *block < MAX_BLOCKS), "a block");
    }
    assert!(map.bytes() + 17 >= bytes.len(), "what was read is counted");
    let mut again = Vec::new();
    map.encode(&mut again);
    assert_eq!(again, bytes, "encoded as it was");
}
