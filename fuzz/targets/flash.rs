// SPDX-License-Identifier: Apache-2.0
//! The readers of the flash format, on arbitrary pages.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| senko_cache::fuzzing::flash_pages(data));
