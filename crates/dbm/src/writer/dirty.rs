// SPDX-License-Identifier: Apache-2.0
//! Pages that changed since a checkpoint wrote them, in the order of their first change. The writer
//! marks them (`writer.rs`), a checkpoint takes some of them (`checkpoint.rs`).
//!
//! DIRTY-1: a page's mark names a checkpoint. All changes that the page's place in the log lacks
//! are at or after the position at which that checkpoint began. DIRTY-2: a page whose place in its
//! tree changed, or that is new, is *shaped*, and the next checkpoint takes it. So the shape of the
//! trees on the device is always that of one commit. DIRTY-3: the oldest page goes first, then all
//! changed pages of its erase unit. So the units are emptied in turn, each as a whole, and the log
//! is as long as it takes for one turn. If pages went by age alone, each unit would lose pages all
//! the time, and be half dead on average.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::disk::log::Position;

/// Most pages of which is noted where they are at a time. More would delay commits.
const MOST_SORTED: usize = 20_000;

/// The state of the log when a checkpoint began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    pub number: u64,
    pub position: Position,
    /// Entries of changes that the log had had by then.
    pub changes: u64,
}

/// The pages, and the part of the log that they need.
pub(crate) struct Dirty {
    /// Each page with its mark: the newest checkpoint that had begun. An entry with another mark
    /// than the page's is stale.
    order: VecDeque<(u32, u64)>,
    marks: FxHashMap<u32, u64>,
    shaped: FxHashSet<u32>,
    /// The pages of `order` by the erase unit of their named place, without the last `unsorted`
    /// ones. Some may have been taken since.
    neighbours: FxHashMap<u64, Vec<u32>>,
    /// Those of the unit that the last checkpoint began to empty.
    rest: Vec<u32>,
    /// Pages at the end of `order` that came since the last checkpoint began.
    unsorted: usize,
    /// From the oldest checkpoint that a mark may name to the newest.
    began: VecDeque<Began>,
}

impl Dirty {
    /// No pages; the log is replayed from `first` on.
    pub fn new(first: Began) -> Dirty {
        Dirty {
            order: VecDeque::new(),
            marks: FxHashMap::default(),
            shaped: FxHashSet::default(),
            neighbours: FxHashMap::default(),
            rest: Vec::new(),
            unsorted: 0,
            began: VecDeque::from([first]),
        }
    }

    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Pages that the next checkpoint must write.
    pub fn shaped(&self) -> usize {
        self.shaped.len()
    }

    /// Notes that a page changed.
    pub fn change(&mut self, id: u32, is_shaped: bool) {
        let mark = self.began.back().map_or(0, |began| began.number);
        if is_shaped {
            self.shaped.insert(id);
        }
        self.marks.entry(id).or_insert_with(|| {
            self.order.push_back((id, mark));
            self.unsorted += 1;
            mark
        });
    }

    /// Notes that a page no longer exists, so nothing of it must be written.
    pub fn forget(&mut self, id: u32) {
        self.marks.remove(&id);
        self.shaped.remove(&id);
    }

    /// Begins a checkpoint. Returns the shaped pages and `most` others, and the position from which
    /// the other pages need the log. The oldest page goes first, and with it those whose `place` is
    /// in the same erase unit, of `unit` pages. So whole units become free.
    pub fn begin(
        &mut self,
        began: Began,
        most: usize,
        unit: u64,
        place: impl Fn(u32) -> u64,
    ) -> (FxHashSet<u32>, Began) {
        let mut taken = std::mem::take(&mut self.shaped);
        for id in &taken {
            self.marks.remove(id);
        }
        let unit_of = |id| place(id) / unit;
        self.sort(unit, &unit_of);
        let mut left = most;
        loop {
            while left > 0
                && let Some(id) = self.rest.pop()
            {
                if self.marks.remove(&id).is_some() {
                    left -= 1;
                    taken.insert(id);
                }
            }
            let Some(&(id, mark)) = self.order.front() else {
                break;
            };
            if self.marks.get(&id) != Some(&mark) {
                self.order.pop_front();
            } else if left == 0 {
                break;
            } else {
                self.rest = self.neighbours.remove(&unit_of(id)).unwrap_or_default();
                self.rest
                    .sort_by_cached_key(|id| std::cmp::Reverse(place(*id)));
                // The oldest page goes first, wherever it is noted.
                self.rest.retain(|near| *near != id);
                self.rest.push(id);
            }
        }
        self.began.push_back(began);
        let oldest = self.order.front().map_or(began.number, |(_, mark)| *mark);
        while self.began[0].number < oldest {
            self.began.pop_front();
        }
        (taken, self.began[0])
    }

    /// Notes where the pages are that came since the last checkpoint began.
    fn sort(&mut self, unit: u64, unit_of: &impl Fn(u32) -> u64) {
        let first = self.order.len() - self.unsorted;
        self.unsorted = 0;
        for (id, mark) in self.order.range(first..).take(MOST_SORTED) {
            if self.marks.get(id) != Some(mark) {
                continue;
            }
            let of = unit_of(*id);
            let near = self.neighbours.entry(of).or_default();
            if near.len() as u64 == 2 * unit {
                // A unit has no more pages than that; the others were taken meanwhile.
                near.retain(|id| self.marks.contains_key(id) && unit_of(*id) == of);
                near.sort_unstable();
                near.dedup();
            }
            near.push(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(number: u64) -> Began {
        let position = Position {
            page: number * 100,
            sequence: number * 100,
            previous: 0,
        };
        Began {
            number,
            position,
            changes: number * 10,
        }
    }

    /// Pages in units of ten, each at the place of its number.
    fn begin(dirty: &mut Dirty, number: u64, most: usize) -> (Vec<u32>, Began) {
        let (taken, replay) = dirty.begin(began(number), most, 10, u64::from);
        let mut taken: Vec<u32> = taken.into_iter().collect();
        taken.sort_unstable();
        (taken, replay)
    }

    #[test]
    fn the_oldest_go_first_and_the_log_is_kept_for_those_that_stay() {
        let mut dirty = Dirty::new(began(1));
        for id in [5, 6, 7, 5] {
            dirty.change(id, false);
        }
        let (taken, replay) = begin(&mut dirty, 2, 1);
        assert_eq!(taken, [5]);
        assert_eq!((replay.number, dirty.len()), (1, 2), "6 and 7 stay");
        // 5 changes again, and 7 takes part in a split.
        dirty.change(5, false);
        dirty.change(7, true);
        assert_eq!(dirty.shaped(), 1);
        let (taken, replay) = begin(&mut dirty, 3, 0);
        assert_eq!(taken, [7]);
        assert_eq!(replay.number, 1, "6 stays");
        let (taken, replay) = begin(&mut dirty, 4, 1);
        assert_eq!(taken, [6]);
        assert_eq!(replay.number, 2, "5 changed behind the second checkpoint");
        let (taken, replay) = begin(&mut dirty, 5, usize::MAX);
        assert_eq!((taken.len(), dirty.len(), replay.number), (1, 0, 5));
        assert_eq!(replay.position.sequence, 500);
    }

    /// Pages of the same age used to go first, whatever was beside them. So a unit lost its pages
    /// one by one, and was never free.
    #[test]
    fn the_oldest_takes_its_neighbours_along() {
        let mut dirty = Dirty::new(began(1));
        for id in [25, 13, 11, 26] {
            dirty.change(id, false);
        }
        let (taken, replay) = begin(&mut dirty, 2, 1);
        assert_eq!((taken, replay.number), (vec![25], 1));
        // 17 is younger, but 13 and 11 are beside it; 26 belongs to the unit that was begun.
        dirty.change(17, false);
        dirty.change(31, false);
        let (taken, replay) = begin(&mut dirty, 3, 3);
        assert_eq!((taken, replay.number), (vec![11, 13, 26], 2));
        // 13 changed again, and is taken for its new change. 17 is all that is left of the unit.
        dirty.change(13, false);
        let (taken, replay) = begin(&mut dirty, 4, 1);
        assert_eq!((taken, replay.number), (vec![17], 2));
        let (taken, replay) = begin(&mut dirty, 5, 1);
        assert_eq!((taken, replay.number), (vec![31], 3));
        let (taken, replay) = begin(&mut dirty, 6, 1);
        assert_eq!((taken, replay.number, dirty.len()), (vec![13], 6, 0));
    }

    /// A page that is taken is not taken again for what was noted of it, unless it changed since.
    #[test]
    fn a_page_that_was_taken_is_not_taken_again() {
        let mut dirty = Dirty::new(began(1));
        for id in [1, 2, 3] {
            dirty.change(id, false);
        }
        assert_eq!(begin(&mut dirty, 2, 2).0, [1, 2]);
        dirty.forget(3);
        assert_eq!(begin(&mut dirty, 3, 9).0, []);
        dirty.change(3, false);
        dirty.change(2, true);
        assert_eq!(begin(&mut dirty, 4, 9).0, [2, 3]);
        assert_eq!(begin(&mut dirty, 5, 9).0, []);
        assert!(dirty.neighbours.is_empty() && dirty.order.is_empty());
    }
}
