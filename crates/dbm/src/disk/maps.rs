// SPDX-License-Identifier: Apache-2.0
//! What the newest durable checkpoint names.

use crate::disk::space::Space;
use crate::disk::superblock::Superblock;

/// Numbers of one chunk of the translation table as it lies in the log.
pub(crate) const CHUNK: u32 = 500;

/// Chunks of the translation table: the number, and the words.
pub(crate) type Words = Vec<(u32, Vec<u64>)>;

/// Where the translation table lies in the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapPlaces {
    pub nodes: Vec<u64>,
    pub blobs: Vec<u64>,
}

/// The contents of the newest durable checkpoint, and of the one under way as far as it is written.
pub(crate) struct Maps {
    superblock: Superblock,
    places: MapPlaces,
    /// The place of each page of a tree.
    nodes: Vec<u64>,
    /// The place of each part of a long value.
    blobs: Vec<u64>,
}

impl Maps {
    /// What a checkpoint names. Everything counts as named in the space.
    pub fn new(
        superblock: Superblock,
        places: MapPlaces,
        nodes: Vec<u64>,
        blobs: Vec<u64>,
    ) -> Maps {
        Maps {
            superblock,
            places,
            nodes,
            blobs,
        }
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub fn places(&self) -> &MapPlaces {
        &self.places
    }

    /// The place of a page; 0 if it has none.
    pub fn node(&self, id: u32) -> u64 {
        self.nodes.get(id as usize).copied().unwrap_or(0)
    }

    /// The chunks of pages and of long values that lie at a place.
    pub fn chunks_at(&self, place: u64) -> (Option<u32>, Option<u32>) {
        let find = |all: &[u64]| all.iter().position(|at| *at == place).map(|nth| nth as u32);
        (find(&self.places.nodes), find(&self.places.blobs))
    }

    /// Names the places of changed chunks; former places go into `old`.
    pub fn name(&mut self, nodes: Words, blobs: Words, space: &Space, old: &mut Vec<u64>) {
        for (named, words) in [(&mut self.nodes, nodes), (&mut self.blobs, blobs)] {
            for (chunk, words) in words {
                let first = (chunk * CHUNK) as usize;
                if named.len() < first + words.len() {
                    named.resize(first + words.len(), 0);
                }
                for (named, word) in named[first..].iter_mut().zip(words) {
                    if *named != word {
                        space.name(word);
                        old.push(std::mem::replace(named, word));
                    }
                }
            }
        }
    }

    /// The checkpoint is durable.
    pub fn become_durable(&mut self, superblock: Superblock, places: MapPlaces) {
        self.superblock = superblock;
        self.places = places;
    }
}
