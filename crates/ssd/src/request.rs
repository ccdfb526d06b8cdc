// SPDX-License-Identifier: Apache-2.0
//! A host's request: the one form into which every trace format and every generator is turned.

/// Virtual time, in nanoseconds since the start of a run.
pub type Time = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Read,
    Write,
    /// Forget bytes (TRIM, discard, deallocate).
    Trim,
    /// Make everything that was answered durable. It has no address and no length.
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it reaches the drive. Never less than its predecessor's.
    pub time: Time,
    /// Which drive, volume or ASU of the trace it addresses.
    pub device: u32,
    pub op: Op,
    /// The first byte, from the start of `device`.
    pub offset: u64,
    /// How many bytes; 0 for a flush.
    pub bytes: u64,
    /// The host's stream (FDP placement, multi-stream), 0 if there is none.
    pub stream: u16,
}

impl Request {
    /// A request at time 0, without a stream, to the only device.
    pub fn new(op: Op, offset: u64, bytes: u64) -> Self {
        Self {
            time: 0,
            device: 0,
            op,
            offset,
            bytes,
            stream: 0,
        }
    }

    pub fn flush(time: Time) -> Self {
        Self {
            time,
            ..Self::new(Op::Flush, 0, 0)
        }
    }
}
