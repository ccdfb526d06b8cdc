// SPDX-License-Identifier: Apache-2.0
//! Events in each size class: evictions, which show how long its items stay, and counters for
//! `stats`.
//!
//! The shard reports each eviction here, and uses the counts to find a class that can give a page
//! away.

use crate::stats::{ClassCounts, SlabClassStats};

/// Evictions before the first rebalancing.
const FIRST: u32 = 256;

#[derive(Clone, Debug, Default)]
struct Class {
    /// Items that left DRAM since about the last rebalancing, which halves the count.
    recent: u32,
    /// Items that were lost.
    evicted: u64,
    out_of_memory: u64,
    counts: ClassCounts,
}

/// All classes of a shard.
#[derive(Debug)]
pub(crate) struct Classes {
    of: Vec<Class>,
    /// Evictions until pages are rebalanced.
    to_rebalance: u32,
}

impl Classes {
    pub(crate) fn new(classes: usize) -> Classes {
        Classes {
            of: vec![Class::default(); classes],
            to_rebalance: FIRST,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    /// Counts an item of the class that left DRAM, for flash or for good.
    pub(crate) fn left(&mut self, class: usize) {
        let class = &mut self.of[class];
        class.recent = class.recent.saturating_add(1);
        self.to_rebalance = self.to_rebalance.saturating_sub(1);
    }

    /// Counts an item of the class that was lost: it left DRAM, and flash did not take it.
    pub(crate) fn evicted(&mut self, class: usize) {
        self.of[class].evicted += 1;
    }

    /// Counts an item of the class that found no room.
    pub(crate) fn refused(&mut self, class: usize) {
        self.of[class].out_of_memory += 1;
    }

    /// Evictions of the class since about the last rebalancing.
    pub(crate) fn recent(&self, class: usize) -> u32 {
        self.of[class].recent
    }

    /// The same count, which is halved afterwards.
    pub(crate) fn take_half(&mut self, class: usize) -> u32 {
        let recent = self.of[class].recent;
        self.of[class].recent /= 2;
        recent
    }

    /// Whether it is time to rebalance. If so, the next rebalancing is due after `after` more
    /// evictions.
    pub(crate) fn is_due(&mut self, after: impl FnOnce() -> u32) -> bool {
        let due = self.to_rebalance == 0;
        if due {
            self.to_rebalance = after();
        }
        due
    }

    /// Commands on items of the class.
    pub(crate) fn counts(&mut self, class: usize) -> &mut ClassCounts {
        &mut self.of[class].counts
    }

    /// Writes the class's counters into its line of `stats slabs`.
    pub(crate) fn show(&self, class: usize, stats: &mut SlabClassStats) {
        let class = &self.of[class];
        stats.evicted = class.evicted;
        stats.out_of_memory = class.out_of_memory;
        stats.counts = class.counts;
    }

    /// Resets the counters of commands.
    pub(crate) fn reset_counts(&mut self) {
        for class in &mut self.of {
            class.counts = ClassCounts::default();
        }
    }

    /// Resets the counts of evictions and refusals.
    pub(crate) fn reset_evictions(&mut self) {
        for class in &mut self.of {
            (class.recent, class.evicted, class.out_of_memory) = (0, 0, 0);
        }
    }
}
