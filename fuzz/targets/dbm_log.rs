// SPDX-License-Identifier: Apache-2.0
//! A database with a log made from arbitrary entries: opened, verified, read and written.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_dbm::fuzzing::log(data);
});
