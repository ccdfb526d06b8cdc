// SPDX-License-Identifier: Apache-2.0
//! What the tests of crashes, faults and damage share: a device that calls back, and what the store should hold.

pub mod hooked; // a device in memory that calls back after each write and flush
pub mod model; // what was written, and whether a store holds a prefix of it
