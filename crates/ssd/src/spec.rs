// SPDX-License-Identifier: Apache-2.0
//! Specifications of parts on the command line: `name`, or `name:option=value,option=value`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A part's name with its options. Each option must be taken, or [`Spec::finish`] complains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    name: String,
    options: BTreeMap<String, String>,
}

impl Spec {
    /// A name without options.
    pub fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            options: BTreeMap::new(),
        }
    }

    /// The same with one more option.
    pub fn with(mut self, option: &str, value: impl fmt::Display) -> Self {
        self.options.insert(option.to_owned(), value.to_string());
        self
    }

    /// The part's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes an option out; `default` if it is not there.
    ///
    /// # Errors
    /// If its value is no `T`.
    pub fn take<T: FromStr>(&mut self, option: &str, default: T) -> Result<T, Error> {
        Ok(self.take_optional(option)?.unwrap_or(default))
    }

    /// Takes an option out, if it is there.
    ///
    /// # Errors
    /// If its value is no `T`.
    pub fn take_optional<T: FromStr>(&mut self, option: &str) -> Result<Option<T>, Error> {
        let Some(text) = self.options.remove(option) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            Error::spec(format!(
                "{}: \"{text}\" is no value for the option {option}",
                self.name
            ))
        })
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// If an option is left, which nobody knows; the sentence names those that `known` lists.
    pub fn finish(self, known: &[&str]) -> Result<(), Error> {
        match self.options.keys().next() {
            None => Ok(()),
            Some(option) if known.is_empty() => Err(Error::spec(format!(
                "{} has no options, and so no {option}",
                self.name
            ))),
            Some(option) => Err(Error::spec(format!(
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
            return Err(Error::spec(format!("\"{text}\" names nothing")));
        }
        let mut spec = Self::plain(name);
        for option in rest.into_iter().flat_map(|rest| rest.split(',')) {
            let Some((key, value)) = option.split_once('=') else {
                return Err(Error::spec(format!(
                    "{name}: \"{option}\" is no option=value"
                )));
            };
            if spec
                .options
                .insert(key.to_owned(), value.to_owned())
                .is_some()
            {
                return Err(Error::spec(format!("{name}: {key} is given twice")));
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
