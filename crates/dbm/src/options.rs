// SPDX-License-Identifier: Apache-2.0
//! Settings of an opening, and of one commit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use senko_io::trace::Recorder;

use crate::error::DbmError;

/// Called with the number of a step of validation, so that tests can stop a thread there.
#[doc(hidden)]
pub type Pause = Arc<dyn Fn(u32) + Send + Sync>;

/// Pages of an erase unit. Space is taken, and emptied, by as many neighbouring segments as are one
/// erase block of a drive, if it can be.
pub(crate) const UNIT: u64 = 256;

/// Pages of an erase unit, and how many units a database has that is written by whole units.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Units {
    pub pages: u64,
    pub least: u64,
}

impl Default for Units {
    fn default() -> Units {
        Units {
            pages: UNIT,
            least: 32,
        }
    }
}

/// Settings of an opening.
///
/// ```
/// let options = senko_dbm::Options { cache_bytes: 256 << 20, ..senko_dbm::Options::default() };
/// assert!(options.create);
/// ```
#[derive(Clone)]
pub struct Options {
    /// DRAM for pages of trees, in bytes; at least 1 MiB. Changed pages stay in DRAM until a
    /// checkpoint has written them, which is due when they are as many. Other pages have at least a
    /// quarter of these bytes in addition.
    pub cache_bytes: usize,
    /// Most bytes of a transaction: its writes, and the keys and ranges that it read.
    pub transaction_bytes: usize,
    /// Most bytes of keys that others write while a transaction is open. The database keeps them in
    /// DRAM for the comparison at its commit. If there are more, the transaction ends: its next use
    /// returns [`DbmError::SnapshotExpired`]. Snapshots keep no such keys.
    pub overlap_bytes: u64,
    /// Checkpoints keep the log that recovery would read below this many bytes, or a part of the
    /// live bytes if that is more: 27 % (from 32 MiB on 45 %), and up to 60 % if a leaf has few
    /// records. At least 256 KiB. A larger value means a longer recovery, larger files and fewer
    /// writes.
    pub log_bytes: u64,
    /// The most bytes of the file, at least 192 KiB; `None`: as many as the file system gives. A
    /// file that is larger already does not grow.
    pub max_bytes: Option<u64>,
    /// Snapshots older than this are ended when the next checkpoint begins. `None`: they hold their
    /// space as long as they are open.
    pub max_snapshot_age: Option<Duration>,
    /// Create the database if it does not exist.
    pub create: bool,
    /// Permission bits of a new file, before the process's umask; an existing file keeps its own.
    /// `None`: no other user may read them.
    pub mode: Option<u32>,
    /// Threads that write checkpoints and clean: 0 or 1. With 0, a commit that finds work due does
    /// it itself.
    pub threads: usize,
    /// Records what reaches the device.
    pub recorder: Option<Arc<Recorder>>,
    /// For tests: smaller ones than a drive has.
    #[doc(hidden)]
    pub units: Units,
    /// For tests: called at each step of validation.
    #[doc(hidden)]
    pub pause: Option<Pause>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache_bytes: 64 << 20,
            transaction_bytes: 64 << 20,
            overlap_bytes: 64 << 20,
            log_bytes: 512 << 10,
            max_bytes: None,
            max_snapshot_age: None,
            create: true,
            mode: None,
            threads: 1,
            recorder: None,
            units: Units::default(),
            pause: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("cache_bytes", &self.cache_bytes)
            .field("transaction_bytes", &self.transaction_bytes)
            .field("overlap_bytes", &self.overlap_bytes)
            .field("log_bytes", &self.log_bytes)
            .field("max_bytes", &self.max_bytes)
            .field("max_snapshot_age", &self.max_snapshot_age)
            .field("create", &self.create)
            .field("mode", &self.mode)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Options {
    pub(crate) fn checked(self) -> Result<Options, DbmError> {
        let invalid = |text: String| Err(DbmError::Invalid(text));
        if self.cache_bytes < 1 << 20 {
            return invalid(format!(
                "the cache has at least 1048576 bytes, not {}",
                self.cache_bytes
            ));
        }
        if self.log_bytes < 256 << 10 {
            return invalid(format!(
                "log_bytes is at least 262144, not {}",
                self.log_bytes
            ));
        }
        if let Some(most) = self.max_bytes.filter(|most| *most < LEAST_BYTES) {
            return invalid(format!("max_bytes is at least {LEAST_BYTES}, not {most}"));
        }
        if self.threads > 1 {
            return invalid(format!("threads is 0 or 1, not {}", self.threads));
        }
        Ok(self)
    }
}

/// The bytes of an empty database.
pub(crate) const LEAST_BYTES: u64 = 192 << 10;

/// What a commit waits for.
///
/// ```
/// # let db = senko_dbm::example::database();
/// # let table = db.create_table("t")?;
/// let mut tx = db.begin();
/// tx.put(&table, b"colour", b"green")?;
/// tx.commit(senko_dbm::Durability::Synced)?;
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the commit is in memory, and is written when enough has gathered. A killed process
    /// may lose it.
    None,
    /// The commit was handed to the system: a killed process loses nothing, a power cut may.
    Buffered,
    /// The commit is durable on the device. Commits that wait at the same time share a flush.
    #[default]
    Synced,
}
