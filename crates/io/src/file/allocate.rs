// SPDX-License-Identifier: Apache-2.0
//! Allocates all blocks of a file in advance, so that no later write meets a full disk. Called when
//! a file is opened and when it grows.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::IoError;

/// Allocates the file's blocks, so that no later write meets a full disk. On failure the file is
/// unchanged.
pub(super) fn preallocate(
    file: &File,
    path: &Path,
    size: u64,
    asked: u64,
    made: bool,
) -> io::Result<()> {
    let left = space_left(file);
    let allocated = if lacks_blocks(file, asked) > left.unwrap_or(u64::MAX) {
        // If the file already has the length, filled holes could not be told from written parts,
        // and would stay filled.
        Err(io::Error::from_raw_os_error(libc::ENOSPC))
    } else {
        allocate(file, size, asked)
    };
    let Err(error) = allocated else { return Ok(()) };
    let _ = file.set_len(size);
    if made {
        let _ = std::fs::remove_file(path);
    }
    let text = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            let left = left.map_or(String::new(), |left| format!(": {left} are left there"));
            format!("no space for {} of {asked} bytes{left}", path.display())
        }
        Some(libc::EFBIG) => {
            let limit = "a file may not be that large here (file system, or ulimit -f)";
            format!("cannot make {} of {asked} bytes: {limit}", path.display())
        }
        _ => return Err(super::failed(path, "cannot allocate", &error)),
    };
    Err(super::told::told(text, &error))
}

/// Allocates the first `asked` bytes of a file of `size` bytes.
fn allocate(file: &File, size: u64, asked: u64) -> io::Result<()> {
    match fill(file, 0, asked) {
        Err(IoError::Os(libc::EOPNOTSUPP)) => write_zeros(file, size, asked),
        done => done.map_err(io::Error::from),
    }
}

/// Extends a file to `asked` bytes, with blocks for the new part and for `owned`, the last part of
/// the old length. Earlier holes stay holes. On failure the file has its old length.
pub(super) fn extend(file: &File, owned: std::ops::Range<u64>, asked: u64) -> Result<(), IoError> {
    let size = owned.end;
    let left = space_left(file).unwrap_or(u64::MAX);
    if asked.saturating_sub(size) > left {
        return Err(IoError::Os(libc::ENOSPC));
    }
    let done = match fill(file, owned.start, asked - owned.start) {
        Err(IoError::Os(libc::EOPNOTSUPP)) => write_zeros(file, size, asked).map_err(IoError::of),
        done => done,
    };
    if done.is_err() {
        let _ = file.set_len(size);
    }
    done
}

/// Gets blocks for a part of a file; written data stays.
pub(super) fn fill(file: &File, offset: u64, bytes: u64) -> Result<(), IoError> {
    loop {
        // SAFETY: takes no memory; the descriptor is open. Mode 0 allocates, and leaves what is
        // written alone.
        let done = unsafe {
            libc::fallocate(
                file.as_raw_fd(),
                0,
                offset as libc::off_t,
                bytes as libc::off_t,
            )
        };
        if done == 0 {
            return Ok(());
        }
        match IoError::of(io::Error::last_os_error()) {
            IoError::Os(libc::EINTR) => {}
            IoError::Os(libc::EDQUOT) => return Err(IoError::Os(libc::ENOSPC)),
            error => return Err(error),
        }
    }
}

/// The least bytes that the first `asked` bytes of a file lack.
fn lacks_blocks(file: &File, asked: u64) -> u64 {
    let has = file.metadata().map_or(asked, |meta| meta.blocks() * 512);
    asked.saturating_sub(has)
}

/// Allocates on a file system that cannot preallocate, by writing the missing part.
fn write_zeros(file: &File, size: u64, asked: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let zeros = vec![0; 1 << 20];
    let mut at = size;
    while at < asked {
        let length = (asked - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..length as usize], at)?;
        at += length;
    }
    file.sync_data()
}

/// Bytes that this process may still allocate on the file system of a file, if the system knows.
pub(super) fn space_left(file: &File) -> Option<u64> {
    // SAFETY: zeros are a valid value, and the kernel writes only this structure, which lives on
    // this stack.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open; the kernel writes only the structure.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &mut stats) } != 0 {
        return None;
    }
    // SAFETY: takes no memory, and can't fail. Reserved blocks are root's.
    let blocks = match unsafe { libc::geteuid() } {
        0 => stats.f_bfree,
        _ => stats.f_bavail,
    };
    Some(blocks * stats.f_frsize)
}
