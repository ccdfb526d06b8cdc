// SPDX-License-Identifier: Apache-2.0
//! The head of an entry of the log made of arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_dbm::fuzzing::entry(data);
});
