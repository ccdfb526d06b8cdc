// SPDX-License-Identifier: Apache-2.0
//! Answers that the kernel sends from the flash file: from a session's turn to a thread of the pool, and back.
//!
//! While a transfer is under way its connection counts as sending, so nothing else goes to the socket (W1). The thread never waits for
//! a reader: what the socket did not take comes back, and is sent as any other answer (W2, W3). So a region is pinned for the time of one
//! device read, and a connection that is closed meanwhile is only outlived by that.

use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;

use senko_cache::{FRAME_PAGES, Transfer, TransferEnd};
use senko_io::transfer::{self, Answer, CachedFile, Job, Moved};
use senko_io::{ConnId, EventLoop, IoError, Purpose, Tag};

use super::conns::{ConnKey, Link};
use super::{Worker, WorkerConfig};
use crate::session::Transferred;

/// `END\r\n`, which only the last answer of a line has.
const END_BYTES: usize = 5;
/// For so long a transfer may be with the device.
const PATIENCE_MS: u64 = 10_000;
/// How these reads are labelled: as those of the direct way.
const TAG: Tag = Tag::cache(Purpose::Lookup);

/// What a worker needs for transfers.
#[derive(Debug)]
pub(super) struct Transfers {
    files: Vec<Arc<CachedFile>>,
    pool: transfer::Transfers<Carried>,
    done: Vec<transfer::Transferred<Carried>>,
}

impl Transfers {
    /// None if answers go the direct way.
    pub fn new(config: &WorkerConfig, ev: &EventLoop) -> Result<Option<Transfers>, String> {
        if config.transfer_files.is_empty() {
            return Ok(None);
        }
        // As many reads at a time as the posix backend has.
        let threads = config.loop_config.disk_threads;
        let pool = transfer::Transfers::new(threads, FRAME_PAGES, ev.waker())
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Some(Transfers {
            files: config.transfer_files.clone(),
            pool,
            done: Vec::new(),
        }))
    }
}

/// What a thread carries along.
#[derive(Debug)]
struct Carried {
    at: ConnKey,
    ticket: u16,
    last: bool,
    transfer: Transfer,
}

impl Answer for Carried {
    fn find(&mut self, pages: &[u8]) -> Option<Range<usize>> {
        let mut range = self.transfer.find(pages)?;
        if !self.last {
            range.end -= END_BYTES;
        }
        Some(range)
    }
}

impl Worker {
    /// Begins the transfer whose turn it is on a connection that sends nothing now.
    pub(super) fn start_transfer(&mut self, at: ConnKey, id: ConnId) {
        let (Some(conn), Some(transfers)) = (self.conns.get(at), &self.transfers) else {
            return;
        };
        let mut ctx = self.core.ctx(at, conn.entry.as_deref());
        let (next, mut ran) = conn.session.next_transfer(&mut ctx);
        if let Some(next) = next {
            match self.core.ev.duplicate(id) {
                Ok(socket) => {
                    let (device, page) = next.transfer.place();
                    let pages = next.transfer.pages();
                    self.core.ev.count_read(TAG, pages);
                    conn.sending = true;
                    conn.transfer_since = Some(self.steady_ms);
                    transfers.pool.start(Job {
                        file: Arc::clone(&transfers.files[device as usize]),
                        page,
                        pages,
                        tag: TAG,
                        socket,
                        answer: Carried {
                            at,
                            ticket: next.ticket,
                            last: next.last,
                            transfer: next.transfer,
                        },
                    });
                }
                Err(error) => {
                    // Descriptors have run out; the direct way needs none.
                    tracing::debug!("no transfer: {error}");
                    let shard = &mut self.core.shard;
                    shard.end_transfer(next.transfer, TransferEnd::Unused);
                    let mut ctx = self.core.ctx(at, conn.entry.as_deref());
                    conn.session
                        .transferred(&mut ctx, next.ticket, Transferred::Unused);
                    ran = true;
                }
            }
        }
        if ran {
            self.feed_again(at);
        }
    }

    /// Takes the transfers that ended.
    pub(super) fn finish_transfers(&mut self) {
        let Some(transfers) = &mut self.transfers else {
            return;
        };
        let mut done = std::mem::take(&mut transfers.done);
        transfers.pool.take_done(&mut done);
        for transferred in done.drain(..) {
            self.finish_transfer(transferred);
        }
        if let Some(transfers) = &mut self.transfers {
            transfers.done = done;
        }
    }

    /// Closes connections whose transfer does not end: its thread waits for the device, and what it would send can't be taken back.
    pub(super) fn give_up_transfers(&mut self) {
        if self.transfers.is_none() {
            return;
        }
        let now = self.steady_ms;
        let stuck: Vec<ConnKey> = self
            .conns
            .iter()
            .filter(|(_, conn)| {
                conn.transfer_since
                    .is_some_and(|since| now > since + PATIENCE_MS)
            })
            .map(|(at, _)| at)
            .collect();
        for at in stuck {
            self.core.stats.transfers_given_up += 1;
            // The job has a descriptor of its own (T3), so that closing this one would not tell the peer.
            if let Some(Link::Socket(id)) = self.conns.get(at).map(|conn| conn.link)
                && let Ok(socket) = self.core.ev.duplicate(id)
            {
                let _ = TcpStream::from(socket).shutdown(Shutdown::Both);
            }
            self.close(at);
        }
    }

    fn finish_transfer(&mut self, transferred: transfer::Transferred<Carried>) {
        let Carried {
            at,
            ticket,
            transfer,
            ..
        } = transferred.answer;
        let (end, result) = match transferred.moved {
            Moved::Unread(error) => {
                tracing::debug!("reading flash failed: {error}");
                self.core.ev.count_failed_read(TAG);
                let error = IoError::Os(error.raw_os_error().unwrap_or(libc::EIO));
                (TransferEnd::Unread(error), Transferred::Absent)
            }
            Moved::Nothing => (TransferEnd::Read, Transferred::Absent),
            Moved::Sent { bytes, rest } => {
                self.core.stats.bytes_written += bytes as u64;
                (TransferEnd::Read, Transferred::Sent(rest))
            }
        };
        self.core.shard.end_transfer(transfer, end);
        // Reclaim may have waited for the region, as for that of any read.
        self.disk_moved = true;
        let Some(conn) = self.conns.get(at) else {
            return; // closed meanwhile
        };
        conn.sending = false;
        conn.transfer_since = None;
        conn.last_active = self.now_ms;
        let mut ctx = self.core.ctx(at, conn.entry.as_deref());
        conn.session.transferred(&mut ctx, ticket, result);
        self.feed_again(at);
    }
}
