// SPDX-License-Identifier: Apache-2.0
//! Threads that do device operations for the posix backend, so that its event loop never waits for
//! a disk.
//!
//! The loop submits jobs once a round, and an event descriptor tells it when jobs end. A job
//! consists of plain numbers and addresses. The loop's table of operations keeps the memory
//! (DISK-1), so no thread ever touches the loop's reference counts. That table also bounds the
//! jobs: each holds a frame or a write buffer of the engine.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Waker;
use crate::file::RawOp;

/// An operation's number in the loop's table, and the call to make.
pub(super) struct Job {
    pub(super) index: u32,
    pub(super) op: RawOp,
}

// SAFETY: the loop keeps the memory at the operation's address, and the file open, until it has
// taken this job's result, or has joined the threads.
unsafe impl Send for Job {}

struct Queue {
    jobs: VecDeque<Job>,
    stop: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    done: Mutex<Vec<(u32, i32)>>,
    bell: Waker,
}

/// The threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// `threads` threads; `bell` rings when there are results.
    pub(super) fn new(threads: usize, bell: Waker) -> io::Result<Pool> {
        let queue = Mutex::new(Queue {
            jobs: VecDeque::with_capacity(1024),
            stop: false,
        });
        let done = Mutex::new(Vec::with_capacity(1024));
        let shared = Arc::new(Shared {
            queue,
            more: Condvar::new(),
            done,
            bell,
        });
        let mut pool = Pool {
            shared,
            threads: Vec::with_capacity(threads),
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("disk-{number}"))
                .stack_size(128 << 10)
                .spawn(move || work(&shared))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Submits all of `jobs`.
    pub(super) fn submit(&self, jobs: &mut Vec<Job>) {
        let count = jobs.len();
        if count == 0 {
            return;
        }
        lock(&self.shared.queue).jobs.extend(jobs.drain(..));
        if count < self.threads.len() {
            for _ in 0..count {
                self.shared.more.notify_one();
            }
        } else {
            self.shared.more.notify_all();
        }
    }

    /// Swaps the available results with `results`, which is empty.
    pub(super) fn take_done(&self, results: &mut Vec<(u32, i32)>) {
        std::mem::swap(&mut *lock(&self.shared.done), results);
    }

    /// Does the submitted jobs, then ends the threads. False if this took longer than `limit`. Then
    /// a thread is still in a system call, whose memory must stay; it ends by itself later.
    pub(super) fn finish(&mut self, limit: Duration) -> bool {
        lock(&self.shared.queue).stop = true;
        self.shared.more.notify_all();
        let until = Instant::now() + limit;
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if Instant::now() >= until {
                lock(&self.shared.queue).jobs.clear();
                self.threads.clear();
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has no job any more.
            let _ = thread.join();
        }
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A loop ends its pool before this. This is for a loop that could not be made.
        self.finish(Duration::from_secs(1));
    }
}

fn work(shared: &Shared) {
    loop {
        let mut queue = lock(&shared.queue);
        let job = loop {
            if let Some(job) = queue.jobs.pop_front() {
                break job;
            }
            if queue.stop {
                return;
            }
            queue = shared
                .more
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        let result = job.op.run();
        lock(&shared.done).push((job.index, result));
        shared.bell.wake();
    }
}
