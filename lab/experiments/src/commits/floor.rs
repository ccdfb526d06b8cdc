// SPDX-License-Identifier: Apache-2.0
//! The floor: how many durable writes a second one thread can make, in the best way.
//!
//! Every experiment on commits includes it as one more contender, on the same file system.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use super::write::{Space, Way, Writer};
use super::{Contender, Ran, Work};

/// A way of writing, on space in a given state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub way: Way,
    pub space: Space,
    pub bytes: usize,
}

impl Cell {
    pub fn all() -> Vec<Cell> {
        let mut all = Vec::new();
        for bytes in [4096, 512] {
            for space in Space::ALL {
                for way in Way::ALL {
                    all.push(Cell { way, space, bytes });
                }
            }
        }
        all
    }

    /// Those that may be the best: 4 KiB over written space.
    pub fn best() -> Vec<Cell> {
        let all = Cell::all().into_iter();
        all.filter(|cell| cell.space == Space::Written && cell.bytes == 4096)
            .collect()
    }

    /// Its name in keys.
    pub fn name(&self) -> String {
        format!("{}_{}_{}", self.way.name(), self.space.name(), self.bytes)
    }

    /// Makes `count` writes in its own file, and times each.
    pub fn run(&self, path: &Path, count: u64) -> Result<Ran> {
        let mut writer = Writer::new(path, self.way, self.space, self.bytes, count)
            .with_context(|| format!("{} is not available", self.way.text()))?;
        let mut times = Vec::with_capacity(count as usize);
        let start = Instant::now();
        for _ in 0..count {
            let since = Instant::now();
            writer
                .write()
                .with_context(|| format!("{}: {} bytes", self.way.text(), self.bytes))?;
            times.push(since.elapsed().as_nanos() as u64);
        }
        let seconds = start.elapsed().as_secs_f64();
        drop(writer);
        std::fs::remove_file(path)?;
        Ok(Ran::new(count, seconds, times))
    }
}

/// One way of the floor, as a contender: one write for each commit, with as many bytes as the cell
/// has.
pub struct Floor {
    cell: Cell,
    path: PathBuf,
}

impl Floor {
    pub fn new(cell: Cell, path: PathBuf) -> Floor {
        Floor { cell, path }
    }
}

impl Contender for Floor {
    fn run(&mut self, work: &Work) -> Result<Ran> {
        self.cell.run(&self.path, work.commits)
    }

    fn check(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
}
