// SPDX-License-Identifier: Apache-2.0
//! The settings of a loop and its events: the types that `event_loop.rs` and both backends share.

use std::io;
use std::os::fd::OwnedFd;

use crate::{Completion, RecvBuf, SendBatch};

/// Which backend to use (`--io`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring if a probe finds everything that is needed, otherwise posix. The reason is in
    /// [`EventLoop::fallback_reason`](crate::EventLoop::fallback_reason).
    Auto,
    /// io_uring, or an error.
    Uring,
    /// posix.
    Posix,
}

/// Sizes of one loop, all fixed at start.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// The backend.
    pub backend: BackendChoice,
    /// Number of receive buffers; it and the size are powers of two.
    pub recv_buffers: usize,
    /// Bytes of a receive buffer.
    pub recv_buffer_bytes: usize,
    /// Read frames: `(pages, count)` ascending; see [`FramePool::new`](crate::FramePool::new).
    pub frames: Vec<(usize, usize)>,
    /// Threads for disk operations in the posix backend.
    pub disk_threads: usize,
    /// Most connections; this sets the sizes of tables.
    pub max_connections: usize,
}

/// A listening socket's number within its loop.
pub type ListenerId = u32;

/// A connection's number within its loop; it consists of slot index and generation, and is never
/// reused in the life of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// An event of a loop.
#[derive(Debug)]
pub enum Event {
    /// A connection was accepted. It receives nothing before
    /// [`EventLoop::adopt`](crate::EventLoop::adopt), on this loop or another.
    Accepted {
        /// The listener.
        listener: ListenerId,
        /// The socket, non-blocking, TCP_NODELAY set.
        stream: OwnedFd,
    },
    /// Accepting failed (for example: out of file descriptors). The listener continues on its own
    /// after a pause.
    AcceptFailed {
        /// The listener.
        listener: ListenerId,
        /// The error.
        error: io::Error,
    },
    /// Bytes were received.
    Received {
        /// The connection.
        conn: ConnId,
        /// The bytes.
        data: RecvBuf,
    },
    /// The peer will send no more (`error` is `None`), or receiving failed. It comes once, after
    /// all data.
    Ended {
        /// The connection.
        conn: ConnId,
        /// The error, if this is not an orderly end.
        error: Option<io::Error>,
    },
    /// A send ended, and its batch is returned.
    Sent {
        /// The connection.
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
