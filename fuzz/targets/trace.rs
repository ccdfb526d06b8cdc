// SPDX-License-Identifier: Apache-2.0
//! Traces of block devices: recognition, every format's parser, folding, the summary and
//! conversion.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| senko_ssd::trace::fuzzing::any_trace(data));
