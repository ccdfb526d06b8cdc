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
    /// The device failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the device said.
        source: IoError,
    },
    /// The file could not be opened, made or locked.
    #[error("{0}")]
    Open(Arc<std::io::Error>),
    /// The content of the device is not what was written there.
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
        /// Byte in the file.
        offset: u64,
    },
    /// Not a store at all.
    #[error("not a Senko store: {0}")]
    Foreign(String),
    /// Written by a later version.
    #[error("the store has format version {found}, this program knows versions up to {known}")]
    NewerVersion {
        /// In the file.
        found: u32,
        /// The newest that is known.
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
        /// What it takes.
        bytes: u64,
        /// What there is.
        limit: u64,
    },
    /// The bound on the file, or the file system, is reached and compaction can free nothing more.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// An earlier write or flush failed, or the store was opened to be read.
    #[error("the store accepts no writes: {0}")]
    ReadOnly(String),
    /// The snapshot was ended, since the space that it held was needed.
    #[error("the snapshot has ended: the space that it held was needed")]
    SnapshotExpired,
    /// The copy that a backup or a repair writes has this error, and not the store that is read.
    #[error("{}: {source}", path.display())]
    Copy {
        /// The name that the copy was to have.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<StoreError>,
    },
    /// The caller's progress callback said that the work should not continue ([`crate::GoOn`]).
    #[error("stopped, as it was asked to")]
    Stopped,
    /// A setting or an argument that cannot be honoured.
    #[error("{0}")]
    Invalid(String),
}

impl StoreError {
    /// The error as one of the copy that is written at `path`.
    pub(crate) fn in_copy(self, path: &Path) -> StoreError {
        match self {
            copy @ (StoreError::Copy { .. } | StoreError::Stopped) => copy,
            error => StoreError::Copy {
                path: path.to_path_buf(),
                source: Box::new(error),
            },
        }
    }

    /// Turns a device's error into one that says what was being done.
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
