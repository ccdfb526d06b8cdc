// SPDX-License-Identifier: Apache-2.0
//! Small items leave DRAM in the order of their hashes, some hundred at a time, and get slots of
//! 21 bits (`index/sorted.rs`).
//!
//! The policy's victims wait among the items that leave next (`dram/leaving.rs`). A cursor passes
//! over all hashes; one pass is a batch. Where memory is needed, the items behind the cursor are
//! written as a run of full pages. Each allocation that takes a chunk which they have left lets a
//! victim of its class wait in their place. So the waiting items stay about as many as they are,
//! and a batch has about twice as many records.
//!
//! An item may always leave alone too, with a slot of eight bytes (`demote.rs`): if its size class
//! has no free chunk after a run was written, or a page of DRAM is emptied.
//!
//! Always holds:
//! - SEAL-1: the records of a batch have ascending hashes, of which no two are twins (SORTED-1) or
//!   share a prefix (RUNS-2). One that would waits for the next batch.
//! - SEAL-2: a page has no two records with the same tag (LOG-4).

use senko_io::{PAGE_SIZE, Queue};

use crate::arena::Handle;
use crate::dram::{Leaving, SMALL};
use crate::flash::admission::Refusal;
use crate::flash::log::NoPlace;
use crate::index::{RUN_PAGES, Run, Slot, Starts};
use crate::record::RECORD_ALIGN;
use crate::shard::Shard;
use crate::types::AllocError;

/// Batches in a lap of the log, if all records are small.
const BATCHES: usize = 120;
/// Bytes of a batch in a shard with little flash.
const SMALLEST_BATCH: usize = 64 << 10;
/// While so many runs' chunks are free, no further one is written for a class that has none.
const FREE_RUNS: usize = 2;

/// Runs of items that wait at least: a pass leaves less than a run at its end.
const LEAST_RUNS: usize = 4;

/// Pages that items have at least beside those that wait, if memory has twice as many. Each
/// of the 44 size classes of small items has a page that is not full, and one that is emptied.
const LEAST_ITEM_PAGES: usize = 72;

/// Bytes of items that wait, in a shard of this much flash and memory: half of a batch.
fn target(flash_pages: u64, memory: usize) -> usize {
    let of_batch = (flash_pages as usize * PAGE_SIZE / BATCHES).max(SMALLEST_BATCH);
    of_batch.min(memory / 8) / 2
}

/// Pages of a run in a shard of this much flash and memory; `None` if it is too small for sorted
/// records.
pub(super) fn run_pages(flash_pages: u64, memory: usize) -> Option<u64> {
    let target = target(flash_pages, memory);
    let runs = (1..=RUN_PAGES).rev().filter(|n| n.is_power_of_two());
    let fitting = runs
        .into_iter()
        .find(|n| LEAST_RUNS * n * PAGE_SIZE <= target);
    fitting.filter(|_| flash_pages > 0).map(|n| n as u64)
}

/// Where the cursor is.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// Whether a batch is being written.
    begun: bool,
    /// The hash of the batch's last record; `None` before its first.
    last: Option<u64>,
    /// Records of the batch so far.
    records: u64,
    /// About as many had the last batches; 0 before the first.
    usual: u64,
    /// Bytes of chunks that runs have freed, and for which no other items wait yet.
    spare: usize,
    /// Memory for the items of buckets.
    gathered: Vec<(u64, Handle)>,
}

impl Sealing {
    /// Notes that bytes of the chunks that runs have freed are in use again.
    pub(super) fn spend_spare(&mut self, bytes: usize) {
        self.spare = self.spare.saturating_sub(bytes);
    }
}

/// Where an item went that the policy had chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retired {
    Waits,
    /// Its chunks are free, or will be.
    Left,
}

/// A record that has its place in a run.
#[derive(Clone, Copy, Debug)]
struct Placed {
    item: Handle,
    hash: u64,
    len: usize,
    page: usize,
    offset: usize,
}

impl Shard {
    /// Lets small items wait for others, if they are to be sorted.
    pub(super) fn begin_sorting(&mut self) {
        if self.config.sort_small
            && let Some(sorted) = self.index.sorted()
        {
            let pages = self.flash.logs().iter().map(|log| log.pages()).sum();
            let target = target(pages, self.dram.memory());
            // A restored shard may have longer runs than it would begin with.
            let target = target.max(LEAST_RUNS * sorted.run_pages() as usize * PAGE_SIZE);
            self.dram.gather_leaving(target, self.config.hash_seed);
        }
    }

    /// A chunk of this class that was free was given out: a victim of the class waits in the place
    /// of the item that has left. So each class loses as many items as it gets.
    #[inline]
    pub(super) fn chunk_taken<Q: Queue>(&mut self, queue: &mut Q, class: usize) {
        if self.sealing.spare > 0 {
            self.replace_spare(queue, class);
        }
    }

    fn replace_spare<Q: Queue>(&mut self, queue: &mut Q, class: usize) {
        let size = self.dram.arena().class(class).size;
        let mut left = false;
        if let Some(victim) = self.next_victim(class) {
            left = self.retire(queue, victim) == Ok(Retired::Left);
        }
        if !left {
            self.sealing.spend_spare(size);
        }
        // Some that waited were read or deleted.
        if self.lacks_leaving()
            && let Some(victim) = self.next_victim(class)
        {
            let _ = self.retire(queue, victim);
        }
    }

    /// Whether too few items wait.
    fn lacks_leaving(&self) -> bool {
        let leaving = self.dram.leaving();
        leaving.is_some_and(|leaving| !leaving.is_full_with(self.sealing.spare))
    }

    /// A victim of this class left alone, since no chunk was free, although runs have freed some.
    pub(super) fn left_alone(&mut self, class: usize) {
        let size = self.dram.arena().class(class).size;
        if size <= SMALL {
            self.sealing.spend_spare(size);
        }
    }

    /// Forgets all sorted records, which were flushed.
    pub(super) fn forget_sorted(&mut self) {
        self.index.forget_sorted();
        self.sealing.begun = false;
    }

    /// Whether an item's record may be sorted.
    fn is_small(&self, item: Handle) -> bool {
        let header = self.dram.arena().header(item);
        !header.has_answer() && header.flash_len() <= SMALL
    }

    /// Makes room by small items, for an allocation of this class. Returns whether chunks were
    /// freed, perhaps of other classes. As long as too few items wait, one more does.
    pub(super) fn seal_or_gather<Q: Queue>(
        &mut self,
        queue: &mut Q,
        class: usize,
    ) -> Result<bool, AllocError> {
        let (Some(leaving), Some(sorted)) = (self.dram.leaving(), self.index.sorted()) else {
            return Ok(false);
        };
        if self.dram.arena().class(class).size > SMALL {
            return Ok(false);
        }
        let (run_pages, may_seal) = (sorted.run_pages(), leaving.is_half_full());
        if self.lacks_leaving()
            && let Some(victim) = self.next_victim(class)
        {
            self.retire(queue, victim)?;
        }
        if !may_seal {
            return Ok(false);
        }
        let enough = FREE_RUNS * run_pages as usize * PAGE_SIZE;
        if self.sealing.spare >= enough {
            return Ok(false);
        }
        match self.seal(queue) {
            Ok(sealed) => Ok(sealed),
            Err((n, why)) if self.no_place(queue, n, RUN_PAGES as u64, why) => Ok(false),
            Err(_) => Err(AllocError::Busy),
        }
    }

    /// An item that the policy has chosen waits for others with similar hashes, or leaves at once.
    fn retire<Q: Queue>(&mut self, queue: &mut Q, item: Handle) -> Result<Retired, AllocError> {
        let copy = self.dram.arena().flash_copy(item);
        let clean = copy != Slot::EMPTY && self.place(copy).is_some();
        if clean || self.is_dead(item) || !self.is_small(item) {
            return self.evict(queue, item).map(|()| Retired::Left);
        }
        let header = self.dram.arena().header(item);
        let hash = self.item_hash(item);
        self.dram.left(self.dram.arena().class_of(item));
        if !self
            .flash
            .admitter_mut()
            .passes(header.flash_len(), header.fetched())
        {
            self.refuse(item, hash, Refusal::Rule);
            return Ok(Retired::Left);
        }
        self.dram.leave(item, hash);
        Ok(Retired::Waits)
    }

    /// Lets an item of a page that is being emptied wait for a run, if it is small, and writes one
    /// if many items wait. Returns whether it waits, or has left.
    pub(super) fn waits_for_run<Q: Queue>(
        &mut self,
        queue: &mut Q,
        item: Handle,
    ) -> Result<bool, AllocError> {
        if self.dram.leaving().is_none() || self.is_dead(item) || !self.is_small(item) {
            return Ok(false);
        }
        if !Leaving::has(self.dram.arena(), item) {
            self.retire(queue, item)?;
        }
        if self.dram.leaving().is_some_and(Leaving::is_overfull) {
            // If there is no place now, the item leaves alone.
            let _ = self.seal(queue);
        }
        Ok(true)
    }

    /// Writes the items behind the cursor as a run, or drops them if the budget does not have their
    /// bytes. False if there are too few items, or no log takes any.
    fn seal<Q: Queue>(&mut self, queue: &mut Q) -> Result<bool, (usize, NoPlace)> {
        let Some(n) = self.flash.choose_log() else {
            return Ok(false);
        };
        let most = self.index.sorted().map_or(0, |sorted| sorted.run_pages());
        self.flash
            .room_now(queue, n, most, 0)
            .map_err(|why| (n, why))?;
        let pages = self.flash.log(n).run_pages(most);
        let Some((records, starts)) = self.plan_run(pages as usize) else {
            return Ok(false);
        };
        let bytes = records.iter().map(|r| r.len).sum();
        self.sealing.last = records.last().map(|r| r.hash);
        let arena = self.dram.arena();
        let freed: usize = records.iter().map(|r| arena.item_bytes(r.item)).sum();
        if let Err(refusal) = self.flash.admitter_mut().spend(bytes) {
            for record in &records {
                self.refuse(record.item, record.hash, refusal);
            }
        } else {
            self.write_run(queue, n, pages, (&records, starts));
        }
        self.sealing.spare += freed;
        Ok(true)
    }

    fn write_run<Q: Queue>(
        &mut self,
        queue: &mut Q,
        n: usize,
        pages: u64,
        (records, starts): (&[Placed], Starts),
    ) {
        let bytes = records.iter().map(|r| r.len).sum();
        let arena = self.dram.arena();
        let new = records
            .iter()
            .filter(|r| !Leaving::was_taken_back(arena, r.item));
        self.stats.admitted_bytes += new.map(|r| r.len as u64).sum::<u64>();
        let first = self.flash.log_mut(n).place_run(pages, bytes);
        for record in records {
            let position = first + record.page as u64;
            self.put_record(n, record.item, (position, record.offset));
        }
        let (page, lap) = self.flash.log(n).place_of(first);
        self.index.add_run(&Run {
            batch: self.index.sorted().map_or(0, |sorted| sorted.batch()),
            page,
            lap: lap & 3,
            starts,
        });
        let before = self.index.bytes();
        for record in records {
            let place = self.flash.log(n).place_of(first + record.page as u64);
            let expiry = self.dram.arena().item_expiry(record.item);
            let slot = self
                .index
                .flash_slot(record.hash, place, 1, expiry, self.now);
            self.turn_to_flash(record.item, record.hash, slot);
        }
        self.flash.settle(queue, n);
        self.sealing.records += records.len() as u64;
        self.stats.sorted_runs += 1;
        self.stats.sorted_items += records.len() as u64;
        self.stats.demotions += records.len() as u64;
        if self.index.bytes() != before {
            self.dram.index_grew();
            self.share_memory(0);
        }
    }

    /// The records of the next run of full pages. A batch ends where there are too few for another.
    fn plan_run(&mut self, pages: usize) -> Option<(Vec<Placed>, Starts)> {
        if !self.sealing.begun {
            self.begin_batch();
        }
        self.plan_after_last(pages).or_else(|| {
            self.begin_batch();
            self.plan_after_last(pages)
        })
    }

    /// Begins a batch. It will be about as large as the last ones.
    fn begin_batch(&mut self) {
        (self.sealing.begun, self.sealing.last) = (true, None);
        let usual = &mut self.sealing.usual;
        *usual = match (*usual, std::mem::take(&mut self.sealing.records)) {
            (_, 0) => 2 * self.dram.leaving().map_or(0, Leaving::items) as u64,
            (0, records) => records,
            (usual, records) => (7 * usual + records) / 8,
        };
        let usual = self.sealing.usual;
        self.keep_index_small(self.index.bytes_of_batch(usual));
        self.index.begin_batch(usual);
    }

    /// Keeps the index small enough that items have DRAM to wait for a run, if it is about to grow
    /// by so many bytes. Otherwise they would leave alone, and take even more of it. The oldest
    /// regions are reclaimed early. If that is too late, the oldest sorted records are forgotten.
    pub(super) fn keep_index_small(&mut self, growth: usize) {
        let Some(waiting) = self.dram.leaving().map(Leaving::target) else {
            return;
        };
        let (pages, memory) = (self.dram.arena().page_bytes(), self.dram.memory());
        let items = (memory / 8).max(LEAST_ITEM_PAGES * pages) + waiting;
        let most = memory.saturating_sub(items);
        // With less than half of the memory for the index, flash would be nearly empty.
        if items > memory / 2 || self.index.bytes() + growth <= most {
            return;
        }
        for n in 0..self.flash.logs().len() {
            self.flash.log_mut(n).want_fewer_items();
        }
        while self.index.bytes() + growth > most + memory / 16
            && let Some(forgotten) = self.index.forget_oldest_sorted()
        {
            self.stats.drops_index += forgotten;
        }
    }

    fn plan_after_last(&mut self, pages: usize) -> Option<(Vec<Placed>, Starts)> {
        let last = self.sealing.last;
        let mut bucket = last.map_or(0, |hash| {
            self.dram.leaving().map_or(0, |l| l.bucket_of(hash))
        });
        let mut gathered = std::mem::take(&mut self.sealing.gathered);
        let (mut records, mut dead) = (Vec::new(), Vec::new());
        let mut plan = Plan::new(pages, last);
        'gather: while let Some(leaving) = self.dram.leaving().filter(|l| bucket < l.buckets()) {
            gathered.clear();
            leaving.items_of(self.dram.arena(), bucket, &mut gathered);
            gathered.sort_unstable();
            for &(hash, item) in gathered.iter() {
                if last.is_some_and(|last| hash <= last) || self.dram.arena().pins(item) > 0 {
                    continue;
                }
                if self.is_dead(item) {
                    dead.push(item);
                    continue;
                }
                let len = self.dram.arena().header(item).flash_len();
                records.push((item, hash, len));
                if !plan.add(self, item, hash, len) {
                    break 'gather;
                }
            }
            bucket += 1;
        }
        self.sealing.gathered = gathered;
        let mut full = plan.is_full;
        // A page whose first record can't be told from the one before begins with the next.
        let mut without = Vec::new();
        let starts = loop {
            if !full {
                break None;
            }
            match Starts::of(&plan.ends()) {
                Ok(starts) => break Some(starts),
                Err(page) => {
                    without.extend(plan.placed.iter().find(|r| r.page == page).map(|r| r.hash));
                    plan = Plan::new(pages, last);
                    for &(item, hash, len) in records.iter().filter(|r| !without.contains(&r.1)) {
                        if !plan.add(self, item, hash, len) {
                            break;
                        }
                    }
                    full = plan.pages_used() == pages;
                }
            }
        };
        for item in dead {
            self.unlink_dead(item);
        }
        Some((plan.placed, starts?))
    }
}

/// Records in the pages of a run.
struct Plan {
    pages: usize,
    placed: Vec<Placed>,
    /// Bytes of the last page in use.
    used: usize,
    /// The hash of the record before the run's first.
    before: Option<u64>,
    /// Whether a record found no room in the last page.
    is_full: bool,
}

impl Plan {
    fn new(pages: usize, before: Option<u64>) -> Plan {
        Plan {
            pages,
            placed: Vec::new(),
            used: 0,
            before,
            is_full: false,
        }
    }

    /// Adds a record, unless it must wait for the next batch. False if the run is full.
    fn add(&mut self, shard: &Shard, item: Handle, hash: u64, len: usize) -> bool {
        let last = self.placed.last();
        let before = last.map(|r| r.hash).or(self.before);
        let index = &shard.index;
        let twins = |a| {
            index
                .sorted()
                .is_some_and(|sorted| sorted.are_twins(a, hash))
        };
        if before.is_some_and(|a| a >> 32 == hash >> 32 || twins(a)) {
            return true; // SEAL-1
        }
        let (mut page, mut offset) = (last.map_or(0, |r| r.page), self.used);
        if offset + len > PAGE_SIZE {
            (page, offset) = (page + 1, 0);
        }
        if page == self.pages {
            self.is_full = true;
            return false;
        }
        let mut others = self.placed.iter().rev().take_while(|r| r.page == page);
        if others.any(|r| index.tag(r.hash) == index.tag(hash)) {
            return true; // SEAL-2
        }
        self.placed.push(Placed {
            item,
            hash,
            len,
            page,
            offset,
        });
        self.used = (offset + len).next_multiple_of(RECORD_ALIGN);
        true
    }

    fn pages_used(&self) -> usize {
        self.placed.last().map_or(0, |r| r.page + 1)
    }

    /// The prefixes of the first and the last record of each page.
    fn ends(&self) -> Vec<(u32, u32)> {
        let prefix = |record: &Placed| (record.hash >> 32) as u32;
        let pages = self.placed.chunk_by(|a, b| a.page == b.page);
        pages
            .map(|page| (prefix(&page[0]), prefix(&page[page.len() - 1])))
            .collect()
    }
}
