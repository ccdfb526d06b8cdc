// SPDX-License-Identifier: Apache-2.0
//! Tests of the command line as a whole: every example parses unchanged, and every option accepts
//! the common grammar of numbers.

use clap::{Command, CommandFactory};

use super::Cli;

#[path = "../tests/it/examples/collect.rs"]
mod collect;

#[path = "../tests/it/zeros/table.rs"]
mod table;

/// The senko commands in a line of shell, each as its words.
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
        // Redirections belong to the shell.
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

/// A command and all its subcommands, with their full names.
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

/// An example that needs a special machine does not run in the tests, but its command must exist.
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
                // Values that only the reader knows.
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

/// At 80 columns clap broke examples within words, so that they could not be pasted; and most
/// commands of the DBM had none.
#[test]
fn every_command_has_examples_that_fit_a_terminal() {
    for (name, command) in commands() {
        if command.has_subcommands() || name == "senko version" {
            continue;
        }
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let (_, examples) = help.split_once("Examples:\n").expect(&name);
        for line in examples.lines().take_while(|line| !line.is_empty()) {
            assert!(line.len() <= 80, "{name}: {line}");
        }
    }
}

/// Piped, the help of `senko serve` had 32 lines of more than 80 columns, and in a terminal of 80
/// columns some lines broke within words.
#[test]
fn no_help_is_wider_than_80_columns() {
    let mut root = Cli::command();
    root.build();
    let mut all = Vec::new();
    walk(&root, "", &mut all);
    for (name, mut command) in all {
        for help in [command.render_help(), command.render_long_help()] {
            for line in help.to_string().lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
        }
    }
}

/// The reference of the server's options has a row for each, with the default that the help says.
#[test]
fn the_page_of_options_has_them_all() {
    let page = include_str!("../../../docs/cache/options.md");
    let all = commands();
    let (_, serve) = all.iter().find(|(name, _)| name == "senko serve").unwrap();
    for arg in serve.get_arguments() {
        let Some(long) = arg.get_long().filter(|long| *long != "help") else {
            continue;
        };
        let short = arg.get_short().map(|short| format!(", `-{short}`"));
        let start = format!("| `--{long}`{} | ", short.unwrap_or_default());
        let row = page.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("no row begins with {start}"));
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let said = help
            .split_once("[default: ")
            .and_then(|(_, rest)| rest.split_once(']'));
        if let Some((default, _)) = said {
            let default = default.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                row[start.len()..].starts_with(&format!("{default} |")),
                "{default}: {row}"
            );
        }
    }
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `--"))
        .count();
    let have = serve
        .get_arguments()
        .filter(|arg| arg.get_long() != Some("help"))
        .count();
    assert_eq!(rows, have, "a row is of an option that is gone");
}

/// The kinds of value names, each with texts that mean the same and that every option of the kind
/// accepts. A number is 2 here, which lies in every option's range.
const NUMBERS: &[(&str, &[&str])] = &[
    ("N", &["2", "2e0", "0.002k", "20e-1"]),
    ("N[:US]", &["2", "2e0", "0.002k:50", "2:5e1us"]),
    ("BITS", &["2", "2e0", "0.002k", "20e-1"]),
    ("PORT", &["2", "2e0", "0.002k"]),
    ("PID", &["2", "2e0", "0.002k"]),
    ("US", &["2", "2e0"]),
    ("SIZE", &["65536", "64k", "64KiB", "6.5536e4"]),
    ("TIME", &["120", "120s", "2m", "12e1", "120000ms"]),
    ("RATE", &["5000", "5k", "5e3", "5k/s", "300k/min"]),
    ("SHARE", &["0.5", "50%", "5e-1"]),
    ("PERCENT", &["50", "50%", "5e1"]),
    ("FACTOR", &["2", "2e0", "0.2e1"]),
    ("PRICE", &["2", "2e0", "0.2e1"]),
    ("RATIO", &["2", "2e0", "0.2e1"]),
];

/// Names of values that are not numbers, or have their own grammar.
const OTHERS: &[&str] = &[
    "ADDR",
    "BACKEND",
    "BOOL",
    "BUFFER",
    "CHAR",
    "DIR",
    "FILE",
    "FILE.svg",
    "FOLD",
    "FORMAT",
    "FTL",
    "LAW",
    "LEN",
    "LIST",
    "MASK",
    "MIX",
    "MODE",
    "NAME",
    "PATH",
    "PATH:SIZE",
    "POLICY",
    "PROFILE",
    "PROTOCOL",
    "RULE",
    "SIZE/TIME",
    "TEXT",
    "USER",
    "VERSION",
    "WAY",
    "0",
];

/// An option with a value.
struct Alone {
    place: String,
    kind: String,
    help: String,
    parser: Command,
}

impl Alone {
    /// The options of all commands that have a long name.
    fn all() -> Vec<(String, String, Alone)> {
        let mut all = Vec::new();
        for (name, command) in commands() {
            for arg in command.get_arguments() {
                let takes = arg
                    .get_num_args()
                    .is_none_or(|range| range.max_values() > 0);
                let Some(long) = arg
                    .get_long()
                    .filter(|_| takes && arg.get_action().takes_values())
                else {
                    continue;
                };
                let alone = clap::Arg::new("alone").long("alone");
                let alone = alone.value_parser(arg.get_value_parser().clone());
                let help = arg.get_help().map(ToString::to_string);
                let option = Alone {
                    place: format!("{name} --{long}"),
                    kind: arg.get_value_names().unwrap_or_default()[0].to_string(),
                    help: help.unwrap_or_default(),
                    parser: Command::new("alone").arg(alone).no_binary_name(true),
                };
                all.push((name.clone(), long.to_owned(), option));
            }
        }
        all
    }

    fn take(&self, text: &str) -> Result<(), clap::Error> {
        let words = [format!("--alone={text}")];
        self.parser.clone().try_get_matches_from(words).map(drop)
    }

    /// Texts with the same meaning, if it accepts numbers.
    fn numbers(&self) -> Option<&'static [&'static str]> {
        let known = NUMBERS.iter().find(|(kind, _)| *kind == self.kind);
        known.map(|(_, texts)| *texts)
    }
}

/// `--answers 100k` was once refused by one command, while others accepted such numbers.
#[test]
fn every_number_of_every_option_has_one_grammar() {
    let mut tried = 0;
    for (_, _, option) in Alone::all() {
        let Alone { place, kind, .. } = &option;
        let Some(texts) = option.numbers() else {
            let untyped = *kind == kind.to_uppercase() && !OTHERS.contains(&&**kind);
            assert!(
                !untyped || option.take("zzz").is_ok() || option.take("2").is_err(),
                "{place} takes numbers under the unknown name {kind}"
            );
            continue;
        };
        for text in texts {
            if let Err(error) = option.take(text) {
                panic!("{place}={text}: {error}");
            }
        }
        let error = option.take("zzz").expect_err(place).to_string();
        for word in [
            "invalid digit",
            "float",
            "parse",
            "ParseInt",
            "variant",
            "u64",
            "u32",
        ] {
            assert!(!error.contains(word), "{place}: {error}");
        }
        tried += 1;
    }
    assert!(tried > 60, "{tried} are too few: are all found?");
}

/// `--compaction-rate 0` and `--limit 0` were once accepted, with useless effects. Every option
/// that accepts 0 is in the table, with the meaning of 0.
#[test]
fn every_option_says_what_zero_means() {
    let mut used = vec![false; table::ZEROS.len()];
    for (name, long, option) in Alone::all() {
        if option.numbers().is_none() || option.take("0").is_err() {
            continue;
        }
        let mut rows = table::ZEROS.iter().enumerate();
        let found = rows.find(|(_, row)| name.starts_with(row.0) && row.1 == long);
        let Some((at, (.., zero))) = found else {
            panic!("{} takes 0: what for?", option.place);
        };
        used[at] = true;
        if let table::Zero::Said(text) = zero {
            let help = option.help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                help.contains(text),
                "{}: {text} is not in {help}",
                option.place
            );
        }
    }
    for (used, row) in used.iter().zip(table::ZEROS) {
        assert!(used, "no option is as in {row:?}");
    }
}

/// clap writes a default as [default: 64]; defaults in the texts themselves look the same.
#[test]
fn defaults_look_alike() {
    for (name, mut command) in commands() {
        let help = command.render_help().to_string();
        let line = help.lines().find(|line| line.contains("(default"));
        assert_eq!(line, None, "{name}");
    }
}
