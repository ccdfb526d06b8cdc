// SPDX-License-Identifier: Apache-2.0
//! Backend posix: epoll for sockets, a pool of threads for files. For kernels and containers
//! without io_uring.
//!
//! Sockets are watched edge-triggered for both directions from the start, so a connection costs one
//! `epoll_ctl` in its life. A connection that may have bytes waits in `readable` until all of them
//! were read. Each round reads at most a few buffers from each connection, so that a fast sender
//! cannot starve the others. While no receive buffer is free, nothing is read. Sends are tried at
//! once; a [`SendMode::Wait`] continues with the rest at the next writable edge.
//!
//! Invariant POSIX-1: a connection that is receiving, has not ended and has `readable` set is in
//! the queue exactly once.

mod pool;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::conns::Conns;
use crate::disk::Core;
use crate::file::RawOp;
use crate::recv::RecvPool;
use crate::send::Sending;
use crate::{ConnId, Event, Listener, ListenerId, LoopConfig, SendBatch, SendMode, Waker};
use pool::{Job, Pool};

/// Most bytes that one connection may receive in one round, and its least number of buffers.
const ROUND_BYTES: usize = 64 << 10;
/// Connections that one listener may accept in one round.
const ROUND_ACCEPTS: usize = 64;
/// How long a listener pauses after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long `shut_down` waits for device operations before it leaks their memory.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// Most events of one wait.
const MOST_EVENTS: usize = 1024;

/// The kind of a watched descriptor, in the top byte of its epoll data; the rest is a slot or
/// index.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Kind {
    Conn = 1,
    Listener = 2,
    Wake = 3,
    Disk = 4,
}

struct Conn {
    fd: OwnedFd,
    receiving: bool,
    /// Whether there may be bytes, or the end.
    readable: bool,
    /// Whether the peer ended or an error is pending: then a short receive does not mean that the
    /// socket is empty.
    hung_up: bool,
    queued: bool,
    ended: bool,
    sending: Option<Sending>,
}

struct Acceptor {
    listener: Listener,
    watched: bool,
    paused_until: Option<Instant>,
}

/// The backend.
pub(crate) struct Posix {
    epoll: OwnedFd,
    found: Vec<libc::epoll_event>,
    recv: Rc<RecvPool>,
    conns: Conns<Conn>,
    acceptors: Vec<Acceptor>,
    accepting: bool,
    /// Whether a listener pauses; used only then.
    pausing: bool,
    readable: VecDeque<ConnId>,
    /// Most bytes of a receive, if they are limited.
    receive_most: Option<usize>,
    waker: Waker,
    disk_bell: Waker,
    pool: Pool,
    /// Device operations that the next round passes to the pool.
    jobs: Vec<Job>,
    results: Vec<(u32, i32)>,
}

impl Posix {
    pub(crate) fn new(config: &LoopConfig) -> io::Result<Posix> {
        // SAFETY: makes a new descriptor and touches nothing else.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let disk_bell = Waker::new(libc::EFD_NONBLOCK)?;
        let posix = Posix {
            epoll,
            found: vec![libc::epoll_event { events: 0, u64: 0 }; MOST_EVENTS],
            recv: RecvPool::stack(config.recv_buffers, config.recv_buffer_bytes)?,
            conns: Conns::new(config.max_connections),
            acceptors: Vec::new(),
            accepting: true,
            pausing: false,
            readable: VecDeque::new(),
            receive_most: None,
            waker: Waker::new(libc::EFD_NONBLOCK)?,
            pool: Pool::new(config.disk_threads.max(1), disk_bell.clone())?,
            disk_bell,
            jobs: Vec::with_capacity(1024),
            results: Vec::with_capacity(1024),
        };
        let readable = libc::EPOLLIN as u32;
        posix.watch(
            libc::EPOLL_CTL_ADD,
            posix.waker.fd(),
            readable,
            Kind::Wake,
            0,
        )?;
        posix.watch(
            libc::EPOLL_CTL_ADD,
            posix.disk_bell.fd(),
            readable,
            Kind::Disk,
            0,
        )?;
        Ok(posix)
    }

    fn watch(
        &self,
        how: libc::c_int,
        fd: RawFd,
        events: u32,
        kind: Kind,
        index: u32,
    ) -> io::Result<()> {
        let data = (kind as u64) << 56 | u64::from(index);
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: the kernel reads one event, which lives on this stack.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), how, fd, &mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    pub(crate) fn recv_buffers_free(&self) -> usize {
        self.recv.available()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    // Accepting.

    pub(crate) fn listen(&mut self, listener: &Listener) -> io::Result<ListenerId> {
        let id = self.acceptors.len() as ListenerId;
        let listener = listener.clone();
        self.acceptors.push(Acceptor {
            listener,
            watched: false,
            paused_until: None,
        });
        if let Err(error) = self.watch_listener(id) {
            self.acceptors.pop();
            return Err(error);
        }
        Ok(id)
    }

    fn watch_listener(&mut self, id: ListenerId) -> io::Result<()> {
        let acceptor = &self.acceptors[id as usize];
        if !self.accepting || acceptor.watched || acceptor.paused_until.is_some() {
            return Ok(());
        }
        // Exclusive: one loop is woken for a connection, not all that share the listener.
        let events = (libc::EPOLLIN | libc::EPOLLEXCLUSIVE) as u32;
        self.watch(
            libc::EPOLL_CTL_ADD,
            acceptor.listener.fd(),
            events,
            Kind::Listener,
            id,
        )?;
        self.acceptors[id as usize].watched = true;
        Ok(())
    }

    fn unwatch_listener(&mut self, id: ListenerId) {
        let acceptor = &mut self.acceptors[id as usize];
        if std::mem::take(&mut acceptor.watched) {
            let fd = acceptor.listener.fd();
            // The descriptor is watched already, so this cannot fail.
            let _ = self.watch(libc::EPOLL_CTL_DEL, fd, 0, Kind::Listener, id);
        }
    }

    /// Watches a listener again. If the system refuses (it may be short of memory), it tries again
    /// later.
    fn rewatch_listener(&mut self, id: ListenerId) {
        if self.watch_listener(id).is_err() {
            self.acceptors[id as usize].paused_until = Some(Instant::now() + ACCEPT_PAUSE);
            self.pausing = true;
        }
    }

    pub(crate) fn set_accepting(&mut self, on: bool) {
        self.accepting = on;
        for id in 0..self.acceptors.len() as ListenerId {
            if on {
                self.rewatch_listener(id);
            } else {
                self.unwatch_listener(id);
            }
        }
    }

    fn on_acceptable(&mut self, id: ListenerId, events: &mut Vec<Event>) {
        let fd = self.acceptors[id as usize].listener.fd();
        for _ in 0..ROUND_ACCEPTS {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: no address is requested, so the kernel writes nothing.
            let stream =
                unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), flags) };
            if stream >= 0 {
                // SAFETY: the descriptor is new and owned by nobody else.
                let stream = unsafe { OwnedFd::from_raw_fd(stream) };
                events.push(Event::Accepted {
                    listener: id,
                    stream,
                });
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return,
                Some(libc::EINTR | libc::ECONNABORTED) => {}
                _ => {
                    events.push(Event::AcceptFailed {
                        listener: id,
                        error,
                    });
                    self.unwatch_listener(id);
                    self.acceptors[id as usize].paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    self.pausing = true;
                    return;
                }
            }
        }
    }

    /// Ends the pauses that are over; returns the time until the next one's end.
    fn resume_accepting(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let mut next: Option<Duration> = None;
        for id in 0..self.acceptors.len() as ListenerId {
            let acceptor = &mut self.acceptors[id as usize];
            let Some(until) = acceptor.paused_until else {
                continue;
            };
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                acceptor.paused_until = None;
                self.rewatch_listener(id);
            } else {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        self.pausing = self
            .acceptors
            .iter()
            .any(|acceptor| acceptor.paused_until.is_some());
        next
    }

    // Connections.

    pub(crate) fn socket(&mut self, conn: ConnId) -> Option<RawFd> {
        self.conns.get(conn).map(|state| state.fd.as_raw_fd())
    }

    pub(crate) fn adopt(&mut self, stream: OwnedFd) -> io::Result<ConnId> {
        let fd = stream.as_raw_fd();
        let conn = self.conns.insert(Conn {
            fd: stream,
            receiving: true,
            readable: false,
            hung_up: false,
            queued: false,
            ended: false,
            sending: None,
        })?;
        let events = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
        if let Err(error) = self.watch(libc::EPOLL_CTL_ADD, fd, events, Kind::Conn, conn.0 as u32) {
            self.conns.closing();
            self.conns.remove(conn);
            return Err(error);
        }
        Ok(conn)
    }

    /// Upholds POSIX-1.
    fn queue(&mut self, conn: ConnId) {
        if let Some(state) = self.conns.get(conn)
            && state.readable
            && state.receiving
            && !state.ended
            && !state.queued
        {
            state.queued = true;
            self.readable.push_back(conn);
        }
    }

    /// See [`crate::EventLoop::limit_receives`].
    pub(crate) fn limit_receives(&mut self, most: Option<usize>) {
        self.receive_most = most;
    }

    pub(crate) fn set_receiving(&mut self, conn: ConnId, on: bool) {
        if let Some(state) = self.conns.get(conn) {
            state.receiving = on;
            self.queue(conn);
        }
    }

    fn on_conn(&mut self, index: u32, found: u32, events: &mut Vec<Event>) {
        let Some((conn, state)) = self.conns.at(index) else {
            return;
        };
        let end = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
        if found & end != 0 {
            state.hung_up = true;
        }
        if found & (libc::EPOLLIN as u32 | end) != 0 {
            state.readable = true;
            self.queue(conn);
        }
        if found & (libc::EPOLLOUT as u32 | end) != 0 {
            self.go_on_sending(conn, events);
        }
    }

    /// Reads from every connection that may have bytes, as far as buffers and the round's limit
    /// allow.
    fn receive(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.readable.len() {
            if self.recv.available() == 0 {
                return;
            }
            let Some(conn) = self.readable.pop_front() else {
                return;
            };
            let Some(state) = self.conns.get(conn) else {
                continue;
            };
            state.queued = false;
            if state.receiving {
                receive_from(conn, state, &self.recv, self.receive_most, events);
                self.queue(conn);
            }
        }
    }

    pub(crate) fn send(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        batch: Box<SendBatch>,
        mode: SendMode,
    ) {
        let Some(state) = self.conns.get(conn) else {
            let result = Err(io::Error::from_raw_os_error(libc::ENOTCONN));
            core.ready.push(Event::Sent {
                conn,
                batch,
                result,
            });
            return;
        };
        assert!(state.sending.is_none(), "one batch at a time a connection");
        if batch.is_empty() {
            core.ready.push(Event::Sent {
                conn,
                batch,
                result: Ok(0),
            });
            return;
        }
        state.sending = Some(Sending::new(batch, mode));
        self.go_on_sending(conn, &mut core.ready);
    }

    fn go_on_sending(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        let Some(state) = self.conns.get(conn) else {
            return;
        };
        let Some(sending) = &mut state.sending else {
            return;
        };
        let result = loop {
            let done = send_once(state.fd.as_raw_fd(), &mut sending.batch);
            if -done == libc::EAGAIN && sending.mode == SendMode::Wait {
                return; // A writable edge follows.
            }
            if let Some(result) = sending.advance(done) {
                break result;
            }
        };
        if let Some(Sending { batch, .. }) = state.sending.take() {
            events.push(Event::Sent {
                conn,
                batch,
                result,
            });
        }
    }

    pub(crate) fn close(&mut self, core: &mut Core, conn: ConnId) {
        // Every system call on the descriptor has returned, so the slot is free at once.
        let Some(state) = self.conns.remove(conn) else {
            return;
        };
        self.conns.closing();
        if let Some(Sending { batch, .. }) = state.sending {
            let result = Err(io::Error::from_raw_os_error(libc::ECANCELED));
            core.ready.push(Event::Sent {
                conn,
                batch,
                result,
            });
        }
    }

    // Devices.

    pub(crate) fn submit_disk(&mut self, core: &Core, index: u32) {
        let op = &core.ops[index as usize];
        let op = RawOp::of(&core.devices[op.device as usize], op.op, op.rest());
        self.jobs.push(Job { index, op });
    }

    fn on_disk(&mut self, core: &mut Core, events: &mut Vec<Event>) {
        let mut results = std::mem::take(&mut self.results);
        self.pool.take_done(&mut results);
        for (index, result) in results.drain(..) {
            match core.finish(index, result) {
                Some(completion) => events.push(Event::Disk(completion)),
                None => self.submit_disk(core, index),
            }
        }
        self.results = results;
    }

    // The round.

    pub(crate) fn poll(
        &mut self,
        core: &mut Core,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let before = events.len();
        let started = timeout
            .filter(|timeout| !timeout.is_zero())
            .map(|_| Instant::now());
        let mut left = timeout;
        loop {
            // Events that are already known happened before any event from the kernel.
            events.append(&mut core.ready);
            self.pool.submit(&mut self.jobs);
            let mut wait = left;
            if self.pausing
                && let Some(resume) = self.resume_accepting()
            {
                wait = Some(wait.map_or(resume, |wait| wait.min(resume)));
            }
            let can_receive = !self.readable.is_empty() && self.recv.available() > 0;
            if can_receive || events.len() > before {
                wait = Some(Duration::ZERO);
            }
            let (found, waited) = self.wait(wait)?;
            for nth in 0..found {
                let libc::epoll_event {
                    events: flags,
                    u64: data,
                } = self.found[nth];
                let index = data as u32;
                match data >> 56 {
                    kind if kind == Kind::Conn as u64 => self.on_conn(index, flags, events),
                    kind if kind == Kind::Disk as u64 => self.disk_bell.drain(),
                    kind if kind == Kind::Listener as u64 => self.on_acceptable(index, events),
                    _ => self.waker.drain(),
                }
            }
            if self.disk_bell.lower() {
                self.on_disk(core, events);
            }
            if self.waker.lower() {
                events.push(Event::Woken);
            }
            self.receive(events);
            if events.len() > before || (found == 0 && waited && !can_receive) {
                return Ok(());
            }
            // Only writable edges or an empty socket came: wait for the rest of the time.
            match (timeout, started) {
                (None, _) => {}
                (Some(timeout), Some(started)) if started.elapsed() < timeout => {
                    left = Some(timeout - started.elapsed().min(timeout));
                }
                _ => return Ok(()),
            }
        }
    }

    /// Waits for events. Returns how many came (0 also after a signal), and whether the whole time
    /// passed without a wake-up.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<(usize, bool)> {
        const NOT: Option<Duration> = Some(Duration::ZERO);
        let waits = timeout == NOT || (self.waker.sleep() && self.disk_bell.sleep());
        let timeout = if waits { timeout } else { NOT };
        // Rounded up, so that a wait of less than a millisecond is not a spin.
        let millis = timeout.map_or(-1, |timeout| {
            timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as libc::c_int
        });
        let most = self.found.len() as libc::c_int;
        // SAFETY: the kernel writes at most `most` events to the array.
        let found = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.found.as_mut_ptr(),
                most,
                millis,
            )
        };
        if found >= 0 {
            return Ok((found as usize, waits));
        }
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted {
            Ok((0, true))
        } else {
            Err(error)
        }
    }

    /// Ends the device operations and closes everything. If a device does not release one within
    /// [`LAST_WAIT`], the memory is leaked.
    pub(crate) fn shut_down(&mut self, core: &mut Core) {
        self.pool.submit(&mut self.jobs);
        if !self.pool.finish(LAST_WAIT) {
            core.leak();
        }
    }
}

/// Receives from one connection until it is empty or has had its share.
fn receive_from(
    conn: ConnId,
    state: &mut Conn,
    pool: &Rc<RecvPool>,
    most: Option<usize>,
    events: &mut Vec<Event>,
) {
    let mut share = match most {
        Some(_) => 1,
        None => ROUND_BYTES.div_ceil(pool.buffer_bytes()),
    };
    while share > 0 {
        let Some(mut data) = pool.take() else { return };
        let space = data.space();
        let most = most.map_or(space.len(), |most| most.clamp(1, space.len()));
        let space = &mut space[..most];
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe {
            libc::recv(
                state.fd.as_raw_fd(),
                space.as_mut_ptr().cast(),
                space.len(),
                libc::MSG_DONTWAIT,
            )
        };
        match got {
            1.. => {
                let full = got as usize == most;
                data.set_len(got as usize);
                events.push(Event::Received { conn, data });
                share -= 1;
                if !full && !state.hung_up {
                    // The socket is empty. Bytes that arrive from now on cause a new edge.
                    state.readable = false;
                    return;
                }
            }
            0 => {
                state.ended = true;
                events.push(Event::Ended { conn, error: None });
                return;
            }
            _ => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => {
                        state.readable = false;
                        return;
                    }
                    _ => {
                        state.ended = true;
                        events.push(Event::Ended {
                            conn,
                            error: Some(error),
                        });
                        return;
                    }
                }
            }
        }
    }
}

/// Sends with one system call; returns bytes, or a negative error number.
fn send_once(fd: RawFd, batch: &mut SendBatch) -> i32 {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the ranges were laid out from the batch, which is borrowed for the whole call.
    let done = unsafe {
        match batch.single() {
            Some((start, bytes)) => libc::send(fd, start.cast(), bytes as usize, flags),
            None => libc::sendmsg(fd, batch.header(), flags),
        }
    };
    if done < 0 {
        return -io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
    }
    done as i32
}
