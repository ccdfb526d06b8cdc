// SPDX-License-Identifier: Apache-2.0
//! The parts of a shard that outlive its process, and the restore of a shard by the next process.
//!
//! ```text
//!                     +-- clean stop: close -> save_items -> save --> files ----+
//!   open --> serve ---|                                                        +--> open (RestoreFrom::Saved)
//!     ^               +-- killed: index and items are in shared memory --------+--> open (RestoreFrom::Kept)
//!     +---------------------------- neither: empty ----------------------------+
//! ```
//!
//! Card. The index itself survives a kill; there is no journal. Its slots are in shared memory, and
//! so is the place of each DRAM item's flash copy. Commands change them in place, a word at a time,
//! before they are answered. So there is nothing to replay, and no acknowledged change is lost: a
//! deleted or overwritten key no longer has a slot. A kill can tear only changes of several words.
//! Such a change either becomes valid by one last word (a grown segment), or the next start repairs
//! it (a removal that moves slots back).
//!
//! Always holds (`docs/architecture/restart.md` has the arguments):
//! - RESTART-1: between two commands, memory agrees with all answers so far. Within a command, each
//!   word has its value from before or after the command, or the key has no slot.
//! - RESTART-2: a segment's word names a complete segment. A slot that a removal moves is in at
//!   least one place. If a segment has a slot twice, or where a probe would not find it, the
//!   segment is mended before any look-up.
//! - RESTART-3: a slot is kept only if the write of all its pages had ended, and its place was
//!   neither reclaimed nor flushed.
//! - RESTART-4: a process writes with generations that no process before it has used. A log's head
//!   moves on to a new region, and an empty log gets a new life.
//! - RESTART-5: an item in DRAM is restored as its flash copy, which is identical (SHARD-3), or is
//!   lost. After a clean stop that saved the items of DRAM, it is restored itself.
//! - RESTART-6: if there are both saved files and shared memory to continue from, exactly one of
//!   them is valid. The superblock's clean mark says which.

mod saved; // the files of a clean stop
mod server_words; // the words of the server that outlive the process

use std::io::Read;
use std::sync::Arc;

use senko_io::{AlignedBuf, Queue, SharedFile, Words};

use crate::arena::{Arena, UNIT};
use crate::dram::item::{COPY, is_linked_copy};
use crate::flash::log::{Log, LogMark};
use crate::index::{Extent, Index, Ledger, Owner, Run, SavedHead, Shape, Slot};
use crate::shard::Shard;
use crate::words::{Belongs, State};
pub use saved::SavedCounts;
#[cfg(any(test, feature = "fuzzing"))]
pub use saved::fuzz_saved;
pub use server_words::ServerWords;

/// The memory of a shard that outlives the process.
#[derive(Debug)]
pub struct SharedFiles {
    /// Words: the progress of the logs, and the places of segments.
    pub state: SharedFile,
    /// Segments of the index.
    pub index: SharedFile,
    /// Words: the places of small records that were sorted.
    pub sorted: SharedFile,
    pub items: SharedFile,
}

/// The state from which a shard is restored.
pub enum RestoreFrom<'a> {
    /// Nothing, with the reason if one must be reported.
    Empty(Option<String>),
    /// State that a killed process left in shared memory.
    Kept,
    /// Files that a clean stop wrote.
    Saved {
        /// What [`Shard::save`] wrote.
        index: Box<dyn Read + 'a>,
        /// What [`Shard::save_items`] wrote.
        items: Option<Box<dyn Read + 'a>>,
    },
}

impl std::fmt::Debug for RestoreFrom<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RestoreFrom::Empty(_) => "Empty",
            RestoreFrom::Kept => "Kept",
            RestoreFrom::Saved { .. } => "Saved",
        })
    }
}

/// How a shard is restored.
#[derive(Debug)]
pub struct Restore<'a> {
    /// Number of the data directory.
    pub id: u64,
    /// How often the directory was opened, including this time.
    pub opened: u64,
    /// Number of the clean stop that wrote the files.
    pub stop: u64,
    /// Its memory.
    pub files: SharedFiles,
    /// The state to continue from.
    pub origin: RestoreFrom<'a>,
    /// How many `flush_all` of the server a shard has applied that starts empty or from files.
    pub flushes: u64,
}

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub flash_items: u64,
    pub dram_items: u64,
    /// Slots that were not kept, because their items were only in DRAM or not yet on the device.
    pub dropped: u64,
    /// Parts of the files of a clean stop that were damaged.
    pub damaged: u64,
    /// Saved items of DRAM that were not on flash and can't be read: their file is damaged or gone.
    pub lost: u64,
    /// Why the shard is empty, if it could have been restored.
    pub why_empty: Option<String>,
}

/// Sizes that are known before memory is allocated.
#[derive(Debug)]
pub(crate) struct Sizes {
    pub belongs: Belongs,
    /// Regions of each log.
    pub regions: Vec<usize>,
    pub flash_pages: u64,
    pub memory: usize,
    pub item_pages: usize,
    pub now: u32,
    /// Room for sorted records, if there may be any.
    pub sorted: Option<Extent>,
    /// Whether records will be sorted. If not, those of an earlier process are kept.
    pub sorts: bool,
}

impl Sizes {
    /// Room for the records that will be sorted.
    fn sorting(&self) -> Option<Extent> {
        self.sorted.filter(|_| self.sorts)
    }
}

/// Why index, logs and memory can't be made.
#[derive(Debug)]
pub(crate) enum StartError {
    /// Memory can't be allocated; one sentence.
    Unusable(String),
    /// The index needs this many bytes, which is more than the memory.
    IndexTooLarge(usize),
}

/// The parts of a shard that an earlier process may have left.
pub(crate) struct Made<'a> {
    pub logs: Vec<Log>,
    pub index: Index,
    pub items: AlignedBuf,
    pub state: Option<State>,
    pub recovered: Recovered,
    pub saved_items: Option<saved::SavedItems<'a>>,
}

/// Makes index, logs and memory from the available state.
pub(crate) fn make<'a>(
    plan: Sizes,
    logs: Vec<Log>,
    restore: Option<Restore<'a>>,
    seed: u64,
) -> Result<Made<'a>, StartError> {
    let unusable = |e: std::io::Error| StartError::Unusable(e.to_string());
    let Some(restore) = restore else {
        let sorts = plan.sorting().is_some();
        let shape = Shape::plan(plan.flash_pages, plan.memory, sorts);
        let pages = Arena::segment_memory(plan.memory, shape.page_bytes);
        let memory = AlignedBuf::try_new(pages).map_err(unusable)?;
        let items = AlignedBuf::try_new(plan.item_pages).map_err(unusable)?;
        let sorted = match plan.sorting() {
            Some(extent) => {
                let words = Words::anonymous(extent.words()).map_err(unusable)?;
                let owner = Owner {
                    belongs: plan.belongs,
                    life: 0,
                    opened: 0,
                };
                Some(Ledger::begin(Arc::new(words), extent, &owner))
            }
            None => None,
        };
        let life = life_of(seed);
        return empty(logs, shape, (memory, items), None, life, sorted.as_ref());
    };
    let sorts = plan.sorting().is_some();
    let shape = Shape::plan(plan.flash_pages, plan.memory, sorts);
    let mut origin = restore.origin;
    let saved = match &mut origin {
        RestoreFrom::Saved { index, .. } => Some(saved::Head::read(index, &plan, restore.stop)),
        RestoreFrom::Empty(_) | RestoreFrom::Kept => None,
    };
    let has_sorted = saved.iter().flatten().any(|head| head.has_sorted);
    // A saved index keeps its shape, whatever the size of memory is now.
    let shapes = saved.iter().flatten().map(|head| &head.shape);
    let words = shapes.chain([&shape]).map(|s| plan.belongs.words(s)).max();
    let words = restore
        .files
        .state
        .words(words.unwrap_or(0))
        .map_err(unusable)?;
    let words = Arc::new(words);
    let items = restore.files.items.map(plan.item_pages).map_err(unusable)?;
    let pages = Arena::segment_memory(plan.memory, shape.page_bytes);
    let memory = restore.files.index.map(pages).map_err(unusable)?;
    let sorted = plan.sorted.filter(|_| plan.sorts || has_sorted);
    // Words that a killed process left are mapped as a whole.
    let sorted = sorted.map_or(1, |extent| extent.words());
    let sorted = restore.files.sorted.words(sorted).map_err(unusable)?;
    let mut parts = Parts {
        words,
        sorted: Arc::new(sorted),
        memory,
        items,
        flushes: restore.flushes,
        opened: restore.opened,
        life: life_of(seed ^ restore.opened.rotate_left(32)),
    };
    match origin {
        RestoreFrom::Empty(why) => parts.begin(&plan, logs, shape, why),
        RestoreFrom::Kept => {
            let words = Arc::clone(&parts.words);
            match State::kept(words, &plan.belongs, plan.flash_pages) {
                Ok(kept) => parts.go_on(&plan, logs, kept, shape),
                Err(why) => parts.begin(&plan, logs, shape, Some(why.to_owned())),
            }
        }
        RestoreFrom::Saved { mut index, items } => {
            parts.clear();
            match saved.expect("its head was read") {
                Ok(head) => {
                    let mut made = parts.load(&plan, logs, &head, &mut index, shape)?;
                    if made.recovered.why_empty.is_none() {
                        // Each item that is read lowers it.
                        made.recovered.lost = head.only_dram;
                        made.saved_items = items
                            .map(|from| saved::SavedItems::new(from, plan.belongs, restore.stop));
                    }
                    Ok(made)
                }
                Err(why) => parts.begin(&plan, logs, shape, Some(why)),
            }
        }
    }
}

/// A random number that distinguishes the records of one life of a shard from those of other lives.
fn life_of(seed: u64) -> u32 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

/// Makes an empty shard.
fn empty<'a>(
    mut logs: Vec<Log>,
    shape: Shape,
    (memory, items): (AlignedBuf, AlignedBuf),
    state: Option<State>,
    life: u32,
    sorted: Option<&Ledger>,
) -> Result<Made<'a>, StartError> {
    let mut index = Index::new(shape, memory, state.clone())
        .ok_or_else(|| StartError::IndexTooLarge(Index::bytes_of(&vec![0; shape.segments()])))?;
    if let Some(ledger) = sorted {
        index.sort(ledger, |_| false);
    }
    for log in &mut logs {
        log.live(life, state.clone());
    }
    Ok(Made {
        logs,
        index,
        items,
        state,
        recovered: Recovered::default(),
        saved_items: None,
    })
}

/// Shared memory, mapped.
struct Parts {
    words: Arc<Words>,
    sorted: Arc<Words>,
    memory: AlignedBuf,
    items: AlignedBuf,
    flushes: u64,
    /// The start of this process.
    opened: u64,
    life: u32,
}

impl Parts {
    /// Discards the contents of the memory. It clears the state first, because the state makes the
    /// rest valid.
    fn clear(&mut self) {
        for n in 0..self.words.count() {
            self.words.set(n, 0);
        }
        Ledger::end(&self.sorted);
        let pages = self.memory.pages();
        self.memory.release(0, pages);
        let pages = self.items.pages();
        self.items.release(0, pages);
    }

    fn owner(&self, plan: &Sizes, life: u32) -> Owner {
        Owner {
            belongs: plan.belongs,
            life,
            opened: self.opened,
        }
    }

    /// Makes an empty shard.
    fn begin<'a>(
        mut self,
        plan: &Sizes,
        logs: Vec<Log>,
        shape: Shape,
        why: Option<String>,
    ) -> Result<Made<'a>, StartError> {
        self.clear();
        let owner = self.owner(plan, self.life);
        let state = State::new(self.words, &plan.belongs, self.life, &shape);
        state.set_flushes(self.flushes);
        let sorted = plan
            .sorting()
            .map(|extent| Ledger::begin(Arc::clone(&self.sorted), extent, &owner));
        let memory = (self.memory, self.items);
        let mut made = empty(logs, shape, memory, Some(state), self.life, sorted.as_ref())?;
        made.recovered.why_empty = why;
        Ok(made)
    }

    /// Continues from the state that a killed process left.
    fn go_on<'a>(
        mut self,
        plan: &Sizes,
        mut logs: Vec<Log>,
        (state, life, kept_shape): (State, u32, Shape),
        shape: Shape,
    ) -> Result<Made<'a>, StartError> {
        let damaged = "the shared memory is damaged".to_owned();
        let marks: Option<Vec<LogMark>> = logs.iter().map(|log| log.mark_of(&state)).collect();
        let Some(marks) = marks.filter(|marks| marks_fit(&logs, marks)) else {
            return self.begin(plan, logs, shape, Some(damaged));
        };
        let owner = self.owner(plan, life);
        let words = || Arc::clone(&self.sorted);
        let kept = |extent| Ledger::kept(words(), extent, &owner);
        let begun = |extent| Ledger::begin(words(), extent, &owner);
        let sorted = plan.sorted.and_then(kept);
        let sorted = sorted.or_else(|| plan.sorting().map(begun));
        if sorted.is_none() {
            Ledger::end(&self.sorted);
        }
        let memory = std::mem::replace(&mut self.memory, no_memory());
        let mut index = match Index::kept(kept_shape, memory, state.clone(), sorted.as_ref()) {
            Ok(index) => index,
            Err(memory) => {
                self.memory = memory;
                return self.begin(plan, logs, shape, Some(damaged));
            }
        };
        for (log, mark) in logs.iter_mut().zip(&marks) {
            log.go_on(mark);
        }
        let places = Places {
            logs: &logs,
            written: marks.iter().map(|m| m.written).collect(),
            shape: kept_shape,
            now: plan.now,
        };
        let mut recovered = mend_all(&mut index, |slots| copies_in(&self.items, &places, slots));
        if let Some(ledger) = &sorted {
            index.sort(ledger, |run| places.hold_run(run));
            recovered.flash_items = index.flash_slots();
        }
        // No slot names unwritten pages any more. Only now may the words say that everything before
        // the head was written.
        for log in &mut logs {
            log.live(life, Some(state.clone()));
        }
        let pages = self.items.pages();
        self.items.release(0, pages);
        Ok(Made {
            logs,
            index,
            items: self.items,
            state: Some(state),
            recovered,
            saved_items: None,
        })
    }

    /// Continues from the files of a clean stop.
    fn load<'a>(
        self,
        plan: &Sizes,
        mut logs: Vec<Log>,
        head: &saved::Head,
        from: &mut dyn Read,
        shape: Shape,
    ) -> Result<Made<'a>, StartError> {
        if !marks_fit(&logs, &head.marks) {
            return self.begin(
                plan,
                logs,
                shape,
                Some("the saved index is damaged".to_owned()),
            );
        }
        let owner = self.owner(plan, head.life);
        let state = State::new(self.words, &plan.belongs, head.life, &head.shape);
        state.set_flushes(self.flushes);
        let mut index = Index::sized(head.shape, self.memory, Some(state.clone()), &head.steps)
            .ok_or_else(|| StartError::IndexTooLarge(Index::bytes_of(&head.steps)))?;
        for (log, mark) in logs.iter_mut().zip(&head.marks) {
            log.go_on(mark);
        }
        let places = Places {
            logs: &logs,
            written: head.marks.iter().map(|m| m.written).collect(),
            shape: head.shape,
            now: plan.now,
        };
        let mut recovered = Recovered::default();
        head.read_segments(from, &mut index, &mut recovered, &places);
        let head_of_sorted = match head.has_sorted {
            true => SavedHead::read(from),
            false => None,
        };
        recovered.damaged += u64::from(head.has_sorted && head_of_sorted.is_none());
        let saved = head_of_sorted.as_ref();
        if let Some(planned) = plan.sorted.filter(|_| plan.sorts || saved.is_some()) {
            let extent = saved.map_or(planned, |saved| planned.with_runs_of(saved.run_pages));
            let ledger = Ledger::begin(self.sorted, extent, &owner);
            let holds = |run: &Run| places.hold_run(run);
            match saved {
                Some(saved) => recovered.damaged += index.load_sorted(saved, from, &ledger, holds),
                None => index.sort(&ledger, |_| false),
            }
        }
        recovered.flash_items = index.flash_slots();
        for log in &mut logs {
            log.live(head.life, Some(state.clone()));
        }
        Ok(Made {
            logs,
            index,
            items: self.items,
            state: Some(state),
            recovered,
            saved_items: None,
        })
    }
}

fn no_memory() -> AlignedBuf {
    AlignedBuf::new(0)
}

fn marks_fit(logs: &[Log], marks: &[LogMark]) -> bool {
    logs.len() == marks.len()
        && logs
            .iter()
            .zip(marks)
            .all(|(log, mark)| mark.fits(log.pages(), log.region_pages()))
}

/// Mends every segment. `make` makes the new slot of each old one; empty results are removed.
fn mend_all(index: &mut Index, mut make: impl FnMut(&mut [Slot])) -> Recovered {
    let (mut slots, mut new) = (Vec::new(), Vec::new());
    let mut seen = 0;
    for n in 0..index.segments() {
        index.slots_of(n, &mut slots);
        seen += slots.len() as u64;
        make(&mut slots);
        let kept = slots.iter().copied().filter(|&s| s != Slot::EMPTY);
        index.mend(n, kept, &mut new);
    }
    Recovered {
        flash_items: index.slots(),
        dropped: seen - index.slots(),
        ..Recovered::default()
    }
}

/// Which places on flash hold the data that was placed there (RESTART-3).
struct Places<'a> {
    logs: &'a [Log],
    /// For each log, the position before which all writes had ended.
    written: Vec<u64>,
    shape: Shape,
    now: u32,
}

impl Places<'_> {
    fn holds(&self, slot: Slot) -> bool {
        if !slot.is_flash() || slot.expired(self.now) {
            return false;
        }
        // A record of more than 15 pages is checked when it is read: unwritten data has another
        // checksum.
        let pages = slot.len().max(1) as u64;
        self.hold(self.shape.page(slot), slot.lap(), pages)
    }

    fn hold_run(&self, run: &Run) -> bool {
        self.hold(run.page, run.lap, run.starts.pages())
    }

    /// Whether that is so for these pages, which were written in this lap.
    fn hold(&self, page: u64, lap: u64, pages: u64) -> bool {
        let n = self.logs.partition_point(|l| l.base() <= page);
        let Some(log) = n.checked_sub(1).map(|n| &self.logs[n]) else {
            return false;
        };
        page < log.base() + log.pages()
            && log.position_of(page, lap).is_some_and(|position| {
                let written = position + pages <= self.written[n - 1];
                // The slot of an upload is made after its last write (LOG-6).
                !log.is_invalid_for_good(position) && (written || log.is_of_uploads(position))
            })
    }
}

/// Turns slots of a killed process to flash. The slot of an item in DRAM becomes a slot of the
/// item's flash copy, if there is one (RESTART-5). A slot that leads nowhere becomes empty.
///
/// Only one word of each item is read, and the items of a segment are read before any is judged.
/// These loads do not depend on each other, so the processor has many under way. Three million
/// items take a tenth or two of a second. Read one after the other, they took nearly a second.
fn copies_in(items: &[u8], places: &Places<'_>, slots: &mut [Slot]) {
    for slot in slots.iter_mut().filter(|slot| slot.is_dram()) {
        let at = (places.shape.handle(*slot) as usize).wrapping_sub(1) * UNIT;
        let head = at.checked_add(COPY + 8).and_then(|end| items.get(at..end));
        *slot = head.map_or(Slot::EMPTY, |head| {
            let copy = Slot(u64::from_le_bytes(
                head[COPY..].try_into().expect("8 bytes"),
            ));
            // A slot is removed before its item is, so this is the slot's item. Its tag confirms
            // that.
            let mine = is_linked_copy(head)
                && copy.is_flash()
                && places.shape.tag_of(copy) == places.shape.tag_of(*slot);
            if mine { copy.with_hot(1) } else { Slot::EMPTY }
        });
    }
    for slot in slots.iter_mut() {
        if !places.holds(*slot) {
            *slot = Slot::EMPTY;
        }
    }
}

impl Shard {
    /// Call it before the shard takes commands: from now on another process that finds its memory
    /// may continue from it.
    pub fn serve(&mut self) {
        if let Some(state) = &self.state {
            state.set_live();
        }
    }

    /// The identity that the shard's memory and files must have.
    fn belongs(&self) -> Belongs {
        Belongs {
            id: self.id,
            shard: self.config.shard,
            logs: self.flash.logs().len(),
            regions: self.flash.logs().iter().map(Log::regions).sum(),
            region_pages: self.flash.logs().first().map_or(0, Log::region_pages),
        }
    }

    /// How many `flush_all` of the server this shard has applied; 0 if the shard does not outlive
    /// its process.
    pub fn flushes(&self) -> u64 {
        self.state.as_ref().map_or(0, State::flushes)
    }

    /// Notes that the shard has applied this many `flush_all` of the server.
    pub fn set_flushes(&mut self, flushes: u64) {
        if let Some(state) = &self.state {
            state.set_flushes(flushes);
        }
    }

    /// The next CAS value will be greater than `above`.
    pub fn begin_cas(&mut self, above: u64) {
        let shards = u64::from(self.config.shards.max(1));
        self.cas = above.next_multiple_of(shards) + u64::from(self.config.shard);
    }

    /// The greatest CAS value given out.
    pub fn cas(&self) -> u64 {
        self.cas
    }

    /// Begins the end: sends all write buffers to the device, and places nothing there any more.
    /// Completions must still be passed to [`Shard::on_disk`], until [`Shard::is_closed`].
    pub fn close<Q: Queue>(&mut self, queue: &mut Q) {
        self.flash.close(queue);
    }

    /// Whether all write buffers are on the device.
    pub fn is_closed(&self) -> bool {
        self.flash.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use senko_io::{SharedFile, observe_stores};

    use super::*;

    /// A life is the first output of SplitMix64; these are the published values for seeds 0 and 1.
    #[test]
    fn a_life_is_a_number_of_splitmix64() {
        assert_eq!(life_of(0), 0xe220_a839_7b1d_cdaf_u64 as u32);
        assert_eq!(life_of(1), 0x910a_2dec_8902_5cc1_u64 as u32);
    }

    fn folder() -> PathBuf {
        let path = std::env::temp_dir().join(format!("senko-index-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        path
    }

    const BELONGS: Belongs = Belongs {
        id: 1,
        shard: 0,
        logs: 0,
        regions: 0,
        region_pages: 0,
    };

    /// The state that a process would find in copies of the two files: the slots after repair.
    fn found(folder: &Path, copy: &str) -> BTreeSet<u64> {
        let open = |part: &str| {
            let path = folder.join(format!("{copy}{part}"));
            SharedFile::open(&path).expect("readable").expect("there")
        };
        let words = Arc::new(open("state").words(1).expect("mapped"));
        let (state, _, shape) = State::kept(words, &BELONGS, 1 << 10).expect("live");
        let memory = open("index").map(0).expect("mapped");
        let mut index = Index::kept(shape, memory, state, None).expect("an index");
        mend_all(&mut index, |_| {});
        let (mut slots, mut all) = (Vec::new(), BTreeSet::new());
        for n in 0..index.segments() {
            index.slots_of(n, &mut slots);
            all.extend(slots.iter().map(|slot| slot.0));
        }
        assert_eq!(all.len() as u64, index.slots(), "a slot is there twice");
        all
    }

    /// A kill at any store, while the index grows by whole waves, segment by segment and part by
    /// part, while slots are removed and replaced. It loses no slot and brings none back
    /// (RESTART-2), apart from those of the change under way.
    #[test]
    fn growth_loses_nothing_at_any_instant() {
        let folder = folder();
        // Large segments, which grow in many steps.
        let shape = Shape::plan(1 << 10, 1 << 20, false);
        let make = |part: &str| SharedFile::create(&folder.join(part)).expect("made");
        let words = make("state").words(BELONGS.words(&shape)).expect("mapped");
        let state = State::new(Arc::new(words), &BELONGS, 1, &shape);
        let pages = Arena::segment_memory(1 << 20, shape.page_bytes);
        let memory = make("index").map(pages).expect("mapped");
        let mut index = Index::new(shape, memory, Some(state.clone())).expect("room");
        state.set_live();
        // Stores so far, copies taken, and whether the stores belong to the index under test.
        let taken = Arc::new(Mutex::new((0_u64, 0_u64, true)));
        let (counter, from) = (Arc::clone(&taken), folder.clone());
        let observing = observe_stores(Some(Box::new(move || {
            let mut now = counter.lock().expect("one thread");
            now.0 += u64::from(now.2);
            if now.2 && now.0.is_multiple_of(997) {
                now.1 += 1;
                for part in ["state", "index"] {
                    std::fs::copy(from.join(part), from.join(format!("{}-{part}", now.1)))
                        .expect("a copy");
                }
            }
        })));
        let (mut seen, mut steps, mut x) = (0, 0, 1_u64);
        let mut model: BTreeMap<u64, Slot> = BTreeMap::new();
        for n in 0..16_000_u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let hash = (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            while let Some(segment) = index.wants_growth(hash) {
                let grown = index.grow_some(segment).expect("room");
                steps += u64::from(!grown);
                if !index.is_full_at(hash) {
                    break;
                }
            }
            let older = model
                .range(hash..)
                .next()
                .map(|(&hash, &slot)| (hash, slot));
            // The slots that the change takes away or adds.
            let mut changed = BTreeSet::new();
            match (n % 8, older) {
                (5, Some((hash, slot))) => {
                    let (pos, _) = index.find(hash, |s| s == slot).expect("it was inserted");
                    index.remove(pos);
                    model.remove(&hash);
                    changed.insert(slot.0);
                }
                (6, Some((hash, slot))) => {
                    let (pos, _) = index.find(hash, |s| s == slot).expect("it was inserted");
                    let new = index.dram_slot(hash, n as u32 + 1);
                    index.set(pos, new);
                    model.insert(hash, new);
                    changed.extend([slot.0, new.0]);
                }
                _ => {
                    let slot = index.dram_slot(hash, n as u32 + 1);
                    index.insert(hash, slot).expect("room");
                    model.insert(hash, slot);
                    changed.insert(slot.0);
                }
            }
            let copies = taken.lock().expect("one thread").1;
            while seen < copies {
                seen += 1;
                taken.lock().expect("one thread").2 = false;
                let slots = found(&folder, &format!("{seen}-"));
                let after: BTreeSet<u64> = model.values().map(|slot| slot.0).collect();
                let wrong = &slots ^ &after;
                assert!(wrong.is_subset(&changed), "step {n}: {wrong:?}");
                for part in ["state", "index"] {
                    let _ = std::fs::remove_file(folder.join(format!("{seen}-{part}")));
                }
                taken.lock().expect("one thread").2 = true;
            }
        }
        observe_stores(None);
        assert!(!observing || seen > 20, "{seen} instants");
        assert!(steps > 1000, "{steps} steps that left a segment half built");
        let _ = std::fs::remove_dir_all(&folder);
    }
}
