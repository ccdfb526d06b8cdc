// SPDX-License-Identifier: Apache-2.0
//! What a command has made on the machine and must undo at its end, also when a signal ends it.
//!
//! Code that makes something registers with [`later`] how to undo it, and keeps the [`Guard`],
//! whose drop does so. If a signal ends the command ([`on_signals`]), everything that is still
//! registered is undone, newest first, because later things depend on earlier ones.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::tell;

type Step = Box<dyn FnOnce() + Send>;

/// The number of the last step, and the steps with their numbers.
static LIST: Mutex<(u64, Vec<(u64, Step)>)> = Mutex::new((0, Vec::new()));

/// Set when a signal ended the command: everything is being undone, and nothing new may be made.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// The signals that end a command.
const STOP_SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

fn list() -> MutexGuard<'static, (u64, Vec<(u64, Step)>)> {
    // The list is consistent between any two of its operations, so a panic elsewhere does no harm.
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Undoes its step when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Guard(u64);

/// Registers a step, which is executed when the guard is dropped or a signal ends the command.
pub fn later(step: impl FnOnce() + Send + 'static) -> Guard {
    let mut list = list();
    if STOPPED.load(Ordering::Relaxed) {
        // Its thing was made while everything was being undone.
        drop(list);
        step();
        wait_if_stopped();
        return Guard(0);
    }
    list.0 += 1;
    let number = list.0;
    list.1.push((number, Box::new(step)));
    Guard(number)
}

impl Guard {
    fn take(&self) -> Option<Step> {
        let mut list = list();
        let at = list.1.iter().position(|(number, _)| *number == self.0)?;
        Some(list.1.remove(at).1)
    }

    /// Drops the step without executing it, because it was done in another way.
    pub fn forget(self) {
        self.take();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(step) = self.take() {
            step();
        }
    }
}

/// Executes all remaining steps, newest first.
fn all() {
    loop {
        // The lock is free while a step runs.
        let Some((_, step)) = list().1.pop() else {
            return;
        };
        step();
    }
}

/// From now on a signal that ends the command undoes everything first. Call it while this process
/// has one thread: a signal would still kill threads started before.
pub fn on_signals() {
    on_signals_tell(|| {});
}

/// As [`on_signals`], and calls `told` when everything is undone, before the process ends. Only the
/// first call of either function counts.
pub fn on_signals_tell(told: impl FnOnce() + Send + 'static) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        block_stop_signals();
        let waits = || {
            let signal = wait_for_stop();
            {
                let _list = list();
                STOPPED.store(true, Ordering::Relaxed);
            }
            tell!("\nstopped by signal {signal}: removing what the run made");
            all();
            told();
            std::process::exit(128 + signal);
        };
        if let Err(error) = thread::Builder::new().name("signals".into()).spawn(waits) {
            tell!("warning: a stopped run will leave its files behind: {error}");
        }
    });
}

/// Does not return once a signal has ended the command: the thread that undoes everything ends the
/// process.
pub fn wait_if_stopped() {
    while STOPPED.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_secs(1));
    }
}

fn stop_set() -> libc::sigset_t {
    // SAFETY: `sigemptyset` fills the set before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in STOP_SIGNALS {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Blocks the signals that end a command, in this thread and in its later children.
fn block_stop_signals() {
    // SAFETY: the call reads the set.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &stop_set(), std::ptr::null_mut());
    }
}

/// Waits for a signal that ends a command, and returns its number.
fn wait_for_stop() -> i32 {
    let mut signal = 0;
    // SAFETY: the call reads the set and writes the number.
    while unsafe { libc::sigwait(&stop_set(), &mut signal) } != 0 {}
    signal
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn guards_undo_once() {
        let count = Arc::new(AtomicU32::new(0));
        let step = || {
            let count = Arc::clone(&count);
            later(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
        };
        drop(step());
        assert_eq!(count.load(Ordering::Relaxed), 1);
        step().forget();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
