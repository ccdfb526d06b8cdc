// SPDX-License-Identifier: Apache-2.0
//! The meaning of 0 for each option that accepts it as a number.
//!
//! The binary's own tests check that no option is missing here, and `super` runs those that are
//! refused.

/// What 0 means.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code)] // Each of the two users reads one part.
pub enum Zero {
    /// An ordinary number.
    Plain,
    /// The meaning that the option's help gives.
    Said(&'static str),
    /// These arguments, followed by the option and 0, are refused. The parser accepts 0, since the
    /// library has the error message.
    Refused(&'static str),
}

use Zero::{Plain, Refused, Said};

const LOAD: &str = "load --server 127.0.0.1:1";
const PLAN: &str = "plan --items 10k";
const ENGINE: &str = "plan --items 100 --engine dbm";
const RATIOS: &str = "plan --ratios";
const SERVE: &str = "serve -p 0 --no-flash";
const STORE: &str = "store put new.kv key value";
const BENCH: &str = "store bench new.kv --keys 10";
const COMMITS: &str = "dbm bench new.db";

/// The beginning of a command's name, an option, and the meaning of 0.
pub const ZEROS: &[(&str, &str, Zero)] = &[
    ("senko dbm bench", "records", Refused(COMMITS)),
    ("senko dbm bench", "transactions", Refused(COMMITS)),
    ("senko device", "size", Refused("device sim:x25-m")),
    ("senko load", "bytes", Refused(LOAD)),
    ("senko load", "connections", Refused(LOAD)),
    ("senko load", "expect-found", Plain),
    ("senko load", "expire", Said("0 never")),
    ("senko load", "first-key", Plain),
    ("senko load", "generation", Refused(LOAD)),
    ("senko load", "get-ratio", Plain),
    ("senko load", "keys", Refused(LOAD)),
    ("senko load", "last-key", Plain),
    ("senko load", "max-failed", Plain),
    ("senko load", "multi-get", Refused(LOAD)),
    ("senko load", "pipeline", Refused(LOAD)),
    ("senko plan", "bytes", Refused(PLAN)),
    ("senko plan", "cache", Refused(ENGINE)),
    ("senko plan", "drive", Refused(ENGINE)),
    ("senko plan", "dram-hit", Said("0 leaves them all to flash")),
    ("senko plan", "items", Refused("plan")),
    ("senko plan", "machine-dram", Refused(RATIOS)),
    ("senko plan", "machine-flash", Refused(RATIOS)),
    ("senko plan", "zipf", Said("0 draws all items alike")),
    ("senko serve", "connections", Refused(SERVE)),
    ("senko serve", "flash-rated-writes", Refused(SERVE)),
    ("senko serve", "idle-timeout", Said("0: never")),
    ("senko serve", "listen-backlog", Said("0 is the least")),
    ("senko serve", "max-item-size", Refused(SERVE)),
    ("senko serve", "max-reqs-per-event", Refused(SERVE)),
    ("senko serve", "memory", Refused(SERVE)),
    ("senko serve", "port", Said("0 takes any free port")),
    ("senko serve", "region", Refused(SERVE)),
    ("senko serve", "spin-us", Said("0 to sleep at once")),
    (
        "senko serve",
        "stall",
        Said("0: it is closed at the next look"),
    ),
    ("senko serve", "stream-over", Refused(SERVE)),
    ("senko serve", "threads", Refused(SERVE)),
    ("senko ssd", "buffer-size", Said("0 beside --buffer none")),
    (
        "senko ssd transfer",
        "channel-us",
        Said("0 for a channel that costs no time"),
    ),
    (
        "senko ssd transfer",
        "serial-us",
        Said("0 for one that costs no time"),
    ),
    ("senko ssd transfer", "think-us", Plain),
    ("senko store bench", "absent", Plain),
    ("senko store bench", "cache", Said("0 turns the cache off")),
    ("senko store bench", "get-ratio", Plain),
    ("senko store bench", "key-size", Refused(BENCH)),
    ("senko store bench", "operations", Said("0 only loads")),
    ("senko store bench", "value-size", Plain),
    ("senko store get", "at", Plain),
    ("senko store", "block-size", Refused(STORE)),
    ("senko store", "fingerprint-bits", Refused(STORE)),
    ("senko store", "inline-max", Refused(STORE)),
    ("senko store", "keep-versions", Refused(STORE)),
    ("senko store", "max-size", Refused(STORE)),
    ("senko store", "page-size", Refused(STORE)),
    ("senko store", "space-ratio", Refused(STORE)),
    ("senko", "seed", Plain),
];
