// SPDX-License-Identifier: Apache-2.0
//! A database that a command makes: where nobody's data lies, and gone again if the command puts
//! nothing into it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use senko_io::{PAGE_SIZE, find_content};

/// With these bytes a superblock begins.
const MAGIC: &[u8] = b"SENKODB\0";

/// Refuses what is no file and no device, and one that has content and no superblock of a database.
/// The DBM itself makes a database where the superblock's pages are zero, as they are in some file
/// systems.
pub fn refuse_foreign(path: &Path) -> Result<()> {
    let unread = || format!("cannot read {}", path.display());
    let Ok(there) = path.metadata() else {
        // It is not there, or opening the database tells why.
        return Ok(());
    };
    if !there.is_file() && !there.file_type().is_block_device() {
        bail!(
            "{} is neither a regular file nor a block device",
            path.display()
        );
    }
    let mut file = File::open(path).with_context(unread)?;
    let size = file.seek(SeekFrom::End(0)).with_context(unread)?;
    let mut database = false;
    let read = |offset: u64, buf: &mut [u8]| -> io::Result<()> {
        // Beyond the end, in the last page, all is zero.
        buf.fill(0);
        let inside = size.saturating_sub(offset).min(buf.len() as u64);
        file.read_exact_at(&mut buf[..inside as usize], offset)?;
        database |= buf.chunks(PAGE_SIZE).any(|page| page.starts_with(MAGIC));
        Ok(())
    };
    let rounded = size.next_multiple_of(PAGE_SIZE as u64);
    let found = find_content(rounded, read, |_, _| false).with_context(unread)?;
    match found {
        Some(content) if !database => bail!(
            "{}: not a Senko database: it holds {content}; to lose that and make one there, empty it \
             first (remove the file; `blkdiscard -z` for a device)",
            path.display()
        ),
        _ => Ok(()),
    }
}

/// The files of a database that was not there before, removed unless [`Made::keep`] was called. It
/// must outlive the open database.
pub struct Made(Option<PathBuf>);

impl Made {
    /// Before the database is opened.
    pub fn at(path: &Path) -> Made {
        let there = path.symlink_metadata().is_ok() || further(path, 1).symlink_metadata().is_ok();
        Made((!there).then(|| path.to_owned()))
    }

    /// Something was put into the database.
    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        // A file that can't be removed is left; the reason of the failure is told already.
        let mut left = std::fs::remove_file(path);
        for number in 1.. {
            if left.is_err() {
                return;
            }
            left = std::fs::remove_file(further(path, number));
        }
    }
}

/// A further file of a database.
fn further(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}
