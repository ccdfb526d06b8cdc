// SPDX-License-Identifier: Apache-2.0
//! No write buffer.
//!
//! Idea: each page goes to the flash as it comes. The other buffers are compared with this one.

use super::{Buffer, Outgoing, Surroundings};
use crate::Error;
use crate::geometry::Lpn;
use crate::spec::Spec;

struct NoBuffer;

pub(super) fn make(_: &mut Spec, _: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    Ok(Box::new(NoBuffer))
}

impl Buffer for NoBuffer {
    fn len(&self) -> usize {
        0
    }

    fn passes_through(&self) -> bool {
        true
    }

    fn contains(&self, _: Lpn) -> bool {
        false
    }

    fn write(&mut self, lpn: Lpn, out: &mut Outgoing) -> bool {
        out.dirty(lpn);
        false
    }

    fn read(&mut self, _: Lpn) -> bool {
        false
    }

    fn trim(&mut self, _: Lpn) {}

    fn drain(&mut self, _: &mut Outgoing) {}

    fn table_bytes(&self) -> u64 {
        0
    }
}
