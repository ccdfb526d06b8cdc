// SPDX-License-Identifier: Apache-2.0
//! Traces of hosts' requests to drives. They are read from bytes as a stream of
//! [`Request`](crate::Request)s, and written back to files.
//!
//! [`Reader::open`] decompresses the trace and recognises its format by the content (never by the
//! file's name). It yields one request at a time, and never holds the trace in memory. [`Summary`]
//! is printed on load, [`Fold`] maps the addresses into a drive, [`TraceWriter`] converts.
//!
//! ```text
//!  file -> decompress -> Buffer -> a format's parser -> the rules of Reader -> Request -> Fold -> the drive
//!                                                                                  \----> Summary, TraceWriter
//! ```
//!
//! Every reader keeps these rules, for every format:
//!
//! - TRACE-1: a line or record that makes no sense is counted as damaged, and the first few are
//!   kept with their number and the reason. Reading continues.
//! - TRACE-2: a request for no bytes is dropped and counted, unless it is a flush.
//! - TRACE-3: times start with 0 at the first request. A time before its predecessor's (or below 0)
//!   is raised to it, and counted. After a damaged time far in the future, the count shows that all
//!   later ones were raised.
//! - TRACE-4: sizes and addresses are bytes, whatever the trace's unit; nothing is rounded to
//!   sectors or pages.
//! - TRACE-5: a stream that ends early (a truncated archive, a failing disk) yields everything that
//!   was intact, and then an error with the place.

mod format; // names of formats, and a trace's description: `columns:unit=ms`
// The order of columns, and the units of times.
mod column_order;
mod unit;
mod fields; // numbers and words of a line, without allocation
mod buffer; // the bytes of a trace: its head to be recognised, then lines or records
mod parser; // the trait of a parser, and the results of a line
mod detect; // recognises the format by a trace's head
mod plausible; // whether a parser's result for the head can be a trace
// The formats.
mod rows; // Alibaba, CloudPhysics, SPC, SYSTOR, Tectonic, Tencent: a table of columns each
mod blkparse;
mod columns;
mod etw;
mod fio;
mod fiu;
mod lis;
mod msr;
mod native;
mod vscsi;
mod reader; // the reader: rules TRACE-1 to TRACE-5, and the counts
// A summary of a trace.
mod footprint;
mod summary;
// Doubts about those figures, and the habits of requests that cause them.
mod doubts;
mod signs;
mod fold; // folds addresses into a drive's capacity
mod write; // conversion

pub use crate::error::TraceError;
pub use column_order::Columns;
pub use fold::{Devices, Fold, Folder, Range, WAYS};
pub use footprint::Footprint;
pub use format::{Format, Options, TraceSpec};
pub(crate) use reader::MAX_TRANSFER;
pub use reader::{Counts, Damage, Reader};
pub use summary::{DeviceSummary, Mix, Summary};
pub use unit::TimeUnit;
pub use write::{TraceWriter, WriteFormat, Written};

pub use senko_workload::Compression;

/// For the fuzz target: reads any bytes as a trace of any kind.
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod fuzzing_tests;
