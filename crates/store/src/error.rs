// SPDX-License-Identifier: Apache-2.0
//! Errors, each with one sentence that says what was expected, what was found, and where.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use senko_io::IoError;

/// Why a call failed.
///
/// ```
/// # let store = senko_store::example::store();
/// use senko_store::StoreError;
/// let error = store.put(b"", b"value").unwrap_err();
/// assert!(matches!(error, StoreError::KeyLength(0)));
/// assert_eq!(error.to_string(), "the key has 0 bytes; keys have 1 to 65536");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
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
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// The problem.
        what: String,
        /// Byte in the file.
        offset: u64,
    },
    /// The file is not a store.
    #[error("not a Senko store: {0}")]
    Foreign(String),
    /// A later version of Senko wrote the file.
    #[error("the store has format version {found}, this program knows versions up to {known}")]
    NewerVersion {
        /// The version in the file.
        found: u32,
        /// The newest version that this build can read.
        known: u32,
    },
    /// Keys have 1 to 65,536 bytes.
    #[error("the key has {0} bytes; keys have 1 to 65536")]
    KeyLength(usize),
    /// Values have up to 1 GiB.
    #[error("the value has {0} bytes; values have at most 1073741824")]
    ValueTooLong(u64),
    /// A batch must fit into the log.
    #[error("the batch takes {bytes} bytes of the log, which has {limit}")]
    BatchTooLarge {
        /// Bytes that the batch needs.
        bytes: u64,
        /// Bytes that a batch may have.
        limit: u64,
    },
    /// The file has reached its bound, or the file system is full, and compaction can free no more
    /// space.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// An earlier write or flush failed, or the store is open for reading only.
    #[error("the store accepts no writes: {0}")]
    ReadOnly(String),
    /// The snapshot was ended, because the space that it held was needed.
    #[error("the snapshot has ended: the space that it held was needed")]
    SnapshotExpired,
    /// Other writes to the key came between each of a thousand tries of a conditional write.
    #[error("the key was written to during each of 1000 tries to change it")]
    Conflict,
    /// The copy that a backup or a repair writes has this error. The source store does not.
    #[error("{}: {source}", path.display())]
    Copy {
        /// The path of the copy.
        path: PathBuf,
        /// The copy's error.
        source: Box<StoreError>,
    },
    /// The caller's progress callback said that the work should not continue ([`crate::GoOn`]).
    #[error("stopped, as it was asked to")]
    Stopped,
    /// A setting or an argument that cannot be used.
    #[error("{0}")]
    Invalid(String),
}

impl StoreError {
    /// Says that a file could not be opened, made or locked.
    pub(crate) fn open(error: std::io::Error) -> StoreError {
        StoreError::Open(Arc::new(error))
    }

    /// Marks the error as one of the copy at `path`.
    pub(crate) fn in_copy(self, path: &Path) -> StoreError {
        match self {
            copy @ (StoreError::Copy { .. } | StoreError::Stopped) => copy,
            error => StoreError::Copy {
                path: path.to_path_buf(),
                source: Box::new(error),
            },
        }
    }

    /// Turns a device's error into one that names the failed operation.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(IoError) -> StoreError {
        move |source| StoreError::Io { what, source }
    }

    /// Damage at a byte of the file.
    pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> StoreError {
        StoreError::Damaged {
            what: what.into(),
            offset,
        }
    }
}
