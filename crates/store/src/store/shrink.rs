// SPDX-License-Identifier: Apache-2.0
//! Shrinking a store: free space goes back to the file system, on request or after it was unused
//! for a while.
//!
//! ```text
//! what must stay -> cut off the end -> manifest with the coming holes -> punch
//! ```
//!
//! After a crash at any point, the manifest may name holes that do not exist, but never misses one
//! (SPACE-4 of `space.rs`). The space that deletes and compaction need keeps its storage (SPACE-5).
//! So a store can be emptied on a file system that other files fill.

use crate::core::Core;
use crate::core::state::logs::Writer;
use crate::disk::superblock::Manifest;
use crate::{Store, StoreError};

/// Bytes that stay free in an empty store, for the manifests and maps of a close.
const LEAST_KEPT: u64 = 1 << 20;

/// The result of [`Store::shrink`], in bytes returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shrunk {
    /// Bytes cut off the file's end.
    pub cut: u64,
    /// Bytes that became holes in the file.
    pub punched: u64,
}

impl Store {
    /// Gives free space back to the file system: the file's end is cut off, and other free parts
    /// become holes. The space that deletes and compaction need stays. [`Store::compact`] before it
    /// frees the most. A block device keeps its size, and is told what is free (discard).
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// store.compact()?;
    /// let shrunk = store.shrink()?;
    /// println!("{} bytes shorter, {} bytes in holes", shrunk.cut, shrunk.punched);
    /// assert!(store.contains(b"colour")?);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The device fails, or the store is closed. If there is no space to write the manifest, the
    /// store keeps its free space and returns no error.
    pub fn shrink(&self) -> Result<Shrunk, StoreError> {
        self.core.shrink(None)
    }
}

impl Core {
    /// Gives back free space: all of it, or `most` bytes.
    pub fn shrink(&self, most: Option<u64>) -> Result<Shrunk, StoreError> {
        self.health.check_takes_writes()?;
        let writer = self.writer.lock();
        // The turn prevents seals and compactions meanwhile, which would make the file grow again.
        let _working = self.requests.block_work();
        if most.is_none() {
            match self.give_up_spare(&writer) {
                Err(StoreError::NoSpace(_)) => {}
                other => other?,
            }
        }
        let mut keep = LEAST_KEPT.max(self.kept_bytes(&writer));
        if let Some(most) = most {
            keep = keep.max(self.space.stored_bytes().saturating_sub(most));
        }
        let cut = self
            .space
            .release(keep)
            .map_err(|error| self.failed(error))?;
        drop(writer);
        if let Err(error) = self.commit() {
            self.space.keep_storage();
            return Err(error);
        }
        // A failure here leaves a hole that may still have storage. No state is unknown.
        let punched = self.space.punch()?;
        Ok(Shrunk { cut, punched })
    }

    /// Releases the next log if it can wait. The manifest without it is durable first (SPACE-1).
    fn give_up_spare(&self, writer: &Writer) -> Result<(), StoreError> {
        if writer
            .active()
            .is_some_and(|active| self.soon_full(&active))
        {
            return Ok(());
        }
        let Some(spare) = self.spare.take() else {
            return Ok(());
        };
        let forget = |manifest: &mut Manifest| {
            manifest.logs.retain(|log| log.id != spare.log.id());
        };
        let done = self
            .manifests
            .lock()
            .commit_with(&self.target(), |manifests| {
                manifests.edit(forget);
                Ok(())
            });
        done.inspect_err(|_| self.spare.put(spare))
    }

    /// Gives back space that was unused for [`crate::Options::shrink_after`]. A failure does not
    /// end writing: only the space is missing.
    pub fn shrink_if_idle(&self) {
        let Some(window) = self.options.shrink_after else {
            return;
        };
        if let Some(bytes) = self.space.idle_bytes(window) {
            let _ = self.shrink(Some(bytes));
        }
    }
}
