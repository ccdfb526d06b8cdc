// SPDX-License-Identifier: Apache-2.0
//! Whose data an existing file holds, and who may read it. Checked when a file is opened for
//! writing.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::failed;
use crate::PAGE_SIZE;
use crate::content::{Content, find_content};

/// The content of a file of `size` bytes; `None` if everything that was read is zero.
fn content(file: &File, size: u64) -> io::Result<Option<Content>> {
    let rounded = size.next_multiple_of(PAGE_SIZE as u64);
    let extent = |from| super::length::extent(file, from, rounded);
    find_content(
        rounded,
        |at, buf| read(file, size, at, buf),
        extent,
        |_, _| false,
    )
}

fn read(file: &File, size: u64, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    // Beyond the end, in the last page, all bytes are zero.
    buf.fill(0);
    let inside = size.saturating_sub(offset).min(buf.len() as u64);
    file.read_exact_at(&mut buf[..inside as usize], offset)
}

/// Refuses a file with foreign content: its first page is not the caller's, and not all of the file
/// is zero.
pub(super) fn refuse_foreign(
    file: &File,
    path: &Path,
    size: u64,
    ours: fn(&[u8]) -> bool,
) -> io::Result<()> {
    let unread = |error: io::Error| failed(path, "cannot read", &error);
    let mut head = [0; PAGE_SIZE];
    read(file, size, 0, &mut head).map_err(unread)?;
    if ours(&head) {
        return Ok(());
    }
    match content(file, size).map_err(unread)? {
        None => Ok(()),
        Some(content) => {
            let text = format!("{} holds {content}, which is not ours", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
    }
}

/// Takes other users' rights from a file of this user, because it will hold clients' data.
pub(super) fn make_private(file: &File, path: &Path) -> io::Result<()> {
    let meta = file
        .metadata()
        .map_err(|error| failed(path, "cannot look at", &error))?;
    // SAFETY: takes no memory, and can't fail.
    let me = unsafe { libc::geteuid() };
    if meta.mode() & 0o077 == 0 || meta.uid() != me {
        return Ok(());
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(meta.mode() & 0o700);
    match file.set_permissions(mode) {
        // Some file systems have one mode for all files.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        done => done.map_err(|error| failed(path, "cannot make private", &error)),
    }
}
