// SPDX-License-Identifier: Apache-2.0
//! State of a connection with TLS: its cipher, and the bytes before and after it.

use senko_io::SendBatch;

use crate::tls::Stream;

#[derive(Debug)]
pub struct Secure {
    pub stream: Stream,
    /// Bytes for the peer that belong to no answer: of the handshake, or an alert.
    pub out: Vec<u8>,
    /// Answers that are not encrypted yet.
    pub plain: Option<Box<SendBatch>>,
    /// Whether it is in the queue of handshakes.
    pub queued: bool,
    /// Whether more bytes came than a step of a handshake needs. Then its socket is not read until
    /// its turn.
    pub enough: bool,
    /// Whether any bytes came.
    pub spoke: bool,
    /// Clock (ms) of the connection's start.
    pub since: u64,
}

impl Secure {
    pub fn new(stream: Stream, now_ms: u64) -> Box<Secure> {
        Box::new(Secure {
            stream,
            out: Vec::new(),
            plain: None,
            queued: false,
            enough: false,
            spoke: false,
            since: now_ms,
        })
    }

    /// Whether some of these bytes or answers are still to be sent.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty() || self.plain.is_some()
    }

    /// Whether it waits for its turn and has enough bytes.
    pub fn is_full(&self) -> bool {
        self.enough
    }

    /// Bytes of received ciphertext that it holds.
    pub fn held(&self) -> usize {
        self.stream.held()
    }

    /// Memory of the answers that it holds.
    pub fn answers(&self) -> usize {
        let plain = self.plain.as_ref().map_or(0, |plain| plain.memory());
        self.out.capacity() + plain
    }
}
