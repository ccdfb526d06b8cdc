// SPDX-License-Identifier: Apache-2.0
//! libCacheSim's oracleGeneral: packed 24-byte records, little-endian.
//!
//! ```text
//!   0        4                    12       16                    24
//!   | time s | key                | size   | next access, or -1  |
//! ```

use std::io::Read;

use super::{Record, TraceOp, TraceReader, Trouble};

const RECORD_LEN: usize = 24;
/// A next access is a record number, which fits easily into 48 bits; -1 and `i64::MAX` both mean
/// "never".
const MAX_NEXT: i64 = 1 << 48;

struct Raw {
    time: u32,
    key: u64,
    size: u32,
    next: i64,
}

fn decode(bytes: &[u8; RECORD_LEN]) -> Raw {
    let (time, rest) = bytes.split_first_chunk().expect("24 bytes begin with 4");
    let (key, rest) = rest.split_first_chunk().expect("20 bytes begin with 8");
    let (size, rest) = rest.split_first_chunk().expect("12 bytes begin with 4");
    let next = rest.first_chunk().expect("8 bytes remain");
    Raw {
        time: u32::from_le_bytes(*time),
        key: u64::from_le_bytes(*key),
        size: u32::from_le_bytes(*size),
        next: i64::from_le_bytes(*next),
    }
}

fn sane_next(next: i64) -> bool {
    (-1..MAX_NEXT).contains(&next) || next == i64::MAX
}

/// Whether `head` may be the beginning of such a trace: its times do not go back, and its next
/// accesses are record numbers.
pub(super) fn plausible(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<RECORD_LEN>();
    let mut last = 0;
    !records.is_empty()
        && records.iter().map(decode).all(|raw| {
            let sane = raw.time >= last && sane_next(raw.next);
            last = raw.time;
            sane
        })
}

pub(super) fn next(reader: &mut TraceReader<'_>) -> Result<Option<Record>, Trouble> {
    loop {
        let mut bytes = [0; RECORD_LEN];
        let mut filled = 0;
        while filled < RECORD_LEN {
            match reader.input.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if filled == 0 {
            return Ok(None);
        }
        reader.position += 1;
        if filled < RECORD_LEN {
            return Err(Trouble::Bad(format!(
                "it is cut short, {filled} of {RECORD_LEN} bytes"
            )));
        }
        let raw = decode(&bytes);
        if !sane_next(raw.next) {
            return Err(Trouble::Bad(format!(
                "its next access {} is not a record number",
                raw.next
            )));
        }
        if raw.size > 0 {
            return Ok(Some(Record {
                key: raw.key,
                size: Some(u64::from(raw.size)),
                op: TraceOp::Get,
            }));
        }
    }
}
