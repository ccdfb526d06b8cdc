// SPDX-License-Identifier: Apache-2.0
//! The connections of an engine: opened, lost, timed out, opened again.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use senko_io::{connect_tcp, connect_unix};

use super::{Engine, LONGEST_WAIT_NS};
use crate::connection::Conn;
use crate::settings::Target;

/// A server that lets all connections time out this often in a row is dead.
const SILENCES: u32 = 3;
/// The first and the longest pause before connecting again.
const RETRY_NS: (u64, u64) = (10_000_000, 1_000_000_000);

impl Engine<'_> {
    pub(super) fn open(&mut self, at: usize) -> Result<(), String> {
        let settings = &self.shared.plan.settings;
        let mut stream: OwnedFd = match &settings.target {
            Target::Tcp(address) => connect_tcp(*address),
            Target::Unix(path) => connect_unix(path),
        }
        .map_err(|error| error.to_string())?;
        let mut link = None;
        let failed = |why| format!("cannot connect to {}: {why}", settings.target);
        if let Some(tls) = &self.shared.plan.tls {
            let mut socket = TcpStream::from(stream);
            let made = tls.connect(&mut socket, settings.timeout).map_err(failed)?;
            self.suite = Some(made.suite());
            link = Some(Box::new(made));
            stream = socket.into();
        }
        if let Some(login) = &settings.login {
            // A Unix socket has the same calls.
            let mut socket = TcpStream::from(stream);
            login
                .perform(
                    settings.wire,
                    &mut socket,
                    link.as_deref_mut(),
                    settings.timeout,
                )
                .map_err(failed)?;
            stream = socket.into();
        }
        let id = self.io.adopt(stream).map_err(|error| error.to_string())?;
        self.conns[at].connected(id, link, settings.wire, settings.pipeline);
        self.by_id.insert(id, at as u32);
        self.down -= 1;
        self.list(at);
        Ok(())
    }

    #[cold]
    pub(super) fn lose(&mut self, at: usize, why: &str, timed_out: bool, now: u64) {
        let conn = &mut self.conns[at];
        let Some(id) = conn.id else { return };
        conn.silences += u32::from(timed_out);
        self.by_id.remove(&id);
        self.io.close(id);
        conn.fail(self.shared, &mut self.tally, why, timed_out, now);
        conn.retry = (now + RETRY_NS.0, 1);
        self.down += 1;
    }

    /// Timeouts, and connecting again.
    pub(super) fn look_after_connections(&mut self, now: u64, deadline: u64) -> Result<(), String> {
        let timeout = self.shared.plan.settings.timeout.as_nanos() as u64;
        let mut slow = false;
        for at in 0..self.conns.len() {
            let conn = &self.conns[at];
            if conn.id.is_some() {
                if conn
                    .pending
                    .front()
                    .is_some_and(|oldest| now.saturating_sub(oldest.sent) > timeout)
                {
                    self.lose(at, "no answer in time", true, now);
                }
            } else if now >= conn.retry.0 && now < deadline && !slow {
                let (_, failures) = conn.retry;
                match self.open(at) {
                    Ok(()) => self.tally.now.counts.reconnects += 1,
                    Err(error) => {
                        // A try may take long, so others wait for the next check.
                        slow = self.shared.now() - now > LONGEST_WAIT_NS;
                        // Where one handshake takes all of the time, the others would, too.
                        self.failed_tries += match self.shared.now() - now >= timeout {
                            true if self.down == self.conns.len() => self.conns.len(),
                            _ => 1,
                        };
                        self.tally.error(&format!("connecting again: {error}"), 1);
                        let pause = (RETRY_NS.0 << failures.min(20)).min(RETRY_NS.1);
                        self.conns[at].retry = (now + pause, failures + 1);
                    }
                }
            }
        }
        // After a long pause of this thread, all connections may be lost at the same check. None is
        // given up before it was tried again.
        let tried = self.failed_tries >= self.conns.len();
        if self.down < self.conns.len() {
            self.alive_at = now;
            self.failed_tries = 0;
        } else if now - self.alive_at > timeout && tried {
            return Err(self.gone(now));
        }
        let silent = |conn: &Conn| conn.silences >= SILENCES;
        if !self.conns.is_empty() && self.conns.iter().all(silent) {
            let target = &self.shared.plan.settings.target;
            return Err(format!(
                "the server at {target} answers nothing: each connection timed out {SILENCES} times in a row"
            ));
        }
        Ok(())
    }

    /// Whether there was no connection for longer than the pause between two tries.
    pub(super) fn is_alone(&self, now: u64) -> bool {
        let alone = now - self.alive_at > RETRY_NS.1 + LONGEST_WAIT_NS;
        alone && self.down == self.conns.len() && self.failed_tries > 0
    }

    pub(super) fn gone(&self, now: u64) -> String {
        let target = &self.shared.plan.settings.target;
        let time = Duration::from_millis((now - self.alive_at) / 1_000_000);
        format!("the server at {target} is gone: no connection for {time:?}")
    }

    #[inline]
    pub(super) fn list(&mut self, at: usize) {
        let conn = &mut self.conns[at];
        if !conn.listed && conn.free > 0 && conn.batch.is_some() {
            conn.listed = true;
            self.ready.push_back(at as u32);
        }
    }
}
