// SPDX-License-Identifier: Apache-2.0
//! Readers for published key-value traces: a stream of bytes in, a stream of [`Record`]s out.
//!
//! The lab and the simulator open a file and pass it to [`TraceReader::open`]. It decompresses the
//! file and recognises the format by its content (never by the file's name). Then it yields records
//! one at a time.
//!
//! | format | one record | source |
//! |---|---|---|
//! | `arc` | `start count ignored ignored` a line: `count` references to `start`, `start + 1`, ... | Megiddo and Modha's `.lis` |
//! | `lirs` | one block number a line; lines of `*` mark phases | Jiang and Zhang's `.trace` |
//! | `oracle-general` | 24 bytes, little-endian: time `u32`, key `u64`, size `u32`, next access `i64` | libCacheSim |
//! | `csv` | `key,op,size` a line, after an optional heading; `op` get, set or delete; `size` may be empty | ours |
//!
//! Always holds: an invalid record ends the stream with an error that names its line or number.
//! Only marks, blank lines, headings and empty requests, which a format allows, are skipped. The
//! length of lines is bounded.

mod csv;
mod detect;
mod oracle;
mod text;

use std::io::{BufRead, BufReader, Read};

pub use detect::Format;
pub use text::arc_line;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The object. A name that is not a number is hashed (XXH3, 64 bits).
    pub key: u64,
    /// The size in bytes, if the trace has it.
    pub size: Option<u64>,
    /// The operation; traces of block and page references count as reads.
    pub op: TraceOp,
}

/// The operation of a trace's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOp {
    /// Looks an object up.
    Get,
    /// Writes an object.
    Set,
    /// Removes an object.
    Delete,
}

/// Why a trace cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The bytes could not be read or decompressed.
    #[error("the trace cannot be read after {unit} {after}: {cause}")]
    Read {
        /// `line` or `record`.
        unit: &'static str,
        /// The last line or record that was read.
        after: u64,
        /// What the reader said.
        cause: std::io::Error,
    },
    /// The content has none of the known formats.
    #[error("the trace is in no known format ({why}); known are arc, lirs, oracle-general and csv")]
    UnknownFormat {
        /// What was found.
        why: String,
    },
    /// A line or record is invalid.
    #[error("{unit} {number} of the {format} trace is bad: {why}")]
    Bad {
        /// The format that was expected.
        format: Format,
        /// `line` or `record`.
        unit: &'static str,
        /// Its number, from 1.
        number: u64,
        why: String,
    },
}

/// Reads one trace.
///
/// As an iterator it yields `Result<Record, TraceError>`, and nothing more after an error.
pub struct TraceReader<'a> {
    input: Box<dyn BufRead + 'a>,
    format: Format,
    /// Lines or binary records read so far.
    position: u64,
    /// Blank lines among them.
    blank_lines: u64,
    line: Vec<u8>,
    /// The rest of an ARC line: the next block, and the number of blocks left.
    run: (u64, u64),
    finished: bool,
}

/// Why a single line or record is invalid; the reader adds the place.
enum Trouble {
    Bad(String),
    Read(std::io::Error),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Read(error)
    }
}

impl<'a> TraceReader<'a> {
    /// Opens a trace in any known format, compressed or not. Its first bytes show both.
    ///
    /// # Errors
    /// If the first bytes cannot be read or decompressed, or show no known format.
    pub fn open(input: impl Read + 'a) -> Result<Self, TraceError> {
        let start = |cause| TraceError::Read {
            unit: "record",
            after: 0,
            cause,
        };
        let (_, input) = crate::compress::decompress(input).map_err(start)?;
        let mut input = BufReader::with_capacity(1 << 16, input);
        let head = detect::peek(&mut input).map_err(start)?;
        let format = Format::recognise(&head).map_err(|why| TraceError::UnknownFormat { why })?;
        let input = Box::new(std::io::Cursor::new(head).chain(input));
        Ok(Self {
            input,
            format,
            position: 0,
            blank_lines: 0,
            line: Vec::new(),
            run: (0, 0),
            finished: false,
        })
    }

    /// The format that was recognised.
    pub fn format(&self) -> Format {
        self.format
    }

    fn advance(&mut self) -> Result<Option<Record>, Trouble> {
        match self.format {
            Format::Arc => text::next_arc(self),
            Format::Lirs => text::next_lirs(self),
            Format::Csv => csv::next(self),
            Format::OracleGeneral => oracle::next(self),
        }
    }

    fn unit(&self) -> &'static str {
        if self.format == Format::OracleGeneral {
            "record"
        } else {
            "line"
        }
    }
}

impl Iterator for TraceReader<'_> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let trouble = match self.advance() {
            Ok(Some(record)) => return Some(Ok(record)),
            Ok(None) => None,
            Err(trouble) => Some(trouble),
        };
        self.finished = true;
        let unit = self.unit();
        trouble.map(|trouble| {
            Err(match trouble {
                Trouble::Read(cause) => TraceError::Read {
                    unit,
                    after: self.position,
                    cause,
                },
                Trouble::Bad(why) => TraceError::Bad {
                    format: self.format,
                    unit,
                    number: self.position,
                    why,
                },
            })
        })
    }
}
