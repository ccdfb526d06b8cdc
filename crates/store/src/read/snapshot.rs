// SPDX-License-Identifier: Apache-2.0
//! Snapshots: a version that is held, and the time up to which its elements count.
//!
//! Making a snapshot costs nothing. It keeps the blocks and logs that it can reach. If a write
//! would be refused without the space that only snapshots hold, the oldest one ends. From then on
//! its calls fail with [`StoreError::SnapshotExpired`]. The background ends none.

use std::sync::Arc;

use crate::StoreError;
use crate::core::Core;
use crate::core::state::pins::Pin;
use crate::read::scan::Scan;
use crate::read::value::{Entry, Value};

/// How often work begins again whose snapshot was ended.
const TRIES: u32 = 100;

/// Does work that takes a snapshot of its own. If a write needed the snapshot's space, the work
/// begins again with a new one.
pub(crate) fn again_if_ended<T>(
    mut work: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    for _ in 1..TRIES {
        match work() {
            Err(StoreError::SnapshotExpired) => {}
            other => return other,
        }
    }
    work()
}

/// The store as it was at one moment.
///
/// ```
/// # let store = senko_store::example::store();
/// store.put(b"key", b"old")?;
/// let snapshot = store.snapshot()?;
/// store.put(b"key", b"new")?;
/// assert_eq!(snapshot.get(b"key")?.as_deref(), Some(&b"old"[..]));
/// assert_eq!(store.get(b"key")?.as_deref(), Some(&b"new"[..]));
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    core: Arc<Core>,
    pin: Arc<Pin>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.pin.time())
    }
}

impl Snapshot {
    pub(crate) fn new(core: &Arc<Core>) -> Snapshot {
        let (version, time) = core.view.moment();
        let pin = Arc::new(Pin::new(version, time, core.options.clock.seconds()));
        core.pins.add(&pin);
        Snapshot {
            core: Arc::clone(core),
            pin,
        }
    }

    pub(crate) fn pin(&self) -> &Pin {
        &self.pin
    }

    /// The snapshot's moment: the time of the last write that it shows.
    pub fn time(&self) -> u64 {
        self.pin.time()
    }

    /// The value of a key at that moment.
    ///
    /// # Errors
    /// [`StoreError::SnapshotExpired`] if the snapshot has ended; otherwise as
    /// [`crate::Store::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// The value of a key, with its times.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        let version = self.pin.version()?;
        let seconds = Some(self.pin.seconds());
        let terms = self.core.bounded(self.pin.time());
        self.core.get_in(&version, key, terms, seconds)
    }

    /// The values of many keys, read concurrently.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Vec<Result<Option<Value>, StoreError>> {
        match self.pin.version() {
            Ok(version) => {
                let seconds = Some(self.pin.seconds());
                let terms = self.core.bounded(self.pin.time());
                self.core.multi_get_in(&version, keys, terms, seconds)
            }
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Everything in the snapshot, in an order without meaning.
    ///
    /// # Errors
    /// [`StoreError::SnapshotExpired`], or a failing device.
    pub fn scan(&self) -> Result<Scan, StoreError> {
        Scan::new(Arc::clone(&self.core), Arc::clone(&self.pin))
    }
}
