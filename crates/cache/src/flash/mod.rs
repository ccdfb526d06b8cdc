// SPDX-License-Identifier: Apache-2.0
//! The flash tier of a shard: one log per device slice, written in order, reclaimed in order.

pub(crate) mod admission; // which items leaving DRAM deserve a write, and how many bytes a second
mod dead; // what of a log no slot names any more
pub(crate) mod discards; // freed regions that are still being discarded
pub(crate) mod health; // how the device under a log does
pub(crate) mod log; // where records go: pages, write buffers, positions
mod invalid; // positions of a log that may not be read: flushed, unwritten, hidden
mod open_pages; // pages of a log that small records may go to
pub(crate) mod read; // reads in flight

/// Kinds of queue tokens, in the top byte.
const TOKEN_KIND: u32 = 56;
pub(crate) const TOKEN_READ: u64 = 1;
pub(crate) const TOKEN_WRITE: u64 = 2;
pub(crate) const TOKEN_RECLAIM: u64 = 3;
pub(crate) const TOKEN_DISCARD: u64 = 4;
pub(crate) const TOKEN_PROBE: u64 = 9;

pub(crate) fn token(kind: u64, value: u64) -> u64 {
    debug_assert!(value < 1 << TOKEN_KIND);
    kind << TOKEN_KIND | value
}

/// Kind and value of a token.
pub(crate) fn untoken(token: u64) -> (u64, u64) {
    (token >> TOKEN_KIND, token & ((1 << TOKEN_KIND) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_kind_above_its_value() {
        let largest = (1 << 56) - 1;
        assert_eq!(token(TOKEN_RECLAIM, 5), 0x0300_0000_0000_0005);
        assert_eq!(token(TOKEN_PROBE, largest), 0x09ff_ffff_ffff_ffff);
        for kind in [TOKEN_READ, TOKEN_WRITE, TOKEN_DISCARD, TOKEN_PROBE] {
            for value in [0, 1, 7 | 1 << 32, largest] {
                assert_eq!(untoken(token(kind, value)), (kind, value));
            }
        }
    }
}
