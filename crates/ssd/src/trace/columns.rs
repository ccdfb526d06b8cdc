// SPDX-License-Identifier: Apache-2.0
//! Five columns of numbers: the input of DiskSim, MQSim, SSDsim and their descendants.
//!
//! Source: the manuals of DiskSim 4.0 ("ASCII" format) and MQSim, and SSDsim's reader. Each line
//! has one request, with columns separated by spaces, tabs or commas:
//! `time device address sectors flag`.
//!
//! The tools agree on the order and on little else:
//!
//! | option | meaning | without it |
//! |---|---|---|
//! | `unit` | of the time: `ns`, `us`, `ms` or `s` | `ms` if the head of the trace has times with a decimal point (DiskSim), else `ns` (MQSim, SSDsim) |
//! | `sector` | bytes of a sector, for address and size | 512 |
//! | `write` or `read` | the flag of a write, or of a read: 0 or 1; words such as `R` and `Write` need none | a write is 0 |
//! | `columns` | a letter for each column: `t`ime, `d`evice, `a`ddress, `s`ectors, `f`lag, `-` ignored | `tdasf`; another place for the flag if only one other column holds nothing but 0 and 1 |
//!
//! A note reports each guess, with figures that show whether it is plausible: the share of writes
//! and the rate at the head of the trace.

use super::column_order::{Columns, MAX_COLUMNS};
use super::fields::{self, Stamp};
use super::format::TraceSpec;
use super::parser::{LineParser, Parsed, read_or_write, want};
use super::unit::TimeUnit;
use crate::Op;

/// Lines of the head that guesses are based on.
const LOOKED_AT: usize = 2000;

/// The parser, after all decisions.
pub(super) struct FiveColumns {
    pub columns: Columns,
    pub unit: TimeUnit,
    pub sector: u64,
    pub write: u64,
}

impl FiveColumns {
    /// A parser for a trace that starts with `head`, and the guesses.
    pub(super) fn new(head: &[u8], spec: &TraceSpec) -> (FiveColumns, Vec<String>) {
        let mut notes = Vec::new();
        let columns = spec.options.columns.unwrap_or_else(|| {
            let columns = guess_columns(head);
            if columns != Columns::USUAL {
                notes.push(format!(
                    "columns taken as {columns}, since only there the flag is 0 or 1 (columns:columns=...)"
                ));
            }
            columns
        });
        let unit = spec
            .options
            .unit
            .unwrap_or_else(|| guess_unit(head, columns));
        let parser = FiveColumns {
            columns,
            unit,
            sector: spec.options.sector.unwrap_or(512),
            write: spec.options.write_flag.unwrap_or(0),
        };
        parser.describe(head, spec, &mut notes);
        (parser, notes)
    }

    /// The guesses, and the figures of the trace's head with them.
    fn describe(&self, head: &[u8], spec: &TraceSpec, notes: &mut Vec<String>) {
        let mut probe = FiveColumns { ..*self };
        let (mut requests, mut writes, mut words) = (0u64, 0u64, 0u64);
        let (mut first, mut last) = (None, 0);
        for line in rows(head) {
            if let Parsed::Request(raw) = probe.line(line) {
                requests += 1;
                writes += u64::from(raw.op == Op::Write);
                let flag = fields::fields(line)
                    .nth(self.columns.flag)
                    .unwrap_or_default();
                words += u64::from(fields::uint(flag).is_none());
                first.get_or_insert(raw.time.ns);
                last = raw.time.ns.max(last);
            }
        }
        if spec.options.unit.is_none() && self.columns.time.is_some() {
            let span = last.saturating_sub(first.unwrap_or(0));
            let rate = if span == 0 {
                String::new()
            } else {
                let rate = requests as f64 * 1e9 / span as f64;
                format!(": {rate:.0} requests/s at the head of the trace")
            };
            notes.push(format!(
                "times taken as {}{rate} (columns:unit=...)",
                self.unit
            ));
        }
        if spec.options.write_flag.is_none() && words == 0 && requests > 0 {
            let share = writes as f64 * 100.0 / requests as f64;
            notes.push(format!(
                "flag {} taken as a write: {share:.1} % writes at the head of the trace (columns:write=...)",
                self.write
            ));
        }
    }
}

/// The complete lines of a head.
fn rows(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = memchr::memrchr(b'\n', head).map_or(head, |at| &head[..at]);
    whole.split(|&byte| byte == b'\n').take(LOOKED_AT)
}

/// The usual order, unless its flag column cannot be a flag and another column can.
fn guess_columns(head: &[u8]) -> Columns {
    let usual = Columns::USUAL;
    let mut can_be = [true; 5];
    let mut lines = 0;
    for line in rows(head) {
        let words: Vec<&[u8]> = fields::fields(line).collect();
        if words.len() != usual.count {
            continue;
        }
        lines += 1;
        for (able, word) in can_be.iter_mut().zip(words) {
            *able &= matches!(word, b"0" | b"1") || read_or_write(word).is_some();
        }
    }
    let others: Vec<usize> = (1..4).filter(|&at| can_be[at]).collect();
    match others[..] {
        [flag] if lines > 0 && !can_be[4] => {
            let mut rest = (1..5).filter(|&at| at != flag);
            Columns {
                device: rest.next(),
                address: rest.next().unwrap_or(usual.address),
                sectors: rest.next().unwrap_or(usual.sectors),
                flag,
                ..usual
            }
        }
        _ => usual,
    }
}

/// Whether a trace that starts with `head` would be read in the usual order.
pub(super) fn usual_columns(head: &[u8]) -> bool {
    guess_columns(head) == Columns::USUAL
}

/// Times with a decimal point are DiskSim's milliseconds.
fn guess_unit(head: &[u8], columns: Columns) -> TimeUnit {
    let decimal = rows(head)
        .filter_map(|line| fields::fields(line).nth(columns.time?))
        .any(|word| word.contains(&b'.'));
    if decimal {
        TimeUnit::Milliseconds
    } else {
        TimeUnit::Nanoseconds
    }
}

impl LineParser for FiveColumns {
    #[inline]
    fn line(&mut self, line: &[u8]) -> Parsed {
        let mut words = [&[][..]; MAX_COLUMNS];
        let mut count = 0;
        for word in fields::fields(line) {
            if count == self.columns.count {
                return Parsed::Damaged("there are more columns than expected");
            }
            words[count] = word;
            count += 1;
        }
        if count < self.columns.count {
            return Parsed::Damaged("there are fewer columns than expected");
        }
        let columns = &self.columns;
        let time = match columns.time {
            Some(at) => want!(
                fields::time(words[at], self.unit.nanoseconds()),
                "the time is not a number"
            ),
            None => Stamp::at(0),
        };
        let device = match columns.device {
            Some(at) => want!(fields::uint32(words[at]), "the device is not a number"),
            None => 0,
        };
        let address = want!(
            fields::uint(words[columns.address]),
            "the address is not a number"
        );
        let size = want!(
            fields::uint(words[columns.sectors]),
            "the number of sectors is not a number"
        );
        let op = match words[columns.flag] {
            flag @ (b"0" | b"1") if u64::from(flag[0] - b'0') == self.write => Op::Write,
            b"0" | b"1" => Op::Read,
            word => want!(read_or_write(word), "the flag is neither 0 nor 1"),
        };
        let offset = address.checked_mul(self.sector);
        let offset = want!(offset, "the address is beyond 2^64");
        let bytes = want!(size.checked_mul(self.sector), "the size is beyond 2^64");
        Parsed::request(time, device, op, offset, bytes)
    }

    fn timed(&self) -> bool {
        self.columns.time.is_some()
    }
}
