// SPDX-License-Identifier: Apache-2.0
//! Decides where pages are written: into separate segments, or into the log.

use crate::DbmError;
use crate::core::Core;
use crate::images::Images;
use crate::log::{Label, Log};
use crate::sync::MutexGuard;

/// Where pages go: into separate segments, or, if these would make a small database larger, into
/// the log.
pub(crate) enum Sink<'a> {
    Images(MutexGuard<'a, Images>),
    Log(MutexGuard<'a, Log>),
}

impl Sink<'_> {
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

impl Core {
    /// Sets the time of the following pages.
    pub fn begin_images(&self) {
        let (sequence, checkpoint) = {
            let log = self.log.lock();
            (log.position().sequence, log.checkpoint)
        };
        self.images.lock().begin(sequence, checkpoint);
    }

    /// Where pages go: separate from the log or not.
    pub fn sink(&self, apart: bool) -> Result<Sink<'_>, DbmError> {
        self.check()?;
        Ok(match apart {
            true => Sink::Images(self.images.lock()),
            false => Sink::Log(self.log.lock()),
        })
    }

    /// The segments being filled, including the log's next one.
    pub fn open_segments(&self) -> Vec<u32> {
        let images = self.images.lock().open_segment();
        let mut open = self.log.lock().open_segments();
        open.extend(images);
        open
    }
}
