// SPDX-License-Identifier: Apache-2.0
//! The reader of traces: an iterator of requests over any format, under the rules TRACE-1 to
//! TRACE-5 of the module, with the counts of skipped lines.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use senko_io::trace::{HEADER_BYTES, RECORD_BYTES};
use senko_workload::Compression;

use super::buffer::{Buffer, Line};
use super::detect;
use super::fields::{Stamp, excerpt};
use super::format::{Format, TraceSpec};
use super::native;
use super::parser::{LineParser, Parsed, Raw};
use super::vscsi::Version;
use crate::error::TraceError;
use crate::{Op, Request, Time};

/// Damaged lines that are kept with number and reason; further ones are only counted.
const NAMED: usize = 8;
/// A read or write of more bytes than this is damaged: no interface can carry it. Trims may be as
/// long as a drive.
pub(crate) const MAX_TRANSFER: u64 = 1 << 32;

/// A damaged line or record.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Damage {
    /// Its number, from 1.
    pub number: u64,
    pub why: &'static str,
    /// Its first characters; empty for a binary record.
    pub text: String,
}

/// Counts of requests read and dropped, by cause. `items` is the sum of `requests`, `zero_sized`,
/// `damaged`, `other_events` and `headings`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Lines, or binary records.
    pub items: u64,
    pub requests: u64,
    /// Requests for no bytes, dropped.
    pub zero_sized: u64,
    /// Lines or records that make no sense, dropped.
    pub damaged: u64,
    /// Events that are no requests to the drive, dropped.
    pub other_events: u64,
    /// Blank lines, headings, comments and totals, dropped.
    pub headings: u64,
    /// Requests whose time was before their predecessor's or negative; they are returned at their
    /// predecessor's time.
    pub backwards: u64,
    /// The first damaged lines or records.
    pub first_damaged: Vec<Damage>,
}

/// Counts the bytes read from a file, below the decompressor.
struct Metered<R> {
    input: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.input.read(into)?;
        self.taken.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

enum Source {
    Lines(Buffer, Box<dyn LineParser>),
    Vscsi(Buffer, Version),
    Native(Box<senko_io::trace::TraceReader<Buffer>>, bool),
}

/// A trace that is being read: an iterator that ends after its first error.
pub struct Reader {
    source: Source,
    taken: Arc<AtomicU64>,
    format: Format,
    compression: Compression,
    notes: Vec<String>,
    /// Doubts about the recognised format.
    doubt: Option<String>,
    /// Whether the user named the format.
    said: bool,
    counts: Counts,
    /// The trace's clock at the first request.
    origin: Option<u64>,
    now: Time,
    ended: bool,
}

impl Reader {
    /// Opens the trace at `path`.
    ///
    /// # Errors
    /// If it can't be opened, its format is unknown, or `spec` has an option that the format does
    /// not have.
    pub fn open(path: &Path, spec: &TraceSpec) -> Result<Reader, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Open {
            path: path.to_path_buf(),
            source,
        })?;
        Reader::new(file, spec)
    }

    /// Reads a trace from a stream.
    pub fn new(input: impl Read + Send + 'static, spec: &TraceSpec) -> Result<Reader, TraceError> {
        let broken = |source, compression| TraceError::Broken {
            unit: "line",
            after: 0,
            bytes: 0,
            compression,
            source,
        };
        let taken = Arc::new(AtomicU64::new(0));
        let input = Metered {
            input,
            taken: Arc::clone(&taken),
        };
        let (compression, input) = senko_workload::decompress(input)
            .map_err(|source| broken(source, Compression::None))?;
        let mut buffer = Buffer::new(Box::new(input));
        buffer.skip_mark();
        let head = buffer.head();
        let recognised = match spec.format {
            Some(format) => Ok((format, None)),
            None => detect::recognise(head),
        };
        let (format, doubt) = match recognised {
            Ok(found) => found,
            Err(why) => {
                return Err(match buffer.broken() {
                    Some(source) => broken(source, compression),
                    None => TraceError::Unknown {
                        why,
                        known: Format::names(),
                    },
                });
            }
        };
        spec.check(format)?;
        let mut notes = Vec::new();
        let source = if let Some((parser, guessed)) = detect::parser(format, head, spec) {
            notes = guessed;
            Source::Lines(buffer, parser)
        } else if format == Format::Vscsi {
            let version = Version::recognise(head).ok_or_else(|| TraceError::Unknown {
                why: "its records are neither version 1 nor version 2 of VSCSI".to_owned(),
                known: Format::names(),
            })?;
            Source::Vscsi(buffer, version)
        } else {
            let reader = senko_io::trace::TraceReader::new(buffer)?;
            Source::Native(Box::new(reader), spec.options.streams.unwrap_or(false))
        };
        Ok(Reader {
            source,
            taken,
            format,
            compression,
            notes,
            doubt,
            said: spec.format.is_some(),
            counts: Counts::default(),
            origin: None,
            now: 0,
            ended: false,
        })
    }

    /// The format, recognised or named by the user.
    pub fn format(&self) -> Format {
        self.format
    }

    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Guesses from the content, as sentences, each with the option that overrides it.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Doubts about the recognised format, with the option that corrects it.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// How much of the trace is damaged, in a sentence.
    pub(super) fn damage(&self) -> Option<String> {
        let (damaged, meant, unit) = (self.counts.damaged, self.counts.meant(), self.unit());
        (damaged > 0).then(|| format!("{damaged} of {meant} {unit}s are damaged and left out"))
    }

    /// Refuses input that is not a trace: nothing in it is a request, or most of it is damaged.
    /// `name` is the user's name for it.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let (requests, damaged) = (self.counts.requests, self.counts.damaged);
        let meant = self.counts.meant();
        if requests > 0 && damaged * 2 <= meant {
            return Ok(());
        }
        let (format, unit) = (self.format, self.unit());
        let first = self.counts.first_damaged.first().map(|first| {
            let Damage { number, why, text } = first;
            format!(", the first of them {unit} {number}: {why}: \"{text}\"")
        });
        let first = first.unwrap_or_default();
        let hint = if damaged == 0 {
            ""
        } else if self.said {
            ". Is it really what --format says?"
        } else {
            ". Say --format if it is another"
        };
        let read = format!("{name}, read as {format},");
        Err(if requests > 0 {
            format!("{read} makes no sense: {damaged} of {meant} {unit}s are damaged{first}{hint}")
        } else if damaged > 0 {
            format!("{read} has no request: {damaged} {unit}s are damaged{first}{hint}")
        } else {
            let items = self.counts.items;
            format!("{read} has no request: of its {items} {unit}s none asks for bytes{hint}")
        })
    }

    /// Bytes of the file that were read so far, before decompression, for a progress bar.
    pub fn input_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether requests have times; without them, all come at time 0. This is known when the trace
    /// is opened, except for a log of fio whose first `wait` comes late.
    pub fn timed(&self) -> bool {
        match &self.source {
            Source::Lines(_, parser) => parser.timed(),
            Source::Vscsi(..) | Source::Native(..) => true,
        }
    }

    /// `line` or `record`: what [`Counts::items`] counts.
    pub fn unit(&self) -> &'static str {
        match self.source {
            Source::Lines(..) => "line",
            Source::Vscsi(..) | Source::Native(..) => "record",
        }
    }

    fn broken(&self, bytes: u64, source: io::Error) -> TraceError {
        TraceError::Broken {
            unit: self.unit(),
            after: self.counts.items,
            bytes,
            compression: self.compression,
            source,
        }
    }

    fn advance(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            let raw = match &mut self.source {
                Source::Lines(buffer, parser) => match buffer.line() {
                    Ok(Line::At(at)) => {
                        let line = buffer.slice(at);
                        let parsed = if is_blank(line) {
                            Parsed::Heading
                        } else {
                            parser.line(line)
                        };
                        self.counts.judge(parsed, line)
                    }
                    Ok(Line::TooLong) => {
                        let why = "the line is longer than 64 KiB";
                        self.counts.judge(Parsed::Damaged(why), &[])
                    }
                    Ok(Line::End) => return Ok(None),
                    Err(error) => {
                        let bytes = buffer.position();
                        return Err(self.broken(bytes, error));
                    }
                },
                Source::Vscsi(buffer, version) => {
                    let expected = version.record_bytes();
                    match buffer.record(expected) {
                        Ok(at) if at.is_empty() => return Ok(None),
                        Ok(at) if at.len() < expected => {
                            return Err(TraceError::Truncated {
                                record: self.counts.items + 1,
                                got: at.len(),
                                expected,
                            });
                        }
                        Ok(at) => {
                            let parsed = version.parse(buffer.slice(at));
                            self.counts.judge(parsed, &[])
                        }
                        Err(error) => {
                            let bytes = buffer.position();
                            return Err(self.broken(bytes, error));
                        }
                    }
                }
                Source::Native(reader, streams) => match reader.next() {
                    Some(Ok(record)) => {
                        let parsed = native::request(&record, *streams);
                        self.counts.judge(parsed, &[])
                    }
                    Some(Err(senko_io::trace::TraceError::Io(source))) => {
                        let records = self.counts.items * RECORD_BYTES as u64;
                        return Err(self.broken(HEADER_BYTES as u64 + records, source));
                    }
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(None),
                },
            };
            if let Some(raw) = raw {
                return Ok(Some(self.admit(raw)));
            }
        }
    }

    /// Returns a request. Its time is 0 at the first one, and never goes back (TRACE-3).
    #[inline]
    fn admit(&mut self, raw: Raw) -> Request {
        let Stamp { ns, negative } = raw.time;
        let origin = *self.origin.get_or_insert(ns);
        match ns.checked_sub(origin) {
            Some(time) if time >= self.now => {
                self.now = time;
                self.counts.backwards += u64::from(negative);
            }
            _ => self.counts.backwards += 1,
        }
        Request {
            time: self.now,
            device: raw.device,
            op: raw.op,
            offset: raw.offset,
            bytes: raw.bytes,
            stream: raw.stream,
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Request, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Counts {
    /// Lines or records that mean requests.
    fn meant(&self) -> u64 {
        self.requests + self.damaged + self.zero_sized
    }

    /// Counts a line or record; returns its request, if it is a valid one.
    #[inline]
    fn judge(&mut self, parsed: Parsed, text: &[u8]) -> Option<Raw> {
        self.items += 1;
        let raw = match parsed {
            Parsed::Request(raw) => raw,
            Parsed::Heading => {
                self.headings += 1;
                return None;
            }
            Parsed::Other => {
                self.other_events += 1;
                return None;
            }
            Parsed::Damaged(why) => {
                self.name(why, text);
                return None;
            }
        };
        if raw.op == Op::Flush {
            self.requests += 1;
            return Some(Raw {
                offset: 0,
                bytes: 0,
                ..raw
            });
        }
        if raw.bytes == 0 {
            self.zero_sized += 1;
            return None;
        }
        if raw.offset.checked_add(raw.bytes).is_none() {
            self.name("the request ends beyond 2^64 bytes", text);
            return None;
        }
        if raw.bytes > MAX_TRANSFER && raw.op != Op::Trim {
            self.name("the request is longer than 4 GiB", text);
            return None;
        }
        self.requests += 1;
        Some(raw)
    }

    /// Counts a damaged line, and keeps it if it is one of the first.
    #[cold]
    fn name(&mut self, why: &'static str, text: &[u8]) {
        self.damaged += 1;
        if self.first_damaged.len() < NAMED {
            self.first_damaged.push(Damage {
                number: self.items,
                why,
                text: excerpt(text),
            });
        }
    }
}

/// A line that no parser needs to see: blank, or a comment.
#[inline]
fn is_blank(line: &[u8]) -> bool {
    match line.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(&first) => first == b'#',
        None => true,
    }
}
