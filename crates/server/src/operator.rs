// SPDX-License-Identifier: Apache-2.0
//! A thread with a small event loop of its own, for the few clients that an operator has:
//! [`crate::admin`] and [`crate::ctl`].

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use senko_io::{BackendChoice, EventLoop, Listener, LoopConfig, Waker};

use crate::server::report::ServerError;

/// The running thread; dropping this ends it.
#[derive(Debug)]
pub(crate) struct OperatorThread {
    end: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl OperatorThread {
    /// Starts the thread `senko-NAME`, whose clients come to `listener`. `run` polls the loop until
    /// the flag is set. Messages call the whole `what`.
    ///
    /// # Errors
    /// One sentence, if the system refuses a thread or a loop.
    pub(crate) fn start(
        name: &str,
        what: &'static str,
        (listener, connections): (Listener, usize),
        run: impl FnOnce(EventLoop, &AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> Result<OperatorThread, ServerError> {
        let end = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&end);
        let (ready, made) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("senko-{name}"))
            .spawn(move || match small_loop(&listener, connections) {
                Ok(ev) => {
                    let _ = ready.send(Ok(ev.waker()));
                    if let Err(error) = run(ev, &seen) {
                        tracing::error!("the {what} ended: {error}");
                    }
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            })
            .map_err(|e| ServerError(format!("cannot start a thread: {e}")))?;
        match made.recv() {
            Ok(Ok(waker)) => Ok(OperatorThread {
                end,
                waker,
                thread: Some(thread),
            }),
            Ok(Err(error)) => Err(ServerError(format!("the {what} cannot start: {error}"))),
            Err(_) => Err(ServerError(format!("the {name} thread ended at once"))),
        }
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

impl Drop for OperatorThread {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn small_loop(listener: &Listener, connections: usize) -> io::Result<EventLoop> {
    let mut ev = EventLoop::new(&LoopConfig {
        // There are only a handful of requests a minute, so a ring with locked memory is not worth
        // it.
        backend: BackendChoice::Posix,
        recv_buffers: 4,
        recv_buffer_bytes: 4 << 10,
        frames: Vec::new(),
        disk_threads: 1,
        // The newest one is accepted before the oldest one is closed.
        max_connections: connections + 1,
    })?;
    ev.listen(listener)?;
    Ok(ev)
}
