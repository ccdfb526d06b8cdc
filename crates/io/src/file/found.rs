// SPDX-License-Identifier: Apache-2.0
//! How a file is found, opened and locked.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use super::owner::is_at;
use super::{FileOptions, failed, folder_of, lock, refuse_file_in_dev, told};

/// A file that was opened and locked.
pub(super) struct Found {
    /// What it was before; `None` if it was made.
    pub existing: Option<Metadata>,
    /// Dropped before the file is closed.
    pub held: Option<lock::HeldLock>,
    pub file: File,
}

impl Found {
    /// Opens and locks what the path names once the lock is held.
    pub fn at(path: &Path, options: &FileOptions) -> io::Result<Found> {
        loop {
            let found = Found::of(path, options)?;
            if found.held.is_none() || is_at(&found.file, path) {
                return Ok(found);
            }
        }
    }

    fn of(path: &Path, options: &FileOptions) -> io::Result<Found> {
        let existing = std::fs::metadata(path).ok();
        let read_only = options.read_only || options.beside_writer;
        let block_device = existing
            .as_ref()
            .is_some_and(|meta| meta.file_type().is_block_device());
        if let Some(meta) = &existing
            && !block_device
            && !meta.is_file()
        {
            let text = format!(
                "{} is neither a regular file nor a block device",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if !read_only && (existing.is_some() || options.bytes > 0) {
            refuse_file_in_dev(path)?;
        }
        let locked = |error: io::Error| told::told(format!("{} {error}", path.display()), &error);
        if let Some(meta) = &existing
            && !options.beside_writer
        {
            lock::check_own(meta, read_only).map_err(locked)?;
        }
        let mut how = OpenOptions::new();
        how.read(true).mode(options.mode.unwrap_or(0o600));
        if !read_only {
            // An existing file is opened without O_CREAT: the kernel may refuse that for a file of
            // another user in a shared folder (`fs.protected_regular`).
            how.write(true)
                .create(options.bytes > 0 && existing.is_none());
        }
        if block_device && !read_only {
            // The kernel refuses an exclusive open of a device that is mounted or part of another.
            how.custom_flags(libc::O_EXCL);
        }
        let started = Instant::now();
        let file = loop {
            match how.open(path) {
                // A server that was killed a moment ago holds the file until the kernel has removed
                // its ring.
                Err(error)
                    if block_device
                        && error.raw_os_error() == Some(libc::EBUSY)
                        && lock::may_be_left_behind(path)
                        && started.elapsed() < lock::PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(2));
                }
                opened => break opened.map_err(|error| open_error(path, block_device, &error))?,
            }
        };
        let held = match options.beside_writer {
            true => None,
            false => Some(lock::take(&file, read_only).map_err(locked)?),
        };
        Ok(Found {
            existing,
            file,
            held,
        })
    }
}

fn open_error(path: &Path, block_device: bool, error: &io::Error) -> io::Error {
    let parent = folder_of(path);
    let text = if error.kind() == io::ErrorKind::NotFound && !parent.exists() {
        format!(
            "cannot open {}: the directory {} does not exist",
            path.display(),
            parent.display()
        )
    } else if block_device && error.raw_os_error() == Some(libc::EBUSY) {
        let user = lock::device_user(path);
        let user = user.as_deref().unwrap_or("is mounted or otherwise in use");
        format!("block device {} {user}", path.display())
    } else {
        return failed(path, "cannot open", error);
    };
    told::told(text, error)
}
