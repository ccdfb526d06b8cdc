// SPDX-License-Identifier: Apache-2.0
//! The database's public interface: open, tables, transactions, snapshots, close.

pub(crate) mod bulk;
pub(crate) mod copy;
mod fairness; // who failed often takes a turn
mod merge; // a transaction's view: the snapshot, and its own writes over it
pub(crate) mod newest; // a single key as of now
pub(crate) mod pending;
mod salvage;
pub(crate) mod snapshot;
mod submit; // a commit from its admission until it is durable
pub(crate) mod transaction;
pub(crate) mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use senko_io::{Device, FileId, FileOptions, FlashFile, PAGE_SIZE};

use crate::commit::Node;
use crate::commit::ranges::RangeSet;
use crate::commit::reads::ReadSet;
use crate::commit::writes::Changes;
use crate::core::Core;
use crate::db::fairness::Tries;
use crate::db::submit::submit;
use crate::open::{FIRST_PAGES, changing_pages, open};
use crate::records::changes::TableChange;
use crate::upkeep::checkpoint::{checkpoint, checkpoint_all};
use crate::upkeep::maintain::Keeper;
use crate::writer::room::Size;
use crate::{DbmError, Durability, OpenSnapshot, Options, Snapshot, Table, Transaction};

/// Counts and sizes.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that the file takes, without its holes.
    pub file_bytes: u64,
    /// Bytes of live pages, including those that only open snapshots need.
    pub live_bytes: u64,
    /// Bytes of segments that may be written.
    pub free_bytes: u64,
    /// Bytes of the log that the next opening would read. 0 for a reader.
    pub log_bytes: u64,
    /// Bytes of pages in DRAM.
    pub cached_bytes: u64,
    /// Bytes of keys and values put since the database was made; of a file of format version 2,
    /// since it was first opened by a program that counts.
    pub bytes_put: u64,
    /// Bytes written to the device since then, also for checkpoints, cleaning and growing. A kill
    /// loses the count since the last checkpoint.
    pub bytes_written: u64,
    /// Bytes given back to the file system since then.
    pub bytes_discarded: u64,
    /// Number of the newest commit.
    pub commit: u64,
    /// The newest commit that is durable.
    pub durable: u64,
    /// Transactions that committed, since the opening.
    pub commits: u64,
    /// Transactions that met a conflict, since the opening.
    pub conflicts: u64,
    /// Pages read from the device, since the opening.
    pub page_reads: u64,
    /// Checkpoints so far.
    pub checkpoint: u64,
    /// Snapshots and transactions that are open.
    pub open_snapshots: usize,
    /// The age of the oldest of them.
    pub oldest_snapshot: Option<Duration>,
    /// Pages written since the oldest snapshot began: an upper bound of what snapshots hold.
    pub pages_since_oldest: u64,
    /// The open snapshots and transactions of this process, oldest first.
    pub snapshots: Vec<OpenSnapshot>,
    /// A process that reads the database holds the space of this checkpoint and of later ones.
    pub pinned_checkpoint: Option<u64>,
}

struct Inner {
    core: Arc<Core>,
    keeper: Keeper,
    read_only: bool,
    place: Option<Place>,
}

/// Where a database was opened.
pub(crate) struct Place {
    /// Absolute, because the program may change its working directory.
    pub path: PathBuf,
    /// The file that was opened. Another one may have its name by now.
    pub file: FileId,
}

/// The absolute path of a database that is opened.
fn absolute(path: &Path) -> Result<PathBuf, DbmError> {
    std::path::absolute(path).map_err(|error| {
        let text = format!("cannot open {}: {error}", path.display());
        DbmError::Open(Arc::new(std::io::Error::new(error.kind(), text)))
    })
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keeper.end(&self.core);
        if !self.read_only {
            // A program that needs the result calls `close`.
            let _ = close(&self.core);
        }
    }
}

/// A database. Cheap to clone; the last clone that is dropped closes it.
///
/// ```
/// # let db = senko_dbm::example::database();
/// use senko_dbm::Durability;
/// let table = db.create_table("colours")?;
/// db.run(Durability::Synced, |tx| {
///     tx.put(&table, b"grass", b"green")?;
///     tx.put(&table, b"sky", b"blue")
/// })?;
/// assert_eq!(db.snapshot().get(&table, b"sky")?.as_deref(), Some(&b"blue"[..]));
/// # Ok::<(), senko_dbm::DbmError>(())
/// ```
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

/// How often a damaged database is opened for reading before the damage is told, and how often
/// while something changes it.
const FEW_ATTEMPTS: u32 = 3;
const MOST_ATTEMPTS: u32 = 100;

/// Tries of [`Database::run`]. The tenth commits, unless the closure itself commits what it reads,
/// or pauses in each turn.
const MOST_TRIES: u32 = 100;

fn close(core: &Arc<Core>) -> Result<(), DbmError> {
    core.latch.check()?;
    let clean = {
        let log = core.log.lock();
        log.written == 0 && core.room.changed().0 == 0
    };
    match clean {
        // An earlier process may have written what this one found, without a flush.
        true => core.log.lock().sync(),
        // Without room for a checkpoint, the log has everything.
        false => match checkpoint_all(core) {
            Err(DbmError::NoSpace(_)) => core.write_pending(&mut core.log.lock(), true),
            done => done,
        },
    }
}

impl Database {
    /// Opens or makes the database at `path`.
    ///
    /// # Errors
    /// [`DbmError::Open`] with the path, or the problem with the existing file.
    ///
    /// ```
    /// # let folder = senko_dbm::example::Folder::new();
    /// # let path = folder.path().join("data.db");
    /// let db = senko_dbm::Database::open(&path, senko_dbm::Options::default())?;
    /// db.close()?;
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn open(path: &Path, options: Options) -> Result<Database, DbmError> {
        // Checked before anything is made.
        let options = options.checked()?;
        let there = path.try_exists().map_err(|error| {
            let text = format!("cannot open {}: {error}", path.display());
            DbmError::Open(Arc::new(std::io::Error::new(error.kind(), text)))
        })?;
        if !options.create && !there {
            let text = format!("{} does not exist", path.display());
            let error = std::io::Error::new(std::io::ErrorKind::NotFound, text);
            return Err(DbmError::Open(Arc::new(error)));
        }
        let there = std::fs::metadata(path).ok();
        // A block device has a length, but not in its metadata.
        let bytes = match &there {
            Some(there) if !there.is_file() => u64::MAX,
            there => there.as_ref().map_or(0, std::fs::Metadata::len),
        };
        let whole = FIRST_PAGES * PAGE_SIZE as u64;
        if bytes > 0 && bytes < whole && !is_empty(path) {
            let text = format!("{} is shorter than a database", path.display());
            return Err(DbmError::Foreign(text));
        }
        let file = FileOptions {
            bytes: if bytes < whole { whole } else { 0 },
            whole: true,
            recorder: options.recorder.clone().map(|recorder| (recorder, 0)),
            mode: options.mode,
            ..FileOptions::default()
        };
        let absolute = absolute(path)?;
        let opened = |error| DbmError::Open(Arc::new(error));
        let device = FlashFile::open(path, &file).map_err(opened)?;
        let place = Place {
            path: absolute,
            file: device.id().map_err(opened)?,
        };
        Database::on(Arc::new(device), options, Some(place))
    }

    /// Opens what a device holds, or makes a database on it.
    ///
    /// # Errors
    /// The errors of an existing file.
    pub fn open_device(device: Arc<dyn Device>, options: Options) -> Result<Database, DbmError> {
        Database::on(device, options, None)
    }

    fn on(
        device: Arc<dyn Device>,
        options: Options,
        place: Option<Place>,
    ) -> Result<Database, DbmError> {
        let core = open(device, options, false)?;
        let keeper = Keeper::start(&core)?;
        Ok(Database {
            inner: Arc::new(Inner {
                core,
                keeper,
                read_only: false,
                place,
            }),
        })
    }

    /// Opens the database for reading, while another process may write to it. It shows the state at
    /// the opening; [`Database::refresh`] shows later writes.
    ///
    /// # Errors
    /// [`DbmError::Open`] with the path, or the problem with the existing file.
    ///
    /// ```
    /// # let folder = senko_dbm::example::Folder::new();
    /// # let path = folder.path().join("data.db");
    /// # let db = senko_dbm::Database::open(&path, senko_dbm::Options::default())?;
    /// let reader = senko_dbm::Database::open_to_read(&path, senko_dbm::Options::default())?;
    /// assert!(reader.create_table("no").is_err());
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn open_to_read(path: &Path, options: Options) -> Result<Database, DbmError> {
        let opened = |error| DbmError::Open(Arc::new(error));
        let absolute = absolute(path)?;
        let file = FileOptions {
            beside_writer: true,
            recorder: options.recorder.clone().map(|recorder| (recorder, 0)),
            ..FileOptions::default()
        };
        let options = Options {
            threads: 0,
            create: false,
            ..options
        };
        for attempt in 0u32.. {
            let device = FlashFile::open(path, &file).map_err(opened)?;
            let seen = crate::disk::superblock::Superblock::read(&device)?;
            let Some(seen) = seen else {
                let text = format!("{} has no superblock", path.display());
                return Err(DbmError::Foreign(text));
            };
            device.pin(seen.checkpoint).map_err(opened)?;
            // If the writer continued before it could see the pin, the pinned space may already be
            // reused.
            let again = crate::disk::superblock::Superblock::read(&device)?;
            let grown = seen.pages > device.pages() && attempt < 10;
            if again != Some(seen) || grown {
                continue;
            }
            let device = Arc::new(device);
            let before = changing_pages(&*device)?;
            let core = match open(Arc::clone(&device) as _, options.clone(), true) {
                // What a living writer changes meanwhile looks like damage. It also changes these
                // pages, unless the device has no memory for it.
                Err(DbmError::Damaged { .. })
                    if attempt < FEW_ATTEMPTS
                        || attempt < MOST_ATTEMPTS && changing_pages(&*device)? != before =>
                {
                    continue;
                }
                opened => opened?,
            };
            let place = Place {
                path: absolute,
                file: device.id().map_err(opened)?,
            };
            core.latch.close(&"it was opened to be read");
            let keeper = Keeper::start(&core)?;
            return Ok(Database {
                inner: Arc::new(Inner {
                    core,
                    keeper,
                    read_only: true,
                    place: Some(place),
                }),
            });
        }
        unreachable!("the attempts have no end")
    }

    /// For a database that was opened for reading: shows what a new opening of the same path would
    /// show. Existing snapshots do not change. A relative path means the working directory of the
    /// first opening.
    ///
    /// # Errors
    /// As [`Database::open_to_read`].
    ///
    /// ```
    /// # let folder = senko_dbm::example::Folder::new();
    /// # let path = folder.path().join("data.db");
    /// # let options = senko_dbm::Options::default;
    /// let db = senko_dbm::Database::open(&path, options())?;
    /// let mut reader = senko_dbm::Database::open_to_read(&path, options())?;
    /// db.create_table("new")?;
    /// assert!(reader.table("new").is_err());
    /// reader.refresh()?;
    /// assert!(reader.table("new").is_ok());
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn refresh(&mut self) -> Result<(), DbmError> {
        let place = self.inner.place.as_ref();
        let Some(place) = place.filter(|_| self.inner.read_only) else {
            let text = "only a database that was opened to be read is refreshed".to_owned();
            return Err(DbmError::Invalid(text));
        };
        *self = Database::open_to_read(&place.path, self.inner.core.options.clone())?;
        Ok(())
    }

    /// Where it was opened, for a database that was opened to be written.
    pub(crate) fn place(&self) -> Result<&Place, DbmError> {
        let place = self.inner.place.as_ref();
        place.filter(|_| !self.inner.read_only).ok_or_else(|| {
            let text = "only a database that was opened by its path, to be written, is replaced";
            DbmError::Invalid(text.to_owned())
        })
    }

    /// Whether other handles, snapshots or transactions use the database.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1 || self.core().readers.oldest().is_some()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Opens a table, or makes it. It is durable then.
    ///
    /// # Errors
    /// The name must have 1 to 255 bytes. Otherwise the device's errors.
    pub fn create_table(&self, name: &str) -> Result<Table, DbmError> {
        if !crate::records::changes::is_name(name) {
            let text = format!("a table's name has 1 to 255 bytes, not {}", name.len());
            return Err(DbmError::Invalid(text));
        }
        loop {
            if let Ok(table) = self.table(name) {
                // The thread that made it may be waiting for the flush, and the process that made
                // it may have been killed before.
                if !self.inner.read_only {
                    let core = self.core();
                    core.write_until(core.progress.made_table())?;
                }
                return Ok(table);
            }
            let name = name.to_owned();
            match self.change_table(TableChange::Create { name }) {
                Ok(()) | Err(DbmError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens an existing table.
    ///
    /// # Errors
    /// [`DbmError::NoTable`].
    pub fn table(&self, name: &str) -> Result<Table, DbmError> {
        let catalogue = self.core().readers.catalogue();
        let found = catalogue.iter().find(|info| *info.name == *name);
        found
            .map(Table::of)
            .ok_or_else(|| DbmError::NoTable(name.to_owned()))
    }

    /// All tables.
    pub fn tables(&self) -> Vec<Table> {
        let catalogue = self.core().readers.catalogue();
        let mut tables: Vec<Table> = catalogue.iter().map(Table::of).collect();
        tables.sort_by(|a, b| a.name().cmp(b.name()));
        tables
    }

    /// Drops a table with all its records.
    ///
    /// # Errors
    /// [`DbmError::NoTable`], if it was dropped already.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// let table = db.create_table("t")?;
    /// db.drop_table(&table)?;
    /// assert!(db.drop_table(&table).is_err());
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn drop_table(&self, table: &Table) -> Result<(), DbmError> {
        loop {
            let catalogue = self.core().readers.catalogue();
            let Some(info) = table.find(&catalogue) else {
                return Err(DbmError::NoTable(table.name().to_owned()));
            };
            match self.change_table(TableChange::Drop { id: info.id }) {
                Err(DbmError::Conflict) => {}
                done => return done,
            }
        }
    }

    fn change_table(&self, change: TableChange) -> Result<(), DbmError> {
        let core = self.core();
        let mut seen = core.see(true);
        // Read from the snapshot with which validation starts. Otherwise a change between the two
        // would be missed.
        let there = match &change {
            TableChange::Create { name } => seen.catalogue.iter().any(|t| *t.name == **name),
            TableChange::Drop { id } => !seen.catalogue.iter().any(|t| t.id == *id),
        };
        if there {
            return Err(DbmError::Conflict);
        }
        let size = Size {
            bytes: 512,
            parts: 0,
            changes: 1,
            only_deletes: matches!(change, TableChange::Drop { .. }),
        };
        let start = seen.close().ok_or(DbmError::SnapshotExpired)?;
        let node = Node::new(Changes::default(), RangeSet::default(), Some(change));
        let reads = &mut ReadSet::default();
        let (tries, durability) = (Tries::default(), Durability::Synced);
        submit(core, node, start, reads, tries, durability, &size).map(drop)
    }

    /// Begins a transaction.
    pub fn begin(&self) -> Transaction {
        let tries = Tries::begin(self.core());
        Transaction::new(Snapshot::new(self.core().see(true)), tries)
    }

    /// Runs a transaction, repeatedly while it conflicts with others, and commits it.
    ///
    /// # Errors
    /// The error of `work`, or of the commit. [`DbmError::Conflict`] after a hundred tries, which
    /// happens if `work` itself commits changes of what its transaction reads, by another handle
    /// of the database.
    ///
    /// ```
    /// # let db = senko_dbm::example::database();
    /// # let table = db.create_table("t")?;
    /// use senko_dbm::Durability;
    /// let count = db.run(Durability::Buffered, |tx| {
    ///     let old = tx.get(&table, b"count")?.map_or(0, |v| v[0]);
    ///     tx.put(&table, b"count", &[old + 1])?;
    ///     Ok(old + 1)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), senko_dbm::DbmError>(())
    /// ```
    pub fn run<T>(
        &self,
        durability: Durability,
        mut work: impl FnMut(&mut Transaction) -> Result<T, DbmError>,
    ) -> Result<T, DbmError> {
        for _ in 0..MOST_TRIES {
            let mut tx = self.begin();
            let done = match work(&mut tx) {
                Ok(done) => done,
                Err(DbmError::Conflict) => continue,
                Err(error) => return Err(error),
            };
            match tx.commit(durability) {
                Ok(_) => return Ok(done),
                Err(DbmError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(DbmError::Conflict)
    }

    /// A snapshot of everything committed so far, which later commits do not change.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.core().see(false))
    }

    /// Makes all earlier commits durable.
    ///
    /// # Errors
    /// The device's errors.
    pub fn sync(&self) -> Result<(), DbmError> {
        let commit = self.core().readers.commit();
        if self.core().progress.durable() >= commit {
            return Ok(());
        }
        self.core().write_pending(&mut self.core().log.lock(), true)
    }

    /// Writes a checkpoint of all commits until now, so that the next opening reads no log of them.
    ///
    /// # Errors
    /// [`DbmError::NoSpace`] if there is no room for all changed pages: the log has the rest.
    /// Otherwise the device's errors.
    pub fn checkpoint(&self) -> Result<(), DbmError> {
        checkpoint_all(self.core())
    }

    /// A partial checkpoint: the pages that it must write, and `most` others; for tests.
    ///
    /// # Errors
    /// The device's errors.
    #[doc(hidden)]
    pub fn checkpoint_of(&self, most: usize) -> Result<(), DbmError> {
        let core = self.core();
        checkpoint(core, &mut core.maps.lock(), most, 0).map(|_| ())
    }

    /// Closes it with a checkpoint, or without room for one with the log. Other clones stay usable.
    ///
    /// # Errors
    /// The device's errors.
    pub fn close(self) -> Result<(), DbmError> {
        if self.inner.read_only {
            return Ok(());
        }
        close(self.core())
    }

    /// Counts and sizes.
    pub fn stats(&self) -> Stats {
        let core = self.core();
        let page = PAGE_SIZE as u64;
        let live = core.space.needed();
        let checkpoint = core.space.started.load(Ordering::Relaxed);
        let mut snapshots = core.readers.open();
        let put = {
            let writer = core.writer.lock();
            writer.old().count_held(&mut snapshots, &core.pages);
            writer.put
        };
        let wear = core.space.wear(put);
        let (commits, conflicts) = core.progress.counts();
        let oldest = core.readers.oldest();
        Stats {
            file_bytes: core.space.stored_pages() * page,
            live_bytes: live * page,
            free_bytes: (core.space.free() + core.space.loose()) as u64
                * crate::disk::space::SEGMENT
                * page,
            log_bytes: match self.inner.read_only {
                true => 0,
                false => core.log.lock().behind().replay * page,
            },
            bytes_put: wear.put,
            bytes_written: wear.written,
            bytes_discarded: wear.discarded,
            cached_bytes: core.pages.dram().resident() as u64 * page,
            // Read before the newest commit, which it never exceeds.
            durable: core.progress.durable(),
            commit: core.readers.commit(),
            commits,
            conflicts,
            page_reads: core.pages.reads(),
            checkpoint,
            open_snapshots: snapshots.len(),
            oldest_snapshot: oldest.map(|(age, _)| age),
            pages_since_oldest: oldest.map_or(0, |(_, then)| live.saturating_sub(then)),
            snapshots,
            pinned_checkpoint: core.device.oldest_pin(checkpoint + 1),
        }
    }
}

fn is_empty(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({} tables)", self.tables().len())
    }
}
