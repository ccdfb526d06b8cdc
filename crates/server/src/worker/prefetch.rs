// SPDX-License-Identifier: Apache-2.0
//! Prefetches the memory that a round's events will read, before the events are handled one by one
//! (`senko_cache::Shard::prefetch_line`).
//!
//! Only the most frequent commands are recognised: `get` and `mg` of one key, at the start of the
//! received bytes and directly after each other. Other keys are just not prefetched, so this need
//! not be complete or exact.

use senko_cache::{Key, MAX_KEY};
use senko_io::{Event, prefetch};

use super::Worker;

/// Most keys of a round whose memory is prefetched. It must stay in the nearest caches until it is
/// used.
pub(super) const MOST_KEYS: usize = 256;
/// Bytes at the start of an arrived frame: the header and key of the first record.
const FRAME_START: usize = 256;

impl Worker {
    /// Prefetches the memory that the events of a round will read.
    pub(super) fn prefetch_events(&mut self, events: &[Event]) {
        self.coming.clear();
        for event in events {
            if let Event::Received { data, .. } = event {
                self.note_keys(data);
            }
        }
        self.ask_for_noted();
    }

    /// Prefetches the beginning of the frames of the next `reads` ended reads.
    pub(super) fn prefetch_frames(&self, reads: usize) {
        for frame in self
            .disk
            .waiting()
            .iter()
            .take(reads)
            .filter_map(|read| read.buf.as_ref())
        {
            prefetch(&frame[..FRAME_START]);
        }
    }

    /// Notes the keys of this shard in commands.
    pub(super) fn note_keys(&mut self, commands: &[u8]) {
        let (deal, me) = (self.core.shared.deal, self.index);
        let seed = self.core.shared.settings.hash_seed;
        keys(commands, |bytes| {
            let key = Key::new(bytes, seed);
            if self.coming.len() < MOST_KEYS && deal.worker_of(key.hash) == me {
                self.coming.push(key.hash);
            }
        });
    }

    /// Prefetches the memory that look-ups of the noted keys will read.
    pub(super) fn ask_for_noted(&mut self) {
        // A single key would be read right away.
        if self.coming.len() < 2 {
            return;
        }
        let shards = &mut *self.core.shard;
        self.coming
            .iter()
            .for_each(|&hash| shards.prefetch_line(hash));
        self.coming
            .iter()
            .for_each(|&hash| shards.prefetch_item(hash));
    }
}

/// Passes the first key of each `get` and `mg` at the start of `data` to `show`.
fn keys(mut data: &[u8], mut each: impl FnMut(&[u8])) {
    loop {
        let Some(rest) = data
            .strip_prefix(b"get ")
            .or_else(|| data.strip_prefix(b"mg "))
        else {
            return;
        };
        let window = &rest[..rest.len().min(MAX_KEY + 1)];
        let Some(len) = window.iter().position(|&b| b <= b' ') else {
            return;
        };
        if len == 0 {
            return;
        }
        each(&rest[..len]);
        let Some(end) = memchr::memchr(b'\n', &rest[len..]) else {
            return;
        };
        data = &rest[len + end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(data: &[u8]) -> Vec<Vec<u8>> {
        let mut keys_seen = Vec::new();
        keys(data, |key| keys_seen.push(key.to_vec()));
        keys_seen
    }

    #[test]
    fn keys_are_those_of_gets_in_a_row() {
        assert_eq!(
            seen(b"get a\r\nget bc d\r\nmg e v\r\n"),
            [&b"a"[..], b"bc", b"e"]
        );
        assert_eq!(seen(b"get a\r\nset b 0 0 1\r\nx\r\nget c\r\n"), [b"a"]);
        assert_eq!(seen(b"get abc"), [b""; 0]);
        assert_eq!(seen(b"get  a\r\n"), [b""; 0]);
        assert_eq!(
            seen(&[b"get ", &[b'x'; 251][..], b"\r\n"].concat()),
            [b""; 0]
        );
        let long = [b"get ", &[b'x'; 250][..], b"\r"].concat();
        assert_eq!(seen(&long), [&[b'x'; 250][..]]);
    }
}
