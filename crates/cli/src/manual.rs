// SPDX-License-Identifier: Apache-2.0
//! `senko manual DIR`: the man pages and the shells' completions, made from the command line's own
//! description. Users call it after a build from source, and the packaging task does.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

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
    let shown = |c: &&Command| !c.is_hide_set() && c.get_name() != "help";
    let below: Vec<&Command> = command.get_subcommands().filter(shown).collect();
    let page_of = |below: &&Command| format!("{name}-{}", below.get_name());
    let mut related: Vec<String> = below.iter().map(page_of).collect();
    related.extend(name.rsplit_once('-').map(|(above, _)| above.to_owned()));
    let path = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    page(command, name, &related, &mut text)
        .and_then(|()| std::fs::write(&path, text))
        .with_context(|| format!("cannot write {}", path.display()))?;
    for below in below {
        pages(below, &page_of(&below), dir)?;
    }
    Ok(())
}

fn page(
    command: &Command,
    name: &str,
    related: &[String],
    to: &mut Vec<u8>,
) -> std::io::Result<()> {
    // A page is named after its file.
    let named = command.clone().name(name.to_owned()).display_name(name);
    let page = Man::new(named);
    page.render_title(to)?;
    page.render_name_section(to)?;
    page.render_synopsis_section(to)?;
    page.render_description_section(to)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        page.render_options_section(to)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(to)?;
    }
    let after = command.get_after_help().map(ToString::to_string);
    let after = after.unwrap_or_default();
    let (before, rest) = after.split_once("Examples:\n").unwrap_or((&after, ""));
    let (examples, behind) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let mut roff = Roff::default();
    let notes = [before, behind].join("\n");
    if !notes.trim().is_empty() {
        roff.control("SH", ["NOTES"]);
        for line in notes.lines().filter(|line| !line.is_empty()) {
            roff.control("PP", []);
            roff.text([roman(line.trim())]);
        }
    }
    if !examples.is_empty() {
        // As they are, so that they can be pasted.
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in examples.trim_end().lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    let words = name.replace('-', " ");
    let whose = |row: &&[&str]| {
        row[0]
            .split(", ")
            .any(|of| words.starts_with(of.trim_matches('`')))
    };
    if let Some([_, files @ ..]) = FILES.iter().find(|row| name.starts_with(row[0])) {
        roff.control("SH", ["FILES"]);
        for pair in files.chunks(2) {
            roff.control("TP", []);
            roff.text([bold(pair[0])]);
            roff.text([roman(pair[1])]);
        }
    }
    let codes = exit_codes();
    if let Some(row) = codes.iter().map(|row| &row[..]).find(whose) {
        roff.control("SH", ["EXIT STATUS"]);
        for (code, meaning) in row[1..].iter().enumerate() {
            roff.control("TP", []);
            roff.text([bold(code.to_string())]);
            roff.text([roman(*meaning)]);
        }
        roff.control("TP", []);
        roff.text([bold("128+N")]);
        roff.text([roman("signal N ended it")]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut words: Vec<Inline> = Vec::new();
    for page in related {
        words.extend([bold(page), roman("(1), ")]);
    }
    words.push(roman("the documents in /usr/share/doc/senko/docs"));
    roff.text(words);
    roff.to_writer(to)?;
    writeln!(to)
}

/// The files of commands: pairs of a name and its meaning behind the command.
const FILES: [&[&str]; 4] = [
    &[
        "senko-serve",
        "/etc/senko/senko.toml",
        "the options of the packaged service",
        "./senko-data",
        "the flash file of a server that was given none",
        "DIR/*",
        "with --data-dir: what a restart needs; only the server's user can read it",
        "/dev/shm/senko-*",
        "with --data-dir: items and index",
    ],
    &["senko-dump", "FILE.part", "a dump that is not complete"],
    &[
        "senko-store",
        "FILE.part",
        "a copy, a dump or a repaired store that is not complete",
    ],
    &[
        "senko-dbm",
        "FILE.part",
        "a copy, a dump or a repaired database that is not complete",
    ],
];

/// The rows of the table of exit codes in the documents: commands, and the meanings of 0, 1 and 2.
fn exit_codes() -> Vec<Vec<&'static str>> {
    let document = include_str!("../../../docs/command-line.md");
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| `senko "));
    rows.map(|row| row.trim_matches(['|', ' ']).split(" | ").collect())
        .collect()
}
