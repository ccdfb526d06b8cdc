// SPDX-License-Identifier: Apache-2.0
//! A flash file or a block device: open, probe O_DIRECT and its alignment, preallocate, lock, record.

use std::path::Path;
use std::sync::Arc;

use crate::trace::Recorder;

/// How to open.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// Bytes that the file must have (it is made and preallocated to this); 0: as it is (block device, existing file).
    pub bytes: u64,
    /// Pass discards on to the device.
    pub discard: bool,
    /// Writes down what reaches this device, under this device number.
    pub recorder: Option<(Arc<Recorder>, u16)>,
}

/// An open, locked flash file or block device.
pub struct FlashFile {}

impl FlashFile {
    /// Opens or makes `path`, takes the exclusive lock, probes O_DIRECT, preallocates.
    ///
    /// # Errors
    /// One clear sentence with the path: directory missing, no space, held by another process (with its pid where known), smaller than asked...
    pub fn open(_path: &Path, _options: &FileOptions) -> std::io::Result<FlashFile> {
        todo!()
    }
    /// Pages.
    pub fn pages(&self) -> u64 {
        todo!()
    }
    /// Whether O_DIRECT is in use (some file systems refuse it; then the page cache is told to drop what passes).
    pub fn direct(&self) -> bool {
        todo!()
    }
    /// Path as given.
    pub fn path(&self) -> &Path {
        todo!()
    }
}
