// SPDX-License-Identifier: Apache-2.0
//! The names of the formats, and a user's settings for a trace: `auto`, `spc`,
//! `disksim:unit=ms,write=0`.

use std::fmt;
use std::str::FromStr;

use super::column_order::Columns;
use super::unit::TimeUnit;
use crate::spec::Spec;
use crate::{Error, Op};

/// A trace format; [`Format::about`] says whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Spc,
    Msr,
    Etw,
    Columns,
    Blkparse,
    Fio,
    Vscsi,
    CloudPhysics,
    Fiu,
    Alibaba,
    Systor,
    Tencent,
    Tectonic,
    Lis,
    Senko,
}

/// A format's names, of which the first is displayed, and its options.
const NAMES: [(Format, &[&str], &[&str]); 15] = [
    (Format::Spc, &["spc"], &["sector"]),
    (Format::Msr, &["msr"], &[]),
    (Format::Etw, &["etw"], &[]),
    (
        Format::Columns,
        &["columns", "disksim", "mqsim", "ssdsim"],
        &["unit", "sector", "write", "read", "columns"],
    ),
    (Format::Blkparse, &["blkparse"], &["event", "zone"]),
    (Format::Fio, &["fio"], &[]),
    (Format::Vscsi, &["vscsi"], &[]),
    (Format::CloudPhysics, &["cloudphysics"], &["unit", "sector"]),
    (Format::Fiu, &["fiu"], &["sector"]),
    (Format::Alibaba, &["alibaba"], &[]),
    (Format::Systor, &["systor"], &[]),
    (Format::Tencent, &["tencent"], &["unit", "sector"]),
    (Format::Tectonic, &["tectonic", "baleen"], &["block"]),
    (Format::Lis, &["lis", "arc"], &["op", "page"]),
    (Format::Senko, &["senko", "native"], &["streams"]),
];

/// The name that requests recognition of the format.
const AUTO: &str = "auto";

impl Format {
    pub fn all() -> impl Iterator<Item = Format> {
        NAMES.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Format, &'static [&'static str], &'static [&'static str]) {
        let row = NAMES.iter().find(|row| row.0 == self);
        row.expect("every format has a row")
    }

    /// The name by which users know it.
    pub fn name(self) -> &'static str {
        self.row().1[0]
    }

    pub fn options(self) -> &'static [&'static str] {
        self.row().2
    }

    /// Whether sizes and addresses in it count sectors, not bytes.
    pub fn counts_sectors(self) -> bool {
        matches!(self, Format::Columns | Format::Fiu | Format::Tencent)
    }

    /// A description for a list.
    pub fn about(self) -> &'static str {
        match self {
            Format::Spc => "Financial and WebSearch of the UMass repository",
            Format::Msr => "MSR Cambridge",
            Format::Etw => "dumps of Event Tracing for Windows: Exchange, MSN, TPC",
            Format::Columns => "time device address sectors flag: DiskSim, MQSim, SSDsim",
            Format::Blkparse => "blkparse's text, zoned drives too",
            Format::Fio => "fio's logs, versions 2 and 3",
            Format::Vscsi => "VMware's binary records, such as CloudPhysics",
            Format::CloudPhysics => "CloudPhysics as text",
            Format::Fiu => "Florida International University",
            Format::Alibaba => "Alibaba Cloud's block traces",
            Format::Systor => "virtual desktops, SYSTOR 2017",
            Format::Tencent => "Tencent's cloud block storage",
            Format::Tectonic => "Meta's Tectonic, as of Baleen (FAST 2024)",
            Format::Lis => "page references of the ARC paper",
            Format::Senko => "what senko serve --trace records",
        }
    }

    /// The format of this name.
    pub(super) fn of_name(name: &str) -> Option<Format> {
        let row = NAMES.iter().find(|row| row.1.contains(&name));
        row.map(|row| row.0)
    }

    /// The names of all formats, for a message.
    pub fn names() -> String {
        NAMES.map(|row| row.1[0]).join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A user's settings for a trace; `None` leaves a setting to the format or to the content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `unit`: of the times.
    pub unit: Option<TimeUnit>,
    /// `sector`: bytes of a sector.
    pub sector: Option<u64>,
    /// `write` (or the other of `read`): the flag of a write, 0 or 1.
    pub write_flag: Option<u64>,
    /// `columns`: their order.
    pub columns: Option<Columns>,
    /// `event`: the event at which blkparse's requests count.
    pub event: Option<u8>,
    /// `op`: what a page reference does.
    pub op: Option<Op>,
    /// `page`: bytes of a page.
    pub page: Option<u64>,
    /// `zone`: bytes of a zone of a zoned drive.
    pub zone: Option<u64>,
    /// `block`: bytes of a block of Tectonic.
    pub block: Option<u64>,
    /// `streams=purpose`: in Senko's own trace, the purpose becomes the stream.
    pub streams: Option<bool>,
}

/// A format with options, or none to recognise it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSpec {
    /// The format; `None` recognises it.
    pub format: Option<Format>,
    /// The options that differ from the defaults.
    pub options: Options,
    /// The names of the options that were given.
    given: Vec<&'static str>,
}

/// Every option's name.
const KNOWN: [&str; 11] = [
    "unit", "sector", "write", "read", "columns", "event", "op", "page", "zone", "block", "streams",
];
/// Larger sectors, pages, blocks and zones than this are mistakes.
const MAX_UNIT_BYTES: u64 = 1 << 40;

impl TraceSpec {
    /// A given format, without options.
    pub fn of(format: Format) -> TraceSpec {
        TraceSpec {
            format: Some(format),
            ..TraceSpec::default()
        }
    }

    /// Refuses an option that `format` does not have.
    pub(super) fn check(&self, format: Format) -> Result<(), Error> {
        let Some(foreign) = self
            .given
            .iter()
            .find(|name| !format.options().contains(*name))
        else {
            return Ok(());
        };
        let options = format.options();
        Err(Error::spec(if options.is_empty() {
            format!("the trace format {format} has no options, and so no {foreign}")
        } else {
            let options = options.join(", ");
            format!("the trace format {format} has no option {foreign}; it has {options}")
        }))
    }
}

impl FromStr for TraceSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<TraceSpec, Error> {
        let mut spec: Spec = without_commas_in_columns(text).parse()?;
        let name = spec.name().to_owned();
        let format = match Format::of_name(&name) {
            Some(format) => Some(format),
            None if name == AUTO => None,
            None => {
                return Err(Error::spec(format!(
                    "\"{name}\" is not a trace format; known are {} and {AUTO}",
                    Format::names()
                )));
            }
        };
        let mut given = Vec::new();
        let mut take = |option: &'static str| -> Result<Option<String>, Error> {
            let value = spec.take_optional::<String>(option)?;
            if value.is_some() {
                given.push(option);
            }
            Ok(value)
        };
        let mut options = Options {
            unit: take("unit")?.map(|text| text.parse()).transpose()?,
            sector: bytes_of("sector", take("sector")?)?,
            columns: take("columns")?.map(|text| text.parse()).transpose()?,
            event: take("event")?.map(|text| event_of(&text)).transpose()?,
            op: take("op")?.map(|text| op_of(&text)).transpose()?,
            page: bytes_of("page", take("page")?)?,
            zone: bytes_of("zone", take("zone")?)?,
            block: bytes_of("block", take("block")?)?,
            streams: take("streams")?.map(|text| streams_of(&text)).transpose()?,
            write_flag: None,
        };
        let write = take("write")?
            .map(|text| flag_of("write", &text))
            .transpose()?;
        let read = take("read")?
            .map(|text| flag_of("read", &text))
            .transpose()?;
        options.write_flag = match (write, read) {
            (Some(write), Some(read)) if write == read => {
                return Err(Error::spec(format!(
                    "{name}: {write} can't be the flag of both reads and writes"
                )));
            }
            (Some(write), _) => Some(write),
            (None, read) => read.map(|read| 1 - read),
        };
        if name == "disksim" && options.unit.is_none() {
            options.unit = Some(TimeUnit::Milliseconds);
        } else if (name == "mqsim" || name == "ssdsim") && options.unit.is_none() {
            options.unit = Some(TimeUnit::Nanoseconds);
        }
        let found = TraceSpec {
            format,
            options,
            given,
        };
        spec.finish(format.map_or(&KNOWN, Format::options))?;
        if let Some(format) = format {
            found.check(format)?;
        }
        Ok(found)
    }
}

/// `columns=t,d,a,s,f` as `columns=tdasf`: columns may be separated by commas, as in the trace.
fn without_commas_in_columns(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_columns = false;
    for (at, part) in text.split(',').enumerate() {
        let more = in_columns && !part.contains('=') && part.len() <= 1;
        if at > 0 && !more {
            out.push(',');
        }
        out.push_str(if more && part.is_empty() { "-" } else { part });
        in_columns = more || part.contains("columns=");
    }
    out
}

fn flag_of(option: &str, text: &str) -> Result<u64, Error> {
    match text {
        "0" => Ok(0),
        "1" => Ok(1),
        _ => Err(Error::spec(format!(
            "the flag of {option} is 0 or 1, and not \"{text}\""
        ))),
    }
}

fn bytes_of(option: &str, text: Option<String>) -> Result<Option<u64>, Error> {
    let Some(text) = text else { return Ok(None) };
    match crate::spec::bytes(&text) {
        Ok(bytes @ 1..=MAX_UNIT_BYTES) => Ok(Some(bytes)),
        _ => Err(Error::spec(format!(
            "\"{text}\" is not a number of bytes for {option}: 1 to 1t"
        ))),
    }
}

fn event_of(text: &str) -> Result<u8, Error> {
    match text {
        "Q" | "G" | "I" | "D" | "C" => Ok(text.as_bytes()[0]),
        _ => Err(Error::spec(format!(
            "\"{text}\" is not an event to count requests at: Q, G, I, D or C"
        ))),
    }
}

fn op_of(text: &str) -> Result<Op, Error> {
    match text {
        "read" => Ok(Op::Read),
        "write" => Ok(Op::Write),
        _ => Err(Error::spec(format!(
            "a page reference is a read or a write, and not \"{text}\""
        ))),
    }
}

fn streams_of(text: &str) -> Result<bool, Error> {
    match text {
        "purpose" => Ok(true),
        "none" => Ok(false),
        _ => Err(Error::spec(format!(
            "streams come from purpose or none, and not from \"{text}\""
        ))),
    }
}
