// SPDX-License-Identifier: Apache-2.0
//! Reports for operators: the state that a start found, why it failed, and the state that a stop
//! left.

use std::net::SocketAddr;
use std::path::PathBuf;

use senko_cache::Recovered;

/// Why a server did not start, or did not end well: one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ServerError(pub String);

impl From<std::io::Error> for ServerError {
    fn from(error: std::io::Error) -> ServerError {
        ServerError(error.to_string())
    }
}

/// The state of a server that ended cleanly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// It has a data directory.
    pub keeps: bool,
    /// Items on flash that the next start finds.
    pub flash_items: u64,
    /// Items of DRAM that were saved for it.
    pub dram_items: u64,
}

/// What was started.
#[derive(Clone, Debug)]
pub struct StartReport {
    /// TCP addresses bound.
    pub addresses: Vec<SocketAddr>,
    /// Where metrics, health and the page are served.
    pub admin: Option<SocketAddr>,
    /// Unix socket bound.
    pub unix_socket: Option<PathBuf>,
    /// Workers, each with a shard.
    pub threads: usize,
    /// `io_uring` or `posix`.
    pub backend: &'static str,
    /// Why it is posix, where nobody asked for that.
    pub fallback_reason: Option<String>,
    /// Bytes of memory planned in all.
    pub memory: u64,
    /// Bytes of that for items, index and write buffers.
    pub shard_memory: u64,
    /// Bytes of a region; 0 without flash.
    pub region: u64,
    /// Bytes of the largest value.
    pub max_item: u64,
    /// Flash in use.
    pub flash: Vec<FlashReport>,
    /// With a data directory: what the server came back with.
    pub warm: Option<Recovered>,
}

/// One flash file or device.
#[derive(Clone, Debug)]
pub struct FlashReport {
    /// Path as given.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Whether the page cache is bypassed.
    pub direct: bool,
}
