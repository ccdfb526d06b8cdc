// SPDX-License-Identifier: Apache-2.0
//! The readers of the files of a clean stop, on arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| senko_cache::fuzzing::saved(data));
