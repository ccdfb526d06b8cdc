// SPDX-License-Identifier: Apache-2.0
//! Specifications of parts on the command line: `name`, or `name:option=value,option=value`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use senko_workload::units;

use crate::Error;

/// A part's name with its options. Each option must be taken; [`Spec::finish`] refuses the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    name: String,
    options: BTreeMap<String, String>,
    /// The options that were taken, with the values that count.
    taken: BTreeMap<String, String>,
}

impl Spec {
    pub fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    pub fn with(mut self, option: &str, value: impl fmt::Display) -> Self {
        self.options.insert(option.to_owned(), value.to_string());
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes an option; `default` if it is absent.
    pub fn take<T: FromStr + fmt::Display>(
        &mut self,
        option: &str,
        default: T,
    ) -> Result<T, Error> {
        let value = self.take_optional(option)?.unwrap_or(default);
        self.taken.insert(option.to_owned(), value.to_string());
        Ok(value)
    }

    /// Takes an option that [`Spec::finish`] leaves out if it has its default.
    pub fn take_quietly<T: FromStr + fmt::Display + PartialEq>(
        &mut self,
        option: &str,
        default: T,
    ) -> Result<T, Error> {
        match self.take_optional(option)? {
            Some(value) if value != default => self.take(option, value),
            _ => Ok(default),
        }
    }

    /// Takes an option, if it is present.
    pub fn take_optional<T: FromStr>(&mut self, option: &str) -> Result<Option<T>, Error> {
        let Some(text) = self.options.remove(option) else {
            return Ok(None);
        };
        if let Ok(value) = text.parse() {
            return Ok(Some(value));
        }
        // A share may be in percent. Its text has a point, so it is no whole number.
        if let Some(percent) = text.strip_suffix('%')
            && let Ok(percent) = percent.parse::<f64>()
            && let Ok(value) = format!("{:?}", percent / 100.0).parse()
        {
            return Ok(Some(value));
        }
        // A number may have a suffix, such as 64k.
        let number = if option.contains("bytes") {
            bytes(&text)
        } else {
            whole(&text)
        };
        let value = number
            .ok()
            .and_then(|number| number.to_string().parse().ok());
        value.map(Some).ok_or_else(|| {
            Error::Spec(format!(
                "{}: \"{text}\" is not a value for the option {option}",
                self.name
            ))
        })
    }

    /// Ends the parsing; returns the specification with all options that count.
    ///
    /// # Errors
    /// If an unknown option is left; the sentence names those that `known` lists.
    pub fn finish(self, known: &[&str]) -> Result<Spec, Error> {
        match self.options.keys().next() {
            None => Ok(Self {
                name: self.name,
                options: self.taken,
                ..Self::default()
            }),
            Some(option) if known.is_empty() => Err(Error::Spec(format!(
                "{} has no options, and so no {option}",
                self.name
            ))),
            Some(option) => Err(Error::Spec(format!(
                "{} has no option {option}; it has {}",
                self.name,
                known.join(", ")
            ))),
        }
    }
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        if name.is_empty() {
            return Err(Error::Spec(format!("\"{text}\" names nothing")));
        }
        let mut spec = Self::plain(name);
        for option in rest.into_iter().flat_map(|rest| rest.split(',')) {
            let Some((key, value)) = option.split_once('=') else {
                return Err(Error::Spec(format!(
                    "{name}: \"{option}\" is not an option=value"
                )));
            };
            if spec
                .options
                .insert(key.to_owned(), value.to_owned())
                .is_some()
            {
                return Err(Error::Spec(format!("{name}: {key} is given twice")));
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (at, (option, value)) in self.options.iter().enumerate() {
            write!(f, "{}{option}={value}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

/// A whole number: `262144`, `1e6` or `200k` (200,000).
pub(crate) fn whole(text: &str) -> Result<u64, Error> {
    units::count(text).map_err(|error| Error::Spec(error.to_string()))
}

/// Bytes: a number, with `k`, `m`, `g` or `t` for powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, Error> {
    units::size(text, 1).map_err(|error| Error::Spec(error.to_string()))
}

/// A part that can be built. `M` makes it.
pub struct Part<M> {
    pub name: &'static str,
    pub about: &'static str,
    /// Its options, each as `option=DEFAULT`.
    pub options: &'static [&'static str],
    pub(crate) make: M,
}

/// An array of parts: the name of each, how it is made, its options, and what it is.
macro_rules! parts {
    ($($name:expr, $make:expr, $options:expr, $about:literal;)+) => {
        [$(Part { name: $name, about: $about, options: $options, make: $make }),+]
    };
}
pub(crate) use parts;

/// An array of tuples, a row a line.
macro_rules! rows {
    ($($($cell:expr),+;)+) => { [$(($($cell),+)),+] };
}
pub(crate) use rows;

impl<M> Part<M> {
    /// The part that a specification names; `kind` says what it is, in the error.
    pub(crate) fn find<'a>(all: &'a [Self], spec: &Spec, kind: &str) -> Result<&'a Self, Error> {
        all.iter()
            .find(|part| part.name == spec.name)
            .ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|part| part.name).collect();
                Error::Spec(format!(
                    "there is no {kind} \"{}\"; there are {}",
                    spec.name,
                    names.join(", ")
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_may_be_in_percent() {
        let spec = |text: &str| text.parse::<Spec>().expect("a spec");
        let share = spec("zipf:writes=12.5%").take("writes", 0.0);
        assert_eq!(share.ok(), Some(0.125));
        assert!(spec("zipf:pages=100%").take("pages", 1_u64).is_err());
        assert!(spec("zipf:writes=%").take("writes", 0.0).is_err());
    }

    /// `count=200k`, as in the README, was once refused as not a whole number, and so was
    /// `cmt-bytes=64k`.
    #[test]
    fn numbers_have_one_grammar() {
        let mut spec: Spec = "dftl:cmt-bytes=64k,rate=2k,blocks=2k"
            .parse()
            .expect("a part");
        assert_eq!(spec.take("cmt-bytes", 0u64).ok(), Some(65_536));
        assert_eq!(spec.take("rate", 0.0).ok(), Some(2000.0));
        assert_eq!(spec.take("blocks", 0u32).ok(), Some(2000));
    }
}
