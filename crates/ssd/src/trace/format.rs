// SPDX-License-Identifier: Apache-2.0
//! The names of the formats, and a user's settings for a trace: `auto`, `spc`,
//! `disksim:unit=ms,write=0`.

use std::fmt;
use std::str::FromStr;

use super::column_order::Columns;
use super::unit::TimeUnit;
use crate::spec::{Spec, rows};
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

/// A format's names, of which the first is displayed, its options, and whose it is.
type Row = (
    Format,
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

const NAMES: [Row; 15] = rows! {
    Format::Spc, &["spc"], &["sector"], "Financial and WebSearch of the UMass repository";
    Format::Msr, &["msr"], &[], "MSR Cambridge";
    Format::Etw, &["etw"], &[], "dumps of Event Tracing for Windows: Exchange, MSN, TPC";
    Format::Columns, &["columns", "disksim", "mqsim", "ssdsim"], &["unit", "sector", "write", "read", "columns"],
        "time device address sectors flag: DiskSim, MQSim, SSDsim";
    Format::Blkparse, &["blkparse"], &["event", "zone"], "blkparse's text, zoned drives too";
    Format::Fio, &["fio"], &[], "fio's logs, versions 2 and 3";
    Format::Vscsi, &["vscsi"], &[], "VMware's binary records, such as CloudPhysics";
    Format::CloudPhysics, &["cloudphysics"], &["unit", "sector"], "CloudPhysics as text";
    Format::Fiu, &["fiu"], &["sector"], "Florida International University";
    Format::Alibaba, &["alibaba"], &[], "Alibaba Cloud's block traces";
    Format::Systor, &["systor"], &[], "virtual desktops, SYSTOR 2017";
    Format::Tencent, &["tencent"], &["unit", "sector"], "Tencent's cloud block storage";
    Format::Tectonic, &["tectonic", "baleen"], &["block"],
        "Meta's Tectonic, as of Baleen (FAST 2024)";
    Format::Lis, &["lis", "arc"], &["op", "page"], "page references of the ARC paper";
    Format::Senko, &["senko", "native"], &["streams"], "what senko serve --trace records";
};

const AUTO: &str = "auto";

impl Format {
    pub fn all() -> impl Iterator<Item = Format> {
        NAMES.iter().map(|row| row.0)
    }

    fn row(self) -> &'static Row {
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
        self.row().3
    }

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
        Err(Error::Spec(if options.is_empty() {
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
                return Err(Error::Spec(format!(
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
        const FLAGS: [(&str, u64); 2] = [("0", 0), ("1", 1)];
        const OPS: [(&str, Op); 2] = [("read", Op::Read), ("write", Op::Write)];
        const STREAMS: [(&str, bool); 2] = [("purpose", true), ("none", false)];
        let mut options = Options {
            unit: take("unit")?.map(|text| text.parse()).transpose()?,
            sector: bytes_of("sector", take("sector")?)?,
            columns: take("columns")?.map(|text| text.parse()).transpose()?,
            event: take("event")?.map(|text| event_of(&text)).transpose()?,
            op: one_of(
                take("op")?,
                &OPS,
                "a page reference is a read or a write, and not",
            )?,
            page: bytes_of("page", take("page")?)?,
            zone: bytes_of("zone", take("zone")?)?,
            block: bytes_of("block", take("block")?)?,
            streams: one_of(
                take("streams")?,
                &STREAMS,
                "streams come from purpose or none, and not from",
            )?,
            write_flag: None,
        };
        let write = one_of(
            take("write")?,
            &FLAGS,
            "the flag of write is 0 or 1, and not",
        )?;
        let read = one_of(take("read")?, &FLAGS, "the flag of read is 0 or 1, and not")?;
        options.write_flag = match (write, read) {
            (Some(write), Some(read)) if write == read => {
                return Err(Error::Spec(format!(
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

fn bytes_of(option: &str, text: Option<String>) -> Result<Option<u64>, Error> {
    let Some(text) = text else { return Ok(None) };
    match crate::spec::bytes(&text) {
        Ok(bytes @ 1..=MAX_UNIT_BYTES) => Ok(Some(bytes)),
        _ => Err(Error::Spec(format!(
            "\"{text}\" is not a number of bytes for {option}: 1 to 1t"
        ))),
    }
}

/// The value of one of these words.
fn one_of<T: Copy>(
    text: Option<String>,
    words: &[(&str, T)],
    wrong: &str,
) -> Result<Option<T>, Error> {
    let Some(text) = text else { return Ok(None) };
    let found = words.iter().find(|(word, _)| *word == text);
    match found {
        Some((_, value)) => Ok(Some(*value)),
        None => Err(Error::Spec(format!("{wrong} \"{text}\""))),
    }
}

fn event_of(text: &str) -> Result<u8, Error> {
    match text {
        "Q" | "G" | "I" | "D" | "C" => Ok(text.as_bytes()[0]),
        _ => Err(Error::Spec(format!(
            "\"{text}\" is not an event to count requests at: Q, G, I, D or C"
        ))),
    }
}
