// SPDX-License-Identifier: Apache-2.0
//! The settings of a loop and its events: the types that `event_loop.rs` and both backends share.

use std::io;
use std::os::fd::OwnedFd;

use crate::{Completion, RecvBuf, SendBatch};

/// Which backend to use (`--io`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring where a probe finds all that is needed, else posix. The reason is in
    /// [`EventLoop::fallback_reason`](crate::EventLoop::fallback_reason).
    Auto,
    /// io_uring or an error.
    Uring,
    /// posix.
    Posix,
}

/// Sizes of one loop, all fixed at start.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// Which backend.
    pub backend: BackendChoice,
    /// Receive buffers: how many, and bytes each (both powers of two).
    pub recv_buffers: usize,
    /// Bytes of a receive buffer.
    pub recv_buffer_bytes: usize,
    /// Read frames: `(pages, count)` ascending; see [`FramePool::new`](crate::FramePool::new).
    pub frames: Vec<(usize, usize)>,
    /// Threads for disk operations in the posix backend.
    pub disk_threads: usize,
    /// Most connections; decides table sizes.
    pub max_connections: usize,
}

/// A listening socket's number within its loop.
pub type ListenerId = u32;

/// A connection's number within its loop; never reused in the life of a loop (slot index and
/// generation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A connection was accepted. It does not receive before
    /// [`EventLoop::adopt`](crate::EventLoop::adopt), on this loop or another.
    Accepted {
        /// On which listener.
        listener: ListenerId,
        /// The socket, non-blocking, TCP_NODELAY set.
        stream: OwnedFd,
    },
    /// Accepting failed (for example: out of file descriptors). The listener continues after its
    /// own pause.
    AcceptFailed {
        /// On which listener.
        listener: ListenerId,
        /// Why.
        error: io::Error,
    },
    /// Bytes came.
    Received {
        /// On which connection.
        conn: ConnId,
        /// The bytes.
        data: RecvBuf,
    },
    /// The peer will send no more (`error` is `None`), or receiving failed. Comes once, after all
    /// data.
    Ended {
        /// On which connection.
        conn: ConnId,
        /// Why, if not an orderly end.
        error: Option<io::Error>,
    },
    /// A send ended; the batch comes back.
    Sent {
        /// On which connection.
        conn: ConnId,
        /// The batch, unchanged.
        batch: Box<SendBatch>,
        /// Bytes sent.
        result: io::Result<usize>,
    },
    /// A device operation ended.
    Disk(Completion),
    /// [`Waker::wake`](crate::Waker::wake) was called at least once since the last such event.
    Woken,
}
