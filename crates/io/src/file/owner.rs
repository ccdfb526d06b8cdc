// SPDX-License-Identifier: Apache-2.0
//! Whose data an existing file holds, and who may read it: checked when a file is opened for
//! writing. The owner and the rights of a file that replaces another. The mark of unfinished files.

use std::ffi::CStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::{FlashFile, failed};
use crate::PAGE_SIZE;
use crate::content::{Content, find_content};

/// A file, whatever its name: device and inode.
pub type FileId = (u64, u64);

/// The file that was looked at.
pub(crate) fn id_of(meta: &Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

/// Whether the path names this open file. While a lock was awaited, whoever had it may have put
/// another file in its place, or removed it.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(here), Ok(there)) => id_of(&here) == id_of(&there),
        _ => false,
    }
}

impl FlashFile {
    /// Device and inode: what was opened, whatever has its name by now.
    ///
    /// # Errors
    /// The system's error.
    pub fn id(&self) -> io::Result<FileId> {
        Ok(id_of(&self.file.metadata()?))
    }
}

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

/// The most bytes of all names of extended attributes, and of one value (Linux, `XATTR_LIST_MAX`).
const MOST_ATTRIBUTE: usize = 64 << 10;

/// Marks a file that does not have its final name yet.
const UNFINISHED: &CStr = c"user.senko.unfinished";

/// Gives a new file the owner, the group, the rights and the extended attributes of `of`, which it
/// will replace. Among the attributes are the access lists.
pub(crate) fn take_after(file: &File, of: &File) -> io::Result<()> {
    let (old, new) = (of.metadata()?, file.metadata()?);
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    // A change of the owner may take rights away, and an access list contains the group's.
    file.set_permissions(old.permissions())?;
    let mut names = vec![0; MOST_ATTRIBUTE];
    // SAFETY: the kernel writes at most this many bytes.
    let bytes = unsafe { libc::flistxattr(of.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
    let mut names = &names[..usize::try_from(bytes).unwrap_or(0)];
    while let Ok(name) = CStr::from_bytes_until_nul(names) {
        names = &names[name.count_bytes() + 1..];
        if name == UNFINISHED {
            continue;
        }
        let Some(value) = attribute(of, name) else {
            continue;
        };
        match set_attribute(file, name, &value) {
            Err(error) if is_users(name) && error.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                return Err(error);
            }
            // The system gives the others to new files itself, or allows only root to.
            _ => {}
        }
    }
    Ok(())
}

/// Whether users set such attributes: their own, and access lists.
fn is_users(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"user.") || name.starts_with(b"system.")
}

pub(crate) fn attribute(file: &File, name: &CStr) -> Option<Vec<u8>> {
    let mut value = vec![0; MOST_ATTRIBUTE];
    // SAFETY: the name ends with a zero byte, and the kernel writes at most this many bytes.
    let bytes = unsafe {
        let to = value.as_mut_ptr().cast();
        libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), to, value.len())
    };
    value.truncate(usize::try_from(bytes).ok()?);
    Some(value)
}

pub(crate) fn set_attribute(file: &File, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the name ends with a zero byte, and the kernel only reads both.
    let done = unsafe {
        let from = value.as_ptr().cast();
        libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), from, value.len(), 0)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Marks a file as unfinished. Some file systems have no such marks.
pub(crate) fn mark(file: &File) {
    let _ = set_attribute(file, UNFINISHED, b"1");
}

pub(crate) fn is_marked(file: &File) -> bool {
    attribute(file, UNFINISHED).is_some()
}

/// Takes the mark away. One that stays does no harm: it counts only on a file with a draft's name.
pub(crate) fn unmark(file: &File) {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::fremovexattr(file.as_raw_fd(), UNFINISHED.as_ptr()) };
}
