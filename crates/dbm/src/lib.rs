// SPDX-License-Identifier: Apache-2.0
//! A transactional, ordered DBM for flash (paper D, extended).
//!
//! ```text
//! commit -> order (validated without locks) -> pages in DRAM (new versions) -> log: changes, one write, one flush
//! checkpoint -> log: pages merged, translation table -> superblock
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

// The database, as its callers see it.
mod db;
mod options;
mod snapshot;
mod newest; // a single key as of now
mod transaction;
mod pending;
mod bulk;
pub mod keys;
mod images;
mod verify;
mod copy;
mod salvage;

// A transaction's path: what it did, its place in the order, into the trees, to the device.
mod ranges; // sets of key ranges
mod writes;
mod reads;
mod merge; // a transaction's view: the snapshot, and its own writes over it
mod commit;
mod turn; // others wait for a transaction
mod fairness; // who failed often takes a turn
mod writer; // applies commits, and makes them visible
mod old; // what only open snapshots need
mod changed; // what the next checkpoint must write
mod backlog; // commits that are not in the log yet
mod dirty; // pages that changed, oldest first
mod tree;
mod touched; // what a batch changes there
mod room; // free pages that a commit needs, and how a full database gets them
mod admit; // makes sure that a commit has room
mod submit; // a commit from its admission until it is durable
mod flush;
mod progress; // how far the commits came
mod latch; // why writing has ended
mod group;

// Work besides commits, and opening.
mod checkpoint;
mod record; // what a checkpoint says
mod maps; // what the newest checkpoint names
mod cleaner;
mod shrink; // gives storage back
mod sink; // where pages are written
mod maintain;
mod signal; // what the maintenance thread is asked to do
mod catch_up; // leaves that a checkpoint did not write
mod open;

// The parts: pages, the translation table, the log, space.
mod core;
mod pages; // pages and long values, as of a commit
mod lookup; // the way down a tree
mod readers; // the newest commit, and the open snapshots
mod sync; // locks and atomic words
mod growing; // arrays that grow under readers
mod mapping;
mod node;
mod spare; // page buffers without an owner
mod resident; // which pages' bytes leave DRAM next
mod inner; // an inner page as numbers, with the places of its leaves
mod log;
mod tail;
mod mark; // how far the log reached
mod entry;
mod changes;
mod blob; // long values
mod table;
mod codec;
mod space;
mod superblock;
mod error;

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

pub use blob::MAX_VALUE_BYTES;
pub use bulk::Batch;
pub use changes::MAX_TABLE_NAME_BYTES;
pub use copy::{CopyReport, Lost};
pub use db::{Database, Stats};
pub use error::DbmError;
pub use newest::Cached;
pub use node::MAX_KEY_BYTES;
pub use options::{Durability, Options, Pause};
pub use pending::PendingCommit;
pub use readers::OpenSnapshot;
pub use snapshot::{Cursor, Record, Snapshot};
pub use table::Table;
pub use transaction::Transaction;
pub use verify::VerifyReport;
