// SPDX-License-Identifier: Apache-2.0
//! The memcached-compatible server over DRAM and flash.
//!
//! [`protocol`] parses bytes into requests and does no I/O. A [`session`] runs the requests of one
//! connection against the owning shard. A worker (one per thread) joins sessions, shard and event
//! loop.

#![deny(unsafe_code)]

pub mod afar; // reads of other shards' flash
pub mod auth; // password files, and the check of a name and a password
pub mod admin; // metrics, health and a page for operators, on a separate listener
pub mod clock; // the server's clock
pub mod connection; // names of connections between workers
pub mod context; // the context of a session and its commands
mod commands; // the effect of each command on the shard
pub(crate) mod ctl; // the socket for the operator
mod counters; // the counters of stats and of /metrics
pub mod fill; // items of another server are stored here: whether, and how far
mod filler; // the thread that does it
pub mod hot; // the keys that are looked up most
mod intake; // the memory for arriving values
mod operator; // the threads that answer the operator
pub mod latency; // how long requests took
pub mod protocol; // parsers of the three dialects, no I/O
pub mod reply; // ordered answers of one connection, some of which still wait for flash
pub mod route; // requests for keys that another shard owns
pub mod server; // start, run, drain
mod seldom; // log lines that clients can cause
pub mod session; // one connection's commands: parse, run, wait, answer
pub mod settings; // all settings, in one struct
pub mod shards; // the shards of a worker, and how shards are dealt to workers
pub mod shared; // the state of all workers: settings, statistics, flush and shutdown requests
mod small_file; // reads certificates and passwords, and never waits long
pub mod parked; // the place of a worker's shards while it waits, where other workers can read it
pub mod watch; // connections of watchers
pub mod window; // the pieces of a large value that are read ahead
pub mod tls; // the server's certificate, and the cipher of one connection
mod tuning; // how items go to flash, as it is in force now
pub mod worker; // one thread: event loop, shard, connections
