// SPDX-License-Identifier: Apache-2.0
//! Parses a command line as memcached does with GNU getopt_long: clusters of short options
//! (`-vvkm64`), values attached or separate, and abbreviated long names (`--mem=64`). Words that
//! are not options are ignored.

/// One option that memcached 1.6 knows.
#[derive(Debug)]
pub struct Spec {
    /// Its letter.
    pub short: char,
    /// Its long names; the first is the one used in messages.
    pub long: &'static [&'static str],
    /// Whether a value follows.
    pub value: bool,
}

const fn spec(short: char, value: bool, long: &'static [&'static str]) -> Spec {
    Spec { short, long, value }
}

/// memcached 1.6's whole list.
pub const SPECS: &[Spec] = &[
    spec('p', true, &["port"]),
    spec('U', true, &["udp-port"]),
    spec('s', true, &["unix-socket"]),
    spec('a', true, &["unix-mask"]),
    spec('A', false, &["enable-shutdown"]),
    spec('l', true, &["listen"]),
    spec('d', false, &["daemon"]),
    spec('r', false, &["enable-coredumps"]),
    spec('u', true, &["user"]),
    spec('m', true, &["memory-limit"]),
    spec('M', false, &["disable-evictions"]),
    spec('c', true, &["conn-limit"]),
    spec('k', false, &["lock-memory"]),
    spec('v', false, &["verbose"]),
    spec('h', false, &["help"]),
    spec('i', false, &["license"]),
    spec('V', false, &["version"]),
    spec('P', true, &["pidfile"]),
    spec('f', true, &["slab-growth-factor"]),
    spec('n', true, &["slab-min-size"]),
    spec('L', false, &["enable-largepages"]),
    spec('D', true, &["stat-key-prefix"]),
    spec('t', true, &["threads"]),
    spec('R', true, &["max-reqs-per-event"]),
    spec('C', false, &["disable-cas"]),
    spec('b', true, &["listen-backlog"]),
    spec('B', true, &["protocol"]),
    spec('I', true, &["max-item-size"]),
    spec('S', false, &["enable-sasl"]),
    spec('F', false, &["disable-flush-all"]),
    spec('X', false, &["disable-dumping"]),
    spec('W', false, &["disable-watch"]),
    spec('Y', true, &["auth-file"]),
    spec('e', true, &["memory-file"]),
    spec('Z', false, &["enable-ssl"]),
    spec('N', true, &["napi-ids", "napi_ids"]),
    spec('o', true, &["extended"]),
];

/// One option as given: its letter and its value (empty if it has none).
pub type Given = (char, String);

/// Reads a command line (without the program's name).
///
/// # Errors
/// One sentence: an option that memcached does not have, a missing or surplus value, an ambiguous
/// abbreviation.
pub fn parse(args: &[String]) -> Result<Vec<Given>, String> {
    let mut given = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            break;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (long, None),
            };
            let spec = find_long(name)?;
            let value = match (spec.value, value) {
                (true, Some(value)) => value,
                (true, None) => args
                    .next()
                    .cloned()
                    .ok_or_else(|| format!("the option --{} needs a value", spec.long[0]))?,
                (false, Some(_)) => {
                    return Err(format!(
                        "the option --{} does not accept a value",
                        spec.long[0]
                    ));
                }
                (false, None) => String::new(),
            };
            given.push((spec.short, value));
        } else if let Some(cluster) = arg.strip_prefix('-').filter(|c| !c.is_empty()) {
            let mut letters = cluster.chars();
            while let Some(letter) = letters.next() {
                let spec = SPECS.iter().find(|s| s.short == letter).ok_or_else(|| {
                    format!("there is no option -{letter}; memcached -h lists them")
                })?;
                if !spec.value {
                    given.push((letter, String::new()));
                    continue;
                }
                let rest = letters.as_str();
                let value = if rest.is_empty() {
                    args.next()
                        .cloned()
                        .ok_or_else(|| format!("the option -{letter} needs a value"))?
                } else {
                    rest.to_string()
                };
                given.push((letter, value));
                break;
            }
        }
    }
    Ok(given)
}

fn find_long(name: &str) -> Result<&'static Spec, String> {
    let exact = SPECS.iter().find(|s| s.long.contains(&name));
    if let Some(spec) = exact {
        return Ok(spec);
    }
    let mut close = SPECS
        .iter()
        .filter(|s| s.long.iter().any(|l| l.starts_with(name)));
    match (close.next(), close.next()) {
        (Some(spec), None) if !name.is_empty() => Ok(spec),
        (Some(_), Some(_)) => Err(format!(
            "the option --{name} is ambiguous; memcached -h lists the names"
        )),
        _ => Err(format!(
            "there is no option --{name}; memcached -h lists them"
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<Given>, String> {
        parse(
            &line
                .split_whitespace()
                .map(str::to_string)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn clusters_and_values() {
        let given = read("-vvkm64 -p 1 --port=2 --conn-limit 9 --slab-g 1.5 word -d").unwrap();
        let short: String = given.iter().map(|g| g.0).collect();
        assert_eq!(short, "vvkmppcfd");
        assert_eq!(given[3].1, "64");
        assert_eq!(given[5].1, "2");
    }

    #[test]
    fn a_negative_port_is_a_value() {
        assert_eq!(read("-p -1").unwrap(), vec![('p', "-1".to_string())]);
    }

    #[test]
    fn errors() {
        assert!(read("-Q").unwrap_err().contains("-Q"));
        assert!(read("-p").unwrap_err().contains("value"));
        assert!(
            read("--daemon=1")
                .unwrap_err()
                .contains("not accept a value")
        );
        assert!(read("--disable").unwrap_err().contains("ambiguous"));
        assert!(read("--nonsense").unwrap_err().contains("--nonsense"));
    }

    #[test]
    fn every_option_of_the_list_is_found_by_its_names() {
        for spec in SPECS {
            for long in spec.long {
                assert_eq!(find_long(long).unwrap().short, spec.short);
            }
        }
    }
}
