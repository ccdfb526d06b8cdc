// SPDX-License-Identifier: Apache-2.0
//! Accepting on the ring: one multishot accept per listener.
//!
//! The accept is armed while accepting is on and the listener does not pause. After a failed accept
//! (out of descriptors, for example) the listener pauses for a moment. The connection is still
//! waiting, so an accept armed at once would fail again.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::{opcode, types::Fd};

use super::ring::Done;
use super::{Kind, Uring};
use crate::{Event, Listener, ListenerId};

/// How long a listener pauses after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener, and whether its multishot accept is armed.
pub(super) struct Acceptor {
    listener: Listener,
    armed: bool,
    cancelling: bool,
    paused_until: Option<Instant>,
}

impl Uring {
    pub(crate) fn listen(&mut self, listener: &Listener) -> io::Result<ListenerId> {
        let id = self.acceptors.len() as ListenerId;
        let listener = listener.clone();
        self.acceptors.push(Acceptor {
            listener,
            armed: false,
            cancelling: false,
            paused_until: None,
        });
        self.arm_accept(id);
        Ok(id)
    }

    pub(super) fn arm_accept(&mut self, id: ListenerId) {
        let acceptor = &mut self.acceptors[id as usize];
        if !self.accepting || acceptor.armed || acceptor.paused_until.is_some() {
            return;
        }
        acceptor.armed = true;
        let fd = Fd(acceptor.listener.fd());
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        self.push(
            opcode::AcceptMulti::new(fd).flags(flags).build(),
            Kind::Accept,
            id,
        );
    }

    pub(crate) fn set_accepting(&mut self, on: bool) {
        self.accepting = on;
        for id in 0..self.acceptors.len() as ListenerId {
            let acceptor = &mut self.acceptors[id as usize];
            if on {
                self.arm_accept(id);
            } else if acceptor.armed && !acceptor.cancelling {
                acceptor.cancelling = true;
                self.cancel(Kind::Accept, id);
            }
        }
    }

    pub(super) fn on_accept(&mut self, id: ListenerId, done: &Done, events: &mut Vec<Event>) {
        if done.result >= 0 {
            // SAFETY: the descriptor is new and owned by nobody else.
            let stream = unsafe { OwnedFd::from_raw_fd(done.result) };
            events.push(Event::Accepted {
                listener: id,
                stream,
            });
        } else if !matches!(
            -done.result,
            libc::ECANCELED | libc::ECONNABORTED | libc::EINTR | libc::EAGAIN
        ) {
            let error = io::Error::from_raw_os_error(-done.result);
            events.push(Event::AcceptFailed {
                listener: id,
                error,
            });
            self.acceptors[id as usize].paused_until = Some(Instant::now() + ACCEPT_PAUSE);
            self.pausing = true;
        }
        if !done.more() {
            let acceptor = &mut self.acceptors[id as usize];
            acceptor.armed = false;
            acceptor.cancelling = false;
            self.arm_accept(id);
        }
    }

    /// Ends the pauses that are over; returns the time until the next one's end.
    pub(super) fn resume_accepting(&mut self) -> Option<Duration> {
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
                self.arm_accept(id);
            } else {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        self.pausing = next.is_some();
        next
    }
}
