// SPDX-License-Identifier: Apache-2.0
//! The versions that snapshots hold, and how the oldest one is ended. Part of `core.rs`.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::StoreError;
use crate::version::Version;

/// The blocks and logs that a snapshot holds, and those that the store may take from it.
pub(crate) struct Pin {
    version: Mutex<Option<Arc<Version>>>,
    /// Elements count up to this time.
    time: u64,
    /// Elements that had expired by then are gone. This is the clock's second, since the last write
    /// may be long ago.
    seconds: u64,
}

impl Pin {
    /// Holds a version; `time` and `seconds` say what of it counts.
    pub fn new(version: Arc<Version>, time: u64, seconds: u64) -> Pin {
        Pin {
            version: Mutex::new(Some(version)),
            time,
            seconds,
        }
    }

    /// Elements count up to this time.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Elements that had expired by this second are gone.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Ends the snapshot and gives what it held; nothing if it had ended.
    fn expire(&self) -> Option<Arc<Version>> {
        self.version.lock().take()
    }

    /// The version, if the snapshot continues.
    pub fn version(&self) -> Result<Arc<Version>, StoreError> {
        self.version
            .lock()
            .clone()
            .ok_or(StoreError::SnapshotExpired)
    }
}

/// The snapshots that there are, oldest first.
#[derive(Default)]
pub(crate) struct Pins {
    pins: Mutex<VecDeque<Weak<Pin>>>,
}

impl Pins {
    /// Adds the youngest.
    pub fn add(&self, pin: &Arc<Pin>) {
        let mut pins = self.pins.lock();
        pins.retain(|pin| pin.strong_count() > 0);
        pins.push_back(Arc::downgrade(pin));
    }

    /// Ends the oldest, and gives the version that it held; `None` if there is none.
    pub fn end_oldest(&self) -> Option<Arc<Version>> {
        let mut pins = self.pins.lock();
        while let Some(pin) = pins.pop_front() {
            if let Some(version) = pin.upgrade().and_then(|pin| pin.expire()) {
                return Some(version);
            }
        }
        None
    }
}
