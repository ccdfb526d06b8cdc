// SPDX-License-Identifier: Apache-2.0
//! The reader of encoded maps of blocks, and look-ups in the result, on arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| senko_store::index::fuzzing::map(data));
