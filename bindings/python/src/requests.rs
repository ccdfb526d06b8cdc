// SPDX-License-Identifier: Apache-2.0
//! Requests that a program in Python makes, as a workload of the simulator (called by `ssd.rs`). An
//! invalid item is an error with its number, counted from 0 as `enumerate` does.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PySequence, PyString};
use senko_ssd::run::Reading;
use senko_ssd::source::Workload;
use senko_ssd::{Error, Op, Request};

use crate::simulation_error::{SimulationError, exception};

/// Items between two checks for Ctrl-C.
const LOOK_EVERY: usize = 1 << 12;
/// The latest time, in seconds: 64 bits of nanoseconds.
const MOST_SECONDS: f64 = 1.8e10;

/// A workload by its name, or as the requests themselves.
#[derive(FromPyObject)]
pub enum Given<'py> {
    Name(String),
    Requests(Bound<'py, Requests>),
}

/// The same, for a thread without Python.
pub enum Source {
    Name(String),
    Requests(Box<Workload>),
}

impl From<Given<'_>> for Source {
    fn from(given: Given<'_>) -> Source {
        match given {
            Given::Name(name) => Source::Name(name),
            Given::Requests(requests) => Source::Requests(Box::new(requests.get().0.clone())),
        }
    }
}

impl Source {
    /// The workload, read with the options of `reading`.
    pub fn open(self, reading: &Reading) -> Result<Workload, Error> {
        match self {
            Source::Name(name) => reading.open(&name),
            Source::Requests(workload) => reading.of(*workload),
        }
    }
}

/// Requests of a workload; equal requests have equal results.
#[pyclass(module = "senko_flash._native", frozen)]
pub struct Requests(Workload);

#[pymethods]
impl Requests {
    #[new]
    fn new(py: Python<'_>, items: &Bound<'_, PyAny>) -> PyResult<Requests> {
        let mut requests = Vec::new();
        for (nth, item) in items.try_iter()?.enumerate() {
            let item = item?;
            let request = request(&item).map_err(|error| at(py, nth, &error))?;
            requests.push(request);
            if nth % LOOK_EVERY == 0 {
                py.check_signals()?;
            }
        }
        Workload::given(requests).map(Requests).map_err(exception)
    }
}

/// The same kind of error, with the number of the item.
fn at(py: Python<'_>, nth: usize, error: &PyErr) -> PyErr {
    let text = format!("request {nth}: {}", error.value(py));
    match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(text),
        false => SimulationError::new_err(text),
    }
}

fn wrong(text: &str) -> PyErr {
    SimulationError::new_err(text.to_owned())
}

/// The request of an item: time, operation, offset, bytes, and the device if there are several.
fn request(item: &Bound<'_, PyAny>) -> PyResult<Request> {
    let shape = || {
        PyTypeError::new_err("it is (time, op, offset, bytes) or (time, op, offset, bytes, device)")
    };
    let fields = item.downcast::<PySequence>().map_err(|_| shape())?;
    let count = fields.len()?;
    if item.is_instance_of::<PyString>() || !(4..=5).contains(&count) {
        return Err(shape());
    }
    let seconds: f64 = fields
        .get_item(0)?
        .extract()
        .map_err(|_| PyTypeError::new_err("its time is a number of seconds"))?;
    if !(0.0..=MOST_SECONDS).contains(&seconds) {
        return Err(wrong("its time is 0 s or more, and below 18000000000 s"));
    }
    let op = op(&fields.get_item(1)?)?;
    let whole = |nth: usize, what: &str| {
        let field = fields.get_item(nth)?;
        field.extract::<u64>().map_err(|_| {
            PyTypeError::new_err(format!("its {what} must be a whole number below 2^64"))
        })
    };
    let (offset, bytes) = (whole(2, "offset")?, whole(3, "bytes")?);
    let device = match count {
        5 => u32::try_from(whole(4, "device")?).map_err(|_| wrong("its device is below 2^32"))?,
        _ => 0,
    };
    let is_flush = op == Op::Flush;
    if is_flush && (offset, bytes) != (0, 0) {
        return Err(wrong("a flush has offset 0 and 0 bytes"));
    }
    if !is_flush && bytes == 0 {
        return Err(wrong("it has 0 bytes"));
    }
    if offset.checked_add(bytes).is_none() {
        return Err(wrong("it ends beyond 2^64 bytes"));
    }
    Ok(Request {
        time: (seconds * 1e9).round() as u64,
        device,
        op,
        offset,
        bytes,
        stream: 0,
    })
}

/// An operation by its name, its first letter, or its number in `Trace.requests()`.
fn op(field: &Bound<'_, PyAny>) -> PyResult<Op> {
    let unknown =
        || wrong("its op is 'read', 'write', 'trim' or 'flush', the first letter, or 0 to 3");
    if let Ok(number) = field.extract::<u8>() {
        let all = [Op::Read, Op::Write, Op::Trim, Op::Flush];
        return all.get(usize::from(number)).copied().ok_or_else(unknown);
    }
    let name: &str = &field
        .extract::<std::borrow::Cow<'_, str>>()
        .map_err(|_| unknown())?;
    match name {
        "r" | "read" => Ok(Op::Read),
        "w" | "write" => Ok(Op::Write),
        "t" | "trim" => Ok(Op::Trim),
        "f" | "flush" => Ok(Op::Flush),
        _ => Err(unknown()),
    }
}
