// SPDX-License-Identifier: Apache-2.0
//! Tests of the command line as a whole: every example parses as it stands, every option takes the one grammar.

use clap::{Command, CommandFactory};

use super::Cli;

#[path = "../tests/it/examples/collect.rs"]
mod collect;

/// The commands of senko in a line of a shell, each as its words.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quoted = None;
    for letter in line.chars().chain([' ']) {
        match (letter, quoted) {
            ('\'' | '"', None) => {
                quoted = Some(letter);
                word.get_or_insert_default();
            }
            (letter, Some(open)) if letter == open => quoted = None,
            (' ', None) => commands
                .last_mut()
                .expect("there is always one")
                .extend(word.take()),
            ('|' | '&' | ';', None) => commands.push(Vec::new()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    for command in &mut commands {
        // Where the output goes is the shell's.
        if let Some(at) = command.iter().position(|word| word == ">") {
            command.truncate(at);
        }
        if let Some(at) = command.iter().position(|word| word == "senko") {
            command.drain(..at);
        } else {
            command.clear();
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// A command and all below it, with their names from the first one on.
fn walk(command: &Command, above: &str, all: &mut Vec<(String, Command)>) {
    let name = format!("{above} {}", command.get_name());
    let name = name.trim_start();
    all.push((name.to_owned(), command.clone()));
    for below in command.get_subcommands() {
        walk(below, name, all);
    }
}

fn commands() -> Vec<(String, Command)> {
    let mut all = Vec::new();
    walk(&Cli::command(), "", &mut all);
    all
}

/// An example that a special machine is needed for does not run in the tests, but it is a command.
#[test]
fn every_example_parses() {
    let mut blocks = Vec::new();
    for (name, text) in collect::documents() {
        blocks.extend(collect::of_document(&name, &text));
    }
    for (name, command) in commands() {
        let help = command.get_after_help().map(ToString::to_string);
        blocks.extend(help.and_then(|text| collect::of_help(&name, &text)));
    }
    let mut parsed = 0;
    for block in blocks {
        for line in &block.commands {
            let found = commands_of(line);
            assert!(!found.is_empty(), "{}: {line}", block.place);
            for words in found {
                // What only the reader knows.
                let words = words.into_iter().map(|word| word.replace("PID", "1"));
                if let Err(error) = Cli::command().try_get_matches_from(words)
                    && error.use_stderr()
                {
                    panic!("{}: {line}\n{error}", block.place);
                }
                parsed += 1;
            }
        }
    }
    assert!(parsed > 80, "{parsed} are too few: are all found?");
}
