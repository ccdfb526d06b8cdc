// SPDX-License-Identifier: Apache-2.0
//! The superblock, the manifest and the saved maps of a store, on arbitrary bytes: opened, read,
//! verified and written to.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    senko_store::fuzzing::store(data);
});
