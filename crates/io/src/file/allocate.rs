// SPDX-License-Identifier: Apache-2.0
//! Blocks for all of a file, before they are needed: so no later write meets a full disk. Called when
//! a file is opened and when it grows.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Allocates the file's blocks, so that no later write meets a full disk. On failure the file is as it was before.
pub(super) fn preallocate(
    file: &File,
    path: &Path,
    size: u64,
    asked: u64,
    made: bool,
) -> io::Result<()> {
    let left = super::durable::space_left(path);
    let allocated = if lacks_blocks(file, asked) > left.unwrap_or(u64::MAX) {
        // Holes of a file that has the length already could not be told from what was written before, and would stay filled.
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
    loop {
        // SAFETY: takes no memory; the descriptor is open. Mode 0 allocates and extends, and leaves what is written alone.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, asked as libc::off_t) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) => return write_zeros(file, size, asked),
            _ => return Err(error),
        }
    }
}

/// Bytes that the first `asked` bytes of a file lack at least.
fn lacks_blocks(file: &File, asked: u64) -> u64 {
    let has = file.metadata().map_or(asked, |meta| meta.blocks() * 512);
    asked.saturating_sub(has)
}

/// Allocates on a file system that cannot preallocate: by writing what the file lacks.
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
