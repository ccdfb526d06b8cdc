// SPDX-License-Identifier: Apache-2.0
//! Writes that depend on the current value: compare and swap, update. It also counts the keys.
//!
//! The value is read without a lock. Then the write takes the writer's lock. If anything was
//! written since the read, it checks that the key still has the version that was read. If the key
//! has another version, the whole operation starts again. So one of several writers always makes
//! progress. A change that itself writes to the key would start again for ever, so the tries end.

use std::borrow::Cow;
use std::sync::Arc;

use crate::core::Core;
use crate::options::check_key;
use crate::read::snapshot::{Snapshot, again_if_ended};
use crate::read::value::Value;
use crate::write::Write;
use crate::{Store, StoreError, WriteOptions};

/// The most tries of a conditional write. Of 32 threads that change one key all the time, none gets
/// there. (The DBM ends after a hundred: its transactions wait for each other's commits.)
const MOST_TRIES: u32 = 1000;

/// The state that a conditional write was computed from.
struct Seen {
    /// Every write up to this time was visible to the read.
    at: u64,
    /// The time of the key's newest version, also if this is a deletion or has expired; none if the
    /// key has no version.
    version: Option<u64>,
    /// Its value, unless it is deleted or has expired.
    value: Option<Value>,
}

/// The effect of a write on a key.
enum Next<'v> {
    /// The key stays as it is.
    Nothing,
    /// Puts a value; `None` deletes the key.
    Write(Option<Cow<'v, [u8]>>),
}

impl Core {
    fn see(&self, key: &[u8]) -> Result<Seen, StoreError> {
        check_key(key)?;
        // Held to the end, so that a large value stays in place.
        let (version, terms) = self.present();
        let at = terms.at;
        let found = self.find(&version, key, terms)?;
        let newest = found.as_ref().map(|found| found.time);
        let found = found.filter(|found| self.has_value(found, None));
        let value = found.map(|found| self.value_of(found)).transpose()?;
        Ok(Seen {
            at,
            version: newest,
            value,
        })
    }

    /// Whether a key has another version than the one that was seen. The caller holds the writer's
    /// lock.
    fn changed_since(&self, key: &[u8], seen: &Seen) -> Result<bool, StoreError> {
        if self.view.visible() == seen.at {
            return Ok(false);
        }
        let (version, terms) = self.present();
        let found = self.find(&version, key, terms)?;
        Ok(found.map(|found| found.time) != seen.version)
    }

    /// Writes what `next` computes from the value. It tries again until no other write came
    /// between.
    fn write_on_seen<'v>(
        &self,
        key: &[u8],
        options: WriteOptions,
        mut next: impl FnMut(Option<&[u8]>) -> Next<'v>,
    ) -> Result<Option<u64>, StoreError> {
        for _ in 0..MOST_TRIES {
            let seen = self.see(key)?;
            let Next::Write(value) = next(seen.value.as_deref()) else {
                return Ok(None);
            };
            let write = Write {
                hash: self.hasher.hash(key),
                key,
                value: value.as_deref(),
                expires_at: None,
            };
            let changed = || self.changed_since(key, &seen);
            if let Some(time) = self.write_unless(&mut [write], options, changed)? {
                return Ok(Some(time));
            }
        }
        Err(StoreError::Conflict)
    }

    /// Counts the keys that have a value now; it stops at `most`. The snapshot is this call's own.
    /// If a write needs its space, the count begins again.
    fn count_keys(self: &Arc<Core>, most: u64) -> Result<u64, StoreError> {
        again_if_ended(|| {
            let mut scan = Snapshot::new(self).scan()?;
            let mut keys = 0;
            while keys < most && scan.next_key()?.is_some() {
                keys += 1;
            }
            Ok(keys)
        })
    }
}

impl Store {
    /// Puts `new` if the key has the value `expected`. In both arguments `None` means that the key
    /// has no value. It returns the time of the write, or `None` if the key has another value. No
    /// other write to the key comes in between.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// assert!(store.compare_and_swap(b"lock", None, Some(b"mine"))?.is_some());
    /// assert!(store.compare_and_swap(b"lock", None, Some(b"theirs"))?.is_none());
    /// assert!(store.compare_and_swap(b"lock", Some(b"mine"), None)?.is_some());
    /// assert!(!store.contains(b"lock")?);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`].
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Option<u64>, StoreError> {
        self.compare_and_swap_with(key, expected, new, WriteOptions::default())
    }

    /// Like [`Store::compare_and_swap`], but the value may expire, and the caller chooses the
    /// durability.
    ///
    /// # Errors
    /// As [`Store::compare_and_swap`].
    pub fn compare_and_swap_with(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<Option<u64>, StoreError> {
        self.core.write_on_seen(key, options, |old| {
            if old == expected {
                Next::Write(new.map(Cow::Borrowed))
            } else {
                Next::Nothing
            }
        })
    }

    /// Replaces a key's value by what `change` computes from it, and returns the time of the write.
    /// `change` gets `None` if the key has no value, and returns `None` to delete the key. If
    /// another write to the key comes in between, `change` is called again with the newer value. So
    /// `change` should have no side effects.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// for _ in 0..3 {
    ///     store.update(b"visits", |old| {
    ///         let visits = old.map_or(0, |old| old[0]);
    ///         Some(vec![visits + 1])
    ///     })?;
    /// }
    /// assert_eq!(store.get(b"visits")?.as_deref(), Some(&[3][..]));
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`]. [`StoreError::Conflict`] after a thousand tries, which
    /// happens if `change` itself writes to the key.
    pub fn update(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<u64, StoreError> {
        self.update_with(key, WriteOptions::default(), change)
    }

    /// Like [`Store::update`], but the value may expire, and the caller chooses the durability.
    ///
    /// # Errors
    /// As [`Store::update`].
    pub fn update_with(
        &self,
        key: &[u8],
        options: WriteOptions,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<u64, StoreError> {
        let next = |old: Option<&[u8]>| Next::Write(change(old).map(Cow::Owned));
        let written = self.core.write_on_seen(key, options, next)?;
        Ok(written.unwrap_or_else(|| self.core.view.visible()))
    }

    /// How many keys have a value at this moment, exactly. It reads the whole store except large
    /// values, as [`Store::scan`] does. [`crate::Stats`] has estimates that need no reads.
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"colour", b"green")?;
    /// store.put(b"colour", b"blue")?;
    /// store.put(b"shape", b"round")?;
    /// store.delete(b"shape")?;
    /// assert_eq!(store.len()?, 1);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn len(&self) -> Result<u64, StoreError> {
        self.core.count_keys(u64::MAX)
    }

    /// Whether no key has a value. It stops reading at the first key that has one.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.core.count_keys(1)? == 0)
    }
}
