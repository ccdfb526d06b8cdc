// SPDX-License-Identifier: Apache-2.0
//! The record of a checkpoint in the log: everything that it names (docs/formats/dbm.md).

use crate::disk::log::Position;
use crate::disk::maps::{CHUNK, MapPlaces};
use crate::records::codec::{Reader, put_bytes, put_number};
use crate::records::table::{Catalogue, TableInfo};

/// The contents of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointRecord {
    pub commit: u64,
    /// The position from which the log is needed.
    pub replay: Position,
    /// Long values from this entry on are not in the translation table.
    pub began: u64,
    pub next_node: u32,
    pub next_blob: u32,
    pub next_table: u32,
    pub maps: MapPlaces,
    pub catalogue: Catalogue,
    /// A random number of the database.
    pub database: u64,
}

impl CheckpointRecord {
    pub fn empty(database: u64) -> CheckpointRecord {
        CheckpointRecord {
            commit: 0,
            replay: Position::START,
            began: Position::START.sequence,
            next_node: 0,
            next_blob: 0,
            next_table: 1,
            maps: MapPlaces::default(),
            catalogue: Vec::new(),
            database,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend_from_slice(&self.commit.to_le_bytes());
        to.extend_from_slice(&self.replay.page.to_le_bytes());
        to.extend_from_slice(&self.replay.sequence.to_le_bytes());
        to.extend_from_slice(&self.replay.previous.to_le_bytes());
        to.extend_from_slice(&self.began.to_le_bytes());
        for number in [self.next_node, self.next_blob, self.next_table] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        for places in [&self.maps.nodes, &self.maps.blobs] {
            put_number(&mut to, places.len() as u64);
            for place in places {
                to.extend_from_slice(&place.to_le_bytes());
            }
        }
        put_number(&mut to, self.catalogue.len() as u64);
        for table in &self.catalogue {
            put_number(&mut to, u64::from(table.id));
            put_number(&mut to, u64::from(table.root));
            put_number(&mut to, table.count);
            put_bytes(&mut to, table.name.as_bytes());
        }
        to.extend_from_slice(&self.database.to_le_bytes());
        to
    }

    pub fn decode(bytes: &[u8]) -> Option<CheckpointRecord> {
        let mut from = Reader(bytes);
        let commit = from.u64()?;
        let replay = Position {
            page: from.u64()?,
            sequence: from.u64()?,
            previous: from.u32()?,
        };
        let began = from.u64()?;
        let (next_node, next_blob, next_table) = (from.u32()?, from.u32()?, from.u32()?);
        let places = |from: &mut Reader<'_>| {
            let count = usize::try_from(from.number()?).ok()?;
            (0..count).map(|_| from.u64()).collect::<Option<Vec<u64>>>()
        };
        let nodes = places(&mut from)?;
        let blobs = places(&mut from)?;
        let mut catalogue = Catalogue::new();
        for _ in 0..from.number()? {
            catalogue.push(TableInfo {
                id: from.number()?.try_into().ok()?,
                root: from.number()?.try_into().ok()?,
                count: from.number()?,
                name: std::str::from_utf8(from.bytes()?).ok()?.into(),
            });
        }
        let database = from.u64()?;
        from.0.is_empty().then_some(CheckpointRecord {
            commit,
            replay,
            began,
            next_node,
            next_blob,
            next_table,
            maps: MapPlaces { nodes, blobs },
            catalogue,
            database,
        })
    }

    /// Whether its numbers are ones that a database may have, in which pages and parts of long
    /// values have numbers below `most`.
    pub fn is_sound(&self, most: u32) -> bool {
        let parts = |next: u32| next.div_ceil(CHUNK) as usize;
        let tables = &self.catalogue;
        let are_ascending = tables.windows(2).all(|pair| pair[0].id < pair[1].id);
        self.replay.sequence > 0
            && self.next_node <= most
            && self.next_blob <= most
            && self.maps.nodes.len() <= parts(self.next_node)
            && self.maps.blobs.len() <= parts(self.next_blob)
            && are_ascending
            && tables
                .iter()
                .all(|table| table.id < u32::MAX && table.root < self.next_node)
    }
}
