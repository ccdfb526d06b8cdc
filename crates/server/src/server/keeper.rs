// SPDX-License-Identifier: Apache-2.0
//! The thread that writes to the data directory while a server serves; `server.rs` starts and ends
//! it.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ServerError;
use super::home::Home;

/// The thread that reserves uniques ahead: it may wait for a disk, which a worker may not.
#[derive(Debug)]
pub(super) struct Keeper {
    home: Arc<Home>,
    thread: JoinHandle<()>,
    end: mpsc::Sender<()>,
}

/// How often it looks.
const KEEP: Duration = Duration::from_secs(1);

impl Keeper {
    pub(super) fn start(home: Arc<Home>) -> Result<Keeper, ServerError> {
        let (end, ended) = mpsc::channel();
        let kept = Arc::clone(&home);
        let thread = std::thread::Builder::new()
            .name("senko-keeper".into())
            .spawn(move || {
                while ended.recv_timeout(KEEP) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if let Err(error) = kept.keep() {
                        tracing::error!("{error}; uniques may repeat after a power failure");
                    }
                }
            })
            .map_err(|e| ServerError(format!("cannot start a thread: {e}")))?;
        Ok(Keeper { home, thread, end })
    }

    pub(super) fn end(self) -> Arc<Home> {
        drop(self.end);
        let _ = self.thread.join();
        self.home
    }
}
