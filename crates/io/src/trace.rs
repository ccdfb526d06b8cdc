// SPDX-License-Identifier: Apache-2.0
//! The recorder of what reaches a device, and the reader of its compact binary format.

/// Writes the trace file; shared by threads.
#[derive(Debug)]
pub struct Recorder {}
