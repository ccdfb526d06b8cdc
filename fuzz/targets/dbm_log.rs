// SPDX-License-Identifier: Apache-2.0
//! A database whose log is made of arbitrary entries: opened, verified, read and written.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_dbm::fuzzing::log(data);
});
