// SPDX-License-Identifier: Apache-2.0
//! The errors of the crate, in sentences for users.

use senko_workload::Compression;

/// Why a simulation can't be set up or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The flash can't have this shape.
    #[error("impossible geometry: {0}")]
    Geometry(String),
    /// A profile is damaged or contradicts itself.
    #[error("{0}")]
    Profile(String),
    /// A specification such as `bast:log-blocks=16` can't be understood.
    #[error("{0}")]
    Spec(String),
    /// A request does not fit the drive.
    #[error("{0}")]
    Request(String),
    /// A trace can't be read.
    #[error("{0}")]
    Trace(Box<TraceError>),
    /// The drive can accept no more writes.
    #[error("the drive is worn out: {0}")]
    WornOut(String),
    /// A file can't be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The path.
        path: std::path::PathBuf,
        /// The reason. It is a part of the sentence, so no `source`.
        reason: std::io::Error,
    },
}

impl Error {
    /// An impossible geometry, with the reason.
    pub fn geometry(what: impl Into<String>) -> Self {
        Self::Geometry(what.into())
    }

    /// A profile with something wrong.
    pub fn profile(what: impl Into<String>) -> Self {
        Self::Profile(what.into())
    }

    /// A specification with something wrong.
    pub fn spec(what: impl Into<String>) -> Self {
        Self::Spec(what.into())
    }
}

impl From<TraceError> for Error {
    fn from(error: TraceError) -> Self {
        Self::Trace(Box::new(error))
    }
}

/// Why a trace cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open the trace {path}: {source}")]
    Open {
        /// The path.
        path: std::path::PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The stream ends early: a disk fails, or an archive is damaged or truncated.
    #[error("the trace breaks off after {unit} {after} ({bytes} bytes, {compression}): {source}")]
    Broken {
        /// `line` or `record`.
        unit: &'static str,
        /// The number of the last whole one.
        after: u64,
        /// Bytes up to there, after decompression.
        bytes: u64,
        /// The compression.
        compression: Compression,
        /// The source's error.
        source: std::io::Error,
    },
    /// The file ends inside a binary record.
    #[error("the trace ends inside record {record}: {got} of its {expected} bytes are there")]
    Truncated {
        /// Number of the record, from 1.
        record: u64,
        /// Bytes of it.
        got: usize,
        /// Bytes of a record.
        expected: usize,
    },
    /// The content has none of the known formats.
    #[error(
        "the trace is in no known format: {why}; known are {known}; --format columns:columns=tfas names columns of another order (time, flag, address, sectors)"
    )]
    Unknown {
        /// What was found.
        why: String,
        /// The names of the known formats.
        known: String,
    },
    /// The trace's specification contradicts the trace.
    #[error(transparent)]
    Spec(#[from] Error),
    /// Senko's own trace is damaged.
    #[error(transparent)]
    Native(#[from] senko_io::trace::TraceError),
}
