// SPDX-License-Identifier: Apache-2.0
//! The text output of `blkparse`, from block traces of Linux, in its default format.
//!
//! Source: blkparse(1) and the kernel's `blk_fill_rwbs`. Each line has one event:
//! `major,minor cpu number seconds pid action RWBS sector + sectors [process]`; then totals.
//!
//! A request passes several points: Q (it is queued), G, I (inserted into the scheduler), D (sent
//! to the drive), C (completed). Counting several of these events would count a request several
//! times, so one is chosen. Option `event` names it; without the option it is the first of Q, I, D
//! and C that the head of the trace shows. D shows the operations on the drive after merging and
//! splitting, Q the application's requests.
//!
//! RWBS: the first of R, W and D is the operation (D with or without E is a discard: a trim). An F
//! before it is a flush before the write, and an F after it is FUA. An event with an F and no
//! sectors is a flush. On zoned drives the operation is Z and a letter: ZA appends (a write), ZR
//! resets a zone (a trim of its sectors). ZRA (reset all), ZO, ZC and ZF (open, close, finish) move
//! no data and are other events. The kernel names a reset zone only by its start, without sectors;
//! option `zone` has the bytes of a zone. Without the option, such a reset is an other event.
//!
//! Deviations: the flush before a write with data is not separate from the write (nor is FUA);
//! packet commands (N) are other events. The device is `major << 20 | minor`, as Linux numbers it.

use super::fields::{self, SECOND};
use super::parser::{LineParser, Parsed, want};
use crate::Op;

/// Bytes of a sector, in any block trace of Linux.
const SECTOR: u64 = 512;

/// The events that can be chosen, the preferred first.
const EVENTS: [u8; 4] = [b'Q', b'I', b'D', b'C'];

pub(super) struct Blkparse {
    pub event: u8,
    /// Bytes of a zone, if known.
    pub zone: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Do(Op),
    Reset,
    /// An event without data or address.
    Nothing,
}

/// The operation of an RWBS field.
fn asked(rwbs: &[u8]) -> Asked {
    // A leading F is a flush before the operation.
    let after = rwbs.strip_prefix(b"F").unwrap_or(rwbs);
    if let [b'Z', rest @ ..] = after {
        return match rest {
            [b'A', ..] => Asked::Do(Op::Write),
            [b'R', b'A', ..] => Asked::Nothing,
            [b'R', ..] => Asked::Reset,
            _ => Asked::Nothing,
        };
    }
    let op = rwbs.iter().find_map(|letter| match letter {
        b'R' => Some(Op::Read),
        b'W' => Some(Op::Write),
        b'D' => Some(Op::Trim),
        _ => None,
    });
    op.map_or(Asked::Nothing, Asked::Do)
}

impl Blkparse {
    /// The event to count for a trace that starts with `head`, and the note on the choice.
    pub(super) fn choose(head: &[u8]) -> (u8, String) {
        let mut seen = [0u64; EVENTS.len()];
        for line in head.split(|&byte| byte == b'\n') {
            if let Some(action) = action(line)
                && let Some(at) = EVENTS.iter().position(|&event| action == [event])
            {
                seen[at] += 1;
            }
        }
        let at = seen.iter().position(|&count| count > 0).unwrap_or(0);
        let event = EVENTS[at];
        let name = event as char;
        let others: Vec<String> = EVENTS
            .iter()
            .zip(seen)
            .filter(|&(&other, count)| other != event && count > 0)
            .map(|(&other, _)| (other as char).to_string())
            .collect();
        let rest = if others.is_empty() {
            String::new()
        } else {
            format!("; it also has {}", others.join(", "))
        };
        let note = format!("requests are counted at the event {name}{rest} (blkparse:event=...)");
        (event, note)
    }
}

/// The action of a line, if the line is an event.
pub(super) fn action(line: &[u8]) -> Option<&[u8]> {
    let mut words = fields::words(line);
    device(words.next()?)?;
    fields::uint(words.next()?)?;
    fields::uint(words.next()?)?;
    fields::time(words.next()?, SECOND)?;
    fields::uint(words.next()?)?;
    words.next()
}

/// The lines behind the events: totals by processor, process and device, and the files read.
fn is_total(line: &[u8]) -> bool {
    const BEGIN: [&[u8]; 6] = [
        b"CPU",
        b"Total (",
        b"Events (",
        b"Throughput (",
        b"Skips: ",
        b"Input file ",
    ];
    const COUNTED: [&[u8]; 7] = [
        b"Reads",
        b"Read",
        b"PC",
        b"IO",
        b"Allocation",
        b"Dispatch",
        b"Completion",
    ];
    if BEGIN.iter().any(|begin| line.starts_with(begin)) {
        return true;
    }
    if line.starts_with(b" ") {
        let first = fields::words(line).next().unwrap_or_default();
        return line.contains(&b':') && COUNTED.contains(&first);
    }
    // `name (pid)` or `name (pid, ...)`, with -s.
    let Some(open) = line.iter().rposition(|&byte| byte == b'(') else {
        return false;
    };
    let rest = line[open + 1..].trim_ascii_end();
    let pid = rest.strip_suffix(b")").unwrap_or_default();
    let pid = pid.strip_suffix(b", ...").unwrap_or(pid);
    open > 0 && fields::uint(pid).is_some()
}

/// `major,minor` as one number.
fn device(word: &[u8]) -> Option<u32> {
    let comma = word.iter().position(|&byte| byte == b',')?;
    let major = fields::uint32(&word[..comma])?;
    let minor = fields::uint32(&word[comma + 1..])?;
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

impl LineParser for Blkparse {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut words = fields::words(line);
        let first = words.next().unwrap_or_default();
        if !first.first().is_some_and(u8::is_ascii_digit) {
            return match is_total(line) {
                true => Parsed::Heading,
                false => Parsed::Damaged("it is neither an event nor one of blkparse's totals"),
            };
        }
        let mut next = || words.next().unwrap_or_default();
        let device = want!(device(first), "the device is not a major,minor");
        want!(fields::uint(next()), "the CPU is not a number");
        want!(fields::uint(next()), "the event's number is not a number");
        let time = want!(fields::time(next(), SECOND), "the time is not a number");
        want!(fields::uint(next()), "the process is not a number");
        let action = next();
        if action.is_empty() {
            return Parsed::Damaged("there is no action");
        }
        if action != [self.event] {
            return Parsed::Other;
        }
        let rwbs = next();
        let zoned = rwbs.strip_prefix(b"F").unwrap_or(rwbs).first() == Some(&b'Z');
        let asked = asked(rwbs);
        if zoned && asked == Asked::Nothing {
            return Parsed::Other;
        }
        let op = match asked {
            Asked::Do(op) => Some(op),
            Asked::Reset => Some(Op::Trim),
            Asked::Nothing => None,
        };
        let flushes = !zoned && rwbs.contains(&b'F');
        let (sector, plus, count) = (next(), next(), next());
        let (offset, bytes) = if plus == b"+" {
            let sector = want!(fields::uint(sector), "the sector is not a number");
            let count = want!(fields::uint(count), "the number of sectors is not a number");
            (
                want!(sector.checked_mul(SECTOR), "the address is beyond 2^64"),
                want!(count.checked_mul(SECTOR), "the size is beyond 2^64"),
            )
        } else if asked == Asked::Reset {
            // Some versions omit a count of zero.
            let sector = want!(fields::uint(sector), "the sector is not a number");
            let offset = want!(sector.checked_mul(SECTOR), "the address is beyond 2^64");
            (offset, 0)
        } else if flushes || op.is_none() {
            (0, 0)
        } else {
            return Parsed::Damaged("there is no sector + sectors");
        };
        let bytes = match (asked, self.zone) {
            (Asked::Reset, Some(zone)) if bytes == 0 => zone,
            (Asked::Reset, None) if bytes == 0 => return Parsed::Other,
            _ => bytes,
        };
        let op = match op {
            Some(op) if bytes > 0 || !flushes => op,
            _ if flushes => Op::Flush,
            _ => return Parsed::Other,
        };
        Parsed::request(time, device, op, offset, bytes)
    }
}
