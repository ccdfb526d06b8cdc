// SPDX-License-Identifier: Apache-2.0
//! The readers of superblocks and labels, on arbitrary pages.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| senko_cache::fuzzing::superblock(data));
