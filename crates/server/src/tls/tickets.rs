// SPDX-License-Identifier: Apache-2.0
//! Tickets: the encrypted session that a client keeps, and shows in order to resume it.
//!
//! rustls does not verify a client's certificate again when a session is resumed. So a ticket must
//! not be worth more than a handshake:
//!
//! - (TICKET-1) Each configuration has its own key. A ticket of one listener opens no other one
//!   that asks for more.
//! - (TICKET-2) A change of the CAs makes new keys ([`super::Tls::refresh`]).
//! - (TICKET-3) A session ends with the first of the certificates that its client showed.
//! - (TICKET-4) No session of a client with a certificate is older than the end of a CA.
//!
//! A ticket that is not accepted costs its client a full handshake, and nothing else.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;

use super::x509;

/// Seals and opens the tickets of one configuration.
pub(super) struct Tickets {
    keys: Arc<dyn ProducesTickets>,
    time: Arc<dyn TimeProvider>,
    /// Unix seconds at which the certificates of the CA file end.
    ends: Arc<[i64]>,
}

impl Tickets {
    /// With new keys (TICKET-1).
    pub fn new(time: Arc<dyn TimeProvider>, ends: Arc<[i64]>) -> Result<Arc<Tickets>, String> {
        let keys = Ticketer::new().map_err(|error| format!("there is no randomness: {error}"))?;
        Ok(Arc::new(Tickets { keys, time, ends }))
    }

    /// Whether a CA ended while a ticket may have been on its way.
    fn has_lost_a_ca(&self, now: i64) -> bool {
        // Keys are kept for one more lifetime.
        let oldest = now - 2 * i64::from(self.lifetime());
        self.ends.iter().any(|end| (oldest..now).contains(end))
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.keys.lifetime()
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.keys.encrypt(session)
    }

    /// TICKET-3 and 4. A session that this file does not understand is not resumed.
    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let session = self.keys.decrypt(ticket)?;
        let now = self.time.current_time()?.as_secs() as i64;
        let shown = certificates(&session)?;
        let is_valid = |der: &&[u8]| x509::end(der).is_some_and(|end| end >= now);
        let valid = shown.iter().all(is_valid) && (shown.is_empty() || !self.has_lost_a_ca(now));
        valid.then_some(session)
    }
}

/// The certificates in a session that rustls has written: after the name that the client asked for
/// (which may be absent), version, suite, secret and a flag. Numbers are big-endian.
fn certificates(session: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = session;
    if flag(&mut rest)? {
        sized(&mut rest, 1)?;
    }
    take(&mut rest, 2 + 2)?;
    sized(&mut rest, 1)?;
    take(&mut rest, 1)?;
    let mut chain: &[u8] = match flag(&mut rest)? {
        true => sized(&mut rest, 3)?,
        false => &[],
    };
    let mut all = Vec::new();
    while !chain.is_empty() {
        all.push(sized(&mut chain, 3)?);
    }
    Some(all)
}

fn flag(data: &mut &[u8]) -> Option<bool> {
    match take(data, 1)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

/// Takes off bytes that come after their number, which has `width` bytes.
fn sized<'a>(data: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let len = take(data, width)?;
    let len = len
        .iter()
        .fold(0, |len, &byte| len << 8 | usize::from(byte));
    take(data, len)
}

fn take<'a>(data: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = data.split_at_checked(len)?;
    *data = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_cut_is_not_resumed() {
        let mut session = vec![1, 2, b'a', b'b', 3, 4, 0x13, 1, 2, 9, 9, 1, 1];
        session.extend([0, 0, 8, 0, 0, 2, b'c', b'c', 0, 0, 0]);
        assert_eq!(certificates(&session), Some(vec![&b"cc"[..], b""]));
        for len in 0..session.len() {
            assert!(certificates(&session[..len]).is_none(), "{len} bytes");
        }
    }
}
