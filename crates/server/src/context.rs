// SPDX-License-Identifier: Apache-2.0
//! The context of a session and its commands while they run: the shard and its devices, counters,
//! other shards, and limits on the work to do now.
//!
//! A worker makes a [`Ctx`] for each call of a session. The session hands it on to its commands.

use senko_cache::Shard;
use senko_io::Queue;

use crate::hot::HotKeys;
use crate::latency::Waited;
use crate::shared::{ConnEntry, Cursor, Shared, ThreadStats};

/// Most replies of a connection that wait at a time.
pub const WINDOW: usize = 64;
/// Unsent bytes of answers at which parsing stops.
pub const QUEUE_BYTES: usize = 256 << 10;
/// The same where answers take much memory.
const SMALL_WINDOW: usize = 16;
const SMALL_QUEUE_BYTES: usize = 16 << 10;

/// Sends commands to the workers of other shards.
pub trait Router {
    /// Sends bytes to the virtual connection that stands for connection `conn` at `shard`: a whole
    /// command, or the next part of its value. The order of calls is kept. Each command is answered
    /// with one unit.
    fn forward(&mut self, shard: usize, conn: u64, bytes: &[u8]);

    /// Gives back a pin of another shard, by its own number.
    fn unpin(&mut self, shard: usize, pin: u64);

    /// The rest of the value that was forwarded last for this connection will not come: its command
    /// is to be refused.
    fn give_up(&mut self, shard: usize, conn: u64);
}

/// The state that a session works with while it runs.
pub struct Ctx<'a, Q: Queue> {
    /// This worker's shard.
    pub shard: &'a mut Shard,
    /// Its devices.
    pub queue: &'a mut Q,
    /// What all workers see.
    pub shared: &'a Shared,
    /// This worker's counters.
    pub stats: &'a mut ThreadStats,
    /// How far this worker has followed requests for all.
    pub cursor: &'a mut Cursor,
    /// The way to other shards.
    pub router: &'a mut dyn Router,
    /// This worker's shard number.
    pub me: usize,
    /// The connection's number, below 2^48. A fetch's user number is this and 16 bits of the
    /// session's own.
    pub conn: u64,
    /// The client's socket, as watchers are told it.
    pub fd: u64,
    /// The connection's row in `stats conns`, if it has one.
    pub entry: Option<&'a ConnEntry>,
    /// How much the session may have under way.
    pub window: Window,
    /// Further work that the session may do now.
    pub work: &'a mut Work,
}

impl<Q: Queue> Ctx<'_, Q> {
    /// The CAS value that clients see: 0 where CAS values are off.
    pub(crate) fn cas(&self, cas: u64) -> u64 {
        if self.shared.settings.no_cas { 0 } else { cas }
    }
}

/// Limits on a session's work besides the requests of its turn, and the work done.
///
/// A turn is a number of requests. Some requests are more work than others, so they have their own
/// bounds:
/// - A key of a `get` counts as a request. So do [`BYTES_A_REQUEST`] bytes that are copied to join
///   values.
/// - A section of `stats`, or a part of a walk over all items, takes as long as many requests. Such
///   work is *heavy*: a worker does a few pieces of it in a round, however many connections ask for
///   it. The connections take turns.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Heavy commands, or parts of them, that may still run in this round.
    pub heavy: usize,
    /// The command that runs took as much as so many more.
    pub more: usize,
    /// A value for which there is no memory now is swallowed instead of waiting for some.
    pub swallow: bool,
    /// Answers for other workers take all the memory that there is for them: no read begins whose
    /// answer would be copied for one.
    pub no_copies: bool,
    /// When the round began, and the commands that had waited.
    pub waited: Waited,
    /// The sample of keys that are looked up.
    pub hot: HotKeys,
    /// The command that runs has what it waited for from flash.
    pub from_flash: bool,
}

/// Bytes that are copied to join values and count as one request.
pub const BYTES_A_REQUEST: usize = 64 << 10;

/// How much a session may have under way, by what all of them have. It is never nothing, so no
/// session waits for another's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// [`WINDOW`] replies that wait, [`QUEUE_BYTES`].
    #[default]
    Wide,
    /// Less.
    Small,
    /// One answer.
    One,
}

impl Window {
    /// The replies that may wait, and the unsent bytes of answers at which parsing stops.
    pub(crate) fn limits(self) -> (usize, usize) {
        match self {
            Window::Wide => (WINDOW, QUEUE_BYTES),
            Window::Small => (SMALL_WINDOW, SMALL_QUEUE_BYTES),
            Window::One => (1, 1),
        }
    }

    /// Bytes of the largest value that an answer copies. A larger one is sent from where it lies,
    /// pinned. A copy is faster to send, but where answers take much memory a pin takes none.
    pub(crate) fn copy_limit(self) -> u32 {
        match self {
            Window::Wide => 32 << 10,
            Window::Small => 4 << 10,
            Window::One => 1 << 10,
        }
    }
}
