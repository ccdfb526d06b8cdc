// SPDX-License-Identifier: Apache-2.0
//! Writes without reads for C: batches, and records in the order of their keys. Called from C.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use senko_dbm::Batch;

use crate::database::{SenkoDb, Shared};
use crate::failure::{Failure, NOTFOUND, guard};
use crate::transaction::durability_of;
use crate::{Val, give};

/// `senko_batch` of the header.
#[derive(Debug)]
pub struct SenkoBatch {
    shared: Arc<Shared>,
    batch: Batch,
}

impl SenkoBatch {
    /// The batch of a handle.
    ///
    /// # Safety
    /// `batch` is NULL or a batch that nobody else uses at this time.
    unsafe fn of<'a>(batch: *mut SenkoBatch) -> Result<&'a mut SenkoBatch, Failure> {
        // SAFETY: the caller's promise.
        let batch =
            unsafe { batch.as_mut() }.ok_or_else(|| Failure::invalid("the batch is NULL"))?;
        batch.shared.check()?;
        Ok(batch)
    }
}

/// Begins a batch.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_batch_begin(db: *mut SenkoDb, batch: *mut *mut SenkoBatch) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        unsafe { give(batch, std::ptr::null_mut()) }?;
        // SAFETY: as above.
        let shared = Arc::clone(unsafe { SenkoDb::of(db) }?);
        let begun = SenkoBatch {
            shared,
            batch: Batch::new(),
        };
        // SAFETY: as above.
        unsafe { give(batch, Box::into_raw(Box::new(begun))) }
    })
}

/// Adds a record to a batch.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_batch_put(
    batch: *mut SenkoBatch,
    table: u32,
    key: *const Val,
    value: *const Val,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (batch, key, value) =
            unsafe { (SenkoBatch::of(batch)?, Val::bytes(key)?, Val::bytes(value)?) };
        let table = batch.shared.table(table)?;
        Ok(batch.batch.put(&table, key, value)?)
    })
}

/// Adds a deletion to a batch.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_batch_delete(
    batch: *mut SenkoBatch,
    table: u32,
    key: *const Val,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (batch, key) = unsafe { (SenkoBatch::of(batch)?, Val::bytes(key)?) };
        let table = batch.shared.table(table)?;
        batch.batch.delete(&table, key);
        Ok(())
    })
}

/// Adds the deletion of a range to a batch.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_batch_delete_range(
    batch: *mut SenkoBatch,
    table: u32,
    from: *const Val,
    to: *const Val,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let batch = unsafe { SenkoBatch::of(batch) }?;
        let table = batch.shared.table(table)?;
        let from = match from.is_null() {
            true => &[],
            // SAFETY: as above.
            false => unsafe { Val::bytes(from) }?,
        };
        let to = match to.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { Val::bytes(to) }?),
        };
        batch.batch.delete_range(&table, from, to);
        Ok(())
    })
}

/// Commits a batch.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_batch_commit(batch: *mut SenkoBatch, durability: c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { SenkoBatch::of(batch) }?;
        // SAFETY: it was made by `senko_batch_begin`, and is not used again.
        let SenkoBatch { shared, batch } = *unsafe { Box::from_raw(batch) };
        let durability = durability_of(durability)?;
        Ok(shared.db().write(batch, durability)?)
    })
}

/// Ends a batch without a commit.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_batch_abort(batch: *mut SenkoBatch) {
    guard(|| {
        if batch.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { SenkoBatch::of(batch) }?;
        // SAFETY: it was made by `senko_batch_begin`, and is not used again.
        drop(unsafe { Box::from_raw(batch) });
        Ok(())
    });
}

/// Returns the next record of a load.
type Next = unsafe extern "C" fn(*mut c_void, *mut Val, *mut Val) -> c_int;

/// Loads records in the order of their keys.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_bulk_load(
    db: *mut SenkoDb,
    table: u32,
    next: Option<Next>,
    arg: *mut c_void,
    durability: c_int,
    loaded: *mut u64,
) -> c_int {
    let mut ended = 0;
    let done = guard(|| {
        // SAFETY: the caller's promise, here and below.
        let shared = unsafe { SenkoDb::of(db) }?;
        let next = next.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        let durability = durability_of(durability)?;
        let table = shared.table(table)?;
        let records = std::iter::from_fn(|| {
            let (mut key, mut value) = (Val::of(&[]), Val::of(&[]));
            // SAFETY: the caller's function.
            match unsafe { next(arg, &mut key, &mut value) } {
                // SAFETY: they live until the next call, and are copied before.
                0 => Some(unsafe { Val::bytes(&key).and_then(|k| Ok((k, Val::bytes(&value)?))) }),
                NOTFOUND => None,
                other => {
                    ended = other;
                    Some(Err(Failure::with(
                        other,
                        "the load was ended by its caller",
                    )))
                }
            }
        });
        let count = shared.db().try_bulk_load(&table, records, durability)?;
        match loaded.is_null() {
            true => Ok(()),
            // SAFETY: as above.
            false => unsafe { give(loaded, count) },
        }
    });
    if ended == 0 { done } else { ended }
}
