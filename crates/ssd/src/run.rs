// SPDX-License-Identifier: Apache-2.0
//! One run as a user specifies it: workload, drives, result. `senko ssd` and the Python package
//! both run this, so their results are the same.
//!
//! A sentence about a wrong setting begins with the setting's name; the command puts `--` before
//! it.

use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::Error;
use crate::device::Parts;
use crate::drive::{Drive, Load};
use crate::lifetime::Lifetime;
use crate::precondition::Precondition;
use crate::profile::Profile;
use crate::report::{Derived, Report};
use crate::source::Workload;
use crate::spec::Spec;
use crate::trace::{Fold, Summary, TraceSpec};

/// Requests between two calls of [`Watch::ran`].
const TOLD_EVERY: u64 = 1 << 12;

#[derive(Clone, Debug)]
pub struct Reading {
    /// The trace's format with its options, or `auto`.
    pub format: String,
    /// How addresses are folded into the drive; without it, a request beyond the end is an error.
    pub fold: Option<String>,
    /// The most requests that are taken.
    pub limit: Option<u64>,
    /// How often the workload is repeated.
    pub rounds: u32,
}

impl Reading {
    /// The workload with this name: a file or a generator.
    ///
    /// # Errors
    /// If there is none, or a setting is wrong.
    pub fn open(&self, name: &str) -> Result<Workload, Error> {
        let spec: TraceSpec = self.format.parse()?;
        self.of(Workload::named(name, &spec)?)
    }

    /// A given workload, read with these settings. The format applies only to files.
    pub fn of(&self, mut workload: Workload) -> Result<Workload, Error> {
        if let Some(fold) = &self.fold {
            workload.fold = fold.parse::<Fold>()?;
        }
        if self.rounds == 0 {
            return Err(Error::Request(
                "a workload that is repeated 0 times does nothing".to_owned(),
            ));
        }
        workload.rounds = self.rounds;
        workload.limit = self.limit;
        Ok(workload)
    }
}

/// The drives of a run, their parts, and when requests come.
#[derive(Clone, Debug)]
pub struct Setup {
    pub profile: Profile,
    pub drives: u32,
    /// Bytes of a stripe on one drive.
    pub stripe_bytes: u64,
    /// How the drives are filled before the first request.
    pub precondition: Precondition,
    /// This many requests are kept under way, whatever the times of the workload.
    pub closed: Option<u32>,
    /// The factor by which time runs faster.
    pub speed: f64,
    pub untimed: bool,
    pub check: bool,
    pub seed: u64,
}

/// Follows a run, and may end it.
pub trait Watch {
    /// This many of this many pages are filled; returns whether to continue.
    fn filled(&mut self, done: u64, all: u64) -> bool;
    /// This many more requests have come to the drive.
    fn ran(&mut self, requests: u64);
    /// When this is set, the run ends with a report of what was done.
    fn stop(&self) -> &'static AtomicBool;
}

impl Setup {
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Request(text));
        if let Err(text) = self.precondition.check() {
            return wrong(text);
        }
        if !self.speed.is_finite() || self.speed <= 0.0 {
            return wrong(format!("speed is {}, and must be more than 0", self.speed));
        }
        if self.closed == Some(0) {
            return wrong("closed 0 never sends a request".to_owned());
        }
        Ok(())
    }

    /// The parts of each drive, with the given layer and buffer instead of the profile's.
    pub fn parts(&self, ftl: Option<&str>, buffer: Option<&str>) -> Result<Parts, Error> {
        let spec = |text: Option<&str>| text.map(str::parse::<Spec>).transpose();
        Ok(Parts {
            ftl: spec(ftl)?,
            buffer: spec(buffer)?,
            buffer_pages: None,
            untimed: self.untimed,
            check: self.check,
            seed: self.seed,
        })
    }

    /// The approximate bytes of all drives for the host, before a layer takes its part.
    pub fn capacity(&self) -> u64 {
        self.profile
            .user_bytes
            .saturating_mul(u64::from(self.drives))
    }

    /// The drives, erased. A wrong part is refused here, before a long trace is read.
    ///
    /// # Errors
    /// If the parts don't exist or don't fit together.
    pub fn drive(&self, parts: &Parts) -> Result<Drive, Error> {
        self.profile.check()?;
        match self.drives {
            1 => Drive::new(&self.profile, parts),
            drives => Drive::raid0(&self.profile, parts, drives, self.stripe_bytes),
        }
    }

    /// When requests come, by the options and the workload.
    fn load(&self, workload: &Workload) -> Result<Load, Error> {
        Ok(match self.closed {
            Some(depth) => Load::Closed { depth },
            None if self.untimed || !workload.timed()? => Load::Closed { depth: 1 },
            None => Load::Open { speed: self.speed },
        })
    }

    /// Runs a workload. With `drain`, the pages in the write buffer at the end are written to the
    /// flash too, after the last request. `None` if the watch ended the run before its first
    /// request.
    ///
    /// # Errors
    /// If the drives can't be made, the workload can't be read or does not fit, or a drive wears
    /// out.
    pub fn run(
        &self,
        parts: &Parts,
        workload: &Workload,
        drain: bool,
        watch: &mut dyn Watch,
    ) -> Result<Option<Report>, Error> {
        let mut drive = self.drive(parts)?;
        drive.stop_when(watch.stop());
        let prepared = drive.prepare(self.precondition, |done, all| watch.filled(done, all))?;
        let Some(prepared) = prepared else {
            return Ok(None);
        };
        let load = self.load(workload)?;
        let mut seen = 0u64;
        let watched = workload.requests(drive.capacity_bytes())?.inspect(|_| {
            seen += 1;
            if seen.is_multiple_of(TOLD_EVERY) {
                watch.ran(TOLD_EVERY);
            }
        });
        if drain {
            drive.drain_at_end();
        }
        let mut report = drive.run(watched, load)?;
        report.preparation = Some(prepared);
        Ok(Some(report))
    }
}

/// All results of a run, for machines.
#[derive(Serialize)]
pub struct Outcome<'a> {
    pub workload: String,
    pub trace: &'a Summary,
    pub profile: &'a str,
    pub stopped: bool,
    pub report: &'a Report,
    /// Figures that follow from the report's counts.
    pub derived: Derived,
    /// The lifetime of the drive under it, if blocks were erased and time passed.
    pub lifetime: Option<Lifetime>,
    /// Notes for a reader of the figures, for example that nothing was erased.
    pub notes: Vec<String>,
}

impl<'a> Outcome<'a> {
    pub fn new(
        workload: &Workload,
        trace: &'a Summary,
        profile: &'a Profile,
        report: &'a Report,
        stopped: bool,
    ) -> Outcome<'a> {
        let asked = trace
            .mix
            .requests()
            .saturating_mul(u64::from(workload.rounds));
        let mut notes = report.notes();
        if report.all.count > asked && !stopped {
            notes.push(format!(
                "The fold split the {asked} requests into {} pieces. Counts, rates and response times are of pieces.",
                report.all.count
            ));
        }
        Outcome {
            workload: workload.name(),
            trace,
            profile: &profile.name,
            stopped,
            report,
            derived: report.derived(),
            lifetime: Lifetime::of(report, profile.endurance.cycles)
                .map(|life| life.of_whole(profile.scale)),
            notes,
        }
    }
}
