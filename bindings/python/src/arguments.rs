// SPDX-License-Identifier: Apache-2.0
//! Numbers, choices and texts from Python. An invalid argument is reported in one sentence with its
//! name: a `TypeError` for another kind of object, a `ValueError` for a value out of range.

use std::ops::RangeInclusive;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Characters of a value in an error.
const SHOWN: usize = 60;

/// An argument of any kind, or none.
pub type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

fn kind(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name();
    name.map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

/// A value as Python shows it. Python shows no whole numbers with thousands of digits.
fn shown(object: &Bound<'_, PyAny>) -> String {
    let Ok(text) = object.repr() else {
        return "a number of thousands of digits".to_owned();
    };
    let text = text.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// An error of an argument: `name` is its name, `is` says what it must be.
fn wrong_kind(name: &str, is: &str, object: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{name} is {is}, not {}", kind(object)))
}

fn wrong_value(name: &str, is: &str, object: &Bound<'_, PyAny>) -> PyErr {
    PyValueError::new_err(format!("{name} is {is}, not {}", shown(object)))
}

/// A whole number of a range.
pub fn whole(name: &str, range: RangeInclusive<u64>, object: &Bound<'_, PyAny>) -> PyResult<u64> {
    let number = object.extract::<u64>();
    if let Some(number) = number.as_ref().ok().filter(|n| range.contains(n)) {
        return Ok(*number);
    }
    let too_large = |error: PyErr| error.is_instance_of::<PyOverflowError>(object.py());
    let is = "a whole number";
    if number.is_err_and(|error| !too_large(error)) {
        return Err(wrong_kind(name, is, object));
    }
    let is = format!("{is} from {} to {}", range.start(), range.end());
    Err(wrong_value(name, &is, object))
}

/// A whole number that may be left out.
pub fn maybe_whole(
    name: &str,
    range: RangeInclusive<u64>,
    object: Argument<'_, '_>,
) -> PyResult<Option<u64>> {
    object.map(|object| whole(name, range, object)).transpose()
}

/// The same below 2^32.
pub fn whole_u32(name: &str, least: u32, object: &Bound<'_, PyAny>) -> PyResult<u32> {
    let range = u64::from(least)..=u64::from(u32::MAX);
    Ok(whole(name, range, object)? as u32)
}

/// A number.
pub fn number(name: &str, object: &Bound<'_, PyAny>) -> PyResult<f64> {
    object.extract().map_err(|error: PyErr| {
        match error.is_instance_of::<PyOverflowError>(object.py()) {
            true => wrong_value(name, "a number below 1.8e308", object),
            false => wrong_kind(name, "a number", object),
        }
    })
}

/// True or False.
pub fn truth(name: &str, object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object
        .extract()
        .map_err(|_| wrong_kind(name, "True or False", object))
}

/// True or False, with a default.
pub fn maybe_truth(name: &str, object: Argument<'_, '_>) -> PyResult<bool> {
    object.map_or(Ok(false), |object| truth(name, object))
}

/// A text.
pub fn text<'a>(name: &str, object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    match object.downcast::<PyString>() {
        Ok(text) => text.to_str(),
        Err(_) => Err(wrong_kind(name, "a str", object)),
    }
}

/// One of several words: its index among them.
pub fn choice(name: &str, words: &[&str], object: &Bound<'_, PyAny>) -> PyResult<usize> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (last, others) = quoted.split_last().expect("there is a word");
    let is = format!("{} or {last}", others.join(", "));
    let Ok(text) = object.downcast::<PyString>() else {
        return Err(wrong_kind(name, &is, object));
    };
    let text = text.to_str()?;
    words
        .iter()
        .position(|word| *word == text)
        .ok_or_else(|| wrong_value(name, &is, object))
}

/// The value of `durability` as its index in the order of strength.
pub fn durability(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    choice("durability", &["none", "buffered", "synced"], object)
}

/// An entry of a dictionary of settings.
pub fn entry<'py>(settings: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let missing = || PyTypeError::new_err(format!("there is no setting {name:?}"));
    settings.get_item(name)?.ok_or_else(missing)
}
