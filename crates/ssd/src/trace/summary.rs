// SPDX-License-Identifier: Apache-2.0
//! A summary of a trace. It is printed when a trace is loaded, so that a user sees a wrong unit or
//! a swapped flag before believing a result.

use std::collections::BTreeMap;
use std::fmt;

use senko_workload::Compression;

use super::footprint::{Footprint, PAGE_BYTES};
use super::format::Format;
use super::reader::{Counts, Reader};
use super::signs::Signs;
use crate::error::TraceError;
use crate::report::show_bytes;
use crate::{Op, Request, Time};

/// Devices that are described one by one. For further ones only their number and totals are kept.
const MAX_DEVICES: usize = 1 << 16;
const SHOWN_DEVICES: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Mix {
    pub reads: u64,
    pub writes: u64,
    pub trims: u64,
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub trimmed_bytes: u64,
}

impl Mix {
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.trims + self.flushes
    }

    /// Writes among reads and writes, by requests; `None` if there are none.
    pub fn write_share(&self) -> Option<f64> {
        share(self.writes, self.reads)
    }

    /// Writes among reads and writes, by bytes.
    pub fn written_share(&self) -> Option<f64> {
        share(self.written_bytes, self.read_bytes)
    }

    fn add(&mut self, request: &Request) {
        let (count, bytes) = match request.op {
            Op::Read => (&mut self.reads, &mut self.read_bytes),
            Op::Write => (&mut self.writes, &mut self.written_bytes),
            Op::Trim => (&mut self.trims, &mut self.trimmed_bytes),
            Op::Flush => {
                self.flushes += 1;
                return;
            }
        };
        *count += 1;
        *bytes = bytes.saturating_add(request.bytes);
    }
}

fn by_name<S: serde::Serializer>(compression: &Compression, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(compression.name())
}

fn share(of: u64, other: u64) -> Option<f64> {
    let all = of as f64 + other as f64;
    (all > 0.0).then(|| of as f64 / all)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DeviceSummary {
    /// Requests, without flushes.
    pub requests: u64,
    /// The lowest address.
    pub first_byte: u64,
    /// The end of the highest request: the least capacity for all of them.
    pub end_byte: u64,
}

/// A summary of a trace. Add requests one by one, or use [`Summary::of`] for a whole trace.
#[derive(serde::Serialize)]
pub struct Summary {
    pub format: Option<Format>,
    #[serde(serialize_with = "by_name")]
    pub compression: Compression,
    pub timed: bool,
    pub mix: Mix,
    /// Distinct 4 KiB pages that were read or written.
    pub footprint_pages: u64,
    /// Whether that is exact, or an estimate within about 1 %.
    pub footprint_exact: bool,
    /// Devices, by number; at most 65,536 of them.
    pub devices: BTreeMap<u32, DeviceSummary>,
    /// The time of the last request, from the first, in nanoseconds.
    pub duration_ns: Time,
    /// Dropped requests, and why.
    pub counts: Counts,
    /// Guesses from the content.
    pub notes: Vec<String>,
    /// Doubts that the user should check.
    pub warnings: Vec<String>,
    #[serde(skip)]
    pub(super) signs: Signs,
    #[serde(skip)]
    footprint: Footprint,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            format: None,
            compression: Compression::None,
            timed: true,
            mix: Mix::default(),
            footprint_pages: 0,
            footprint_exact: true,
            devices: BTreeMap::new(),
            duration_ns: 0,
            counts: Counts::default(),
            notes: Vec::new(),
            warnings: Vec::new(),
            signs: Signs::default(),
            footprint: Footprint::default(),
        }
    }
}

impl Summary {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// If the trace ends early; everything read until then is lost. Use [`Summary::add`] and
    /// [`Summary::finish`] to keep it.
    pub fn of(reader: &mut Reader) -> Result<Summary, TraceError> {
        let mut summary = Summary::default();
        for request in &mut *reader {
            summary.add(&request?);
        }
        summary.finish(reader);
        Ok(summary)
    }

    pub fn add(&mut self, request: &Request) {
        self.mix.add(request);
        self.signs.see(request);
        self.duration_ns = self.duration_ns.max(request.time);
        if request.op == Op::Flush {
            return;
        }
        if request.op != Op::Trim {
            self.footprint
                .touch(request.device, request.offset, request.bytes);
            self.footprint_pages = self.footprint.pages();
            self.footprint_exact = self.footprint.is_exact();
        }
        let end = request.offset.saturating_add(request.bytes);
        let full = self.devices.len() >= MAX_DEVICES;
        if full && !self.devices.contains_key(&request.device) {
            return;
        }
        let device = self.devices.entry(request.device).or_insert(DeviceSummary {
            requests: 0,
            first_byte: u64::MAX,
            end_byte: 0,
        });
        device.requests += 1;
        device.first_byte = device.first_byte.min(request.offset);
        device.end_byte = device.end_byte.max(end);
    }

    /// Adds what `reader` knows besides its requests: format, dropped lines, notes.
    pub fn finish(&mut self, reader: &Reader) {
        self.format = Some(reader.format());
        self.compression = reader.compression();
        self.timed = reader.timed();
        self.counts = reader.counts().clone();
        self.notes = reader.notes().to_vec();
        self.warnings = reader.doubt().map(str::to_owned).into_iter().collect();
        self.warnings.extend(reader.damage());
        self.warnings.extend(self.doubts());
    }

    /// The lowest address and the end of the highest request, over all devices; `None` if nothing
    /// has an address.
    pub fn range(&self) -> Option<(u64, u64)> {
        let first = self
            .devices
            .values()
            .map(|device| device.first_byte)
            .min()?;
        let end = self.devices.values().map(|device| device.end_byte).max()?;
        Some((first, end))
    }
}

fn percent(f: &mut fmt::Formatter<'_>, share: Option<f64>) -> fmt::Result {
    match share {
        Some(share) => write!(f, "{:.1} %", share * 100.0),
        None => f.write_str("no"),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mix = &self.mix;
        if let Some(format) = self.format {
            writeln!(f, "format      {format}, {}", self.compression)?;
        }
        write!(f, "requests    {}; ", mix.requests())?;
        percent(f, mix.write_share())?;
        writeln!(f, " writes")?;
        writeln!(
            f,
            "            {} reads, {} writes, {} trims, {} flushes",
            mix.reads, mix.writes, mix.trims, mix.flushes
        )?;
        write!(
            f,
            "bytes       {} read, {} written",
            show_bytes(mix.read_bytes as f64),
            show_bytes(mix.written_bytes as f64)
        )?;
        write!(f, ", {} trimmed; ", show_bytes(mix.trimmed_bytes as f64))?;
        percent(f, mix.written_share())?;
        writeln!(f, " written")?;
        let exact = if self.footprint_exact { "" } else { "about " };
        let bytes = show_bytes(self.footprint_pages.saturating_mul(PAGE_BYTES) as f64);
        writeln!(
            f,
            "footprint   {exact}{} pages of 4096 B ({bytes})",
            self.footprint_pages
        )?;
        self.fmt_devices(f)?;
        if self.timed {
            let seconds = self.duration_ns as f64 / 1e9;
            write!(f, "duration    {seconds:.6} s")?;
            if seconds > 0.0 {
                write!(f, ", {:.1} requests/s", mix.requests() as f64 / seconds)?;
            }
            writeln!(f)?;
        } else {
            writeln!(
                f,
                "duration    none: the trace has no times, all requests come at once"
            )?;
        }
        self.fmt_left_out(f)?;
        for note in &self.notes {
            writeln!(f, "note        {note}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning     {warning}")?;
        }
        Ok(())
    }
}

impl Summary {
    fn fmt_devices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((first, end)) = self.range() {
            writeln!(
                f,
                "addresses   from {} up to {} ({})",
                first,
                end,
                show_bytes(end as f64)
            )?;
        }
        let count = self.devices.len();
        if count < 2 {
            return Ok(());
        }
        let more = if count == MAX_DEVICES { " or more" } else { "" };
        write!(f, "devices     {count}{more}:")?;
        for (at, (number, device)) in self.devices.iter().take(SHOWN_DEVICES).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(
                f,
                "{comma} {number} ({}, {})",
                device.requests,
                show_bytes(device.end_byte as f64)
            )?;
        }
        writeln!(f, "{}", if count > SHOWN_DEVICES { ", ..." } else { "" })
    }

    fn fmt_left_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        let causes = [
            (counts.damaged, "damaged"),
            (counts.zero_sized, "of no bytes"),
            (counts.other_events, "other events"),
            (counts.headings, "headings and blank lines"),
        ];
        let listed: Vec<String> = causes
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, cause)| format!("{count} {cause}"))
            .collect();
        let listed = if listed.is_empty() {
            "nothing".to_owned()
        } else {
            listed.join(", ")
        };
        writeln!(f, "left out    {listed}")?;
        for damage in &counts.first_damaged {
            writeln!(
                f,
                "damaged     {}: {}: \"{}\"",
                damage.number, damage.why, damage.text
            )?;
        }
        Ok(())
    }
}
