// SPDX-License-Identifier: Apache-2.0
//! Group commit: the first thread writes or flushes for all waiting threads. Called by
//! [`super::Log::commit`].
//!
//! ```text
//!            written < ticket, nobody writes           the write returned
//!   waiting ------------------------------> writing ---------------------> written >= ticket: done (Buffered)
//!            flushed < ticket, nobody flushes          written, then the flush returned
//!   waiting ------------------------------> flushing --------------------> flushed >= ticket: done (Synced)
//! ```
//! COMMIT-1. At most one thread writes and at most one flushes; a write may run at the same time as
//! a flush. COMMIT-2. `flushed` becomes the value of `written` at the start of the flush, never
//! more. COMMIT-3. A thread that needs a flush writes only when it is the flusher. Threads that
//! arrive during a flush gather, and their pages are written by the next flusher. COMMIT-4. After a
//! failure no thread gets a turn any more. No write follows a failed write, and no flush a failed
//! flush. Linux drops data after a failed write, and a second flush would report success.
//! Operations in flight run to their end. Tickets reached before stay reached. COMMIT-5. If a
//! thread panics during its turn, it releases the turn as after a failure. So no thread waits for
//! it forever.
//!
//! The lock and the condition are in [`Monitor`], so that a test can run the same protocol under a
//! scheduler that tries interleavings.

use parking_lot::{Condvar, Mutex};

use crate::StoreError;

/// How far the log is on the device. Pages count from the start of the log.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Pages that were written.
    pub written: u32,
    /// Pages that are durable.
    pub flushed: u32,
    writing: bool,
    flushing: bool,
    failed: Option<StoreError>,
}

/// A value behind a lock, whose changes can be waited for.
pub(super) trait Monitor {
    /// A monitor with this first value.
    fn new(progress: Progress) -> Self;
    /// Runs `step` under the lock until it returns something. Between two runs it waits for a
    /// change.
    fn when<R>(&self, step: impl FnMut(&mut Progress) -> Option<R>) -> R;
    /// Changes the value and wakes those who wait.
    fn change<R>(&self, change: impl FnOnce(&mut Progress) -> R) -> R;
}

/// The monitor of real threads.
pub(super) struct Threads {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Monitor for Threads {
    fn new(progress: Progress) -> Threads {
        Threads {
            progress: Mutex::new(progress),
            changed: Condvar::new(),
        }
    }

    fn when<R>(&self, mut step: impl FnMut(&mut Progress) -> Option<R>) -> R {
        let mut progress = self.progress.lock();
        loop {
            if let Some(done) = step(&mut progress) {
                return done;
            }
            self.changed.wait(&mut progress);
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Progress) -> R) -> R {
        let done = change(&mut self.progress.lock());
        self.changed.notify_all();
        done
    }
}

/// The target of commits: the log's buffers and its device.
pub(super) trait Sink {
    /// Pages that hold all appended data; the last one counts as whole.
    fn end(&self) -> u32;
    /// Writes the appended, unwritten pages. With `whole`, it writes only full chunks. Returns the
    /// number of pages that are now written.
    fn write(&self, whole: bool) -> Result<u32, StoreError>;
    /// Makes all written pages durable; `written` is their number.
    fn flush(&self, written: u32) -> Result<(), StoreError>;
}

enum Turn {
    Reached,
    Mine,
}

/// The protocol.
pub(super) struct Group<M> {
    monitor: M,
}

fn latched(cause: &StoreError) -> StoreError {
    StoreError::ReadOnly(format!("an earlier write failed: {cause}"))
}

impl<M: Monitor> Group<M> {
    /// Starts with this many written pages.
    pub fn new(written: u32) -> Group<M> {
        let progress = Progress {
            written,
            ..Progress::default()
        };
        Group {
            monitor: M::new(progress),
        }
    }

    /// Fails if an earlier write or flush did.
    pub fn check(&self) -> Result<(), StoreError> {
        self.monitor.when(|p| match &p.failed {
            Some(cause) => Some(Err(latched(cause))),
            None => Some(Ok(())),
        })
    }

    /// Makes all later calls behave as after a failed write.
    pub fn latch(&self, cause: &StoreError) {
        self.monitor.change(|p| {
            p.failed.get_or_insert_with(|| cause.clone());
        });
    }

    /// Returns when the first `target` pages are written.
    pub fn write(&self, sink: &impl Sink, target: u32) -> Result<(), StoreError> {
        let turn = self.monitor.when(|p| {
            if p.written >= target {
                Some(Ok(Turn::Reached))
            } else {
                Self::turn_to_write(p)
            }
        })?;
        match turn {
            Turn::Reached => Ok(()),
            Turn::Mine => self.write_now(sink, false),
        }
    }

    /// Writes the chunks that are full, after the current writer.
    pub fn write_whole(&self, sink: &impl Sink) -> Result<(), StoreError> {
        self.monitor.when(Self::turn_to_write)?;
        self.write_now(sink, true)
    }

    fn turn_to_write(p: &mut Progress) -> Option<Result<Turn, StoreError>> {
        match &p.failed {
            Some(cause) => Some(Err(latched(cause))),
            None if p.writing => None,
            None => {
                p.writing = true;
                Some(Ok(Turn::Mine))
            }
        }
    }

    fn write_now(&self, sink: &impl Sink, whole: bool) -> Result<(), StoreError> {
        let died = Died(self, |p| p.writing = false);
        let result = sink.write(whole);
        std::mem::forget(died);
        self.monitor.change(|p| {
            p.writing = false;
            match result {
                Ok(written) => {
                    p.written = p.written.max(written);
                    Ok(())
                }
                Err(error) => {
                    p.failed.get_or_insert_with(|| error.clone());
                    Err(error)
                }
            }
        })
    }

    /// Returns when the first `target` pages are written and durable.
    pub fn sync(&self, sink: &impl Sink, target: u32) -> Result<(), StoreError> {
        let turn = self.monitor.when(|p| match &p.failed {
            _ if p.flushed >= target => Some(Ok(Turn::Reached)),
            Some(cause) => Some(Err(latched(cause))),
            None if p.flushing => None,
            None => {
                p.flushing = true;
                Some(Ok(Turn::Mine))
            }
        })?;
        match turn {
            Turn::Reached => Ok(()),
            Turn::Mine => self.sync_now(sink, target),
        }
    }

    fn sync_now(&self, sink: &impl Sink, target: u32) -> Result<(), StoreError> {
        let died = Died(self, |p| p.flushing = false);
        let mut upto = 0;
        let mut result = self.write(sink, target.max(sink.end()));
        if result.is_ok() {
            // COMMIT-4 between the write and here: another thread's write may have failed.
            result = self.monitor.when(|p| {
                upto = p.written;
                Some(
                    p.failed
                        .as_ref()
                        .map_or(Ok(()), |cause| Err(latched(cause))),
                )
            });
        }
        if result.is_ok() {
            result = sink.flush(upto);
        }
        std::mem::forget(died);
        self.monitor.change(|p| {
            p.flushing = false;
            match &result {
                Ok(()) => p.flushed = p.flushed.max(upto),
                Err(error) => drop(p.failed.get_or_insert_with(|| error.clone())),
            }
        });
        result
    }
}

/// Dropped only when a thread panics while it writes or flushes for the others (COMMIT-5).
struct Died<'g, M: Monitor>(&'g Group<M>, fn(&mut Progress));

impl<M: Monitor> Drop for Died<'_, M> {
    fn drop(&mut self) {
        self.0.monitor.change(|p| {
            (self.1)(p);
            p.failed.get_or_insert_with(|| {
                StoreError::Invalid("the thread that did it panicked".to_owned())
            });
        });
    }
}

#[cfg(test)]
mod tests;
