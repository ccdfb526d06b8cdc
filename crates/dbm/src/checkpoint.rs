// SPDX-License-Identifier: Apache-2.0
//! Checkpoints write changed pages, the changed parts of the translation table, and one record that
//! names all of them. After that, the part of the log that only these pages needed is free.
//!
//! A checkpoint is of a commit C: it opens a snapshot of C, and commits continue meanwhile. Pages
//! are written in their state at C. A crash before the superblock names the checkpoint leaves the
//! previous one, of which nothing was overwritten.
//!
//! Card: a checkpoint writes only a part of the changed pages, those that changed first (a fuzzy
//! checkpoint in rounds; ARIES, Mohan et al. 1992, does similar with page LSNs). So a checkpoint
//! needs only a fraction of the database's space. Leaves that are not written keep their older
//! places. Each page in the log names the commit whose state it has. Recovery applies only the
//! missing commits to a leaf (`catch_up.rs`). That works because the shape of the trees is that of
//! C: pages that split, merged or are new are always written (`dirty.rs`, DIRTY-2).
//! Deviation: changes are logged by key, so recovery looks the leaf up, and needs no log record for
//! each page.
//!
//! CHECKPOINT-1: everything that a durable checkpoint names is complete on the device.
//! CHECKPOINT-2: only leaves of the checkpoint can lack commits, and these commits are in the log
//! at or after the checkpoint's replay position. CHECKPOINT-3: all commits up to C are in the log
//! before the checkpoint's record.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashSet;

use crate::DbmError;
use crate::codec::{Reader, put_bytes, put_number};
use crate::core::{Core, Entry, MapPlaces, Maps, Seen};
use crate::dirty::Began;
use crate::entry::{Kind, page_of};
use crate::log::{Label, Position, append_bytes};
use crate::mapping::Version;
use crate::node::Page;
use crate::space::SEGMENT;
use crate::superblock::Superblock;
use crate::table::{Catalogue, TableInfo};
use crate::writer::CHUNK;

/// Pages that are written at a time.
const AT_A_TIME: usize = 16;

/// A checkpoint of this many pages writes them separately from the log. A segment for fewer would
/// make a small database larger.
const APART: usize = SEGMENT as usize;

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

/// What a checkpoint writes.
struct Changed {
    pages: FxHashSet<u32>,
    nodes: FxHashSet<u32>,
    blobs: FxHashSet<u32>,
}

/// A checkpoint under way.
struct Begun {
    seen: Seen,
    record: CheckpointRecord,
    changed: Changed,
    number: u64,
    /// Entries of changes that the log had had at its replay position.
    replayed: u64,
}

impl Core {
    /// Writes everything that has changed, in as many checkpoints as necessary.
    pub fn checkpoint(self: &Arc<Core>) -> Result<(), DbmError> {
        let mut maps = self.maintenance.lock();
        let mut left = self.dirty.load(Ordering::Relaxed);
        loop {
            // As many pages as there is room for, so that there are few checkpoints.
            let kept = self.shaped.load(Ordering::Relaxed) + 2 * SEGMENT as usize;
            let room = self.space.free() * SEGMENT as usize;
            let most = self.step().max(room.saturating_sub(kept));
            self.checkpoint_held(&mut maps, most)?;
            if left <= most {
                break;
            }
            left -= most;
        }
        // A free end must stay free for one checkpoint. The next one cuts it.
        if self.space.has_idle_end(u64::MAX, self.spare_segments()) {
            self.checkpoint_held(&mut maps, 0)?;
            if self.cut_end()? {
                self.checkpoint_held(&mut maps, 0)?;
            }
        }
        Ok(())
    }

    /// Writes a checkpoint of the pages that it must write, and of `most` others.
    pub fn checkpoint_held(self: &Arc<Core>, maps: &mut Maps, most: usize) -> Result<(), DbmError> {
        self.check()?;
        self.expire();
        self.sweep();
        let most = self.room_for_checkpoint(most)?;
        self.write_checkpoint(maps, most)
            .inspect_err(|error| self.latch(error))?;
        self.sweep();
        Ok(())
    }

    /// How many of `most` pages there is room for. An error if there is no room for those that must
    /// be written. Then nothing was done, and a later call may find room.
    fn room_for_checkpoint(&self, most: usize) -> Result<usize, DbmError> {
        let most = most.min(self.dirty.load(Ordering::Relaxed));
        let mut least = self.least_checkpoint() as usize;
        if least + most < APART + SEGMENT as usize {
            // All of it goes to the log.
            least -= SEGMENT as usize;
        }
        let open = self.images.lock().left() + self.log.lock().left();
        let have = || self.space.free() * SEGMENT as usize + open;
        if have() < least + most {
            let missing = (least + most - have()).div_ceil(SEGMENT as usize);
            match self.space.grow(missing as u64) {
                Err(DbmError::NoSpace(_)) => {}
                done => done?,
            }
        }
        match have().checked_sub(least) {
            Some(room) => Ok(most.min(room)),
            None => Err(DbmError::NoSpace((least - have()) as u64)),
        }
    }

    /// Ends the snapshots that are too old.
    fn expire(&self) {
        let Some(most) = self.options.max_snapshot_age else {
            return;
        };
        let is_old = |open: &Entry| open.since.elapsed() > most;
        let ended = self.registry.lock().expire(is_old);
        drop(ended);
    }

    fn write_checkpoint(self: &Arc<Core>, maps: &mut Maps, most: usize) -> Result<(), DbmError> {
        let Begun {
            seen,
            mut record,
            mut changed,
            number,
            replayed,
        } = self.begin_checkpoint(most, &maps.nodes)?;
        let chunks = changed.pages.iter().map(|id| id / CHUNK);
        changed.nodes.extend(chunks);
        let count = changed.pages.len() + changed.nodes.len() + changed.blobs.len();
        let apart = count >= APART;
        self.begin_images();
        self.write_pages(&changed.pages, seen.commit, apart)?;
        let nodes = self.node_map(&changed.nodes, seen.commit, &maps.nodes)?;
        let blobs = self.blob_map(&changed, seen.commit);
        let mut places = maps.places.clone();
        let mut old = Vec::new();
        self.write_map(&mut places.nodes, &nodes, &mut old, apart)?;
        self.write_map(&mut places.blobs, &blobs, &mut old, apart)?;
        self.images.lock().flush()?;
        self.name(&mut maps.nodes, nodes, &mut old);
        self.name(&mut maps.blobs, blobs, &mut old);
        record.maps = places.clone();
        let (at, written) = {
            let mut log = self.log.lock();
            // CHECKPOINT-3. Threads that wait for these commits are served by the same flush.
            self.write_pending(&mut log, false)?;
            let at = log.position();
            append_bytes(
                &mut log,
                Kind::Checkpoint,
                record.commit,
                true,
                &record.encode(),
            )?;
            let written = self.written.load(Ordering::Acquire).max(record.commit);
            log.sync()?;
            self.written.fetch_max(written, Ordering::AcqRel);
            self.durable.fetch_max(written, Ordering::AcqRel);
            (at, log.written)
        };
        let superblock = Superblock {
            checkpoint: number,
            at,
            // The end is first left out of the superblock, then cut.
            pages: u64::from(self.space.segments()) * SEGMENT,
        };
        superblock.write(&*self.device)?;
        maps.superblock = Some(superblock);
        maps.places = places;
        let pages = self.images.lock().open_segment();
        let mut log = self.log.lock();
        // As of now: a segment that the log takes later must not count as free.
        let mut open = log.open_segments();
        open.extend(pages);
        log.checkpoint = number;
        log.mark();
        log.written -= written;
        log.replayed = replayed;
        for place in old {
            self.space.unname(place);
        }
        self.space.reclaim(number, record.replay.sequence, &open);
        drop(log);
        self.due.store(0, Ordering::Relaxed);
        self.space.remove_end();
        self.punch();
        Ok(())
    }

    /// Decides the commit of the checkpoint, its pages, and the log's replay position.
    fn begin_checkpoint(self: &Arc<Core>, most: usize, named: &[u64]) -> Result<Begun, DbmError> {
        let mut log = self.log.lock();
        loop {
            self.write_pending(&mut log, false)?;
            let mut writer = self.writer.lock();
            if !writer.pending.blobs.is_empty() {
                // A long value that a page of the checkpoint names must be in the log first.
                continue;
            }
            self.turn_tail(&log, &mut writer);
            let seen = self.see();
            let number = self.space.started.fetch_add(1, Ordering::AcqRel) + 1;
            log.begun = log.changes;
            let began = Began {
                number,
                position: log.position(),
                changes: log.changes,
            };
            let (pages, replay) = writer.dirty.begin(began, most, |id| {
                named.get(id as usize).copied().map_or(0, page_of)
            });
            let record = CheckpointRecord {
                commit: seen.commit,
                replay: replay.position,
                began: began.position.sequence,
                next_node: writer.ids.next,
                next_blob: writer.blob_ids.next,
                next_table: writer.next_table,
                maps: MapPlaces::default(),
                catalogue: seen.catalogue.to_vec(),
                database: log.database,
            };
            self.due.store(pages.len(), Ordering::Relaxed);
            self.dirty.store(writer.dirty.len(), Ordering::Relaxed);
            self.shaped.store(0, Ordering::Relaxed);
            let changed = Changed {
                pages,
                nodes: std::mem::take(&mut writer.changed),
                blobs: std::mem::take(&mut writer.changed_blobs),
            };
            writer.born.clear();
            return Ok(Begun {
                seen,
                record,
                changed,
                number,
                replayed: replay.changes,
            });
        }
    }

    /// Writes the pages that have no place in the log.
    fn write_pages(
        &self,
        pages: &FxHashSet<u32>,
        commit: u64,
        apart: bool,
    ) -> Result<(), DbmError> {
        let mut due: Vec<(Arc<Version>, Arc<Page>)> = Vec::new();
        let mut ids: Vec<u32> = pages.iter().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(version) = self.version_at(id, commit)
                && version.place() == 0
                && let Some(page) = version.body().load_full()
            {
                due.push((version, page));
            }
            if due.len() == AT_A_TIME {
                self.write_images(&mut due, apart)?;
            }
        }
        self.write_images(&mut due, apart)
    }

    /// Writes merged pages, and sets the places of their versions.
    fn write_images(
        &self,
        due: &mut Vec<(Arc<Version>, Arc<Page>)>,
        apart: bool,
    ) -> Result<(), DbmError> {
        let mut sink = self.sink(apart)?;
        let mut placed = Vec::with_capacity(due.len());
        for (version, page) in due.drain(..) {
            let label = Label {
                kind: Kind::Node,
                commit: version.commit,
                left: 0,
                first: true,
            };
            let place = sink.append(label, |body| {
                body.copy_from_slice(&page.bytes()[crate::entry::HEAD..]);
                body.len()
            })?;
            placed.push((version, place));
        }
        sink.write_out()?;
        for (version, place) in placed {
            version.set_place(place);
        }
        Ok(())
    }

    /// The version that a commit sees; `None` if the page does not exist.
    pub fn version_at(&self, id: u32, commit: u64) -> Option<Arc<Version>> {
        let mut at = self.nodes.get(id)?.load_full();
        while let Some(version) = at {
            if version.commit <= commit {
                return (!version.freed).then_some(version);
            }
            at = version.older();
        }
        None
    }

    /// The words of changed chunks, as of a commit. A page that changed but is not written keeps
    /// its `named` place.
    fn node_map(
        &self,
        chunks: &FxHashSet<u32>,
        commit: u64,
        named: &[u64],
    ) -> Result<Words, DbmError> {
        let mut words = Words::new();
        for &chunk in chunks {
            let mut places = Vec::with_capacity(CHUNK as usize);
            for id in chunk * CHUNK..(chunk + 1) * CHUNK {
                let place = match self.version_at(id, commit) {
                    None => 0,
                    Some(version) => match (version.place(), named.get(id as usize)) {
                        (0, None | Some(0)) => {
                            let what = format!("page {id} was changed and not written");
                            return Err(DbmError::damaged(0, what));
                        }
                        (0, Some(place)) => *place,
                        (place, _) => place,
                    },
                };
                places.push(place);
            }
            words.push((chunk, places));
        }
        Ok(words)
    }

    /// The places of parts of long values, as of a commit.
    fn blob_map(&self, changed: &Changed, commit: u64) -> Words {
        let mut absent: Vec<(u32, u32)> = {
            let writer = self.writer.lock();
            // Parts written since the checkpoint began are not in it, and neither are deleted ones
            // (CHECKPOINT-4).
            let born = writer.born.iter();
            let born = born.map(|(first, (_, count))| (*first, *count));
            let freed = writer.limbo.iter().filter(|limbo| limbo.commit <= commit);
            born.chain(freed.map(|limbo| limbo.blobs)).collect()
        };
        absent.sort_unstable();
        let is_absent = |id: u32| {
            let nth = absent.partition_point(|(first, _)| *first <= id);
            nth > 0 && id - absent[nth - 1].0 < absent[nth - 1].1
        };
        let words = |chunk: u32| {
            (chunk * CHUNK..(chunk + 1) * CHUNK)
                .map(|id| match is_absent(id) {
                    true => 0,
                    false => self
                        .blobs
                        .get(id)
                        .map_or(0, |word| word.load(Ordering::Acquire)),
                })
                .collect()
        };
        changed
            .blobs
            .iter()
            .map(|&chunk| (chunk, words(chunk)))
            .collect()
    }

    /// Writes chunks of the table; their former places go into `old`.
    fn write_map(
        &self,
        places: &mut Vec<u64>,
        words: &Words,
        old: &mut Vec<u64>,
        apart: bool,
    ) -> Result<(), DbmError> {
        for (chunk, words) in words {
            let mut sink = self.sink(apart)?;
            let label = Label {
                kind: Kind::Map,
                commit: 0,
                left: 0,
                first: true,
            };
            let place = sink.append(label, |body| {
                for (nth, word) in words.iter().enumerate() {
                    body[nth * 8..nth * 8 + 8].copy_from_slice(&word.to_le_bytes());
                }
                words.len() * 8
            })?;
            sink.write_out()?;
            self.space.name(place);
            let nth = *chunk as usize;
            if places.len() <= nth {
                places.resize(nth + 1, 0);
            }
            old.push(std::mem::replace(&mut places[nth], place));
        }
        Ok(())
    }

    /// Names the places of changed chunks; former places go into `old`.
    fn name(&self, named: &mut Vec<u64>, words: Words, old: &mut Vec<u64>) {
        for (chunk, words) in words {
            let first = (chunk * CHUNK) as usize;
            if named.len() < first + words.len() {
                named.resize(first + words.len(), 0);
            }
            for (named, word) in named[first..].iter_mut().zip(words) {
                if *named != word {
                    self.space.name(word);
                    old.push(std::mem::replace(named, word));
                }
            }
        }
    }
}

/// Chunks of the translation table: the number, and the words.
type Words = Vec<(u32, Vec<u64>)>;
