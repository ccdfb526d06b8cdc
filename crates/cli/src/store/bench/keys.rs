// SPDX-License-Identifier: Apache-2.0
//! The keys and values of a bench, and with `--verify` the required value of each key.
//!
//! A value depends only on its key's number and a version, so every byte of it can be checked. For
//! each key the last issued and the last acknowledged version are kept. A get must see a version
//! between the one acknowledged when it began and the one issued when it ended. Writers of one key
//! take turns, so that versions reach the store in their order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use senko_workload::{KeySpace, ValueLen, check_value, check_value_version, fill_value};
use senko_workload::{key::MAX_KEY_LEN, value::SELF_CHECKED_LEN};

/// Number of mutexes for the writers of keys.
const STRIPES: usize = 1024;

/// Versions of one key.
#[derive(Default)]
struct Versions {
    issued: AtomicU32,
    acknowledged: AtomicU32,
}

/// The keys' versions, as far as this run knows them.
pub struct Known {
    versions: Vec<Versions>,
    stripes: Vec<Mutex<()>>,
}

impl Known {
    pub fn new(keys: usize) -> Known {
        Known {
            versions: (0..keys).map(|_| Versions::default()).collect(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }
    }
}

/// The keys of a bench.
pub struct Keys {
    pub space: KeySpace,
    pub value_len: ValueLen,
    /// The number of keys, including those being inserted.
    pub count: AtomicU64,
    known: Option<Known>,
    /// The next version if there is no `known`: each write has another.
    next_version: AtomicU32,
}

/// A write of one key that is under way.
pub struct Writing<'k> {
    keys: &'k Keys,
    key: u64,
    version: u32,
    _turn: Option<MutexGuard<'k, ()>>,
}

impl Writing<'_> {
    /// The value to write, in `buffer`.
    pub fn value<'b>(&self, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        buffer.resize(self.keys.value_len.len_of(self.key, 0), 0);
        fill_value(buffer, self.key, self.version);
        buffer
    }

    /// Notes that the store has acknowledged it.
    pub fn done(self) {
        if let Some(versions) = self.keys.versions(self.key) {
            versions.acknowledged.store(self.version, Ordering::Release);
        }
    }
}

impl Keys {
    /// `known` has room for the versions of keys that must be checked.
    pub fn new(space: KeySpace, value_len: ValueLen, count: u64, known: Option<Known>) -> Keys {
        Keys {
            space,
            value_len,
            count: AtomicU64::new(count),
            known,
            next_version: AtomicU32::new(1),
        }
    }

    fn versions(&self, key: u64) -> Option<&Versions> {
        let known = self.known.as_ref()?;
        known.versions.get(usize::try_from(key).ok()?)
    }

    /// Whether values are checked.
    pub fn checks(&self) -> bool {
        self.known.is_some()
    }

    pub fn key<'b>(&self, key: u64, buffer: &'b mut [u8; MAX_KEY_LEN]) -> &'b [u8] {
        self.space.write(key, buffer)
    }

    /// Begins a write of a key.
    pub fn write(&self, key: u64) -> Writing<'_> {
        let turn = self.known.as_ref().map(|known| {
            let stripe = &known.stripes[key as usize % STRIPES];
            stripe.lock().unwrap_or_else(PoisonError::into_inner)
        });
        let version = match self.versions(key) {
            Some(versions) => versions.issued.fetch_add(1, Ordering::AcqRel) + 1,
            None => self.next_version.fetch_add(1, Ordering::Relaxed),
        };
        Writing {
            keys: self,
            key,
            version,
            _turn: turn,
        }
    }

    /// The oldest version that a get which begins now may see; 0 if this run never wrote the key.
    pub fn oldest(&self, key: u64) -> u32 {
        self.versions(key)
            .map_or(0, |versions| versions.acknowledged.load(Ordering::Acquire))
    }

    /// Checks the result of a get; `oldest` was read when the get began.
    pub fn check(&self, key: u64, oldest: u32, value: Option<&[u8]>) -> Result<(), String> {
        let Some(value) = value else {
            return if oldest > 0 {
                Err(format!("key {key} is not there, and it was put"))
            } else {
                Ok(())
            };
        };
        let length = self.value_len.len_of(key, 0);
        if value.len() != length {
            let found = value.len();
            return Err(format!(
                "the value of key {key} has {found} bytes, not {length}"
            ));
        }
        let newest = self
            .versions(key)
            .map_or(0, |versions| versions.issued.load(Ordering::Acquire));
        let checked = match oldest {
            // A value of another run can have any version, so a short one cannot be checked.
            0 if length < SELF_CHECKED_LEN => Ok(0),
            0 => check_value(value, key),
            oldest => check_value_version(value, key, oldest..=newest),
        };
        checked.map(|_| ()).map_err(|mismatch| mismatch.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use senko_workload::KeyShape;

    #[test]
    fn wrong_values_are_noticed() {
        let space = KeySpace::new("k", KeyShape::Fixed(8), 9).unwrap();
        let keys = Keys::new(space, ValueLen::Fixed(100), 10, Some(Known::new(10)));
        let mut first = Vec::new();
        assert_eq!(keys.check(3, keys.oldest(3), None), Ok(()));
        let writing = keys.write(3);
        writing.value(&mut first);
        // A get may or may not see it before it was acknowledged.
        assert_eq!(keys.check(3, keys.oldest(3), None), Ok(()));
        assert_eq!(keys.check(3, keys.oldest(3), Some(&first)), Ok(()));
        writing.done();
        let oldest = keys.oldest(3);
        assert!(keys.check(3, oldest, None).is_err());
        assert_eq!(keys.check(3, oldest, Some(&first)), Ok(()));
        assert!(keys.check(4, 0, Some(&first)).is_err());
        assert!(keys.check(3, oldest, Some(&first[..99])).is_err());
        let mut second = Vec::new();
        let writing = keys.write(3);
        writing.value(&mut second);
        writing.done();
        assert!(keys.check(3, keys.oldest(3), Some(&first)).is_err());
        assert_eq!(keys.check(3, oldest, Some(&first)), Ok(()));
        second[57] ^= 1;
        assert!(keys.check(3, keys.oldest(3), Some(&second)).is_err());
    }
}
