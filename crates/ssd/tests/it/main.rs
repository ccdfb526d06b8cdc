// SPDX-License-Identifier: Apache-2.0
//! Tests of the simulator from outside.

#![allow(clippy::unwrap_used)]

/// An array of tuples, a row a line.
macro_rules! rows {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}

mod util; // the items that most tests use, and helpers
mod examples; // the examples, run
mod everything; // every layer under every buffer and on tight flash, against a shadow
mod engine_device; // a simulated drive as a device of `io`
mod page; // the page-level layer: victims, streams, runs of pages, closed forms
mod zns; // zones
mod transfer; // the direct transfer engine's queueing model
mod log_stories; // block-granular layers and DFTL, one operation after the other, computed by hand
mod financial1; // BAST under an LRU buffer on Financial1, against another implementation
mod trace_formats; // a sample of each format of traces, field by field
mod trace_rules; // the rules of every reader of traces
mod trace_guess; // guesses of formats, and doubts
mod hosts; // drives under a host: queues, RAID 0, bytes, keeping up
mod links; // the link to the host, and writes that end before their pages are on the flash
mod precondition; // writes before a run, and whether the drive became steady
mod slc; // the cache of single-level blocks
mod chapter2; // the thesis's chapter 2: a chip, hits of a cached map, TRIM
mod thesis_drives; // the thesis's table 3 and figures 23 to 25, on its drives
mod trace_fold; // folding addresses
mod trace_write; // written traces are read back
mod trace_real; // the real traces, read whole
mod trace_generate; // generated loads
mod buffers; // write buffers, computed by hand
mod buffer_rules; // the rules of every write buffer, and the adaptive one's promises
