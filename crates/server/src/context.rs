// SPDX-License-Identifier: Apache-2.0
//! The context of a session and its commands while they run: the shard and its devices, counters,
//! other shards, and limits on the work to do now.
//!
//! A worker makes a [`Ctx`] for each call of a session. The session passes it to its commands.

use senko_cache::Key;
use senko_io::Queue;

use crate::afar::Afar;
use crate::hot::HotKeys;
use crate::latency::Waited;
use crate::protocol::number::expiry;
use crate::shards::Shards;
use crate::shared::{ConnEntry, Cursor, Shared, ThreadStats};

/// Most waiting replies of a connection.
pub const WINDOW: usize = 64;
/// Unsent bytes of answers at which parsing stops.
pub const QUEUE_BYTES: usize = 256 << 10;
/// The same if answers take much memory.
const SMALL_WINDOW: usize = 16;
const SMALL_QUEUE_BYTES: usize = 16 << 10;

/// Sends commands to the workers of other shards.
pub trait Router {
    /// Sends bytes to the virtual connection at `worker` for connection `conn`: a whole command, or
    /// the next part of its value. They arrive in the order of the calls. Each command is answered
    /// with one unit.
    fn forward(&mut self, worker: usize, conn: u64, bytes: &[u8]);

    /// Returns a pin to another worker, by that worker's number for it.
    fn unpin(&mut self, worker: usize, pin: u64);

    /// Says that the rest of the last forwarded value of this connection will not come. Its command
    /// must be refused.
    fn give_up(&mut self, worker: usize, conn: u64);
}

/// The state that a session uses while it runs.
pub struct Ctx<'a, Q: Queue> {
    pub shard: &'a mut Shards,
    pub queue: &'a mut Q,
    /// What all workers see.
    pub shared: &'a Shared,
    pub stats: &'a mut ThreadStats,
    /// How far this worker has executed the requests to all workers.
    pub cursor: &'a mut Cursor,
    /// The way to other shards.
    pub router: &'a mut dyn Router,
    pub me: usize,
    /// The connection's number, below 2^48. A fetch's user number is this and 16 bits of the
    /// session's own.
    pub conn: u64,
    /// The client's address as watchers see it.
    pub fd: u64,
    /// The connection's row in `stats conns`, if it has one.
    pub entry: Option<&'a ConnEntry>,
    /// How much work the session may have under way.
    pub window: Window,
    /// Further work that the session may do now.
    pub work: &'a mut Work,
}

impl<Q: Queue> Ctx<'_, Q> {
    /// The CAS value that clients see: 0 where CAS values are off.
    pub(crate) fn cas(&self, cas: u64) -> u64 {
        if self.shared.settings.no_cas { 0 } else { cas }
    }

    /// A client's `exptime` as an expiry in Unix seconds.
    pub(crate) fn expiry(&self, exptime: i64) -> u32 {
        expiry(exptime, self.shard.now(), self.shared.started)
    }

    /// The worker that owns the key's shard, if it is another one.
    #[inline]
    pub(crate) fn other_worker(&self, key: &Key<'_>) -> Option<usize> {
        let worker = self.shared.deal.worker_of(key.hash);
        (worker != self.me).then_some(worker)
    }

    /// Takes a turn of heavy work; false if none is left in this round.
    pub(crate) fn take_heavy(&mut self) -> bool {
        let left = self.work.heavy.checked_sub(1);
        self.work.heavy = left.unwrap_or(0);
        self.stats.heavy_turns += u64::from(left.is_some());
        left.is_some()
    }
}

/// Limits on a session's work besides the requests of its turn, and the work that it did.
///
/// A turn is a number of requests. Some requests are more work than others, so they have additional
/// bounds:
/// - A key of a `get` counts as a request. So do [`BYTES_A_REQUEST`] bytes that are copied to join
///   values.
/// - A section of `stats`, or a part of a walk over all items, takes as long as many requests. Such
///   work is *heavy*: a worker does a few pieces of it in a round, however many connections ask for
///   it. The connections take turns.
#[derive(Debug, Default)]
pub struct Work {
    /// Heavy commands, or parts of them, that may still run in this round.
    pub heavy: usize,
    /// How many requests the running command counts for in addition.
    pub more: usize,
    /// A value for which there is no memory now is skipped instead of waiting.
    pub swallow: bool,
    /// The running command's place among the answers of its connection.
    pub lending: Lending,
    /// Answers for other workers take all the memory that they may. No read begins whose answer
    /// would be copied for another worker.
    pub no_copies: bool,
    /// When the round began, and the commands that waited for flash.
    pub waited: Waited,
    /// The sample of the looked-up keys.
    pub hot: HotKeys,
    /// Whether the running command has waited for flash.
    pub from_flash: bool,
    /// The number of the fill whose item the running command stores; 0: a client sent it.
    pub fill: u64,
    /// The reads of other shards' flash.
    pub afar: Afar,
    /// The most pieces of a large value that are read ahead.
    pub most_pieces: usize,
}

/// Whether an answer leaves as soon as it is ready. What it lends of a shard's memory is lent until
/// then (PIN-1 in `session/executor.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lending {
    /// Answers before it still wait.
    Early,
    #[default]
    Now,
    /// It has waited long for memory.
    Overdue,
}

/// This many bytes that are copied to join values count as one request.
pub const BYTES_A_REQUEST: usize = 64 << 10;

/// How much a session may have under way, depending on the total of all sessions. It is never
/// nothing, so no session has to wait for another's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// [`WINDOW`] replies that wait, [`QUEUE_BYTES`].
    #[default]
    Wide,
    Small,
    /// One answer.
    One,
}

impl Window {
    /// Most waiting replies, and the unsent bytes of answers at which parsing stops.
    pub(crate) fn limits(self) -> (usize, usize) {
        match self {
            Window::Wide => (WINDOW, QUEUE_BYTES),
            Window::Small => (SMALL_WINDOW, SMALL_QUEUE_BYTES),
            Window::One => (1, 1),
        }
    }

    /// Bytes of the largest value that an answer copies. A larger value is pinned and sent in
    /// place. A copy is faster to send, but a pin takes no memory when answers take much of it.
    pub(crate) fn copy_limit(self) -> u32 {
        match self {
            Window::Wide => 32 << 10,
            Window::Small => 4 << 10,
            Window::One => 1 << 10,
        }
    }
}
