// SPDX-License-Identifier: Apache-2.0
//! The store's public interface.

pub(crate) mod backup;
pub(crate) mod conditional; // compare and swap, update
pub(crate) mod repair; // saves what is whole of a damaged store
pub(crate) mod shrink; // gives space back to the file system
pub(crate) mod stats;
mod upkeep; // compaction and backup on request
pub(crate) mod verify;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use senko_io::{Device, FileOptions, FlashFile};

use crate::background::jobs::Threads;
use crate::core::Core;
use crate::core::state::counters::Counters;
use crate::options::check_key;
use crate::read::scan::Scan;
use crate::read::snapshot::Snapshot;
use crate::read::value::{Entry, KeyVersion, Value};
use crate::store::stats::Stats;
use crate::{Batch, Options, StoreError, WriteOptions};

/// An open store: cheap to clone, used from any thread.
///
/// ```
/// # let store = senko_store::example::store();
/// store.put(b"colour", b"green")?;
/// let clone = store.clone();
/// std::thread::spawn(move || clone.delete(b"colour")).join().unwrap()?;
/// assert_eq!(store.get(b"colour")?, None);
/// store.close()?;
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone)]
pub struct Store {
    pub(crate) core: Arc<Core>,
    /// Ends the background threads when the last clone is dropped.
    guard: Arc<Guard>,
}

struct Guard {
    core: Arc<Core>,
    threads: Mutex<Option<Threads>>,
}

impl Guard {
    fn stop(&self) {
        if let Some(threads) = self.threads.lock().take() {
            threads.join(&self.core);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop();
        // Writes the elements that were only in memory. No caller is left who could get an error.
        if !self.core.health.is_closed() && !self.core.health.is_latched() {
            let _ = self.core.sync();
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("options", &self.core.options)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in a file or on a block device, or creates it.
    ///
    /// ```
    /// use senko_store::{Options, Store};
    /// # let folder = std::env::temp_dir().join(format!("senko-doc-open-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let path = folder.join("kv");
    /// let small = Options { block_bytes: 1 << 20, ..Options::default() };
    /// Store::open(&path, small)?.close()?;
    /// let reader = Store::open(&path, Options { read_only: true, ..Options::default() })?;
    /// assert_eq!(reader.options().block_bytes, 1 << 20);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The file is missing, not a store, or of a newer version. Another process holds it (the error
    /// has its process id). It is damaged (the error has the byte in the file). A setting cannot be
    /// used. The error is one sentence in each case.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Store, StoreError> {
        let path = path.as_ref();
        // The process may change its folder meanwhile.
        let place = std::path::absolute(path);
        let place = place.map_err(StoreError::open)?;
        // Checked before the file is created.
        let checked = options.clone().checked()?;
        let existing = crate::open::look_at(path)?;
        let makes = options.create && !options.read_only;
        let bytes = match &existing {
            None if !makes => return Err(crate::open::none_at(path)),
            Some(meta) if meta.is_file() && meta.len() > 0 => {
                crate::open::check_length(meta)?;
                0
            }
            Some(meta) if !meta.is_file() => 0,
            Some(_) if !makes => {
                let text = "it is empty".to_owned();
                return Err(StoreError::Foreign(text));
            }
            _ => {
                checked.check_bound()?;
                crate::extent::UNIT_BYTES
            }
        };
        let file = FileOptions {
            bytes,
            whole: true,
            read_only: options.read_only,
            recorder: options.recorder.clone().map(|recorder| (recorder, 0)),
            ..FileOptions::default()
        };
        let file = FlashFile::open(path, &file).map_err(StoreError::open)?;
        let fresh = file.found_pages() == 0;
        let file = Arc::new(file);
        let opened = Store::open_device(file.clone(), options);
        if opened.is_err() && fresh {
            // The file was empty when it was locked, and is still locked. So it holds only an
            // unfinished store.
            let cleared = match existing {
                None => std::fs::remove_file(&place),
                Some(_) => std::fs::File::create(&place).map(drop),
            };
            // Returns the reason why the store could not be made, not an error of the clean-up.
            let _ = cleared;
        }
        opened
    }

    /// Opens the store on a device, or creates it.
    ///
    /// ```
    /// let device = senko_io::faulty::FaultyDevice::new(16_384, 1); // 64 MiB in memory, for tests
    /// let small = senko_store::Options { block_bytes: 1 << 20, ..senko_store::Options::default() };
    /// let store = senko_store::Store::open_device(device, small)?;
    /// store.put(b"key", b"value")?;
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_device(device: Arc<dyn Device>, options: Options) -> Result<Store, StoreError> {
        let core = Arc::new(crate::open::open(device, options)?);
        let threads = if core.options.background && !core.options.read_only {
            let started = Threads::start(&core);
            Some(started.map_err(StoreError::open)?)
        } else {
            None
        };
        Ok(Store {
            guard: Arc::new(Guard {
                core: Arc::clone(&core),
                threads: Mutex::new(threads),
            }),
            core,
        })
    }

    /// Puts a value; returns its time. The write was handed to the device when this returns
    /// ([`crate::Durability::Buffered`]).
    ///
    /// # Errors
    /// The key or value is too long, there is no space, or the store accepts no writes.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<u64, StoreError> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// Puts a value that expires, or with a chosen durability.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// use std::time::Duration;
    /// let hour = senko_store::WriteOptions {
    ///     ttl: Some(Duration::from_secs(3600)),
    ///     ..senko_store::WriteOptions::synced()
    /// };
    /// store.put_with(b"session", b"of an hour", hour)?;
    /// assert!(store.get_entry(b"session")?.unwrap().expires_at > 0);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_with(
        &self,
        key: &[u8],
        value: &[u8],
        options: WriteOptions,
    ) -> Result<u64, StoreError> {
        self.core.write_one(key, Some(value), options)
    }

    /// Deletes a key, whether it exists or not; returns the time.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// store.delete(b"colour")?;
    /// assert!(!store.contains(b"colour")?);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete(&self, key: &[u8]) -> Result<u64, StoreError> {
        self.delete_with(key, WriteOptions::default())
    }

    /// Deletes a key with a chosen durability.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete_with(&self, key: &[u8], options: WriteOptions) -> Result<u64, StoreError> {
        self.core.write_one(key, None, options)
    }

    /// Applies a batch as a whole: after a crash, all of it or nothing is there. Its writes share
    /// one time, which is returned.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// let mut batch = senko_store::Batch::new();
    /// batch.put(b"from", b"90").put(b"to", b"110");
    /// let time = store.write(&batch, senko_store::WriteOptions::synced())?;
    /// assert_eq!(store.get_entry(b"to")?.unwrap().time, time);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`]; [`StoreError::BatchTooLarge`] if it does not fit into a log.
    pub fn write(&self, batch: &Batch, options: WriteOptions) -> Result<u64, StoreError> {
        self.core.write_batch(batch, options)
    }

    /// The value of a key.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// assert_eq!(store.get(b"colour")?.as_deref(), Some(&b"green"[..]));
    /// assert_eq!(store.get(b"shape")?, None);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The device fails, or the value is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// The value of a key, with its times.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// let time = store.put(b"colour", b"green")?;
    /// let entry = store.get_entry(b"colour")?.unwrap();
    /// assert_eq!((entry.time, entry.expires_at), (time, 0));
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        let (version, terms) = self.core.present();
        self.core.get_in(&version, key, terms, None)
    }

    /// Whether the key has a value. It costs as much as [`Store::get`], except for large values.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool, StoreError> {
        check_key(key)?;
        let (version, terms) = self.core.present();
        let found = self.core.find(&version, key, terms)?;
        Ok(found.is_some_and(|found| self.core.has_value(&found, None)))
    }

    /// The values of many keys at one moment, with up to 64 concurrent reads.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// let values = store.multi_get(&[b"colour", b"shape"]);
    /// assert_eq!(values[0].as_ref().unwrap().as_deref(), Some(&b"green"[..]));
    /// assert!(matches!(values[1], Ok(None)));
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    pub fn multi_get(&self, keys: &[&[u8]]) -> Vec<Result<Option<Value>, StoreError>> {
        let (version, terms) = self.core.present();
        self.core.multi_get_in(&version, keys, terms, None)
    }

    /// Gets keys from an iterator, with up to `depth` reads (1 to 64) under way at any time. It
    /// calls `each` with every key as soon as its value is known, in any order. Each value is the
    /// one at some time between the call and the key's answer. Unlike with [`Store::multi_get`],
    /// the device is never idle between two groups of keys.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// for number in 0..1000u32 {
    ///     store.put(&number.to_le_bytes(), b"here")?;
    /// }
    /// let mut found = 0;
    /// store.get_each((0..2000u32).map(u32::to_le_bytes), 32, |_number, value| {
    ///     found += u32::from(value.is_ok_and(|value| value.is_some()));
    /// });
    /// assert_eq!(found, 1000);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    pub fn get_each<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        depth: usize,
        each: impl FnMut(K, Result<Option<Value>, StoreError>),
    ) {
        let keys = keys.into_iter().fuse();
        let see = || self.core.present();
        self.core.get_many(keys, depth, see, None, each);
    }

    /// The value that a key had at `time` (microseconds since 1970), if it is kept. The result is
    /// `None` if more than [`Options::keep_versions`] versions came since. It may be `None` if the
    /// value has expired by now, because the space of expired values is reclaimed.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// let time = store.put(b"colour", b"green")?; // in a store that keeps three versions
    /// store.put(b"colour", b"blue")?;
    /// assert_eq!(store.get_at(b"colour", time)?.as_deref(), Some(&b"green"[..]));
    /// assert_eq!(store.get_at(b"colour", time - 1)?, None);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_at(&self, key: &[u8], time: u64) -> Result<Option<Value>, StoreError> {
        // Held to the end, so that a large value stays in place.
        let (version, terms) = self.core.present();
        let found = self.core.version_at(&version, key, time, terms.at)?;
        let seconds = (time / 1_000_000).min(self.core.options.clock.seconds());
        let found = found.filter(|found| self.core.has_value(found, Some(seconds)));
        Counters::add(&self.core.counters.gets, 1);
        Counters::add(&self.core.counters.hits, u64::from(found.is_some()));
        found.map(|found| self.core.value_of(found)).transpose()
    }

    /// The kept versions of a key, newest first, including deletions; at most
    /// [`Options::keep_versions`].
    ///
    /// An expired version stays on the list like any other, with its times. But its space is
    /// reclaimed, so sooner or later its value is gone ([`crate::KeyVersion::value`]). A key whose
    /// only version has expired disappears like a deleted key.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?; // in a store that keeps three versions
    /// store.delete(b"colour")?;
    /// let history = store.history(b"colour")?;
    /// assert_eq!(history[0].value, None);
    /// assert_eq!(history[1].value.as_deref(), Some(&b"green"[..]));
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn history(&self, key: &[u8]) -> Result<Vec<KeyVersion>, StoreError> {
        let (version, terms) = self.core.present();
        self.core.history(&version, key, terms.at)
    }

    /// Everything in the store at this moment, in an order without meaning; writes continue
    /// meanwhile.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// for entry in store.scan()? {
    ///     let entry = entry?;
    ///     println!("{:?}: {} bytes", entry.key, entry.value.len());
    /// }
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The device fails.
    pub fn scan(&self) -> Result<Scan, StoreError> {
        self.snapshot()?.scan()
    }

    /// A snapshot of the store, which can be read while writes continue.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// let before = store.snapshot()?;
    /// store.put(b"colour", b"green")?;
    /// assert_eq!(before.get(b"colour")?, None);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// None at present.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Ok(Snapshot::new(&self.core))
    }

    /// Makes every earlier write durable.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// # use senko_store::{Durability, WriteOptions};
    /// let fast = WriteOptions { durability: Durability::None, ..WriteOptions::default() };
    /// for number in 0u32..100 {
    ///     store.put_with(&number.to_le_bytes(), b"value", fast)?;
    /// }
    /// store.sync()?; // one flush for all of them
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// The device fails; the store accepts no writes from then on.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.core.sync()
    }

    /// The settings in force: those of this opening, and those fixed when the store was created.
    pub fn options(&self) -> &Options {
        &self.core.options
    }

    /// Whether this opening created the store.
    pub fn is_new(&self) -> bool {
        self.core.opened.made
    }

    /// Counts and sizes.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.core)
    }

    /// Ends the background, makes every write durable, and saves the maps, so that the next opening
    /// need not build them. A store that is dropped instead keeps its writes too, but opens more
    /// slowly. Clones and snapshots can still read.
    ///
    /// # Errors
    /// The device fails.
    pub fn close(self) -> Result<(), StoreError> {
        // Set first, so that writers who wait for the background get the error of a closed store,
        // not of missing space.
        let closed = self.core.health.close();
        self.guard.stop();
        if closed || self.core.options.read_only {
            return Ok(());
        }
        crate::open::close(&self.core)
    }
}
