// SPDX-License-Identifier: Apache-2.0
//! The elements that a look-up finds in a log, in a block, or in the cache of records.

use crate::block::FoundVersion;
use crate::element::Element;
use crate::log::LogElement;

/// The version of a key that a look-up found: a value, the reference to a large one, or a
/// tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub flags: u8,
    pub time: u64,
    pub expiry: u64,
    pub value: Vec<u8>,
}

impl Hit {
    /// A copy of an element's fields.
    pub fn of(element: &Element<'_>) -> Hit {
        Hit {
            flags: element.flags,
            time: element.time,
            expiry: element.expiry,
            value: element.value.to_vec(),
        }
    }

    /// The element of the key that was looked up.
    pub fn element<'a>(&'a self, key: &'a [u8]) -> Element<'a> {
        Element {
            flags: self.flags,
            key,
            value: &self.value,
            time: self.time,
            expiry: self.expiry,
        }
    }
}

impl From<LogElement> for Hit {
    fn from(found: LogElement) -> Hit {
        let element = found.element();
        let (flags, time, expiry) = (element.flags, element.time, element.expiry);
        Hit {
            flags,
            time,
            expiry,
            value: found.into_value(),
        }
    }
}

impl From<FoundVersion<'_>> for Hit {
    fn from(found: FoundVersion<'_>) -> Hit {
        Hit {
            flags: found.flags,
            time: found.time,
            expiry: found.expiry,
            value: found.value.into_owned(),
        }
    }
}
