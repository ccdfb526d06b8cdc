// SPDX-License-Identifier: Apache-2.0
//! An unordered key-value store on flash that takes about two bytes of DRAM a key (paper A,
//! extended).
//!
//! ```text
//! put -> log (append order, exact index) -> sealed: sorted block, written once -> compaction: what lives moves
//! get -> log -> static maps: hash -> block -> page index: one page -> key compared
//! ```
//!
//! Goals: one device read for a get of an existing key, and hardly any for an absent one; DRAM use
//! that consists mostly of the maps; few and sequential writes; after any crash, every acknowledged
//! synced write is there, and a prefix of the others. Non-goals: order, ranges, several processes,
//! the network.
//!
//! ```
//! use senko_store::{Batch, Options, Store, WriteOptions};
//! # let folder = std::env::temp_dir().join(format!("senko-doc-front-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # let path = folder.join("data.kv");
//! let store = Store::open(&path, Options::default())?; // made if there is none
//! store.put(b"colour", b"green")?;
//! assert_eq!(store.get(b"colour")?.as_deref(), Some(&b"green"[..]));
//!
//! // A batch is there as a whole or not at all; synced, it survives a power cut.
//! let mut batch = Batch::new();
//! batch.put(b"from", b"90").put(b"to", b"110").delete(b"colour");
//! store.write(&batch, WriteOptions::synced())?;
//!
//! // Many threads may write the same key.
//! store.update(b"visits", |old| {
//!     let visits = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
//!     Some((visits + 1).to_le_bytes().to_vec())
//! })?;
//! assert_eq!(store.len()?, 3);
//! store.close()?;
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), senko_store::StoreError>(())
//! ```
//!
//! [`Store`] is the whole store.

#![warn(missing_docs)]
#![deny(unsafe_code)]

// From the top: what callers see, opening, work on several parts, the parts of an open store, what
// lies on the device.
mod store;
mod open;
mod background;
mod write;
mod read;
mod core;
mod cache;
mod disk;

mod durability;
mod error;
mod extent; // a run of pages
mod hash;
mod options;

#[doc(hidden)]
pub mod example; // common beginnings of the examples in the documentation

#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing; // for the fuzz target of whole files
#[cfg(test)]
mod fuzzing_tests;

// The parts without a policy. They are no promise to users; the laboratory measures them alone.
#[doc(hidden)]
pub mod element; // how one key, value and time lie on flash
#[doc(hidden)]
pub mod block; // sorted blocks: written once, one page a look-up
#[doc(hidden)]
pub mod index; // from a hash to a block
#[doc(hidden)]
pub mod log; // the block in append order

pub use durability::Durability;
pub use error::StoreError;
#[doc(hidden)]
pub use extent::Extent;
#[doc(hidden)]
pub use hash::{Hasher, KeyHash, SHARDS};
pub use index::IndexKind;
pub use options::{Clock, MAX_KEY_BYTES, MAX_VALUE_BYTES, Options, WriteOptions};
pub use read::scan::Scan;
pub use read::snapshot::Snapshot;
pub use read::value::{Entry, KeyVersion, Value};
pub use store::Store;
pub use store::backup::{BackupReport, GoOn};
pub use store::repair::{Loss, RepairReport, repair, repair_device};
pub use store::shrink::Shrunk;
pub use store::stats::Stats;
pub use store::verify::{Problem, VerifyReport, verify, verify_device};
pub use write::Batch;
