// SPDX-License-Identifier: Apache-2.0
//! Sockets and files on one loop, one loop a thread.
//!
//! Completion-shaped on both backends: what was asked for comes back as an [`Event`]. Nothing here blocks but [`EventLoop::poll`].

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::{AlignedBuf, Completion, DeviceId, FlashFile, FramePool, Listener, PageBuf, Queue, Tag};

/// Which backend runs a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring.
    Uring,
    /// epoll, and pread/pwrite in a thread pool.
    Posix,
}

/// Which backend to use (`--io`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring where a probe finds all that is needed, else posix (the reason is in [`EventLoop::fallback_reason`]).
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
    /// Read frames: `(pages, count)` ascending; see [`FramePool::new`].
    pub frames: Vec<(usize, usize)>,
    /// Threads for disk operations in the posix backend.
    pub disk_threads: usize,
    /// Most connections; decides table sizes.
    pub max_connections: usize,
}

/// A listening socket's number within its loop.
pub type ListenerId = u32;

/// A connection's number within its loop; never reused in the life of a loop (slot index and generation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// Received bytes; `Deref<[u8]>`; the buffer returns to the loop on drop. Independent of any borrow of the loop.
#[derive(Debug)]
pub struct RecvBuf {}

/// A part of an answer, in sending order.
#[derive(Debug)]
pub enum Piece {
    /// A range of the batch's own [`SendBatch::bytes`].
    Bytes(Range<usize>),
    /// A range of a frame that was read from a device: paper B's transfer with no copy.
    Page(PageBuf, Range<usize>),
    /// Memory that the submitter keeps alive and unchanged until the batch comes back, named by `pin`.
    Pinned {
        /// Start.
        ptr: *const u8,
        /// Bytes.
        len: usize,
        /// The submitter's name for what it pinned.
        pin: u64,
    },
}

/// What one send carries; made once a connection, moved into the loop and back, so that a send allocates nothing.
#[derive(Debug, Default)]
pub struct SendBatch {
    /// Bytes that the batch owns.
    pub bytes: Vec<u8>,
    /// The parts in order. Empty means: all of `bytes`.
    pub pieces: Vec<Piece>,
    // private: iovec array, msghdr, bytes sent so far
}

impl SendBatch {
    /// Bytes to send in all.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Nothing to send.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// After a short [`SendMode::Try`]: drops what was sent, copies the rest into `bytes`, so that frames and pins are
    /// free; the pins that were released are pushed to `unpinned`.
    pub fn spill(&mut self, _sent: usize, _unpinned: &mut Vec<u64>) {
        todo!()
    }
    /// Empties the batch, keeping its capacity (at most 64 KiB of it); pins go to `unpinned`.
    pub fn clear(&mut self, _unpinned: &mut Vec<u64>) {
        todo!()
    }
}

/// How long a send may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// Takes what the socket's buffer takes now; the result may be short (0 if it is full).
    Try,
    /// Ends when all is sent, or with an error.
    Wait,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A connection was accepted (not yet receiving: [`EventLoop::adopt`] it, on this loop or another, or drop it).
    Accepted {
        /// On which listener.
        listener: ListenerId,
        /// The socket, non-blocking, TCP_NODELAY set.
        stream: OwnedFd,
    },
    /// Accepting failed (for example: out of file descriptors). The listener goes on after a pause of its own.
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
    /// The peer will send no more (`error` is `None`), or receiving failed. Comes once, after all data.
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
    /// [`Waker::wake`] was called at least once since the last such event.
    Woken,
}

/// Wakes a loop from any thread.
#[derive(Clone, Debug)]
pub struct Waker {}

impl Waker {
    /// Makes the loop's `poll` return with [`Event::Woken`].
    pub fn wake(&self) {
        todo!()
    }
}

/// One thread's loop. Not `Send`: make it on its thread.
pub struct EventLoop {}

impl EventLoop {
    /// A loop.
    ///
    /// # Errors
    /// When the forced backend is not to be had, or memory is short.
    pub fn new(_config: &LoopConfig) -> io::Result<EventLoop> {
        todo!()
    }
    /// The backend in use.
    pub fn backend(&self) -> Backend {
        todo!()
    }
    /// Why `Auto` fell back to posix, in one clause.
    pub fn fallback_reason(&self) -> Option<&str> {
        todo!()
    }
    /// Whether the frames are registered with the kernel (they are not where `RLIMIT_MEMLOCK` is too small, or on posix).
    pub fn frames_registered(&self) -> bool {
        todo!()
    }
    /// The pool that [`Queue::frame`] takes from.
    pub fn frames(&self) -> &FramePool {
        todo!()
    }
    /// Attaches a device; its operations are recorded by `file`'s recorder if it has one.
    pub fn attach(&mut self, _file: Arc<FlashFile>) -> DeviceId {
        todo!()
    }
    /// Starts accepting.
    pub fn listen(&mut self, _listener: &Listener) -> io::Result<ListenerId> {
        todo!()
    }
    /// Stops or restarts accepting on every listener (connection limit, draining).
    pub fn set_accepting(&mut self, _on: bool) {
        todo!()
    }
    /// Takes a connected, non-blocking socket and starts receiving.
    pub fn adopt(&mut self, _stream: OwnedFd) -> io::Result<ConnId> {
        todo!()
    }
    /// Stops (false) or restarts receiving; bytes already on the way may still come. Idempotent.
    pub fn set_receiving(&mut self, _conn: ConnId, _on: bool) {
        todo!()
    }
    /// Sends; one batch at a time a connection (programmer error otherwise). The batch comes back in [`Event::Sent`].
    pub fn send(&mut self, _conn: ConnId, _batch: Box<SendBatch>, _mode: SendMode) {
        todo!()
    }
    /// Closes at once; no `Received` or `Ended` comes for it after this call. A send in flight still comes back as
    /// [`Event::Sent`]. Closing a connection that is gone does nothing.
    pub fn close(&mut self, _conn: ConnId) {
        todo!()
    }
    /// A handle that wakes this loop.
    pub fn waker(&self) -> Waker {
        todo!()
    }
    /// Device operations submitted and not completed.
    pub fn disk_in_flight(&self) -> usize {
        todo!()
    }
    /// Submits what was asked, waits until something happened or `timeout` passed (`None`: no limit), and appends the
    /// events. A signal ends the wait early with `Ok`.
    pub fn poll(&mut self, _timeout: Option<Duration>, _events: &mut Vec<Event>) -> io::Result<()> {
        todo!()
    }
}

impl Queue for EventLoop {
    fn frame(&mut self, _pages: usize) -> Option<PageBuf> {
        todo!()
    }
    fn read(&mut self, _device: DeviceId, _page: u64, _pages: usize, _buf: PageBuf, _tag: Tag, _token: u64) {
        todo!()
    }
    fn write(
        &mut self,
        _device: DeviceId,
        _page: u64,
        _buf: Arc<AlignedBuf>,
        _first: usize,
        _pages: usize,
        _tag: Tag,
        _token: u64,
    ) {
        todo!()
    }
    fn flush(&mut self, _device: DeviceId, _tag: Tag, _token: u64) {
        todo!()
    }
    fn discard(&mut self, _device: DeviceId, _page: u64, _pages: u64, _tag: Tag, _token: u64) {
        todo!()
    }
}
