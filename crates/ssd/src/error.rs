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
    #[error("{0}")]
    Trace(Box<TraceError>),
    /// The drive can accept no more writes.
    #[error("the drive is worn out: {0}")]
    WornOut(String),
    /// A file can't be read or written.
    #[error("{path}: {reason}")]
    File {
        path: std::path::PathBuf,
        reason: std::io::Error,
    },
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
    #[error("cannot open the trace {path}: {source}")]
    Open {
        path: std::path::PathBuf,
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
        compression: Compression,
        source: std::io::Error,
    },
    /// The file ends inside a binary record.
    #[error("the trace ends inside record {record}: {got} of its {expected} bytes are there")]
    Truncated {
        record: u64,
        got: usize,
        expected: usize,
    },
    /// The content has none of the known formats.
    #[error(
        "the trace is in no known format: {why}; known are {known}; --format columns:columns=tfas names columns of another order (time, flag, address, sectors)"
    )]
    Unknown { why: String, known: String },
    /// The trace's specification contradicts the trace.
    #[error(transparent)]
    Spec(#[from] Error),
    #[error(transparent)]
    Native(#[from] senko_io::trace::TraceError),
}
