// SPDX-License-Identifier: Apache-2.0
//! Reports for operators: the state that a start found, why a start failed, and the state that a
//! stop left.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use senko_cache::Recovered;

use crate::settings::{Dialect, TlsMode};

/// Why a server did not start, or did not end well; one sentence.
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
    /// Whether it has a data directory.
    pub keeps: bool,
    /// Items on flash that the next start finds.
    pub flash_items: u64,
    /// Items of DRAM that were saved for the next start.
    pub dram_items: u64,
}

#[derive(Clone, Debug)]
pub struct StartReport {
    /// TCP addresses bound.
    pub addresses: Vec<SocketAddr>,
    /// All listeners for clients.
    pub doors: Vec<DoorReport>,
    /// Address of metrics, health check and page.
    pub admin: Option<SocketAddr>,
    /// Unix socket bound.
    pub unix_socket: Option<PathBuf>,
    /// Workers.
    pub threads: usize,
    /// Shards, which a data directory keeps whatever the number of threads.
    pub shards: usize,
    /// `io_uring` or `posix`.
    pub backend: &'static str,
    /// Why it is `posix`, if that was not requested.
    pub fallback_reason: Option<String>,
    /// Total bytes of planned memory.
    pub memory: u64,
    /// Bytes of it for items, index and write buffers.
    pub shard_memory: u64,
    /// Bytes of a region; 0 without flash.
    pub region: u64,
    /// Bytes of the largest value.
    pub max_item: u64,
    pub flash: Vec<FlashReport>,
    /// With a data directory: the state that was restored.
    pub warm: Option<Recovered>,
}

/// A listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorReport {
    /// Its address, or its path.
    pub address: String,
    /// How its connections are encrypted.
    pub tls: TlsMode,
    /// Whether each client has to show a certificate.
    pub certificate: bool,
    /// Whether clients have to give a password.
    pub password: bool,
    /// The only protocol that it serves.
    pub only: Option<Dialect>,
}

impl fmt::Display for DoorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)?;
        let tls = match self.tls {
            TlsMode::Off => None,
            _ if self.certificate => Some("TLS with client certificates"),
            _ => Some("TLS"),
        };
        let only = self.only.map(|only| match only {
            Dialect::Ascii => "ascii only",
            Dialect::Binary => "binary only",
        });
        let all = [tls, self.password.then_some("password"), only];
        let all: Vec<&str> = all.into_iter().flatten().collect();
        match all.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", all.join(", ")),
        }
    }
}

/// One flash file or device.
#[derive(Clone, Debug)]
pub struct FlashReport {
    /// Path as given.
    pub path: PathBuf,
    pub bytes: u64,
    /// Whether the page cache is bypassed.
    pub direct: bool,
}
