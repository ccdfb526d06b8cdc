// SPDX-License-Identifier: Apache-2.0
//! Everything that a user can name: profiles, layers, buffers, generators, folds, trace formats.
//! `senko ssd parts` and the Python package list it.

use serde::Serialize;

use crate::profile::{BUILT_IN, Profile};
use crate::{Error, buffer, ftl, generate, trace};

/// Something that a user can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Named {
    /// `profile`, `ftl`, `buffer`, `load`, `fold` or `format`.
    pub kind: &'static str,
    pub name: &'static str,
    /// A description in one line.
    pub about: String,
    pub options: Vec<&'static str>,
}

/// All of them, kind by kind.
///
/// # Errors
/// Never: the built-in profiles are valid.
///
/// ```
/// let all = senko_ssd::catalogue::all()?;
/// assert!(all.iter().any(|part| part.kind == "ftl" && part.name == "bast"));
/// # Ok::<(), senko_ssd::Error>(())
/// ```
pub fn all() -> Result<Vec<Named>, Error> {
    let mut all = Vec::new();
    let mut add = |kind, name, about: &str, options: &[&'static str]| {
        all.push(Named {
            kind,
            name,
            about: about.to_owned(),
            options: options.to_vec(),
        });
    };
    for (name, text) in BUILT_IN {
        add("profile", name, &Profile::parse(text)?.source, &[]);
    }
    for entry in ftl::ALL {
        add("ftl", entry.name, entry.about, entry.options);
    }
    for entry in buffer::ALL {
        add("buffer", entry.name, entry.about, entry.options);
    }
    let common: Vec<&str> = generate::COMMON.split(", ").collect();
    for (name, about, own) in generate::GENERATORS {
        let options: Vec<&str> = own.iter().chain(&common).copied().collect();
        add("load", name, about, &options);
    }
    for (name, about, options) in trace::WAYS {
        add("fold", name, about, options);
    }
    for format in trace::Format::all() {
        add("format", format.name(), format.about(), format.options());
    }
    Ok(all)
}
