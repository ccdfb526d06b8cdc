// SPDX-License-Identifier: Apache-2.0
//! A simulator of solid-state drives: it shows the effect of a workload on the flash, before the
//! drive is bought.
//!
//! A trace or a generator yields [`Request`]s. [`drive::Drive`] accepts them in virtual time,
//! through a host's queues. [`device::Device`] turns them into pages. A write buffer ([`buffer`])
//! delays and orders the pages, a flash translation layer ([`ftl`]) places them, and the flash
//! ([`nand`]) counts and times the operations. [`report::Report`] has the results.
//!
//! Always holds:
//! - Virtual time only: the same requests, profile and seed give the same result, on every machine.
//! - Conservation: every program of the flash has a cause, and the programs for the host are the
//!   pages that left the buffer ([`device::Device::assert_conservation`], in every run).

#![deny(unsafe_code)]

// The requests of a host.
pub mod request;

// The errors of the crate.
pub mod error;

// `name:option=value`, which names parts.
pub mod spec;

// Traces: all formats, recognised by content, with counts of requests read and dropped.
pub mod trace;

// Generated requests.
pub mod generate;

// A workload, as a user names it.
pub mod source;

// The flash's shape and numbers.
pub mod geometry;

// A bus: one transfer at a time.
mod bus;

// The link between host and drive.
pub mod link;

// The flash: programs, reads, erases, their rules, counts and times.
pub mod nand;

// Translation layers.
pub mod ftl;

// Write buffers.
pub mod buffer;

// The check that reads return the latest version.
pub mod shadow;

// A drive's description, as TOML.
pub mod profile;

// One drive, page by page.
pub mod device;

// Drives under a host: queues, events, RAID 0.
pub mod drive;

// Fills a drive before a run.
pub mod precondition;

// A simulated drive as a device that engines can run on.
pub mod engine_device;

// The results of a run.
pub mod report;

// A result in plain words.
pub mod explain;

// The lifetime of a drive.
pub mod lifetime;

// One run, as a user specifies it.
pub mod run;

// Everything that a user can name.
pub mod catalogue;

// Charts as SVG: axes, series, gaps.
pub mod chart;

// Charts of traces and runs.
pub mod plot;

// Closed forms of write amplification.
pub mod model;

// The direct transfer engine as a queueing model.
pub mod transfer;

pub use error::Error;
pub use request::{Op, Request, Time};
