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

use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::core::Core;
use crate::element::{Element, LARGE, MORE, TOMBSTONE};
use crate::log::{AppendError, Ticket};
use crate::options::{LAST_EXPIRY, MAX_FROZEN, MAX_VALUE_BYTES, check_key};
use crate::space::Held;
use crate::state::counters::Counters;
use crate::state::logs::Writer;
use crate::version::LogHandle;
use crate::{Durability, KeyHash, StoreError, WriteOptions};

/// A batch of this many elements is checked before the log takes it (SPACE-6).
const LOOKED_AT: usize = 16;

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
    ///
    /// ```
    /// let mut batch = senko_store::Batch::new();
    /// assert!(batch.is_empty());
    /// batch.put(b"colour", b"green");
    /// ```
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put. A later operation on the same key replaces it.
    ///
    /// ```
    /// let mut batch = senko_store::Batch::new();
    /// batch.put(b"colour", b"green").put(b"shape", b"round");
    /// assert_eq!(batch.len(), 2);
    /// ```
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
    ///
    /// ```
    /// # let store = senko_store::example::store();
    /// store.put(b"old", b"value")?;
    /// let mut batch = senko_store::Batch::new();
    /// batch.delete(b"old").put(b"new", b"value");
    /// store.write(&batch, senko_store::WriteOptions::default())?;
    /// assert!(!store.contains(b"old")?);
    /// # Ok::<(), senko_store::StoreError>(())
    /// ```
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
    ///
    /// ```
    /// let mut batch = senko_store::Batch::new();
    /// batch.put(b"colour", b"green").delete(b"colour");
    /// assert_eq!(batch.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the batch is empty.
    ///
    /// ```
    /// assert!(senko_store::Batch::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of keys and values.
    ///
    /// ```
    /// let mut batch = senko_store::Batch::new();
    /// batch.put(b"colour", b"green");
    /// assert_eq!(batch.bytes(), 11);
    /// ```
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes all operations.
    ///
    /// ```
    /// let mut batch = senko_store::Batch::new();
    /// batch.put(b"colour", b"green").clear();
    /// assert!(batch.is_empty());
    /// ```
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

    /// Writes a batch.
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
        Counters::add(&self.counters.bytes_put, bytes);
        if options.durability == Durability::Synced {
            self.sync_frozen_logs()?;
        }
        active
            .log
            .commit(ticket, options.durability)
            .map_err(|error| self.failed(error))?;
        if options.durability == Durability::Synced {
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
        writer: &mut MutexGuard<'_, Writer>,
        elements: &[(KeyHash, Element<'_>)],
    ) -> Result<(Arc<LogHandle>, Ticket), StoreError> {
        loop {
            let deletes = || elements.iter().all(|(_, element)| element.is_tombstone());
            let Some(active) = writer.active() else {
                // The log was sealed, and there was no space for another one.
                self.rotate(writer, deletes())?;
                continue;
            };
            match self.append_to(&active, writer, elements) {
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
                Err(AppendError::Full) => {
                    self.rotate(writer, deletes())?;
                }
                Err(AppendError::Store(error)) => return Err(self.failed(error)),
            }
        }
    }

    /// Appends to the active log if it can still be sealed on a full file system afterwards
    /// (SPACE-6 of `space.rs`). A large batch is checked before the append, and a log whenever it
    /// has another page.
    fn append_to(
        &self,
        active: &LogHandle,
        writer: &mut Writer,
        elements: &[(KeyHash, Element<'_>)],
    ) -> Result<Ticket, AppendError> {
        let log = &active.log;
        if !writer.is_full() && elements.len() > LOOKED_AT && !log.is_empty() {
            let bytes = elements.iter().map(|(_, element)| element.encoded_len());
            let bytes = bytes.sum::<usize>() as u64;
            writer.set_full(self.seals_to_the_most(
                log,
                writer.is_tight(),
                elements.len() as u64,
                bytes,
            ));
        }
        if writer.is_full() {
            return Err(AppendError::Full);
        }
        let ticket = log.append(elements)?;
        if writer.has_another_page(ticket.pages()) {
            writer.set_full(self.seals_to_the_most(log, writer.is_tight(), 0, 0));
        }
        Ok(ticket)
    }

    /// Makes room for a log that takes deletes. If the reserve is smaller than the next log, the
    /// active log is sealed, and compaction drops the elements that it deletes. Meanwhile there is
    /// no active log. True if the next log is to be a short one.
    fn make_room_for_deletes(&self, writer: &mut Writer) -> Result<bool, StoreError> {
        if self.room_for_spare() {
            return Ok(false);
        }
        self.refill_reserve();
        if self.reserve_is_whole() {
            return Ok(true);
        }
        if let Some(active) = writer.active() {
            active.log.freeze();
            drop(active);
            let _working = self.requests.block_work();
            match self.seal_all_logs() {
                Ok(()) => {
                    writer.let_go();
                    // Before a compaction takes the log's space.
                    self.refill_reserve();
                }
                Err(StoreError::NoSpace(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let pieces = self.current().blocks().count() + 1;
        for _ in 0..pieces {
            self.refill_reserve();
            if self.reserve_is_whole() || !self.wait_for_space()? {
                break;
            }
        }
        Ok(true)
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
            let place = crate::large::write(&self.device, &held, value)
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

    /// Allocates space for a write. If there is none, the background gets the chance to free some.
    fn with_space(&self, bytes: u64) -> Result<Held, StoreError> {
        self.leave_reserve(|| bytes)?;
        loop {
            match self.allocate(bytes) {
                Err(StoreError::NoSpace(_)) => {
                    if !self.wait_for_space()? {
                        // A reader may have released the missing space meanwhile.
                        return self.allocate(bytes);
                    }
                }
                other => return other,
            }
        }
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
        }
        Ok(())
    }

    /// If the next log would take space that compaction needs, the frozen logs are sealed first.
    /// The next log then takes the space of one of them.
    fn seal_if_tight(&self) -> Result<(), StoreError> {
        for _ in 0..=MAX_FROZEN {
            let prepared = self.spare.is_there();
            if prepared || self.current().logs.len() < 2 || self.room_for_spare() {
                break;
            }
            match self.wait_for_seal() {
                Ok(true) => {}
                // After this the reserve is there.
                Ok(false) | Err(StoreError::NoSpace(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Freezes the active log and continues in the next one. The space reserved for deletes is used
    /// only if `reserve` says so.
    pub fn rotate(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        reserve: bool,
    ) -> Result<(), StoreError> {
        self.health.check_writable()?;
        if !reserve {
            // If no log is prepared, the next log takes free space. One may be prepared while this
            // waits.
            self.leave_reserve(|| match self.spare.is_there() {
                true => 0,
                false => self.options.log_bytes,
            })?;
        }
        while self.current().logs.len() > MAX_FROZEN {
            if !self.wait_for_seal()? {
                break;
            }
        }
        self.seal_if_tight()?;
        let tight = reserve && self.make_room_for_deletes(writer)?;
        let old = writer.active();
        if let Some(old) = &old {
            // Writes acknowledged from now on must not survive a kill that loses an end of this log
            // (WRITE-3).
            old.log
                .commit(old.log.end(), Durability::Buffered)
                .map_err(|error| self.failed(error))?;
            old.log.freeze();
        }
        let spare = self.spare.take();
        let mut last_try = false;
        let fresh = match spare {
            Some(spare) => spare,
            None => loop {
                // The log takes the reserved space, and none that compaction needs. No compaction
                // takes that space between the two steps below.
                let short = reserve && !self.room_for_spare();
                let working = short.then(|| self.requests.block_work());
                let mut manifests = self.manifests.lock();
                // A log that was prepared meanwhile comes first. Logs must be used in the
                // manifest's order; otherwise a recovery would take a later log for the end.
                if let Some(spare) = self.spare.take() {
                    break spare;
                }
                if short {
                    self.reserve.give_up();
                }
                let made = self.make_log(&mut manifests);
                drop(manifests);
                drop(working);
                match made {
                    Err(StoreError::NoSpace(why)) => {
                        let given = reserve && self.reserve.give_up();
                        if !given && !self.wait_for_space()? {
                            if last_try {
                                return Err(StoreError::NoSpace(why));
                            }
                            // A merge of maps may still hold blocks that were compacted meanwhile.
                            last_try = true;
                            drop(self.requests.map_work());
                        }
                    }
                    other => break other?,
                }
            },
        };
        if let Some(old) = &old {
            fresh.log.follow(old.log.chain());
        }
        self.view
            .publish(|next| next.logs.insert(0, Arc::clone(&fresh)));
        if let Some(old) = &old {
            self.pace.froze(old.log.bytes_used());
        }
        writer.turn_to(fresh, tight);
        self.requests.ask();
        Ok(())
    }
}
