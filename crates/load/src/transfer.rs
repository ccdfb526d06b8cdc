// SPDX-License-Identifier: Apache-2.0
//! The items of a running server into a dump, and back, or from one server into another. Called by
//! `senko dump`, `senko restore` and a server's fill; works with any server that has memcached's
//! protocol.
//!
//! ```text
//!   dump:     server -- lru_crawler metadump --> keys --+
//!             server <-- mg KEY v t f .. ---------------+--> values --> Writer --> blocks
//!   restore:  blocks --> Reader --> set, add or ms --> server
//!   fill:     as dump, with values --> add or ms --> server
//! ```
//!
//! Keys are listed on one connection and values are read on another, a few at a time. The list of a
//! memcached goes through a file first. So all keys are never in memory, nor is a whole value.
//!
//! What always holds:
//! - A block is used only after its checksum was checked, and a dump without its last block is
//!   never taken for a whole one (`docs/formats/dump.md`).
//! - An item is stored as a whole or not at all: a server stores a value after its last byte.

mod client; // a connection that waits for its answers
mod dump; // from a server into a dump
mod fill; // from a server into another
mod format; // the blocks and records of a dump
mod pace; // bytes a second
mod restore; // from a dump into a server
mod spool; // the list of a memcached's keys, in a file

use std::io;
use std::time::Duration;

pub use dump::{Dumped, Source};
pub use fill::{Filled, fill};
pub use format::{MAGIC, Reader, Totals, Writer};
pub use restore::{Restored, Sink, check};

use crate::settings::{Login, Target};
use crate::tls::TlsOptions;

/// A server, and how to reach it.
#[derive(Clone, Debug)]
pub struct Peer {
    pub target: Target,
    /// How connections are encrypted; `None`: not encrypted.
    pub tls: Option<TlsOptions>,
    /// The user of each connection; `None`: connections do not log in.
    pub login: Option<Login>,
    /// How long to wait for the server to send or take anything.
    pub timeout: Duration,
}

/// Why a dump or a restore ended early, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The server refused, failed or left.
    #[error("{0}")]
    Server(String),
    /// What was read is not a whole dump.
    #[error("{0}")]
    Damaged(String),
    /// The dump could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The caller's flag was set.
    #[error("interrupted")]
    Stopped,
}

/// An item without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub key: Vec<u8>,
    /// Whether the key was given in base64, as the meta protocol allows.
    pub binary_key: bool,
    /// The client's flags.
    pub flags: u64,
    /// Unix seconds; 0: never.
    pub expiry: u32,
    /// Bytes of the value.
    pub len: u32,
}

/// What takes the items of a server.
trait Take {
    /// Whether each of these keys need not be read; nothing: all are to be.
    fn unwanted(&mut self, _keys: &[&[u8]]) -> Result<Vec<bool>, TransferError> {
        Ok(Vec::new())
    }
    /// The next item; its value follows.
    fn item(&mut self, item: &Head) -> Result<(), TransferError>;
    /// The next bytes of its value.
    fn value(&mut self, part: &[u8]) -> Result<(), TransferError>;
}

/// Longest key, in bytes.
pub(crate) const MAX_KEY: usize = 250;

/// Whether a key can be a word of a line. Others have to be sent in base64.
fn is_word(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
}

fn unix_now() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_secs().try_into().unwrap_or(u32::MAX))
}

/// A key as a text for people.
fn shown(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
