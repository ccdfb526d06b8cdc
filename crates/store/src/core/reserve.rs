// SPDX-License-Identifier: Apache-2.0
//! The space that stays free so that a full store can be emptied (SPACE-6 of `space.rs`).
//!
//! ```text
//! seal all logs, oldest first | a log to go on in | compact any block | puts: deletes until then
//! ```
//!
//! The active log has a *budget*: the bytes that it may take as blocks. A budget is granted only if
//! the free space is enough for all of the above with it. Whatever else takes space (another log, a
//! large value) is checked against the same sum, under the writer's lock. So a log can always be
//! sealed, and then there is space to compact. Deletes need less than puts, so puts end first.
//! When a budget is used up, `room.rs` frees space.

use std::sync::atomic::Ordering;

use crate::StoreError;
use crate::block::extent_bytes;
use crate::core::Core;
use crate::core::state::logs::Writer;
use crate::core::version::{LogHandle, Version};
use crate::disk::space::Held;
use crate::extent::UNIT_BYTES;
use crate::log::Packing;

/// The first budget of a new store's log, in bytes. So a small store has a small file.
const FIRST_BUDGET: u64 = 1 << 20;

/// What a write needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// It only deletes, so it may use the space kept for deletes.
    pub deletes: bool,
    /// The most that it takes in blocks, in bytes.
    pub sealed: u64,
}

/// What counts for the space that must stay free.
struct Ledger {
    /// The most that the frozen logs take as blocks, oldest first.
    frozen: Vec<u64>,
    /// The most that the active log takes as blocks now.
    active: u64,
    /// Whether a log is ready to go on in.
    spare: bool,
    /// There is only a first log.
    young: bool,
    log_bytes: u64,
    /// The most that a block can take, the most that one takes, and what all take together.
    block_most: u64,
    longest_block: u64,
    all_blocks: u64,
    /// What blocks and pieces of free space may waste without a compaction freeing anything: a part
    /// of an extent each.
    wasted: u64,
}

impl Ledger {
    /// Bytes that must be free if the active log takes `active` bytes as blocks.
    fn needed(&self, active: u64, deletes: bool) -> u64 {
        let (mut taken, mut most) = (0, 0);
        for &sealed in self.frozen.iter().chain([&active]) {
            most = most.max(taken + sealed as i64);
            taken += sealed as i64 - self.log_bytes as i64;
        }
        let next = if self.spare { 0 } else { self.log_bytes };
        let logs = || self.frozen.iter().chain([&active]);
        let longest = logs().fold(self.longest_block, |longest, &sealed| longest.max(sealed));
        let mut work = longest.min(self.block_most);
        if !deletes {
            // Deletes of everything take no more than what they delete.
            let all = self.all_blocks + logs().sum::<u64>();
            work += (2 * self.block_most / 5).min(all / 2 + UNIT_BYTES) + self.wasted;
        }
        most.max(taken + (next + work) as i64) as u64
    }
}

impl Core {
    /// Allocates space.
    pub fn allocate(&self, bytes: u64) -> Result<Held, StoreError> {
        self.allocate_between(bytes, bytes)
    }

    /// Allocates up to `most` bytes in one piece, and at least `least`; see
    /// [`crate::disk::space::Space::allocate_between`].
    pub fn allocate_between(&self, most: u64, least: u64) -> Result<Held, StoreError> {
        let held = self.space.allocate_between(most, least)?;
        // After a failure, extents are released that the manifest on the device may still name.
        // They must not be reused. The latch is set before they are released, so a thread that got
        // one sees the latch.
        self.health.check_writable()?;
        Ok(held)
    }

    /// The part of an extent by which blocks become longer.
    pub fn block_part(&self) -> u64 {
        (self.options.block_bytes / 128).next_multiple_of(UNIT_BYTES)
    }

    /// The most bytes that these elements take as blocks.
    pub fn sealed_most(&self, packing: &Packing) -> u64 {
        if packing.elements() == 0 {
            return 0;
        }
        let page_bytes = self.options.page_bytes;
        let pages = packing.data_pages(page_bytes);
        let bytes = extent_bytes(pages, packing.elements(), packing.large(), page_bytes);
        // The writer may end a block early, because it expected less.
        let blocks = 1 + bytes / self.options.block_bytes;
        bytes + blocks * self.block_part()
    }

    fn ledger(&self, version: &Version) -> Ledger {
        let sealed = |nth: usize| {
            let handle = version.logs.get(nth);
            handle.map_or(0, |handle| self.sealed_most(handle.log.packing()))
        };
        let extents = version
            .blocks()
            .map(|(_, handle)| handle.held.extent().bytes());
        let (blocks, longest_block, all_blocks) = extents
            .fold((0, 0, 0), |(blocks, longest, all), bytes| {
                (blocks + 1, bytes.max(longest), all + bytes)
            });
        Ledger {
            frozen: (1..version.logs.len()).rev().map(sealed).collect(),
            active: sealed(0),
            spare: self.spare.is_there(),
            young: blocks == 0 && version.logs.len() < 2,
            log_bytes: self.options.log_bytes,
            block_most: self.options.block_bytes + self.options.block_bytes / 4,
            longest_block,
            all_blocks,
            wasted: (4 + blocks) * self.block_part(),
        }
    }

    /// Free bytes, up to `wanted`, that are in the file already, because the file system may be
    /// full when they are needed.
    fn free_bytes(&self, wanted: u64) -> u64 {
        let free = self.space.left_in_file(wanted, self.longest());
        if self.space.unrecorded() && !self.health.is_latched() {
            // The manifest is to say which of this space has storage (SPACE-4). After a failure the
            // store is latched. Without space it tries again later.
            let _ = self.commit();
        }
        free
    }

    /// The largest useful budget of the active log, if it can have `wanted` bytes or more while
    /// `beside` bytes are taken for something else.
    fn budget(&self, ledger: &Ledger, wanted: u64, deletes: bool, beside: u64) -> Option<u64> {
        let usual = self.options.log_bytes + self.options.log_bytes / 4;
        let most = match ledger.young {
            true => usual.min((2 * wanted).max(FIRST_BUDGET)),
            false => usual,
        };
        let most = most.max(wanted);
        let needed = |budget: u64| beside.saturating_add(ledger.needed(budget, deletes));
        let free = self.free_bytes(needed(most));
        if needed(most) <= free {
            return Some(most);
        }
        if needed(wanted) > free {
            return None;
        }
        let (mut fits, mut too_much) = (wanted, most);
        while too_much - fits > UNIT_BYTES {
            let middle = (fits + too_much) / 2;
            match needed(middle) <= free {
                true => fits = middle,
                false => too_much = middle,
            }
        }
        Some(fits)
    }

    /// Lets the active log take `sealed` bytes as blocks; false if there is no space for that.
    pub fn grant(&self, writer: &mut Writer, deletes: bool, sealed: u64) -> bool {
        if sealed <= writer.budget(deletes) {
            return true;
        }
        let ledger = self.ledger(&self.current());
        let budget = self.budget(&ledger, sealed, deletes, 0);
        if let Some(budget) = budget {
            writer.set_budget(budget, deletes);
        }
        budget.is_some()
    }

    /// Whether another log can take over and then take `wish`, while the active one waits to be
    /// sealed.
    pub fn room_for_next(&self, wish: Wish) -> bool {
        let mut ledger = self.ledger(&self.current());
        let beside = if ledger.spare { 0 } else { ledger.log_bytes };
        ledger.frozen.push(ledger.active);
        ledger.spare = false;
        ledger.young = false;
        // A log with a small budget is soon full again.
        let useful = wish.sealed.max(ledger.log_bytes / 8);
        let wish = self.budget(&ledger, useful, wish.deletes, beside);
        wish.is_some()
    }

    /// Whether the next log is to be prepared, and can be. While the active log is nearly empty the
    /// next one can wait, so a small store has one log in its file.
    pub fn room_for_spare(&self, writer: &Writer) -> bool {
        if !writer
            .active()
            .is_some_and(|active| self.soon_full(&active))
        {
            return false;
        }
        let mut ledger = self.ledger(&self.current());
        let (log_bytes, active) = (ledger.log_bytes, writer.budget(true).max(ledger.active));
        ledger.spare = true;
        let needed = log_bytes + ledger.needed(active, false);
        // The caller commits the manifest.
        let free = self.space.left_in_file(needed, self.longest());
        free >= needed && self.space.has_place_for_log(log_bytes)
    }

    /// Whether much of a log is in use.
    pub fn soon_full(&self, handle: &LogHandle) -> bool {
        handle.log.bytes_used() > self.options.log_bytes / 8
    }

    /// Allocates space for a large value, if enough is left.
    pub fn allocate_large(&self, writer: &mut Writer, bytes: u64) -> Result<Held, StoreError> {
        let ledger = self.ledger(&self.current());
        if self.budget(&ledger, ledger.active, false, bytes).is_none() {
            return Err(self.full());
        }
        // The active log's budget is granted anew, without this space.
        writer.forget_budget();
        self.allocate(bytes)
    }

    /// Free bytes that stay in the file when it shrinks.
    pub fn kept_bytes(&self, writer: &Writer) -> u64 {
        let mut ledger = self.ledger(&self.current());
        if !ledger.young {
            // Of blocks of any size, because it may be filled again; a small store of small ones.
            let all = ledger.all_blocks;
            ledger.longest_block = ledger.longest_block.max(ledger.block_most.min(2 * all));
            ledger.all_blocks = all.max((2 * ledger.block_most).min(4 * all));
        }
        ledger.needed(writer.budget(true).max(ledger.active), false)
    }

    /// The error of a write without space.
    pub fn full(&self) -> StoreError {
        let ledger = self.ledger(&self.current());
        StoreError::NoSpace(match ledger.all_blocks {
            0 => format!(
                "a log of {} MiB and the blocks that it becomes do not fit; a store with smaller logs needs less",
                ledger.log_bytes >> 20
            ),
            _ => "all but what deletes and compaction need is in use".to_owned(),
        })
    }

    /// The longest element, as far as it is known: a part of a piece of free space that is shorter
    /// takes none.
    pub fn longest(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }

    /// Notes the length of elements.
    pub fn saw_length(&self, longest: u64) {
        self.longest.fetch_max(longest, Ordering::Relaxed);
    }
}
