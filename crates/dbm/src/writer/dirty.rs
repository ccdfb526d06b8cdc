// SPDX-License-Identifier: Apache-2.0
//! Pages that changed since a checkpoint wrote them, in the order of their first change. The writer
//! marks them (`writer.rs`), a checkpoint takes some of them (`checkpoint.rs`).
//!
//! DIRTY-1: a page's mark names a checkpoint. All changes that the page's place in the log lacks
//! are at or after the position at which that checkpoint began. DIRTY-2: a page whose place in its
//! tree changed, or that is new, is *shaped*, and the next checkpoint takes it. So the shape of the
//! trees on the device is always that of one commit.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::disk::log::Position;

/// Most pages that are sorted at a time. More would delay commits.
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
    /// From the oldest checkpoint that a mark may name to the newest.
    began: VecDeque<Began>,
    /// The mark whose pages were sorted.
    sorted: Option<u64>,
}

impl Dirty {
    /// No pages; the log is replayed from `first` on.
    pub fn new(first: Began) -> Dirty {
        Dirty {
            order: VecDeque::new(),
            marks: FxHashMap::default(),
            shaped: FxHashSet::default(),
            began: VecDeque::from([first]),
            sorted: None,
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
            mark
        });
    }

    /// Notes that a page no longer exists, so nothing of it must be written.
    pub fn forget(&mut self, id: u32) {
        self.marks.remove(&id);
        self.shaped.remove(&id);
    }

    /// Begins a checkpoint. Returns the shaped pages and `most` others, the oldest first, and the
    /// position from which the other pages need the log. Pages with the same mark are ordered by
    /// `place`, so that whole segments become free.
    pub fn begin(
        &mut self,
        began: Began,
        most: usize,
        place: impl Fn(u32) -> u64,
    ) -> (FxHashSet<u32>, Began) {
        self.sort(place);
        let mut taken = std::mem::take(&mut self.shaped);
        for id in &taken {
            self.marks.remove(id);
        }
        let mut left = most;
        while let Some(&(id, mark)) = self.order.front() {
            if self.marks.get(&id) == Some(&mark) {
                if left == 0 {
                    break;
                }
                left -= 1;
                self.marks.remove(&id);
                taken.insert(id);
            }
            self.order.pop_front();
        }
        self.began.push_back(began);
        let oldest = self.order.front().map_or(began.number, |(_, mark)| *mark);
        while self.began[0].number < oldest {
            self.began.pop_front();
        }
        (taken, self.began[0])
    }

    /// Sorts the pages with the oldest mark by their places, once.
    fn sort(&mut self, place: impl Fn(u32) -> u64) {
        let Some(&(_, mark)) = self.order.front() else {
            return;
        };
        let newest = self.began.back().map_or(0, |began| began.number);
        if self.sorted == Some(mark) && mark < newest {
            return;
        }
        self.sorted = Some(mark);
        let count = self.order.partition_point(|(_, of)| *of == mark);
        if count <= MOST_SORTED {
            let oldest = &mut self.order.make_contiguous()[..count];
            oldest.sort_by_cached_key(|(id, _)| place(*id));
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

    #[test]
    fn the_oldest_go_first_and_the_log_is_kept_for_those_that_stay() {
        let mut dirty = Dirty::new(began(1));
        for id in [5, 6, 7, 5] {
            dirty.change(id, false);
        }
        let (taken, replay) = dirty.begin(began(2), 1, u64::from);
        assert_eq!((taken.len(), taken.contains(&5)), (1, true));
        assert_eq!((replay.number, dirty.len()), (1, 2), "6 and 7 stay");
        // 5 changes again, and 7 takes part in a split.
        dirty.change(5, false);
        dirty.change(7, true);
        assert_eq!(dirty.shaped(), 1);
        let (taken, replay) = dirty.begin(began(3), 0, u64::from);
        assert_eq!((taken.len(), taken.contains(&7)), (1, true));
        assert_eq!(replay.number, 1, "6 stays");
        let (taken, replay) = dirty.begin(began(4), 1, u64::from);
        assert_eq!((taken.len(), taken.contains(&6)), (1, true));
        assert_eq!(replay.number, 2, "5 changed behind the second checkpoint");
        let (taken, replay) = dirty.begin(began(5), usize::MAX, u64::from);
        assert_eq!((taken.len(), dirty.len(), replay.number), (1, 0, 5));
        assert_eq!(replay.position.sequence, 500);
    }

    #[test]
    fn of_the_same_age_those_that_lie_first_go_first() {
        let mut dirty = Dirty::new(began(1));
        for id in [9, 3, 7, 5] {
            dirty.change(id, false);
        }
        let (taken, _) = dirty.begin(began(2), 2, u64::from);
        assert!(taken.contains(&3) && taken.contains(&5));
        // Younger ones do not overtake older ones.
        dirty.change(1, false);
        let (taken, _) = dirty.begin(began(3), 2, u64::from);
        assert!(taken.contains(&7) && taken.contains(&9));
        assert_eq!(dirty.len(), 1);
    }
}
