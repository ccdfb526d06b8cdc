// SPDX-License-Identifier: Apache-2.0
//! Threads that drive an engine: the part of every benchmark that does not depend on the engine.
//!
//! The store's bench and the lab's driver of engines run their threads here. The callers decide
//! what a thread does and counts.
//!
//! Always holds: when a thread fails or panics, all others are stopped. Everything that the threads
//! counted is added up before the first failure is returned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often [`on_threads`] calls `watch`.
const WATCH: Duration = Duration::from_millis(5);

/// Tells the threads of a run to stop.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Whether threads should stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Tells threads to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Why a run of threads failed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError<E> {
    /// The operating system has no more threads.
    #[error("a thread cannot be started: {0}")]
    NoThread(std::io::Error),
    /// A thread panicked.
    #[error("a thread panicked")]
    Panicked,
    /// What a thread returned.
    #[error("{0}")]
    Failed(E),
}

/// Runs `work` on this many threads, each with its number, and adds up their results.
///
/// If `watch` is given, the calling thread calls it about 200 times a second meanwhile. It may show
/// progress, or stop the threads.
///
/// # Errors
/// The first failure, in the order of the threads.
///
/// # Example
/// ```
/// use senko_workload::drive::{DriveError, Stop, on_threads};
///
/// let work = |nth: usize, _: &Stop| Ok::<_, String>(nth);
/// let sum = on_threads(4, work, |sum: &mut usize, nth| *sum += nth, None);
/// assert_eq!(sum.unwrap(), 0 + 1 + 2 + 3);
///
/// let fails = |nth: usize, stop: &Stop| {
///     if nth == 1 {
///         return Err("it is full".to_owned());
///     }
///     while !stop.is_set() {
///         std::thread::yield_now(); // work until another thread fails
///     }
///     Ok(())
/// };
/// let failed = on_threads(2, fails, |_: &mut (), ()| {}, None).unwrap_err();
/// assert!(matches!(failed, DriveError::Failed(_)));
/// ```
pub fn on_threads<T: Send, S: Default, E: Send>(
    threads: usize,
    work: impl Fn(usize, &Stop) -> Result<T, E> + Sync,
    add: impl Fn(&mut S, T),
    watch: Option<&mut dyn FnMut(&Stop)>,
) -> Result<S, DriveError<E>> {
    let stop = Stop::default();
    let mut sum = S::default();
    let mut failed = None;
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|nth| {
                let (work, stop) = (&work, &stop);
                let started = thread::Builder::new()
                    .name(format!("work-{nth}"))
                    .spawn_scoped(scope, move || {
                        let watched = StopOnEnd(stop, true);
                        let done = work(nth, stop);
                        watched.ends_well(done.is_ok());
                        done
                    });
                if started.is_err() {
                    stop.set();
                }
                started
            })
            .collect();
        if let Some(watch) = watch {
            let runs = |thread: &Result<thread::ScopedJoinHandle<'_, _>, _>| {
                thread.as_ref().is_ok_and(|thread| !thread.is_finished())
            };
            while started.iter().any(runs) {
                watch(&stop);
                thread::sleep(WATCH);
            }
        }
        for thread in started {
            let failure = match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(Ok(part))) => {
                    add(&mut sum, part);
                    continue;
                }
                Ok(Ok(Err(error))) => DriveError::Failed(error),
                Ok(Err(_)) => DriveError::Panicked,
                Err(error) => DriveError::NoThread(error),
            };
            failed = failed.take().or(Some(failure));
        }
    });
    match failed {
        Some(failure) => Err(failure),
        None => Ok(sum),
    }
}

/// Stops all threads when its own thread fails or panics.
struct StopOnEnd<'s>(&'s Stop, bool);

impl StopOnEnd<'_> {
    fn ends_well(mut self, well: bool) {
        self.1 = !well;
    }
}

impl Drop for StopOnEnd<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that panics stops the others, which would otherwise work forever.
    #[test]
    fn a_panic_ends_the_run() {
        let work = |nth: usize, stop: &Stop| {
            assert!(nth != 2, "on purpose");
            while !stop.is_set() {
                thread::yield_now();
            }
            Ok::<_, String>(1)
        };
        let failed = on_threads(3, work, |sum: &mut u32, one| *sum += one, None);
        assert!(matches!(failed, Err(DriveError::Panicked)));
    }

    /// The watcher stops threads, and their counts so far are added up.
    #[test]
    fn the_watcher_may_stop_the_threads() {
        let work = |_: usize, stop: &Stop| {
            while !stop.is_set() {
                thread::yield_now();
            }
            Ok::<_, String>(1)
        };
        let mut looks = 0;
        let mut watch = |stop: &Stop| {
            looks += 1;
            if looks == 2 {
                stop.set();
            }
        };
        let add = |sum: &mut u32, one| *sum += one;
        assert_eq!(on_threads(3, work, add, Some(&mut watch)).ok(), Some(3));
        assert!(looks >= 2);
    }
}
