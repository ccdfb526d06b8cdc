// SPDX-License-Identifier: Apache-2.0
//! Messages from other workers: sockets to take over, commands for this shard, answers to this worker's connections.

use super::Worker;
use super::conns::{Conn, Link};
use crate::protocol::binary;
use crate::route::{Message, Origin};
use crate::session::Session;
use crate::settings::Dialect;

impl Worker {
    /// Takes everything that lies in the inbox.
    pub(super) fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.core.outbox.mesh().take(self.index, &mut mail);
        self.ahead.clear();
        for message in &mail {
            if let Message::Commands { bytes, .. } = message {
                self.note_keys(bytes);
            }
        }
        self.ask_for_noted();
        for message in mail.drain(..) {
            match message {
                Message::Newcomer(newcomer) => self.adopt(newcomer),
                Message::Commands { origin, bytes } => {
                    self.commands(origin, &bytes);
                    self.core.outbox.keep(bytes);
                }
                Message::Answer {
                    conn: at,
                    shard,
                    bytes,
                } => {
                    if let Some(conn) = self.conns.get(at) {
                        let left = conn.session.remote_reply(shard, bytes);
                        self.core.outbox.keep(left);
                        self.feed_again(at);
                    }
                }
                Message::Gone(origin) => {
                    if let Some(at) = self.conns.of_origin(origin) {
                        self.close(at);
                    }
                }
            }
        }
        self.mail = mail;
    }

    /// Another worker's connection has commands for this shard: they run in a virtual connection that stands for it.
    fn commands(&mut self, origin: Origin, bytes: &[u8]) {
        let at = self.conns.of_origin(origin).unwrap_or_else(|| {
            // The first bytes are the start of a command, so they tell the dialect.
            let dialect = if bytes.first() == Some(&binary::REQUEST) {
                Dialect::Binary
            } else {
                Dialect::Ascii
            };
            self.conns.insert(Conn::new(
                Link::Virtual(origin),
                Session::remote(dialect),
                self.now_ms,
            ))
        });
        self.news = true;
        self.input(at, bytes);
    }

    /// Lets connections go on that waited for a worker to catch up.
    pub(super) fn resume_paused(&mut self) {
        if self.paused.is_empty()
            || (0..self.core.shared.shards).any(|w| self.core.outbox.mesh().congested(w))
        {
            return;
        }
        let mut paused = std::mem::take(&mut self.paused);
        for at in paused.drain(..) {
            if let Some(conn) = self.conns.get(at) {
                conn.paused = false;
                self.feed_again(at);
            }
        }
        if self.paused.is_empty() {
            self.paused = paused;
        }
    }
}
