// SPDX-License-Identifier: Apache-2.0
//! Traces with one reference or one run of references per line: ARC's `.lis` and LIRS's `.trace`.

use std::io::{BufRead, Read};

use super::{Record, TraceOp, TraceReader, Trouble};

/// The longest accepted line, in bytes.
const MAX_LINE: u64 = 4096;

/// The most blocks of one `.lis` line: 8 GiB. A line of 20 bytes could otherwise stand for more
/// references than any machine can read.
const MOST_BLOCKS: u64 = 1 << 24;

/// Moves to the next line that is not blank and puts it, trimmed, into `reader.line`; `false` at
/// the end.
pub(super) fn next_line(reader: &mut TraceReader<'_>) -> Result<bool, Trouble> {
    loop {
        reader.line.clear();
        let taken = reader
            .input
            .by_ref()
            .take(MAX_LINE + 1)
            .read_until(b'\n', &mut reader.line)?;
        if taken == 0 {
            return Ok(false);
        }
        reader.position += 1;
        if taken as u64 > MAX_LINE && !reader.line.ends_with(b"\n") {
            return Err(Trouble::Bad(format!("it is longer than {MAX_LINE} bytes")));
        }
        let end = reader.line.trim_ascii_end().len();
        reader.line.truncate(end);
        let start = end - reader.line.trim_ascii_start().len();
        reader.line.drain(..start);
        if !reader.line.is_empty() {
            return Ok(true);
        }
        reader.blank_lines += 1;
    }
}

/// An unsigned decimal number of 64 bits.
pub(super) fn number(field: &[u8], name: &str) -> Result<u64, Trouble> {
    decimal(field, name).map_err(Trouble::Bad)
}

fn decimal(field: &[u8], name: &str) -> Result<u64, String> {
    let value = std::str::from_utf8(field)
        .ok()
        .and_then(|text| text.parse().ok());
    value.ok_or_else(|| {
        let shown = String::from_utf8_lossy(&field[..field.len().min(40)]).into_owned();
        format!(
            "the {name} \"{}\" is not a number of 64 bits",
            shown.escape_debug()
        )
    })
}

pub(super) fn next_arc(reader: &mut TraceReader<'_>) -> Result<Option<Record>, Trouble> {
    while reader.run.1 == 0 {
        if !next_line(reader)? {
            return Ok(None);
        }
        reader.run = arc_line(&reader.line).map_err(Trouble::Bad)?;
    }
    let (key, left) = reader.run;
    reader.run = (key + 1, left - 1);
    Ok(Some(reference(key)))
}

/// A line of a `.lis` file: the first page, and the number of pages from there.
///
/// # Errors
/// The problem of the line.
///
/// ```
/// use senko_workload::trace::arc_line;
///
/// assert_eq!(arc_line(b"500 64 0 1"), Ok((500, 64)));
/// assert!(arc_line(b"500 64 0").is_err());
/// ```
pub fn arc_line(line: &[u8]) -> Result<(u64, u64), String> {
    let mut fields = line
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let mut field = |name| match fields.next() {
        Some(field) => decimal(field, name),
        None => Err("it has fewer than the four fields of a .lis line".to_owned()),
    };
    let (start, count) = (field("start")?, field("count")?);
    field("third field")?;
    field("fourth field")?;
    if fields.next().is_some() {
        return Err("it has more than the four fields of a .lis line".to_owned());
    }
    if start.checked_add(count).is_none() {
        return Err(format!(
            "{count} blocks from {start} on pass the end of 64 bits"
        ));
    }
    if count > MOST_BLOCKS {
        return Err(format!(
            "it asks for {count} blocks at once, and {MOST_BLOCKS} are the most"
        ));
    }
    Ok((start, count))
}

pub(super) fn next_lirs(reader: &mut TraceReader<'_>) -> Result<Option<Record>, Trouble> {
    while next_line(reader)? {
        if reader.line != b"*" {
            return Ok(Some(reference(number(&reader.line, "block number")?)));
        }
    }
    Ok(None)
}

fn reference(key: u64) -> Record {
    Record {
        key,
        size: None,
        op: TraceOp::Get,
    }
}
