// SPDX-License-Identifier: Apache-2.0
//! The thread that writes to the data directory while a server serves; `server.rs` starts and ends
//! it.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ServerError;
use super::data_dir::DataDir;

/// The thread that reserves CAS values ahead. It may wait for a disk; a worker may not.
#[derive(Debug)]
pub(super) struct Keeper {
    data_dir: Arc<DataDir>,
    thread: JoinHandle<()>,
    end: mpsc::Sender<()>,
}

const KEEP: Duration = Duration::from_secs(1);

impl Keeper {
    pub(super) fn start(data_dir: Arc<DataDir>) -> Result<Keeper, ServerError> {
        let (end, ended) = mpsc::channel();
        let kept = Arc::clone(&data_dir);
        let thread = std::thread::Builder::new()
            .name("senko-keeper".into())
            .spawn(move || {
                while ended.recv_timeout(KEEP) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if let Err(error) = kept.keep() {
                        tracing::error!("{error}; CAS values may repeat after a power failure");
                    }
                }
            })
            .map_err(|e| ServerError(format!("cannot start a thread: {e}")))?;
        Ok(Keeper {
            data_dir,
            thread,
            end,
        })
    }

    pub(super) fn end(self) -> Arc<DataDir> {
        drop(self.end);
        let _ = self.thread.join();
        self.data_dir
    }
}
