// SPDX-License-Identifier: Apache-2.0
//! The simulator: one run, what a trace is, pictures, and what can be named. Results travel as the
//! JSON that `senko ssd` prints, so that every number is the command's. `ssd.py` makes objects of
//! it.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use senko_ssd::precondition::Precondition;
use senko_ssd::profile::Profile;
use senko_ssd::report::{SeriesPoint, Wear};
use senko_ssd::run::{Outcome, Reading, Setup, Watch};
use senko_ssd::source::Workload;
use senko_ssd::trace::Summary;
use senko_ssd::{Error, Request, catalogue, plot};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::interrupt::{Stop, interruptible};
use crate::requests::{Given, Requests, Source};
use crate::simulation_error::{SimulationError, exception};

/// Bytes as a number, or as on the command line: `64k`.
#[derive(FromPyObject)]
pub enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    fn bytes(&self, option: &str) -> Result<u64, Error> {
        match self {
            Size::Bytes(bytes) => Ok(*bytes),
            Size::Text(text) => senko_workload::units::size(text, 1)
                .map_err(|error| Error::spec(format!("{option}: {error}"))),
        }
    }
}

/// How a drive is filled: a percentage as a number, or text as on the command line.
#[derive(FromPyObject)]
pub enum Way {
    Percent(f64),
    Text(String),
}

impl Way {
    fn parsed(&self) -> Result<Precondition, Error> {
        match self {
            Way::Percent(percent) => Ok(Precondition::InOrder { percent: *percent }),
            Way::Text(text) => text.parse().map_err(Error::Request),
        }
    }
}

/// How a workload is read: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ReadingArgs {
    format: String,
    fold: Option<String>,
    limit: Option<u64>,
    rounds: u32,
}

impl From<ReadingArgs> for Reading {
    fn from(args: ReadingArgs) -> Reading {
        Reading {
            format: args.format,
            fold: args.fold,
            limit: args.limit,
            rounds: args.rounds,
        }
    }
}

/// The drives of a run and how requests come: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct DriveArgs {
    profile: String,
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
    fn setup(&self) -> Result<Setup, Error> {
        let mut profile = Profile::find(&self.profile)?;
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
    // Through a value, as the command does it: names are in their order.
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

/// Runs a workload, by its name or as its requests, on a drive. Gives what `senko ssd run --json`
/// prints.
#[pyfunction]
#[pyo3(signature = (workload, reading, drive, stop=None))]
pub fn simulate(
    py: Python<'_>,
    workload: Given<'_>,
    reading: ReadingArgs,
    drive: DriveArgs,
    stop: Option<&Stop>,
) -> PyResult<String> {
    let reading = Reading::from(reading);
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
    reading: ReadingArgs,
) -> PyResult<(String, String)> {
    let reading = Reading::from(reading);
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

/// The columns of a workload's requests, as bytes of the machine's own order: times in nanoseconds,
/// devices, operations, offsets, lengths.
#[pyfunction]
pub fn trace_columns<'py>(
    py: Python<'py>,
    workload: String,
    reading: ReadingArgs,
) -> PyResult<[Bound<'py, PyBytes>; 5]> {
    let reading = Reading::from(reading);
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

/// A column, written where Python keeps it.
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
pub fn draw_requests(py: Python<'_>, workload: String, reading: ReadingArgs) -> PyResult<String> {
    let reading = Reading::from(reading);
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

/// All that `senko ssd parts --json` prints, as one array.
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
