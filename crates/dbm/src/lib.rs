// SPDX-License-Identifier: Apache-2.0
//! A transactional, ordered DBM for flash (paper D, extended).
//!
//! ```text
//! begin (a short lock) -> commit -> order (validated without locks)
//!   -> pages in DRAM: new versions (a lock) -> log: changes, one write, one flush (a lock)
//! checkpoint -> their own segments: pages merged, translation table -> log: record -> superblock
//! get -> translation table: page -> version as of the snapshot -> DRAM, or one read
//! ```
//!
//! Goals: durable commits at the rate of the device; serializable transactions; readers that never
//! wait. After any crash, a prefix of the commits with every commit that was acknowledged as
//! synced. Non-goals: the network, more than one process that writes.
//!
//! Start with [`Database`].

#![warn(missing_docs)]
#![deny(unsafe_code)]

// From the top: what callers see, work on several parts, the parts, what lies on the device.
mod db;
mod open;
mod upkeep; // work besides commits
mod core; // the parts of an open database
mod writer; // applies commits, and makes them visible
mod commit; // the order of commits
mod pages; // pages and long values, as of a commit
mod records; // what tables hold
mod disk; // what lies where on the device

mod error;
mod growing; // arrays that grow under readers
pub mod keys;
mod options;
mod sync; // locks and atomic words

// What the fuzz targets run.
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

// Internal parts that the tests under a scheduler run.
#[doc(hidden)]
#[cfg(feature = "shuttle")]
pub use commit::scheduled;

// Common beginnings of the examples in the documentation.
#[doc(hidden)]
pub mod example;

pub use db::bulk::Batch;
pub use db::copy::{CopyReport, Lost};
pub use db::newest::Cached;
pub use db::pending::PendingCommit;
pub use db::snapshot::{Cursor, Record, Snapshot};
pub use db::transaction::Transaction;
pub use db::verify::VerifyReport;
pub use db::{Database, Stats};
pub use error::DbmError;
pub use options::{Durability, Options, Pause, Units};
pub use records::blob::MAX_VALUE_BYTES;
pub use records::changes::{MAX_KEY_BYTES, MAX_TABLE_NAME_BYTES};
pub use records::table::Table;
pub use writer::readers::OpenSnapshot;
