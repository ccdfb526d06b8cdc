// SPDX-License-Identifier: Apache-2.0
//! The senko binary.

fn main() {}
