// SPDX-License-Identifier: Apache-2.0
//! Pages of a file as memory that outlives the process; devices call this.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::FlashFile;
use crate::AlignedBuf;

/// Kinds of file systems.
const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;
const TMPFS: i64 = 0x0102_1994;

impl FlashFile {
    /// As [`crate::Device::map`]. On a file system that writes each change to a new place, a store
    /// to memory may find no space, which would kill the process. So only files on file systems
    /// that write in place are mapped.
    pub(super) fn map_pages(&self, page: u64, pages: usize) -> io::Result<Option<AlignedBuf>> {
        let in_place = [EXT4, XFS, TMPFS].contains(&file_system(&self.file)?);
        let inside = page + pages as u64 <= self.pages();
        if self.read_only || self.block_device || !in_place || !inside {
            return Ok(None);
        }
        AlignedBuf::map_part(&self.file, page, pages).map(Some)
    }
}

/// The kind of the file system of a file.
fn file_system(file: &File) -> io::Result<i64> {
    // SAFETY: zeros are a valid value of this structure.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes only this structure; the descriptor is open.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) } < 0 {
        return Err(io::Error::last_os_error());
    }
    #[allow(clippy::unnecessary_cast)] // its type differs between platforms
    let kind = found.f_type as i64;
    Ok(kind)
}
