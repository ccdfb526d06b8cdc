// SPDX-License-Identifier: Apache-2.0
//! Maintenance beside commits. Checkpoints are written when the log is long, and segments cleaned
//! when dead pages hold too many. The device grows in advance, and becomes shorter if its end stays
//! free.
//!
//! Card: the cleaner takes segments by cost and benefit (Rosenblum and Ousterhout, SOSP 1991). The
//! benefit is the freed space times the segment's age; the cost is the bytes read and written. It
//! writes their live pages again at the end of the log. A page that changed since the checkpoint is
//! not moved: the next checkpoint writes its current state. The segments become free with that
//! checkpoint (`space.rs`).
//!
//! Each call does a bounded part of the work: one checkpoint of a part of the database, and one
//! round of the cleaner. So a commit that does the work itself (`Options::threads` of 0) never
//! waits for all of it.
//!
//! PACE-1: while the log grows to its limit, checkpoints begin at equal distances, as many as it
//! takes to write all changed pages. So each page is written once in that time, and the device and
//! the space never have to take all of them at once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use senko_io::{AlignedBuf, PAGE_SIZE, Purpose, Tag, le};

use crate::DbmError;
use crate::core::{Core, Maps};
use crate::entry::{HEAD, Head, Kind, place_of};
use crate::log::{Label, Log};
use crate::space::SEGMENT;
use crate::sync::Mutex;
use crate::writer::CHUNK;

/// The number of checkpoints that write a database all of whose pages changed.
const PARTS: u64 = 32;
/// Most segments that one round cleans.
const ROUND: usize = 16;
/// The least pages that a checkpoint writes, if this many changed.
const LEAST_STEP: u64 = 64;
/// The most pages of a checkpoint that a commit waits for.
const MOST_STEP: u64 = 256;

/// Entries of changes in the log.
#[derive(Clone, Copy)]
pub(crate) struct Behind {
    /// Those after the position from which the log would be replayed.
    replay: u64,
    /// Those since the newest checkpoint began.
    checkpoint: u64,
}

impl Behind {
    pub fn of(log: &Log) -> Behind {
        Behind {
            replay: log.changes - log.replayed,
            checkpoint: log.changes - log.begun,
        }
    }
}

impl Core {
    /// Pages that a checkpoint takes in addition to those that it must write.
    pub fn step(&self) -> usize {
        let step = (self.space.needed() / PARTS).max(LEAST_STEP);
        match self.options.threads {
            0 => step.min(MOST_STEP) as usize,
            _ => step as usize,
        }
    }

    /// Most entries of changes after the log's replay position. With fewer, pages would be written
    /// more often; with more, they would take more space.
    fn log_limit(&self) -> u64 {
        (self.options.log_bytes / PAGE_SIZE as u64).max(self.space.needed() * 2 / 7)
    }

    /// Whether there is work; checked after each commit.
    pub fn is_due(&self, behind: Behind) -> bool {
        self.is_checkpoint_due(behind) || self.is_short()
    }

    /// Whether a checkpoint is due (PACE-1).
    fn is_checkpoint_due(&self, behind: Behind) -> bool {
        let (budget, limit) = (self.options.cache_bytes / PAGE_SIZE, self.log_limit());
        let dirty = self.dirty.load(Ordering::Relaxed);
        // Each checkpoint writes all shaped pages.
        let others = dirty.saturating_sub(self.shaped.load(Ordering::Relaxed));
        let parts = others.div_ceil(self.step()).max(1) as u64;
        behind.replay > limit || behind.checkpoint > limit / parts || dirty > budget / 2
    }

    /// Whether free space is below what the next commits need, and the device can grow. Not in an
    /// empty database, which should stay small.
    fn is_short(&self) -> bool {
        let free = self.space.free() as u64 * SEGMENT;
        !self.space.is_full()
            && self.space.segments() > 3
            && free < self.reserve() + SEGMENT.max(self.space.needed() / 128)
    }

    /// Whether dead pages hold more than an eighth of the live pages and the log.
    fn should_clean(&self, changes: u64) -> bool {
        let used = u64::from(self.space.used_segments()) * SEGMENT;
        let live = self.space.needed();
        used > live + live / 8 + changes + 4 * SEGMENT
    }

    fn behind(&self) -> Behind {
        Behind::of(&self.log.lock())
    }

    /// Does a part of the work that is due. Returns whether there is more.
    pub fn maintain(self: &Arc<Core>) -> Result<bool, DbmError> {
        let mut maps = self.maintenance.lock();
        let behind = self.behind();
        let changes = behind.replay;
        if self.is_checkpoint_due(behind) {
            let moved = match self.cut_end()? {
                true => 0,
                false => self.clean_end(&maps)?,
            };
            if moved == 0 && self.should_clean(changes) {
                self.clean(&maps)?;
            }
            self.checkpoint_held(&mut maps, self.step())?;
        }
        if self.is_short() {
            match self.space.grow(1) {
                Err(DbmError::NoSpace(_)) => {}
                done => done?,
            }
        }
        Ok(self.is_due(self.behind()))
    }

    /// Free segments that the next commits do not need.
    pub fn spare_segments(&self) -> u32 {
        (self.spare_pages() / SEGMENT) as u32
    }

    /// The newest checkpoint whose free segments no reader may need.
    fn settled(&self) -> u64 {
        let checkpoint = self.log.lock().checkpoint;
        let pinned = self.device.oldest_pin(checkpoint);
        pinned
            .unwrap_or(checkpoint)
            .min(checkpoint.saturating_sub(1))
    }

    /// Leaves out an end of the device that stayed free for a checkpoint; the next checkpoint cuts
    /// it. Returns whether there was one.
    pub fn cut_end(&self) -> Result<bool, DbmError> {
        let settled = self.settled();
        let lacking = self.space.lacking_for_cut(settled, self.spare_segments());
        if lacking > 0 {
            match self.space.grow(u64::from(lacking)) {
                Err(DbmError::NoSpace(_)) => return Ok(false),
                done => done?,
            }
        }
        Ok(self.space.leave_end(settled, self.spare_segments()))
    }

    /// Gives back the storage of free segments that the next commits do not need, if that is more
    /// than a fourth of the live bytes. An eighth stays, so that not every checkpoint punches what
    /// the next commits fill again. So do segments near the beginning, into which the cleaner moves
    /// what lies near the end.
    pub fn punch(&self) {
        let (spare, live) = (self.spare_pages(), self.space.needed());
        if spare > live / 4 + LEAST_STEP {
            let most = (spare - live / 8) / SEGMENT;
            let first = self.space.used_segments() + (self.reserve() / SEGMENT) as u32;
            self.space.punch(first, self.settled(), most as usize);
        }
    }

    /// Moves live pages away from the end of the device, so that the end can be cut off. Returns
    /// their number.
    fn clean_end(&self, maps: &Maps) -> Result<u64, DbmError> {
        let open = self.open_segments();
        let unused = self.spare_segments() + self.space.holes() as u32;
        if self.space.least_cut().is_none_or(|least| unused < least) {
            return Ok(0);
        }
        self.begin_images();
        let segments = self.space.segments();
        let (mut left, from) = (self.step() as u64, segments.saturating_sub(unused).max(1));
        for number in (from..segments).rev() {
            let used = u64::from(self.space.segment(number).used());
            if used == 0 || open.contains(&number) {
                continue;
            }
            let Some(rest) = left.checked_sub(used) else {
                break;
            };
            left = rest;
            self.clean_segment(number, maps)
                .inspect_err(|error| self.latch(error))?;
        }
        Ok(self.step() as u64 - left)
    }

    /// Segments that may be cleaned, each with the pages in use: fewer than `most`.
    fn victims(&self, most: u32) -> Vec<(u32, u32)> {
        let open = self.open_segments();
        let used = |number| (number, self.space.segment(number).used());
        (1..self.space.segments())
            .filter(|number| !open.contains(number))
            .map(used)
            .filter(|(_, used)| (1..most).contains(used))
            .collect()
    }

    /// Moves the live pages of the segments with the largest benefit.
    fn clean(self: &Arc<Core>, maps: &Maps) -> Result<(), DbmError> {
        let room = (self.space.free() as u64 * SEGMENT).saturating_sub(self.reserve());
        let now = self.log.lock().position().sequence;
        let pays = |&(number, used): &(u32, u32)| {
            let segment = self.space.segment(number);
            let age = now.saturating_sub(segment.stamp.load(Ordering::Acquire));
            age * (SEGMENT - u64::from(used)) / (SEGMENT + u64::from(used))
        };
        let mut victims = self.victims(SEGMENT as u32 * 7 / 8);
        victims.sort_by_cached_key(|victim| std::cmp::Reverse(pays(victim)));
        victims.truncate(ROUND);
        self.clean_segments(&victims, room, maps).map(drop)
    }

    /// Moves the live pages of the segments with the fewest, if that frees a segment. Returns how
    /// many segments were emptied. Only the room for a checkpoint stays free.
    pub fn clean_greedily(self: &Arc<Core>, maps: &Maps) -> Result<usize, DbmError> {
        let room = (self.space.free() as u64 * SEGMENT).saturating_sub(self.least_checkpoint());
        let mut victims = self.victims(SEGMENT as u32);
        victims.sort_unstable_by_key(|(_, used)| *used);
        let moved: Vec<u64> = victims
            .iter()
            .scan(0, |moved, (_, used)| {
                *moved += u64::from(*used);
                Some(*moved)
            })
            .take_while(|moved| *moved <= room)
            .collect();
        // A round of more segments than needed would only write more.
        let gains = |nth: usize, moved: u64| (nth as u64 + 1) * SEGMENT >= moved + SEGMENT;
        let enough = moved
            .iter()
            .enumerate()
            .position(|(nth, moved)| nth + 1 >= ROUND && gains(nth, *moved));
        let last = moved
            .iter()
            .enumerate()
            .rposition(|(nth, moved)| gains(nth, *moved));
        let Some(last) = enough.or(last) else {
            return Ok(0);
        };
        self.clean_segments(&victims[..=last], room, maps)
    }

    /// Moves the live pages of segments while there is room. Returns the number of segments.
    fn clean_segments(
        &self,
        victims: &[(u32, u32)],
        room: u64,
        maps: &Maps,
    ) -> Result<usize, DbmError> {
        self.begin_images();
        let (mut moved, mut segments) = (0, 0);
        for (number, used) in victims {
            moved += u64::from(*used);
            if moved > room {
                break;
            }
            self.clean_segment(*number, maps)
                .inspect_err(|error| self.latch(error))?;
            segments += 1;
        }
        Ok(segments)
    }

    fn clean_segment(&self, number: u32, maps: &Maps) -> Result<(), DbmError> {
        let first = u64::from(number) * SEGMENT;
        let mut pages = AlignedBuf::new(SEGMENT as usize);
        self.device
            .read(first, &mut pages, Tag::dbm(Purpose::Reclaim))
            .map_err(DbmError::io("reading a segment to clean it"))?;
        for (nth, page) in pages.chunks(PAGE_SIZE).enumerate() {
            let Some(head) = Head::read(page) else {
                continue;
            };
            let place = place_of(first + nth as u64, head.crc);
            let id = le::u32_at(page, HEAD);
            match head.kind {
                Kind::Node => {
                    self.move_node(id, place, &head, page)?;
                    let is_named = maps.nodes.get(id as usize) == Some(&place);
                    let newest = self.nodes.get(id).and_then(|word| word.load_full());
                    if is_named && newest.is_some_and(|version| version.place() == 0) {
                        let mut writer = self.writer.lock();
                        writer.dirty.change(id, true);
                        self.shaped.store(writer.dirty.shaped(), Ordering::Relaxed);
                    }
                }
                Kind::Blob => self.move_blob(id, place, &head, page)?,
                Kind::Map => {
                    // The next checkpoint writes that part of the table again.
                    let mut writer = self.writer.lock();
                    if let Some(chunk) = maps.places.nodes.iter().position(|at| *at == place) {
                        writer.changed.insert(chunk as u32);
                    }
                    if let Some(chunk) = maps.places.blobs.iter().position(|at| *at == place) {
                        writer.changed_blobs.insert(chunk as u32);
                    }
                }
                Kind::Changes | Kind::Checkpoint => {}
            }
        }
        Ok(())
    }

    fn write_again(&self, head: &Head, page: &[u8]) -> Result<u64, DbmError> {
        // Of two places of a part of a value, the one with the later entry counts.
        let mut sink = self.sink(head.kind == Kind::Node)?;
        let label = Label {
            kind: head.kind,
            commit: head.commit,
            left: 0,
            first: true,
        };
        let used = usize::from(head.used);
        let place = sink.append(label, |body| {
            body[..used].copy_from_slice(&page[HEAD..HEAD + used]);
            used
        })?;
        sink.write_out()?;
        Ok(place)
    }

    fn move_node(&self, id: u32, place: u64, head: &Head, page: &[u8]) -> Result<(), DbmError> {
        let mut at = self.nodes.get(id).and_then(|word| word.load_full());
        while let Some(version) = at {
            if version.place() == place {
                let to = self.write_again(head, page)?;
                version.set_place(to);
                self.writer.lock().changed.insert(id / CHUNK);
                return Ok(());
            }
            at = version.older();
        }
        Ok(())
    }

    fn move_blob(&self, id: u32, place: u64, head: &Head, page: &[u8]) -> Result<(), DbmError> {
        let word = self.blobs.get(id);
        let Some(word) = word.filter(|word| word.load(Ordering::Acquire) == place) else {
            return Ok(());
        };
        // A moved part is a separate entry, so that replay does not take it for a part of a
        // commit's group.
        let to = self.write_again(head, page)?;
        let mut writer = self.writer.lock();
        let swapped = word.compare_exchange(place, to, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_ok() {
            self.space.hold(to);
            self.space.release(place);
            writer.changed_blobs.insert(id / CHUNK);
        }
        Ok(())
    }

    /// Asks the thread to make commits durable. Without a thread, the waiting caller does it.
    pub fn ask_for_sync(&self) {
        if self.options.threads > 0 {
            self.wake.lock().sync = true;
            self.woken.notify_one();
        }
    }

    /// Tells the thread that there is work, or does it.
    pub fn nudge(self: &Arc<Core>) {
        if self.options.threads == 0 {
            // A failure latches, and the next commit reports it.
            let _ = self.maintain();
            return;
        }
        let mut wake = self.wake.lock();
        wake.due = true;
        self.woken.notify_one();
    }
}

/// The thread that maintains a database, until it is told to end.
pub(crate) struct Keeper {
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Keeper {
    pub fn start(core: &Arc<Core>) -> Result<Keeper, DbmError> {
        if core.options.threads == 0 {
            let thread = Mutex::new(None);
            return Ok(Keeper { thread });
        }
        let weak = Arc::downgrade(core);
        let thread = std::thread::Builder::new()
            .name("senko-dbm".to_owned())
            .spawn(move || keep(&weak))
            .map_err(|error| DbmError::Open(Arc::new(error)))?;
        Ok(Keeper {
            thread: Mutex::new(Some(thread)),
        })
    }

    pub fn end(&self, core: &Core) {
        core.wake.lock().end = true;
        core.woken.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn keep(weak: &Weak<Core>) {
    while let Some(core) = weak.upgrade() {
        let (sync, due) = {
            let mut wake = core.wake.lock();
            while !wake.due && !wake.sync && !wake.end {
                core.woken.wait(&mut wake);
            }
            if wake.end {
                return;
            }
            // Both are taken, so that commits that keep asking for a flush do not delay
            // maintenance.
            (
                std::mem::take(&mut wake.sync),
                std::mem::take(&mut wake.due),
            )
        };
        // A failure latches, and the next commit reports it.
        if sync {
            let commit = core.registry.lock().visible.commit;
            let _ = core.write_until(commit);
        }
        if due && core.maintain().unwrap_or(false) {
            core.wake.lock().due = true;
        }
    }
}
