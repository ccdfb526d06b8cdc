// SPDX-License-Identifier: Apache-2.0
//! CFLRU: clean-first LRU.
//!
//! Idea: the buffer also holds pages that were read. The least recently used part of the list is
//! the clean-first region. Its oldest clean page leaves first, which costs nothing. Only if it has
//! no clean page does the oldest dirty page leave. A larger region saves writes and costs read
//! hits. Source: Park, Jung, Kang, Kim, Lee, "CFLRU: A Replacement Algorithm for Flash Memory",
//! CASES 2006, section 4. The lists are those of `lru.rs`. Deviation: theirs manages the page cache
//! of an operating system; this one is in the drive. Parameter: `window`, the region's share of the
//! buffer (their w; static, as in their first variant), half by default. A flush writes the dirty
//! pages and keeps the clean ones.

use super::lru::Lru;
use super::{Buffer, Surroundings};
use crate::Error;
use crate::spec::Spec;

pub(super) fn make(spec: &mut Spec, around: &Surroundings) -> Result<Box<dyn Buffer>, Error> {
    let capacity = around.capacity;
    let window: f64 = spec.take_quietly("window", 0.5)?;
    if !(0.0..=1.0).contains(&window) {
        return Err(Error::Spec(format!(
            "cflru: window is a share of the buffer, from 0 to 1, and not {window}"
        )));
    }
    let policy = Lru {
        capacity,
        touch_reads: true,
        fill_reads: true,
        region: Some(((capacity as f64 * window).ceil() as usize).clamp(1, capacity)),
        bytes_per_page: 10,
    };
    Ok(policy.build())
}
