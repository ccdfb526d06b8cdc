// SPDX-License-Identifier: Apache-2.0
//! The head of a sorted block: its header, page index, large values and hash list, on arbitrary
//! bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| senko_store::block::fuzzing::head(data));
