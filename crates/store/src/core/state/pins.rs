// SPDX-License-Identifier: Apache-2.0
//! The versions that snapshots hold, and the end of the oldest one. Part of `core.rs`.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::StoreError;
use crate::core::version::Version;

/// The blocks and logs that a snapshot holds, which the store may take back.
pub(crate) struct Pin {
    version: Mutex<Option<Arc<Version>>>,
    /// The snapshot shows elements up to this time.
    time: u64,
    /// Elements that had expired by this second are not shown. This is the clock's second, since
    /// the last write may be long ago.
    seconds: u64,
}

impl Pin {
    /// Holds a version. `time` and `seconds` limit what the snapshot shows of it.
    pub fn new(version: Arc<Version>, time: u64, seconds: u64) -> Pin {
        Pin {
            version: Mutex::new(Some(version)),
            time,
            seconds,
        }
    }

    /// The snapshot shows elements up to this time.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Elements that had expired by this second are not shown.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Ends the snapshot; false if it had ended.
    fn expire(&self) -> bool {
        self.version.lock().take().is_some()
    }

    /// The version, if the snapshot has not ended.
    pub fn version(&self) -> Result<Arc<Version>, StoreError> {
        self.version
            .lock()
            .clone()
            .ok_or(StoreError::SnapshotExpired)
    }
}

/// The existing snapshots, oldest first.
#[derive(Default)]
pub(crate) struct Pins {
    pins: Mutex<VecDeque<Weak<Pin>>>,
}

impl Pins {
    /// Adds the youngest snapshot.
    pub fn add(&self, pin: &Arc<Pin>) {
        let mut pins = self.pins.lock();
        pins.retain(|pin| pin.strong_count() > 0);
        pins.push_back(Arc::downgrade(pin));
    }

    /// Ends the oldest snapshot; false if there is none.
    pub fn end_oldest(&self) -> bool {
        let mut pins = self.pins.lock();
        while let Some(pin) = pins.pop_front() {
            if pin.upgrade().is_some_and(|pin| pin.expire()) {
                return true;
            }
        }
        false
    }
}
