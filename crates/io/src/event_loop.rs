// SPDX-License-Identifier: Apache-2.0
//! Sockets and files on one event loop; each thread has its own loop.
//!
//! Both backends work with completions: each requested operation returns as an [`Event`]. Only
//! [`EventLoop::poll`] blocks. This file is the facade. It adds device operations to the table that
//! both backends use (`disk.rs`), and passes everything else to `uring.rs` or `posix.rs`.
//! `event.rs` has the types that all of them use.
//!
//! Always holds, on both backends:
//! - EVENT-1. Every device operation ends in exactly one [`Event::Disk`], and every send in exactly
//!   one [`Event::Sent`].
//! - EVENT-2. For a connection the order is `Received`*, then at most one `Ended`; neither comes
//!   after [`EventLoop::close`].
//! - EVENT-3. Memory passed to the loop is not freed, and a connection's descriptor is not closed,
//!   before the kernel is done with it. Dropping the loop waits for that.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Core, Request};
use crate::event::{BackendChoice, ConnId, Event, ListenerId, LoopConfig};
use crate::net;
use crate::posix::Posix;
use crate::uring::Uring;
use crate::{
    AlignedBuf, DeviceId, DeviceTimes, DiskStats, FlashFile, FramePool, Listener, Op, PageBuf,
    Queue, SendBatch, SendMode, Tag, Waker,
};

/// The backend of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring.
    Uring,
    /// epoll for sockets, and pread/pwrite in a thread pool.
    Posix,
}

/// The event loop of one thread. It is not `Send`: make it on its thread.
pub struct EventLoop {
    driver: Driver,
    core: Core,
    fallback: Option<String>,
}

/// The backend. There is one per loop, so the difference in size costs nothing.
#[allow(clippy::large_enum_variant)]
enum Driver {
    Uring(Uring),
    Posix(Posix),
}

/// Calls the same method on either backend.
macro_rules! on {
    ($self:ident, $driver:ident => $call:expr) => {
        match &mut $self.driver {
            Driver::Uring($driver) => $call,
            Driver::Posix($driver) => $call,
        }
    };
}

impl EventLoop {
    /// A loop.
    ///
    /// # Errors
    /// If the requested backend is not available, or memory is short.
    pub fn new(config: &LoopConfig) -> io::Result<EventLoop> {
        let core = Core::new(FramePool::try_new(&config.frames)?);
        let mut fallback = None;
        if config.backend != BackendChoice::Posix {
            match Uring::new(config, &core) {
                Ok(uring) => {
                    return Ok(EventLoop {
                        driver: Driver::Uring(uring),
                        core,
                        fallback,
                    });
                }
                Err(reason) if config.backend == BackendChoice::Uring => {
                    return Err(io::Error::new(
                        reason.kind(),
                        format!("io_uring is not available: {reason}"),
                    ));
                }
                Err(reason) => fallback = Some(reason.to_string()),
            }
        }
        let posix = Posix::new(config)?;
        Ok(EventLoop {
            driver: Driver::Posix(posix),
            core,
            fallback,
        })
    }

    /// The backend in use.
    pub fn backend(&self) -> Backend {
        match self.driver {
            Driver::Uring(_) => Backend::Uring,
            Driver::Posix(_) => Backend::Posix,
        }
    }

    /// Why `Auto` fell back to posix, as a clause.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Whether frames are registered with the kernel, as far as `RLIMIT_MEMLOCK` allows it (on
    /// posix none are). Registered frames are resident from the start.
    pub fn frames_registered(&self) -> bool {
        match &self.driver {
            Driver::Uring(uring) => uring.frames_registered(),
            Driver::Posix(_) => false,
        }
    }

    /// The pool from which [`Queue::frame`] takes frames.
    pub fn frames(&self) -> &FramePool {
        &self.core.frames
    }

    /// Counts of device operations by purpose since the loop was made.
    pub fn disk_stats(&self) -> DiskStats {
        self.core.stats.clone()
    }

    /// Durations of device operations since the loop was made, by device in the order of
    /// [`EventLoop::attach`].
    pub fn device_times(&self) -> &[DeviceTimes] {
        &self.core.times
    }

    /// Receive buffers that are free now.
    pub fn recv_buffers_free(&self) -> usize {
        match &self.driver {
            Driver::Uring(uring) => uring.recv_buffers_free(),
            Driver::Posix(posix) => posix.recv_buffers_free(),
        }
    }

    /// Attaches a device. If `file` has a recorder, it records the device's operations.
    ///
    /// # Panics
    /// If there are more than 65,536 devices.
    pub fn attach(&mut self, file: Arc<FlashFile>) -> DeviceId {
        let device =
            DeviceId::try_from(self.core.devices.len()).expect("device numbers have 16 bits");
        if let Driver::Uring(uring) = &mut self.driver {
            uring.attach(device, &file);
        }
        self.core.devices.push(file);
        self.core.times.push(DeviceTimes::default());
        device
    }

    /// Starts accepting.
    ///
    /// # Errors
    /// If the system refuses to watch the socket.
    pub fn listen(&mut self, listener: &Listener) -> io::Result<ListenerId> {
        on!(self, driver => driver.listen(listener))
    }

    /// Stops or restarts accepting on every listener (connection limit, draining). Connections
    /// already on the way may still come.
    pub fn set_accepting(&mut self, on: bool) {
        on!(self, driver => driver.set_accepting(on));
    }

    /// Takes a connected, non-blocking socket and starts receiving.
    ///
    /// # Errors
    /// If [`LoopConfig::max_connections`] are open on this loop, or the system refuses to watch the
    /// socket.
    pub fn adopt(&mut self, stream: OwnedFd) -> io::Result<ConnId> {
        on!(self, driver => driver.adopt(stream))
    }

    /// Stops (false) or restarts receiving; bytes already on the way may still come. Idempotent.
    pub fn set_receiving(&mut self, conn: ConnId, on: bool) {
        on!(self, driver => driver.set_receiving(conn, on));
    }

    /// Sets the most bytes that later receives take; `None`: a whole buffer. It is for an owner
    /// that has enough work. Receives under way are not affected.
    pub fn limit_receives(&mut self, most: Option<usize>) {
        on!(self, driver => driver.limit_receives(most));
    }

    /// Stops reading from the peer. Bytes that the kernel has already received still come, and then
    /// [`Event::Ended`], as if the peer had sent no more. It does nothing for a closed connection.
    pub fn end_input(&mut self, conn: ConnId) {
        let fd = on!(self, driver => driver.socket(conn));
        if let Some(fd) = fd {
            net::end_input(fd);
        }
    }

    /// Sends a batch. A connection has one batch at a time. The batch comes back in
    /// [`Event::Sent`]; for a closed connection, with an error.
    ///
    /// # Panics
    /// If the connection's last batch has not come back.
    pub fn send(&mut self, conn: ConnId, batch: Box<SendBatch>, mode: SendMode) {
        on!(self, driver => driver.send(&mut self.core, conn, batch, mode));
    }

    /// The descriptor of a connection's socket, for another loop to send on
    /// ([`EventLoop::send_for`]); `None` if the connection is closed, and on posix.
    pub fn descriptor(&mut self, conn: ConnId) -> Option<RawFd> {
        match &mut self.driver {
            Driver::Uring(uring) => uring.socket(conn),
            Driver::Posix(_) => None,
        }
    }

    /// Sends as much as the socket's buffer takes ([`SendMode::Try`]) on a connection of another
    /// loop. That loop must neither send on it nor close it before the batch has come back. The
    /// batch comes back once, in [`Event::Sent`], with the number that this call returns.
    ///
    /// # Errors
    /// Returns the batch if it is empty, if this loop has its most connections, and on posix.
    pub fn send_for(
        &mut self,
        socket: RawFd,
        batch: Box<SendBatch>,
    ) -> Result<ConnId, Box<SendBatch>> {
        match &mut self.driver {
            Driver::Uring(uring) => uring.send_for(socket, batch),
            Driver::Posix(_) => Err(batch),
        }
    }

    /// Keeps the connection's socket open when the loop is dropped, because another loop may still
    /// send on it.
    pub fn leave_open(&mut self, conn: ConnId) {
        if let Driver::Uring(uring) = &mut self.driver {
            uring.leave_open(conn);
        }
    }

    /// Closes at once; no `Received` or `Ended` comes for it after this call. A send in flight
    /// still comes back as [`Event::Sent`]. It does nothing for a closed connection.
    ///
    /// Bytes of earlier sends are still sent, as far as the socket's buffer accepts them.
    pub fn close(&mut self, conn: ConnId) {
        on!(self, driver => driver.close(&mut self.core, conn));
    }

    /// A handle that wakes this loop.
    pub fn waker(&self) -> Waker {
        match &self.driver {
            Driver::Uring(uring) => uring.waker(),
            Driver::Posix(posix) => posix.waker(),
        }
    }

    /// Device operations submitted and not completed.
    pub fn disk_in_flight(&self) -> usize {
        self.core.in_flight
    }

    /// Lets completions gather. If `poll` has to wait, it waits for `completions` of them, but not
    /// longer than `wait` after the first one. Sends submitted by the same call do not count. One
    /// wake-up then serves several: for a client with many requests under way, not for a server. It
    /// has no effect on posix and on kernels before 6.12. 0 or 1 turns it off.
    pub fn set_gather(&mut self, completions: usize, wait: Duration) {
        if let Driver::Uring(uring) = &mut self.driver {
            uring.set_gather(completions, wait);
        }
    }

    /// If `poll` has to wait while device reads are under way, it polls for completions for at most
    /// `limit` before it sleeps. It does so as long as polling usually succeeds, since a device may
    /// answer faster than a sleeping processor wakes up. Zero, the default, turns it off. It has no
    /// effect on posix.
    pub fn set_spin(&mut self, limit: Duration) {
        if let Driver::Uring(uring) = &mut self.driver {
            uring.set_spin(limit);
        }
    }

    /// Submits the requested operations, waits until something happened or `timeout` passed, and
    /// appends the events. `None` means no limit. If only the loop's internal work interrupts the
    /// wait, it may last up to twice the timeout. A signal ends the wait early with `Ok`.
    ///
    /// # Errors
    /// Only if the loop itself is broken (a programmer error, or a kernel that refuses to
    /// continue).
    pub fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if !self.core.held.is_empty() {
            for index in self.core.released() {
                on!(self, driver => driver.submit_disk(&self.core, index));
            }
        }
        self.core.begin_poll();
        on!(self, driver => driver.poll(&mut self.core, timeout, events))
    }

    fn submit(
        &mut self,
        request: &Request,
        frame: Option<PageBuf>,
        source: Option<(Arc<AlignedBuf>, usize)>,
    ) {
        if let Some(index) = self.core.begin(request, frame, source) {
            on!(self, driver => driver.submit_disk(&self.core, index));
        }
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        on!(self, driver => driver.shut_down(&mut self.core));
    }
}

impl Queue for EventLoop {
    fn frame(&mut self, pages: usize) -> Option<PageBuf> {
        self.core.frames.take(pages)
    }

    fn read(
        &mut self,
        device: DeviceId,
        page: u64,
        pages: usize,
        buf: PageBuf,
        tag: Tag,
        token: u64,
    ) {
        let request = Request {
            op: Op::Read,
            device,
            page,
            pages: pages as u64,
            tag,
            token,
        };
        self.submit(&request, Some(buf), None);
    }

    fn write(
        &mut self,
        device: DeviceId,
        page: u64,
        buf: Arc<AlignedBuf>,
        first: usize,
        pages: usize,
        tag: Tag,
        token: u64,
    ) {
        let request = Request {
            op: Op::Write,
            device,
            page,
            pages: pages as u64,
            tag,
            token,
        };
        self.submit(&request, None, Some((buf, first)));
    }

    fn flush(&mut self, device: DeviceId, tag: Tag, token: u64) {
        let request = Request {
            op: Op::Flush,
            device,
            page: 0,
            pages: 0,
            tag,
            token,
        };
        self.submit(&request, None, None);
    }

    fn discard(&mut self, device: DeviceId, page: u64, pages: u64, tag: Tag, token: u64) {
        let request = Request {
            op: Op::Discard,
            device,
            page,
            pages,
            tag,
            token,
        };
        self.submit(&request, None, None);
    }
}
