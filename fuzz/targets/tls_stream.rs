// SPDX-License-Identifier: Apache-2.0
//! A client's bytes before its TLS handshake has ended. Shares its code with the server's tests.

#![no_main]

#[path = "../../crates/server/tests/it/entry.rs"]
#[allow(dead_code)]
mod entry;
#[path = "../../crates/server/tests/it/rig.rs"]
#[allow(dead_code)]
mod rig;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::tls_stream(data));
