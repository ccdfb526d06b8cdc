// SPDX-License-Identifier: Apache-2.0
//! The adaptive buffer: it does what costs this drive the fewest erases under the present load, and
//! has no settings.
//!
//! Idea: each of a few policies ([`candidates`]) runs as a ghost, which holds page numbers alone,
//! above a small copy of the drive's own translation layer ([`ghost`]). All see the host's writes.
//! After this many writes, the buffer compares the erases that each candidate caused in its copy
//! ([`judge`]). It follows the candidate that needs the fewest: it evicts the pages that this ghost
//! evicts. After a change to another ghost, the pages that the new ghost does not hold leave as
//! room is needed. After a while the buffer holds the same pages as if it had followed that ghost
//! from the start. No candidate begins without its history. The buffer compares erases, not hits,
//! because erases are the cost. Two candidates with the same hits can differ by a factor of twenty
//! below a log-block layer. Source: the conclusion of Ogawa and Kise's endurance paper, section
//! 3.3, asks for it. Ghosts judge policies, and the real cache becomes that of the best one, as in
//! Gramacy et al., "Adaptive Caching by Refetching", NIPS 2002 (without the refetching). Large
//! buffers sample blocks as in Waldspurger et al., "Cache Modeling and Optimization using Miniature
//! Simulations", USENIX ATC 2017.
//!
//! Memory: a ghost takes about 60 bytes for each page of the buffer. Its copy has a fixed number of
//! logical blocks. If the buffer has more than [`MODELLED_PAGES`] pages, the copy sees one in this
//! many groups of eight logical blocks. Beyond that there is one bit for each logical page of the
//! drive. `table_bytes` is all of it. A copy's view of the drive's state is a guess: it can't know
//! the pages that remain in a log block from before a change to another candidate.
//!
//! Always holds, beyond BUFFER-1 to BUFFER-3: it does not know future requests, and the same
//! requests lead to the same choices. Only pages of the blocks in `behind` are held here and not in
//! the leader's ghost.

mod ghost; // the cost of a candidate
mod judge; // the choice of a candidate

use std::ops::Range;

use crate::Error;
use crate::buffer::groups::Groups;
use crate::buffer::{Buffer, Leave, Outgoing, Surroundings};
use crate::geometry::Lpn;
use crate::spec::Spec;
use ghost::Ghost;
use judge::Judge;
use senko_workload::rng::mix64;

/// The policies that compete below a layer; the buffer begins with the first.
///
/// The cost of evicting a block depends on the layer. Log blocks are merged block by block, so a
/// block with many pages should leave: a high power of `rent`. If each logical block has a log
/// block, padding turns a merge into a switch. If each page has its own cost, age and uses matter
/// rather than size, and padding can only write more. If pages have fixed places, each costs an
/// erase unless its block is new. So only hits count, and a block or a zone should leave in order.
/// Layers that collect within a few blocks lie in between. A loop longer than the buffer is worst
/// for a policy by age, and short loads end before this is noticed. This decides the first choice
/// if erases are most expensive.
fn candidates(layer: &str) -> &'static [&'static str] {
    match layer {
        "bast" => &["rent:power=16", "rent", "rent:padding=true", "pud-lru"],
        "fast" | "faster" => &["rent:power=16", "rent:power=4,uses=1"],
        "last" => &[
            "rent:power=16",
            "rent:padding=true",
            "rent:power=1,uses=0.5",
            "pud-lru",
        ],
        "superblock" => &[
            "rent",
            "rent:power=4",
            "rent:padding=true",
            "lru",
            "fab",
            "pud-lru",
        ],
        "block" => &[
            "rent:power=16,gaps=true",
            "lru",
            "rent:power=1,uses=1",
            "rent:uses=0.5",
        ],
        ZONES => &["rent:power=16,gaps=true", "lru", "pud-lru", "rent:uses=0.5"],
        _ => &[
            "rent:power=1",
            "lru",
            "fab",
            "rent:uses=0.5",
            "rent:power=1,uses=1",
            "seldom",
        ],
    }
}

/// The layer above which the blocks of `rent` are what is written in order as a whole: zones.
const ZONES: &str = "zns";

/// Approximate number of pages that leave for a copy. Larger buffers are sampled down to as many as
/// a buffer of this size evicts.
const MODELLED_PAGES: usize = 512;
/// Logical blocks that are sampled together, because neighbours matter to layers that map several
/// blocks together.
const SAMPLED_TOGETHER: u32 = 8;
/// Page writes between judgements, in shares of the buffer.
const JUDGEMENTS: usize = 16;
/// The cost of a change: this share of the pages that are here, and not in the other ghost, would
/// have been written again before they left.
const WRITTEN_AGAIN: f64 = 0.3;

struct Adaptive {
    capacity: usize,
    ghosts: Vec<Ghost>,
    judge: Judge,
    seen: Seen,
    leader: usize,
    held: Groups,
    /// Logical blocks of which pages were here and not in the leader's ghost when it became the
    /// leader. The last of them leaves first.
    behind: Vec<u32>,
    until: usize,
    /// Pages that left each ghost with the last write or flush.
    left: Vec<f64>,
    /// The pages that have left the buffer for the flash, and were not trimmed since.
    on_flash: Pages,
}

/// A set of logical pages: a bit for each.
struct Pages(Vec<u64>);

impl Pages {
    fn new(logical_pages: u32) -> Self {
        Self(vec![0; logical_pages.div_ceil(64) as usize])
    }

    /// Whether a page is in the set. Pages beyond the last one are not.
    fn has(&self, lpn: Lpn) -> bool {
        let word = self.0.get(lpn as usize / 64);
        word.is_some_and(|word| word & 1 << (lpn % 64) != 0)
    }

    fn insert(&mut self, lpn: Lpn) {
        self.0[lpn as usize / 64] |= 1 << (lpn % 64);
    }

    fn remove(&mut self, lpn: Lpn) {
        self.0[lpn as usize / 64] &= !(1 << (lpn % 64));
    }

    /// The pages of a range that are in the set: for each word, the number of its first page and
    /// the bits of its pages in the range.
    fn words(&self, lpns: Range<Lpn>) -> impl Iterator<Item = (Lpn, u64)> + '_ {
        let words = lpns.start / 64..lpns.end.div_ceil(64).min(self.0.len() as u32);
        words.map(move |word| {
            let (first, bits) = (word * 64, self.0[word as usize]);
            let below = lpns.start.saturating_sub(first);
            let above = (first + 64).saturating_sub(lpns.end);
            (first, bits & u64::MAX << below & u64::MAX >> above)
        })
    }
}

#[derive(Clone, Copy)]
struct Seen {
    pages_per_group: u32,
    /// One in this many groups of blocks.
    scale: u32,
}

impl Seen {
    fn has(self, lpn: Lpn) -> bool {
        let group = u64::from(lpn / self.pages_per_group);
        self.scale == 1 || mix64(group).is_multiple_of(u64::from(self.scale))
    }
}

pub(super) fn make(_: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let scale = (around.capacity / MODELLED_PAGES).max(1) as u32;
    let layer = around.ftl.name();
    let ghosts = candidates(layer)
        .iter()
        .map(|candidate| {
            let candidate: Spec = candidate.parse()?;
            let by_extent = layer == ZONES && candidate.name() == "rent";
            Ghost::new(&candidate, by_extent, around, scale)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(Box::new(Adaptive {
        capacity: around.capacity,
        judge: Judge::new(ghosts.len()),
        left: vec![0.0; ghosts.len()],
        ghosts,
        seen: Seen {
            pages_per_group: around.pages_per_block * SAMPLED_TOGETHER,
            scale,
        },
        leader: 0,
        held: Groups::new(around),
        behind: Vec::with_capacity(around.capacity),
        until: interval(around.capacity),
        on_flash: Pages::new(around.logical_pages),
    }))
}

fn interval(capacity: usize) -> usize {
    (capacity / JUDGEMENTS).max(32)
}

impl Adaptive {
    /// Judges the candidates, and follows another if it is better.
    fn judge(&mut self) {
        self.until = interval(self.capacity);
        // The cost of a page that leaves, in the copy of the leader; the copy sees only one in this
        // many.
        let left = self.left[self.leader].max(1.0) * f64::from(self.seen.scale);
        let page_cost = self.judge.recent(self.leader) / left;
        let costs: Vec<f64> = self
            .ghosts
            .iter_mut()
            .map(|ghost| ghost.settle(page_cost))
            .collect();
        for (left, ghost) in self.left.iter_mut().zip(&mut self.ghosts) {
            *left = *left * judge::KEPT + ghost.take_left() as f64;
        }
        self.judge.add(costs.iter().copied());
        let change = |candidate: usize| {
            let other = &self.ghosts[candidate].buffer;
            let pages = self.held.held_pages().filter(|lpn| !other.contains(*lpn));
            WRITTEN_AGAIN * page_cost * pages.count() as f64
        };
        if let Some(candidate) = self.judge.better(self.leader, change) {
            self.follow(candidate);
        }
    }

    /// Follows another ghost. Pages that are here and not in that ghost leave as room is needed,
    /// from the block with the most such pages first.
    fn follow(&mut self, candidate: usize) {
        self.leader = candidate;
        self.behind.clear();
        self.behind.extend(self.held.blocks());
        let leader = &self.ghosts[candidate].buffer;
        let held = &self.held;
        let more = |block: &u32| {
            held.pages_of(*block)
                .filter(|lpn| !leader.contains(*lpn))
                .count()
        };
        self.behind.retain(|block| more(block) > 0);
        self.behind
            .sort_by_cached_key(|block| (more(block), *block));
    }

    /// Repeats what the leader's ghost did with the last write or flush.
    fn imitate(&mut self, incoming: Option<Lpn>, out: &mut Outgoing) {
        for (lpn, how) in &self.ghosts[self.leader].out.pages {
            if incoming == Some(*lpn) && self.held.find(*lpn).is_some() {
                // The ghost pads the page that is being written, since it does not hold it. The
                // buffer holds an older version, which the new one replaces.
                continue;
            }
            if self.held.remove(*lpn) {
                self.on_flash.insert(*lpn);
                out.dirty(*lpn);
            } else if *how == Leave::Pad {
                out.pad(*lpn);
            }
        }
    }

    /// Evicts the pages of one block that the leader's ghost does not hold, if there are any.
    fn catch_up(&mut self, out: &mut Outgoing) -> bool {
        let Some(block) = self.behind.pop() else {
            return false;
        };
        let leader = &self.ghosts[self.leader].buffer;
        let first = out.pages.len();
        let gone = self
            .held
            .pages_of(block)
            .filter(|lpn| !leader.contains(*lpn));
        for lpn in gone {
            out.dirty(lpn);
        }
        for (lpn, _) in &out.pages[first..] {
            self.held.remove(*lpn);
            self.on_flash.insert(*lpn);
        }
        true
    }
}

impl Buffer for Adaptive {
    fn len(&self) -> usize {
        self.held.held()
    }

    fn contains(&self, lpn: Lpn) -> bool {
        self.held.find(lpn).is_some()
    }

    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool {
        self.until -= 1;
        if self.until == 0 {
            self.judge();
        }
        let (seen, on_flash) = (self.seen, &self.on_flash);
        for ghost in &mut self.ghosts {
            ghost.write(lpn, &|lpn| seen.has(lpn), on_flash);
        }
        self.imitate(Some(lpn), out);
        // The leader holds the new page. If the page is not here and the buffer is full, the buffer
        // holds a page that the leader does not.
        while self.held.held() == self.capacity && !self.contains(lpn) {
            assert!(self.catch_up(out), "what the leader does not hold is noted");
        }
        self.held.enter(lpn).hit
    }

    fn read(&mut self, lpn: Lpn) -> bool {
        self.contains(lpn)
    }

    fn trim(&mut self, lpn: Lpn) {
        for ghost in &mut self.ghosts {
            ghost.trim(lpn);
        }
        self.on_flash.remove(lpn);
        self.held.remove(lpn);
    }

    fn drain(&mut self, out: &mut Outgoing) {
        let (seen, on_flash) = (self.seen, &self.on_flash);
        for ghost in &mut self.ghosts {
            ghost.drain(&|lpn| seen.has(lpn), on_flash);
        }
        self.imitate(None, out);
        while self.catch_up(out) {}
    }

    fn table_bytes(&self) -> u64 {
        let ghosts: u64 = self.ghosts.iter().map(Ghost::bytes).sum();
        let lists = 4 * self.behind.capacity() + 8 * self.on_flash.0.len();
        self.held.bytes() + ghosts + lists as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong modulus once went unnoticed by tests: another page's bit was set.
    #[test]
    fn each_page_has_a_bit_of_its_own() {
        let mut pages = Pages::new(192);
        for lpn in [0, 63, 70, 191] {
            assert!(!pages.has(lpn));
            pages.insert(lpn);
            assert!(pages.has(lpn));
        }
        assert_eq!(pages.0, [1 | 1 << 63, 1 << 6, 1 << 63]);
        assert!(!pages.has(192), "pages beyond the last are in no set");
        // Parts of words, and a range beyond the last page.
        let words = |lpns| pages.words(lpns).collect::<Vec<_>>();
        assert_eq!(words(1..64), [(0, 1 << 63)]);
        assert_eq!(words(63..71), [(0, 1 << 63), (64, 1 << 6)]);
        assert_eq!(words(64..70), [(64, 0)]);
        assert_eq!(words(150..400), [(128, 1 << 63)]);
        pages.remove(70);
        assert!(!pages.has(70));
    }
}
