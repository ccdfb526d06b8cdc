// SPDX-License-Identifier: Apache-2.0
//! A page of a tree, made from arbitrary bytes: searches and a removal.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_dbm::fuzzing::page(data);
});
