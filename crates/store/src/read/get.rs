// SPDX-License-Identifier: Apache-2.0
//! Gets of one key or many, in a version and within limits. `store.rs` and `snapshot.rs` call
//! these.

use std::sync::Arc;

use crate::StoreError;
use crate::cache::hit::Hit;
use crate::cache::record_cache::RecordCache;
use crate::core::Core;
use crate::core::state::counters::Counters;
use crate::core::version::Version;
use crate::element::{ExtentRef, LARGE, TOMBSTONE};
use crate::options::check_key;
use crate::read::lookup::Terms;
use crate::read::value::{Entry, Value};

/// A key and its place among the requested keys.
struct Placed<'k> {
    place: usize,
    key: &'k [u8],
}

impl AsRef<[u8]> for Placed<'_> {
    fn as_ref(&self) -> &[u8] {
        self.key
    }
}

impl Core {
    /// The current version, and the limits of a look-up in it. Each get is bounded by the present
    /// moment. Otherwise a get could see a write that a later snapshot does not show.
    pub fn present(&self) -> (Arc<Version>, Terms<'_>) {
        // Taken before the version (RECORD-4 of the cache).
        let ticket = self.cache.as_ref().map(RecordCache::ticket);
        let (version, at) = self.view.moment();
        let terms = Terms {
            ticket,
            ..self.bounded(at)
        };
        (version, terms)
    }

    /// The limits of a look-up that sees the state of a given time.
    pub fn bounded(&self, at: u64) -> Terms<'_> {
        Terms {
            at,
            keep_versions: self.options.keep_versions,
            cache: self.cache.as_ref(),
            ticket: None,
        }
    }

    /// The newest version of a key within the limits, a deletion too.
    pub fn find(
        &self,
        version: &Version,
        key: &[u8],
        terms: Terms<'_>,
    ) -> Result<Option<Hit>, StoreError> {
        crate::read::one(&*self.device, version, key, self.hasher.hash(key), terms)
    }

    /// Whether a version is a value that has not expired, now or at `seconds`.
    pub fn has_value(&self, found: &Hit, seconds: Option<u64>) -> bool {
        let expired = || found.expiry <= seconds.unwrap_or_else(|| self.options.clock.seconds());
        found.flags & TOMBSTONE == 0 && (found.expiry == 0 || !expired())
    }

    /// The value of an element that was found.
    pub fn value_of(&self, found: Hit) -> Result<Value, StoreError> {
        if found.flags & LARGE == 0 {
            return Ok(Value(found.value));
        }
        let place = ExtentRef::decode(&found.value).ok_or_else(|| {
            StoreError::damaged(0, "the reference to a large value cannot be read")
        })?;
        crate::disk::large::read(&*self.device, &place).map(Value)
    }

    /// A key's value in a version; `seconds` decides whether it has expired; without it, the clock
    /// does.
    pub fn get_in(
        &self,
        version: &Version,
        key: &[u8],
        terms: Terms<'_>,
        seconds: Option<u64>,
    ) -> Result<Option<Entry>, StoreError> {
        check_key(key)?;
        Counters::add(&self.counters.gets, 1);
        let Some(found) = self
            .find(version, key, terms)?
            .filter(|found| self.has_value(found, seconds))
        else {
            return Ok(None);
        };
        Counters::add(&self.counters.hits, 1);
        Ok(Some(Entry {
            key: key.to_vec(),
            time: found.time,
            expires_at: found.expiry,
            value: self.value_of(found)?,
        }))
    }

    /// The values of many keys in a version.
    pub fn multi_get_in(
        &self,
        version: &Arc<Version>,
        keys: &[&[u8]],
        terms: Terms<'_>,
        seconds: Option<u64>,
    ) -> Vec<Result<Option<Value>, StoreError>> {
        let mut values: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        let keys = keys
            .iter()
            .enumerate()
            .map(|(place, &key)| Placed { place, key });
        let see = || (Arc::clone(version), terms);
        self.get_many(
            keys,
            crate::read::MOST_DEPTH,
            see,
            seconds,
            |placed, value| {
                values[placed.place] = value;
            },
        );
        values
    }

    /// Looks many keys up, with up to `depth` reads under way. For each key, `see` returns the
    /// version and the limits when its turn comes. `seconds` decides which values have expired;
    /// without it, the clock does.
    pub fn get_many<'c, K: AsRef<[u8]>>(
        &'c self,
        keys: impl Iterator<Item = K>,
        depth: usize,
        see: impl FnMut() -> (Arc<Version>, Terms<'c>),
        seconds: Option<u64>,
        mut each: impl FnMut(K, Result<Option<Value>, StoreError>),
    ) {
        let (mut asked, mut hits) = (0, 0);
        crate::read::many(self, keys, depth, see, |key, found| {
            asked += 1;
            let value = check_key(key.as_ref()).and_then(|()| {
                let found = found?.filter(|found| self.has_value(found, seconds));
                hits += u64::from(found.is_some());
                found.map(|found| self.value_of(found)).transpose()
            });
            each(key, value);
        });
        Counters::add(&self.counters.gets, asked);
        Counters::add(&self.counters.hits, hits);
    }
}
