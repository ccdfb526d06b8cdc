// SPDX-License-Identifier: Apache-2.0
//! Chooses the block for garbage collection: five policies, over counts of valid pages that are
//! kept here.
//!
//! `page.rs` closes a block when its last page is programmed. It lowers the block's count whenever
//! one of its pages is overwritten or trimmed, and asks for a victim of a plane. The greedy policy
//! needs no search: it has a list of blocks for each count of valid pages below a limit. The limit
//! is set so that about a thirtieth of the closed blocks are listed. So most overwrites change only
//! a count.

use senko_workload::Rng;

use crate::Error;
use crate::geometry::{Block, Divider};
use crate::lists::Lists;
use crate::nand::Nand;
use crate::spec::Spec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Greedy,
    /// The block with the most (1 - u) / 2u * age.
    CostBenefit,
    /// The block that was filled first.
    Fifo,
    /// The one with the fewest valid pages of several that are drawn at random.
    DChoices {
        choices: u32,
    },
    /// The one with the fewest valid pages of the blocks that were filled first.
    Windowed {
        window: u32,
    },
}

impl Policy {
    pub(super) const NAMES: &'static str = "greedy, cost-benefit, fifo, d-choices, windowed";

    /// Takes the options `gc`, `d` and `window`.
    pub(super) fn take(spec: &mut Spec) -> Result<Self, Error> {
        let name: String = spec.take("gc", "greedy".to_owned())?;
        let policy = match name.as_str() {
            "greedy" => Self::Greedy,
            "cost-benefit" => Self::CostBenefit,
            "fifo" => Self::Fifo,
            "d-choices" => Self::DChoices {
                choices: spec.take("d", 10)?,
            },
            "windowed" => Self::Windowed {
                window: spec.take("window", 64)?,
            },
            _ => {
                return Err(Error::Spec(format!(
                    "page: there is no gc={name}; there are {}",
                    Self::NAMES
                )));
            }
        };
        if let Self::DChoices { choices: 0 } | Self::Windowed { window: 0 } = policy {
            return Err(Error::Spec(format!(
                "page: gc={name} has to look at one block at least"
            )));
        }
        let foreign: [Option<u32>; 2] = [spec.take_optional("d")?, spec.take_optional("window")?];
        match foreign {
            [None, None] => Ok(policy),
            _ => Err(Error::Spec(format!(
                "page: d goes with gc=d-choices and window with gc=windowed, and here is gc={name}"
            ))),
        }
    }
}

/// D-choices: this many blocks in a row may be moved without a gain, before all blocks are searched
/// for one with a gain.
const MOST_IN_VAIN: u32 = 32;

/// Greedy: which closed blocks of a plane are in lists.
#[derive(Clone, Debug, Default)]
struct Index {
    /// Greedy: closed blocks with fewer valid pages than this are in their lists.
    limit: u32,
    /// Greedy: no block below this is listed.
    lowest: u32,
    /// Greedy: the number of listed blocks.
    listed: u32,
}

/// Counts of valid pages, and the closed blocks.
#[derive(Clone, Debug)]
pub(super) struct Victims {
    policy: Policy,
    pages: u32,
    blocks: u32,
    by_planes: Divider,
    pub(super) valid: Vec<u16>,
    /// If the count of a block falls below this, [`Victims::lowered`] must be called.
    pub(super) below: u32,
    closed: Vec<bool>,
    planes: Vec<Index>,
    /// Greedy: for each plane a list for each count of valid pages. FIFO and windowed: one list for
    /// each plane, in the order of closing.
    lists: Lists,
    lists_a_plane: u32,
    /// Cost-benefit: when each block was closed, counted in closed blocks.
    closed_at: Vec<u64>,
    closings: u64,
    /// D-choices: victims in a row that were full of valid pages.
    in_vain: u32,
    rng: Rng,
}

impl Victims {
    pub(super) fn new(policy: Policy, nand: &Nand) -> Self {
        let geometry = nand.geometry();
        let (blocks, planes) = (nand.blocks(), geometry.all_planes());
        let lists = match policy {
            Policy::Greedy => nand.pages_per_block() + 1,
            Policy::Fifo | Policy::Windowed { .. } => 1,
            Policy::CostBenefit | Policy::DChoices { .. } => 0,
        };
        let only_if = |needed: bool| if needed { blocks as usize } else { 0 };
        Self {
            policy,
            pages: nand.pages_per_block(),
            blocks,
            by_planes: Divider::new(planes),
            valid: vec![0; blocks as usize],
            below: 0,
            closed: vec![false; blocks as usize],
            planes: vec![Index::default(); planes as usize],
            lists: Lists::new(only_if(lists > 0), (planes * lists) as usize),
            lists_a_plane: lists,
            closed_at: vec![0; only_if(policy == Policy::CostBenefit)],
            closings: 0,
            in_vain: 0,
            rng: Rng::for_stream(nand.seed(), 0x70_6167_6500),
        }
    }

    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    fn blocks_of(&self, plane: u32) -> impl Iterator<Item = Block> + use<> {
        (plane..self.blocks).step_by(self.planes.len())
    }

    /// Notes that the block is full, and may be chosen from now on.
    pub(super) fn close(&mut self, block: Block) {
        self.closed[block as usize] = true;
        let plane = self.by_planes.remainder(block);
        match self.policy {
            Policy::Greedy => self.enlist(plane, block),
            Policy::Fifo | Policy::Windowed { .. } => {
                self.lists.push_back(self.list(plane, 0), block)
            }
            Policy::CostBenefit => self.closed_at[block as usize] = self.closings,
            Policy::DChoices { .. } => {}
        }
        self.closings += 1;
    }

    /// Notes that the block's count was just lowered by one, and is below [`Victims::below`].
    #[cold]
    pub(super) fn lowered(&mut self, block: Block) {
        if !self.closed[block as usize] {
            return;
        }
        let plane = self.by_planes.remainder(block);
        let before = u32::from(self.valid[block as usize]) + 1;
        if before < self.planes[plane as usize].limit {
            self.delist(plane, block);
        }
        self.enlist(plane, block);
    }

    /// Greedy: adds a block to the list of its count, if that is below the limit.
    fn enlist(&mut self, plane: u32, block: Block) {
        let valid = u32::from(self.valid[block as usize]);
        if valid >= self.planes[plane as usize].limit {
            return;
        }
        self.list_by_count(plane, valid, block);
        let most = (self.blocks / self.planes.len() as u32 / 8).max(32);
        let lowest = valid.min(self.planes[plane as usize].lowest);
        self.planes[plane as usize].lowest = lowest;
        // Too many are listed, so those with the most valid pages are dropped.
        while self.planes[plane as usize].listed > most
            && self.planes[plane as usize].limit > lowest + 1
        {
            self.planes[plane as usize].limit -= 1;
            self.clear(plane, self.planes[plane as usize].limit);
        }
        self.set_below();
    }

    fn list(&self, plane: u32, of_plane: u32) -> usize {
        (plane * self.lists_a_plane + of_plane) as usize
    }

    fn list_by_count(&mut self, plane: u32, valid: u32, block: Block) {
        self.lists.push_back(self.list(plane, valid), block);
        self.planes[plane as usize].listed += 1;
    }

    fn delist(&mut self, plane: u32, block: Block) {
        self.lists.unlink(block);
        self.planes[plane as usize].listed -= 1;
    }

    /// Drops the blocks with this many valid pages from their list.
    fn clear(&mut self, plane: u32, valid: u32) {
        while let Some(block) = self.lists.front(self.list(plane, valid)) {
            self.delist(plane, block);
        }
    }

    fn set_below(&mut self) {
        let limits = self.planes.iter().map(|index| index.limit);
        self.below = limits.max().unwrap_or(0);
    }

    /// The policy's victim in a plane, if there is a closed block. It stays closed until
    /// [`Victims::take`].
    pub(super) fn find(&mut self, plane: u32) -> Option<Block> {
        match self.policy {
            Policy::Greedy => self.find_listed(plane),
            Policy::CostBenefit => self.find_best_benefit(plane),
            Policy::Fifo => self.lists.front(self.list(plane, 0)),
            Policy::DChoices { choices } => self.find_among(plane, choices),
            Policy::Windowed { window } => self.find_in_window(plane, window),
        }
    }

    pub(super) fn take(&mut self, block: Block) {
        self.closed[block as usize] = false;
        let plane = self.by_planes.remainder(block);
        let valid = u32::from(self.valid[block as usize]);
        match self.policy {
            Policy::Greedy if valid < self.planes[plane as usize].limit => {
                self.delist(plane, block);
            }
            Policy::Fifo | Policy::Windowed { .. } => self.lists.unlink(block),
            _ => {}
        }
    }

    /// The closed block with the fewest valid pages, by a search through all; of several, the
    /// lowest.
    pub(super) fn find_fewest(&self, plane: u32) -> Option<Block> {
        self.blocks_of(plane)
            .filter(|block| self.closed[*block as usize])
            .min_by_key(|block| self.valid[*block as usize])
    }

    fn find_listed(&mut self, plane: u32) -> Option<Block> {
        loop {
            while self.planes[plane as usize].lowest < self.planes[plane as usize].limit {
                let lowest = self.list(plane, self.planes[plane as usize].lowest);
                if let Some(first) = self.lists.front(lowest) {
                    return Some(first);
                }
                self.planes[plane as usize].lowest += 1;
            }
            if !self.list_anew(plane) {
                return None;
            }
        }
    }

    /// Raises the limit so that a thirtieth of the closed blocks are listed; returns whether any
    /// is.
    fn list_anew(&mut self, plane: u32) -> bool {
        let mut of_count = vec![0u32; self.pages as usize + 1];
        let mut closed = 0;
        for block in self.blocks_of(plane) {
            if self.closed[block as usize] {
                of_count[usize::from(self.valid[block as usize])] += 1;
                closed += 1;
            }
        }
        if closed == 0 {
            return false;
        }
        let wanted = (closed / 32).max(8).min(closed);
        let mut sum = 0;
        let enough = of_count.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        (0..self.planes[plane as usize].limit).for_each(|valid| self.clear(plane, valid));
        let limit = enough.map_or(self.pages + 1, |count| count as u32 + 1);
        self.planes[plane as usize] = Index {
            limit,
            ..Index::default()
        };
        for block in self.blocks_of(plane) {
            let valid = u32::from(self.valid[block as usize]);
            if self.closed[block as usize] && valid < limit {
                self.list_by_count(plane, valid, block);
            }
        }
        self.set_below();
        true
    }

    fn find_best_benefit(&self, plane: u32) -> Option<Block> {
        let benefit = |block: Block| {
            let valid = f64::from(self.valid[block as usize]);
            let age = (self.closings - self.closed_at[block as usize]) as f64;
            // Without a valid page the cost is only that of the erase, so the oldest of such blocks
            // goes first.
            let cost = if valid == 0.0 { 1e-6 } else { 2.0 * valid };
            (f64::from(self.pages) - valid) / cost * age
        };
        self.blocks_of(plane)
            .filter(|block| self.closed[*block as usize])
            .map(|block| (block, benefit(block)))
            .max_by(|one, two| one.1.total_cmp(&two.1).then(two.0.cmp(&one.0)))
            .map(|(block, _)| block)
    }

    fn find_among(&mut self, plane: u32, choices: u32) -> Option<Block> {
        let planes = self.planes.len() as u32;
        let in_plane = u64::from(self.blocks / planes);
        let mut best = None;
        let mut drawn = 0;
        // Few blocks are not closed, so few draws fail.
        for _ in 0..u64::from(choices) * 4 + 16 {
            let block = plane + self.rng.below(in_plane) as u32 * planes;
            if !self.closed[block as usize] {
                continue;
            }
            let valid = self.valid[block as usize];
            if best.is_none_or(|(fewest, _)| valid < fewest) {
                best = Some((valid, block));
            }
            drawn += 1;
            if drawn == choices {
                break;
            }
        }
        // A block full of valid pages gains nothing. It is taken all the same, as in the model, but
        // not forever.
        match best {
            Some((valid, _)) if u32::from(valid) == self.pages => self.in_vain += 1,
            _ => self.in_vain = 0,
        }
        match best {
            Some((_, block)) if self.in_vain <= MOST_IN_VAIN => Some(block),
            _ => self.find_fewest(plane),
        }
    }

    fn find_in_window(&self, plane: u32, window: u32) -> Option<Block> {
        let first = self.lists.front(self.list(plane, 0));
        let in_order = std::iter::successors(first, |block| self.lists.after(*block));
        in_order
            .take(window as usize)
            .min_by_key(|block| self.valid[*block as usize])
    }
}
