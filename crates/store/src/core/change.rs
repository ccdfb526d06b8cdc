// SPDX-License-Identifier: Apache-2.0
//! A change of the sealed part of the store. It is applied to the manifest and to the version that
//! readers see.
//!
//! [`Core::replace_blocks`] carries it out: into the manifest, durable, and only then into the
//! version (CHANGE-1).

use std::collections::HashMap;
use std::sync::Arc;

use crate::StoreError;
use crate::core::Core;
use crate::core::version::{BlockHandle, Generation, Member, Version};
use crate::disk::superblock::Manifest;
use crate::index::ShardMap;

/// A change of the sealed part of the store.
pub(crate) struct Change {
    pub sealed_logs: Vec<u64>,
    /// The blocks to remove.
    pub removed: Vec<Member>,
    /// Blocks to add, which together form one generation.
    pub added: Vec<Arc<BlockHandle>>,
    /// The generation's maps, one a shard.
    pub maps: Vec<ShardMap>,
    pub min_time: u64,
    pub max_time: u64,
    pub elements: u64,
}

impl Change {
    /// Adds the new blocks to the manifest, and removes the old ones from it. The other blocks'
    /// counts of live elements are brought up to date, from `version`.
    pub fn enter(&self, manifest: &mut Manifest, version: &Version) {
        let gone = |id: u64| self.removed.iter().any(|removed| removed.id == id);
        manifest
            .logs
            .retain(|log| !self.sealed_logs.contains(&log.id));
        manifest.blocks.retain(|(record, _)| !gone(record.id));
        refresh_live(manifest, version);
        for handle in &self.added {
            manifest
                .blocks
                .push((*handle.block.record(), handle.live()));
        }
    }

    /// Shows the new blocks in the version, as the generation with that number, and no longer shows
    /// the old ones.
    pub fn apply(self, version: &mut Version, generation: u64) {
        version
            .logs
            .retain(|log| !self.sealed_logs.contains(&log.log.id()));
        if !self.added.is_empty() {
            let added = self.added.into_iter();
            let members = added.map(|handle| version.add_block(handle));
            let generation = Arc::new(Generation {
                id: generation,
                members: members.collect(),
                min_time: self.min_time,
                max_time: self.max_time,
                elements: self.elements,
            });
            for (shard, map) in self.maps.into_iter().enumerate() {
                version.add_map(shard, &generation, map);
            }
        }
        for member in self.removed {
            version.remove_block(member);
        }
    }
}

/// Brings the manifest's counts of live elements up to date.
pub(crate) fn refresh_live(manifest: &mut Manifest, version: &Version) {
    let live: HashMap<u64, u64> = version
        .blocks()
        .map(|(member, handle)| (member.id, handle.live()))
        .collect();
    for (record, count) in &mut manifest.blocks {
        *count = live.get(&record.id).copied().unwrap_or(*count);
    }
}

impl Core {
    /// Swaps in a version with `change`, after the manifest with the same change is durable
    /// (CHANGE-1).
    pub fn replace_blocks(&self, change: Change) -> Result<(), StoreError> {
        let mut manifests = self.manifests.lock();
        let (change, spare) = manifests.commit_with(&self.target(), |manifests| {
            manifests.edit(|manifest| change.enter(manifest, &self.current()));
            // One more record in the same commit costs nothing. Without space for a log none is
            // prepared, and the writer that needs it makes room.
            let writer = self.writer.try_lock();
            let wanted = !self.spare.is_there()
                && writer
                    .as_ref()
                    .is_some_and(|writer| self.room_for_spare(writer));
            let spare = wanted.then(|| self.enter_log(manifests));
            Ok((change, spare.and_then(Result::ok)))
        })?;
        if let Some(spare) = spare {
            self.spare.put(spare);
        }
        let generation = manifests.take_generations(1);
        self.view.publish(|next| change.apply(next, generation));
        Ok(())
    }
}
