// SPDX-License-Identifier: Apache-2.0
//! `senko manual DIR`: the man pages and the shells' completions, made from the command line's own
//! description. The packaging task calls it; it is hidden from the help.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

/// Arguments of `senko manual`.
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// Write to this folder, which is made
    dir: PathBuf,
}

/// Writes `man/*.1` and `completions/*`.
pub fn main(args: &ManualArgs, mut command: Command) -> Result<()> {
    let (man, completions) = (args.dir.join("man"), args.dir.join("completions"));
    for dir in [&man, &completions] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "senko", &completions)
            .with_context(|| format!("cannot write to {}", completions.display()))?;
    }
    command = command.disable_help_subcommand(true);
    command.build();
    pages(&command, "senko", &man)
}

/// A page for a command, and for each of its subcommands.
fn pages(command: &Command, name: &str, dir: &Path) -> Result<()> {
    let path = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    // A page is named after its file.
    let named = command.clone().name(name.to_owned()).display_name(name);
    clap_mangen::Man::new(named)
        .render(&mut text)
        .and_then(|()| std::fs::write(&path, text))
        .with_context(|| format!("cannot write {}", path.display()))?;
    let shown = |c: &&Command| !c.is_hide_set() && c.get_name() != "help";
    for below in command.get_subcommands().filter(shown) {
        pages(below, &format!("{name}-{}", below.get_name()), dir)?;
    }
    Ok(())
}
