// SPDX-License-Identifier: Apache-2.0
//! Below the translation layer: the physical block of each block number, wear, failures, spare
//! blocks, static wear levelling.
//!
//! Idea: a controller keeps a table of blocks under its translation layer. A block that fails is
//! replaced by a spare one of its plane. If the wear of an erased block exceeds the average of its
//! plane by `wear_threshold` cycles, it is swapped with the plane's least worn block. That block's
//! data has not moved for longest. L.-P. Chang, "On efficient wear leveling for large-scale
//! flash-memory storage systems", SAC 2007, calls this swap of hot and cold blocks dual-pool; here
//! it has one threshold. A swap copies all programmed pages, valid or not, so it costs a little
//! more than a swap inside the layer.

use senko_workload::Rng;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::geometry::{Block, Geometry};

/// The endurance of the flash, and the measures that extend it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Endurance {
    /// Program/erase cycles that a block endures on average.
    pub cycles: u32,
    /// Standard deviation of that, as a share of it. 0: all blocks are equal.
    pub cycles_spread: f64,
    /// Whether blocks fail at the end of their lives. Otherwise wear is only counted.
    pub enforce: bool,
    pub program_failure: f64,
    pub erase_failure: f64,
    /// Spare blocks in each plane, beyond the geometry's.
    pub spare_blocks: u32,
    /// Static wear levelling: if a block's cycles exceed the plane's average by this, it is swapped
    /// with the least worn. Absent: none.
    pub wear_threshold: Option<u32>,
}

impl Default for Endurance {
    /// Blocks that never fail, with wear only counted.
    fn default() -> Self {
        Self {
            cycles: 100_000,
            cycles_spread: 0.0,
            enforce: false,
            program_failure: 0.0,
            erase_failure: 0.0,
            spare_blocks: 0,
            wear_threshold: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Remap {
    endurance: Endurance,
    planes: u32,
    blocks: u32,
    /// The physical block of each number; empty while each block has its own number.
    physical: Vec<u32>,
    /// Erases of each physical block; spare ones follow the geometry's.
    wear: Vec<u32>,
    /// Erases in each plane since the start, for the average.
    plane_wear: Vec<u64>,
    spares: Vec<Vec<u32>>,
    retired: u32,
    worn_out: Option<String>,
    seed: u64,
    rng: Rng,
}

impl Remap {
    pub(super) fn new(
        geometry: &Geometry,
        endurance: &Endurance,
        seed: u64,
    ) -> Result<Self, Error> {
        let chances = [
            ("program_failure", endurance.program_failure),
            ("erase_failure", endurance.erase_failure),
            ("cycles_spread", endurance.cycles_spread),
        ];
        for (name, value) in chances {
            if !(0.0..1.0).contains(&value) {
                return Err(Error::Profile(format!(
                    "{name} is {value}, and must be at least 0 and less than 1"
                )));
            }
        }
        if endurance.cycles == 0 {
            return Err(Error::Profile("a life of 0 cycles".to_owned()));
        }
        let (planes, blocks) = (geometry.all_planes(), geometry.all_blocks());
        let spares = planes.checked_mul(endurance.spare_blocks);
        let Some(all) = spares.and_then(|spares| spares.checked_add(blocks)) else {
            return Err(Error::Profile("too many spare blocks to number".to_owned()));
        };
        let spares = (0..planes)
            .map(|plane| {
                (blocks..all)
                    .rev()
                    .filter(|block| (block - blocks) % planes == plane)
                    .collect()
            })
            .collect();
        Ok(Self {
            endurance: *endurance,
            planes,
            blocks,
            physical: Vec::new(),
            wear: vec![0; all as usize],
            plane_wear: vec![0; planes as usize],
            spares,
            retired: 0,
            worn_out: None,
            seed,
            rng: Rng::new(seed),
        })
    }

    fn physical(&self, block: Block) -> u32 {
        if self.physical.is_empty() {
            block
        } else {
            self.physical[block as usize]
        }
    }

    fn physical_mut(&mut self) -> &mut Vec<u32> {
        if self.physical.is_empty() {
            self.physical = (0..self.blocks).collect();
        }
        &mut self.physical
    }

    pub(super) fn erases(&self, block: Block) -> u32 {
        self.wear[self.physical(block) as usize]
    }

    pub(super) fn wear(&self) -> &[u32] {
        &self.wear
    }

    pub(super) fn retired(&self) -> u32 {
        self.retired
    }

    pub(super) fn worn_out(&self) -> Option<&str> {
        self.worn_out.as_deref()
    }

    #[inline]
    pub(super) fn programs_fail(&self) -> bool {
        self.endurance.program_failure > 0.0
    }

    pub(super) fn program_fails(&mut self, _: Block) -> bool {
        self.programs_fail() && self.rng.next_f64() < self.endurance.program_failure
    }

    fn life(&self, physical: u32) -> u32 {
        let Endurance {
            cycles,
            cycles_spread,
            ..
        } = self.endurance;
        if cycles_spread == 0.0 {
            return cycles;
        }
        // Twelve uniform numbers make a normal one, near enough for this.
        let mut rng = Rng::new(self.seed ^ (u64::from(physical) << 20));
        let normal = (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0;
        (f64::from(cycles) * (1.0 + cycles_spread * normal)).max(1.0) as u32
    }

    /// Counts an erase; returns whether it failed.
    pub(super) fn erase(&mut self, block: Block) -> bool {
        let physical = self.physical(block);
        self.wear[physical as usize] += 1;
        self.plane_wear[(block % self.planes) as usize] += 1;
        let by_chance = self.endurance.erase_failure > 0.0
            && self.rng.next_f64() < self.endurance.erase_failure;
        by_chance || self.endurance.enforce && self.wear[physical as usize] >= self.life(physical)
    }

    /// Replaces this block by a spare one. If there is none, the drive is worn out, and the block
    /// stays.
    pub(super) fn retire(&mut self, block: Block) -> bool {
        let plane = block % self.planes;
        let Some(spare) = self.spares[plane as usize].pop() else {
            if self.worn_out.is_none() {
                self.worn_out = Some(format!(
                    "block {block} failed after {} erases, and plane {plane} has no spare block left",
                    self.erases(block)
                ));
            }
            return false;
        };
        self.physical_mut()[block as usize] = spare;
        self.retired += 1;
        true
    }

    /// The least worn block of the plane of `block`, if `block` exceeds the average wear so much
    /// that the two should be swapped.
    pub(super) fn colder(&self, block: Block) -> Option<Block> {
        let threshold = self.endurance.wear_threshold?;
        let plane = block % self.planes;
        let average = self.plane_wear[plane as usize] / u64::from(self.blocks / self.planes);
        if u64::from(self.erases(block)) <= average + u64::from(threshold) {
            return None;
        }
        (plane..self.blocks)
            .step_by(self.planes as usize)
            .min_by_key(|other| self.erases(*other))
            .filter(|cold| *cold != block)
    }

    pub(super) fn swap(&mut self, block: Block, cold: Block) {
        self.physical_mut().swap(block as usize, cold as usize);
    }
}
