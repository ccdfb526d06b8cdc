// SPDX-License-Identifier: Apache-2.0
//! What a user can get wrong, in sentences.

/// Why a simulation can't be set up or go on.
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
    Trace(Box<crate::trace::TraceError>),
    /// The drive can take no more writes.
    #[error("the drive is worn out: {0}")]
    WornOut(String),
    /// A file can't be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// An impossible geometry, with what is wrong.
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

impl From<crate::trace::TraceError> for Error {
    fn from(error: crate::trace::TraceError) -> Self {
        Self::Trace(Box::new(error))
    }
}
