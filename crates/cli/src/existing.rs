// SPDX-License-Identifier: Apache-2.0
//! `--force`: whether a command may replace a file with its result. Used by the commands that draw
//! pictures, or write profiles and histograms.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use senko_io::Output;

/// What to do about files that exist.
#[derive(Args, Clone, Copy, Debug)]
pub struct Existing {
    /// Replaces files that exist with the results
    #[arg(long)]
    force: bool,
}

impl Existing {
    /// As [`Output::check`], and refuses a file that holds something.
    pub fn check(self, path: &Path, inputs: &[&Path]) -> Result<()> {
        Output::check(path, inputs)?;
        let there = path.metadata();
        if there.is_ok_and(|there| there.is_file() && there.len() > 0) && !self.force {
            bail!(
                "{} exists already: name another file, or replace it with --force",
                path.display()
            );
        }
        Ok(())
    }
}
