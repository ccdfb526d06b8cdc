// SPDX-License-Identifier: Apache-2.0
//! Tests of paper A's structures.

#![allow(clippy::unwrap_used)]

mod layouts; // what was put is found, and nothing else
