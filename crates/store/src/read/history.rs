// SPDX-License-Identifier: Apache-2.0
//! The kept versions of a key. `store.rs` calls this.

use crate::StoreError;
use crate::cache::hit::Hit;
use crate::core::Core;
use crate::core::version::Version;
use crate::element::TOMBSTONE;
use crate::options::check_key;
use crate::read::value::KeyVersion;

impl Core {
    /// Calls `take` for the versions of a key that are kept, newest first from `at` on, until
    /// `take` stops the walk. A version older than the kept ones may still be on the device. But
    /// versions between may be gone, so such a version is not returned.
    fn walk_versions(
        &self,
        version: &Version,
        key: &[u8],
        mut at: u64,
        mut take: impl FnMut(Hit) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        check_key(key)?;
        for _ in 0..self.options.keep_versions {
            let Some(found) = self.find(version, key, self.bounded(at))? else {
                break;
            };
            let time = found.time;
            if take(found)? || time == 0 {
                break;
            }
            at = time - 1;
        }
        Ok(())
    }

    /// The version of a key that was the newest at `time`, among the kept versions up to `at`.
    pub fn version_at(
        &self,
        version: &Version,
        key: &[u8],
        time: u64,
        at: u64,
    ) -> Result<Option<Hit>, StoreError> {
        let mut answer = None;
        self.walk_versions(version, key, at, |found| {
            let early = found.time <= time;
            answer = early.then_some(found);
            Ok(early)
        })?;
        Ok(answer)
    }

    /// The versions of a key up to `at`, newest first.
    pub fn history(
        &self,
        version: &Version,
        key: &[u8],
        at: u64,
    ) -> Result<Vec<KeyVersion>, StoreError> {
        let mut history = Vec::new();
        self.walk_versions(version, key, at, |found| {
            let (time, expires_at) = (found.time, found.expiry);
            let value = if found.flags & TOMBSTONE == 0 {
                Some(self.value_of(found)?)
            } else {
                None
            };
            history.push(KeyVersion {
                time,
                value,
                expires_at,
            });
            Ok(false)
        })?;
        Ok(history)
    }
}
