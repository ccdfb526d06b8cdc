// SPDX-License-Identifier: Apache-2.0
//! A handle of ndbm: the result of `dbm_open`. Called by `lib.rs`, which is the boundary to C.
//!
//! Programs use the result of a call in the next call: they delete the key of the last step, and
//! fetch its value before they continue. So keys and values have separate buffers, two of each
//! kind, used in turn. A result stays valid until the next call but one of the same kind.

use std::ffi::{OsStr, c_int};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use senko_dbm::{DbmError, Durability, Snapshot, Table};

use crate::failure::Failure;
use crate::store::{Access, Content, Store};
use crate::transaction::Open;

/// Two places in turn.
#[derive(Debug, Default)]
struct Given {
    bytes: [Vec<u8>; 2],
    turn: usize,
}

impl Given {
    fn put(&mut self, mut bytes: Vec<u8>) -> (*mut u8, usize) {
        let length = bytes.len();
        if length == 0 {
            // Some programs read the first byte even if the size is 0.
            bytes.push(0);
        }
        self.turn ^= 1;
        let place = &mut self.bytes[self.turn];
        *place = bytes;
        (place.as_mut_ptr(), length)
    }
}

/// The state of a handle.
pub struct Handle {
    /// `None` in a handle that is being closed.
    store: Option<Arc<Store>>,
    /// The descriptors of the opening, for the program's use. Another file may be in place by now.
    pag: Arc<File>,
    dir: File,
    read_only: bool,
    durability: Durability,
    pub failed: bool,
    keys: Given,
    values: Given,
    walk: Option<Walk>,
    transaction: Option<Open>,
}

/// A walk over the keys that the database had at its start. A program may store a further key for
/// each of them, and the walk still ends.
struct Walk {
    start: Start,
    /// The key that it returned last.
    at: Option<Vec<u8>>,
    /// Bytes of keys and values that were stored and deleted since.
    idle: usize,
}

/// The keys of a walk.
enum Start {
    /// Those of the table in this state. Keys that are deleted meanwhile are left out.
    State(Snapshot, Table),
    /// Those of now: the program had seemed to have left the walk.
    GivenUp,
    /// There are no more.
    Ended,
}

/// A walk that is left open holds the space of its state. So after this many bytes without a step
/// it gives the state up.
const MOST_IDLE: usize = 16 << 20;
/// What a record takes beside its key and its value, at least.
const MIN_RECORD: usize = 16;

/// The result of a get, or of a step of the walk.
pub type OwnedBytes = Option<(*mut u8, usize)>;

fn with_ending(name: &[u8], ending: &str) -> PathBuf {
    let mut path = OsStr::from_bytes(name).to_owned();
    path.push(ending);
    path.into()
}

impl Handle {
    /// Opens `NAME.pag` and `NAME.dir` like open(2).
    pub fn open(name: &[u8], flags: c_int, mode: u32) -> Result<Handle, Failure> {
        let read_only = flags & libc::O_ACCMODE == libc::O_RDONLY;
        let access = Access {
            writes: !read_only,
            create: flags & libc::O_CREAT != 0,
            truncate: flags & libc::O_TRUNC != 0,
            mode: mode & 0o777,
        };
        if name.is_empty() {
            return Err(Failure::new(libc::ENOENT, "the name is empty"));
        }
        if read_only && access.truncate {
            let text = "a database that is opened to be read cannot be emptied";
            return Err(Failure::new(libc::EINVAL, text));
        }
        let (pag, dir) = (with_ending(name, ".pag"), with_ending(name, ".dir"));
        let exclusive = access.create && flags & libc::O_EXCL != 0;
        if exclusive && pag.symlink_metadata().is_ok() {
            return Err(Failure::new(libc::EEXIST, "the .pag file is there already"));
        }
        let open_dir = |more: c_int| {
            OpenOptions::new()
                .read(true)
                .write(!read_only)
                .mode(access.mode)
                .custom_flags(libc::O_CLOEXEC | more | flags & libc::O_NOFOLLOW)
                .open(&dir)
        };
        // A .dir file is made only by a handle that has the database open: it may belong to a
        // process that makes the same database at this moment.
        let there = match open_dir(0) {
            Ok(_) if exclusive => {
                return Err(Failure::new(libc::EEXIST, "the .dir file is there already"));
            }
            Ok(there) => Some(there),
            Err(error) if access.create && error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let store = Store::open(&pag, access)?;
        let dir = match there {
            Some(there) => there,
            None => open_dir(libc::O_CREAT)?,
        };
        let synced = std::env::var_os("SENKO_NDBM_SYNC").is_some_and(|value| value == "1");
        Ok(Handle {
            pag: Arc::clone(&store.pag),
            store: Some(store),
            dir,
            read_only,
            durability: match synced {
                true => Durability::Synced,
                false => Durability::Buffered,
            },
            failed: false,
            keys: Given::default(),
            values: Given::default(),
            walk: None,
            transaction: None,
        })
    }

    /// Closes it. Its stores are durable then. An open transaction is aborted.
    pub fn close(mut self) -> Result<(), Failure> {
        let open = (self.transaction.take(), self.walk.take());
        match self.store.take() {
            Some(store) => {
                match store.is_own() {
                    true => drop(open),
                    false => std::mem::forget(open),
                }
                store.close(!self.read_only)
            }
            None => Ok(()),
        }
    }

    fn store(&self) -> Result<&Store, Failure> {
        match &self.store {
            Some(store) if store.is_own() => Ok(store),
            _ => {
                let text = "the handle belongs to the parent process; open one in this process";
                Err(Failure::new(libc::EBADF, text))
            }
        }
    }

    fn content(&self) -> Result<Content, Failure> {
        Ok(self.store()?.content())
    }

    /// The state of a handle that writes.
    fn writable(&self) -> Result<(Content, Table), Failure> {
        let content = self.content()?;
        if self.read_only {
            let text = "the database was opened to be read";
            return Err(Failure::new(libc::EPERM, text));
        }
        let table = content.table.clone();
        let table = table.ok_or_else(|| Failure::new(libc::EIO, "the database has no table"))?;
        Ok((content, table))
    }

    pub fn fetch(&mut self, key: &[u8]) -> Result<OwnedBytes, Failure> {
        let Content { db, table, .. } = self.content()?;
        let found = match (&mut self.transaction, table) {
            (Some(open), _) => open.fetch(key)?,
            (None, Some(table)) => db.snapshot().get(&table, key)?,
            (None, None) => None,
        };
        Ok(found.map(|value| self.values.put(value)))
    }

    /// False if the key exists and must not be replaced.
    pub fn put(&mut self, key: &[u8], value: &[u8], replace: bool) -> Result<bool, Failure> {
        let (Content { db, .. }, table) = self.writable()?;
        self.leave_idle_walk(key.len() + value.len());
        if let Some(open) = &mut self.transaction {
            return open.put(&table, key, value, replace);
        }
        let done = db.run(self.durability, |tx| match replace {
            true => tx.put(&table, key, value),
            false => tx.insert(&table, key, value),
        });
        match done {
            Ok(()) => Ok(true),
            Err(DbmError::Exists) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// False if there is no such key.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let (Content { db, .. }, table) = self.writable()?;
        if let Some(open) = &mut self.transaction {
            let deleted = open.delete(&table, key)?;
            self.leave_idle_walk(key.len());
            return Ok(deleted);
        }
        if db.snapshot().next_key(&table, key, true)?.as_deref() != Some(key) {
            return Ok(false);
        }
        self.leave_idle_walk(key.len());
        db.run(self.durability, |tx| tx.delete(&table, key))?;
        Ok(true)
    }

    fn leave_idle_walk(&mut self, bytes: usize) {
        if let Some(walk) = &mut self.walk {
            walk.idle = walk.idle.saturating_add(bytes + MIN_RECORD);
            if walk.idle > MOST_IDLE && matches!(walk.start, Start::State(..)) {
                walk.start = Start::GivenUp;
            }
        }
    }

    /// The first key, or the next one in key order, of those that the database had when the walk
    /// began.
    pub fn walk(&mut self, begin: bool) -> Result<OwnedBytes, Failure> {
        self.store()?;
        if let Some(open) = &mut self.transaction {
            let key = open.walk(begin)?;
            return Ok(key.map(|key| self.keys.put(key)));
        }
        if begin {
            self.walk = None;
            if self.read_only {
                self.store = self.store.take().map(|store| store.refreshed());
            }
        }
        let Content { db, table, .. } = self.content()?;
        let Some(table) = table else { return Ok(None) };
        let now = db.snapshot();
        let walk = self.walk.get_or_insert_with(|| Walk {
            start: Start::State(now.clone(), table.clone()),
            at: None,
            idle: 0,
        });
        walk.idle = 0;
        loop {
            let after = |state: &Snapshot, table: &Table| match &walk.at {
                None => state.next_key(table, b"", true),
                Some(at) => state.next_key(table, at, false),
            };
            let (key, is_there) = match &walk.start {
                Start::Ended => return Ok(None),
                Start::GivenUp => (after(&now, &table)?, true),
                Start::State(state, at_start) => {
                    let key = after(state, at_start)?;
                    let is_there = match &key {
                        Some(key) => now.next_key(&table, key, true)?.as_ref() == Some(key),
                        None => true,
                    };
                    (key, is_there)
                }
            };
            let Some(key) = key else {
                walk.start = Start::Ended;
                return Ok(None);
            };
            walk.at = Some(key.clone());
            if is_there {
                return Ok(Some(self.keys.put(key)));
            }
        }
    }

    /// Begins a transaction. A handle has one at a time.
    pub fn begin(&mut self) -> Result<(), Failure> {
        let content = self.content()?;
        if self.transaction.is_some() {
            let text = "the handle has a transaction already";
            return Err(Failure::new(libc::EBUSY, text));
        }
        self.transaction = Some(Open::begin(content));
        Ok(())
    }

    /// False if the transaction conflicts with another. It has ended in any case.
    pub fn commit(&mut self) -> Result<bool, Failure> {
        self.end()?.commit(self.durability)
    }

    /// Ends the transaction without an effect.
    pub fn abort(&mut self) -> Result<(), Failure> {
        self.end().map(drop)
    }

    fn end(&mut self) -> Result<Open, Failure> {
        self.store()?;
        let open = self.transaction.take();
        open.ok_or_else(|| Failure::new(libc::EINVAL, "the handle has no transaction"))
    }

    pub fn dirfno(&self) -> Result<c_int, Failure> {
        self.store().map(|_| self.dir.as_raw_fd())
    }

    pub fn pagfno(&self) -> Result<c_int, Failure> {
        self.store().map(|_| self.pag.as_raw_fd())
    }

    pub fn read_only(&self) -> bool {
        self.read_only
    }
}
