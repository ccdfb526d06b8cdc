// SPDX-License-Identifier: Apache-2.0
//! Settings of a store, and of one write.
//!
//! The settings that shape the bytes on flash (page, block and log sizes, kept versions) are fixed
//! when a store is created, and read from its superblock later. The others are chosen at each
//! opening.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use senko_io::exact_size;
use senko_io::trace::Recorder;

use crate::StoreError;
use crate::durability::Durability;
use crate::extent::UNIT_BYTES;
use crate::index::IndexKind;

/// Logs that may wait to be sealed before writers wait.
pub(crate) const MAX_FROZEN: usize = 3;

/// The longest key.
pub const MAX_KEY_BYTES: usize = 65_536;

/// The longest value.
pub const MAX_VALUE_BYTES: u64 = 1 << 30;

/// The last second that an expiry can name; later ones are cut to it.
pub(crate) const LAST_EXPIRY: u64 = (1 << 40) - 1;

/// The source of a write's time: microseconds since 1970.
///
/// ```
/// # use std::sync::Arc;
/// use senko_store::{Clock, Options};
/// let fixed = Options { clock: Clock::Own(Arc::new(|| 1_000_000)), ..Options::default() };
/// assert_eq!(fixed.clock.now(), 1_000_000);
/// ```
#[derive(Clone, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// A clock of the caller, for tests and for loading old data.
    Own(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl Clock {
    /// Microseconds since 1970.
    pub fn now(&self) -> u64 {
        match self {
            Clock::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as u64),
            Clock::Own(clock) => clock(),
        }
    }

    /// Whole seconds since 1970, the unit of expiry.
    pub fn seconds(&self) -> u64 {
        self.now() / 1_000_000
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clock::System => "System",
            Clock::Own(_) => "Own",
        })
    }
}

/// Settings of a store.
///
/// ```
/// let options = senko_store::Options {
///     keep_versions: 3,
///     max_bytes: Some(10 << 30),
///     ..senko_store::Options::default()
/// };
/// assert_eq!(options.page_bytes, 4096);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a data page of a sealed block: a power of two from 4,096 to 32,768. A look-up reads
    /// one page. Fixed when the store is made.
    pub page_bytes: usize,
    /// Bytes of a sealed block, 1 MiB to 1 GiB. Larger blocks take less DRAM a key, and each seal
    /// or compaction takes longer. Fixed when the store is made.
    pub block_bytes: u64,
    /// Bytes of a log; 0 means the size of a block. Fixed when the store is made.
    pub log_bytes: u64,
    /// Kept versions of each key; at least 1. For an expired version only its times are kept: see
    /// [`crate::Store::history`]. Fixed when the store is made.
    pub keep_versions: u32,
    /// Larger values lie outside of log and blocks, and never move. At least 1024; lowered to an
    /// eighth of the smaller of block and log, and to about 950 KiB. Fixed when the store is made.
    pub inline_max: usize,
    /// The map from a hash to a block. Fixed when the store is made.
    pub index: IndexKind,
    /// Fingerprint bits of a map, in the oldest generation. A get of an absent key reads with
    /// probability 2^-bits (7, the default: one in 128), and each bit takes an eighth of a byte of
    /// DRAM a key. Younger and smaller generations have more bits. Fixed when the store is made.
    pub fingerprint_bits: u32,
    /// The most bytes that the file may have; `None`: as many as the file system gives. A bound
    /// below the space in use is refused.
    pub max_bytes: Option<u64>,
    /// Compaction keeps the space in use, logs included, at about this multiple of the live bytes;
    /// from 1.05 to 10. Live bytes are counted as stored: 1.05 times keys and values, for values of
    /// 1000 bytes. A store of a few blocks may use more.
    pub space_ratio: f64,
    /// The most bytes a second that compaction writes while no writer waits for space, at least 1;
    /// `None`: no limit.
    pub compaction_rate: Option<u64>,
    /// DRAM for records that are read repeatedly, in bytes, including the index; 0 for none, else
    /// at least 64 KiB. It is allocated when the first records enter, and is empty after each
    /// opening. It keeps only inline values.
    pub cache_bytes: u64,
    /// Create the store if it does not exist.
    pub create: bool,
    /// Take no writes and change nothing on the device. The file is opened for reading only, so it
    /// may lie on read-only media, and several processes may read it at once. A process that writes
    /// excludes readers, and they exclude it.
    pub read_only: bool,
    /// Seal, compact and merge in threads of the store. Without them the work is done in
    /// [`crate::Store::maintain`], and by a write that would have to wait.
    pub background: bool,
    /// After this time, unused free space of the file goes back to the file system: see
    /// [`crate::Store::shrink`]. This needs the threads of [`Options::background`]. `None`: only
    /// [`crate::Store::shrink`] gives space back.
    pub shrink_after: Option<Duration>,
    /// Records what reaches the device.
    pub recorder: Option<Arc<Recorder>>,
    /// The source of times.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            page_bytes: 4096,
            block_bytes: 64 << 20,
            log_bytes: 0,
            keep_versions: 1,
            inline_max: 512 << 10,
            index: IndexKind::Static,
            fingerprint_bits: 7,
            max_bytes: None,
            space_ratio: 1.3,
            compaction_rate: None,
            cache_bytes: 32 << 20,
            create: true,
            read_only: false,
            background: true,
            shrink_after: Some(Duration::from_secs(60)),
            recorder: None,
            clock: Clock::System,
        }
    }
}

impl Options {
    /// Refuses settings that cannot be used, and derives those that depend on others.
    pub(crate) fn checked(mut self) -> Result<Options, StoreError> {
        let invalid = |text: String| Err(StoreError::Invalid(text));
        if !self.page_bytes.is_power_of_two() || !(4096..=32_768).contains(&self.page_bytes) {
            return invalid(format!(
                "pages have 4096, 8192, 16384 or 32768 bytes, not {}",
                self.page_bytes
            ));
        }
        let sizes = 1 << 20..=1 << 30;
        if !sizes.contains(&self.block_bytes) || !self.block_bytes.is_multiple_of(UNIT_BYTES) {
            return invalid(format!(
                "blocks have 1 MiB to 1 GiB, in steps of 64 KiB, not {}",
                exact_size(self.block_bytes)
            ));
        }
        if self.log_bytes == 0 {
            self.log_bytes = self.block_bytes;
        }
        if !sizes.contains(&self.log_bytes) || !self.log_bytes.is_multiple_of(UNIT_BYTES) {
            return invalid(format!(
                "logs have 1 MiB to 1 GiB, in steps of 64 KiB, not {}",
                exact_size(self.log_bytes)
            ));
        }
        if !(1..=1000).contains(&self.keep_versions) {
            return invalid(format!(
                "1 to 1000 versions of a key can be kept, not {}",
                self.keep_versions
            ));
        }
        let smaller = self.block_bytes.min(self.log_bytes);
        // An element with the longest key and an inline value must still fit into a log.
        let most = crate::log::MAX_ELEMENT - MAX_KEY_BYTES - 64;
        self.inline_max = self.inline_max.min((smaller / 8) as usize).min(most);
        if self.inline_max < 1024 {
            return invalid(format!(
                "values of up to 1024 bytes always lie inline; inline_max is {}",
                self.inline_max
            ));
        }
        if !(1..=16).contains(&self.fingerprint_bits) {
            return invalid(format!(
                "fingerprints have 1 to 16 bits, not {}",
                self.fingerprint_bits
            ));
        }
        if !(1.05..=10.0).contains(&self.space_ratio) {
            return invalid(format!(
                "the space ratio lies between 1.05 and 10, not at {}",
                self.space_ratio
            ));
        }
        if self.compaction_rate == Some(0) {
            return invalid("a compaction rate of 0 compacts nothing; None is no limit".to_owned());
        }
        let least = crate::cache::record_cache::MIN_BYTES;
        if self.cache_bytes != 0 && self.cache_bytes < least {
            return invalid(format!(
                "a cache of records has {} or more, or 0 for none, not {}",
                exact_size(least),
                exact_size(self.cache_bytes)
            ));
        }
        Ok(self)
    }

    /// Refuses a bound below the size of an empty store: superblock, manifests and a log.
    pub(crate) fn check_bound(&self) -> Result<(), StoreError> {
        let least = self.log_bytes + 4 * UNIT_BYTES;
        match self.max_bytes {
            Some(most) if most < least => Err(StoreError::Invalid(format!(
                "a store with logs of {} takes {} when it is empty, and is to have at most {}",
                exact_size(self.log_bytes),
                exact_size(least),
                exact_size(most)
            ))),
            _ => Ok(()),
        }
    }
}

/// Settings of one write.
///
/// ```
/// # let store = senko_store::example::store();
/// # use senko_store::WriteOptions;
/// let gone = WriteOptions { expires_at: 1, ..WriteOptions::default() }; // since 1970
/// store.put_with(b"colour", b"green", gone)?;
/// assert_eq!(store.get(b"colour")?, None);
/// # Ok::<(), senko_store::StoreError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// The durability to wait for.
    pub durability: Durability,
    /// When the value expires: seconds since 1970; 0 for never.
    pub expires_at: u64,
    /// For how long the value lives, rounded up to whole seconds; overrides `expires_at`.
    pub ttl: Option<Duration>,
}

impl WriteOptions {
    /// Waits until the write is durable on the device.
    pub fn synced() -> WriteOptions {
        WriteOptions {
            durability: Durability::Synced,
            ..WriteOptions::default()
        }
    }

    /// The expiry of a value that is written at `now` (microseconds); 0 for never.
    pub(crate) fn expiry(&self, now: u64) -> u64 {
        match self.ttl {
            Some(ttl) => {
                let end = u128::from(now) + ttl.as_micros();
                u64::try_from(end.div_ceil(1_000_000))
                    .map_or(LAST_EXPIRY, |end| end.clamp(1, LAST_EXPIRY))
            }
            None => self.expires_at.min(LAST_EXPIRY),
        }
    }
}

/// Refuses keys that cannot be stored.
pub(crate) fn check_key(key: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        return Err(StoreError::KeyLength(key.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compaction was once held to a byte a second.
    #[test]
    fn a_compaction_rate_of_0_is_refused() {
        let with = |compaction_rate| Options {
            compaction_rate,
            ..Options::default()
        };
        let error = with(Some(0)).checked().expect_err("it was taken");
        assert!(
            error.to_string().contains("compaction rate of 0"),
            "{error}"
        );
        assert!(with(Some(1)).checked().is_ok() && with(None).checked().is_ok());
    }
}
