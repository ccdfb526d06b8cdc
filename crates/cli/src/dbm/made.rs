// SPDX-License-Identifier: Apache-2.0
//! A database that a command creates. The command refuses a place with other data, and removes the
//! database again if it puts nothing into it.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Refuses a path that is neither a file nor a device.
pub fn refuse_kind(path: &Path) -> Result<()> {
    let Ok(there) = path.metadata() else {
        // It does not exist, or opening the database reports the reason.
        return Ok(());
    };
    if !there.is_file() && !there.file_type().is_block_device() {
        bail!(
            "{} is neither a regular file nor a block device",
            path.display()
        );
    }
    Ok(())
}

/// A database that was not there before, removed unless [`Made::keep`] was called. It
/// must outlive the open database.
pub struct Made(Option<PathBuf>);

impl Made {
    /// Called before the database is opened.
    pub fn at(path: &Path) -> Made {
        Made(path.symlink_metadata().is_err().then(|| path.to_owned()))
    }

    /// Notes that something was put into the database.
    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        // A file that can't be removed stays; the reason of the failure was reported already.
        let _ = std::fs::remove_file(path);
    }
}
