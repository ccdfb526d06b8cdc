// SPDX-License-Identifier: Apache-2.0
//! The commits in a group of changes, made from arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_dbm::fuzzing::changes(data);
});
