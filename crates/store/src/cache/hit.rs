// SPDX-License-Identifier: Apache-2.0
//! The elements that a look-up finds in a log, in a block, or in the cache of records.

use crate::block::FoundVersion;
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
