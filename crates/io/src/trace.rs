// SPDX-License-Identifier: Apache-2.0
//! The recorder of operations on a device, and the reader of its compact binary format.
//!
//! A [`Recorder`] is attached to a [`crate::FlashFile`]. The file's blocking calls and the event
//! loop write one record for each operation when it is submitted. The simulator replays the trace.
//!
//! All numbers are little-endian. The header has 32 bytes:
//!
//! ```text
//! 0        8          12            16          20         24                  32
//! | SENKOTRC | version 1 | record 24 | page 4096 | reserved 0 | start, Unix time ns |
//! ```
//!
//! Each record has 24:
//!
//! ```text
//! 0            8      16      20       22                         23        24
//! | ns since start | page | count | device | op (low 4 bits), engine | purpose |
//! ```
//!
//! Times never go back. A flush has page 0 and count 0. An operation of more than 2^32-1 pages has
//! several records. `docs/formats/trace.md` has the same as tables.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::{Engine, Op, PAGE_SIZE, Purpose, Tag};

/// The first bytes of a trace.
pub const MAGIC: [u8; 8] = *b"SENKOTRC";
/// The version that this code writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 24;

/// Records are gathered up to this number before they are written.
const BUFFER_BYTES: usize = RECORD_BYTES * 8192;
/// Records are written at least this often, as long as new ones come.
const FLUSH_NS: u64 = 1_000_000_000;

/// One operation that reached a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since the recording started.
    pub time_ns: u64,
    /// The device's number.
    pub device: u16,
    /// The engine and the purpose.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// First page; 0 for a flush.
    pub page: u64,
    /// Pages; 0 for a flush.
    pub count: u32,
}

impl Record {
    /// The record in its stored form.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..8].copy_from_slice(&self.time_ns.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.page.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.device.to_le_bytes());
        bytes[22] = self.op as u8 | (self.tag.engine as u8) << 4;
        bytes[23] = self.tag.purpose as u8;
        bytes
    }

    /// The record in `bytes`, or the problem with it.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, &'static str> {
        let op = match bytes[22] & 15 {
            1 => Op::Read,
            2 => Op::Write,
            3 => Op::Flush,
            4 => Op::Discard,
            _ => return Err("unknown operation"),
        };
        let engine = match bytes[22] >> 4 {
            1 => Engine::Cache,
            2 => Engine::Store,
            3 => Engine::Dbm,
            4 => Engine::Lab,
            _ => return Err("unknown engine"),
        };
        let purpose = match bytes[23] {
            1 => Purpose::Lookup,
            2 => Purpose::LookupRest,
            3 => Purpose::Admit,
            4 => Purpose::Reinsert,
            5 => Purpose::Reclaim,
            6 => Purpose::Meta,
            7 => Purpose::Log,
            8 => Purpose::Recover,
            _ => return Err("unknown purpose"),
        };
        let page = u64::from_le_bytes(field(bytes, 8));
        let count = u32::from_le_bytes(field(bytes, 16));
        if page
            .checked_add(u64::from(count))
            .is_none_or(|end| end > u64::MAX / PAGE_SIZE as u64)
        {
            return Err("page number out of range");
        }
        Ok(Record {
            time_ns: u64::from_le_bytes(field(bytes, 0)),
            device: u16::from_le_bytes(field(bytes, 20)),
            tag: Tag { engine, purpose },
            op,
            page,
            count,
        })
    }
}

/// `N` bytes of `bytes` from `at` on.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

#[derive(Debug)]
struct Sink {
    file: File,
    buffer: Vec<u8>,
    written: u64,
    last_write_ns: u64,
    error: Option<io::Error>,
}

impl Sink {
    fn write_out(&mut self, now_ns: u64) {
        if self.error.is_none() {
            self.error = self.file.write_all(&self.buffer).err();
        }
        self.buffer.clear();
        self.last_write_ns = now_ns;
    }
}

/// Writes the trace file; threads share it. Records wait in a buffer and are written when it is
/// full, once a second while records come, on [`Recorder::flush`] and on drop. After a failed write
/// (a full disk) recording stops and the error waits for [`Recorder::flush`].
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    start: Instant,
    sink: Mutex<Sink>,
}

impl Recorder {
    /// Makes (or empties) the trace file at `path`. The recording's clock starts now.
    ///
    /// # Errors
    /// The system's error, with the path in its text.
    pub fn create(path: &Path) -> io::Result<Recorder> {
        let make = || {
            let mut file = File::create(path)?;
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let mut header = [0; HEADER_BYTES];
            header[0..8].copy_from_slice(&MAGIC);
            header[8..12].copy_from_slice(&VERSION.to_le_bytes());
            header[12..16].copy_from_slice(&(RECORD_BYTES as u32).to_le_bytes());
            header[16..20].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
            header[24..32].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
            file.write_all(&header)?;
            Ok(file)
        };
        let file = make().map_err(|error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("cannot make the trace {}: {error}", path.display()),
            )
        })?;
        let buffer = Vec::with_capacity(BUFFER_BYTES + RECORD_BYTES);
        let sink = Sink {
            file,
            buffer,
            written: 0,
            last_write_ns: 0,
            error: None,
        };
        Ok(Recorder {
            path: path.to_path_buf(),
            start: Instant::now(),
            sink: Mutex::new(sink),
        })
    }

    /// The path of the trace.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records one operation. It reads the time itself, so that times never go back.
    pub fn record(&self, device: u16, tag: Tag, op: Op, page: u64, pages: u64) {
        let mut sink = self.lock();
        if sink.error.is_some() {
            return;
        }
        let time_ns = self.start.elapsed().as_nanos() as u64;
        let (mut page, mut left) = if op == Op::Flush {
            (0, 0)
        } else {
            (page, pages)
        };
        loop {
            let count = left.min(u64::from(u32::MAX)) as u32;
            let record = Record {
                time_ns,
                device,
                tag,
                op,
                page,
                count,
            };
            sink.buffer.extend_from_slice(&record.encode());
            sink.written += 1;
            page += u64::from(count);
            left -= u64::from(count);
            if left == 0 {
                break;
            }
        }
        if sink.buffer.len() >= BUFFER_BYTES || time_ns - sink.last_write_ns >= FLUSH_NS {
            sink.write_out(time_ns);
        }
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.lock().written
    }

    /// Writes the gathered records.
    ///
    /// # Errors
    /// The first failed write since the start; returned only once.
    pub fn flush(&self) -> io::Result<()> {
        let mut sink = self.lock();
        let now_ns = self.start.elapsed().as_nanos() as u64;
        sink.write_out(now_ns);
        match &sink.error {
            Some(error) => Err(io::Error::new(
                error.kind(),
                format!("the trace {} is cut short: {error}", self.path.display()),
            )),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sink> {
        // A panic elsewhere can at most lose a record.
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // No caller is left to get an error; call `flush` before dropping to get it.
        let _ = self.flush();
    }
}

/// Why a trace cannot be read (further).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file does not begin like a trace.
    #[error("not a senko trace: it does not begin with SENKOTRC")]
    Foreign,
    /// The file is shorter than a header.
    #[error("not a senko trace: {got} bytes are less than its header of {HEADER_BYTES}")]
    NoHeader {
        /// Bytes in the file.
        got: usize,
    },
    /// Another version wrote it.
    #[error("trace version {found}; this program reads version {VERSION}")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The header contradicts its version.
    #[error("damaged trace header: {what} is {found}, must be {expected}")]
    Header {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u32,
        /// The expected value.
        expected: u32,
    },
    /// The last record is incomplete (the recording program was killed, or the disk was full).
    #[error("the trace ends inside record {record}: {got} of its {RECORD_BYTES} bytes are there")]
    Truncated {
        /// Number of the record, from 0.
        record: u64,
        /// Bytes of it that exist.
        got: usize,
    },
    /// A record that no version 1 program writes.
    #[error("damaged trace: record {record}: {what}")]
    Damaged {
        /// Number of the record, from 0.
        record: u64,
        /// The problem.
        what: &'static str,
    },
    /// The file cannot be read.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),
}

/// Reads a trace; an iterator that ends after its first error.
pub struct TraceReader<R> {
    from: R,
    start_unix_ns: u64,
    next: u64,
    last_ns: u64,
    ended: bool,
}

impl TraceReader<BufReader<File>> {
    /// Opens the trace at `path`.
    ///
    /// # Errors
    /// If the file cannot be opened or does not begin like a trace.
    pub fn open(path: &Path) -> Result<TraceReader<BufReader<File>>, TraceError> {
        TraceReader::new(BufReader::with_capacity(1 << 18, File::open(path)?))
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If `from` does not begin like a trace.
    pub fn new(mut from: R) -> Result<TraceReader<R>, TraceError> {
        let mut header = [0; HEADER_BYTES];
        let got = fill(&mut from, &mut header)?;
        if got >= MAGIC.len() && header[0..8] != MAGIC {
            return Err(TraceError::Foreign);
        }
        if got < HEADER_BYTES {
            return Err(TraceError::NoHeader { got });
        }
        let number = |at| u32::from_le_bytes(field(&header, at));
        if number(8) != VERSION {
            return Err(TraceError::Version { found: number(8) });
        }
        for (what, at, expected) in [
            ("record size", 12, RECORD_BYTES as u32),
            ("page size", 16, PAGE_SIZE as u32),
        ] {
            if number(at) != expected {
                return Err(TraceError::Header {
                    what,
                    found: number(at),
                    expected,
                });
            }
        }
        let start_unix_ns = u64::from_le_bytes(field(&header, 24));
        Ok(TraceReader {
            from,
            start_unix_ns,
            next: 0,
            last_ns: 0,
            ended: false,
        })
    }

    /// When the recording started, as Unix time in nanoseconds.
    pub fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        let mut bytes = [0; RECORD_BYTES];
        let record = self.next;
        match fill(&mut self.from, &mut bytes)? {
            0 => return Ok(None),
            RECORD_BYTES => {}
            got => return Err(TraceError::Truncated { record, got }),
        }
        let found = Record::decode(&bytes).map_err(|what| TraceError::Damaged { record, what })?;
        if found.time_ns < self.last_ns {
            return Err(TraceError::Damaged {
                record,
                what: "its time is before its predecessor's",
            });
        }
        self.last_ns = found.time_ns;
        self.next += 1;
        Ok(Some(found))
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Record, TraceError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Fills `bytes` as far as `from` goes; returns how many bytes it filled.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match from.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
