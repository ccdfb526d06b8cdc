// SPDX-License-Identifier: Apache-2.0
//! Long work runs on its own thread, while the calling thread checks for Ctrl-C. Python runs signal
//! handlers only on its main thread, and only between calls.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::prelude::*;

/// The interval between checks for signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Flags that no work uses. The engine keeps each flag forever, so they are reused.
static IDLE: Mutex<Vec<&'static AtomicBool>> = Mutex::new(Vec::new());

/// A flag that ends one piece of work.
struct Flag(&'static AtomicBool);

impl Flag {
    fn take() -> Flag {
        // In the child of a fork the lock may be held forever. A new flag always works.
        let idle = IDLE.try_lock().ok().and_then(|mut idle| idle.pop());
        Flag(idle.unwrap_or_else(|| Box::leak(Box::default())))
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        if let Ok(mut idle) = IDLE.try_lock() {
            idle.push(self.0);
        }
    }
}

/// Ends the work of several threads.
#[pyclass(module = "senko_flash._native", frozen)]
#[derive(Default)]
pub struct Stop(AtomicBool);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop::default()
    }

    /// All work with this flag ends soon.
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` with the GIL released. Its flag is set when a signal handler has raised an
/// exception, or when `stop` was set; the work then ends soon. A handler's exception is raised at
/// once, while work that does not check its flag runs to its end.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    stop: Option<&Stop>,
    work: impl FnOnce(&'static AtomicBool) -> T + Send + 'static,
) -> PyResult<T> {
    // Both threads hold the flag. Other work may use it when neither of them can set or read it any
    // more.
    let flag = Arc::new(Flag::take());
    let held = Arc::clone(&flag);
    let (done, result) = channel();
    std::thread::Builder::new().spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| work(held.0)));
        // After Ctrl-C there is no receiver.
        let _ = done.send(ended);
    })?;
    py.detach(move || {
        loop {
            match result.recv_timeout(LOOK_EVERY) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("work that ends is sent"),
            }
            if let Err(raised) = Python::attach(|py| py.check_signals()) {
                flag.0.store(true, Ordering::Relaxed);
                return Err(raised);
            }
            if stop.is_some_and(|stop| stop.0.load(Ordering::Relaxed)) {
                flag.0.store(true, Ordering::Relaxed);
            }
        }
    })
}
