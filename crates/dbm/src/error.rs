// SPDX-License-Identifier: Apache-2.0
//! Errors, each with one sentence that says what was expected, what was found, and where.

use std::sync::Arc;

use senko_io::IoError;

/// Why a call failed.
///
/// ```
/// # let db = senko_dbm::example::database();
/// use senko_dbm::DbmError;
/// assert!(matches!(db.table("missing"), Err(DbmError::NoTable(_))));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbmError {
    /// Another transaction changed something that this one had read. Nothing of this one was done;
    /// run it again.
    #[error("the transaction conflicts with another; run it again")]
    Conflict,
    /// The device returned an error.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The device's error.
        source: IoError,
    },
    /// The file could not be opened, made or locked.
    #[error("{0}")]
    Open(Arc<std::io::Error>),
    /// The device returned other bytes than were written.
    #[error("damaged{}: {what}", place(*.offset))]
    Damaged {
        /// The problem.
        what: String,
        /// Byte of the device; `u64::MAX`: what is missing has no place.
        offset: u64,
    },
    /// The file is not a database.
    #[error("not a Senko database: {0}")]
    Foreign(String),
    /// A later version wrote the file.
    #[error("the database has format version {found}, this program knows versions up to {known}")]
    NewerVersion {
        /// The version in the file.
        found: u32,
        /// The newest version that this build can read.
        known: u32,
    },
    /// An earlier version wrote the file.
    #[error(
        "the database has format version {found}, this program knows version {known}: dump it with \
         the program that wrote it, and load the dump here"
    )]
    OlderVersion {
        /// The version in the file.
        found: u32,
        /// The version that this build can read.
        known: u32,
    },
    /// There is no table of that name.
    #[error("there is no table {0:?}")]
    NoTable(String),
    /// A key already exists.
    #[error("the key is there already")]
    Exists,
    /// A record of an append or of a bulk load does not come after all earlier ones.
    #[error("the key of record {0} does not come after all keys before it")]
    Unsorted(u64),
    /// Keys have up to 1,024 bytes.
    #[error("the key has {0} bytes; keys have at most 1024")]
    KeyTooLong(usize),
    /// Values have up to 1 GiB.
    #[error("the value has {0} bytes; values have at most 1073741824")]
    ValueTooLong(usize),
    /// The transaction exceeds `Options::transaction_bytes`.
    #[error("the transaction takes {bytes} bytes; the limit is {limit}")]
    TransactionTooLarge {
        /// Bytes that it needs.
        bytes: usize,
        /// Bytes that it may have.
        limit: usize,
    },
    /// Neither the device nor the file system has room.
    #[error("no space left for {0} pages; nothing was changed")]
    NoSpace(u64),
    /// An earlier write or flush failed, or the database is open for reading only.
    #[error("the database accepts no commits: {0}")]
    ReadOnly(String),
    /// The snapshot was older than `Options::max_snapshot_age` when its space was needed. Or others
    /// wrote more than `Options::overlap_bytes` of keys while the transaction was open.
    #[error("the snapshot has ended: it was open for too long")]
    SnapshotExpired,
    /// A setting or an argument that cannot be used.
    #[error("{0}")]
    Invalid(String),
}

impl DbmError {
    /// The system's error number, for callers that know errors only by number.
    ///
    /// ```
    /// # let folder = senko_dbm::example::Folder::new();
    /// use senko_dbm::{Database, Options};
    /// let error = Database::open_to_read(&folder.path().join("none"), Options::default());
    /// let number = error.unwrap_err().errno().unwrap();
    /// assert_eq!(std::io::Error::from_raw_os_error(number).kind(), std::io::ErrorKind::NotFound);
    /// ```
    pub fn errno(&self) -> Option<i32> {
        match self {
            DbmError::Io { source, .. } => senko_io::error_number(&(*source).into()),
            DbmError::Open(error) => senko_io::error_number(error),
            _ => None,
        }
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(IoError) -> DbmError {
        move |source| DbmError::Io { what, source }
    }

    /// Damage that has no place, since the file has nothing of it.
    pub(crate) fn missing(what: impl Into<String>) -> DbmError {
        DbmError::damaged(u64::MAX, what)
    }

    pub(crate) fn damaged(page: u64, what: impl Into<String>) -> DbmError {
        DbmError::Damaged {
            what: what.into(),
            offset: page.saturating_mul(senko_io::PAGE_SIZE as u64),
        }
    }
}

fn place(offset: u64) -> String {
    match offset {
        u64::MAX => String::new(),
        offset => format!(" at byte {offset}"),
    }
}
