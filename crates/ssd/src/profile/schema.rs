// SPDX-License-Identifier: Apache-2.0
//! The keys of a profile: their names, their values, and a sentence for everything else. Profiles
//! are checked before they are built, so messages name keys and lines, and never the program's own
//! types.
//!
//! A whole number may also be text in the command line's grammar: `user_bytes = "256g"`.

use senko_workload::units::nearest;
use toml::{Table, Value};

use crate::spec::{bytes, whole};

/// The kind of a key's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A whole number of up to this many bits.
    Whole(u32),
    Decimal,
    Flag,
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A table with its own keys.
    Keys(&'static [Key]),
}

/// A key's name, its kind, and whether it is required.
type Key = (&'static str, Kind, bool);

use Kind::{Decimal, Flag, Keys, Text, Whole, Word};

const GEOMETRY: &[Key] = &[
    ("channels", Whole(32), true),
    ("dies", Whole(32), true),
    ("planes", Whole(32), true),
    ("blocks", Whole(32), true),
    ("pages", Whole(32), true),
    ("page_bytes", Whole(32), true),
    ("spare_bytes", Whole(32), true),
];

const TIMING: &[Key] = &[
    ("read_ns", Whole(63), true),
    ("program_ns", Whole(63), true),
    ("erase_ns", Whole(63), true),
    ("command_ns", Whole(63), true),
    ("bus_ns_per_byte", Decimal, true),
    ("controller_ns", Whole(63), true),
    ("ram_ns", Whole(63), true),
    ("background_erase", Flag, true),
    ("copy_back", Flag, true),
];

const ENDURANCE: &[Key] = &[
    ("cycles", Whole(32), true),
    ("cycles_spread", Decimal, false),
    ("enforce", Flag, false),
    ("program_failure", Decimal, false),
    ("erase_failure", Decimal, false),
    ("spare_blocks", Whole(32), false),
    ("wear_threshold", Whole(32), false),
];

const SLC: &[Key] = &[
    ("bits", Whole(32), true),
    ("read_ns", Whole(63), true),
    ("program_ns", Whole(63), true),
];

const INTERFACE: &[Key] = &[
    ("kind", Word(&["single", "ncq", "nvme"]), true),
    ("queues", Whole(32), false),
    ("depth", Whole(32), false),
];

const LINK: &[Key] = &[
    ("kind", Word(&["none", "sata", "pcie", "other"]), true),
    ("generation", Whole(32), false),
    ("lanes", Whole(32), false),
    ("command_ns", Whole(63), false),
    ("write_command_ns", Whole(63), false),
    ("bytes_per_second", Whole(63), false),
];

const PROFILE: &[Key] = &[
    ("name", Text, true),
    ("source", Text, true),
    ("scale", Whole(32), false),
    ("user_bytes", Whole(63), true),
    ("geometry", Keys(GEOMETRY), true),
    ("timing", Keys(TIMING), true),
    ("endurance", Keys(ENDURANCE), false),
    ("slc", Keys(SLC), false),
    ("interface", Keys(INTERFACE), false),
    ("link", Keys(LINK), false),
    ("ftl", Text, true),
    ("buffer", Text, false),
    ("buffer_bytes", Whole(63), false),
    ("write_behind_pages", Whole(32), false),
    (
        "partial_pages",
        Word(&["read-modify-write", "whole"]),
        false,
    ),
];

/// Checks that a profile's table has all required keys and no others, each with a value of its
/// kind.
pub(super) fn checked(text: &str) -> Result<Table, String> {
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(String::new(), |span| {
            let before = text.get(..span.start).unwrap_or(text);
            format!("line {}: ", before.matches('\n').count() + 1)
        });
        format!("{line}it is not TOML: {}", error.message().trim())
    })?;
    check("", &mut table, PROFILE)?;
    if let Some(Value::Table(interface)) = table.get("interface") {
        let needed: &[&str] = match kind_of(interface) {
            "single" => &[],
            "ncq" => &["depth"],
            _ => &["queues", "depth"],
        };
        check_kind("interface", interface, needed, &[])?;
    }
    if let Some(Value::Table(link)) = table.get("link") {
        let (needed, allowed): (&[&str], &[&str]) = match kind_of(link) {
            "none" => (&[], &[]),
            "sata" => (
                &["generation", "command_ns"],
                &["write_command_ns", "bytes_per_second"],
            ),
            "pcie" => (
                &["generation", "lanes", "command_ns"],
                &["bytes_per_second"],
            ),
            _ => (&["bytes_per_second", "command_ns"], &["write_command_ns"]),
        };
        check_kind("link", link, needed, allowed)?;
    }
    Ok(table)
}

fn kind_of(section: &Table) -> &str {
    section.get("kind").and_then(Value::as_str).unwrap_or("")
}

/// Refuses a section that lacks a required key, or has an unknown one.
fn check_kind(
    name: &str,
    section: &Table,
    needed: &[&str],
    allowed: &[&str],
) -> Result<(), String> {
    let kind = kind_of(section);
    if let Some(key) = needed.iter().find(|key| !section.contains_key(**key)) {
        return Err(format!("[{name}] of the kind {kind} lacks {key}"));
    }
    let known = |key: &&String| {
        let key = key.as_str();
        key == "kind" || needed.contains(&key) || allowed.contains(&key)
    };
    match section.keys().find(|key| !known(key)) {
        Some(key) => Err(format!("[{name}] of the kind {kind} has no {key}")),
        None => Ok(()),
    }
}

fn check(section: &str, table: &mut Table, keys: &[Key]) -> Result<(), String> {
    let within = if section.is_empty() {
        String::new()
    } else {
        format!(" in [{section}]")
    };
    for (name, value) in table.iter_mut() {
        let Some((_, kind, _)) = keys.iter().find(|(known, ..)| known == name) else {
            let known: Vec<&str> = keys.iter().map(|key| key.0).collect();
            let meant = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are {}", known.join(", ")),
            };
            return Err(format!("there is no key {name}{within}; {meant}"));
        };
        check_value(name, &within, value, *kind)?;
    }
    match keys.iter().find(|key| key.2 && !table.contains_key(key.0)) {
        Some((missing, Keys(_), _)) => Err(format!("the section [{missing}] is missing")),
        Some((missing, ..)) => Err(format!("{missing} is missing{within}")),
        None => Ok(()),
    }
}

fn check_value(name: &str, within: &str, value: &mut Value, kind: Kind) -> Result<(), String> {
    let wrong = |value: &Value, what: &str| {
        let shown = value.to_string();
        Err(format!("{name}{within} is {shown}, and must be {what}"))
    };
    match kind {
        Keys(keys) => match value {
            Value::Table(table) => check(name, table, keys),
            _ => wrong(value, &format!("a section, [{name}]")),
        },
        Whole(bits) => {
            if let Value::String(text) = value {
                let number = if name.ends_with("_bytes") {
                    bytes(text)
                } else {
                    whole(text)
                };
                if let Some(number) = number.ok().and_then(|number| i64::try_from(number).ok()) {
                    *value = Value::Integer(number);
                }
            }
            let most = ((1u128 << bits) - 1) as i64;
            match value {
                Value::Integer(number) if (0..=most).contains(number) => Ok(()),
                _ => wrong(value, &format!("a whole number from 0 to {most}")),
            }
        }
        Decimal => match value {
            Value::Float(_) => Ok(()),
            Value::Integer(number) => {
                *value = Value::Float(*number as f64);
                Ok(())
            }
            _ => wrong(value, "a number"),
        },
        Flag if value.is_bool() => Ok(()),
        Flag => wrong(value, "true or false"),
        Text if value.is_str() => Ok(()),
        Text => wrong(value, "text in quotes"),
        Word(words) if value.as_str().is_some_and(|word| words.contains(&word)) => Ok(()),
        Word(words) => wrong(value, &format!("one of {}", words.join(", "))),
    }
}
