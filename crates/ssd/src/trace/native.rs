// SPDX-License-Identifier: Apache-2.0
//! Senko's own trace (`docs/formats/trace.md`): the operations of an engine on a device. The reader
//! of the `io` crate decodes it; here its records become requests.
//!
//! | record | request |
//! |---|---|
//! | page, count | bytes, in pages of 4096 |
//! | discard | trim |
//! | device | device |
//! | engine, purpose | not used; with `streams=purpose` the purpose is the host's stream, as an engine would give it to a drive with streams or FDP |
//!
//! Deviation: a damaged record ends the trace with an error, as its format's document says; it is
//! not skipped, because only damage to the file can cause it.

use senko_io::trace::Record;
use senko_io::{Op as DeviceOp, PAGE_SIZE};

use super::fields::Stamp;
use super::parser::{Parsed, Raw};
use crate::Op;

pub(super) fn request(record: &Record, streams: bool) -> Parsed {
    let op = match record.op {
        DeviceOp::Read => Op::Read,
        DeviceOp::Write => Op::Write,
        DeviceOp::Flush => Op::Flush,
        DeviceOp::Discard => Op::Trim,
    };
    // The reader has checked that the pages end below 2^64 bytes.
    let page = PAGE_SIZE as u64;
    Parsed::Request(Raw {
        time: Stamp::at(record.time_ns),
        device: u32::from(record.device),
        op,
        offset: record.page * page,
        bytes: u64::from(record.count) * page,
        stream: if streams {
            record.tag.purpose as u16
        } else {
            0
        },
    })
}
