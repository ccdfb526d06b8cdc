// SPDX-License-Identifier: Apache-2.0
//! Records in DRAM that look-ups had to read.

pub(crate) mod hit; // where a look-up found its element
pub(crate) mod record_cache;
