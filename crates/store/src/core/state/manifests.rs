// SPDX-License-Identifier: Apache-2.0
//! The contents of the manifest, and its commits. Part of `core.rs`.

use std::sync::Arc;

use senko_io::Device;

use super::health::Health;
use crate::StoreError;
use crate::disk::space::{Held, Space};
use crate::disk::superblock::{LogRecord, Manifest, SavedIndex, Shape, Superblock};

/// The places of the next commit, and the latch that a failed commit sets.
pub(crate) struct Target<'c> {
    pub device: &'c dyn Device,
    pub space: &'c Arc<Space>,
    pub health: &'c Health,
    /// The time of the last visible write.
    pub visible: u64,
}

/// The contents of the manifest, and the right to change it.
pub(crate) struct Manifests {
    superblock: Superblock,
    manifest: Manifest,
    next_generation: u64,
    /// The saved index of the last clean close, while the manifest names it.
    saved_index: Option<Held>,
    /// Extents of logs that recovery dropped, while the manifest on flash names them.
    retired: Vec<Held>,
}

impl Manifests {
    /// The contents of the manifest.
    pub fn new(superblock: Superblock, manifest: Manifest) -> Manifests {
        Manifests {
            superblock,
            manifest,
            next_generation: 1,
            saved_index: None,
            retired: Vec::new(),
        }
    }

    /// The shape that the store was created with.
    pub fn shape(&self) -> Shape {
        self.superblock.shape
    }

    /// The manifest, as the next commit would write it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// A new number for a log or block.
    pub fn take_id(&mut self) -> u64 {
        self.manifest.next_id += 1;
        self.manifest.next_id - 1
    }

    /// The first of `count` new numbers for generations.
    pub fn take_generations(&mut self, count: u64) -> u64 {
        self.next_generation += count;
        self.next_generation - count
    }

    /// During opening: marks the place of the manifest as used.
    pub fn claim(&mut self, space: &Arc<Space>) -> Result<(), StoreError> {
        self.superblock.claim(space)
    }

    /// During opening: allocates the place of the next manifest.
    pub fn prepare(&mut self, space: &Arc<Space>) {
        self.superblock.prepare(space);
    }

    /// Keeps the space of the saved maps while the manifest on flash names them.
    pub fn hold_saved_index(&mut self, held: Held) {
        self.saved_index = Some(held);
    }

    /// During opening: keeps only the logs in `known` for the next commit. The space of the others
    /// is kept until then (SPACE-1).
    pub fn keep_logs(&mut self, known: &[u64]) {
        self.manifest.logs.retain(|log| known.contains(&log.id));
    }

    /// See [`Manifests::keep_logs`].
    pub fn retire(&mut self, logs: Vec<Held>) {
        self.retired = logs;
    }

    /// Adds an empty log, which the next commit will name.
    pub fn add_log(&mut self, id: u64, held: &Held) {
        self.manifest.logs.push(LogRecord {
            id,
            extent: held.extent(),
            pages: 0,
        });
    }

    /// Commits the manifest, as it is now.
    pub fn commit(&mut self, to: &Target<'_>) -> Result<(), StoreError> {
        to.health.check_writable()?;
        // A panic releases extents that the manifest names. The latch is set before anyone can
        // allocate them.
        let _latch = to.health.latch_on_panic();
        self.manifest.last_time = self.manifest.last_time.max(to.visible);
        self.manifest.index = None;
        self.write(to)?;
        self.saved_index = None;
        self.retired.clear();
        Ok(())
    }

    /// Commits the manifest with `change`. After a failure the manifest is as before. `kept` holds
    /// what the manifest names, and is returned when the commit is durable.
    pub fn commit_with<K>(
        &mut self,
        to: &Target<'_>,
        change: impl FnOnce(&mut Manifests) -> Result<K, StoreError>,
    ) -> Result<K, StoreError> {
        let before = self.manifest.clone();
        let named = change(self)?;
        if let Err(error) = self.commit(to) {
            self.manifest = before;
            if to.health.is_latched() {
                // The commit may have reached the device all the same. So the space that it names
                // is kept for the life of the process.
                std::mem::forget(named);
            }
            return Err(error);
        }
        Ok(named)
    }

    /// Changes the manifest; a later commit writes the change.
    pub fn edit(&mut self, change: impl FnOnce(&mut Manifest)) {
        change(&mut self.manifest);
    }

    /// Commits the manifest of a clean close, with the saved maps in `saved`. If there is no space
    /// for it, the previous state stays, which names everything but the maps.
    pub fn commit_saved(
        &mut self,
        to: &Target<'_>,
        index: SavedIndex,
        saved: Held,
    ) -> Result<(), StoreError> {
        to.health.check_writable()?;
        self.manifest.last_time = to.visible;
        self.manifest.index = Some(index);
        match self.write(to) {
            Ok(()) => {
                self.saved_index = Some(saved);
                self.retired.clear();
            }
            Err(StoreError::NoSpace(_)) => self.manifest.index = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn write(&mut self, to: &Target<'_>) -> Result<(), StoreError> {
        let written = self.superblock.commit(to.device, to.space, &self.manifest);
        written.inspect_err(|error| to.health.failed(error))
    }
}
