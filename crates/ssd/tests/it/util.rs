// SPDX-License-Identifier: Apache-2.0
//! Helpers of several tests: runs of requests, and traces in memory and in files.

use std::io::Cursor;
use std::path::PathBuf;

use senko_ssd::drive::{Drive, Load};
use senko_ssd::report::Report;
use senko_ssd::trace::{Reader, TraceError, TraceSpec};
use senko_ssd::{Error, Op, Request};

/// Runs requests that all fit.
pub fn run(drive: &mut Drive, load: Load, requests: impl IntoIterator<Item = Request>) -> Report {
    let requests = requests.into_iter().map(Ok::<_, Error>);
    drive.run(requests, load).expect("every request fits")
}

/// A real trace's path, unless there are no traces.
pub fn real(name: &str) -> Option<PathBuf> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../shared/traces", name]
        .iter()
        .collect();
    let is_there = path.exists();
    if !is_there {
        eprintln!("skipped: no ../shared/traces");
    }
    is_there.then_some(path)
}

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
        ..Request::new(op, offset, bytes)
    }
}
