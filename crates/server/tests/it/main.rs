// SPDX-License-Identifier: Apache-2.0
//! Tests of the server: sessions over shards in memory, the fuzz corpus, transcripts against real
//! servers.

#![allow(clippy::unwrap_used)]

/// An array of tuples, a row a line.
macro_rules! rows {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}

mod rig; // shards, devices in memory and sessions, connected as in a worker
mod session; // answers of commands, in both tiers, in pieces, in order, across shards
mod model; // random commands on sessions against a map
mod entry; // the code that the fuzz targets run
mod corpus; // the fuzz targets' seeds, run once
mod serve; // the server over real sockets: limits, bad clients, several workers, the end
mod afar; // gets that read another shard's flash
mod admin; // metrics and health on a listener of their own
mod gauge; // counts the memory that a server allocates
mod harm; // clients that take more than their share, and the effect on others
#[path = "../../../io/tests/calls/calls.rs"]
mod recorded; // power cuts and kills at system calls
mod calls; // what a power cut leaves of a data directory
mod restart; // stop and start with a data directory
mod lend; // answers that the worker of another shard sends
mod across; // answers read from the shard of another worker
mod fill; // items of a peer, under clients that change keys
mod everywhere; // commands for the whole server hold at every worker from their answer on
mod stream; // large values piece by piece, over real sockets
mod upload; // large values that go to flash as they arrive
mod faults; // flash devices that fail under a running server
mod login; // passwords, and what is served without one
mod tls; // TLS: certificates, handshakes, both tiers
mod watch; // watchers, and what connections report of themselves
mod property; // random commands of several connections over real sockets, against a model
mod transcript; // requests and exact answers, played against memcached and against senko
