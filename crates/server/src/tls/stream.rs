// SPDX-License-Identifier: Apache-2.0
//! The cipher of one connection, between the bytes of its socket and those of its session.
//!
//! ```text
//!            receive: in place, in the receive buffer            seal: from frame or item
//!  socket -> [ held | new ] -> records -> plaintext     answers -> record of 16 KiB -> socket
//!               `- kept where a record or a message is not whole
//!
//!  Handshake --last message--> Open --close_notify--> Half (answers still go out)
//!      `------- a bad byte -------`-------------------> Failed (an alert goes out)
//! ```
//! rustls's unbuffered interface takes and returns slices, so there is no buffer in between. A
//! record is decrypted where it was received; rustls 0.23 then copies the plaintext once. An answer
//! is encrypted from its place in memory: a piece of at least [`STRAIGHT`] bytes gets its own
//! records, and smaller pieces are gathered.

use std::fmt;

use super::words;
use rustls::HandshakeKind;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};

/// TLS-2: two records, or as many bytes of a client's certificates.
const MOST_HELD: usize = 2 * RECORD;
/// Most bytes of a record: header, plaintext, and what a cipher may add.
const RECORD: usize = 5 + (16 << 10) + 256;
/// Plaintext of answers that a connection encrypts at a time, unless the settings say otherwise:
/// three records. With their overhead they fit into the capacity that an emptied batch keeps.
pub const CIPHERED: usize = 3 * PLAIN;
/// A piece of an answer of this many bytes is encrypted without being copied first.
const STRAIGHT: usize = 1 << 10;
/// Most bytes that a record adds to its plaintext, with any suite.
const ADDED: usize = 32;
/// Plaintext of a record.
const PLAIN: usize = 16 << 10;

/// Why a connection ends.
#[derive(Debug)]
pub struct Fault {
    /// It was never opened.
    pub handshake: bool,
    /// One clause.
    pub why: String,
}

/// The result of receiving bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The handshake ended with these bytes; `Some(true)`: it was a full handshake, not a resumed
    /// session.
    pub opened: Option<bool>,
    /// The peer will send no more.
    pub ended: bool,
}

/// One connection's cipher.
pub struct Stream {
    link: UnbufferedServerConnection,
    /// Incomplete ciphertext, or ciphertext that waits for its turn ([`Stream::hold`]).
    held: Vec<u8>,
    open: bool,
    /// Whether the peer has sent its last message.
    ended: bool,
    /// Whether an alert was sent: rustls must not be called any more.
    failed: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} bytes held)", self.held.len())
    }
}

impl Stream {
    pub(super) fn new(link: UnbufferedServerConnection) -> Stream {
        Stream {
            link,
            held: Vec::new(),
            open: false,
            ended: false,
            failed: false,
        }
    }

    /// Whether the handshake has ended.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Bytes of memory that ciphertext takes.
    pub fn held(&self) -> usize {
        self.held.capacity()
    }

    /// Keeps ciphertext for a later [`Stream::receive`]. Returns whether that is enough for now,
    /// because a client may send much after the last message of its handshake.
    pub fn hold(&mut self, data: &[u8]) -> bool {
        self.held.extend_from_slice(data);
        self.held.len() > PLAIN
    }

    /// Takes ciphertext in any pieces. Appends plaintext to `plain`, and bytes for the peer (of the
    /// handshake, or an alert) to `out`.
    ///
    /// # Errors
    /// Why the connection has to end, after `out` was sent.
    pub fn receive(
        &mut self,
        data: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Received, Fault> {
        if self.ended || self.failed {
            return Ok(Received::default());
        }
        let (used, result) = match self.held.is_empty() {
            true => {
                let (used, result) = self.run(data, plain, out);
                self.held.extend_from_slice(&data[used..]);
                (0, result)
            }
            false => {
                let mut held = std::mem::take(&mut self.held);
                held.extend_from_slice(data);
                let (used, result) = self.run(&mut held, plain, out);
                self.held = held;
                (used, result)
            }
        };
        self.held.drain(..used);
        if self.held.is_empty() {
            self.held = Vec::new();
        }
        let received = result?;
        if self.held.len() > MOST_HELD {
            return Err(self.fault("a message is longer than any that makes sense"));
        }
        Ok(received)
    }

    /// Processes `data`, which begins with the held ciphertext; returns how many bytes were
    /// consumed.
    fn run(
        &mut self,
        data: &mut [u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> (usize, Result<Received, Fault>) {
        let mut used = 0;
        let mut received = Received::default();
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.link.process_tls_records(&mut data[used..]);
            let mut waits = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::ReadEarlyData(mut early)) => {
                    // No early data is offered, so none comes.
                    while let Some(Ok(record)) = early.next_record() {
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    if let Err(fault) = encode(out, |out| data.encode(out)) {
                        return (used, Err(self.fault(fault)));
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => {
                    received.ended = true;
                    self.ended = true;
                }
                Ok(_) => waits = true,
                Err(error) => {
                    self.failed = true;
                    // rustls refuses an old client for what its first message lacks, by an alert
                    // that does not tell the client why.
                    if let Some(why) = words::of_old_hello(&data[used..]).filter(|_| !self.open) {
                        out.extend_from_slice(&words::BAD_VERSION);
                        return (used + discard, Err(self.fault(why)));
                    }
                    used += discard;
                    self.alert(&mut data[used..], out);
                    return (used, Err(self.fault(words::of(&error))));
                }
            }
            used += discard;
            if waits || self.ended {
                break;
            }
        }
        if !self.open && !self.link.is_handshaking() {
            self.open = true;
            received.opened = Some(self.link.handshake_kind() != Some(HandshakeKind::Resumed));
        }
        // Bytes after the peer's last message are ignored.
        let used = if self.ended { data.len() } else { used };
        (used, Ok(received))
    }

    /// Takes the alert for an error from rustls. It calls rustls only while rustls has something to
    /// send; otherwise it would read the bad bytes again.
    fn alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        while self.link.wants_write() {
            let status = self.link.process_tls_records(rest);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state else {
                return;
            };
            if encode(out, |out| data.encode(out)).is_err() {
                return;
            }
        }
    }

    fn fault(&self, why: impl fmt::Display) -> Fault {
        Fault {
            handshake: !self.open,
            why: why.to_string(),
        }
    }

    /// Encrypts at most the first `most` bytes of `pieces` and appends them to `out`; returns how
    /// many it took.
    ///
    /// # Errors
    /// The connection has to end: the handshake has not ended, or the key is exhausted.
    pub fn seal<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Fault> {
        if !self.open || self.failed {
            return Err(self.fault("nothing can be sent before the handshake has ended"));
        }
        let Stream { link, held, .. } = self;
        let mut pieces = Some(pieces);
        let mut sealed = None;
        // The held bytes have no whole record. rustls checks them, and then allows a write.
        while sealed.is_none() {
            let UnbufferedStatus { discard, state } = link.process_tls_records(held);
            match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    sealed = encode(out, |out| data.encode(out)).err().map(Err);
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => {}
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let pieces = pieces.take().into_iter().flatten();
                    sealed = Some(seal_pieces(&mut traffic, pieces, most, out));
                }
                _ => sealed = Some(Err("the connection takes no answers")),
            }
            held.drain(..discard);
        }
        let sealed = sealed.unwrap_or(Ok(0));
        sealed.map_err(|why| self.fault(why))
    }

    /// Appends the closing message to `out`, if the connection was opened.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if !self.open || self.failed {
            return;
        }
        let status = self.link.process_tls_records(&mut self.held);
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
            let _ = encode(out, |out| traffic.queue_close_notify(out));
        }
    }
}

fn seal_pieces<'a>(
    traffic: &mut WriteTraffic<'_, rustls::server::ServerConnectionData>,
    pieces: impl Iterator<Item = &'a [u8]>,
    most: usize,
    out: &mut Vec<u8>,
) -> Result<usize, &'static str> {
    let mut taken = 0;
    let mut gathered = Vec::new();
    for piece in pieces {
        let piece = &piece[..piece.len().min(most - taken)];
        taken += piece.len();
        if piece.len() < STRAIGHT {
            gathered.extend_from_slice(piece);
            if gathered.len() < PLAIN - STRAIGHT {
                continue;
            }
            record(traffic, &gathered, out)?;
            gathered.clear();
        } else {
            record(traffic, &gathered, out)?;
            gathered.clear();
            record(traffic, piece, out)?;
        }
    }
    record(traffic, &gathered, out)?;
    Ok(taken)
}

fn record(
    traffic: &mut WriteTraffic<'_, rustls::server::ServerConnectionData>,
    plain: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    if plain.is_empty() {
        return Ok(());
    }
    let bound = plain.len() + plain.len().div_ceil(PLAIN) * ADDED;
    write(out, bound, |out| traffic.encrypt(plain, out))
}

/// Errors of rustls that usually ask for more room.
trait WantsRoom {
    fn room(&self) -> Option<usize>;
}

impl WantsRoom for EncodeError {
    fn room(&self) -> Option<usize> {
        match self {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Some(*required_size)
            }
            EncodeError::AlreadyEncoded => None,
        }
    }
}

impl WantsRoom for EncryptError {
    fn room(&self) -> Option<usize> {
        match self {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                Some(*required_size)
            }
            EncryptError::EncryptExhausted => None,
        }
    }
}

/// Makes rustls write a message to `out`, with as much room as it needs.
fn encode<E: WantsRoom>(
    out: &mut Vec<u8>,
    writes: impl FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<(), &'static str> {
    write(out, 0, writes)
}

fn write<E: WantsRoom>(
    out: &mut Vec<u8>,
    bound: usize,
    mut writes: impl FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<(), &'static str> {
    let start = out.len();
    let mut room = bound;
    // Two tries: the first one tells how much room is missing.
    for _ in 0..2 {
        out.resize(start + room, 0);
        match writes(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(error) => match error.room() {
                Some(more) => room = more,
                None => break,
            },
        }
    }
    out.truncate(start);
    Err("the key has been used as often as it may be")
}
