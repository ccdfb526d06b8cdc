// SPDX-License-Identifier: Apache-2.0
//! The contents of a trace's columns, as in `columns=tdasf`. `columns.rs` parses with it.

use std::fmt;
use std::str::FromStr;

use crate::Error;

pub(super) const MAX_COLUMNS: usize = 16;

/// The contents of the columns; `None` for an absent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    pub(super) time: Option<usize>,
    pub(super) device: Option<usize>,
    pub(super) address: usize,
    pub(super) sectors: usize,
    pub(super) flag: usize,
    pub(super) count: usize,
}

impl Columns {
    /// Time, device, address, sectors, flag.
    pub const USUAL: Columns = Columns {
        time: Some(0),
        device: Some(1),
        address: 2,
        sectors: 3,
        flag: 4,
        count: 5,
    };
}

impl FromStr for Columns {
    type Err = Error;

    fn from_str(text: &str) -> Result<Columns, Error> {
        let place = |letter: char| -> Result<Option<usize>, Error> {
            if text.matches(letter).count() > 1 {
                return Err(Error::Spec(format!(
                    "the columns \"{text}\" name {letter} twice"
                )));
            }
            Ok(text.find(letter))
        };
        if text.len() > MAX_COLUMNS || !text.chars().all(|c| "tdasf-".contains(c)) {
            return Err(Error::Spec(format!(
                "the columns \"{text}\" are not at most {MAX_COLUMNS} letters of t(ime), d(evice), a(ddress), s(ectors), f(lag) and - (ignored)"
            )));
        }
        let needed = |letter: char| -> Result<usize, Error> {
            place(letter)?.ok_or_else(|| {
                Error::Spec(format!(
                    "the columns \"{text}\" lack {letter}: address (a), sectors (s) and flag (f) are needed"
                ))
            })
        };
        Ok(Columns {
            time: place('t')?,
            device: place('d')?,
            address: needed('a')?,
            sectors: needed('s')?,
            flag: needed('f')?,
            count: text.len(),
        })
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for at in 0..self.count {
            f.write_str(match at {
                _ if Some(at) == self.time => "t",
                _ if Some(at) == self.device => "d",
                _ if at == self.address => "a",
                _ if at == self.sectors => "s",
                _ if at == self.flag => "f",
                _ => "-",
            })?;
        }
        Ok(())
    }
}
