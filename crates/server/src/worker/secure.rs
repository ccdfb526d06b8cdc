// SPDX-License-Identifier: Apache-2.0
//! State of a connection with TLS: its cipher, and the bytes before and after it.

use senko_io::SendBatch;

use crate::tls::Stream;

/// State of a connection with TLS.
#[derive(Debug)]
pub struct Secure {
    pub stream: Stream,
    /// Bytes for the peer that answer nothing: of the handshake, or an alert.
    pub out: Vec<u8>,
    /// Answers that are not ciphered yet.
    pub plain: Option<Box<SendBatch>>,
    /// In the queue of handshakes.
    pub queued: bool,
    /// More came than a step of a handshake needs: its socket is not read until its turn.
    pub enough: bool,
    /// Some bytes came.
    pub spoke: bool,
    /// Clock (ms) of the connection's begin.
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

    /// Something of it is still to be sent.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty() || self.plain.is_some()
    }

    /// It waits for its turn with enough to do.
    pub fn is_full(&self) -> bool {
        self.enough
    }

    /// Bytes that it holds of what came.
    pub fn held(&self) -> usize {
        self.stream.held()
    }

    /// Bytes of answers that it holds: those that a batch owns.
    pub fn answers(&self) -> usize {
        let plain = self.plain.as_ref().map_or(0, |plain| plain.bytes.len());
        self.out.len() + plain
    }
}
