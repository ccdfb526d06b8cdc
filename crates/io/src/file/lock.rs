// SPDX-License-Identifier: Apache-2.0
//! One user at a time, who is named to the next.
//!
//! Two locks on different bytes of the file. The one that excludes belongs to the open file (an OFD lock): nothing but the
//! file's last close, or the process's death, lets it go. But the kernel does not tell who holds such a lock; so the
//! process also takes a classic record lock on the next byte, which excludes nobody here and answers with its
//! holder's pid. Should that one get lost (any close of the file in the holding process drops it), only the name is lost.
//!
//! A ring in which the file is registered keeps it open, and the first lock held, until the kernel has taken the
//! ring apart, which goes on in the background after the process has died. So a lock without a living holder is waited for:
//! a server that is started again at once gets its file, and gets it only when no write of its predecessor can still land.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const EXCLUDE: libc::off_t = 0;
const NAME: libc::off_t = 1;

/// How long to wait for a lock whose holder is dead.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Files that this process holds, by device and inode: a record lock does not tell a process of its own.
static HELD: Mutex<Option<HashSet<(u64, u64)>>> = Mutex::new(None);

/// The lock, until it is dropped together with the file.
#[derive(Debug)]
pub(super) struct Held {
    file: (u64, u64),
}

impl Drop for Held {
    fn drop(&mut self) {
        with_held(|held| held.remove(&self.file));
    }
}

fn with_held<T>(work: impl FnOnce(&mut HashSet<(u64, u64)>) -> T) -> T {
    // The set is whole even if a thread panicked with the lock in hand.
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    work(held.get_or_insert_default())
}

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

fn in_use(by: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("is in use by {by}"))
}

fn in_use_here() -> io::Error {
    in_use(&format!("this process ({}) already", std::process::id()))
}

/// Refuses a file that this process holds. Asked before the file is opened, because closing it again would drop the
/// record lock that names this process. The error's text continues "flash file PATH ...".
pub(super) fn check_own(meta: &Metadata) -> io::Result<()> {
    if with_held(|held| held.contains(&(meta.dev(), meta.ino()))) {
        return Err(in_use_here());
    }
    Ok(())
}

/// Whether a file is locked and no living process says that it is the one.
pub(super) fn is_left_behind(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let locked = |command, at| {
        let mut lock = one_byte(at);
        let asked = control(&file, command, &mut lock).is_ok();
        asked.then_some(lock.l_type != libc::F_UNLCK as libc::c_short)
    };
    locked(libc::F_OFD_GETLK, EXCLUDE) == Some(true) && locked(libc::F_GETLK, NAME) == Some(false)
}

/// Takes the exclusive lock; the error's text continues "flash file PATH ...".
pub(super) fn take(file: &File) -> io::Result<Held> {
    let unlockable =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot be locked: {error}"));
    let meta = file.metadata().map_err(unlockable)?;
    let this = (meta.dev(), meta.ino());
    if !with_held(|held| held.insert(this)) {
        return Err(in_use_here());
    }
    // From here on a failure takes the file off the list again, by dropping this.
    let held = Held { file: this };
    let started = Instant::now();
    loop {
        match control(file, libc::F_OFD_SETLK, &mut one_byte(EXCLUDE)) {
            Ok(()) => {
                // Without the name lock the exclusion still holds.
                let _ = control(file, libc::F_SETLK, &mut one_byte(NAME));
                return Ok(held);
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {}
            Err(error) => return Err(unlockable(error)),
        }
        let mut name = one_byte(NAME);
        let known = control(file, libc::F_GETLK, &mut name).is_ok()
            && name.l_type != libc::F_UNLCK as libc::c_short
            && name.l_pid > 0;
        if known {
            return Err(in_use(&format!("process {}", name.l_pid)));
        }
        if started.elapsed() > PATIENCE {
            return Err(in_use("another process"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
