// SPDX-License-Identifier: Apache-2.0
//! What matters about a file system before large files are written to it.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `f_type` of a tmpfs and of a ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Whether it is in memory.
    pub in_memory: bool,
    /// Bytes that an ordinary user may still write.
    pub free: u64,
}

impl FileSystem {
    /// The file system of `path`.
    ///
    /// # Errors
    /// If there is no such path.
    pub fn of(path: &Path) -> io::Result<FileSystem> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: `statfs` is a struct of integers, for which zeros are valid; the call reads the
        // name and fills the struct.
        let stat = unsafe {
            let mut stat: libc::statfs = std::mem::zeroed();
            if libc::statfs(name.as_ptr(), &mut stat) != 0 {
                return Err(io::Error::last_os_error());
            }
            stat
        };
        Ok(FileSystem {
            in_memory: IN_MEMORY.contains(&(stat.f_type as u64)),
            free: stat.f_bavail.saturating_mul(stat.f_bsize as u64),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_disks() {
        assert!(FileSystem::of(Path::new("/")).unwrap().free > 0);
        assert!(FileSystem::of(Path::new("/no/such/folder")).is_err());
        if Path::new("/dev/shm").is_dir() {
            assert!(FileSystem::of(Path::new("/dev/shm")).unwrap().in_memory);
        }
    }
}
