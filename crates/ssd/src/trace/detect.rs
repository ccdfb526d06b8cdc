// SPDX-License-Identifier: Apache-2.0
//! Recognises a trace's format by its head.
//!
//! This is our own design. Binary formats show a magic number, or consistent records. Text shows a
//! heading, or its first lines vote: the parser of each format reads them. A format needs requests
//! in half of the lines, and they must be plausible for a trace (`plausible.rs`). The format with
//! the better signs wins, then the one with more requests. A weak guess or a tie leads to a
//! warning, with the option that decides it.

use super::blkparse::{self, Blkparse};
use super::columns::{FiveColumns, usual_columns};
use super::fields::{self, excerpt};
use super::format::{Format, TraceSpec};
use super::parser::LineParser;
use super::plausible::{Evidence, Grade};
use super::rows::{self, Rows};
use super::vscsi::Version;
use super::{fio, fiu::Fiu, lis::Lis, msr::Msr};
use crate::Op;

/// Lines that vote.
const VOTERS: usize = 200;
/// Columns of a line of Tectonic, which has more than its parser needs.
const TECTONIC_COLUMNS: usize = 8;

/// Other kinds of files, which are refused by name instead of as damaged traces: (offset, magic,
/// name).
const ARCHIVES: [(usize, &[u8], &str); 6] = [
    (257, b"ustar", "a tar archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!", "a rar archive"),
    (0, b"\xff\xfe", "text in UTF-16"),
    (0, b"\xfe\xff", "text in UTF-16"),
];

/// A recognised format, and why a user should check it, if there is a reason.
type Recognised = (Format, Option<String>);

/// The format of a trace that starts with `head`, or what was found instead.
pub(super) fn recognise(head: &[u8]) -> Result<Recognised, String> {
    if head.is_empty() {
        return Err("it is empty".to_owned());
    }
    if head.starts_with(&senko_io::trace::MAGIC) {
        return Ok((Format::Senko, None));
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
            .map(|_| (Format::Vscsi, None))
            .ok_or_else(|| "it is binary, and neither Senko's own nor VSCSI records".to_owned());
    }
    text(head)
}

fn text(head: &[u8]) -> Result<Recognised, String> {
    // A line cut off by the end of the head does not count, unless it is the only one.
    let whole = memchr::memrchr(b'\n', head).map_or(head, |at| &head[..at]);
    let mut lines: Vec<&[u8]> = whole
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty() && line[0] != b'#')
        .take(VOTERS)
        .collect();
    let Some(&first) = lines.first() else {
        return Err("it starts with nothing but blank lines and comments".to_owned());
    };
    if let Some(format) = by_heading(first, &lines) {
        return Ok((format, None));
    }
    if lines.len() > 1 && fields::is_heading(first) {
        lines.remove(0);
    }
    vote(&lines).map_err(|why| {
        let line = format!("its first line is \"{}\"", excerpt(first));
        why.map_or(line.clone(), |why| format!("{line}; {why}"))
    })
}

/// The format of the lines, or the evidence against the only format that reads them.
fn vote(lines: &[&[u8]]) -> Result<Recognised, Option<String>> {
    let mut against = None;
    // Requests, format, and what is missing.
    let mut candidates: Vec<(usize, Format, Option<&'static str>)> = Vec::new();
    for format in Format::all() {
        let (requests, grade) = weigh(format, lines);
        if requests == 0 || requests * 2 < lines.len() {
            continue;
        }
        match grade {
            Grade::No(why) => {
                let told =
                    format!("it reads as {format}, but {why}; say --format {format} if it is that");
                against.get_or_insert(told);
            }
            Grade::Weak(why) => candidates.push((requests, format, Some(why))),
            Grade::Good => candidates.push((requests, format, None)),
        }
    }
    let worth = |&(requests, _, weak): &(usize, Format, Option<&str>)| (weak.is_none(), requests);
    // Of equal formats, the first one wins.
    let best = candidates.iter().copied().reduce(|best, next| {
        if worth(&next) > worth(&best) {
            next
        } else {
            best
        }
    });
    let Some((requests, format, weak)) = best else {
        return Err(against);
    };
    let rivals: Vec<&str> = candidates
        .iter()
        .filter(|rival| rival.1 != format && rival.2.is_none() == weak.is_none())
        .filter(|rival| rival.0 * 10 >= requests * 9)
        .map(|rival| rival.1.name())
        .collect();
    let mut doubts = Vec::new();
    doubts.extend(weak.map(str::to_owned));
    if !rivals.is_empty() {
        doubts.push(format!("{} would do as well", rivals.join(" or ")));
    }
    let doubt = (!doubts.is_empty()).then(|| {
        format!(
            "the format was guessed to be {format}, but {}; say --format to be sure",
            doubts.join(", and ")
        )
    });
    Ok((format, doubt))
}

fn by_heading(first: &[u8], lines: &[&[u8]]) -> Option<Format> {
    if first.starts_with(fio::START) {
        return Some(Format::Fio);
    }
    const EVENTS: [&[u8]; 2] = [b"DiskRead,", b"DiskWrite,"];
    let is_event = |line: &&[u8]| EVENTS.iter().any(|event| line.starts_with(event));
    if lines.contains(&&b"BeginHeader"[..]) || lines.iter().any(is_event) {
        return Some(Format::Etw);
    }
    const HEADINGS: [(&[u8], Format); 6] = [
        (b"timestamp,offset,size,iotype", Format::Tencent),
        (b"block_id io_offset", Format::Tectonic),
        (b"version,time,op,size", Format::CloudPhysics),
        (b"timestamp,response,iotype", Format::Systor),
        (b"timestamp,hostname,", Format::Msr),
        (b"device_id,opcode,", Format::Alibaba),
    ];
    let found = HEADINGS.iter().find(|(heading, _)| {
        let start = first.get(..heading.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(heading))
    });
    found.map(|(_, format)| *format)
}

/// How many lines are requests (in blkparse's text: events) for a format's parser, and whether they
/// are plausible.
fn weigh(format: Format, lines: &[&[u8]]) -> (usize, Grade) {
    let count = |is: &dyn Fn(&[u8]) -> bool| lines.iter().filter(|line| is(line)).count();
    let own = match format {
        // Known by their headings.
        Format::Etw | Format::Fio | Format::Vscsi | Format::Senko => 0,
        Format::Blkparse => {
            return (count(&|line| blkparse::action(line).is_some()), Grade::Good);
        }
        Format::Lis => count(&is_lis),
        Format::Tectonic => count(&|line| fields::fields(line).count() >= TECTONIC_COLUMNS),
        _ => lines.len(),
    };
    if own * 2 < lines.len() || own == 0 {
        return (0, Grade::Good);
    }
    let head = lines.join(&b'\n');
    let Some((mut parser, _)) = parser(format, &head, &TraceSpec::default()) else {
        return (0, Grade::Good);
    };
    let evidence = Evidence::of(format, &mut *parser, lines);
    let mut grade = evidence.grade(format);
    // Five numbers between commas, of which any may be the flag, are as likely Tencent's as another
    // format's.
    let commas = lines[0].contains(&b',');
    if format == Format::Columns && commas && grade == Grade::Good && !usual_columns(&head) {
        grade = Grade::Weak("its columns are not in the usual order");
    }
    (evidence.requests, grade)
}

/// Four numbers: the parser itself needs only two.
fn is_lis(line: &[u8]) -> bool {
    let mut words = fields::words(line);
    words.clone().count() == 4 && words.all(|word| fields::uint(word).is_some())
}

/// A parser of a text format for a trace that starts with `head`, and its guesses. `None` for a
/// binary format.
pub(super) fn parser(
    format: Format,
    head: &[u8],
    spec: &TraceSpec,
) -> Option<(Box<dyn LineParser>, Vec<String>)> {
    let options = &spec.options;
    let sector = options.sector.unwrap_or(512);
    let rows = |layout| Box::new(Rows::new(layout, options));
    let mut notes = Vec::new();
    let parser: Box<dyn LineParser> = match format {
        Format::Spc => rows(&rows::SPC),
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
            Box::new(Blkparse {
                event,
                zone: options.zone,
            })
        }
        Format::Fio => Box::new(fio::Fio::new(head)),
        Format::CloudPhysics => rows(&rows::CLOUDPHYSICS),
        Format::Fiu => Box::new(Fiu { sector }),
        Format::Alibaba => rows(&rows::ALIBABA),
        Format::Systor => rows(&rows::SYSTOR),
        Format::Tencent => rows(&rows::TENCENT),
        Format::Tectonic => rows(&rows::TECTONIC),
        Format::Lis => Box::new(Lis {
            op: options.op.unwrap_or(Op::Read),
            page: options.page.unwrap_or(4096),
        }),
        Format::Vscsi | Format::Senko => return None,
    };
    Some((parser, notes))
}
