// SPDX-License-Identifier: Apache-2.0
//! Tests of paper A's structures.

#![allow(clippy::unwrap_used)]

mod basics; // chapter 4.2
mod layouts; // what was put is found, and nothing else
