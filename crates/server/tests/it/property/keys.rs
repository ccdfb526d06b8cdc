// SPDX-License-Identifier: Apache-2.0
//! Keys and values: a key's owner and name, and values that name their origin.

use std::sync::OnceLock;

use senko_cache::{HashSeed, Key};
use senko_workload::Rng;

use super::own::MAX_ITEM;

/// The owners of key numbers: first those of each connection, then those of all.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub connections: usize,
    pub own: usize,
    /// Read and written by all; each value names its writer.
    pub registers: usize,
    /// All connections append to them.
    pub ledgers: usize,
    /// All connections increment them.
    pub counters: usize,
}

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Own,
    Register,
    Ledger,
    Counter,
}

impl Layout {
    pub fn first_register(&self) -> usize {
        self.connections * self.own
    }
    pub fn first_ledger(&self) -> usize {
        self.first_register() + self.registers
    }
    pub fn first_counter(&self) -> usize {
        self.first_ledger() + self.ledgers
    }
    pub fn keys(&self) -> usize {
        self.first_counter() + self.counters
    }
    pub fn what(&self, key: usize) -> Use {
        match key {
            _ if key < self.first_register() => Use::Own,
            _ if key < self.first_ledger() => Use::Register,
            _ if key < self.first_counter() => Use::Ledger,
            _ => Use::Counter,
        }
    }
}

/// A key of 1 to 250 bytes; the number before the dash makes it unique.
pub fn key_name(number: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    rng.next_u64();
    let mut name = format!("{number:x}").into_bytes();
    let len = if rng.chance(70) {
        rng.below(30)
    } else {
        rng.below(251)
    };
    if name.len() < len as usize {
        name.push(b'-');
        while name.len() < len as usize {
            name.push(b'!' + rng.below(94) as u8);
        }
    }
    name
}

pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |i: usize| chunk.get(i).map_or(0, |&b| u32::from(b)) << (16 - 8 * i);
        let n = at(0) | at(1) | at(2);
        for i in 0..4 {
            let digit = ALPHABET[(n >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { digit as char } else { '=' });
        }
    }
    out
}

/// Bytes of every kind; values are parts of it.
fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut rng = Rng::new(0x5eed);
        (0..1_000_003).map(|_| rng.next_u64() as u8).collect()
    })
}

/// A value that no other `id` has (if it is long enough): a header with the number, then bytes of
/// the block.
pub fn value_of(id: u64, len: usize) -> Vec<u8> {
    let block = block();
    let from =
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % (block.len() - MAX_ITEM - 4096);
    let mut value = block[from..from + len].to_vec();
    let head = format!("v{id:016x}.");
    let n = head.len().min(len);
    value[..n].copy_from_slice(&head.as_bytes()[..n]);
    value
}

/// Shortest value of a register: its header in full.
pub const REGISTER_LEN: usize = 18;

/// The number in a register's value, if the value is exactly one that was written.
pub fn id_of(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value.get(1..17)?).ok()?;
    let id = u64::from_str_radix(text, 16).ok()?;
    (value == value_of(id, value.len())).then_some(id)
}

/// The data that one connection appends to ledgers.
pub fn token(connection: usize, number: u64) -> String {
    format!("<{connection:x}:{number:08x}>")
}
pub const TOKEN: usize = 12;

/// The seed of servers whose keys should collide.
pub const KNOWN_SEED: HashSeed = HashSeed(0);

/// Pairs of neighbouring keys with the same tag, in the same segment and shard, on flash of up to
/// 64 MiB. A tag is then the lowest 30 bits of a hash, bit 31 decides between two shards, and the
/// highest seven bits select the segment.
pub fn twins() -> &'static [Vec<u8>] {
    static TWINS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    TWINS.get_or_init(|| {
        const TRIED: u32 = 1 << 23;
        const SAME: u64 = 0xfe00_0000_bfff_ffff;
        let name = |n: u32| format!("t{n:x}").into_bytes();
        let mut hashes: Vec<(u64, u32)> = (0..TRIED)
            .map(|n| (Key::new(&name(n), KNOWN_SEED).hash & SAME, n))
            .collect();
        hashes.sort_unstable();
        let pairs = hashes.windows(2).filter(|w| w[0].0 == w[1].0);
        pairs.flat_map(|w| [name(w[0].1), name(w[1].1)]).collect()
    })
}

/// Key numbers to names: arbitrary ones, or such that the most used keys have a twin, mostly of
/// another connection.
pub fn names(layout: &Layout, seed: u64, with_twins: bool) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (0..layout.keys()).map(|n| key_name(n, seed)).collect();
    if with_twins {
        for (n, name) in twins().iter().enumerate().take(50 * layout.connections) {
            names[n % layout.connections * layout.own + n / layout.connections] = name.clone();
        }
    }
    names
}
