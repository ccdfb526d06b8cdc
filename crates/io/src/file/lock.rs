// SPDX-License-Identifier: Apache-2.0
//! One user at a time, who is named to the next.
//!
//! Two locks on different bytes of the file. The one that excludes belongs to the open file (an OFD lock): a second open fails also
//! within one process, and nothing but the last close, or the process's death, lets it go. But the kernel does not
//! tell who holds such a lock; so the process also takes a classic record lock on the next byte, which
//! excludes nobody here and answers with its holder's pid. Should that one get lost (any close of the file
//! in the holding process drops it), only the name is lost with it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const EXCLUDE: libc::off_t = 0;
const NAME: libc::off_t = 1;

fn one_byte(at: libc::off_t) -> libc::flock {
    // SAFETY: zeros are a valid value of this structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at;
    lock.l_len = 1;
    lock
}

fn control(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the kernel reads and writes only `lock`; the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes the exclusive lock; the error's text continues "flash file PATH ...".
pub(super) fn take(file: &File) -> io::Result<()> {
    match control(file, libc::F_OFD_SETLK, &mut one_byte(EXCLUDE)) {
        Ok(()) => {
            // Without the name lock the exclusion still holds.
            let _ = control(file, libc::F_SETLK, &mut one_byte(NAME));
            Ok(())
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            let mut name = one_byte(NAME);
            let known = control(file, libc::F_GETLK, &mut name).is_ok()
                && name.l_type != libc::F_UNLCK as libc::c_short
                && name.l_pid > 0;
            let text = if known {
                format!("is in use by process {}", name.l_pid)
            } else {
                format!("is in use already (this is process {})", std::process::id())
            };
            Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
        }
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("cannot be locked: {error}"),
        )),
    }
}
