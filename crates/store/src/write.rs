// SPDX-License-Identifier: Apache-2.0
//! Writes to the active log. One lock covers the append; the wait for durability takes none.
//!
//! ```text
//! put -> hash -> (large value: its extent) -> pace -> [writer lock: time, append, rotate if full] -> commit as durable as asked
//! ```
//!
//! What always holds:
//! - WRITE-1: times rise with each append, so a log is ordered by time, and every element of an
//!   older log is older.
//! - WRITE-2: `visible` rises to a write's time only after all elements of the write can be found.
//!   So a reader that is bounded by `visible` sees a whole batch or nothing of it.
//! - WRITE-3: no acknowledged write comes after a lost one. Before a commit in the active log is
//!   acknowledged, the frozen logs are as durable as the commit.

pub(crate) mod room; // what a writer does that finds no space

use std::sync::Arc;

use crate::core::Core;
use crate::core::reserve::Wish;
use crate::core::state::counters::Counters;
use crate::core::state::logs::Writer;
use crate::core::version::LogHandle;
use crate::disk::space::Held;
use crate::element::{Element, LARGE, MORE, TOMBSTONE};
use crate::log::{AppendError, Packing, Ticket};
use crate::options::{LAST_EXPIRY, MAX_VALUE_BYTES, check_key};
use crate::{Durability, KeyHash, StoreError, WriteOptions};

/// One operation of a batch.
#[derive(Clone, Debug)]
struct Operation {
    key: Vec<u8>,
    /// The new value; `None` deletes.
    value: Option<Vec<u8>>,
    /// Replaces the write's expiry, if given.
    expires_at: Option<u64>,
}

/// Writes that take effect together. After a crash either all or none of them are there.
///
/// ```
/// let mut batch = senko_store::Batch::new();
/// batch.put(b"from", b"90");
/// batch.put(b"to", b"110");
/// batch.delete(b"pending");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    operations: Vec<Operation>,
    bytes: u64,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put. A later operation on the same key replaces it.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Batch {
        self.add(key, Some(value), None)
    }

    /// Adds a put of a value that expires at `expires_at` (seconds since 1970; 0 for never).
    ///
    /// ```
    /// let mut batch = senko_store::Batch::new();
    /// batch.put_expiring(b"colour", b"green", 1_893_456_000); // gone in 2030
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn put_expiring(&mut self, key: &[u8], value: &[u8], expires_at: u64) -> &mut Batch {
        self.add(key, Some(value), Some(expires_at))
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: &[u8]) -> &mut Batch {
        self.add(key, None, None)
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>, expires_at: Option<u64>) -> &mut Batch {
        self.bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        self.operations.push(Operation {
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
            expires_at,
        });
        self
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        self.operations.clear();
        self.bytes = 0;
    }
}

/// An element before it gets its time.
pub(crate) struct Write<'a> {
    pub hash: KeyHash,
    pub key: &'a [u8],
    /// The value; `None` deletes.
    pub value: Option<&'a [u8]>,
    pub expires_at: Option<u64>,
}

impl Core {
    /// Writes one element.
    pub fn write_one(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<u64, StoreError> {
        let write = Write {
            hash: self.hasher.hash(key),
            key,
            value,
            expires_at: None,
        };
        self.write_all(&mut [write], options)
    }

    pub fn write_batch(&self, batch: &Batch, options: WriteOptions) -> Result<u64, StoreError> {
        let mut writes: Vec<Write<'_>> = batch
            .operations
            .iter()
            .map(|operation| Write {
                hash: self.hasher.hash(&operation.key),
                key: &operation.key,
                value: operation.value.as_deref(),
                expires_at: operation.expires_at,
            })
            .collect();
        // All elements of a batch have the same time, so only the last operation on a key may stay.
        let mut last = std::collections::HashMap::new();
        for (nth, write) in writes.iter().enumerate() {
            last.insert(write.key, nth);
        }
        if last.len() < writes.len() {
            let keep: std::collections::HashSet<usize> = last.into_values().collect();
            let mut nth = 0;
            writes.retain(|_| {
                nth += 1;
                keep.contains(&(nth - 1))
            });
        }
        self.write_all(&mut writes, options)
    }

    /// Writes elements together; returns their time.
    pub fn write_all(
        &self,
        writes: &mut [Write<'_>],
        options: WriteOptions,
    ) -> Result<u64, StoreError> {
        let written = self.write_unless(writes, options, || Ok(false))?;
        Ok(written.unwrap_or_else(|| self.view.visible()))
    }

    /// Writes elements together, unless `changed` says that the state they were computed from has
    /// changed. Then nothing is written and the result has no time. `changed` is called under the
    /// writer's lock.
    pub fn write_unless(
        &self,
        writes: &mut [Write<'_>],
        options: WriteOptions,
        changed: impl FnOnce() -> Result<bool, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        self.health.check_takes_writes()?;
        if writes.is_empty() {
            return Ok(None);
        }
        let mut bytes = 0;
        for write in writes.iter() {
            check_key(write.key)?;
            let value = write.value.map_or(0, <[u8]>::len) as u64;
            if value > MAX_VALUE_BYTES {
                return Err(StoreError::ValueTooLong(value));
            }
            bytes += write.key.len() as u64 + value;
        }
        let limit =
            crate::log::Log::limit((self.options.log_bytes / senko_io::PAGE_SIZE as u64) as u32);
        let least = writes.iter().map(|write| {
            let value = write.value.map_or(0, <[u8]>::len);
            let inline = if value > self.options.inline_max {
                0
            } else {
                value
            };
            (write.key.len() + inline) as u64
        });
        let bytes_in_log: u64 = least.sum();
        if bytes_in_log > limit {
            // Checked before a log with room is frozen for the batch, and before large values are
            // written.
            return Err(StoreError::BatchTooLarge {
                bytes: bytes_in_log,
                limit,
            });
        }
        let (references, holders) = self.write_large_values(writes)?;
        self.keep_pace(bytes);

        let mut writer = self.writer.lock();
        self.health.check_takes_writes()?;
        if changed()? {
            return Ok(None);
        }
        let now = self.options.clock.now();
        let time = writer.time_at(now);
        let default_expiry = options.expiry(now);
        let last = writes.len() - 1;
        let elements: Vec<(KeyHash, Element<'_>)> = writes
            .iter()
            .enumerate()
            .map(|(nth, write)| {
                let reference = references.iter().find(|(at, _)| *at == nth);
                let mut flags = if write.value.is_none() { TOMBSTONE } else { 0 };
                if nth < last {
                    flags |= MORE;
                }
                if reference.is_some() {
                    flags |= LARGE;
                }
                let value = match reference {
                    Some((_, encoded)) => &encoded[..],
                    None => write.value.unwrap_or(&[]),
                };
                let expiry = match write.value {
                    Some(_) => write
                        .expires_at
                        .map_or(default_expiry, |at| at.min(LAST_EXPIRY)),
                    None => 0,
                };
                let element = Element {
                    flags,
                    key: write.key,
                    value,
                    time,
                    expiry,
                };
                (write.hash, element)
            })
            .collect();
        let (active, ticket) = self.append(&mut writer, &elements)?;
        active.hold_large(holders);
        writer.wrote(time);
        self.view.show(time);
        drop(writer);
        if let Some(cache) = &self.cache {
            for (hash, element) in &elements {
                cache.written(*hash, element);
            }
        }
        if options.durability == Durability::None && active.log.unwritten_chunks() > 0 {
            self.requests.ask_to_write_chunks();
        }

        for (_, element) in &elements {
            let deleted = element.flags & TOMBSTONE != 0;
            let counter = if deleted {
                &self.counters.deletes
            } else {
                &self.counters.puts
            };
            Counters::add(counter, 1);
        }
        self.wear.put(bytes);
        if options.durability == Durability::Synced {
            self.sync_frozen_logs()?;
        }
        active
            .log
            .commit(ticket, options.durability)
            .map_err(|error| self.failed(error))?;
        if options.durability == Durability::Synced {
            self.mark.note(active.log.id(), active.log.durable_pages());
            // If a flush failed elsewhere meanwhile, writes that this one should make durable may
            // be lost (CHANGE-2).
            self.health.check_writable()?;
        }
        Ok(Some(time))
    }

    /// Waits as long as a write of `bytes` costs. Without a background, a stopped writer does the
    /// work itself, so there is no wait.
    fn keep_pace(&self, bytes: u64) {
        if !self.options.background {
            return;
        }
        let version = self.view.glance();
        let active = version.logs.first().map_or(0, |log| log.log.bytes_used());
        drop(version);
        let waited = self.pace.wait(bytes, active);
        if !waited.is_zero() {
            Counters::add(&self.counters.throttled_us, waited.as_micros() as u64);
        }
    }

    /// Appends to the active log, or to the next one if it is full.
    fn append(
        &self,
        writer: &mut Writer,
        elements: &[(KeyHash, Element<'_>)],
    ) -> Result<(Arc<LogHandle>, Ticket), StoreError> {
        let packing = Packing::default();
        for (_, element) in elements {
            packing.add(element);
        }
        self.saw_length(packing.longest());
        let wish = Wish {
            deletes: elements.iter().all(|(_, element)| element.is_tombstone()),
            sealed: self.sealed_most(&packing),
        };
        loop {
            if let Some(active) = writer.active() {
                // SPACE-6 of `space.rs`: whatever a log takes can be sealed.
                let sealed = self.sealed_most(&active.log.packing().and(&packing));
                if self.grant(writer, wish.deletes, sealed) {
                    match active.log.append(elements) {
                        Ok(ticket) => return Ok((active, ticket)),
                        Err(AppendError::Full) if active.log.is_empty() => {
                            let bytes = elements
                                .iter()
                                .map(|(_, element)| element.encoded_len() as u64);
                            return Err(StoreError::BatchTooLarge {
                                bytes: bytes.sum(),
                                limit: active.log.capacity(),
                            });
                        }
                        Err(AppendError::Full) => {}
                        Err(AppendError::Store(error)) => return Err(self.failed(error)),
                    }
                }
            }
            self.rotate(writer, wish)?;
        }
    }

    /// Writes values that are too large for the log; returns the position and the encoded reference
    /// of each, and their holders.
    #[allow(clippy::type_complexity)]
    fn write_large_values(
        &self,
        writes: &[Write<'_>],
    ) -> Result<(Vec<(usize, [u8; 24])>, Vec<Arc<Held>>), StoreError> {
        let (mut references, mut holders) = (Vec::new(), Vec::new());
        for (nth, write) in writes.iter().enumerate() {
            let Some(value) = write
                .value
                .filter(|value| value.len() > self.options.inline_max)
            else {
                continue;
            };
            let held = self.with_space(value.len() as u64)?;
            let place = crate::disk::large::write(&self.device, &held, value)
                .map_err(|error| self.failed(error))?;
            references.push((nth, place.encode()));
            holders.push(self.large.register(held));
        }
        if !holders.is_empty() {
            // A durable reference needs a durable value, whatever the write itself waits for.
            self.flush()?;
        }
        Ok((references, holders))
    }

    /// Allocates space for a large value.
    fn with_space(&self, bytes: u64) -> Result<Held, StoreError> {
        let mut writer = self.writer.lock();
        self.health.check_takes_writes()?;
        self.make_room(&mut writer, false, |core, writer, _| {
            core.allocate_large(writer, bytes)
        })
    }

    /// Makes every earlier write durable.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.health.check_writable()?;
        self.device
            .flush(senko_io::Tag::store(senko_io::Purpose::Log))
            .map_err(StoreError::io("flushing"))
            .map_err(|error| self.failed(error))
    }

    /// Makes the frozen logs durable (WRITE-3).
    fn sync_frozen_logs(&self) -> Result<(), StoreError> {
        self.health.check_writable()?;
        let version = self.current();
        for handle in version.logs.iter().skip(1).rev() {
            handle
                .log
                .commit(handle.log.end(), Durability::Synced)
                .map_err(|error| self.failed(error))?;
            self.mark.note(handle.log.id(), handle.log.durable_pages());
        }
        Ok(())
    }

    /// Makes every earlier write durable.
    pub fn sync(&self) -> Result<(), StoreError> {
        if self.options.read_only {
            return Ok(());
        }
        // Taken first. If another thread freezes this log meanwhile, the log is then among the
        // frozen ones.
        let active = self.writer.lock().active();
        self.sync_frozen_logs()?;
        if let Some(active) = active {
            active
                .log
                .commit(active.log.end(), Durability::Synced)
                .map_err(|error| self.failed(error))?;
            self.mark.note(active.log.id(), active.log.durable_pages());
        }
        Ok(())
    }
}
