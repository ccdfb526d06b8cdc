// SPDX-License-Identifier: Apache-2.0
//! Tests of the DBM: against a map, with crashes at every write and flush, with threads, with the
//! literature's anomalies.

#![allow(clippy::unwrap_used)]

mod support; // random numbers, models
mod replay; // transactions, run again one by one

#[path = "../../../io/tests/calls/calls.rs"]
mod recorded; // power cuts and kills at system calls

#[path = "../../../../examples/accounts.rs"]
#[allow(dead_code)]
mod accounts; // the example of the guide to embedding

mod anomalies;
mod calls;
mod copies;
mod crash;
mod cycles;
mod disk;
mod examples;
mod faults;
mod flips;
mod full;
mod holes;
mod kills;
mod long;
mod model;
mod newest;
mod processes;
mod serial;
mod space;
mod writing;
