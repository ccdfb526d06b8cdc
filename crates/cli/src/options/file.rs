// SPDX-License-Identifier: Apache-2.0
//! The TOML file of `senko serve`. Each of its values goes to the command line's own parser, so
//! both accept and refuse the same values with the same words. [`super`] merges the two.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser};
use senko_workload::units::nearest;
use toml::{Spanned, Value};

use super::ServeOptions;

/// The options alone, without a program's name before them.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Options {
    #[command(flatten)]
    options: ServeOptions,
}

impl ServeOptions {
    /// Reads a TOML file.
    pub fn from_file(path: &Path) -> Result<ServeOptions> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the settings file {}", path.display()))?;
        let at = |place: usize| {
            let line = text[..place.min(text.len())].matches('\n').count() + 1;
            format!("{}, line {line}", path.display())
        };
        let table: BTreeMap<Spanned<String>, Spanned<Value>> =
            toml::from_str(&text).map_err(|error| {
                let place = at(error.span().map_or(0, |span| span.start));
                anyhow!("{place}: {}", error.message().replace('\n', " "))
            })?;
        let command = Options::command();
        let mut words = Vec::new();
        for (name, value) in &table {
            let wrong = |why: String| anyhow!("{}: {why}", at(name.span().start));
            let name = name.get_ref().as_str();
            let given = words_of(&command, name, value.get_ref()).map_err(wrong)?;
            // Each option is parsed alone first, so that a message names this one.
            parsed(&given).map_err(|why| wrong(format!("{name}: {why}")))?;
            words.extend(given);
        }
        parsed(&words).map_err(|why| anyhow!("{}: {why}", path.display()))
    }
}

/// The value, as words of a command line.
fn words_of(command: &clap::Command, name: &str, value: &Value) -> Result<Vec<String>, String> {
    let is_it = |arg: &&Arg| arg.get_long() == Some(name);
    let Some(arg) = command.get_arguments().find(is_it) else {
        let known = command.get_arguments().filter_map(Arg::get_long);
        let meant = nearest(name, known);
        let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
        return Err(format!("there is no option {name}{meant}"));
    };
    let many = matches!(arg.get_action(), ArgAction::Append);
    if let (ArgAction::Count, Value::Integer(times @ 0..=9)) = (arg.get_action(), value) {
        return Ok((0..*times).map(|_| format!("--{name}")).collect());
    }
    let is_switch = arg
        .get_num_args()
        .is_some_and(|range| range.min_values() == 0);
    let texts: Vec<String> = match value {
        Value::Array(values) if many => values
            .iter()
            .map(|value| plain(name, value, "a list of lists"))
            .collect::<Result<_, _>>()?,
        Value::String(text) if many => text.split(',').map(str::to_owned).collect(),
        value => vec![plain(
            name,
            value,
            "a list, and the option takes one value",
        )?],
    };
    let neither = |text: &&String| *text != "true" && *text != "false";
    match texts.iter().find(neither) {
        Some(text) if is_switch => Err(format!("{name}: \"{text}\" is neither true nor false")),
        _ => Ok(texts
            .iter()
            .map(|text| format!("--{name}={text}"))
            .collect()),
    }
}

fn plain(name: &str, value: &Value, list: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(yes) => Ok(yes.to_string()),
        Value::Datetime(date) => Ok(date.to_string()),
        Value::Array(_) => Err(format!("{name} is {list}")),
        Value::Table(_) => Err(format!("{name} is a table, and options have plain values")),
    }
}

fn parsed(words: &[String]) -> Result<ServeOptions, String> {
    let matches = Options::command().try_get_matches_from(words);
    let options = matches.and_then(|matches| Options::from_arg_matches(&matches));
    options.map(|options| options.options).map_err(|error| {
        // The option's own parser has the useful message; the rest of the text is about command
        // lines.
        let own = error.source().map(ToString::to_string);
        own.unwrap_or_else(|| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        })
    })
}
