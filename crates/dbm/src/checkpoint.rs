// SPDX-License-Identifier: Apache-2.0
//! Checkpoints: the pages that changed, the changed parts of the translation table, and one record
//! that names all. Then the log in front of it is free.
//!
//! A checkpoint is of a commit C: it opens a snapshot of C, and commits go on meanwhile. Pages go
//! to the log merged, as they are at C. A crash
//! before the superblock names the checkpoint leaves the one before, of which nothing was
//! overwritten.
//!
//! K1: what a durable checkpoint names is whole on the device. K2: all commits behind C stand in
//! the log at or behind the checkpoint's replay position.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::DbmError;
use crate::apply::CHUNK;
use crate::codec::{Reader, put_bytes, put_number};
use crate::core::{Catalogue, Core, MapPlaces, Seen, TableInfo};
use crate::entry::Kind;
use crate::log::{Label, Position, append_bytes};
use crate::mapping::Version;
use crate::node::Page;
use crate::superblock::Superblock;

/// Pages that are written under one hold of the log's lock.
const AT_A_TIME: usize = 16;

/// What a checkpoint says.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub commit: u64,
    /// Where the log goes on that has the commits behind it.
    pub replay: Position,
    pub next_node: u32,
    pub next_blob: u32,
    pub next_table: u32,
    pub maps: MapPlaces,
    pub catalogue: Catalogue,
}

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend_from_slice(&self.commit.to_le_bytes());
        to.extend_from_slice(&self.replay.page.to_le_bytes());
        to.extend_from_slice(&self.replay.sequence.to_le_bytes());
        to.extend_from_slice(&self.replay.previous.to_le_bytes());
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
        to
    }

    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let mut from = Reader(bytes);
        let commit = from.u64()?;
        let replay = Position {
            page: from.u64()?,
            sequence: from.u64()?,
            previous: from.u32()?,
        };
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
        from.0.is_empty().then_some(Record {
            commit,
            replay,
            next_node,
            next_blob,
            next_table,
            maps: MapPlaces { nodes, blobs },
            catalogue,
        })
    }
}

/// What changed since the last checkpoint began.
struct Changed {
    pages: HashSet<u32>,
    nodes: HashSet<u32>,
    blobs: HashSet<u32>,
}

impl Core {
    /// Writes a checkpoint.
    pub fn checkpoint(self: &Arc<Core>) -> Result<(), DbmError> {
        let mut maps = self.maintenance.lock();
        self.checkpoint_held(&mut maps)
    }

    pub fn checkpoint_held(self: &Arc<Core>, maps: &mut MapPlaces) -> Result<(), DbmError> {
        self.check()?;
        self.expire();
        self.sweep();
        self.write_checkpoint(maps)
            .inspect_err(|error| self.latch(error))?;
        self.sweep();
        Ok(())
    }

    /// Ends the snapshots that are too old.
    fn expire(&self) {
        let Some(most) = self.options.max_snapshot_age else {
            return;
        };
        self.registry.lock().open.retain(|_, open| {
            let young = open.since.elapsed() <= most;
            if !young {
                open.expired.store(true, Ordering::Release);
            }
            young
        });
    }

    fn write_checkpoint(self: &Arc<Core>, maps: &mut MapPlaces) -> Result<(), DbmError> {
        let (seen, mut record, changed, number) = self.begin_checkpoint()?;
        self.write_pages(&changed.pages, seen.commit)?;
        let nodes = self.node_map(&changed.nodes, seen.commit)?;
        let blobs = self.blob_map(&changed);
        let mut next = maps.clone();
        let mut old = self.write_map(&mut next.nodes, nodes)?;
        old.extend(self.write_map(&mut next.blobs, blobs)?);
        record.maps = next.clone();
        let bytes = record.encode();
        {
            let mut log = self.log.lock();
            self.check()?;
            let at = log.position();
            append_bytes(&mut log, Kind::Checkpoint, record.commit, true, &bytes)?;
            log.sync()?;
            let written = self.written.load(Ordering::Acquire).max(record.commit);
            Superblock {
                checkpoint: number,
                at,
                pages: self.device.pages(),
            }
            .write(&*self.device)?;
            self.written.fetch_max(written, Ordering::AcqRel);
            self.durable.fetch_max(written, Ordering::AcqRel);
            log.checkpoint = number;
            log.written = 0;
            for place in old {
                self.space.release(place);
            }
            let open = log.open_segments();
            self.space.reclaim(number, record.replay.sequence, &open);
        }
        self.due.store(0, Ordering::Relaxed);
        *maps = next;
        Ok(())
    }

    /// Fixes the commit of the checkpoint and the place from which the log is replayed.
    fn begin_checkpoint(self: &Arc<Core>) -> Result<(Seen, Record, Changed, u64), DbmError> {
        let mut log = self.log.lock();
        loop {
            self.write_pending(&mut log, false)?;
            let mut writer = self.writer.lock();
            if !writer.pending.blobs.is_empty() {
                // A long value that a page of the checkpoint names must be in the log first.
                continue;
            }
            self.turn_tail(&log, &mut writer);
            let (seen, _) = self.see();
            let record = Record {
                commit: seen.commit,
                replay: log.position(),
                next_node: writer.ids.next,
                next_blob: writer.blob_ids.next,
                next_table: writer.next_table,
                maps: MapPlaces::default(),
                catalogue: seen.catalogue.to_vec(),
            };
            let changed = Changed {
                pages: std::mem::take(&mut writer.dirty),
                nodes: std::mem::take(&mut writer.changed),
                blobs: std::mem::take(&mut writer.changed_blobs),
            };
            writer.born.clear();
            self.due.store(changed.pages.len(), Ordering::Relaxed);
            self.dirty.store(0, Ordering::Relaxed);
            let number = self.space.started.fetch_add(1, Ordering::AcqRel) + 1;
            return Ok((seen, record, changed, number));
        }
    }

    /// Writes the pages that have no place in the log.
    fn write_pages(&self, pages: &HashSet<u32>, commit: u64) -> Result<(), DbmError> {
        let mut due: Vec<(Arc<Version>, Arc<Page>)> = Vec::new();
        let mut ids: Vec<u32> = pages.iter().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(version) = self.version_at(id, commit)
                && version.place() == 0
                && let Some(page) = version.body.load_full()
            {
                due.push((version, page));
            }
            if due.len() == AT_A_TIME {
                self.write_images(&mut due)?;
            }
        }
        self.write_images(&mut due)
    }

    /// Writes pages merged, and gives their versions their places.
    pub fn write_images(&self, due: &mut Vec<(Arc<Version>, Arc<Page>)>) -> Result<(), DbmError> {
        let mut log = self.log.lock();
        self.check()?;
        let mut placed = Vec::with_capacity(due.len());
        for (version, page) in due.drain(..) {
            let label = Label {
                kind: Kind::Node,
                commit: version.commit,
                left: 0,
                first: true,
            };
            let place = log.append(label, |body| {
                body.copy_from_slice(&page.bytes()[crate::entry::HEAD..]);
                body.len()
            })?;
            placed.push((version, place));
        }
        log.write_out()?;
        for (version, place) in placed {
            version.set_place(place);
        }
        Ok(())
    }

    /// The version that a commit sees; none if the page is not there.
    pub fn version_at(&self, id: u32, commit: u64) -> Option<Arc<Version>> {
        let mut at = self.nodes.get(id)?.load_full();
        while let Some(version) = at {
            if version.commit <= commit {
                return (!version.freed).then_some(version);
            }
            at = version.older.load_full();
        }
        None
    }

    /// The words of changed chunks, as of a commit.
    fn node_map(&self, chunks: &HashSet<u32>, commit: u64) -> Result<Words, DbmError> {
        let mut words = Words::new();
        for &chunk in chunks {
            let mut places = Vec::with_capacity(CHUNK as usize);
            for id in chunk * CHUNK..(chunk + 1) * CHUNK {
                let place = match self.version_at(id, commit) {
                    None => 0,
                    Some(version) => match version.place() {
                        0 => {
                            let what = format!("page {id} was changed and not written");
                            return Err(DbmError::damaged(0, what));
                        }
                        place => place,
                    },
                };
                places.push(place);
            }
            words.push((chunk, places));
        }
        Ok(words)
    }

    fn blob_map(&self, changed: &Changed) -> Words {
        let later: Vec<(u32, u32)> = {
            let writer = self.writer.lock();
            // What was born since the checkpoint began is no part of it.
            let born = writer.born.iter();
            born.map(|(first, (_, count))| (*first, *count)).collect()
        };
        let words = |chunk: u32| {
            (chunk * CHUNK..(chunk + 1) * CHUNK)
                .map(
                    |id| match later.iter().any(|(f, c)| (*f..f + c).contains(&id)) {
                        true => 0,
                        false => self.blobs.at(id).load(Ordering::Acquire),
                    },
                )
                .collect()
        };
        changed
            .blobs
            .iter()
            .map(|&chunk| (chunk, words(chunk)))
            .collect()
    }

    /// Writes chunks of the table; gives the places that they had.
    fn write_map(&self, places: &mut Vec<u64>, words: Words) -> Result<Vec<u64>, DbmError> {
        let mut old = Vec::new();
        for (chunk, words) in words {
            let mut log = self.log.lock();
            self.check()?;
            let label = Label {
                kind: Kind::Map,
                commit: 0,
                left: 0,
                first: true,
            };
            let place = log.append(label, |body| {
                for (nth, word) in words.iter().enumerate() {
                    body[nth * 8..nth * 8 + 8].copy_from_slice(&word.to_le_bytes());
                }
                words.len() * 8
            })?;
            log.write_out()?;
            self.space.hold(place);
            let nth = chunk as usize;
            if places.len() <= nth {
                places.resize(nth + 1, 0);
            }
            old.push(std::mem::replace(&mut places[nth], place));
        }
        Ok(old)
    }
}

/// Chunks of the translation table: the number, and the words.
type Words = Vec<(u32, Vec<u64>)>;
