// SPDX-License-Identifier: Apache-2.0
//! Locks a file for one writer or several readers at a time, and tells others who holds it.
//!
//! It uses two locks on different bytes of the file. Both belong to an open file, not to the
//! process (OFD locks), so other code of the process may open and close the same file.
//!
//! The first lock excludes. It belongs to the open file that is read and written. A ring in which
//! that file is registered keeps it open. After the process has died, the kernel removes the ring
//! in the background. So this lock does not say whether its holder still lives.
//!
//! The second lock says that. It belongs to a further open file, the [`Sign`], which no ring knows,
//! so it ends with the process. The number of the locked byte is the number of the process, because
//! the kernel does not say who holds such a lock.
//!
//! A process that finds the first lock taken looks for the second one. If it is there, a living
//! process holds the file, and the refusal comes after a moment. Otherwise the process waits: a
//! server that is restarted at once gets its file, but only after its predecessor's last writes
//! have ended.
//!
//! A process that opens a file only for reading takes the first lock as a read lock. Read locks
//! need no write permission, and exclude only writers.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const EXCLUDE: libc::off_t = 0;
/// The byte of [`lock_draft`].
const DRAFT: libc::off_t = 1;
/// The offset of the bytes of signs, far beyond the end of any file, and the number of them.
const SIGNS: libc::off_t = 1 << 60;
const MOST_SIGNS: libc::off_t = 1 << 32;

/// How long to wait for a lock whose holder is dead. Its last writes may be long on their way to a
/// busy disk.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a sign must stay before it counts: longer than a fork takes to become another program.
const GRACE: Duration = Duration::from_millis(50);

/// How a process holds a file.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// For writing.
    Alone,
    /// For reading, this many times.
    Shared(u32),
}

/// The open files of this process.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Files with a lock, by device and inode: a file that this process holds is refused without
    /// waiting.
    held: BTreeMap<(u64, u64), Use>,
    /// Descriptors of all files, with or without a lock.
    open: Vec<RawFd>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    held: BTreeMap::new(),
    open: Vec::new(),
});

/// The list of open files, while the guard exists.
pub(super) fn books() -> MutexGuard<'static, Books> {
    // The list is consistent even if a thread panicked while it held the lock.
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    /// In the child of a fork: open and locked files are the parent's.
    pub(super) fn leave(&mut self, mut replace: impl FnMut(RawFd)) {
        self.held.clear();
        self.open.drain(..).for_each(&mut replace);
    }
}

/// Adds an opened descriptor.
pub(super) fn opened(fd: RawFd) {
    books().open.push(fd);
}

/// Removes a descriptor that is about to be closed.
pub(super) fn closing(fd: RawFd) {
    let open = &mut books().open;
    if let Some(nth) = open.iter().position(|open| *open == fd) {
        open.swap_remove(nth);
    }
}

/// An open file that the child of a fork does not keep, so a lock on it ends with this process.
#[derive(Debug)]
pub(crate) struct Unshared(File);

impl Unshared {
    pub(crate) fn new(file: File) -> Unshared {
        opened(file.as_raw_fd());
        Unshared(file)
    }

    pub(crate) fn get(&self) -> &File {
        &self.0
    }
}

impl Drop for Unshared {
    fn drop(&mut self) {
        closing(self.0.as_raw_fd());
    }
}

/// Shows others, as long as it exists, that this process lives and holds the file.
#[derive(Debug)]
pub(super) struct Sign(#[allow(dead_code)] Unshared);

impl Sign {
    /// `None` without `/proc`: then a refused process waits before it reports the refusal.
    pub(super) fn of(file: &File) -> Option<Sign> {
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut how = OpenOptions::new();
        let again = how.read(true).custom_flags(libc::O_NONBLOCK).open(again);
        let again = Unshared::new(again.ok()?);
        let number = SIGNS + libc::off_t::from(std::process::id());
        control(&again.0, libc::F_OFD_SETLK, &mut one_byte(number, true)).ok()?;
        Some(Sign(again))
    }
}

/// The process whose sign a file has.
fn signed(file: &File) -> Option<libc::off_t> {
    let mut lock = one_byte(SIGNS, false);
    lock.l_len = MOST_SIGNS;
    control(file, libc::F_OFD_GETLK, &mut lock).ok()?;
    (lock.l_type != libc::F_UNLCK as libc::c_short).then(|| lock.l_start - SIGNS)
}

/// Locks a file that this process writes under a draft's name; false if another open file has it
/// locked.
pub(crate) fn lock_draft(file: &File) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, &mut one_byte(DRAFT, false)) {
        Ok(()) => Ok(true),
        Err(error) if is_taken(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Ends the lock of [`lock_draft`], even if a child of this process has the file open too.
pub(crate) fn unlock_draft(file: &File) {
    let mut lock = one_byte(DRAFT, false);
    lock.l_type = libc::F_UNLCK as libc::c_short;
    // Without a lock, or after a fork, there is nothing to end.
    let _ = control(file, libc::F_OFD_SETLK, &mut lock);
}

/// The lock, held until it is dropped together with the file.
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

/// Adds one more use of a file, if it is compatible with the existing ones.
fn enter(held: &mut BTreeMap<(u64, u64), Use>, file: (u64, u64), shared: bool) -> bool {
    match held.get_mut(&file) {
        Some(Use::Shared(times)) if shared => *times += 1,
        Some(_) => return false,
        None => {
            let first = if shared { Use::Shared(1) } else { Use::Alone };
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

fn control(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the kernel reads and writes only `lock`; the descriptor is open.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether another open file has the lock.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

fn in_use(by: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("is in use by {by}"))
}

fn in_use_here() -> io::Error {
    in_use(&format!("this process ({}) already", std::process::id()))
}

/// Refuses a file that this process holds, unless both uses only read it. It is called before the
/// file is opened, because a held block device cannot be opened again. The error's text continues
/// "flash file PATH ...".
pub(super) fn check_own(meta: &Metadata, shared: bool) -> io::Result<()> {
    match books().held.get(&(meta.dev(), meta.ino())).copied() {
        None => Ok(()),
        Some(Use::Shared(_)) if shared => Ok(()),
        Some(_) => Err(in_use_here()),
    }
}

/// Whether a busy block device may be that of a killed process: no living process is known to hold
/// it, and it is not mounted. The kernel removes a dead process's lock before it gives the device
/// up, and writes out what is left in between.
pub(super) fn may_be_left_behind(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    signed(&file).is_none() && file.metadata().is_ok_and(|meta| !is_mounted(meta.rdev()))
}

/// Whether a file system on this device is mounted where this process sees it.
fn is_mounted(device: u64) -> bool {
    mount_of(&number_of(device)).is_some()
}

/// A device's number as the kernel's tables have it.
fn number_of(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

/// The folder where a device is mounted.
fn mount_of(number: &str) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut found = mounts.lines().map(|line| line.split(' '));
    let mut mount = found.find(|fields| fields.clone().nth(2) == Some(number))?;
    mount.nth(4).map(str::to_owned)
}

/// What has a busy block device, as far as the system tells. It continues the sentence "block
/// device PATH ...".
pub(super) fn device_user(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    if let Some(holder) = signed(&file) {
        return Some(format!("is in use by process {holder}"));
    }
    let system = Path::new("/sys/dev/block").join(number_of(file.metadata().ok()?.rdev()));
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    };
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    // The device, and its partitions.
    let parts = names(&system).into_iter().map(|part| system.join(part));
    for part in std::iter::once(system.clone()).chain(parts) {
        let Ok(number) = std::fs::read_to_string(part.join("dev")) else {
            continue;
        };
        let called = std::fs::canonicalize(&part).ok();
        let called = called.as_deref().and_then(Path::file_name)?.to_str()?;
        let what = match part == system {
            true => "is".to_owned(),
            false => format!("has the partition {called}, which is"),
        };
        if let Some(folder) = mount_of(number.trim()) {
            return Some(format!("{what} mounted at {folder}"));
        }
        let device = format!("/dev/{called}");
        if swaps
            .lines()
            .any(|line| line.split_whitespace().next() == Some(&device))
        {
            return Some(format!("{what} swap space"));
        }
        if let Some(holder) = names(&part.join("holders")).first() {
            return Some(format!("{what} a part of /dev/{holder}"));
        }
    }
    None
}

/// Takes the lock, exclusive or shared by readers. The error's text continues "flash file PATH
/// ...".
pub(super) fn take(file: &File, shared: bool) -> io::Result<HeldLock> {
    let unlockable =
        |error: io::Error| super::told::told(format!("cannot be locked: {error}"), &error);
    let meta = file.metadata().map_err(unlockable)?;
    let this = (meta.dev(), meta.ino());
    if !enter(&mut books().held, this, shared) {
        return Err(in_use_here());
    }
    // From here on, a failure drops this, which removes the file from the list again.
    let held = HeldLock {
        file: this,
        forks: super::fork_count::forks(),
    };
    let started = Instant::now();
    loop {
        match control(file, libc::F_OFD_SETLK, &mut one_byte(EXCLUDE, shared)) {
            Ok(()) => return Ok(held),
            Err(error) if is_taken(&error) => {}
            Err(error) => return Err(unlockable(error)),
        }
        // This process does not hold the file. If its own sign is there, or another's for a moment,
        // a forked child has both locks until it becomes another program.
        let holder = signed(file).filter(|holder| *holder != std::process::id().into());
        if let Some(holder) = holder
            && started.elapsed() > GRACE
        {
            return Err(in_use(&format!("process {holder}")));
        }
        if started.elapsed() > PATIENCE {
            return Err(in_use("another process"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A file that is not a [`super::FlashFile`], and its lock: nobody else uses it meanwhile.
#[derive(Debug)]
pub(crate) struct Claim {
    _sign: Option<Sign>,
    /// `None` if it is no regular file, which has no lock. Dropped before the file is closed.
    held: Option<HeldLock>,
    file: Unshared,
}

impl Claim {
    /// Opens what the path names for writing, without changing it, and takes its lock.
    ///
    /// # Errors
    /// The error of `open`, or a sentence with the path and the process that uses the file.
    pub(crate) fn of(path: &Path, open: impl Fn() -> io::Result<File>) -> io::Result<Claim> {
        loop {
            let claim = Claim::once(path, &open)?;
            if claim.held.is_none() || super::owner::is_at(claim.file(), path) {
                return Ok(claim);
            }
        }
    }

    fn once(path: &Path, open: impl Fn() -> io::Result<File>) -> io::Result<Claim> {
        let used =
            |error: io::Error| super::told::told(format!("{} {error}", path.display()), &error);
        if let Ok(meta) = std::fs::metadata(path) {
            check_own(&meta, false).map_err(used)?;
        }
        let file = Unshared::new(open()?);
        let held = match file.get().metadata()?.is_file() {
            true => Some(take(file.get(), false).map_err(used)?),
            false => None,
        };
        let _sign = held.as_ref().and_then(|_| Sign::of(file.get()));
        Ok(Claim { file, _sign, held })
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        self.file.get()
    }
}

/// The offset of the bytes whose locks are pins: far beyond the end of any file.
const PINS: libc::off_t = 1 << 61;

/// Locks byte `number` of that range for reading. The lock belongs to the open file, so a killed
/// process keeps no pin.
pub(super) fn pin(file: &File, number: u64) -> io::Result<()> {
    let mut lock = one_byte(PINS + number as libc::off_t, true);
    control(file, libc::F_OFD_SETLK, &mut lock)
}

/// The lowest number below `below` that another open file has pinned.
pub(super) fn oldest_pin(file: &File, below: u64) -> Option<u64> {
    let (mut below, mut lowest) = (below, None);
    // The kernel returns any lock in the range, so the search continues below the one found.
    while below > 0 {
        let mut lock = one_byte(PINS, false);
        lock.l_len = below as libc::off_t;
        if control(file, libc::F_OFD_GETLK, &mut lock).is_err() {
            // If pins cannot be queried, one may exist.
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
