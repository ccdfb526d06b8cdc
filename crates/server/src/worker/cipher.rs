// SPDX-License-Identifier: Apache-2.0
//! Connections with TLS: received ciphertext, handshakes in turn, encrypted answers.
//!
//! ```text
//!  Received --open?--> deciphered -> input (flow.rs), as if it had come in plaintext
//!     `--handshake--> held, queued -> run_handshakes: HANDSHAKES of them a round
//!  flush -> fill_batch -> Secure::plain --seal, a part at a time--> send --Sent--> flush
//! ```
//!
//! Always holds, besides the rules of `flow.rs`:
//! - CIPHER-1: the number of handshake steps in a round is bounded ([`HANDSHAKES`]), since a step
//!   costs as much as hundreds of GETs.
//! - CIPHER-2: a connection holds the ciphertext of a part of its answers at most
//!   ([`TlsSettings::write_bytes`](crate::settings::TlsSettings::write_bytes)). The rest
//!   of the batch waits unencrypted: frames and item memory under the rules of FLOW-3. A frame is
//!   free as soon as it is encrypted.
//! - CIPHER-3: a handshake that has not ended after [`HANDSHAKE_MS`] ends its connection, whatever
//!   bytes come.

use std::collections::VecDeque;

use senko_io::{ConnId, Piece, SendMode};

use super::Worker;
use super::conns::Conn;
use super::flow::{drop_sent, has_pages};
use super::secure::Secure;
use crate::connection::ConnKey;
use crate::settings::{TlsMode, TlsSettings};
use crate::tls::Fault;

/// CIPHER-1: steps of handshakes in a round. A step with an RSA key takes about a millisecond.
const HANDSHAKES: usize = 2;
/// CIPHER-3: milliseconds.
const HANDSHAKE_MS: u64 = 60_000;

/// The worker's state for all its connections with TLS.
#[derive(Debug, Default)]
pub(super) struct Ciphers {
    /// Connections that have bytes for their handshake.
    handshakes: VecDeque<ConnKey>,
    /// Plaintext of the bytes that are being processed.
    plain: Vec<u8>,
}

impl Ciphers {
    pub fn are_busy(&self) -> bool {
        !self.handshakes.is_empty()
    }
}

impl Worker {
    /// Gives a new connection its cipher, if its door requires one. False: there is none.
    pub(super) fn cipher(&self, conn: &mut Conn, mode: TlsMode) -> bool {
        let Some(tls) = self.core.shared.tls.as_ref() else {
            return mode == TlsMode::Off;
        };
        let stream = tls.accept(mode);
        conn.tls = stream.map(|stream| Secure::new(stream, self.now_ms));
        conn.tls.is_some() || mode == TlsMode::Off
    }

    pub(super) fn take_ciphered(&mut self, at: ConnKey, data: &mut [u8]) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let Some(tls) = conn.tls.as_mut() else {
            return;
        };
        tls.spoke = true;
        if conn.closing {
            return;
        }
        if tls.stream.is_open() {
            self.decipher(at, data);
            return;
        }
        conn.last_active = self.now_ms;
        tls.enough |= tls.stream.hold(data);
        if !std::mem::replace(&mut tls.queued, true) {
            self.ciphers.handshakes.push_back(at);
        }
        self.settle(at);
    }

    /// CIPHER-1: takes some handshakes one step further.
    pub(super) fn run_handshakes(&mut self) {
        for _ in 0..HANDSHAKES.min(self.ciphers.handshakes.len()) {
            let Some(at) = self.ciphers.handshakes.pop_front() else {
                return;
            };
            let Some(tls) = self.conns.get(at).and_then(|conn| conn.tls.as_mut()) else {
                continue;
            };
            (tls.queued, tls.enough) = (false, false);
            self.core.stats.tls_handshake_steps += 1;
            self.decipher(at, &mut []);
        }
        self.core.stats.tls_handshake_rounds += u64::from(self.ciphers.are_busy());
    }

    /// Decrypts ciphertext; the plaintext is handled like any input.
    fn decipher(&mut self, at: ConnKey, data: &mut [u8]) {
        let Some(tls) = self.conns.get(at).and_then(|conn| conn.tls.as_mut()) else {
            return;
        };
        let mut plain = std::mem::take(&mut self.ciphers.plain);
        plain.clear();
        let received = tls.stream.receive(data, &mut plain, &mut tls.out);
        let talks = !tls.out.is_empty();
        match received {
            Ok(received) => {
                let whole = received.opened == Some(true);
                self.core.stats.ssl_new_sessions += u64::from(whole);
                self.core.stats.tls_handshakes += u64::from(received.opened.is_some());
                self.core.stats.bytes_read += plain.len() as u64;
                if !plain.is_empty() {
                    self.input(at, &plain);
                }
                if received.ended {
                    self.no_more(at);
                }
                if talks {
                    self.mark_dirty(at);
                }
                self.settle(at);
            }
            Err(fault) => self.broken(at, &fault),
        }
        self.ciphers.plain = plain;
    }

    /// Counts an error, and closes the connection after the alert.
    fn broken(&mut self, at: ConnKey, fault: &Fault) {
        let (what, count) = match fault.handshake {
            true => ("handshake", &mut self.core.stats.ssl_handshake_errors),
            false => ("connection", &mut self.core.stats.ssl_proto_errors),
        };
        *count += 1;
        let shared = &self.core.shared;
        if let Some(left_out) = shared.broken_ciphers.may(shared.clock.now_ms()) {
            let entry = self.conns.get(at).and_then(|conn| conn.entry.as_ref());
            let from = entry.map_or("a client", |entry| &entry.addr);
            let why = &fault.why;
            tracing::warn!("the TLS {what} of {from} was ended: {why}{left_out}");
        }
        self.close(at);
    }

    /// The next part of a connection's answers, encrypted, if there is any.
    pub(super) fn flush_ciphered(&mut self, at: ConnKey, id: ConnId) {
        let mut batch = self.spare.take();
        let mut next = self.spare.take();
        let settings = self.core.shared.settings.tls.as_ref();
        let most = settings.map_or(0, TlsSettings::write_bytes);
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let Some(tls) = conn.tls.as_mut() else {
            return;
        };
        batch.bytes.append(&mut tls.out);
        tls.out = Vec::new();
        let mut failed = None;
        if tls.stream.is_open() {
            let replies = conn.session.replies();
            if tls.plain.is_none() && replies.sendable() && replies.fill_batch(&mut next) {
                tls.plain = Some(std::mem::take(&mut next));
            }
            if let Some(mut plain) = tls.plain.take() {
                self.disk.frames_freed(has_pages(&plain));
                let sealed = tls.stream.seal(plain.slices(), most, &mut batch.bytes);
                let taken = *sealed.as_ref().unwrap_or(&0);
                self.core.stats.bytes_written += taken as u64;
                match sealed {
                    Ok(taken) if taken < plain.len() => {
                        if plain.pieces.is_empty() {
                            // Advances a range instead of moving bytes.
                            let all = 0..plain.bytes.len();
                            plain.pieces.push(Piece::Bytes(all));
                        }
                        drop_sent(&mut plain, taken, &mut self.unpinned);
                        tls.plain = Some(plain);
                    }
                    Ok(_) => {
                        plain.clear(&mut self.unpinned);
                        next = plain;
                    }
                    Err(fault) => {
                        tls.plain = Some(plain);
                        failed = Some(fault);
                    }
                }
            }
        }
        conn.sending = failed.is_none() && !batch.bytes.is_empty();
        if conn.sending {
            conn.in_batch = batch.memory() + tls.answers();
            self.core.ev.send(id, batch, SendMode::Try);
        } else {
            self.recycle(batch);
        }
        self.recycle(next);
        if let Some(fault) = failed {
            self.broken(at, &fault);
        }
    }

    /// Sends the closing message of a connection, as far as its socket accepts it. It is skipped
    /// while a send is under way or the socket is lent.
    pub(super) fn part(&mut self, id: ConnId, secure: Box<Secure>, sending: bool) {
        let mut secure = *secure;
        if let Some(plain) = secure.plain.take() {
            self.recycle(plain);
        }
        if sending {
            return;
        }
        let mut batch = self.spare.take();
        batch.bytes.append(&mut secure.out);
        secure.stream.close(&mut batch.bytes);
        match batch.bytes.is_empty() {
            true => self.recycle(batch),
            // Bytes given to the loop before a close are still sent.
            false => self.core.ev.send(id, batch, SendMode::Try),
        }
    }

    /// CIPHER-3: ends handshakes that take too long.
    pub(super) fn end_late_handshakes(&mut self) {
        if self.core.shared.tls.is_none() {
            return;
        }
        let now_ms = self.now_ms;
        let late = |conn: &Conn| {
            let tls = conn.tls.as_ref();
            tls.is_some_and(|tls| !tls.stream.is_open() && tls.since + HANDSHAKE_MS <= now_ms)
        };
        let all = self.conns.iter();
        let late: Vec<ConnKey> = all
            .filter(|(_, conn)| late(conn))
            .map(|(at, _)| at)
            .collect();
        for at in late {
            let why = "it took too long".to_owned();
            let handshake = true;
            self.broken(at, &Fault { handshake, why });
        }
    }

    /// The peer left in the middle of its handshake.
    pub(super) fn note_end(&mut self, at: ConnKey) {
        if let Some(tls) = self.conns.get(at).and_then(|conn| conn.tls.as_ref())
            && tls.spoke
            && !tls.stream.is_open()
        {
            self.core.stats.ssl_handshake_errors += 1;
        }
    }
}
