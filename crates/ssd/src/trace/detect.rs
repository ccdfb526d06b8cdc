// SPDX-License-Identifier: Apache-2.0
//! Which format the head of a trace shows.
//!
//! Own design: binary formats by their magic number or by records that hold together; text first by its heading, then by a vote: each format's own
//! parser reads the first lines, and the one that finds the most requests has it, if that is at least half of the lines. Two formats never share a line, as their columns
//! differ in number and kind.

use super::blkparse::{self, Blkparse};
use super::cloudphysics::CloudPhysics;
use super::columns::FiveColumns;
use super::fields::{self, excerpt};
use super::format::{Format, TimeUnit, TraceSpec};
use super::parser::{LineParser, Parsed};
use super::vscsi::Version;
use super::{alibaba::Alibaba, fio, fiu::Fiu, lis::Lis, msr::Msr, spc::Spc, systor::Systor};
use crate::Op;

/// Lines that vote.
const VOTERS: usize = 200;

/// What is told by name instead of being taken for a damaged trace: (offset, magic, name).
const ARCHIVES: [(usize, &[u8], &str); 6] = [
    (257, b"ustar", "a tar archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!", "a rar archive"),
    (0, b"\xff\xfe", "text in UTF-16"),
    (0, b"\xfe\xff", "text in UTF-16"),
];

/// The format of a trace that starts with `head`, or what was seen instead.
pub(super) fn recognise(head: &[u8]) -> Result<Format, String> {
    if head.is_empty() {
        return Err("it is empty".to_owned());
    }
    if head.starts_with(&senko_io::trace::MAGIC) {
        return Ok(Format::Senko);
    }
    for (at, magic, name) in ARCHIVES {
        if head.get(at..).is_some_and(|rest| rest.starts_with(magic)) {
            return Err(format!(
                "it is {name}, which has to be unpacked or converted first"
            ));
        }
    }
    let is_text = |&byte: &u8| byte >= b' ' || byte.is_ascii_whitespace();
    if !head.iter().all(is_text) {
        return Version::recognise(head)
            .map(|_| Format::Vscsi)
            .ok_or_else(|| "it is binary, and neither Senko's own nor VSCSI records".to_owned());
    }
    text(head)
}

fn text(head: &[u8]) -> Result<Format, String> {
    // A line that the head cuts off votes for nothing, unless it is the only one.
    let whole = memchr::memrchr(b'\n', head).map_or(head, |at| &head[..at]);
    let lines: Vec<&[u8]> = whole
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty() && line[0] != b'#')
        .take(VOTERS)
        .collect();
    let Some(&first) = lines.first() else {
        return Err("it starts with nothing but blank lines and comments".to_owned());
    };
    if let Some(format) = by_heading(first, &lines) {
        return Ok(format);
    }
    let voices = Format::all().map(|format| (votes(format, &lines), format));
    // Of equal formats the first one stands.
    let best = voices.reduce(|best, next| if next.0 > best.0 { next } else { best });
    match best {
        Some((votes, format)) if votes > 0 && votes * 2 >= lines.len() => Ok(format),
        _ => Err(format!("its first line is \"{}\"", excerpt(first))),
    }
}

fn by_heading(first: &[u8], lines: &[&[u8]]) -> Option<Format> {
    if first.starts_with(fio::START) {
        return Some(Format::Fio);
    }
    if lines.contains(&&b"BeginHeader"[..])
        || lines
            .iter()
            .any(|line| line.starts_with(b"DiskRead,") || line.starts_with(b"DiskWrite,"))
    {
        return Some(Format::Etw);
    }
    let starts = |heading: &[u8]| {
        first
            .get(..heading.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(heading))
    };
    if starts(b"version,time,op,size") {
        Some(Format::CloudPhysics)
    } else if starts(b"timestamp,response,iotype") {
        Some(Format::Systor)
    } else if starts(b"timestamp,hostname,") {
        Some(Format::Msr)
    } else if starts(b"device_id,opcode,") {
        Some(Format::Alibaba)
    } else {
        None
    }
}

/// How many lines are requests (events, in blkparse's text) to a format's parser.
fn votes(format: Format, lines: &[&[u8]]) -> usize {
    let mut parser: Box<dyn LineParser> = match format {
        Format::Spc => Box::new(Spc { sector: 512 }),
        Format::Msr => Box::new(Msr::default()),
        Format::Columns => {
            let head = lines.join(&b'\n');
            Box::new(FiveColumns::new(&head, &TraceSpec::default()).0)
        }
        Format::Blkparse => {
            return lines
                .iter()
                .filter(|line| blkparse::action(line).is_some())
                .count();
        }
        Format::CloudPhysics => Box::new(CloudPhysics {
            unit_ns: TimeUnit::Seconds.nanoseconds(),
            sector: 512,
        }),
        Format::Fiu => Box::new(Fiu { sector: 512 }),
        Format::Alibaba => Box::new(Alibaba),
        Format::Systor => Box::new(Systor),
        Format::Lis => {
            return lines.iter().filter(|line| is_lis(line)).count();
        }
        // Known by their headings.
        Format::Etw | Format::Fio | Format::Vscsi | Format::Senko => return 0,
    };
    lines
        .iter()
        .filter(|line| matches!(parser.line(line), Parsed::Request(_)))
        .count()
}

/// Four numbers: the parser itself needs but two.
fn is_lis(line: &[u8]) -> bool {
    let words = fields::Words::of(line);
    words.clone().count() == 4 && words.clone().all(|word| fields::uint(word).is_some())
}

/// A parser of a text format for a trace that starts with `head`, and what was guessed from it. `None` for a binary format.
pub(super) fn parser(
    format: Format,
    head: &[u8],
    spec: &TraceSpec,
) -> Option<(Box<dyn LineParser>, Vec<String>)> {
    let options = &spec.options;
    let sector = options.sector.unwrap_or(512);
    let mut notes = Vec::new();
    let parser: Box<dyn LineParser> = match format {
        Format::Spc => Box::new(Spc { sector }),
        Format::Msr => Box::new(Msr::default()),
        Format::Etw => Box::new(super::etw::Etw::new()),
        Format::Columns => {
            let (parser, guessed) = FiveColumns::new(head, spec);
            notes = guessed;
            Box::new(parser)
        }
        Format::Blkparse => {
            let event = options.event.unwrap_or_else(|| {
                let (event, note) = Blkparse::choose(head);
                notes.push(note);
                event
            });
            Box::new(Blkparse { event })
        }
        Format::Fio => Box::new(fio::Fio::new(head)),
        Format::CloudPhysics => Box::new(CloudPhysics {
            unit_ns: options.unit.unwrap_or(TimeUnit::Seconds).nanoseconds(),
            sector,
        }),
        Format::Fiu => Box::new(Fiu { sector }),
        Format::Alibaba => Box::new(Alibaba),
        Format::Systor => Box::new(Systor),
        Format::Lis => Box::new(Lis {
            op: options.op.unwrap_or(Op::Read),
            page: options.page.unwrap_or(4096),
        }),
        Format::Vscsi | Format::Senko => return None,
    };
    Some((parser, notes))
}
