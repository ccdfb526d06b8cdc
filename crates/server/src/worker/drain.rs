// SPDX-License-Identifier: Apache-2.0
//! The end of a worker. It accepts no connections, answers the received requests, closes, and ends
//! when no other worker needs its shard any more.
//!
//! Requests that a socket had received when the end began are answered. Later requests are not
//! read: the connection ends as if its client had sent no more. A worker without connections still
//! runs commands for other workers' connections. All of this is bounded, so that a client that does
//! not read cannot prevent the end.

use std::time::{Duration, Instant};

use senko_io::{ConnId, counted};

use super::Worker;
use super::conns::Link;
use crate::connection::ConnKey;
use crate::server::data_dir::Stopped;
use crate::shared::Shutdown;

const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for events while draining.
pub(super) const STEP: Duration = Duration::from_millis(5);
/// How long the server reads from a client whose socket buffer never becomes empty, because it
/// sends faster than its requests run.
const LAST_INPUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Drain {
    until: Instant,
    /// `None`: no socket is read any more.
    last_input: Option<Instant>,
}

impl Worker {
    pub(super) fn draining(&self) -> bool {
        self.drain.is_some()
    }

    /// One step towards the end, if the server was asked to stop. True if this worker may end.
    pub(super) fn drained(&mut self) -> bool {
        let how = self.core.shared.shutdown();
        if how == Shutdown::No {
            return false;
        }
        let now = Instant::now();
        if self.drain.is_none() {
            self.begin_drain(now);
        }
        let Some(drain) = &mut self.drain else {
            return false;
        };
        let out_of_time = how == Shutdown::Now || now >= drain.until;
        if out_of_time {
            for (at, _) in self.sockets() {
                self.close_for(at, "shutdown");
            }
        } else if drain.last_input.is_some_and(|last| now >= last) {
            drain.last_input = None;
            for (_, id) in self.sockets() {
                self.ended(id, None);
            }
        }
        out_of_time || self.core.outbox.mesh().everybody_left()
    }

    fn begin_drain(&mut self, now: Instant) {
        let sockets = self.sockets();
        let open = counted(sockets.len(), "connection");
        tracing::debug!("worker {} drains {open}", self.index);
        let patience = self.core.shared.settings.patience;
        self.drain = Some(Drain {
            until: now + PATIENCE * patience,
            last_input: Some(now + LAST_INPUT * patience),
        });
        self.core.ev.set_accepting(false);
        self.entrance.turn_away();
        self.core.outbox.mesh().drains();
        for (_, id) in sockets {
            self.core.ev.end_input(id);
        }
        self.core.outbox.mesh().wake_all(); // a `shutdown` command reached only this worker
    }

    /// This worker's own connections.
    fn sockets(&mut self) -> Vec<(ConnKey, ConnId)> {
        let all = self.conns.iter();
        all.filter_map(|(at, conn)| match conn.link {
            Link::Socket(id) => Some((at, id)),
            Link::Virtual(_) => None,
        })
        .collect()
    }

    /// Saves the shard to the data directory, if there is one.
    pub(super) fn save_shards(&mut self) -> Result<Vec<Stopped>, String> {
        let Some(data_dir) = self.data_dir.clone() else {
            return Ok(Vec::new());
        };
        let core = &mut self.core;
        core.cursor.flush(&core.shared, &mut core.shard);
        core.shard.close(&mut core.ev);
        self.finish_disk()?;
        if !self.core.shard.is_closed() {
            return Err(
                "the flash device did not take the last writes in time; the next start goes on from shared memory"
                    .to_owned(),
            );
        }
        let own = self.core.shard.own_mut();
        own.map(|(number, shard)| data_dir.save(number, shard))
            .collect()
    }

    /// Lets device operations end, so that written data is complete.
    pub(super) fn finish_disk(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE * self.core.shared.settings.patience;
        while let Some(completion) = self.disk.next() {
            self.core.on_disk(completion);
        }
        let mut events = Vec::new();
        while self.core.ev.disk_in_flight() > 0 && Instant::now() < until {
            self.core
                .ev
                .poll(Some(STEP), &mut events)
                .map_err(|e| format!("the event loop failed: {e}"))?;
            for event in events.drain(..) {
                if let senko_io::Event::Disk(completion) = event {
                    self.core.on_disk(completion);
                }
            }
        }
        Ok(())
    }
}
