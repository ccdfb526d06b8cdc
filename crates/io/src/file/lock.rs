// SPDX-License-Identifier: Apache-2.0
//! One writer or some readers at a time, who are named to the next.
//!
//! Two locks on different bytes of the file. The exclusive lock belongs to the open file (an OFD
//! lock): only the file's last close or the process's death releases it. But the kernel does not
//! tell who holds such a lock. So the process also takes a classic record lock on the next byte.
//! That lock excludes no process, and tells its holder's pid. Any close of the file in the holding
//! process drops this lock. After a close by this crate, it takes the lock again. After a close by
//! others only the name is lost, and a refused process waits before it reports the refusal.
//!
//! A process that opens a file to read it takes both locks as read locks. These need no right to
//! write, and exclude only writers.
//!
//! A ring in which the file is registered keeps it open, and the first lock held. The kernel takes
//! the ring apart in the background after the process has died. So a process waits for a lock
//! without a living holder. A server that is started again at once gets its file, and only when no
//! write of its predecessor can still land.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const EXCLUDE: libc::off_t = 0;
const NAME: libc::off_t = 1;

/// How long to wait for a lock whose holder is dead.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How a process holds a file.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// To write, by this descriptor.
    Alone(Option<RawFd>),
    /// To read, that many times.
    Shared(u32),
}

/// What this process has open.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Files with a lock, by device and inode: a record lock does not tell its own process.
    held: BTreeMap<(u64, u64), Use>,
    /// Descriptors of all files, with a lock or without.
    open: Vec<RawFd>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    held: BTreeMap::new(),
    open: Vec::new(),
});

/// The books, for as long as the guard lives.
pub(super) fn books() -> MutexGuard<'static, Books> {
    // They are whole even if a thread panicked with the lock in hand.
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    /// In the child of a fork: what is open and locked is the parent's.
    pub(super) fn leave(&mut self, mut replace: impl FnMut(RawFd)) {
        self.held.clear();
        self.open.drain(..).for_each(&mut replace);
    }
}

/// Enters a descriptor that was opened.
pub(super) fn opened(fd: RawFd) {
    books().open.push(fd);
}

/// Takes a descriptor off that is about to be closed.
pub(super) fn closing(fd: RawFd) {
    let mut books = books();
    if let Some(nth) = books.open.iter().position(|open| *open == fd) {
        books.open.swap_remove(nth);
    }
    for used in books.held.values_mut() {
        if matches!(used, Use::Alone(Some(alone)) if *alone == fd) {
            *used = Use::Alone(None);
        }
    }
}

/// Dropped behind a file that was closed: if this process has it open to write elsewhere, the close
/// has taken the name.
#[derive(Debug)]
pub(super) struct NameAgain {
    file: (u64, u64),
    forks: u32,
}

impl NameAgain {
    pub(super) fn of(meta: &Metadata) -> NameAgain {
        NameAgain {
            file: (meta.dev(), meta.ino()),
            forks: super::fork_count::forks(),
        }
    }
}

impl Drop for NameAgain {
    fn drop(&mut self) {
        if self.forks == super::fork_count::forks()
            && let Some(Use::Alone(Some(fd))) = books().held.get(&self.file)
        {
            let _ = control(*fd, libc::F_SETLK, &mut one_byte(NAME, false));
        }
    }
}

/// The lock, until it is dropped together with the file.
#[derive(Debug)]
pub(super) struct HeldLock {
    file: (u64, u64),
    forks: u32,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if self.forks != super::fork_count::forks() {
            return; // it was the parent's
        }
        let held = &mut books().held;
        match held.get_mut(&self.file) {
            Some(Use::Shared(times)) if *times > 1 => *times -= 1,
            _ => drop(held.remove(&self.file)),
        }
    }
}

/// Enters one more use of a file, if it goes together with those that there are.
fn enter(held: &mut BTreeMap<(u64, u64), Use>, file: (u64, u64), fd: RawFd, shared: bool) -> bool {
    match held.get_mut(&file) {
        Some(Use::Shared(times)) if shared => *times += 1,
        Some(_) => return false,
        None => {
            let first = if shared {
                Use::Shared(1)
            } else {
                Use::Alone(Some(fd))
            };
            held.insert(file, first);
        }
    }
    true
}

fn one_byte(at: libc::off_t, shared: bool) -> libc::flock {
    // SAFETY: zeros are a valid value of this structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at;
    lock.l_len = 1;
    lock
}

fn control(fd: RawFd, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the kernel reads and writes only `lock`; the descriptor is open.
    if unsafe { libc::fcntl(fd, command, &raw mut *lock) } < 0 {
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

/// Refuses a file that this process holds, unless it is only read here and there. Asked before the
/// file is opened, because closing it again would drop the record lock that names this process. The
/// error's text continues "flash file PATH ...".
pub(super) fn check_own(meta: &Metadata, shared: bool) -> io::Result<()> {
    match books().held.get(&(meta.dev(), meta.ino())).copied() {
        None => Ok(()),
        Some(Use::Shared(_)) if shared => Ok(()),
        Some(_) => Err(in_use_here()),
    }
}

/// Whether a file is locked and no living process says that it is the one.
pub(super) fn is_left_behind(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let locked = |command, at| {
        let mut lock = one_byte(at, false);
        let asked = control(file.as_raw_fd(), command, &mut lock).is_ok();
        asked.then_some(lock.l_type != libc::F_UNLCK as libc::c_short)
    };
    locked(libc::F_OFD_GETLK, EXCLUDE) == Some(true) && locked(libc::F_GETLK, NAME) == Some(false)
}

/// Takes the lock, the exclusive one or one that readers share; the error's text continues "flash
/// file PATH ...".
pub(super) fn take(file: &File, shared: bool) -> io::Result<HeldLock> {
    let unlockable =
        |error: io::Error| super::told::told(format!("cannot be locked: {error}"), &error);
    let meta = file.metadata().map_err(unlockable)?;
    let this = (meta.dev(), meta.ino());
    if !enter(&mut books().held, this, file.as_raw_fd(), shared) {
        return Err(in_use_here());
    }
    // From here on a failure takes the file off the list again, by dropping this.
    let held = HeldLock {
        file: this,
        forks: super::fork_count::forks(),
    };
    let started = Instant::now();
    loop {
        match control(
            file.as_raw_fd(),
            libc::F_OFD_SETLK,
            &mut one_byte(EXCLUDE, shared),
        ) {
            Ok(()) => {
                // Without the name lock the exclusion still holds.
                let _ = control(file.as_raw_fd(), libc::F_SETLK, &mut one_byte(NAME, shared));
                return Ok(held);
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {}
            Err(error) => return Err(unlockable(error)),
        }
        let mut name = one_byte(NAME, shared);
        let known = control(file.as_raw_fd(), libc::F_GETLK, &mut name).is_ok()
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

/// Where the bytes begin whose locks are pins: far beyond the end of any file.
const PINS: libc::off_t = 1 << 61;

/// Locks the byte of number `number` for reading. The lock goes with the open file, so a killed
/// process keeps no pin.
pub(super) fn pin(file: &File, number: u64) -> io::Result<()> {
    let mut lock = one_byte(PINS + number as libc::off_t, true);
    control(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock)
}

/// The lowest number below `below` that another open file has pinned.
pub(super) fn oldest_pin(file: &File, below: u64) -> Option<u64> {
    let (mut below, mut lowest) = (below, None);
    // The kernel tells any lock of the range, so the search continues below what it found.
    while below > 0 {
        let mut lock = one_byte(PINS, false);
        lock.l_len = below as libc::off_t;
        if control(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock).is_err() {
            // A pin that cannot be looked for may be there.
            return Some(lowest.unwrap_or(0));
        }
        if lock.l_type == libc::F_UNLCK as libc::c_short {
            break;
        }
        below = (lock.l_start - PINS).max(0) as u64;
        lowest = Some(below);
    }
    lowest
}
