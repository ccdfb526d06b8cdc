// SPDX-License-Identifier: Apache-2.0
//! A workload as a user names it: a trace file, a generator or requests in memory. It is folded
//! into a drive, once or in a loop.
//!
//! A workload is read several times: for its summary, for each run, for each round. A pipe can be
//! read only once, so it is first copied to a file without a name.

mod spool; // a pipe as a file

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::generate::{Arrival, Generator, Phase};
use crate::trace::{Fold, Folder, MAX_TRANSFER, Reader, Summary, TraceSpec};
use crate::{Error, Op, Request, Time};
use spool::Spool;

/// Requests that a summary reads between two calls that ask whether to continue.
const ASKED_EVERY: u64 = 1 << 13;

#[derive(Clone, Debug)]
pub enum Origin {
    /// A trace file with its format, if that is known. A pipe has a copy.
    Trace(PathBuf, TraceSpec, Option<Spool>),
    Generator(String),
    /// Requests that a program made. The first one's time is 0, and times never go back.
    Given(Arc<[Request]>),
}

#[derive(Clone, Debug)]
pub struct Workload {
    pub origin: Origin,
    /// How addresses are folded into the drive.
    pub fold: Fold,
    /// How often it is repeated. Each round begins at the end time of the previous one.
    pub rounds: u32,
    /// The most requests of each round.
    pub limit: Option<u64>,
}

impl Workload {
    /// The file of this name (`-` is stdin), or, if there is none, the generator with this
    /// specification. A pipe is read to its end.
    ///
    /// # Errors
    /// If it is neither, or a pipe can't be read.
    pub fn named(name: &str, spec: &TraceSpec) -> Result<Self, Error> {
        let path = PathBuf::from(if name == "-" { "/dev/stdin" } else { name });
        let found = std::fs::metadata(&path);
        let origin = if let Ok(kind) = found.as_ref().map(std::fs::Metadata::file_type) {
            if kind.is_dir() {
                return Err(Error::Request(format!(
                    "\"{name}\" is a folder, and no trace"
                )));
            }
            let copy = (!kind.is_file()).then(|| Spool::of(&path)).transpose()?;
            Origin::Trace(path, spec.clone(), copy)
        } else {
            name.parse::<Generator>().map_err(|error| {
                let file = match &found {
                    Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                        format!("cannot open \"{name}\" ({why})")
                    }
                    _ => format!("there is no file \"{name}\""),
                };
                Error::Request(format!("{file}, and as a generator: {error}"))
            })?;
            Origin::Generator(name.to_owned())
        };
        Ok(Self::of(origin))
    }

    /// Requests that a program made. Times are in nanoseconds and in ascending order. They are
    /// relative to the first one, as in a trace.
    ///
    /// # Errors
    /// If there is none, a time is before its predecessor's, or a read or write is longer than in
    /// any trace (4 GiB). The error names the request, counted from 0.
    ///
    /// ```
    /// use senko_ssd::{Op, Request, source::Workload};
    /// let write = |time, offset| Request { time, ..Request::new(Op::Write, offset, 4096) };
    /// let workload = Workload::given(vec![write(7, 0), write(9, 4096)])?;
    /// assert_eq!(workload.summary()?.duration_ns, 2);
    /// assert!(Workload::given(vec![write(7, 0), write(6, 0)]).is_err());
    /// # Ok::<(), senko_ssd::Error>(())
    /// ```
    pub fn given(mut requests: Vec<Request>) -> Result<Self, Error> {
        let Some(first) = requests.first().map(|request| request.time) else {
            return Err(Error::Request("there is no request".to_owned()));
        };
        let mut last = first;
        for (nth, request) in requests.iter_mut().enumerate() {
            let bytes = request.bytes;
            let why = if request.time < last {
                format!("its time is before that of request {}", nth - 1)
            } else if request.op != Op::Trim && bytes > MAX_TRANSFER {
                format!("it is for {bytes} bytes, and a request has at most {MAX_TRANSFER}")
            } else if request.offset.checked_add(bytes).is_none() {
                "it ends beyond 2^64 bytes".to_owned()
            } else {
                String::new()
            };
            if !why.is_empty() {
                return Err(Error::Request(format!("request {nth}: {why}")));
            }
            last = request.time;
            request.time -= first;
        }
        Ok(Self::of(Origin::Given(requests.into())))
    }

    fn of(origin: Origin) -> Self {
        Self {
            origin,
            fold: Fold::default(),
            rounds: 1,
            limit: None,
        }
    }

    /// The trace file that it is read from, if there is one.
    pub fn file(&self) -> Option<&Path> {
        match &self.origin {
            Origin::Trace(path, _, None) => Some(path),
            _ => None,
        }
    }

    /// A short name for tables: the file's, the generator's specification, or `requests`.
    pub fn name(&self) -> String {
        match &self.origin {
            Origin::Trace(path, ..) => match path.file_name() {
                Some(name) => name.to_string_lossy().into_owned(),
                None => path.display().to_string(),
            },
            Origin::Generator(text) => text.clone(),
            Origin::Given(_) => "requests".to_owned(),
        }
    }

    /// Whether requests have times. If not, only a closed loop makes sense.
    ///
    /// # Errors
    /// If the trace can't be opened.
    pub fn timed(&self) -> Result<bool, Error> {
        match &self.origin {
            Origin::Generator(text) => {
                let phases: Result<Vec<Phase>, Error> = text.split('/').map(str::parse).collect();
                Ok(phases?.iter().any(|phase| phase.arrival != Arrival::Closed))
            }
            Origin::Trace(..) | Origin::Given(_) => match self.open()? {
                Inner::Trace(reader) => Ok(reader.timed()),
                _ => Ok(true),
            },
        }
    }

    /// The number of the first request in errors: a program counts its own from 0.
    fn first_number(&self) -> u64 {
        u64::from(!matches!(self.origin, Origin::Given(_)))
    }

    fn open(&self) -> Result<Inner, Error> {
        Ok(match &self.origin {
            Origin::Trace(path, spec, copy) => Inner::Trace(Box::new(match copy {
                Some(copy) => Reader::new(copy.read(), spec)?,
                None => Reader::open(path, spec)?,
            })),
            Origin::Generator(text) => Inner::Generator(Box::new(text.parse()?)),
            Origin::Given(requests) => Inner::Given(Arc::clone(requests), 0),
        })
    }

    /// Reads it through once and describes it, before it is folded.
    ///
    /// # Errors
    /// If the trace can't be opened, ends early, has no request, or makes mostly no sense.
    pub fn summary(&self) -> Result<Summary, Error> {
        self.summary_while(|_| true)
    }

    /// [`Workload::summary`] of as many requests as `go_on` allows. `go_on` is called now and then,
    /// with the share of the workload that was read, if it is known.
    pub fn summary_while(
        &self,
        mut go_on: impl FnMut(Option<f64>) -> bool,
    ) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut inner = self.open()?;
        let limit = self.limit.unwrap_or(u64::MAX);
        let (mut taken, all) = (0u64, self.size(&inner));
        let mut stopped = false;
        while taken < limit {
            let Some(request) = inner.next() else {
                break;
            };
            summary.add(&request?);
            taken += 1;
            if taken.is_multiple_of(ASKED_EVERY) && !go_on(inner.share(all)) {
                stopped = true;
                break;
            }
        }
        if let Inner::Trace(reader) = &inner {
            summary.finish(reader);
        }
        if !stopped {
            inner.check(taken, &self.name())?;
        }
        Ok(summary)
    }

    /// Bytes of the trace file, or the number of requests.
    fn size(&self, inner: &Inner) -> u64 {
        match (&self.origin, inner) {
            (Origin::Trace(_, _, Some(copy)), _) => copy.bytes(),
            (Origin::Trace(path, ..), _) => std::fs::metadata(path).map_or(0, |file| file.len()),
            (Origin::Generator(_), Inner::Generator(generator)) => generator.remaining(),
            (Origin::Given(requests), _) => requests.len() as u64,
            (Origin::Generator(_), Inner::Trace(_) | Inner::Given(..)) => 0,
        }
    }

    /// Its requests, folded into `capacity` bytes.
    ///
    /// # Errors
    /// If it can't be opened, or the folding does not fit the drive.
    pub fn requests(&self, capacity: u64) -> Result<Requests<'_>, Error> {
        Ok(Requests {
            workload: self,
            folder: Folder::new(&self.fold, capacity)?.counting_from(self.first_number()),
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
    /// Requests, and how many of them were taken.
    Given(Arc<[Request]>, usize),
}

impl Inner {
    /// The share of everything that was read.
    fn share(&self, all: u64) -> Option<f64> {
        let done = match self {
            Self::Trace(reader) => reader.input_bytes(),
            Self::Generator(generator) => all - generator.remaining().min(all),
            Self::Given(_, taken) => *taken as u64,
        };
        (all > 0).then(|| (done as f64 / all as f64).min(1.0))
    }

    /// Refuses input that is not a workload: it has no request, or most of its lines make no sense.
    fn check(&self, taken: u64, name: &str) -> Result<(), Error> {
        match self {
            Self::Trace(reader) => reader.check(name).map_err(Error::Request),
            Self::Generator(_) | Self::Given(..) if taken == 0 => {
                Err(Error::Request(format!("{name} has no request")))
            }
            Self::Generator(_) | Self::Given(..) => Ok(()),
        }
    }
}

impl Iterator for Inner {
    type Item = Result<Request, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Trace(reader) => reader.next().map(|request| Ok(request?)),
            Self::Generator(generator) => generator.next().map(Ok),
            Self::Given(requests, taken) => {
                let request = *requests.get(*taken)?;
                *taken += 1;
                Some(Ok(request))
            }
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
    /// The offset of this round's times.
    shift: Time,
    last: Time,
    failed: bool,
}

impl Requests<'_> {
    /// Gets a request and folds it; returns whether there was one.
    fn fetch(&mut self) -> Result<bool, Error> {
        let full = self.workload.limit.is_some_and(|limit| self.taken >= limit);
        let next = if full { None } else { self.inner.next() };
        let Some(request) = next else {
            // A workload without requests would loop forever.
            self.inner.check(self.taken, &self.workload.name())?;
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
        // What arrives too late for any drive is refused there.
        request.time = request.time.saturating_add(self.shift);
        self.last = request.time;
        let pieces = &mut self.pieces;
        self.folder.fold(request, |piece| pieces.push_back(piece))?;
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
