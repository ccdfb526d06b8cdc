// SPDX-License-Identifier: Apache-2.0
//! Backend uring: sockets and files on one ring, with one `io_uring_enter` per round.
//!
//! Accepting and receiving are multishot: armed once, they complete repeatedly. For each receive
//! the kernel takes a buffer from the ring of free ones. A receive stops when it is cancelled, when
//! the peer ends, or when no buffer is free. In the last case the connection waits in `starved`. As
//! buffers return, connections are armed again, first come first served. From a sender that does
//! not stop, a multishot receive takes up to 32 buffers in a row. After a receive that filled its
//! buffer or found none, or was stopped by its handler, the connection is received one buffer at a
//! time. It waits in `streaming` until the last one was handled, so a handler without a place for
//! more stops the sender at once. That ends when [`SHORT_RECEIVES`] have been short.
//!
//! A receive's states, and the functions on the edges:
//!
//! ```text
//!          adopt, set_receiving(true)            set_receiving(false), close
//!   idle ----------------------------> armed ------------------------------> armed, cancelling
//!    ^  ^                              |  |  \                                       |
//!    |  |     on_recv: no buffer       |  |   \ on_recv: end or error                |
//!    |  |  starved <-------------------+  |    +--> ended                            |
//!    |  |     +--> armed: rearm_starved   +-- on_recv: "more" is absent: armed again, |
//!    |  |                                      by the next poll if it is streaming     |
//!    |  +-------------------------------------------- on_recv: cancelled ------------+
//! ```
//!
//! Invariants: URING-1. A connection's slot is freed, and its descriptor closed, when it is closing
//! and none of its operations is in flight. A descriptor of another loop is in a slot for one send,
//! and stays open. URING-2. Every submission ends in one completion without "more"; `shut_down`
//! waits for all.

mod accept; // accepting
mod disk; // device operations
mod limit; // RLIMIT_MEMLOCK
mod ring; // the ring itself: made, probed, fed and entered
mod spin; // polling for the end of a read before sleeping
mod submit; // entries of the submission queue

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use crate::conns::Conns;
use crate::disk::Core;
use crate::recv::RecvPool;
use crate::send::Sending;
use crate::{ConnId, Event, LoopConfig, SendBatch, SendMode, Waker, net};
use accept::Acceptor;
use disk::REGISTERED_DEVICES;
use ring::{BUFFER_GROUP, Done, Ring};
use submit::Kind;

/// How long `shut_down` waits for the kernel before it leaks the memory in flight.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// Most reads under way with which a wait polls for their end before it sleeps. With more reads, it
/// is better to let some completions gather: one wake-up then serves several.
const SPIN_READS: usize = 2;
/// Receives of a quarter of a buffer or less after which a connection no longer sends much. A
/// client that stores large values one by one has a short one at the end of each.
const SHORT_RECEIVES: u8 = 16;
/// Submission queue entries.
const SUBMISSIONS: u32 = 1024;

struct Conn {
    fd: RawFd,
    /// Operations in flight: a receive, a send.
    ops: u8,
    armed: bool,
    cancelling: bool,
    receiving: bool,
    /// It sends much, until so many receives have been short: one buffer per receive.
    streams: u8,
    starved: bool,
    ended: bool,
    closing: bool,
    /// Whether the descriptor belongs to another loop, or another loop may use it: it is not closed
    /// here.
    borrowed: bool,
    sending: Option<Sending>,
}

impl Conn {
    fn new(fd: RawFd) -> Conn {
        Conn {
            fd,
            ops: 0,
            armed: false,
            cancelling: false,
            receiving: true,
            streams: 0,
            starved: false,
            ended: false,
            closing: false,
            borrowed: false,
            sending: None,
        }
    }
}

/// The backend.
pub(crate) struct Uring {
    ring: Ring,
    recv: Rc<RecvPool>,
    conns: Conns<Conn>,
    acceptors: Vec<Acceptor>,
    accepting: bool,
    /// Whether a listener pauses; used only then.
    pausing: bool,
    starved: VecDeque<ConnId>,
    /// Connections that bring much, to be armed once their last bytes were handled.
    streaming: Vec<ConnId>,
    /// Bytes of a receive of one buffer.
    receive_most: usize,
    waker: Waker,
    /// Bytes of frames that are registered, from the first on.
    registered: usize,
    /// Devices 0..n are in the ring's table of files.
    files_registered: Vec<bool>,
    files_table: bool,
    done: Vec<Done>,
}

impl Uring {
    /// A ring with everything registered that can be; the error says what is missing.
    pub(crate) fn new(config: &LoopConfig, core: &Core) -> io::Result<Uring> {
        let completions = (config.max_connections.saturating_mul(2) + 1024)
            .next_power_of_two()
            .clamp(4096, 1 << 16);
        let ring = Ring::new(SUBMISSIONS, completions as u32)?;
        let recv = RecvPool::ring(config.recv_buffers, config.recv_buffer_bytes)?;
        ring.register_buffers(&recv)?;
        let files_table = ring
            .submitter()
            .register_files_sparse(REGISTERED_DEVICES)
            .is_ok();
        let mut uring = Uring {
            ring,
            recv,
            conns: Conns::new(config.max_connections),
            acceptors: Vec::new(),
            accepting: true,
            pausing: false,
            starved: VecDeque::new(),
            streaming: Vec::new(),
            receive_most: config.recv_buffer_bytes,
            waker: Waker::new(0)?,
            registered: 0,
            files_registered: Vec::new(),
            files_table,
            done: Vec::with_capacity(1024),
        };
        uring.try_multishot()?;
        uring.registered = uring.register_frames(&core.frames);
        uring.arm_waker();
        Ok(uring)
    }

    /// Receives one byte from a socket pair as the loop would, to see that it works here.
    fn try_multishot(&mut self) -> io::Result<()> {
        use std::io::Write;
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
        theirs.write_all(b"x")?;
        drop(theirs);
        let entry = opcode::RecvMulti::new(Fd(ours.as_raw_fd()), BUFFER_GROUP).build();
        // SAFETY: the receive ends (the peer is gone) before `ours` is closed, below.
        unsafe { self.ring.push(entry) };
        let mut received = false;
        let mut done = Vec::new();
        while self.ring.in_flight > 0 {
            self.ring.submit_and_wait(Some(Duration::from_secs(1)))?;
            done.clear();
            self.ring.reap(&mut done);
            for entry in &done {
                let buffer = cqueue::buffer_select(entry.flags);
                let bytes = entry.result.max(0) as usize;
                received |= bytes == 1 && buffer.is_some();
                if let Some(id) = buffer {
                    drop(self.recv.filled(id, bytes));
                }
            }
            if done.is_empty() {
                break;
            }
        }
        if received && self.ring.in_flight == 0 {
            return Ok(());
        }
        // The receive may still be in flight. Leaking the buffers keeps them valid.
        self.recv.leak();
        let text =
            "multishot receive into a buffer ring does not work (kernel 6.1 or newer is needed)";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    pub(crate) fn frames_registered(&self) -> bool {
        self.registered > 0
    }

    pub(crate) fn set_gather(&mut self, completions: usize, wait: Duration) {
        self.ring.set_gather(completions, wait);
    }

    pub(crate) fn set_spin(&mut self, limit: Duration) {
        self.ring.set_spin(limit);
    }

    pub(crate) fn recv_buffers_free(&self) -> usize {
        self.recv.available()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn arm_waker(&mut self) {
        // Arms a poll of the event descriptor, which completes at every write to it. Nobody reads
        // its counter, which cannot overflow.
        let entry = opcode::PollAdd::new(Fd(self.waker.fd()), libc::POLLIN as u32)
            .multi(true)
            .build();
        self.push(entry, Kind::Wake, 0);
    }

    // Connections.

    pub(crate) fn adopt(&mut self, stream: OwnedFd) -> io::Result<ConnId> {
        let conn = self.conns.insert(Conn::new(stream.as_raw_fd()))?;
        // From here on the slot owns the descriptor and closes it through the ring.
        let _ = stream.into_raw_fd();
        self.arm_recv(conn);
        Ok(conn)
    }

    pub(crate) fn socket(&mut self, conn: ConnId) -> Option<RawFd> {
        let state = self.conns.get(conn)?;
        (!state.closing).then_some(state.fd)
    }

    pub(crate) fn leave_open(&mut self, conn: ConnId) {
        if let Some(state) = self.conns.get(conn) {
            state.borrowed = true;
        }
    }

    /// See [`crate::EventLoop::send_for`].
    pub(crate) fn send_for(
        &mut self,
        fd: RawFd,
        batch: Box<SendBatch>,
    ) -> Result<ConnId, Box<SendBatch>> {
        if batch.is_empty() {
            return Err(batch);
        }
        let state = Conn {
            receiving: false,
            borrowed: true,
            ..Conn::new(fd)
        };
        let Ok(conn) = self.conns.insert(state) else {
            return Err(batch);
        };
        self.begin_send(conn, batch, SendMode::Try);
        Ok(conn)
    }

    fn arm_recv(&mut self, conn: ConnId) {
        let Some(state) = self.conns.get(conn) else {
            return;
        };
        if state.armed || !state.receiving || state.ended || state.closing || state.starved {
            return;
        }
        state.armed = true;
        state.ops += 1;
        let fd = Fd(state.fd);
        let entry = if state.streams > 0 {
            let len = self.receive_most as u32;
            opcode::Recv::new(fd, std::ptr::null_mut(), len)
                .buf_group(BUFFER_GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        } else {
            opcode::RecvMulti::new(fd, BUFFER_GROUP).build()
        };
        self.push(entry, Kind::Recv, conn.0 as u32);
    }

    /// See [`crate::EventLoop::limit_receives`]. A connection without a receive under way takes its
    /// next bytes in one receive.
    pub(crate) fn limit_receives(&mut self, most: Option<usize>) {
        let whole = self.recv.buffer_bytes();
        self.receive_most = most.map_or(whole, |most| most.clamp(1, whole));
    }

    pub(crate) fn set_receiving(&mut self, conn: ConnId, on: bool) {
        let Some(state) = self.conns.get(conn) else {
            return;
        };
        if state.closing {
            return;
        }
        state.receiving = on;
        if on {
            return self.arm_recv(conn);
        }
        // Its handler has no place for more.
        state.streams = SHORT_RECEIVES;
        if state.armed && !state.cancelling {
            state.cancelling = true;
            self.cancel(Kind::Recv, conn.0 as u32);
        }
    }

    fn on_recv(&mut self, index: u32, done: &Done, events: &mut Vec<Event>) {
        let Some((conn, state)) = self.conns.at(index) else {
            return;
        };
        let bytes = done.result.max(0) as usize;
        // Taken in any case, so that dropping an unused buffer returns it.
        let data = cqueue::buffer_select(done.flags).map(|id| self.recv.filled(id, bytes));
        if !done.more() {
            state.armed = false;
            state.cancelling = false;
            state.ops -= 1;
        }
        if state.closing {
            drop(data);
            self.free_if_idle(conn);
            return;
        }
        match (done.result, data) {
            (1.., Some(data)) => {
                let full = self.receive_most;
                if bytes >= full {
                    state.streams = SHORT_RECEIVES;
                } else if bytes <= full / 4 {
                    state.streams = state.streams.saturating_sub(1);
                }
                events.push(Event::Received { conn, data });
            }
            (0, _) => {
                state.ended = true;
                events.push(Event::Ended { conn, error: None });
            }
            (result, _) => match -result {
                libc::ENOBUFS => {
                    state.streams = SHORT_RECEIVES;
                    state.starved = true;
                    self.starved.push_back(conn);
                }
                libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
                error => {
                    state.ended = true;
                    events.push(Event::Ended {
                        conn,
                        error: Some(io::Error::from_raw_os_error(error)),
                    });
                }
            },
        }
        if !done.more() {
            match state.streams {
                0 => self.arm_recv(conn),
                _ => self.streaming.push(conn),
            }
        }
    }

    /// Arms as many waiting connections as there are free buffers; true if more could be armed
    /// without a wait.
    fn rearm_starved(&mut self) -> bool {
        for _ in 0..self.recv.available() {
            let Some(conn) = self.starved.pop_front() else {
                return false;
            };
            if let Some(state) = self.conns.get(conn) {
                state.starved = false;
                self.arm_recv(conn);
            }
        }
        !self.starved.is_empty() && self.recv.available() > 0
    }

    pub(crate) fn send(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        batch: Box<SendBatch>,
        mode: SendMode,
    ) {
        let open = match self.conns.get(conn) {
            Some(state) if !state.closing => {
                assert!(state.sending.is_none(), "one batch at a time a connection");
                true
            }
            _ => false,
        };
        if !open || batch.is_empty() {
            let gone = || io::Error::from_raw_os_error(libc::ENOTCONN);
            let result = if open { Ok(0) } else { Err(gone()) };
            core.ready.push(Event::Sent {
                conn,
                batch,
                result,
            });
            return;
        }
        self.begin_send(conn, batch, mode);
    }

    fn begin_send(&mut self, conn: ConnId, batch: Box<SendBatch>, mode: SendMode) {
        if let Some(state) = self.conns.get(conn) {
            state.sending = Some(Sending::new(batch, mode));
            state.ops += 1;
            self.submit_send(conn);
        }
    }

    fn submit_send(&mut self, conn: ConnId) {
        let Some(state) = self.conns.get(conn) else {
            return;
        };
        let Some(sending) = &mut state.sending else {
            return;
        };
        let flags = libc::MSG_NOSIGNAL
            | match sending.mode {
                SendMode::Try => libc::MSG_DONTWAIT,
                SendMode::Wait => libc::MSG_WAITALL,
            };
        let fd = Fd(state.fd);
        let entry = match sending.batch.single() {
            Some((start, bytes)) => opcode::Send::new(fd, start, bytes).flags(flags).build(),
            None => opcode::SendMsg::new(fd, sending.batch.header())
                .flags(flags as u32)
                .build(),
        };
        self.push(entry, Kind::Send, conn.0 as u32);
    }

    fn on_send(&mut self, index: u32, done: &Done, events: &mut Vec<Event>) {
        let Some((conn, state)) = self.conns.at(index) else {
            return;
        };
        let Some(sending) = &mut state.sending else {
            return;
        };
        let mut ended = sending.advance(done.result);
        if ended.is_none() && state.closing {
            ended = Some(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
        }
        match ended {
            None => self.submit_send(conn),
            Some(result) => {
                state.ops -= 1;
                let ends = state.borrowed && !std::mem::replace(&mut state.closing, true);
                if let Some(Sending { batch, .. }) = state.sending.take() {
                    events.push(Event::Sent {
                        conn,
                        batch,
                        result,
                    });
                }
                if ends {
                    self.conns.closing();
                }
                self.free_if_idle(conn);
            }
        }
    }

    pub(crate) fn close(&mut self, _core: &mut Core, conn: ConnId) {
        let Some(state) = self.conns.get(conn) else {
            return;
        };
        if state.closing {
            return;
        }
        state.closing = true;
        let cancel_recv = state.armed && !state.cancelling;
        let cancel_send = state
            .sending
            .as_ref()
            .is_some_and(|sending| sending.mode == SendMode::Wait);
        if cancel_send && !state.borrowed {
            // A send that was often woken without finding room waits in a kernel thread, where a
            // cancel may not reach it.
            net::end(state.fd);
        }
        self.conns.closing();
        if cancel_recv {
            self.cancel(Kind::Recv, conn.0 as u32);
        }
        if cancel_send {
            self.cancel(Kind::Send, conn.0 as u32);
        }
        self.free_if_idle(conn);
    }

    /// Upholds URING-1.
    fn free_if_idle(&mut self, conn: ConnId) {
        let Some(state) = self.conns.get(conn) else {
            return;
        };
        if state.closing && state.ops == 0 {
            let (fd, borrowed) = (state.fd, state.borrowed);
            self.conns.remove(conn);
            if !borrowed {
                self.push(opcode::Close::new(Fd(fd)).build(), Kind::Nothing, 0);
            }
        }
    }

    // The round.

    pub(crate) fn poll(
        &mut self,
        core: &mut Core,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let before = events.len();
        let mut until = None;
        let mut left = timeout;
        loop {
            // Events that are already known happened before any event from the kernel.
            events.append(&mut core.ready);
            let mut streaming = std::mem::take(&mut self.streaming);
            for conn in streaming.drain(..) {
                self.arm_recv(conn);
            }
            self.streaming = streaming;
            let more_to_arm = !self.starved.is_empty() && self.rearm_starved();
            let mut wait = left;
            if self.pausing
                && let Some(resume) = self.resume_accepting()
            {
                wait = Some(wait.map_or(resume, |wait| wait.min(resume)));
            }
            if more_to_arm || events.len() > before {
                wait = Some(Duration::ZERO);
            }
            let reads = core.reads_in_flight;
            let looks =
                (1..=SPIN_READS).contains(&reads) && wait.is_none_or(|wait| !wait.is_zero());
            let spun = looks && self.ring.submit_and_spin(wait, &self.waker)?;
            let woken = spun || self.wait(wait)?;
            self.ring.run_deferred(self.recv.available())?;
            self.reap(core, events);
            if self.waker.lower() {
                events.push(Event::Woken);
            }
            if spun && core.reads_in_flight < reads {
                self.ring.spin_paid();
            }
            if events.len() > before || !woken {
                return Ok(());
            }
            // Only internal work was done (a cancellation, a close): continue to wait. The time
            // counts from here. This is rare, and other rounds need not read the clock for it.
            if let Some(timeout) = timeout {
                let now = Instant::now();
                let until = *until.get_or_insert(now + timeout);
                if now >= until {
                    return Ok(());
                }
                left = Some(until - now);
            }
        }
    }

    /// Submits and waits. False if the time passed or a signal came.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<bool> {
        const NOT: Option<Duration> = Some(Duration::ZERO);
        if limit == NOT {
            return self.ring.submit_and_wait(NOT);
        }
        // Most submissions are sends, which end at once. Until then the loop counts as awake for
        // other threads.
        if self.ring.submits_first() {
            self.ring.submit_and_wait(NOT)?;
            if self.ring.has_completions() {
                return Ok(true);
            }
        }
        let sleeps = self.waker.sleep();
        self.ring.submit_and_wait(if sleeps { limit } else { NOT })
    }

    fn reap(&mut self, core: &mut Core, events: &mut Vec<Event>) {
        let mut batch = std::mem::take(&mut self.done);
        self.ring.reap(&mut batch);
        for done in &batch {
            let index = done.user_data as u32;
            match done.user_data >> 56 {
                kind if kind == Kind::Recv as u64 => self.on_recv(index, done, events),
                kind if kind == Kind::Send as u64 => self.on_send(index, done, events),
                kind if kind == Kind::Disk as u64 => self.on_disk(core, index, done, events),
                kind if kind == Kind::Accept as u64 => self.on_accept(index, done, events),
                // Its state says whether it was woken.
                kind if kind == Kind::Wake as u64 && !done.more() => self.arm_waker(),
                _ => {}
            }
        }
        batch.clear();
        self.done = batch;
    }

    /// Cancels what can be, waits for everything in flight, and closes what is open. If operations
    /// do not end within [`LAST_WAIT`], the memory is leaked.
    pub(crate) fn shut_down(&mut self, core: &mut Core) {
        self.accepting = false;
        self.set_accepting(false);
        for index in 0..self.conns.slots() {
            if let Some((conn, _)) = self.conns.at(index) {
                self.close(core, conn);
            }
        }
        let started = Instant::now();
        let mut events = Vec::new();
        let mut waker_left = true;
        // The waker's poll is armed again whenever it ends, so it is cancelled last and then
        // ignored.
        while self.ring.in_flight > usize::from(waker_left) && started.elapsed() < LAST_WAIT {
            if self
                .ring
                .submit_and_wait(Some(Duration::from_millis(100)))
                .is_err()
            {
                break;
            }
            self.reap(core, &mut events);
            events.clear();
        }
        if self.ring.in_flight == 1 {
            waker_left = false;
            self.cancel(Kind::Wake, 0);
        }
        while self.ring.in_flight > 0 && !waker_left && started.elapsed() < LAST_WAIT {
            if self
                .ring
                .submit_and_wait(Some(Duration::from_millis(100)))
                .is_err()
            {
                break;
            }
            let mut last = Vec::new();
            self.ring.reap(&mut last);
        }
        // Otherwise the devices would stay open and locked until the kernel has removed the ring in
        // the background.
        let _ = self.ring.submitter().unregister_files();
        if self.ring.in_flight > 0 {
            core.leak();
            self.recv.leak();
            std::mem::forget(std::mem::replace(&mut self.conns, Conns::new(0)));
        }
    }
}
