// SPDX-License-Identifier: Apache-2.0
//! Tests whether O_DIRECT works here with page alignment.
//!
//! It asks three questions. Does the file system accept the flag? Does it require a coarser
//! alignment than a page (statx tells since Linux 6.1)? Does a read of the first page succeed?

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::{AlignedBuf, PAGE_SIZE};

/// Turns O_DIRECT on; false, with the flag off, if it does not work with page alignment.
pub(super) fn enable(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: takes no memory; the descriptor is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || coarser_than_page(file) {
        return false;
    }
    // SAFETY: as above.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_DIRECT) } < 0 {
        return false;
    }
    let mut page = AlignedBuf::new(1);
    // SAFETY: the buffer has one page.
    let got = unsafe { libc::pread(fd, page.as_mut_ptr().cast(), PAGE_SIZE, 0) };
    if got < 0 {
        // SAFETY: as above.
        unsafe { libc::fcntl(fd, libc::F_SETFL, flags) };
        return false;
    }
    true
}

/// Whether the file system requires more than page alignment, or can't do direct transfers at all.
fn coarser_than_page(file: &File) -> bool {
    // SAFETY: zeros are a valid value, and the kernel writes only this structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty string that ends with a zero byte, so the descriptor itself is
    // looked at.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut found,
        )
    };
    if result != 0 || found.stx_mask & libc::STATX_DIOALIGN == 0 {
        return false; // The kernel does not say, so a test read decides.
    }
    let fits = |alignment: u32| alignment != 0 && (PAGE_SIZE as u32).is_multiple_of(alignment);
    !fits(found.stx_dio_mem_align) || !fits(found.stx_dio_offset_align)
}

pub(super) fn device_size(file: &File) -> std::io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: the kernel writes 8 bytes to a variable on this stack.
    if unsafe { libc::ioctl(file.as_raw_fd(), super::BLKGETSIZE64, &raw mut bytes) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(bytes)
}
