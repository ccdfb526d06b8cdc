// SPDX-License-Identifier: Apache-2.0
//! Open databases for C: options, tables, counts, closing. Called from C.

use std::ffi::{CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use senko_dbm::{Database, Options, Table};

use crate::failure::{DAMAGED, FORKED, Failure, NOTABLE, guard};
use crate::{give, string};

pub(crate) const CREATE: u32 = 0x1;
pub(crate) const RDONLY: u32 = 0x2;
const NOTHREADS: u32 = 0x4;
/// Without effect since every database is one file.
const ONEFILE: u32 = 0x8;

/// `senko_options` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SenkoOptions {
    size: usize,
    flags: u32,
    mode: u32,
    cache_bytes: u64,
    transaction_bytes: u64,
    log_bytes: u64,
    max_bytes: u64,
    max_snapshot_age_ms: u64,
}

/// `senko_stats` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SenkoStats {
    size: usize,
    file_bytes: u64,
    live_bytes: u64,
    free_bytes: u64,
    cached_bytes: u64,
    commit: u64,
    durable: u64,
    commits: u64,
    conflicts: u64,
    page_reads: u64,
    checkpoint: u64,
    open_snapshots: u64,
    oldest_snapshot_ms: u64,
    pages_since_oldest: u64,
    bytes_put: u64,
    bytes_written: u64,
    bytes_discarded: u64,
}

/// The part of a database that its transactions and cursors share.
#[derive(Debug)]
pub(crate) struct Shared {
    db: RwLock<Database>,
    tables: Mutex<Vec<Table>>,
    forks: u32,
}

impl Shared {
    pub fn db(&self) -> Database {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        Database::clone(&db)
    }

    pub fn table(&self, number: u32) -> Result<Table, Failure> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables.get(number as usize).cloned();
        table.ok_or_else(|| Failure::code(NOTABLE))
    }

    /// Refuses the child of a fork.
    pub fn check(&self) -> Result<(), Failure> {
        if self.forks != senko_io::forks() {
            return Err(Failure::code(FORKED));
        }
        Ok(())
    }
}

/// `senko_db` of the header.
#[derive(Debug)]
pub struct SenkoDb {
    shared: Arc<Shared>,
}

impl SenkoDb {
    /// The database of a handle, in the process that opened it.
    ///
    /// # Safety
    /// `db` is NULL or an open database.
    pub(crate) unsafe fn of<'a>(db: *const SenkoDb) -> Result<&'a Arc<Shared>, Failure> {
        // SAFETY: the caller's promise.
        let db = unsafe { db.as_ref() }.ok_or_else(|| Failure::invalid("the database is NULL"))?;
        db.shared.check()?;
        Ok(&db.shared)
    }
}

/// Reads a structure that begins with its size. An older program's structure is shorter: the
/// missing fields are zero. A newer program's structure is longer: fields that are not known here
/// must be zero.
///
/// # Safety
/// `from` has as many bytes as it says.
unsafe fn sized<T: Copy + Default>(from: *const T) -> Result<T, Failure> {
    let known = size_of::<T>();
    // SAFETY: the caller's promise; the first field is the size.
    let size = unsafe { from.cast::<usize>().read() };
    if size < size_of::<usize>() || size > 4096 {
        let text = format!("a structure says that it has {size} bytes; set its size first");
        return Err(Failure::invalid(text));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    if bytes.iter().skip(known).any(|byte| *byte != 0) {
        let text = "a structure asks for something that this version does not know";
        return Err(Failure::invalid(text));
    }
    let mut value = T::default();
    // SAFETY: both have this length, and T has only numbers, for which all bytes are valid.
    unsafe {
        (&raw mut value)
            .cast::<u8>()
            .copy_from(bytes.as_ptr(), size.min(known))
    };
    Ok(value)
}

fn options_of(asked: &SenkoOptions) -> Result<Options, Failure> {
    let unknown = asked.flags & !(CREATE | RDONLY | NOTHREADS | ONEFILE);
    if unknown != 0 {
        return Err(Failure::invalid(format!(
            "the flags {unknown:#x} are not known"
        )));
    }
    if asked.mode > 0o777 {
        return Err(Failure::invalid(format!(
            "the mode is {:#o}; it is at most 0777",
            asked.mode
        )));
    }
    let standard = Options::default();
    let bytes = |asked: u64, standard: usize| match asked {
        0 => standard,
        asked => usize::try_from(asked).unwrap_or(usize::MAX),
    };
    let given = |asked: u64| Some(asked).filter(|asked| *asked != 0);
    Ok(Options {
        cache_bytes: bytes(asked.cache_bytes, standard.cache_bytes),
        transaction_bytes: bytes(asked.transaction_bytes, standard.transaction_bytes),
        log_bytes: given(asked.log_bytes).unwrap_or(standard.log_bytes),
        max_bytes: given(asked.max_bytes),
        max_snapshot_age: given(asked.max_snapshot_age_ms).map(Duration::from_millis),
        create: asked.flags & CREATE != 0,
        threads: usize::from(asked.flags & NOTHREADS == 0),
        mode: Some(asked.mode).filter(|mode| *mode != 0),
        ..standard
    })
}

/// Opens the database of a path.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_open(
    path: *const c_char,
    options: *const SenkoOptions,
    db: *mut *mut SenkoDb,
) -> c_int {
    guard(|| {
        let asked = match options.is_null() {
            true => SenkoOptions {
                flags: CREATE,
                ..SenkoOptions::default()
            },
            // SAFETY: the caller's promise.
            false => unsafe { sized(options) }?,
        };
        // SAFETY: the caller's promise.
        unsafe { give(db, std::ptr::null_mut()) }?;
        // SAFETY: the caller's promise.
        let path = Path::new(OsStr::from_bytes(unsafe { string(path) }?.to_bytes()));
        let options = options_of(&asked)?;
        let opened = match asked.flags & RDONLY {
            0 => Database::open(path, options)?,
            _ => Database::open_to_read(path, options)?,
        };
        let shared = Arc::new(Shared {
            db: RwLock::new(opened),
            tables: Mutex::default(),
            forks: senko_io::forks(),
        });
        // SAFETY: as above.
        unsafe { give(db, Box::into_raw(Box::new(SenkoDb { shared }))) }
    })
}

/// Closes a database.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_close(db: *mut SenkoDb) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { SenkoDb::of(db) }?;
        if Arc::strong_count(shared) > 1 {
            let text = "transactions or cursors of the database are open";
            return Err(Failure::with(libc::EBUSY, text));
        }
        // SAFETY: it was made by `senko_open`, and is not used again.
        let handle = unsafe { Box::from_raw(db) };
        Ok(handle.shared.db().close()?)
    })
}

/// Makes everything written so far visible to transactions that begin later.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_refresh(db: *mut SenkoDb) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { SenkoDb::of(db) }?;
        let mut fresh = shared.db();
        fresh.refresh()?;
        *shared.db.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    })
}

/// Makes commits durable.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_sync(db: *mut SenkoDb) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| Ok(unsafe { SenkoDb::of(db) }?.db().sync()?))
}

/// Writes a checkpoint.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_checkpoint(db: *mut SenkoDb) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| Ok(unsafe { SenkoDb::of(db) }?.db().checkpoint()?))
}

/// Counts and sizes.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_stat(db: *mut SenkoDb, stats: *mut SenkoStats) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { SenkoDb::of(db) }?;
        if stats.is_null() {
            return Err(Failure::invalid("the place for a result is NULL"));
        }
        // SAFETY: the caller's promise; the first field is the size.
        let size = unsafe { stats.cast::<usize>().read() };
        if size < size_of::<usize>() || size > 4096 {
            return Err(Failure::invalid("set the size of the structure first"));
        }
        let now = shared.db().stats();
        let oldest = now.oldest_snapshot.map_or(0, |age| age.as_millis());
        let value = SenkoStats {
            size,
            file_bytes: now.file_bytes,
            live_bytes: now.live_bytes,
            free_bytes: now.free_bytes,
            cached_bytes: now.cached_bytes,
            commit: now.commit,
            durable: now.durable,
            commits: now.commits,
            conflicts: now.conflicts,
            page_reads: now.page_reads,
            checkpoint: now.checkpoint,
            open_snapshots: now.open_snapshots as u64,
            oldest_snapshot_ms: u64::try_from(oldest).unwrap_or(u64::MAX),
            pages_since_oldest: now.pages_since_oldest,
            bytes_put: now.bytes_put,
            bytes_written: now.bytes_written,
            bytes_discarded: now.bytes_discarded,
        };
        // SAFETY: the caller has `size` bytes there, of which no more are written than `value` has.
        // A newer program's further fields become zero.
        unsafe {
            let to = stats.cast::<u8>();
            let known = size.min(size_of::<SenkoStats>());
            to.copy_from((&raw const value).cast(), known);
            to.add(known).write_bytes(0, size - known);
        }
        Ok(())
    })
}

/// Calls a function with each open snapshot.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_snapshots(
    db: *mut SenkoDb,
    each: Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int>,
    arg: *mut c_void,
) -> c_int {
    let mut ended = 0;
    let done = guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { SenkoDb::of(db) }?;
        let each = each.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        let open = shared.db().stats().snapshots;
        for open in open {
            let age = u64::try_from(open.age.as_millis()).unwrap_or(u64::MAX);
            // SAFETY: the caller's function.
            ended = unsafe { each(arg, age, open.held_bytes) };
            if ended != 0 {
                break;
            }
        }
        Ok(())
    });
    if done == 0 { ended } else { done }
}

/// Reads and checks everything.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_verify(
    db: *mut SenkoDb,
    problem: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    arg: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let report = unsafe { SenkoDb::of(db) }?.db().verify()?;
        let sentence_of = |(table, error): &(String, senko_dbm::DbmError)| match &**table {
            "" => error.to_string(),
            table => format!("table {table}: {error}"),
        };
        for one in &report.problems {
            let sentence = CString::new(sentence_of(one)).unwrap_or_default();
            if let Some(problem) = problem {
                // SAFETY: the caller's function; the sentence lives until it returns.
                unsafe { problem(arg, sentence.as_ptr()) };
            }
        }
        match report.problems.first() {
            None => Ok(()),
            Some(one) => Err(Failure::with(DAMAGED, sentence_of(one))),
        }
    })
}

/// Copies everything that is committed into a new database.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_backup(
    db: *mut SenkoDb,
    to: *const c_char,
    progress: Option<unsafe extern "C" fn(*mut c_void, u64) -> c_int>,
    arg: *mut c_void,
) -> c_int {
    let mut ended = 0;
    let done = guard(|| {
        // SAFETY: the caller's promise.
        let (shared, to) = unsafe { (SenkoDb::of(db)?, string(to)?) };
        let to = Path::new(OsStr::from_bytes(to.to_bytes()));
        let going = |records| {
            // SAFETY: the caller's function.
            ended = progress.map_or(0, |progress| unsafe { progress(arg, records) });
            ended == 0
        };
        shared.db().backup(to, going)?;
        Ok(())
    });
    if ended != 0 { ended } else { done }
}

/// Finds or makes a table.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_table_open(
    db: *mut SenkoDb,
    name: *const c_char,
    flags: c_uint,
    table: *mut u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (shared, name) = unsafe { (SenkoDb::of(db)?, string(name)?) };
        let name = name
            .to_str()
            .map_err(|_| Failure::invalid("a table's name is UTF-8"))?;
        let found = match flags {
            0 => shared.db().table(name)?,
            CREATE => shared.db().create_table(name)?,
            _ => {
                return Err(Failure::invalid(format!(
                    "the flags {flags:#x} are not known"
                )));
            }
        };
        let mut tables = shared.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match tables.iter().position(|table| *table == found) {
            Some(number) => number,
            None => {
                tables.push(found);
                tables.len() - 1
            }
        };
        // SAFETY: the caller's promise.
        unsafe { give(table, number as u32) }
    })
}

/// Drops a table.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_table_drop(db: *mut SenkoDb, table: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { SenkoDb::of(db) }?;
        Ok(shared.db().drop_table(&shared.table(table)?)?)
    })
}

/// Calls a function with the name of each table.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_tables(
    db: *mut SenkoDb,
    each: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>,
    arg: *mut c_void,
) -> c_int {
    let mut ended = 0;
    let done = guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { SenkoDb::of(db) }?;
        let each = each.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        for table in shared.db().tables() {
            // A name from a Rust program may have a zero byte; it ends there.
            let name = table.name().split('\0').next().unwrap_or_default();
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: the caller's function; the name lives until it returns.
            ended = unsafe { each(arg, name.as_ptr()) };
            if ended != 0 {
                break;
            }
        }
        Ok(())
    });
    if done == 0 { ended } else { done }
}

/// Counts the records of a table.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_count(db: *mut SenkoDb, table: u32, count: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let shared = unsafe { SenkoDb::of(db) }?;
        let found = shared.db().snapshot().count(&shared.table(table)?)?;
        // SAFETY: the caller's promise.
        unsafe { give(count, found) }
    })
}
