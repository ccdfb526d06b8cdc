// SPDX-License-Identifier: Apache-2.0
//! Helpers of the tests of traces: reading a text whole, and short ways to write requests down.

use std::io::Cursor;

use senko_ssd::trace::{Reader, TraceError, TraceSpec};
use senko_ssd::{Op, Request};

/// The reader of `bytes`, by a specification such as `auto` or `spc:sector=4096`.
pub fn reader(bytes: impl Into<Vec<u8>>, spec: &str) -> Result<Reader, TraceError> {
    let spec: TraceSpec = spec.parse().expect("the specification is right");
    Reader::new(Cursor::new(bytes.into()), &spec)
}

/// All requests of `bytes`, which must be read to the end, and the reader.
pub fn whole(bytes: impl Into<Vec<u8>>, spec: &str) -> (Vec<Request>, Reader) {
    let mut reader = reader(bytes, spec).unwrap_or_else(|error| panic!("{error}"));
    let requests = (&mut reader)
        .map(|request| request.unwrap_or_else(|error| panic!("{error}")))
        .collect();
    (requests, reader)
}

/// A request of stream 0.
pub fn request(time: u64, device: u32, op: Op, offset: u64, bytes: u64) -> Request {
    Request {
        time,
        device,
        op,
        offset,
        bytes,
        stream: 0,
    }
}
