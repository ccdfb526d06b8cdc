// SPDX-License-Identifier: Apache-2.0
//! Writes requests as traces in other formats, for `trace convert`, and to pass generated load to
//! other tools.
//!
//! | format | addresses and sizes | times | what it can't say |
//! |---|---|---|---|
//! | `spc` | sectors; sizes in bytes | ns, as decimal seconds | trims, flushes, streams |
//! | `msr` | bytes | 100 ns, as FILETIMEs from 1970 on | trims, flushes, streams; devices are hosts (`number >> 16`) and their disks |
//! | `columns` | sectors | ns or us whole, ms or s with all decimals | trims, flushes, streams |
//! | `fio` (version 3) | bytes | us | streams; devices are files, which readers number again |
//! | `senko` | pages of 4096 | ns | streams; devices above 65,535 get free numbers from there down, and are counted |
//!
//! A request that does not start or end at a sector or page is widened, and a time is truncated to
//! the unit. [`Written`] counts both, and requests that a format can't represent.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::str::FromStr;

use senko_io::trace::{MAGIC, RECORD_BYTES, Record, VERSION};
use senko_io::{Engine, Op as DeviceOp, PAGE_SIZE, Purpose, Tag};

use super::fields::MICROSECOND;
use super::format::{Format, TraceSpec};
use super::unit::TimeUnit;
use crate::{Error, Op, Request};

/// 1970, as a FILETIME.
const UNIX_EPOCH: u64 = 116_444_736_000_000_000;
const TICK: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFormat {
    Spc {
        sector: u64,
    },
    Msr,
    /// `time device address sectors flag`.
    Columns {
        unit: TimeUnit,
        sector: u64,
        /// The flag of a write, 0 or 1.
        write_flag: u64,
    },
    Fio,
    Senko,
}

impl FromStr for WriteFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<WriteFormat, Error> {
        let name = text.split(':').next().unwrap_or_default();
        let unwritten = || {
            Err(Error::Spec(format!(
                "\"{name}\" can't be written; spc, msr, columns (disksim, mqsim, ssdsim), fio and senko can"
            )))
        };
        if Format::of_name(name).is_none() {
            return unwritten();
        }
        let TraceSpec {
            format, options, ..
        } = text.parse()?;
        let sector = options.sector.unwrap_or(512);
        match format {
            Some(Format::Spc) => Ok(WriteFormat::Spc { sector }),
            Some(Format::Msr) => Ok(WriteFormat::Msr),
            Some(Format::Columns) if options.columns.is_some() => Err(Error::Spec(
                "columns are written in the order tdasf only".to_owned(),
            )),
            Some(Format::Columns) => Ok(WriteFormat::Columns {
                unit: options.unit.unwrap_or(TimeUnit::Nanoseconds),
                sector,
                write_flag: options.write_flag.unwrap_or(0),
            }),
            Some(Format::Fio) => Ok(WriteFormat::Fio),
            Some(Format::Senko) => Ok(WriteFormat::Senko),
            _ => unwritten(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Written {
    pub requests: u64,
    /// Trims and flushes that the format can't represent.
    pub left_out: u64,
    /// Requests that were widened to sectors or pages.
    pub widened: u64,
    /// Requests whose time was truncated to the format's unit.
    pub cut_times: u64,
    /// Devices that got another number, since the format can't represent theirs.
    pub renumbered: u64,
}

pub struct TraceWriter<W: Write> {
    out: W,
    format: WriteFormat,
    written: Written,
    /// fio's files that were opened.
    opened: BTreeSet<u32>,
    /// Numbers of devices in Senko's format, and the numbers in use there.
    numbers: BTreeMap<u32, u16>,
    taken: BTreeSet<u16>,
    last_us: u64,
    started: bool,
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

impl<W: Write> TraceWriter<W> {
    /// A writer to `out`, which should be buffered.
    pub fn new(out: W, format: WriteFormat) -> TraceWriter<W> {
        TraceWriter {
            out,
            format,
            written: Written::default(),
            opened: BTreeSet::new(),
            numbers: BTreeMap::new(),
            taken: BTreeSet::new(),
            last_us: 0,
            started: false,
        }
    }

    /// Writes a request.
    ///
    /// # Errors
    /// The writer's error; or the format can't represent a device number, an address or a time.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        self.start()?;
        let says_all = matches!(self.format, WriteFormat::Fio | WriteFormat::Senko);
        if !says_all && matches!(request.op, Op::Trim | Op::Flush) {
            self.written.left_out += 1;
            return Ok(());
        }
        match self.format {
            WriteFormat::Spc { sector } => self.spc(request, sector)?,
            WriteFormat::Msr => self.msr(request)?,
            WriteFormat::Columns {
                unit,
                sector,
                write_flag,
            } => self.columns(request, unit, sector, write_flag)?,
            WriteFormat::Fio => self.fio(request)?,
            WriteFormat::Senko => self.senko(request)?,
        }
        self.written.requests += 1;
        Ok(())
    }

    /// Writes the end of the format and flushes the writer.
    pub fn finish(mut self) -> io::Result<(W, Written)> {
        self.start()?;
        for device in &self.opened {
            writeln!(self.out, "{} device{device} close", self.last_us)?;
        }
        self.out.flush()?;
        Ok((self.out, self.written))
    }

    fn start(&mut self) -> io::Result<()> {
        if self.started {
            return Ok(());
        }
        self.started = true;
        match self.format {
            WriteFormat::Fio => writeln!(self.out, "fio version 3 iolog"),
            WriteFormat::Senko => {
                self.out.write_all(&MAGIC)?;
                self.out.write_all(&VERSION.to_le_bytes())?;
                self.out.write_all(&(RECORD_BYTES as u32).to_le_bytes())?;
                self.out.write_all(&(PAGE_SIZE as u32).to_le_bytes())?;
                // A reserved field, and the start of the recording. Nothing depends on them, so
                // equal input gives an equal file.
                self.out.write_all(&[0; 12])
            }
            _ => Ok(()),
        }
    }

    /// The units of `size` bytes that hold a request: the first, and how many.
    fn units(&mut self, request: &Request, size: u64) -> (u64, u64) {
        let end = request.offset.saturating_add(request.bytes);
        if !request.offset.is_multiple_of(size) || !end.is_multiple_of(size) {
            self.written.widened += 1;
        }
        let first = request.offset / size;
        (first, end.div_ceil(size) - first)
    }

    /// The time in units of `ns`.
    fn time(&mut self, request: &Request, ns: u64) -> u64 {
        if !request.time.is_multiple_of(ns) {
            self.written.cut_times += 1;
        }
        request.time / ns
    }

    fn spc(&mut self, request: &Request, sector: u64) -> io::Result<()> {
        let before = request.offset % sector;
        self.written.widened += u64::from(before != 0);
        let op = if request.op == Op::Write { 'W' } else { 'R' };
        writeln!(
            self.out,
            "{},{},{},{op},{}.{:09}",
            request.device,
            request.offset / sector,
            request.bytes + before,
            request.time / 1_000_000_000,
            request.time % 1_000_000_000,
        )
    }

    fn msr(&mut self, request: &Request) -> io::Result<()> {
        let ticks = self.time(request, TICK);
        let ticks = ticks
            .checked_add(UNIX_EPOCH)
            .filter(|ticks| ticks.checked_mul(TICK).is_some());
        let Some(ticks) = ticks else {
            return Err(invalid(format!(
                "the time {} ns is beyond what an MSR trace is read up to",
                request.time
            )));
        };
        let op = if request.op == Op::Write {
            "Write"
        } else {
            "Read"
        };
        writeln!(
            self.out,
            "{ticks},host{},{},{op},{},{},0",
            request.device >> 16,
            request.device & 0xffff,
            request.offset,
            request.bytes,
        )
    }

    fn columns(
        &mut self,
        request: &Request,
        unit: TimeUnit,
        sector: u64,
        write_flag: u64,
    ) -> io::Result<()> {
        let ns = unit.nanoseconds();
        let (first, count) = self.units(request, sector);
        match unit {
            TimeUnit::Nanoseconds | TimeUnit::Microseconds => {
                let time = self.time(request, ns);
                write!(self.out, "{time}")?;
            }
            TimeUnit::Milliseconds => {
                write!(self.out, "{}.{:06}", request.time / ns, request.time % ns)?;
            }
            TimeUnit::Seconds => {
                write!(self.out, "{}.{:09}", request.time / ns, request.time % ns)?;
            }
        }
        let flag = if request.op == Op::Write {
            write_flag
        } else {
            1 - write_flag.min(1)
        };
        writeln!(self.out, " {} {first} {count} {flag}", request.device)
    }

    fn fio(&mut self, request: &Request) -> io::Result<()> {
        let us = self.time(request, MICROSECOND);
        self.last_us = us;
        let device = request.device;
        if self.opened.insert(device) {
            writeln!(self.out, "{us} device{device} add")?;
            writeln!(self.out, "{us} device{device} open")?;
        }
        let action = match request.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Trim => "trim",
            Op::Flush => "sync",
        };
        writeln!(
            self.out,
            "{us} device{device} {action} {} {}",
            request.offset, request.bytes
        )
    }

    /// A device's number in Senko's format: its own, or a free one if its own is too large or in
    /// use.
    fn number(&mut self, device: u32) -> io::Result<u16> {
        if let Some(&number) = self.numbers.get(&device) {
            return Ok(number);
        }
        let own = u16::try_from(device)
            .ok()
            .filter(|own| !self.taken.contains(own));
        let free = || (0..=u16::MAX).rev().find(|free| !self.taken.contains(free));
        let too_many = "there are more than 65,536 devices, which have no place in Senko's format";
        let number = own.or_else(free).ok_or_else(|| invalid(too_many))?;
        self.written.renumbered += u64::from(own.is_none());
        self.numbers.insert(device, number);
        self.taken.insert(number);
        Ok(number)
    }

    fn senko(&mut self, request: &Request) -> io::Result<()> {
        let device = self.number(request.device)?;
        let (op, purpose) = match request.op {
            Op::Read => (DeviceOp::Read, Purpose::Lookup),
            Op::Write => (DeviceOp::Write, Purpose::Admit),
            Op::Trim => (DeviceOp::Discard, Purpose::Reclaim),
            Op::Flush => (DeviceOp::Flush, Purpose::Log),
        };
        let (mut page, mut left) = match request.op {
            Op::Flush => (0, 0),
            _ => self.units(request, PAGE_SIZE as u64),
        };
        if page
            .checked_add(left)
            .is_none_or(|end| end > u64::MAX / PAGE_SIZE as u64)
        {
            return Err(invalid(format!(
                "{request:?} ends beyond the last page of Senko's format"
            )));
        }
        loop {
            let count = left.min(u64::from(u32::MAX)) as u32;
            let record = Record {
                time_ns: request.time,
                device,
                tag: Tag {
                    engine: Engine::Lab,
                    purpose,
                },
                op,
                page,
                count,
            };
            self.out.write_all(&record.encode())?;
            page += u64::from(count);
            left -= u64::from(count);
            if left == 0 {
                return Ok(());
            }
        }
    }
}
