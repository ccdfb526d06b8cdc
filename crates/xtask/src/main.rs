// SPDX-License-Identifier: Apache-2.0
//! The project's own tasks.

fn main() {}
