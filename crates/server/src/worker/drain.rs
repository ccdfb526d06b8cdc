// SPDX-License-Identifier: Apache-2.0
//! The end of a worker: accept nobody, answer what was received, close, and leave when nobody needs this shard any more.
//!
//! A connection is closed once it has nothing under way in a round that brought no new bytes. A worker whose own connections
//! are gone still runs commands for those of the others. All of it has a bound, so that a client that does not read
//! cannot keep a server from ending.

use std::time::{Duration, Instant};

use super::Worker;
use crate::server::home::Stopped;
use crate::shared::Shutdown;

/// Longest drain.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for events while draining.
pub(super) const STEP: Duration = Duration::from_millis(5);
/// Rounds without news before idle connections are closed: what the kernel had received has been seen by then.
const QUIET_ROUNDS: u32 = 2;

/// How far a drain is.
#[derive(Debug)]
pub(super) struct Drain {
    until: Instant,
    quiet: u32,
}

impl Worker {
    /// Whether the end has begun.
    pub(super) fn draining(&self) -> bool {
        self.drain.is_some()
    }

    /// One step towards the end, if the server was asked to stop; true when this worker may leave.
    pub(super) fn drained(&mut self) -> bool {
        let how = self.core.shared.shutdown();
        if how == Shutdown::No {
            return false;
        }
        if self.drain.is_none() {
            tracing::debug!(
                "worker {} drains {} connections",
                self.index,
                self.conns.open_sockets()
            );
            self.drain = Some(Drain {
                until: Instant::now() + PATIENCE * self.core.shared.settings.patience,
                quiet: 0,
            });
            self.core.ev.set_accepting(false);
            self.waiting.clear();
            self.core.outbox.mesh().wake_all(); // a `shutdown` command reached only this worker
        }
        let Some(drain) = &mut self.drain else {
            return false;
        };
        let busy = self.news || !self.ended.is_empty();
        drain.quiet = if busy { 0 } else { drain.quiet + 1 };
        let out_of_time = how == Shutdown::Now || Instant::now() >= drain.until;
        if out_of_time || drain.quiet >= QUIET_ROUNDS {
            let idle: Vec<_> = self
                .conns
                .iter()
                .filter_map(|(at, conn)| {
                    (conn.is_socket() && (out_of_time || conn.is_idle())).then_some(at)
                })
                .collect();
            for at in idle {
                self.close(at);
            }
        }
        out_of_time || self.core.outbox.mesh().everybody_left()
    }

    /// Leaves the shard to the data directory, if there is one.
    pub(super) fn save_shard(&mut self) -> Result<Option<Stopped>, String> {
        let Some(home) = self.home.clone() else {
            return Ok(None);
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
        home.save(self.index, &mut self.core.shard).map(Some)
    }

    /// Lets device operations end, so that what was written is whole.
    pub(super) fn finish_disk(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE * self.core.shared.settings.patience;
        for completion in std::mem::take(&mut self.ended) {
            self.core.shard.on_disk(&mut self.core.ev, completion);
        }
        let mut events = Vec::new();
        while self.core.ev.disk_in_flight() > 0 && Instant::now() < until {
            self.core
                .ev
                .poll(Some(STEP), &mut events)
                .map_err(|e| format!("the event loop failed: {e}"))?;
            for event in events.drain(..) {
                if let senko_io::Event::Disk(completion) = event {
                    self.core.shard.on_disk(&mut self.core.ev, completion);
                }
            }
        }
        Ok(())
    }
}
