// SPDX-License-Identifier: Apache-2.0
//! Decides where pages are written: into separate segments, or into the log.

use crate::core::Core;
use crate::disk::images::Images;
use crate::disk::log::{Label, Log};
use crate::error::DbmError;
use crate::sync::MutexGuard;

/// Where pages go: into separate segments, or, if these would make a small database larger, into
/// the log.
pub(crate) enum Sink<'a> {
    Images(MutexGuard<'a, Images>),
    Log(MutexGuard<'a, Log>),
}

impl<'a> Sink<'a> {
    /// Where pages go: separate from the log or not.
    pub fn of(core: &'a Core, apart: bool) -> Result<Sink<'a>, DbmError> {
        core.latch.check()?;
        Ok(match apart {
            true => Sink::Images(core.images.lock()),
            false => Sink::Log(core.log.lock()),
        })
    }

    /// As [`Images::append`].
    pub fn append(
        &mut self,
        label: Label,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<u64, DbmError> {
        match self {
            Sink::Images(images) => images.append(label, fill),
            Sink::Log(log) => log.append(label, fill),
        }
    }

    /// Writes the buffered pages. Only after that may a version name its place.
    pub fn write_out(&mut self) -> Result<(), DbmError> {
        match self {
            Sink::Images(images) => images.write_out(),
            Sink::Log(log) => log.write_out(),
        }
    }
}

/// Sets the time of the following pages.
pub(crate) fn begin_images(core: &Core) {
    let (sequence, checkpoint) = {
        let log = core.log.lock();
        (log.position().sequence, log.checkpoint)
    };
    core.images.lock().begin(sequence, checkpoint);
}

/// The segments being filled, including the log's next one.
pub(crate) fn open_segments(core: &Core) -> Vec<u32> {
    let images = core.images.lock().open_segment();
    let mut open = core.log.lock().open_segments();
    open.extend(images);
    open
}
