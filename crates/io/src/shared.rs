// SPDX-License-Identifier: Apache-2.0
//! Memory that outlives the process: files on tmpfs, mapped by their owner.
//!
//! The memory survives a kill of the process: the next one that maps the file finds it. It
//! disappears when the machine stops, because the kernel never writes it to a device.
//! [`SharedFile::map`] returns it as an [`AlignedBuf`], plain memory of one owner.
//! [`AlignedBuf::set_word`] stores single words in order. [`Words`] is a table of words that
//! several threads may use.
//!
//! Always holds: a reader finds a stored word complete, and also all words that the same thread
//! stored before it. A killed thread ends between two instructions, and its stores are then in the
//! machine's memory. So only the order of the stores matters: they are release stores, and a
//! compiler moves no earlier store past them.

use std::ffi::CString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::observe::observed;
use crate::{AlignedBuf, PAGE_SIZE};

/// A file whose pages are memory.
#[derive(Debug)]
pub struct SharedFile {
    path: PathBuf,
    file: File,
}

impl SharedFile {
    /// Opens an existing file; `None` if it does not exist.
    ///
    /// # Errors
    /// One sentence with the path, also if the file belongs to another user or is not a regular
    /// file.
    pub fn open(path: &Path) -> io::Result<Option<SharedFile>> {
        let file = match how().open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(path, &error)),
        };
        let meta = file.metadata().map_err(|error| named(path, &error))?;
        // SAFETY: the call reads nothing but the process's own user.
        let me = unsafe { libc::geteuid() };
        if !meta.is_file() || meta.uid() != me {
            let text = format!(
                "{} is not a file of this user; remove it or use another data directory",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Some(SharedFile {
            path: path.to_owned(),
            file,
        }))
    }

    /// Makes an empty file; replaces an existing one.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn create(path: &Path) -> io::Result<SharedFile> {
        SharedFile::remove(path)?;
        let file = how()
            .create_new(true)
            .open(path)
            .map_err(|error| named(path, &error))?;
        Ok(SharedFile {
            path: path.to_owned(),
            file,
        })
    }

    /// Makes a folder that only this user can read, unless it exists already. False: the name is
    /// used for something else, which may belong to another user.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn make_folder(path: &Path) -> io::Result<bool> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(own_folder(path)),
            Err(error) => Err(named(path, &error)),
        }
    }

    /// Whether there is such a folder ([`SharedFile::make_folder`]).
    pub fn has_folder(path: &Path) -> bool {
        own_folder(path)
    }

    /// Removes a file if it exists.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn remove(path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(path, &error)),
            _ => Ok(()),
        }
    }

    /// Bytes that files in a folder may still use.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn free_bytes(folder: &Path) -> io::Result<u64> {
        let path = CString::new(folder.as_os_str().as_bytes())
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: zeros are a valid value of this structure.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the call reads a string that ends with a zero and writes only `stat`.
        if unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } != 0 {
            return Err(named(folder, &io::Error::last_os_error()));
        }
        Ok(stat.f_bavail as u64 * stat.f_frsize as u64)
    }

    /// Locks the file for this process until its memory is dropped.
    ///
    /// # Errors
    /// One sentence with the path, if another process has it.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: the call only locks a file that is open.
        if unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let text = format!(
            "{} is in use by another server: it may have a copy of the same data directory",
            self.path.display()
        );
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    }

    /// The number of whole pages in the file.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn pages(&self) -> io::Result<usize> {
        let meta = self
            .file
            .metadata()
            .map_err(|error| named(&self.path, &error))?;
        Ok((meta.len() / PAGE_SIZE as u64) as usize)
    }

    /// The file's memory. The file grows to `pages` pages if it has fewer, and is mapped as a
    /// whole.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn map(self, pages: usize) -> io::Result<AlignedBuf> {
        let have = self.pages()?;
        if have < pages {
            self.file
                .set_len((pages * PAGE_SIZE) as u64)
                .map_err(|error| named(&self.path, &error))?;
        }
        AlignedBuf::map(have.max(pages), Some(self.file)).map_err(|error| named(&self.path, &error))
    }

    /// The file's memory as a table of at least `words` words; all of it is allocated.
    ///
    /// # Errors
    /// One sentence with the path.
    pub fn words(self, words: usize) -> io::Result<Words> {
        let path = self.path.clone();
        let mut map = self.map((words * 8).div_ceil(PAGE_SIZE))?;
        let pages = map.pages();
        if !map.commit(0, pages) {
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(named(&path, &full));
        }
        Ok(Words { map })
    }
}

/// Whether this is a folder of this user that is closed to all others. In a folder with the sticky
/// bit, such as `/dev/shm`, no other user can replace it.
fn own_folder(path: &Path) -> bool {
    // SAFETY: the call reads nothing but the process's own user.
    let me = unsafe { libc::geteuid() };
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == me && meta.mode() & 0o077 == 0)
}

fn how() -> OpenOptions {
    let mut how = OpenOptions::new();
    how.read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    how
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot use {} as shared memory: {error}", path.display()),
    )
}

/// A table of 8-byte words, in anonymous memory or in a file's. Any thread may use it.
#[derive(Debug)]
pub struct Words {
    /// Used only through atomics; no slice of it is ever made.
    map: AlignedBuf,
}

impl Words {
    /// Zeroed words in anonymous memory.
    pub fn anonymous(words: usize) -> io::Result<Words> {
        let map = AlignedBuf::try_new((words * 8).div_ceil(PAGE_SIZE))?;
        Ok(Words { map })
    }

    /// The number of words.
    pub fn count(&self) -> usize {
        self.map.pages() * PAGE_SIZE / 8
    }

    fn word(&self, n: usize) -> &AtomicU64 {
        assert!(n < self.count(), "a word of the table");
        // SAFETY: the word lies within the mapping, is aligned, lives as long as `self`, and is
        // only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.map.start().add(n * 8).cast()) }
    }

    /// Word `n`.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn get(&self, n: usize) -> u64 {
        u64::from_le(self.word(n).load(Ordering::Acquire))
    }

    /// Stores word `n`, after everything that this thread stored before.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn set(&self, n: usize, value: u64) {
        observed();
        self.word(n).store(value.to_le(), Ordering::Release);
    }
}
