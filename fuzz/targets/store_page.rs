// SPDX-License-Identifier: Apache-2.0
//! Look-ups and scans in arbitrary data pages of a sorted block.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| senko_store::block::fuzzing::pages(data));
