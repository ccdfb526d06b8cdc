// SPDX-License-Identifier: Apache-2.0
//! Writes statistics as lines of text or as binary packets.

use std::fmt::Display;

use crate::protocol::binary::{Head, Status};

/// A destination of statistics.
pub(super) enum Sink<'a> {
    Text(&'a mut Vec<u8>),
    Binary(&'a mut Vec<u8>, Head),
}

impl Sink<'_> {
    pub(super) fn stat(&mut self, name: &str, value: impl Display) {
        self.stat_of(name.as_bytes(), value);
    }
    /// For a name of any bytes, such as a key.
    pub(super) fn stat_of(&mut self, name: &[u8], value: impl Display) {
        match self {
            Sink::Text(out) => {
                out.extend_from_slice(b"STAT ");
                out.extend_from_slice(name);
                out.extend_from_slice(format!(" {value}\r\n").as_bytes());
            }
            Sink::Binary(out, head) => {
                let value = value.to_string();
                head.push(
                    out,
                    Status::Success,
                    0,
                    name.len(),
                    name.len() + value.len(),
                    0,
                );
                out.extend_from_slice(name);
                out.extend_from_slice(value.as_bytes());
            }
        }
    }
    pub(super) fn end(&mut self) {
        match self {
            Sink::Text(out) => out.extend_from_slice(b"END\r\n"),
            Sink::Binary(out, head) => head.push(out, Status::Success, 0, 0, 0, 0),
        }
    }
}
