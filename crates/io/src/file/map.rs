// SPDX-License-Identifier: Apache-2.0
//! Pages of a file as memory that outlives the process; called by devices.

use std::io;

use super::FlashFile;
use crate::AlignedBuf;
use crate::transfer::{EXT4, TMPFS, XFS, file_system};

impl FlashFile {
    /// As [`crate::Device::map`]. A file system that writes in a new place each time may be full
    /// when memory is stored to, and that would end the process. So only files on systems that are
    /// known to write in place are mapped.
    pub(crate) fn map(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        let in_place = [EXT4, XFS, TMPFS].contains(&file_system(&self.file)?);
        if self.read_only || self.block_device || !in_place {
            return Ok(None);
        }
        AlignedBuf::map_part(&self.file, page, pages).map(Some)
    }
}
