// SPDX-License-Identifier: Apache-2.0
//! The store's log: replay, salvage, look-ups and appends on pages made of arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_store::log::fuzzing::replay(data);
});
