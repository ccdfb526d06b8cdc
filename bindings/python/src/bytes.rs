// SPDX-License-Identifier: Apache-2.0
//! Keys and values from Python: bytes unchanged, str as UTF-8, bytearray copied.

use std::borrow::Cow;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

/// The bytes of a key or value.
pub fn of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.downcast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if let Ok(text) = object.downcast::<PyString>() {
        return Ok(Cow::Borrowed(text.to_str()?.as_bytes()));
    }
    if let Ok(bytes) = object.downcast::<PyByteArray>() {
        return Ok(Cow::Owned(bytes.to_vec()));
    }
    let kind = object.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "keys and values are bytes, bytearray or str, not {kind}"
    )))
}

/// The bytes of a range's end, if it has one.
pub fn maybe(object: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<u8>>> {
    object
        .map(|object| Ok(of(object)?.into_owned()))
        .transpose()
}
