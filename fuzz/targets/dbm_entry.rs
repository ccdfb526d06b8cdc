// SPDX-License-Identifier: Apache-2.0
//! The header of a log entry, made from arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_dbm::fuzzing::entry(data);
});
