// SPDX-License-Identifier: Apache-2.0
//! Dumps of Event Tracing for Windows, as SNIA publishes Microsoft's production servers (MSN,
//! Exchange, TPC-C and TPC-E).
//!
//! Source: the README of the SNIA IOTTA sets 158 to 161 (Kavalanekar et al., "Characterization of
//! Storage Workload Traces from Production Windows Servers", IISWC 2008) and the dumps of `xperf`.
//!
//! A block `BeginHeader ... EndHeader` has a line for each kind of event, with the names of its
//! columns. Events follow:
//!
//! ```text
//! DiskRead, TimeStamp, Process Name (PID), ThreadID, IrpPtr, ByteOffset, IOSize, ElapsedTime, DiskNum, ...
//! ```
//!
//! | column | unit |
//! |---|---|
//! | TimeStamp, ElapsedTime | microseconds since the start of the trace; the second is not used |
//! | ByteOffset, IOSize | bytes, hexadecimal |
//! | DiskNum | number of the disk |
//!
//! Columns are found by the header's names, since dumps differ; without a header the columns above
//! are assumed. `DiskRead`, `DiskWrite` and `DiskFlush` (a flush) count, all other events are
//! skipped and counted as such.
//!
//! Deviation: Windows logs an event when the request completes, so `TimeStamp` is late by
//! `ElapsedTime`. It is used unchanged, because the lines would not be in order otherwise.

use super::fields::{self, MICROSECOND};
use super::parser::{LineParser, Parsed, want};
use crate::Op;

/// Most columns of a line; further ones are ignored.
const MAX_COLUMNS: usize = 64;

/// The columns of one kind of event, counted from 0 with the event's name.
#[derive(Clone, Copy)]
struct Places {
    time: usize,
    offset: usize,
    size: usize,
    disk: usize,
}

/// The columns of every published dump.
const USUAL: Places = Places {
    time: 1,
    offset: 5,
    size: 6,
    disk: 8,
};

/// The columns of a flush, which has neither address nor size.
const USUAL_FLUSH: Places = Places {
    time: 1,
    offset: 0,
    size: 0,
    disk: 6,
};

pub(super) struct Etw {
    read: Places,
    write: Places,
    flush: Places,
    in_header: bool,
}

impl Etw {
    pub(super) fn new() -> Etw {
        Etw {
            read: USUAL,
            write: USUAL,
            flush: USUAL_FLUSH,
            in_header: false,
        }
    }

    /// Takes the columns of one kind of event from its line of the header.
    fn header(&mut self, line: &[u8]) -> Parsed {
        let kind = fields::commas(line).next().unwrap_or_default();
        let place = |name: &[u8]| {
            fields::commas(line)
                .take(MAX_COLUMNS)
                .position(|column| column.eq_ignore_ascii_case(name))
        };
        let flush = kind == b"DiskFlush";
        let places = match kind {
            b"DiskRead" => &mut self.read,
            b"DiskWrite" => &mut self.write,
            b"DiskFlush" => &mut self.flush,
            _ => return Parsed::Heading,
        };
        let both = (place(b"ByteOffset"), place(b"IOSize"));
        let (offset, size) = match both {
            (Some(offset), Some(size)) => (offset, size),
            _ if flush => (0, 0),
            _ => return Parsed::Damaged("the header names no ByteOffset or no IOSize"),
        };
        *places = Places {
            time: want!(place(b"TimeStamp"), "the header names no TimeStamp"),
            offset,
            size,
            disk: want!(place(b"DiskNum"), "the header names no DiskNum"),
        };
        Parsed::Heading
    }
}

impl LineParser for Etw {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let line = line.trim_ascii();
        match line {
            b"BeginHeader" => self.in_header = true,
            b"EndHeader" => self.in_header = false,
            _ if self.in_header => return self.header(line),
            _ => return self.event(line),
        }
        Parsed::Heading
    }
}

impl Etw {
    fn event(&mut self, line: &[u8]) -> Parsed {
        let mut columns = [&[][..]; MAX_COLUMNS];
        for (column, field) in columns.iter_mut().zip(fields::commas(line)) {
            *column = field;
        }
        let (op, places) = match columns[0] {
            b"DiskRead" => (Op::Read, self.read),
            b"DiskWrite" => (Op::Write, self.write),
            b"DiskFlush" => (Op::Flush, self.flush),
            _ => return Parsed::Other,
        };
        let [time, offset, size, disk] =
            [places.time, places.offset, places.size, places.disk].map(|place| columns[place]);
        if time.eq_ignore_ascii_case(b"TimeStamp") {
            // A dump whose header lacks its BeginHeader.
            return self.header(line);
        }
        let time = want!(
            fields::time(time, MICROSECOND),
            "the TimeStamp is not a number"
        );
        let device = want!(fields::uint32(disk), "the DiskNum is not a number");
        let (offset, bytes) = if op == Op::Flush {
            (0, 0)
        } else {
            (
                want!(
                    fields::hex(offset),
                    "the ByteOffset is not a hexadecimal number"
                ),
                want!(fields::hex(size), "the IOSize is not a hexadecimal number"),
            )
        };
        Parsed::request(time, device, op, offset, bytes)
    }
}
