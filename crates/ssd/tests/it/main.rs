// SPDX-License-Identifier: Apache-2.0
//! Tests of the simulator from outside.

#![allow(clippy::unwrap_used)]

// The examples, run.
mod examples;

// Every layer under every buffer, against a shadow.
mod everything;

// A simulated drive as a device of `io`.
mod engine_device;

// The page-level layer: victims, streams, runs of pages, closed forms.
mod page;

// Zones.
mod zns;

// The direct transfer engine's queueing model.
mod transfer;

// The block-granular layers and DFTL by themselves: shadow and power cuts.
mod log_layers;

// Their operations, one by one, computed by hand.
mod log_stories;

// BAST under an LRU buffer on Financial1, against another implementation.
mod financial1;

// Helpers of the tests of traces.
mod trace_util;

// A sample of each format of traces, field by field.
mod trace_formats;

// The rules of every reader of traces.
mod trace_rules;

// Guesses of formats, and doubts.
mod trace_guess;

// Drives under a host: queues, RAID 0, bytes, keeping up.
mod hosts;

// The link to the host, and writes that end before their pages are on the flash.
mod links;

// Writes before a run, and whether the drive became steady.
mod precondition;

// The cache of single-level blocks.
mod slc;

// The thesis's chapter 2: a chip, map sizes, hits of a cached map, TRIM.
mod chapter2;

// The thesis's table 3 and figures 23 to 25, on its drives.
mod thesis_drives;

// Folding addresses.
mod trace_fold;

// Written traces are read back.
mod trace_write;

// The real traces, read whole.
mod trace_real;

// Generated loads.
mod trace_generate;

// Write buffers, computed by hand.
mod buffers;

// The rules of every write buffer, and the adaptive one's promises.
mod buffer_rules;
