// SPDX-License-Identifier: Apache-2.0
//! RocksDB by its C interface (Debian's librocksdb-dev, or the library in `SENKO_ROCKSDB`), with
//! the settings of an expert for random reads of a device.
//!
//! Blocks of 4 KiB, whole-key Bloom filters of 16 bits, direct reads, direct flushes and
//! compactions, no compression, a cache of blocks. Indexes and filters stay in memory as long as a
//! file is open, which is RocksDB's default and its fastest setting. Lazy durability is its own
//! buffer of the log (`manual_wal_flush`). Concurrent reads need as many threads, because Debian's
//! build has no io_uring and does reads of several keys one after another.
//!
//! Always holds: every pointer of this file comes from the library and is freed once, by its
//! owner's drop.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use senko_lab::kv::{Durability, Engine, Maker, Tuning};
use serde_json::{Map, Value};

/// The C interface, as far as it is used.
mod c {
    use std::ffi::{c_char, c_int, c_uchar};

    macro_rules! opaque {
        ($($name:ident),*) => { $(
            #[repr(C)]
            pub struct $name { _private: [u8; 0] }
        )* };
    }
    opaque!(
        Db,
        Options,
        TableOptions,
        Filter,
        Cache,
        ReadOptions,
        WriteOptions,
        FlushOptions,
        Batch,
        Slice
    );

    #[link(name = "rocksdb")]
    unsafe extern "C" {
        pub fn rocksdb_open(o: *const Options, name: *const c_char, e: *mut *mut c_char)
        -> *mut Db;
        pub fn rocksdb_close(db: *mut Db);
        pub fn rocksdb_put(
            db: *mut Db,
            o: *const WriteOptions,
            key: *const c_char,
            key_len: usize,
            value: *const c_char,
            value_len: usize,
            e: *mut *mut c_char,
        );
        pub fn rocksdb_write(
            db: *mut Db,
            o: *const WriteOptions,
            batch: *mut Batch,
            e: *mut *mut c_char,
        );
        pub fn rocksdb_get_pinned(
            db: *mut Db,
            o: *const ReadOptions,
            key: *const c_char,
            key_len: usize,
            e: *mut *mut c_char,
        ) -> *mut Slice;
        pub fn rocksdb_pinnableslice_value(s: *const Slice, len: *mut usize) -> *const c_char;
        pub fn rocksdb_pinnableslice_destroy(s: *mut Slice);
        pub fn rocksdb_writebatch_create() -> *mut Batch;
        pub fn rocksdb_writebatch_destroy(b: *mut Batch);
        pub fn rocksdb_writebatch_put(
            b: *mut Batch,
            key: *const c_char,
            key_len: usize,
            value: *const c_char,
            value_len: usize,
        );
        pub fn rocksdb_flush(db: *mut Db, o: *const FlushOptions, e: *mut *mut c_char);
        pub fn rocksdb_flush_wal(db: *mut Db, sync: c_uchar, e: *mut *mut c_char);
        pub fn rocksdb_property_int(db: *mut Db, name: *const c_char, out: *mut u64) -> c_int;
        pub fn rocksdb_free(p: *mut c_char);

        pub fn rocksdb_options_create() -> *mut Options;
        pub fn rocksdb_options_destroy(o: *mut Options);
        pub fn rocksdb_options_set_create_if_missing(o: *mut Options, v: c_uchar);
        pub fn rocksdb_options_set_max_background_jobs(o: *mut Options, v: c_int);
        pub fn rocksdb_options_set_compression(o: *mut Options, v: c_int);
        pub fn rocksdb_options_set_write_buffer_size(o: *mut Options, v: usize);
        pub fn rocksdb_options_set_max_write_buffer_number(o: *mut Options, v: c_int);
        pub fn rocksdb_options_set_target_file_size_base(o: *mut Options, v: u64);
        pub fn rocksdb_options_set_max_bytes_for_level_base(o: *mut Options, v: u64);
        pub fn rocksdb_options_set_level_compaction_dynamic_level_bytes(
            o: *mut Options,
            v: c_uchar,
        );
        pub fn rocksdb_options_set_manual_wal_flush(o: *mut Options, v: c_uchar);
        pub fn rocksdb_options_set_use_direct_reads(o: *mut Options, v: c_uchar);
        pub fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
            o: *mut Options,
            v: c_uchar,
        );
        pub fn rocksdb_options_set_block_based_table_factory(o: *mut Options, t: *mut TableOptions);

        pub fn rocksdb_block_based_options_create() -> *mut TableOptions;
        pub fn rocksdb_block_based_options_destroy(t: *mut TableOptions);
        pub fn rocksdb_block_based_options_set_block_size(t: *mut TableOptions, v: usize);
        pub fn rocksdb_block_based_options_set_format_version(t: *mut TableOptions, v: c_int);
        pub fn rocksdb_block_based_options_set_data_block_index_type(
            t: *mut TableOptions,
            v: c_int,
        );
        pub fn rocksdb_block_based_options_set_filter_policy(t: *mut TableOptions, f: *mut Filter);
        pub fn rocksdb_block_based_options_set_block_cache(t: *mut TableOptions, c: *mut Cache);
        pub fn rocksdb_filterpolicy_create_bloom_full(bits: f64) -> *mut Filter;
        pub fn rocksdb_cache_create_lru(capacity: usize) -> *mut Cache;
        pub fn rocksdb_cache_destroy(c: *mut Cache);

        pub fn rocksdb_readoptions_create() -> *mut ReadOptions;
        pub fn rocksdb_readoptions_destroy(o: *mut ReadOptions);
        pub fn rocksdb_writeoptions_create() -> *mut WriteOptions;
        pub fn rocksdb_writeoptions_destroy(o: *mut WriteOptions);
        pub fn rocksdb_writeoptions_set_sync(o: *mut WriteOptions, v: c_uchar);
        pub fn rocksdb_flushoptions_create() -> *mut FlushOptions;
        pub fn rocksdb_flushoptions_destroy(o: *mut FlushOptions);
    }
}

/// Bits of a Bloom filter for each key: as many as Senko's index has, so that neither engine trades
/// memory for fewer reads.
const BLOOM_BITS: f64 = 16.0;
/// Bytes of a block, the device's page.
const BLOCK: usize = 4096;
/// Tables in memory, one of which is filled.
const TABLES: c_int = 2;
/// Threads that flush and compact.
const JOBS: c_int = 2;

pub struct RocksDb;

/// Bytes of a table in memory: what the tuning names, but no more than an eighth of the memory for
/// each.
fn table_bytes(tuning: &Tuning) -> u64 {
    tuning.block_bytes.min(tuning.memory / 8).max(1 << 20)
}

impl Maker for RocksDb {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn describe(&self, tuning: &Tuning) -> String {
        format!(
            "RocksDB {} by its C interface: Bloom filters of {BLOOM_BITS} bits, blocks of {BLOCK} B with a hash index, direct reads, \
             flushes and compactions, no compression, cache {} MiB, {TABLES} tables of {} MiB in memory, {JOBS} background jobs",
            version(tuning).unwrap_or("of unknown version".to_owned()),
            tuning.cache >> 20,
            table_bytes(tuning) >> 20
        )
    }

    fn open(&self, folder: &Path, tuning: &Tuning) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Open::new(folder, tuning)?))
    }
}

/// The library's version. Only the log of a database tells it, so one is made and removed.
fn version(tuning: &Tuning) -> Result<String> {
    let folder = std::env::temp_dir().join(format!("senko-rocksdb-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let log = Open::new(&folder, tuning).and_then(|open| {
        drop(open);
        Ok(std::fs::read_to_string(folder.join("LOG"))?)
    });
    std::fs::remove_dir_all(&folder)?;
    let log = log?;
    let version = log
        .lines()
        .find_map(|line| line.split_once("RocksDB version: "));
    Ok(version.context("the log has no version")?.1.to_owned())
}

/// An open database.
struct Open {
    db: *mut c::Db,
    cache: *mut c::Cache,
    read: *mut c::ReadOptions,
    write: *mut c::WriteOptions,
    flush: *mut c::FlushOptions,
}

// SAFETY: the library's database, cache and options are made to be used from many threads at once;
// the pointers themselves never change.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

/// Turns an error text of the library into an error, and frees it.
fn fine(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library gives a C string that is ours to free.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        c::rocksdb_free(error);
        text
    };
    Err(anyhow!("RocksDB says: {text}"))
}

/// The address of bytes, as the library wants it.
fn at(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// A value that the library holds.
struct Pinned(*mut c::Slice);

impl Pinned {
    fn bytes(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the slice is alive until it is dropped, and has this many bytes.
        unsafe {
            let start = c::rocksdb_pinnableslice_value(self.0, &mut len);
            std::slice::from_raw_parts(start.cast(), len)
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the library gave it, and it is given back once.
        unsafe { c::rocksdb_pinnableslice_destroy(self.0) }
    }
}

impl Open {
    fn new(folder: &Path, tuning: &Tuning) -> Result<Open> {
        let name = CString::new(folder.as_os_str().as_bytes())
            .context("the folder's name has a byte of zero")?;
        let yes: c_uchar = 1;
        let lazy = c_uchar::from(tuning.durability == Durability::Lazy);
        let sync = c_uchar::from(tuning.durability == Durability::Power);
        let size =
            |bytes: u64| usize::try_from(bytes).context("more memory than there are addresses");
        let (table, cache_bytes) = (size(table_bytes(tuning))?, size(tuning.cache)?);
        let mut error = ptr::null_mut();
        // SAFETY: the library makes and frees options and cache. The filter policy belongs to the
        // table options once they have it. The database copies options and table options, and
        // shares the cache.
        let open = unsafe {
            let cache = c::rocksdb_cache_create_lru(cache_bytes);
            let of_table = c::rocksdb_block_based_options_create();
            c::rocksdb_block_based_options_set_block_size(of_table, BLOCK);
            c::rocksdb_block_based_options_set_format_version(of_table, 5);
            c::rocksdb_block_based_options_set_data_block_index_type(of_table, 1);
            c::rocksdb_block_based_options_set_filter_policy(
                of_table,
                c::rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS),
            );
            c::rocksdb_block_based_options_set_block_cache(of_table, cache);
            let options = c::rocksdb_options_create();
            c::rocksdb_options_set_create_if_missing(options, yes);
            c::rocksdb_options_set_max_background_jobs(options, JOBS);
            c::rocksdb_options_set_compression(options, 0);
            c::rocksdb_options_set_write_buffer_size(options, table);
            c::rocksdb_options_set_max_write_buffer_number(options, TABLES);
            c::rocksdb_options_set_target_file_size_base(options, tuning.block_bytes);
            c::rocksdb_options_set_max_bytes_for_level_base(options, tuning.block_bytes * 4);
            c::rocksdb_options_set_level_compaction_dynamic_level_bytes(options, yes);
            c::rocksdb_options_set_manual_wal_flush(options, lazy);
            c::rocksdb_options_set_use_direct_reads(options, yes);
            c::rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, yes);
            c::rocksdb_options_set_block_based_table_factory(options, of_table);
            let db = c::rocksdb_open(options, name.as_ptr(), &mut error);
            c::rocksdb_options_destroy(options);
            c::rocksdb_block_based_options_destroy(of_table);
            let write = c::rocksdb_writeoptions_create();
            c::rocksdb_writeoptions_set_sync(write, sync);
            Open {
                db,
                cache,
                read: c::rocksdb_readoptions_create(),
                write,
                flush: c::rocksdb_flushoptions_create(),
            }
        };
        fine(error)?;
        if open.db.is_null() {
            bail!("RocksDB opened nothing and gave no reason");
        }
        Ok(open)
    }

    fn number(&self, property: &CStr) -> Option<u64> {
        let mut number = 0;
        // SAFETY: the database is open, the name is a C string, and the number is ours.
        let missing = unsafe { c::rocksdb_property_int(self.db, property.as_ptr(), &mut number) };
        (missing == 0).then_some(number)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: each was made by the library, nothing uses them any more, and each is given back
        // once. The database comes first: it uses the cache.
        unsafe {
            if !self.db.is_null() {
                c::rocksdb_close(self.db);
            }
            c::rocksdb_cache_destroy(self.cache);
            c::rocksdb_readoptions_destroy(self.read);
            c::rocksdb_writeoptions_destroy(self.write);
            c::rocksdb_flushoptions_destroy(self.flush);
        }
    }
}

impl Engine for Open {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the database is open; key and value are read during the call alone.
        unsafe {
            c::rocksdb_put(
                self.db,
                self.write,
                at(key),
                key.len(),
                at(value),
                value.len(),
                &mut error,
            );
        }
        fine(error)
    }

    fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the batch is made, filled with copies and freed here; the database is open.
        unsafe {
            let batch = c::rocksdb_writebatch_create();
            for (key, value) in pairs {
                c::rocksdb_writebatch_put(batch, at(key), key.len(), at(value), value.len());
            }
            c::rocksdb_write(self.db, self.write, batch, &mut error);
            c::rocksdb_writebatch_destroy(batch);
        }
        fine(error)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let mut error = ptr::null_mut();
        // SAFETY: the database is open; the key is read during the call alone.
        let found =
            unsafe { c::rocksdb_get_pinned(self.db, self.read, at(key), key.len(), &mut error) };
        fine(error)?;
        if found.is_null() {
            return Ok(false);
        }
        value.extend_from_slice(Pinned(found).bytes());
        Ok(true)
    }

    fn settle(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the database is open.
        unsafe { c::rocksdb_flush(self.db, self.flush, &mut error) };
        fine(error)?;
        self.sync()?;
        loop {
            let left: u64 = [
                c"rocksdb.compaction-pending",
                c"rocksdb.num-running-compactions",
                c"rocksdb.num-running-flushes",
                c"rocksdb.mem-table-flush-pending",
            ]
            .into_iter()
            .filter_map(|name| self.number(name))
            .sum();
            if left == 0 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn sync(&self) -> Result<()> {
        let mut error = ptr::null_mut();
        // SAFETY: the database is open.
        unsafe { c::rocksdb_flush_wal(self.db, 1, &mut error) };
        fine(error)
    }

    fn facts(&self) -> Result<Map<String, Value>> {
        let mut facts = Map::new();
        let readers = self.number(c"rocksdb.estimate-table-readers-mem");
        facts.insert("dram_bytes".into(), readers.into());
        for (name, property) in [
            ("memory_tables", c"rocksdb.cur-size-all-mem-tables"),
            ("block_cache", c"rocksdb.block-cache-usage"),
            ("file_bytes", c"rocksdb.total-sst-files-size"),
            ("live_bytes", c"rocksdb.estimate-live-data-size"),
        ] {
            facts.insert(name.into(), self.number(property).into());
        }
        Ok(facts)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}
