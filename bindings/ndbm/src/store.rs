// SPDX-License-Identifier: Apache-2.0
//! The open databases of this process, each opened once, however many handles there are. Called by
//! `handle.rs`.
//!
//! `NAME.pag` is the database, in one file, so that programs can rename, copy and delete it.
//! `NAME.dir` is empty: programs look for it and lock it.
//!
//! While no handle writes, the database is open only for reading, and another process may write.
//! The first handle that writes makes this process the writer. When the last such handle closes, it
//! becomes a reader again.

use std::fs::{File, OpenOptions};
use std::mem::ManuallyDrop;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use senko_dbm::{Database, DbmError, Durability, Options, Table};

use crate::failure::Failure;

/// The table; it is also the default of `senko dbm`.
const TABLE: &str = "main";

/// Identifies a file by its device and inode.
type Identity = (u64, u64);

/// The database that a handle reads and writes.
#[derive(Clone)]
pub struct Content {
    pub db: Database,
    /// `None` in a database that was never written to.
    pub table: Option<Table>,
    /// Whether this process is the writer.
    writes: bool,
}

/// A database of this process.
pub struct Store {
    path: Box<Path>,
    identity: Identity,
    /// A descriptor for the program's use.
    pub pag: Arc<File>,
    forks: u32,
    /// In the child of a fork it is not dropped.
    content: RwLock<ManuallyDrop<Content>>,
}

/// All databases of this process, each with the number of its writing handles.
static STORES: Mutex<Vec<(Weak<Store>, u32)>> = Mutex::new(Vec::new());

fn stores() -> MutexGuard<'static, Vec<(Weak<Store>, u32)>> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a handle opens.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub writes: bool,
    pub create: bool,
    pub truncate: bool,
    pub mode: u32,
}

fn identity_of(path: &Path) -> Option<Identity> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

fn options(path: &Path, access: Access) -> Options {
    // The file was made in advance, for example by `touch`, to have the right owner.
    let empty = std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0);
    Options {
        threads: 0,
        create: access.create || empty,
        mode: Some(access.mode),
        // A store is a transaction of one record, which may have the longest value.
        transaction_bytes: usize::MAX,
        ..Options::default()
    }
}

fn to_read(path: &Path) -> Result<Content, DbmError> {
    let options = Options {
        threads: 0,
        ..Options::default()
    };
    let db = Database::open_to_read(path, options)?;
    let table = db.table(TABLE).ok();
    let writes = false;
    Ok(Content { db, table, writes })
}

fn to_write(path: &Path, access: Access) -> Result<Content, DbmError> {
    let mut opened = Database::open(path, options(path, access));
    let unusable = |error: &DbmError| {
        matches!(
            error,
            DbmError::Foreign(_)
                | DbmError::Damaged { .. }
                | DbmError::NewerVersion { .. }
                | DbmError::OlderVersion { .. }
        )
    };
    if access.truncate && opened.as_ref().is_err_and(unusable) {
        // Nobody writes to it; otherwise opening it would have failed because of the lock.
        let emptied = OpenOptions::new().write(true).truncate(true).open(path);
        emptied.map_err(|error| DbmError::Open(Arc::new(error)))?;
        opened = Database::open(path, options(path, access));
    }
    let db = opened?;
    // One that is there need not be durable: a store waits for no flush either.
    let table = match db.table(TABLE) {
        Err(DbmError::NoTable(_)) => db.create_table(TABLE)?,
        found => found?,
    };
    if access.truncate {
        db.run(Durability::Synced, |tx| tx.clear(&table))?;
    }
    let table = Some(table);
    let writes = true;
    Ok(Content { db, table, writes })
}

impl Store {
    /// Opens the database of a path for one more handle.
    pub fn open(path: &Path, access: Access) -> Result<Arc<Store>, Failure> {
        let mut stores = stores();
        stores.retain(|(store, _)| store.upgrade().is_some_and(|store| store.is_own()));
        let identity = identity_of(path);
        let known = stores.iter_mut().find_map(|(store, writers)| {
            let store = store.upgrade()?;
            (Some(store.identity) == identity).then_some((store, writers))
        });
        if let Some((store, writers)) = known {
            if access.writes && !store.content().writes {
                store.put(to_write(path, access)?);
            } else if access.truncate {
                store.clear()?;
            }
            *writers += u32::from(access.writes);
            return Ok(store);
        }
        let content = match (access.writes, access.create && identity.is_none()) {
            (true, _) => to_write(path, access)?,
            (false, true) => {
                to_write(path, access)?.db.close()?;
                to_read(path)?
            }
            (false, false) => to_read(path)?,
        };
        let pag = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)?;
        let meta = pag.metadata()?;
        let store = Arc::new(Store {
            // The program may change its working directory.
            path: std::path::absolute(path)?.into(),
            identity: (meta.dev(), meta.ino()),
            pag: Arc::new(pag),
            forks: senko_io::forks(),
            content: RwLock::new(ManuallyDrop::new(content)),
        });
        stores.push((Arc::downgrade(&store), u32::from(access.writes)));
        Ok(store)
    }

    /// Whether this process opened it, not one that it was forked from.
    pub fn is_own(&self) -> bool {
        self.forks == senko_io::forks()
    }

    pub fn content(&self) -> Content {
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        Content::clone(&content)
    }

    fn put(&self, content: Content) {
        let mut place = self.content.write().unwrap_or_else(PoisonError::into_inner);
        drop(ManuallyDrop::into_inner(std::mem::replace(
            &mut *place,
            ManuallyDrop::new(content),
        )));
    }

    fn clear(&self) -> Result<(), DbmError> {
        let Content { db, table, .. } = self.content();
        match table {
            Some(table) => db.run(Durability::Synced, |tx| tx.clear(&table)),
            None => Ok(()),
        }
    }

    /// For a handle that reads: the database of the path with what others have written so far, or
    /// the one that replaced it. If that cannot be read, the old state is shown.
    pub fn refreshed(self: &Arc<Store>) -> Arc<Store> {
        let now = identity_of(&self.path);
        if now.is_some_and(|now| now != self.identity) {
            let access = Access {
                writes: false,
                create: false,
                truncate: false,
                mode: 0,
            };
            return Store::open(&self.path, access).unwrap_or_else(|_| Arc::clone(self));
        }
        let _alone = stores();
        if now.is_some()
            && !self.content().writes
            && let Ok(content) = to_read(&self.path)
        {
            self.put(content);
        }
        Arc::clone(self)
    }

    /// Closes one handle. Its stores are durable then.
    pub fn close(self: Arc<Store>, writes: bool) -> Result<(), Failure> {
        if !self.is_own() {
            return Ok(());
        }
        let mut stores = stores();
        if !writes {
            return Ok(());
        }
        let own = |(store, _): &&mut (Weak<Store>, u32)| std::ptr::eq(store.as_ptr(), &*self);
        let Some((_, writers)) = stores.iter_mut().find(own) else {
            return Ok(());
        };
        *writers -= 1;
        let content = self.content();
        if *writers > 0 {
            return Ok(content.db.sync()?);
        }
        let closed = content.db.close();
        if Arc::strong_count(&self) > 1 {
            // Reading handles are left. The file may be gone by now; they keep what they have.
            if let Ok(content) = to_read(&self.path)
                && identity_of(&self.path) == Some(self.identity)
            {
                self.put(content);
            }
        }
        Ok(closed?)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.is_own() {
            let content = self
                .content
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(content) };
        }
    }
}
