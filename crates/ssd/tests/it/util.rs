// SPDX-License-Identifier: Apache-2.0
//! The items of the crate that most tests use, and helpers: small drives, runs of requests, and
//! traces in memory and in files.

use std::io::Cursor;
use std::path::PathBuf;

use senko_ssd::trace::TraceError;

pub use senko_ssd::device::{Device, Parts};
pub use senko_ssd::drive::{Drive, Load};
pub use senko_ssd::ftl::{self, Ftl, Mapping};
pub use senko_ssd::geometry::Geometry;
pub use senko_ssd::nand::{self, Cause, Endurance, Nand, SingleLevel};
pub use senko_ssd::precondition::Precondition;
pub use senko_ssd::profile::{Interface, PartialPages, Profile};
pub use senko_ssd::report::Report;
pub use senko_ssd::source::Workload;
pub use senko_ssd::spec::Spec;
pub use senko_ssd::trace::{
    Fold, Folder, Format, Reader, Summary, TraceSpec, TraceWriter, WriteFormat,
};
pub use senko_ssd::{Error, Op, Request, Time, buffer};
pub use senko_workload::Rng;

/// Bytes of a page of the paper's drive.
pub const PAGE: u64 = 4096;

/// The paper's drive with one plane of `blocks` blocks of `pages` pages, of which the host sees
/// `logical` pages. Pages are placed freely, and there is no buffer.
pub fn small(blocks: u32, pages: u32, logical: u64) -> Profile {
    let mut profile = Profile::find("paper-1gb").unwrap();
    profile.geometry.blocks = blocks;
    profile.geometry.pages = pages;
    profile.user_bytes = logical * PAGE;
    profile.ftl = "page".to_owned();
    profile
}

/// The parts of a drive without times, or with them.
pub fn untimed(untimed: bool) -> Parts {
    Parts {
        untimed,
        ..Parts::default()
    }
}

/// The parts of a drive with this layer.
pub fn with_layer(layer: &str) -> Parts {
    Parts {
        ftl: Some(layer.parse().unwrap()),
        ..Parts::default()
    }
}

/// A request for whole pages of the paper's drive.
pub fn of_pages(op: Op, page: u64, pages: u64) -> Request {
    Request::new(op, page * PAGE, pages * PAGE)
}

/// Asserts that a text has a part.
#[track_caller]
pub fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text}");
}

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
