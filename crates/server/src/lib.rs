// SPDX-License-Identifier: Apache-2.0
//! The memcached-compatible server over DRAM and flash.
//!
//! Bytes in, requests out ([`protocol`], no I/O); a [`session`] runs the requests of one connection
//! against the owning shard; a worker (one a thread) joins sessions, shard and event loop.

#![deny(unsafe_code)]

pub mod auth; // password files, and the check of a name and a password
pub mod admin; // metrics, health and a page for operators, on a listener of their own
pub mod clock; // the time that a server goes by
pub mod connection; // how workers name connections to each other
pub mod context; // what a session and its commands work with
mod commands; // what each command does to the shard
pub mod hot; // the keys that are looked up most
mod intake; // the memory that values take while they are coming in
pub mod latency; // how long requests took
pub mod protocol; // parsers of the three dialects, no I/O
pub mod reply; // ordered answers of one connection, some still waiting for flash
pub mod route; // requests for keys that another shard owns
pub mod server; // start, run, drain
pub mod session; // one connection's commands: parse, run, wait, answer
pub mod settings; // what the server was told, one struct
pub mod shared; // what all workers see: settings, published statistics, flush and shutdown requests
mod parked; // where a shard lies while its worker waits, for others to read from
pub mod watch; // connections that are told what happens
pub mod tls; // the server's certificate, and the cipher of one connection
pub mod worker; // one thread: event loop, shard, connections
