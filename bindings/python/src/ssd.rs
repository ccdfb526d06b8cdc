// SPDX-License-Identifier: Apache-2.0
//! The simulator: one run, a trace and its facts, pictures, and the names of parts. Results are
//! passed as the JSON that `senko ssd` prints, so every number is the same as the command's.
//! `ssd.py` makes objects from it.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use senko_ssd::precondition::Precondition;
use senko_ssd::profile::Profile;
use senko_ssd::report::{SeriesPoint, Wear};
use senko_ssd::run::{Outcome, Reading, Setup, Watch};
use senko_ssd::source::Workload;
use senko_ssd::trace::Summary;
use senko_ssd::{Error, Request, catalogue, plot};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arguments;
use crate::interrupt::{Stop, interruptible};
use crate::requests::{Given, Requests, Source};
use crate::simulation_error::{SimulationError, exception};

/// Bytes as a number, or as on the command line: `64k`.
enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    fn of(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Size> {
        match object.is_instance_of::<PyString>() {
            true => Ok(Size::Text(arguments::text(name, object)?.to_owned())),
            false => arguments::whole(name, 0..=u64::MAX, object).map(Size::Bytes),
        }
    }

    fn bytes(&self, option: &str) -> Result<u64, Error> {
        match self {
            Size::Bytes(bytes) => Ok(*bytes),
            Size::Text(text) => senko_workload::units::size(text, 1)
                .map_err(|error| Error::Spec(format!("{option}: {error}"))),
        }
    }
}

/// How full a drive is made before a run: a percentage as a number, or text as on the command line.
enum Way {
    Percent(f64),
    Text(String),
}

impl Way {
    fn of(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Way> {
        match object.is_instance_of::<PyString>() {
            true => Ok(Way::Text(arguments::text(name, object)?.to_owned())),
            false => arguments::number(name, object).map(Way::Percent),
        }
    }

    fn parsed(&self) -> Result<Precondition, Error> {
        match self {
            Way::Percent(percent) => Ok(Precondition::InOrder { percent: *percent }),
            Way::Text(text) => text.parse().map_err(Error::Request),
        }
    }
}

/// A dictionary's entry `name`, read by `of`. A value out of range is an error of the simulator, as
/// in its own checks.
fn entry<T>(
    settings: &Bound<'_, PyDict>,
    name: &str,
    of: impl FnOnce(&str, &Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    of(name, &arguments::entry(settings, name)?).map_err(|error| {
        match error.is_instance_of::<PyValueError>(settings.py()) {
            true => SimulationError::new_err(error.value(settings.py()).to_string()),
            false => error,
        }
    })
}

/// An entry that may be None.
fn maybe<T>(
    settings: &Bound<'_, PyDict>,
    name: &str,
    of: impl FnOnce(&str, &Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    entry(settings, name, |name, object| match object.is_none() {
        true => Ok(None),
        false => of(name, object).map(Some),
    })
}

fn text(name: &str, object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(arguments::text(name, object)?.to_owned())
}

/// One or more values.
fn some(name: &str, object: &Bound<'_, PyAny>) -> PyResult<u32> {
    arguments::whole_u32(name, 1, object)
}

fn count(name: &str, object: &Bound<'_, PyAny>) -> PyResult<u64> {
    arguments::whole(name, 0..=u64::MAX, object)
}

/// The options for reading a workload, from a dictionary.
fn reading_of(settings: &Bound<'_, PyDict>) -> PyResult<Reading> {
    Ok(Reading {
        format: entry(settings, "format", text)?,
        fold: maybe(settings, "fold", text)?,
        limit: maybe(settings, "limit", count)?,
        rounds: entry(settings, "rounds", some)?,
    })
}

/// The drives of a run, and how requests arrive.
struct DriveArgs {
    profile: String,
    scale: Option<u32>,
    ftl: Option<String>,
    buffer: Option<String>,
    buffer_size: Option<Size>,
    drives: u32,
    stripe: Size,
    precondition: Way,
    closed: Option<u32>,
    speed: f64,
    wa: bool,
    check: bool,
    seed: u64,
    drain: bool,
}

impl DriveArgs {
    fn of(settings: &Bound<'_, PyDict>) -> PyResult<DriveArgs> {
        Ok(DriveArgs {
            profile: entry(settings, "profile", text)?,
            scale: maybe(settings, "scale", some)?,
            ftl: maybe(settings, "ftl", text)?,
            buffer: maybe(settings, "buffer", text)?,
            buffer_size: maybe(settings, "buffer_size", Size::of)?,
            drives: entry(settings, "drives", some)?,
            stripe: entry(settings, "stripe", Size::of)?,
            precondition: entry(settings, "precondition", Way::of)?,
            closed: maybe(settings, "closed", some)?,
            speed: entry(settings, "speed", arguments::number)?,
            wa: entry(settings, "wa", arguments::truth)?,
            check: entry(settings, "check", arguments::truth)?,
            seed: entry(settings, "seed", count)?,
            drain: entry(settings, "drain", arguments::truth)?,
        })
    }

    fn setup(&self) -> Result<Setup, Error> {
        let mut profile = Profile::find(&self.profile)?;
        if let Some(scale) = self.scale {
            profile = profile.scaled(scale)?;
        }
        if let Some(size) = &self.buffer_size {
            profile.buffer_bytes = size.bytes("buffer_size")?;
        }
        let setup = Setup {
            profile,
            drives: self.drives,
            stripe_bytes: self.stripe.bytes("stripe")?,
            precondition: self.precondition.parsed()?,
            closed: self.closed,
            speed: self.speed,
            untimed: self.wa,
            check: self.check,
            seed: self.seed,
        };
        setup.check()?;
        Ok(setup)
    }
}

/// Ends a run when its flag is set.
struct Watching(&'static AtomicBool);

impl Watch for Watching {
    fn filled(&mut self, _done: u64, _all: u64) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn ran(&mut self, _requests: u64) {}

    fn stop(&self) -> &'static AtomicBool {
        self.0
    }
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    // Converted to a JSON value, as in the command, so names are in the same order.
    let value = serde_json::to_value(value);
    value
        .map(|value| value.to_string())
        .map_err(|error| Error::Request(error.to_string()))
}

fn summary(
    workload: &Workload,
    capacity: Option<u64>,
    stop: &AtomicBool,
) -> Result<Summary, Error> {
    let mut summary = workload.summary_while(|_| !stop.load(Ordering::Relaxed))?;
    let overlap = capacity.and_then(|bytes| summary.overlap(&workload.fold, bytes));
    summary.warnings.extend(overlap);
    Ok(summary)
}

/// Runs a workload, by its name or as its requests, on a drive. Returns what `senko ssd run --json`
/// prints.
#[pyfunction]
#[pyo3(signature = (workload, reading, drive, stop=None))]
pub fn simulate(
    py: Python<'_>,
    workload: Given<'_>,
    reading: &Bound<'_, PyDict>,
    drive: &Bound<'_, PyDict>,
    stop: Option<&Stop>,
) -> PyResult<String> {
    let reading = reading_of(reading)?;
    let drive = DriveArgs::of(drive)?;
    let source = Source::from(workload);
    let work = move |stop: &'static AtomicBool| {
        let setup = drive.setup()?;
        let parts = setup.parts(drive.ftl.as_deref(), drive.buffer.as_deref())?;
        let workload = source.open(&reading)?;
        let summary = summary(&workload, Some(setup.capacity()), stop)?;
        let report = setup.run(&parts, &workload, drive.drain, &mut Watching(stop))?;
        let report = report.ok_or_else(|| {
            Error::Request("the drive was not filled before the first request".to_owned())
        })?;
        let stopped = stop.load(Ordering::Relaxed);
        json(&Outcome::new(
            &workload,
            &summary,
            &setup.profile,
            &report,
            stopped,
        ))
    };
    interruptible(py, stop, work)?.map_err(exception)
}

/// The short name and the summary of a workload, as `senko ssd trace info --json` prints them.
#[pyfunction]
pub fn trace_summary(
    py: Python<'_>,
    workload: String,
    reading: &Bound<'_, PyDict>,
) -> PyResult<(String, String)> {
    let reading = reading_of(reading)?;
    let work = move |stop: &'static AtomicBool| {
        let workload = reading.open(&workload)?;
        let summary = summary(&workload, None, stop)?;
        Ok((workload.name(), json(&summary)?))
    };
    interruptible(py, None, work)?.map_err(exception)
}

fn requests(name: &str, reading: &Reading, stop: &AtomicBool) -> Result<Vec<Request>, Error> {
    let workload = reading.open(name)?;
    let all = workload.requests(u64::MAX)?;
    all.take_while(|_| !stop.load(Ordering::Relaxed)).collect()
}

/// The columns of a workload's requests, as bytes in the machine's own byte order: times in
/// nanoseconds, devices, operations, offsets, lengths.
#[pyfunction]
pub fn trace_columns<'py>(
    py: Python<'py>,
    workload: String,
    reading: &Bound<'_, PyDict>,
) -> PyResult<[Bound<'py, PyBytes>; 5]> {
    let reading = reading_of(reading)?;
    let all = interruptible(py, None, move |stop| requests(&workload, &reading, stop))?;
    let all = all.map_err(exception)?;
    Ok([
        column(py, &all, |r| r.time.to_ne_bytes())?,
        column(py, &all, |r| r.device.to_ne_bytes())?,
        column(py, &all, |r| [r.op as u8])?,
        column(py, &all, |r| r.offset.to_ne_bytes())?,
        column(py, &all, |r| r.bytes.to_ne_bytes())?,
    ])
}

/// A column, written directly to Python's memory.
fn column<'py, const N: usize>(
    py: Python<'py>,
    all: &[Request],
    value: impl Fn(&Request) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, all.len() * N, |bytes| {
        for (to, request) in bytes.chunks_exact_mut(N).zip(all) {
            to.copy_from_slice(&value(request));
        }
        Ok(())
    })
}

/// The picture of a workload's requests over time, as SVG.
#[pyfunction]
pub fn draw_requests(
    py: Python<'_>,
    workload: String,
    reading: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let reading = reading_of(reading)?;
    let work = move |stop: &'static AtomicBool| {
        let all = requests(&workload, &reading, stop)?;
        Ok(plot::requests(&reading.open(&workload)?.name(), &all))
    };
    interruptible(py, None, work)?.map_err(exception)
}

fn parsed<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The picture of response times over virtual time, as SVG. `series` is a report's, as JSON.
#[pyfunction]
pub fn draw_responses(title: &str, series: &str) -> PyResult<String> {
    Ok(plot::responses(title, &parsed::<Vec<SeriesPoint>>(series)?))
}

/// The picture of how often blocks were erased, as SVG. `wear` is a report's, as JSON.
#[pyfunction]
pub fn draw_erases(title: &str, wear: &str) -> PyResult<String> {
    Ok(plot::erases(title, &parsed::<Wear>(wear)?))
}

/// Everything that `senko ssd parts --json` prints, as one array.
#[pyfunction]
pub fn parts() -> PyResult<String> {
    catalogue::all()
        .and_then(|all| json(&all))
        .map_err(exception)
}

/// Adds the simulator to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SimulationError", module.py().get_type::<SimulationError>())?;
    module.add_class::<Stop>()?;
    module.add_class::<Requests>()?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(trace_summary, module)?)?;
    module.add_function(wrap_pyfunction!(trace_columns, module)?)?;
    module.add_function(wrap_pyfunction!(draw_requests, module)?)?;
    module.add_function(wrap_pyfunction!(draw_responses, module)?)?;
    module.add_function(wrap_pyfunction!(draw_erases, module)?)?;
    module.add_function(wrap_pyfunction!(parts, module)?)
}
