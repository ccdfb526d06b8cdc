// SPDX-License-Identifier: Apache-2.0
//! The load generator against Debian's memcached, and against a small server with intentional
//! faults.

#![allow(clippy::unwrap_used)]

mod changes; // incr, decr, append and prepend
mod fake; // a server with one fault
mod runs; // whole runs, and what their reports say
mod transfer; // dumps of servers that fail, and restores into them
