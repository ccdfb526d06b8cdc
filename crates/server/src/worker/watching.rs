// SPDX-License-Identifier: Apache-2.0
//! Watchers ([`crate::watch`]): a worker reports the events of its connections and its shard, and
//! writes lines to connections that watch. It does so each round, and when a connection opens or
//! closes.

use std::sync::Arc;

use super::Worker;
use crate::commands;
use crate::connection::ConnKey;
use crate::watch;

/// Unsent bytes of a watcher's answers at which it gets no more lines.
const MOST_UNSENT: usize = 16 << 10;
/// Bytes of lines that a watcher gets in a round.
const TURN: usize = 32 << 10;

impl Worker {
    /// Reports evictions, and moves lines to the connections that watch.
    pub(super) fn tell_watchers(&mut self) {
        let wanted = self.core.shared.watchers.wants(watch::EVICTIONS);
        self.core.shard.watch_evictions(wanted);
        if !wanted && self.watching.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.core.shared);
        if wanted {
            let (evicted, untold) = self.core.shard.take_evicted();
            for item in &evicted {
                commands::evicted(&shared, item, self.now_ms);
            }
            if untold > 0 {
                shared.watchers.note_lost(untold);
            }
        }
        let mut watching = std::mem::take(&mut self.watching);
        watching.retain(|&at| {
            let Some(conn) = self.conns.get(at) else {
                return false;
            };
            let Some(watcher) = conn.session.watcher().cloned() else {
                return false;
            };
            if conn.sending || conn.session.replies().queued_bytes() >= MOST_UNSENT {
                return true;
            }
            let lines = watcher.take(TURN);
            if !lines.is_empty() {
                shared.watchers.note_sent(lines.len());
                conn.session.tell(&lines);
                self.mark_dirty(at);
            }
            true
        });
        self.watching.append(&mut watching);
    }

    /// Reports a connection that opens or closes.
    pub(super) fn tell_of_conn(&mut self, at: ConnKey, kind: &str, reason: Option<&str>) {
        if !self.core.shared.watchers.wants(watch::CONNEVENTS) {
            return;
        }
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let Some(entry) = &conn.entry else {
            return;
        };
        let (transport, address) = entry.addr.split_once(':').unwrap_or(("", &entry.addr));
        let (transport, ip, port) = match transport {
            "unix" => ("local", "unix", "0"),
            _ => {
                let (ip, port) = address.rsplit_once(':').unwrap_or((address, "0"));
                ("tcp", ip.trim_matches(['[', ']']), port)
            }
        };
        let reason = reason.map_or(String::new(), |why| format!(" reason={why}"));
        let event = format!(
            "type={kind} rip={ip} rport={port} transport={transport}{reason} cfd={}",
            conn.fd
        );
        let watchers = &self.core.shared.watchers;
        watchers.tell(watch::CONNEVENTS, self.now_ms, event.as_bytes());
    }

    /// Reports a connection that is about to be closed.
    pub(super) fn tell_of_end(&mut self, at: ConnKey) {
        let Some(conn) = self.conns.get(at) else {
            return;
        };
        let reason = match conn.reason {
            Some(reason) => reason,
            None if conn.session.was_hung_up_on() => "error",
            None => "normal",
        };
        self.tell_of_conn(at, "conn_close", Some(reason));
    }

    /// Closes a connection, for this reason in memcached's words.
    pub(super) fn close_for(&mut self, at: ConnKey, reason: &'static str) {
        if let Some(conn) = self.conns.get(at) {
            conn.reason = Some(reason);
        }
        self.close(at);
    }
}
