// SPDX-License-Identifier: Apache-2.0
//! The ring itself: made, probed, fed and entered.
//!
//! Submissions wait in the submission queue until the loop enters the kernel, once a round. If the
//! queue is full, it is submitted earlier. If the kernel does not accept it (its completion queue
//! is full), entries wait in a backlog here. Every submission ends in exactly one completion
//! without the "more" flag; `in_flight` counts those still to come.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};

use super::limit;
use super::spin::Spin;
use crate::recv::RecvPool;
use crate::wake::Waker;

/// The buffer group of the receive buffers.
pub(super) const BUFFER_GROUP: u16 = 0;

/// Entries of a ring if memory may not be locked.
const SMALL_SUBMISSIONS: u32 = 256;
const SMALL_COMPLETIONS: u32 = 2048;

const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// `struct io_uring_rsrc_update` of the kernel.
#[repr(C)]
struct RingFdUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// A completion, copied out of the queue.
#[derive(Clone, Copy)]
pub(super) struct Done {
    pub(super) user_data: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

impl Done {
    /// Whether more completions of the same submission follow.
    pub(super) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }
}

pub(super) struct Ring {
    uring: IoUring,
    /// The ring's number among the thread's registered rings. Entering by this number saves a
    /// look-up of the descriptor.
    registered: Option<u32>,
    backlog: VecDeque<squeue::Entry>,
    pub(super) in_flight: usize,
    /// A wait is for this many completions, not counting those submitted with it, for at most this
    /// many microseconds. After that it is for one.
    gather: Option<(u32, u32)>,
    can_gather: bool,
    spin: Spin,
}

fn refused(what: &str, error: &io::Error) -> io::Error {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (forbidden by a sandbox or by kernel.io_uring_disabled)"
        }
        Some(libc::ENOSYS) => " (this kernel has no io_uring)",
        Some(libc::EINVAL) => " (kernel 6.1 or newer is needed)",
        Some(libc::ENOMEM) => " (RLIMIT_MEMLOCK, which `ulimit -l` shows, is too small)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{what} failed: {error}{hint}"))
}

fn build(submissions: u32, completions: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_cqsize(completions)
        .setup_clamp()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(submissions)
}

/// If memory may not be locked, a smaller ring works too (the kernel keeps completions that find no
/// room).
fn build_patiently(submissions: u32, completions: u32) -> io::Result<IoUring> {
    let short = |built: &io::Result<IoUring>| {
        built
            .as_ref()
            .is_err_and(|error| error.raw_os_error() == Some(libc::ENOMEM))
    };
    let mut built = build(submissions, completions);
    if short(&built) {
        built = build(SMALL_SUBMISSIONS, SMALL_COMPLETIONS);
    }
    let bytes = 64 * SMALL_SUBMISSIONS + 16 * SMALL_COMPLETIONS;
    for pause in limit::patience(u64::from(bytes)) {
        if !short(&built) {
            break;
        }
        std::thread::sleep(pause);
        built = build(SMALL_SUBMISSIONS, SMALL_COMPLETIONS);
    }
    built
}

impl Ring {
    /// A ring with room for `submissions` and `completions`.
    pub(super) fn new(submissions: u32, completions: u32) -> io::Result<Ring> {
        let uring = build_patiently(submissions, completions)
            .map_err(|error| refused("io_uring_setup", &error))?;
        let params = uring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's io_uring is too old (kernel 6.1 or newer is needed)",
            ));
        }
        let can_gather = params.is_feature_min_timeout();
        let mut ring = Ring {
            uring,
            registered: None,
            backlog: VecDeque::new(),
            in_flight: 0,
            gather: None,
            can_gather,
            spin: Spin::default(),
        };
        ring.check_operations()?;
        ring.register_ring_fd();
        Ok(ring)
    }

    fn check_operations(&self) -> io::Result<()> {
        let mut probe = Probe::new();
        self.submitter()
            .register_probe(&mut probe)
            .map_err(|error| refused("asking for io_uring's operations", &error))?;
        let needed = [
            ("accept", opcode::Accept::CODE),
            ("recv", opcode::Recv::CODE),
            ("send", opcode::Send::CODE),
            ("sendmsg", opcode::SendMsg::CODE),
            ("read", opcode::Read::CODE),
            ("read_fixed", opcode::ReadFixed::CODE),
            ("write", opcode::Write::CODE),
            ("fsync", opcode::Fsync::CODE),
            ("poll_add", opcode::PollAdd::CODE),
            ("async_cancel", opcode::AsyncCancel::CODE),
            ("close", opcode::Close::CODE),
            ("fallocate", opcode::Fallocate::CODE),
        ];
        match needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
            Some((name, _)) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("the kernel's io_uring has no {name} (kernel 6.1 or newer is needed)"),
            )),
            None => Ok(()),
        }
    }

    /// If a thread has too many rings already, the plain descriptor works too.
    fn register_ring_fd(&mut self) {
        let mut update = RingFdUpdate {
            offset: u32::MAX,
            reserved: 0,
            data: self.fd() as u64,
        };
        // SAFETY: the kernel reads and writes one `RingFdUpdate`, which lives on this stack.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.fd(),
                REGISTER_RING_FDS,
                &raw mut update,
                1,
            )
        };
        self.registered = (done == 1).then_some(update.offset);
    }

    /// See [`crate::EventLoop::set_gather`].
    pub(super) fn set_gather(&mut self, completions: usize, wait: Duration) {
        let micros = wait.as_micros().min(1_000_000) as u32;
        self.gather = (self.can_gather && completions > 1 && micros > 0)
            .then_some((completions as u32, micros));
    }

    /// See [`crate::EventLoop::set_spin`].
    pub(super) fn set_spin(&mut self, limit: Duration) {
        self.spin = Spin::new(limit);
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.uring.submitter()
    }

    fn fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }

    /// Registers the receive buffers' ring.
    pub(super) fn register_buffers(&self, pool: &RecvPool) -> io::Result<()> {
        let (address, entries) = pool.ring_address();
        let register = || {
            // SAFETY: the ring's memory lives as long as the pool, which outlives every operation
            // of this ring (`shut_down` waits for them, or leaks the pool).
            unsafe {
                self.submitter()
                    .register_buf_ring_with_flags(address, entries, BUFFER_GROUP, 0)
            }
        };
        let mut done = register();
        // As with the ring itself: the kernel may release the locked memory of an earlier ring only
        // now.
        for pause in limit::patience(u64::from(entries) * 16) {
            if !done
                .as_ref()
                .is_err_and(|error| error.raw_os_error() == Some(libc::ENOMEM))
            {
                break;
            }
            std::thread::sleep(pause);
            done = register();
        }
        done.map_err(|error| refused("registering receive buffers", &error))
    }

    /// Runs the work that the kernel has deferred to this thread, to its end or up to `most`
    /// completions. An enter runs about twenty pieces, in their order of arrival. The remaining
    /// pieces come before all later ones, and their number would grow while a round adds more than
    /// twenty. Requests that need no device would then wait for hundreds that do.
    pub(super) fn run_deferred(&mut self, most: usize) -> io::Result<()> {
        let mut ready = self.uring.completion().len();
        while ready < most && self.uring.submission().taskrun() {
            self.submit_and_wait(Some(Duration::ZERO))?;
            let before = std::mem::replace(&mut ready, self.uring.completion().len());
            // The kernel may leave the flag set without any work.
            if ready == before {
                break;
            }
        }
        Ok(())
    }

    /// Queues a submission.
    ///
    /// # Safety
    /// The memory of the entry must stay valid until its last completion.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        if self.backlog.is_empty() {
            // SAFETY: the caller keeps what the entry points to.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: submit it now and continue. The next round meets an error again
            // and reports it.
            let _ = self.enter(0, None);
            // SAFETY: as above.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Moves the backlog to the queue as far as possible; true if nothing is left.
    fn push_backlog(&mut self) -> bool {
        let mut queue = self.uring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: `push` was promised that what the entry points to stays valid.
            if unsafe { queue.push(entry) }.is_err() {
                return false;
            }
            self.backlog.pop_front();
        }
        true
    }

    /// Submits, and polls for a completion or a wake-up without sleeping, for no longer than
    /// `wait`. True if there is one.
    pub(super) fn submit_and_spin(
        &mut self,
        wait: Option<Duration>,
        waker: &Waker,
    ) -> io::Result<bool> {
        let Some(until) = self.spin.begin(wait) else {
            return Ok(false);
        };
        // Work that the kernel has deferred to this thread becomes completions when the thread
        // enters.
        self.submit_and_wait(Some(Duration::ZERO))?;
        while self.uring.completion().is_empty() && !waker.is_rung() {
            if Instant::now() >= until {
                self.spin.in_vain();
                return Ok(false);
            }
            std::hint::spin_loop();
            if self.uring.submission().taskrun() {
                self.submit_and_wait(Some(Duration::ZERO))?;
            }
        }
        Ok(true)
    }

    /// A read ended while the thread polled.
    pub(super) fn spin_paid(&mut self) {
        self.spin.paid();
    }

    /// Whether to submit the queue before the wait: it is not empty, and completions need not
    /// gather.
    pub(super) fn submits_first(&mut self) -> bool {
        self.gather.is_none() && !self.uring.submission().is_empty()
    }

    pub(super) fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Submits, and waits for a completion for at most `timeout`. False if the time passed or a
    /// signal came.
    pub(super) fn submit_and_wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        // If entries were left, a wait could be for one of them.
        let all_queued = self.push_backlog();
        let no_wait = !all_queued || timeout.is_some_and(|timeout| timeout.is_zero());
        let timespec = timeout.map(Timespec::from);
        let result = if no_wait {
            self.enter(0, None)
        } else {
            self.enter(1, timespec.as_ref())
        };
        match result {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(false),
                // The completion queue is full, or memory for requests is short: take completions,
                // then try again.
                Some(libc::EBUSY | libc::EAGAIN) => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// One `io_uring_enter`: submits the queue, runs deferred work, waits for `want` completions.
    fn enter(&mut self, mut want: u32, timeout: Option<&Timespec>) -> io::Result<()> {
        let queued = self.uring.submission().len() as u32;
        let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let fd = match self.registered {
            Some(index) => {
                flags |= EnterFlags::REGISTERED_RING;
                index as RawFd
            }
            None => self.fd(),
        };
        let mut args = SubmitArgs::new();
        if let Some(timeout) = timeout {
            args = args.timespec(timeout);
        }
        if let Some((completions, micros)) = self.gather.filter(|_| want > 0) {
            // Entries submitted now are mostly sends, which complete at once. The wait is for
            // others.
            want = queued + completions;
            args = args.min_wait_usec(micros);
        }
        // SAFETY: the entries' memory is valid by the promise made to `push`; `args` and the time
        // it points to live on this stack, and `SubmitArgs` is the kernel's
        // `io_uring_getevents_arg`.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                queued,
                want,
                flags.bits(),
                &raw const args,
                size_of::<SubmitArgs<'_, '_>>(),
            )
        };
        if done < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Moves the available completions to `to`.
    pub(super) fn reap(&mut self, to: &mut Vec<Done>) {
        let before = to.len();
        to.extend(self.uring.completion().map(|entry| Done {
            user_data: entry.user_data(),
            result: entry.result(),
            flags: entry.flags(),
        }));
        self.in_flight -= to[before..].iter().filter(|done| !done.more()).count();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(offset) = self.registered {
            let mut update = RingFdUpdate {
                offset,
                reserved: 0,
                data: 0,
            };
            // SAFETY: the kernel reads one `RingFdUpdate`, which lives on this stack. Without this
            // call the thread would hold the ring until it ends.
            unsafe {
                libc::syscall(
                    libc::SYS_io_uring_register,
                    self.fd(),
                    UNREGISTER_RING_FDS,
                    &raw mut update,
                    1,
                )
            };
        }
    }
}
