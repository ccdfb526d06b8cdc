// SPDX-License-Identifier: Apache-2.0
//! The simulator's errors as Python's exceptions, each with the simulator's sentence.

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use senko_ssd::Error;
use senko_ssd::trace::TraceError;

create_exception!(
    senko_flash.ssd,
    SimulationError,
    PyValueError,
    "What the simulator reports: a setting that is wrong, a trace that makes no sense, a worn drive."
);

/// The exception of an error, with the engine's sentence.
pub fn exception(failure: Error) -> PyErr {
    let text = failure.to_string();
    let source = match &failure {
        Error::File { reason, .. } => reason,
        Error::Trace(trace) => match &**trace {
            TraceError::Open { source, .. } => source,
            _ => return SimulationError::new_err(text),
        },
        _ => return SimulationError::new_err(text),
    };
    match source.raw_os_error() {
        Some(number) => PyOSError::new_err((number, text)),
        None => PyOSError::new_err(text),
    }
}
