// SPDX-License-Identifier: Apache-2.0
//! The store, used through its public interface.
#![allow(clippy::unwrap_used)]

#[path = "../../../../examples/sessions.rs"]
#[allow(dead_code)]
mod sessions; // the example of the guide to embedding
mod basics; // each call once, compared with the model
#[path = "../../../io/tests/calls/calls.rs"]
mod recorded; // power cuts and kills at system calls
mod calls; // what they leave of a store
mod crash; // a power failure after every write and flush
mod faults;
mod full; // a full store is emptied
mod flips; // a flipped byte is told
mod folder; // a process that changes its folder // failing calls of the device, flipped bits
mod conditional; // compare and swap, update, and the count of keys
mod versions; // stores that keep several versions of a key
mod space; // the bound on the file
mod shrink; // space that goes back to the file system
mod review; // odd inputs and tight spots
mod stress; // real threads
mod cache; // records in DRAM: never an old one
mod threads; // the background's rate and its failure, and a sync while logs change
mod media; // files that are only read
mod support; // devices and models of the tests
mod log; // the log alone: model, crashes, damage, threads
mod repair; // damage everywhere: what verify finds, and what repair saves
