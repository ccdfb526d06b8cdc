// SPDX-License-Identifier: Apache-2.0
//! Transactions for C. Called from C.

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex, MutexGuard};

use senko_dbm::{Durability, PendingCommit, Snapshot, Table, Transaction};

use crate::database::{RDONLY, SenkoDb, Shared};
use crate::failure::{ENDED, Failure, NOTFOUND, READONLY, guard};
use crate::{Val, give};

const NOOVERWRITE: c_uint = 0x10;
const APPEND: c_uint = 0x20;

/// The state of a transaction; its cursors share it.
#[derive(Debug)]
pub(crate) enum State {
    Reads(Snapshot),
    Writes(Box<Transaction>),
    Ended,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub shared: Arc<Shared>,
    state: Mutex<State>,
}

impl Running {
    /// The state, in the process that began the transaction. After a panic during a call it counts
    /// as ended.
    pub fn state(&self) -> Result<MutexGuard<'_, State>, Failure> {
        self.shared.check()?;
        self.state.lock().map_err(|_| Failure::code(ENDED))
    }
}

/// `senko_txn` of the header.
#[derive(Debug)]
pub struct SenkoTxn {
    running: Arc<Running>,
    value: Vec<u8>,
}

impl SenkoTxn {
    /// The transaction of a handle.
    ///
    /// # Safety
    /// `txn` is NULL or a transaction that nobody else uses at this time.
    unsafe fn of<'a>(txn: *mut SenkoTxn) -> Result<&'a mut SenkoTxn, Failure> {
        // SAFETY: the caller's promise.
        let txn =
            unsafe { txn.as_mut() }.ok_or_else(|| Failure::invalid("the transaction is NULL"))?;
        txn.running.shared.check()?;
        Ok(txn)
    }

    /// The part of a transaction that its cursors share.
    ///
    /// # Safety
    /// As [`SenkoTxn::of`].
    pub(crate) unsafe fn running<'a>(txn: *mut SenkoTxn) -> Result<&'a Arc<Running>, Failure> {
        // SAFETY: the caller's promise.
        Ok(&unsafe { SenkoTxn::of(txn) }?.running)
    }

    /// Does a write.
    fn write(
        &mut self,
        table: u32,
        work: impl FnOnce(&mut Transaction, &Table) -> Result<(), senko_dbm::DbmError>,
    ) -> Result<(), Failure> {
        let table = self.running.shared.table(table)?;
        match &mut *self.running.state()? {
            State::Writes(tx) => Ok(work(tx, &table)?),
            State::Reads(_) => Err(Failure::with(READONLY, "the transaction reads only")),
            State::Ended => Err(Failure::code(ENDED)),
        }
    }

    /// Reads a value.
    ///
    /// # Safety
    /// As the header says.
    unsafe fn read(
        txn: *mut SenkoTxn,
        table: u32,
        key: *const Val,
        value: *mut Val,
        tracked: bool,
    ) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        let (txn, key) = unsafe { (SenkoTxn::of(txn)?, Val::bytes(key)?) };
        let table = txn.running.shared.table(table)?;
        let found = match &mut *txn.running.state()? {
            State::Writes(tx) if tracked => tx.get(&table, key)?,
            State::Writes(tx) => tx.get_untracked(&table, key)?,
            State::Reads(snapshot) => snapshot.get(&table, key)?,
            State::Ended => return Err(Failure::code(ENDED)),
        };
        txn.value = found.ok_or_else(|| Failure::code(NOTFOUND))?;
        // SAFETY: the caller's promise.
        unsafe { give(value, Val::of(&txn.value)) }
    }
}

/// Begins a transaction.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_begin(
    db: *mut SenkoDb,
    flags: c_uint,
    txn: *mut *mut SenkoTxn,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { give(txn, std::ptr::null_mut()) }?;
        // SAFETY: as above.
        let shared = Arc::clone(unsafe { SenkoDb::of(db) }?);
        let state = match flags {
            0 => State::Writes(Box::new(shared.db().begin())),
            RDONLY => State::Reads(shared.db().snapshot()),
            _ => {
                return Err(Failure::invalid(format!(
                    "the flags {flags:#x} are not known"
                )));
            }
        };
        let state = Mutex::new(state);
        let running = Arc::new(Running { shared, state });
        let value = Vec::new();
        // SAFETY: as above.
        unsafe { give(txn, Box::into_raw(Box::new(SenkoTxn { running, value }))) }
    })
}

/// Ends a transaction.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_commit(txn: *mut SenkoTxn, durability: c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let running = unsafe { SenkoTxn::running(txn) }?;
        let state = std::mem::replace(&mut *running.state()?, State::Ended);
        // SAFETY: it was made by `senko_begin`, and is not used again.
        drop(unsafe { Box::from_raw(txn) });
        let durability = durability_of(durability)?;
        match state {
            State::Writes(tx) => Ok(tx.commit(durability)?),
            State::Reads(_) => Ok(()),
            State::Ended => Err(Failure::code(ENDED)),
        }
    })
}

pub(crate) fn durability_of(number: c_int) -> Result<Durability, Failure> {
    match number {
        0 => Ok(Durability::None),
        1 => Ok(Durability::Buffered),
        2 => Ok(Durability::Synced),
        other => {
            let text = format!("there is no durability {other}; nothing was committed");
            Err(Failure::invalid(text))
        }
    }
}

/// `senko_pending` of the header.
#[derive(Debug)]
pub struct SenkoPending {
    shared: Arc<Shared>,
    /// `None` if the transaction only read.
    commit: Option<PendingCommit>,
}

/// Ends a transaction; its durability is awaited later.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_commit_async(
    txn: *mut SenkoTxn,
    durability: c_int,
    pending: *mut *mut SenkoPending,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { give(pending, std::ptr::null_mut()) }?;
        // SAFETY: as above.
        let running = unsafe { SenkoTxn::running(txn) }?;
        let shared = Arc::clone(&running.shared);
        let state = std::mem::replace(&mut *running.state()?, State::Ended);
        // SAFETY: it was made by `senko_begin`, and is not used again.
        drop(unsafe { Box::from_raw(txn) });
        let durability = durability_of(durability)?;
        let commit = match state {
            State::Writes(tx) => Some(tx.commit_async(durability)?),
            State::Reads(_) => None,
            State::Ended => return Err(Failure::code(ENDED)),
        };
        let waiting = Box::new(SenkoPending { shared, commit });
        // SAFETY: as above.
        unsafe { give(pending, Box::into_raw(waiting)) }
    })
}

/// Whether a commit is as durable as requested.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_pending_done(pending: *mut SenkoPending, done: *mut c_int) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let waiting =
            unsafe { pending.as_ref() }.ok_or_else(|| Failure::invalid("the commit is NULL"))?;
        waiting.shared.check()?;
        let is_done = waiting.commit.as_ref().is_none_or(PendingCommit::is_done);
        // SAFETY: the caller's promise.
        unsafe { give(done, c_int::from(is_done)) }
    })
}

/// Waits for a commit.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_pending_wait(pending: *mut SenkoPending) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let waiting =
            unsafe { pending.as_ref() }.ok_or_else(|| Failure::invalid("the commit is NULL"))?;
        waiting.shared.check()?;
        // SAFETY: it was made by `senko_commit_async`, and is not used again.
        let waiting = unsafe { Box::from_raw(pending) };
        match waiting.commit {
            Some(commit) => Ok(commit.wait()?),
            None => Ok(()),
        }
    })
}

/// Ends a transaction without a commit.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_abort(txn: *mut SenkoTxn) {
    guard(|| {
        if txn.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let running = unsafe { SenkoTxn::running(txn) }?;
        if let Ok(mut state) = running.state() {
            *state = State::Ended;
        }
        // SAFETY: it was made by `senko_begin`, and is not used again.
        drop(unsafe { Box::from_raw(txn) });
        Ok(())
    });
}

/// The value of a key.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_get(
    txn: *mut SenkoTxn,
    table: u32,
    key: *const Val,
    value: *mut Val,
) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| unsafe { SenkoTxn::read(txn, table, key, value, true) })
}

/// The value of a key, which the commit does not validate.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_get_untracked(
    txn: *mut SenkoTxn,
    table: u32,
    key: *const Val,
    value: *mut Val,
) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| unsafe { SenkoTxn::read(txn, table, key, value, false) })
}

/// Writes a record.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_put(
    txn: *mut SenkoTxn,
    table: u32,
    key: *const Val,
    value: *const Val,
    flags: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, key, value) =
            unsafe { (SenkoTxn::of(txn)?, Val::bytes(key)?, Val::bytes(value)?) };
        match flags {
            0 => txn.write(table, |tx, table| tx.put(table, key, value)),
            NOOVERWRITE => txn.write(table, |tx, table| tx.insert(table, key, value)),
            APPEND => txn.write(table, |tx, table| tx.append(table, key, value)),
            flags if flags == NOOVERWRITE | APPEND => Err(Failure::invalid(
                "SENKO_APPEND refuses every key that is there; give it without SENKO_NOOVERWRITE",
            )),
            _ => Err(Failure::invalid(format!(
                "the flags {flags:#x} are not known"
            ))),
        }
    })
}

/// Deletes a key.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_delete(txn: *mut SenkoTxn, table: u32, key: *const Val) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (txn, key) = unsafe { (SenkoTxn::of(txn)?, Val::bytes(key)?) };
        txn.write(table, |tx, table| tx.delete(table, key))
    })
}

/// Deletes a range of keys.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_delete_range(
    txn: *mut SenkoTxn,
    table: u32,
    from: *const Val,
    to: *const Val,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let txn = unsafe { SenkoTxn::of(txn) }?;
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
        txn.write(table, |tx, table| tx.delete_range(table, from, to))
    })
}
