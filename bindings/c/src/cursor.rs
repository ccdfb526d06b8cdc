// SPDX-License-Identifier: Apache-2.0
//! Cursors for C. In a snapshot it is the engine's own cursor; in a transaction that writes, it is
//! a key from which each step continues. Called from C.

use std::ffi::c_int;
use std::sync::Arc;

use senko_dbm::{Cursor, DbmError, Record, Snapshot, Table, Transaction};

use crate::failure::{ENDED, Failure, NOTFOUND, guard};
use crate::transaction::{Running, SenkoTxn, State};
use crate::{Val, give};

/// Where to go.
enum Where<'a> {
    First,
    Last,
    Next,
    Previous,
    At(&'a [u8]),
    From(&'a [u8]),
}

/// `senko_cursor` of the header.
#[derive(Debug)]
pub struct SenkoCursor {
    running: Arc<Running>,
    table: Table,
    /// In a snapshot.
    cursor: Option<Cursor>,
    /// The record that it returned last.
    at: Option<Record>,
}

impl SenkoCursor {
    fn go(&mut self, to: &Where<'_>) -> Result<Option<Record>, Failure> {
        let (running, at) = (Arc::clone(&self.running), self.at.as_ref());
        let key = at.map(|(key, _)| key.as_slice());
        match &mut *running.state()? {
            State::Writes(tx) => Ok(in_transaction(tx, &self.table, key, to)?),
            State::Reads(snapshot) => Ok(in_snapshot(&mut self.cursor, snapshot, &self.table, to)?),
            State::Ended => {
                self.cursor = None; // an open cursor would keep what the snapshot keeps
                Err(Failure::code(ENDED))
            }
        }
    }
}

fn in_transaction(
    tx: &mut Transaction,
    table: &Table,
    at: Option<&[u8]>,
    to: &Where<'_>,
) -> Result<Option<Record>, DbmError> {
    match (to, at) {
        (Where::First, _) | (Where::Next, None) => tx.next(table, b""),
        (Where::Last, _) | (Where::Previous, None) => tx.before(table, None),
        (Where::Next, Some(at)) => tx.next_after(table, at),
        (Where::Previous, Some(at)) => tx.before(table, Some(at)),
        (Where::From(key), _) => tx.next(table, key),
        (Where::At(key), _) => {
            let value = tx.get(table, key)?;
            Ok(value.map(|value| (key.to_vec(), value)))
        }
    }
}

fn in_snapshot(
    held: &mut Option<Cursor>,
    snapshot: &Snapshot,
    table: &Table,
    to: &Where<'_>,
) -> Result<Option<Record>, DbmError> {
    if matches!(to, Where::First | Where::Last) {
        *held = None;
    }
    let cursor = match held {
        Some(cursor) => cursor,
        None => held.insert(snapshot.cursor(table, ..)?),
    };
    match to {
        Where::First | Where::Next => cursor.next(),
        Where::Last | Where::Previous => cursor.previous(),
        Where::From(key) => cursor.seek(key),
        // If there is no such key, the cursor must stay where it is.
        Where::At(key) => match snapshot.get(table, key)? {
            Some(_) => cursor.seek(key),
            None => Ok(None),
        },
    }
}

/// Opens a cursor.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_cursor_open(
    txn: *mut SenkoTxn,
    table: u32,
    cursor: *mut *mut SenkoCursor,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { give(cursor, std::ptr::null_mut()) }?;
        // SAFETY: as above.
        let running = Arc::clone(unsafe { SenkoTxn::running(txn) }?);
        let opened = SenkoCursor {
            table: running.shared.table(table)?,
            running,
            cursor: None,
            at: None,
        };
        // SAFETY: as above.
        unsafe { give(cursor, Box::into_raw(Box::new(opened))) }
    })
}

/// Moves a cursor.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_cursor_get(
    cursor: *mut SenkoCursor,
    key: *mut Val,
    value: *mut Val,
    to: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let cursor =
            unsafe { cursor.as_mut() }.ok_or_else(|| Failure::invalid("the cursor is NULL"))?;
        // SAFETY: the caller's promise.
        let given = || unsafe { Val::bytes(key) };
        let to = match to {
            0 => Where::First,
            1 => Where::Last,
            2 => Where::Next,
            3 => Where::Previous,
            4 => Where::At(given()?),
            5 => Where::From(given()?),
            other => return Err(Failure::invalid(format!("a cursor cannot go to {other}"))),
        };
        let found = cursor.go(&to)?.ok_or_else(|| Failure::code(NOTFOUND))?;
        let (found_key, found_value) = cursor.at.insert(found);
        // SAFETY: the caller's promise.
        unsafe {
            give(key, Val::of(found_key))?;
            give(value, Val::of(found_value))
        }
    })
}

/// Closes a cursor.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn senko_cursor_close(cursor: *mut SenkoCursor) {
    guard(|| {
        // SAFETY: the caller's promise.
        let Some(held) = (unsafe { cursor.as_ref() }) else {
            return Ok(());
        };
        held.running.shared.check()?;
        // SAFETY: it was made by `senko_cursor_open`, and is not used again.
        drop(unsafe { Box::from_raw(cursor) });
        Ok(())
    });
}
