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

pub mod request; // the requests of a host
pub mod error; // the errors of the crate
pub mod spec; // `name:option=value`, which names parts
pub mod trace; // traces of all formats, recognised by content, and what was dropped
pub mod generate; // generated requests
pub mod source; // a workload, as a user names it
pub mod geometry; // the flash's shape and numbers
mod lists; // linked lists over the places of a slab
mod bus; // a bus: one transfer at a time
pub mod link; // the link between host and drive
pub mod nand; // the flash: programs, reads, erases, their rules, counts and times
pub mod ftl; // translation layers
pub mod buffer; // write buffers
pub mod shadow; // the check that reads return the latest version
pub mod profile; // a drive's description, as TOML
pub mod device; // one drive, page by page
pub mod drive; // drives under a host: queues, events, RAID 0
pub mod precondition; // fills a drive before a run
pub mod engine_device; // a simulated drive as a device that engines can run on
pub mod report; // the results of a run
pub mod explain; // a result in plain words
pub mod lifetime; // the lifetime of a drive
pub mod run; // one run, as a user specifies it
pub mod catalogue; // everything that a user can name
pub mod chart; // charts as SVG: axes, series, gaps
pub mod plot; // charts of traces and runs
pub mod model; // closed forms of write amplification
pub mod transfer; // the direct transfer engine as a queueing model

pub use error::Error;
pub use request::{Op, Request, Time};
