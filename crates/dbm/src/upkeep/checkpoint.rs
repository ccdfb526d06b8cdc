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

use crate::core::{Core, Seen};
use crate::disk::entry::{HEAD, Kind, page_of};
use crate::disk::log::{Label, Position, append_bytes};
use crate::disk::maps::{CHUNK, MapPlaces, Maps, Words};
use crate::disk::space::{SEGMENT, UNIT};
use crate::disk::superblock::{COPIES, Superblock};
use crate::error::DbmError;
use crate::pages::mapping::Version;
use crate::pages::node::Page;
use crate::upkeep::record::CheckpointRecord;
use crate::upkeep::shrink::{cut_end, punch, punch_loose, spare_segments};
use crate::upkeep::sink::{Sink, begin_images};
use crate::writer::dirty::Began;
use crate::writer::room::ENDS;

/// Pages that are written at a time: some erase units.
const AT_A_TIME: usize = 4 * UNIT as usize;

/// Pages that are checked for old versions while the writer's lock is held once.
const SWEPT: usize = 64;

/// A checkpoint of this many pages writes them separately from the log. A segment for fewer would
/// make a small database larger.
const APART: usize = SEGMENT as usize;

/// Writes everything that has changed until now, in as many checkpoints as necessary, so that no
/// replay needs the log of it. An error if there is no room for that. Then the log has the rest.
pub(crate) fn checkpoint_all(core: &Arc<Core>) -> Result<(), DbmError> {
    let mut maps = core.maps.lock();
    let until = {
        let mut log = core.log.lock();
        core.write_pending(&mut log, false)?;
        log.changes
    };
    loop {
        // As many pages as there is room for, so that there are few checkpoints.
        let kept = core.room.changed().1 + 2 * SEGMENT as usize;
        let room = core.space.free() * SEGMENT as usize;
        let most = core.room.step(&core.space).max(room.saturating_sub(kept));
        let written = checkpoint(core, &mut maps, most, core.room.cleaner(&core.space))?;
        punch(core, u64::MAX);
        punch_loose(core);
        if core.log.lock().replayed >= until {
            break;
        }
        if written == 0 {
            return Err(DbmError::NoSpace(core.room.others() as u64));
        }
    }
    // A free end must stay free for one checkpoint. The next one cuts it.
    let spare = spare_segments(core, u64::MAX);
    if core.space.has_idle_end(u64::MAX, spare) {
        checkpoint(core, &mut maps, 0, 0)?;
        if cut_end(core, u64::MAX)? {
            checkpoint(core, &mut maps, 0, 0)?;
        }
    }
    Ok(())
}

/// Writes a checkpoint of the pages that it must write, and of `most` others, or as many as there
/// is room for beside `kept` free pages. Returns how many others it wrote.
pub(crate) fn checkpoint(
    core: &Arc<Core>,
    maps: &mut Maps,
    most: usize,
    kept: u64,
) -> Result<usize, DbmError> {
    core.latch.check()?;
    if let Some(most) = core.options.max_snapshot_age {
        core.readers.end_older(most);
    }
    sweep(core);
    let checkpoint = Checkpoint::begin(core, maps, most, kept)?;
    let others = checkpoint.others;
    checkpoint
        .write()
        .inspect_err(|error| core.latch.close(error))?;
    sweep(core);
    Ok(others)
}

/// Drops what only closed snapshots needed.
fn sweep(core: &Core) {
    let chained = core.writer.lock().old().chained();
    // In parts, so that no commit waits for all of it.
    for ids in chained.chunks(SWEPT).chain([&[][..]]) {
        core.writer.lock().sweep(core.parts(), ids);
    }
}

/// Pages of the smallest checkpoint; `most` is the number of the others that it may write.
fn least(core: &Core, most: usize) -> usize {
    let least = core.room.least_checkpoint() as usize;
    match least + most < APART + SEGMENT as usize {
        // All of it goes to the log.
        true => least - SEGMENT as usize,
        false => least,
    }
}

/// Makes the device longer for a checkpoint, if it can be.
fn grow_for(core: &Core, most: usize, kept: u64) -> Result<(), DbmError> {
    let most = most.min(core.room.others());
    let kept = if most > 0 { kept as usize } else { 0 };
    let open = core.images.lock().left() + core.log.lock().left();
    let have = core.space.free() * SEGMENT as usize + open;
    let needed = least(core, most) + most + kept + core.room.admitted() as usize;
    let missing = needed.saturating_sub(have);
    if missing > 0 {
        core.space
            .grow_if_room(missing.div_ceil(SEGMENT as usize) as u64)?;
    }
    Ok(())
}

/// Claims up to `most` pages beside those that must be written, if `open` pages of segments are
/// left and `kept` others stay free. Returns how many; `None` if the device must grow first. On a
/// full device, an error if there is no room for those that must be written. Unless pages were
/// claimed, nothing was done, and a later call may find room.
fn claim(core: &Core, open: usize, most: usize, kept: u64) -> Result<Option<usize>, DbmError> {
    loop {
        let others = core.room.others();
        let (is_all, most) = (most >= others, most.min(others));
        let (least, have) = (
            least(core, most),
            core.space.free() * SEGMENT as usize + open,
        );
        let room = have.checked_sub(least);
        let admitted = core.room.admitted();
        let left = (room.unwrap_or(0) as u64).saturating_sub(admitted);
        let claimed = match is_all && has_room_for_all(core, left, kept) {
            true => others,
            false => most.min(left.saturating_sub(kept) as usize),
        };
        if room.is_none() || claimed < most {
            if !core.space.is_full() {
                return Ok(None);
            }
            if room.is_none() {
                core.room.set_due(0);
                return Err(DbmError::NoSpace((least - have) as u64));
            }
        }
        core.room.set_due(claimed);
        // Otherwise a commit was admitted that may count on the same pages (ADMIT-4).
        if claimed == 0 || core.room.admitted() <= admitted {
            return Ok(Some(claimed));
        }
    }
}

/// Whether all changed pages fit in `room` pages, and `kept` pages are free when that has freed the
/// log.
pub(crate) fn has_room_for_all(core: &Core, room: u64, kept: u64) -> bool {
    match room.checked_sub(core.room.others() as u64) {
        Some(left) => left >= kept || left + core.space.freed_with_log() * SEGMENT >= kept,
        None => false,
    }
}

/// A checkpoint under way.
struct Checkpoint<'a> {
    core: &'a Core,
    maps: &'a mut Maps,
    seen: Seen,
    record: CheckpointRecord,
    pages: FxHashSet<u32>,
    /// The number of those that it could have left out.
    others: usize,
    /// Chunks of the translation table.
    nodes: FxHashSet<u32>,
    blobs: FxHashSet<u32>,
    number: u64,
    /// Entries of changes that the log had had at its replay position.
    replayed: u64,
    /// Bytes that its commits put.
    put: u64,
    /// Whether its pages go to their own segments.
    apart: bool,
    /// Places that only the checkpoint before names.
    old: Vec<u64>,
}

impl<'a> Checkpoint<'a> {
    /// Decides the commit of the checkpoint, its pages, and the log's replay position. The
    /// device grows for it, if it can.
    fn begin(
        core: &'a Arc<Core>,
        maps: &'a mut Maps,
        most: usize,
        kept: u64,
    ) -> Result<Checkpoint<'a>, DbmError> {
        grow_for(core, most, kept)?;
        let left = core.images.lock().left();
        let mut log = core.log.lock();
        loop {
            core.write_pending(&mut log, false)?;
            let mut writer = core.writer.lock();
            if writer.backlog.has_long_values() {
                // A long value that a page of the checkpoint names must be in the log first.
                continue;
            }
            // As of now: commits went on meanwhile.
            let Some(most) = claim(core, left + log.left(), most, kept)? else {
                drop((writer, log));
                grow_for(core, most, kept)?;
                log = core.log.lock();
                continue;
            };
            writer.backlog.turn_tail(log.position());
            let seen = core.see(false);
            let number = core.space.started.fetch_add(1, Ordering::AcqRel) + 1;
            log.begun = log.changes;
            let began = Began {
                number,
                position: log.position(),
                changes: log.changes,
            };
            let place = |id| page_of(maps.node(id));
            let shaped = writer.changed.counts().1;
            let mut taken = writer.changed.begin(began, most, core.space.unit(), place);
            let numbers = writer.numbers();
            let record = CheckpointRecord {
                commit: seen.commit,
                replay: taken.replay.position,
                began: began.position.sequence,
                next_node: numbers.node,
                next_blob: numbers.blob,
                next_table: numbers.table,
                maps: MapPlaces::default(),
                catalogue: seen.catalogue.to_vec(),
                database: log.database,
            };
            taken.nodes.extend(taken.pages.iter().map(|id| id / CHUNK));
            let count = taken.pages.len() + taken.nodes.len() + taken.blobs.len();
            core.room.set_due(count + ENDS as usize);
            core.room.set_changed(writer.changed.counts());
            core.room.set_records(&record.catalogue);
            return Ok(Checkpoint {
                core,
                maps,
                seen,
                record,
                others: taken.pages.len().saturating_sub(shaped),
                pages: taken.pages,
                nodes: taken.nodes,
                blobs: taken.blobs,
                number,
                replayed: taken.replay.changes,
                put: writer.put,
                apart: count >= APART,
                old: Vec::new(),
            });
        }
    }

    fn write(mut self) -> Result<(), DbmError> {
        let core = self.core;
        begin_images(core);
        self.write_pages()?;
        let (nodes, blobs) = (self.node_map()?, self.blob_map());
        let mut places = self.maps.places().clone();
        self.write_map(&mut places.nodes, &nodes)?;
        self.write_map(&mut places.blobs, &blobs)?;
        core.images.lock().flush()?;
        self.maps.name(nodes, blobs, &core.space, &mut self.old);
        self.record.maps = places.clone();
        let (at, written) = self.write_record()?;
        core.space.wrote(COPIES);
        let superblock = Superblock {
            checkpoint: self.number,
            at,
            // The end is first left out of the superblock, then cut.
            pages: u64::from(core.space.segments()) * SEGMENT,
            wear: core.space.wear(self.put),
        };
        superblock.write(&*core.device)?;
        self.maps.become_durable(superblock, places);
        let pages = core.images.lock().open_segment();
        let mut log = core.log.lock();
        // As of now: a segment that the log takes later must not count as free.
        let mut open = log.open_segments();
        open.extend(pages);
        log.checkpoint = self.number;
        log.mark();
        log.written -= written;
        log.replayed = self.replayed;
        self.old.iter().for_each(|place| core.space.unname(*place));
        let replay = self.record.replay.sequence;
        core.space.reclaim(self.number, replay, &open);
        drop(log);
        core.room.set_due(0);
        core.space.remove_end();
        Ok(())
    }

    /// Writes what names everything. Returns its position, and the pages of the log until then.
    fn write_record(&self) -> Result<(Position, u64), DbmError> {
        let (core, record) = (self.core, &self.record);
        let mut log = core.log.lock();
        // CHECKPOINT-3. Threads that wait for these commits are served by the same flush.
        core.write_pending(&mut log, false)?;
        let at = log.position();
        let kind = Kind::Checkpoint;
        append_bytes(&mut log, kind, record.commit, true, &record.encode())?;
        log.sync()?;
        core.progress.write(record.commit);
        core.progress.flush();
        Ok((at, log.written))
    }

    /// Writes the pages that have no place in the log.
    fn write_pages(&self) -> Result<(), DbmError> {
        let mut due: Vec<(Arc<Version>, Arc<Page>)> = Vec::new();
        let mut ids: Vec<u32> = self.pages.iter().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(version) = self.core.pages.version_at(id, self.seen.commit)
                && version.place() == 0
                && let Some(page) = version.body().load_full()
            {
                due.push((version, page));
            }
            if due.len() == AT_A_TIME {
                self.write_images(&mut due)?;
            }
        }
        self.write_images(&mut due)
    }

    /// Writes merged pages, and sets the places of their versions.
    fn write_images(&self, due: &mut Vec<(Arc<Version>, Arc<Page>)>) -> Result<(), DbmError> {
        let mut sink = Sink::of(self.core, self.apart)?;
        let mut placed = Vec::with_capacity(due.len());
        for (version, page) in due.drain(..) {
            let label = Label::alone(Kind::Node, version.commit);
            let place = sink.append(label, |body| {
                body.copy_from_slice(&page.bytes()[HEAD..]);
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

    /// The words of changed chunks. A page that changed but is not written keeps its named place.
    fn node_map(&self) -> Result<Words, DbmError> {
        let word = |id: u32| {
            let Some(version) = self.core.pages.version_at(id, self.seen.commit) else {
                return Ok(0);
            };
            match (version.place(), self.maps.node(id)) {
                (0, 0) => {
                    let what = format!("page {id} was changed and not written");
                    Err(DbmError::damaged(0, what))
                }
                (0, named) => Ok(named),
                (place, _) => Ok(place),
            }
        };
        let words = |chunk: &u32| {
            let mut words = Vec::with_capacity(CHUNK as usize);
            for id in chunk * CHUNK..(chunk + 1) * CHUNK {
                words.push(word(id)?);
            }
            Ok((*chunk, words))
        };
        self.nodes.iter().map(words).collect()
    }

    /// The places of parts of long values.
    fn blob_map(&self) -> Words {
        let absent = self.core.writer.lock().absent_blobs(self.seen.commit);
        let is_absent = |id: u32| {
            let nth = absent.partition_point(|(first, _)| *first <= id);
            nth > 0 && id - absent[nth - 1].0 < absent[nth - 1].1
        };
        let word = |id: u32| match is_absent(id) {
            true => 0,
            false => self.core.pages.blob_place(id),
        };
        let words = |chunk: &u32| {
            let ids = chunk * CHUNK..(chunk + 1) * CHUNK;
            (*chunk, ids.map(word).collect())
        };
        self.blobs.iter().map(words).collect()
    }

    /// Writes chunks of the table.
    fn write_map(&mut self, places: &mut Vec<u64>, words: &Words) -> Result<(), DbmError> {
        let mut sink = Sink::of(self.core, self.apart)?;
        for (chunk, words) in words {
            let place = sink.append(Label::alone(Kind::Map, 0), |body| {
                for (to, word) in body.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
                words.len() * 8
            })?;
            self.core.space.name(place);
            let nth = *chunk as usize;
            if places.len() <= nth {
                places.resize(nth + 1, 0);
            }
            self.old.push(std::mem::replace(&mut places[nth], place));
        }
        sink.write_out()
    }
}
