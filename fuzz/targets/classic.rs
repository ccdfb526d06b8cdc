// SPDX-License-Identifier: Apache-2.0
//! Classic text commands: the parser, and a session over a shard with flash in memory. Its code is
//! shared with the server's tests.

#![no_main]

#[path = "../../crates/server/tests/it/entry.rs"]
#[allow(dead_code)]
mod entry;
#[path = "../../crates/server/tests/it/rig.rs"]
#[allow(dead_code)]
mod rig;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::classic(data));
