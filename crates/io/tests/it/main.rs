// SPDX-License-Identifier: Apache-2.0
//! Tests of the I/O layer: every behaviour of the event loop on both backends, devices, faults,
//! traces.

#![allow(clippy::unwrap_used)]

mod support; // both backends, random numbers, temporary folders
#[path = "../calls/calls.rs"]
mod recorded; // power cuts and kills at system calls, for tests of all engines

mod calls;
mod churn;
mod disk;
mod durable;
mod echo;
mod faulty;
mod file;
mod fork;
mod net;
mod page;
mod read_only;
mod refusal;
mod sends;
mod trace;
mod wake;
