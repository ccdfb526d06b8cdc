// SPDX-License-Identifier: Apache-2.0
//! A workload as a user names it: a trace's file or a generator, folded into a drive, once or in a loop.

use std::collections::VecDeque;
use std::path::PathBuf;

use crate::generate::{Arrival, Generator, Phase};
use crate::trace::{Fold, Folder, Reader, Summary, TraceSpec};
use crate::{Error, Request, Time};

/// Where requests come from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A trace's file, and what is known of its format.
    Trace(PathBuf, TraceSpec),
    /// A generator, by its specification.
    Generator(String),
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Where its requests come from.
    pub origin: Origin,
    /// How addresses are folded into the drive.
    pub fold: Fold,
    /// How often the whole is repeated; later rounds begin where the one before ended.
    pub rounds: u32,
    /// At most so many requests are taken in each round.
    pub limit: Option<u64>,
}

impl Workload {
    /// The file of this name, or, where there is none, the generator that it specifies.
    ///
    /// # Errors
    /// If it is neither.
    pub fn named(name: &str, spec: &TraceSpec) -> Result<Self, Error> {
        let path = PathBuf::from(name);
        let origin = if path.exists() {
            Origin::Trace(path, spec.clone())
        } else {
            name.parse::<Generator>().map_err(|error| {
                Error::Request(format!(
                    "there is no file \"{name}\", and as a generator: {error}"
                ))
            })?;
            Origin::Generator(name.to_owned())
        };
        Ok(Self {
            origin,
            fold: Fold::default(),
            rounds: 1,
            limit: None,
        })
    }

    /// A short name for tables: the file's, or the generator's specification.
    pub fn name(&self) -> String {
        match &self.origin {
            Origin::Trace(path, _) => match path.file_name() {
                Some(name) => name.to_string_lossy().into_owned(),
                None => path.display().to_string(),
            },
            Origin::Generator(text) => text.clone(),
        }
    }

    /// Whether requests name times. Where they don't, only a closed loop makes sense.
    ///
    /// # Errors
    /// If the trace can't be opened.
    pub fn timed(&self) -> Result<bool, Error> {
        match &self.origin {
            Origin::Trace(path, spec) => Ok(Reader::open(path, spec)?.timed()),
            Origin::Generator(text) => {
                let phases: Result<Vec<Phase>, Error> = text.split('/').map(str::parse).collect();
                Ok(phases?.iter().any(|phase| phase.arrival != Arrival::Closed))
            }
        }
    }

    fn open(&self) -> Result<Inner, Error> {
        Ok(match &self.origin {
            Origin::Trace(path, spec) => Inner::Trace(Box::new(Reader::open(path, spec)?)),
            Origin::Generator(text) => Inner::Generator(Box::new(text.parse()?)),
        })
    }

    /// Reads it through once and says what it is, before it is folded.
    ///
    /// # Errors
    /// If the trace can't be opened, or breaks off.
    pub fn summary(&self) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut inner = self.open()?;
        let limit = self.limit.unwrap_or(u64::MAX);
        let mut taken = 0;
        while taken < limit {
            let Some(request) = inner.next() else {
                break;
            };
            summary.add(&request?);
            taken += 1;
        }
        if let Inner::Trace(reader) = &inner {
            summary.finish(reader);
        }
        Ok(summary)
    }

    /// Its requests, folded into `capacity` bytes.
    ///
    /// # Errors
    /// If it can't be opened, or the folding does not fit the drive.
    pub fn requests(&self, capacity: u64) -> Result<Requests<'_>, Error> {
        Ok(Requests {
            workload: self,
            folder: Folder::new(&self.fold, capacity)?,
            inner: self.open()?,
            pieces: VecDeque::new(),
            round: 1,
            taken: 0,
            shift: 0,
            last: 0,
            failed: false,
        })
    }
}

enum Inner {
    Trace(Box<Reader>),
    Generator(Box<Generator>),
}

impl Iterator for Inner {
    type Item = Result<Request, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Trace(reader) => reader.next().map(|request| Ok(request?)),
            Self::Generator(generator) => generator.next().map(Ok),
        }
    }
}

/// The requests of a workload, an iterator that ends after its first error.
pub struct Requests<'a> {
    workload: &'a Workload,
    folder: Folder,
    inner: Inner,
    pieces: VecDeque<Request>,
    round: u32,
    taken: u64,
    /// What is added to the times of this round.
    shift: Time,
    last: Time,
    failed: bool,
}

impl Requests<'_> {
    /// Fetches a request and folds it; whether there was one.
    fn fetch(&mut self) -> Result<bool, Error> {
        let full = self.workload.limit.is_some_and(|limit| self.taken >= limit);
        let next = if full { None } else { self.inner.next() };
        let Some(request) = next else {
            // A workload without requests would go round for ever.
            if self.round >= self.workload.rounds || self.taken == 0 {
                return Ok(false);
            }
            self.round += 1;
            self.taken = 0;
            self.shift = self.last;
            self.inner = self.workload.open()?;
            return Ok(true);
        };
        let mut request = request?;
        self.taken += 1;
        request.time += self.shift;
        self.last = request.time;
        let pieces = &mut self.pieces;
        self.folder
            .fold(request, |piece| pieces.push_back(piece))
            .map_err(|error| Error::Request(error.to_string()))?;
        Ok(true)
    }
}

impl Iterator for Requests<'_> {
    type Item = Result<Request, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some(Ok(piece));
            }
            if self.failed {
                return None;
            }
            match self.fetch() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
