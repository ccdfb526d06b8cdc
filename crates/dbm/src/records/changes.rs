// SPDX-License-Identifier: Apache-2.0
//! The changes of commits in the log: encoding and decoding.
//!
//! A group of changes begins with 16 bytes: the entry up to which the log was durable when the
//! group was written, and the database's number. Then come commits, oldest first. The log contains
//! the changes, not the changed pages: replay applies them to the trees of the last checkpoint.

use crate::records::blob::{Blob, MAX_INLINE};
use crate::records::codec::{Reader, put_bytes, put_number};

/// A change of the list of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TableChange {
    /// It must not exist yet.
    Create {
        name: String,
    },
    Drop {
        id: u32,
    },
}

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put(u32, &'a [u8], &'a [u8]),
    Delete(u32, &'a [u8]),
    DeleteRange(u32, &'a [u8], Option<&'a [u8]>),
    /// A long value. Its commit is that of the change, and is not encoded with it.
    PutLong(u32, &'a [u8], Blob),
    CreateTable(u32, &'a [u8]),
    DropTable(u32),
}

impl Change<'_> {
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut head = |code: u8, table: u32| {
            to.push(code);
            put_number(to, u64::from(table));
        };
        match *self {
            Change::Put(table, key, value) => {
                head(1, table);
                put_bytes(to, key);
                put_bytes(to, value);
            }
            Change::Delete(table, key) => {
                head(2, table);
                put_bytes(to, key);
            }
            Change::DeleteRange(table, from, end) => {
                head(if end.is_some() { 3 } else { 4 }, table);
                put_bytes(to, from);
                if let Some(end) = end {
                    put_bytes(to, end);
                }
            }
            Change::PutLong(table, key, blob) => {
                head(5, table);
                put_bytes(to, key);
                put_number(to, blob.bytes);
                put_number(to, u64::from(blob.first));
            }
            Change::CreateTable(table, name) => {
                head(6, table);
                put_bytes(to, name);
            }
            Change::DropTable(table) => head(7, table),
        }
    }
}

impl<'a> Change<'a> {
    fn decode(from: &mut Reader<'a>, commit: u64) -> Option<Change<'a>> {
        let code = from.u8()?;
        let table = u32::try_from(from.number()?).ok()?;
        // The next table gets the next number.
        table.checked_add(1)?;
        let key = |from: &mut Reader<'a>| {
            let key = from.bytes()?;
            (key.len() <= MAX_KEY_BYTES).then_some(key)
        };
        Some(match code {
            1 => {
                let (key, value) = (key(from)?, from.bytes()?);
                let inline = key.len() + value.len() <= MAX_INLINE;
                inline.then_some(Change::Put(table, key, value))?
            }
            2 => Change::Delete(table, key(from)?),
            3 => Change::DeleteRange(table, from.bytes()?, Some(from.bytes()?)),
            4 => Change::DeleteRange(table, from.bytes()?, None),
            5 => {
                let (key, bytes) = (key(from)?, from.number()?);
                let first = u32::try_from(from.number()?).ok()?;
                Change::PutLong(table, key, Blob::checked(bytes, first, commit)?)
            }
            6 => Change::CreateTable(table, from.bytes()?),
            7 => Change::DropTable(table),
            _ => return None,
        })
    }
}

/// Begins a commit; returns what [`end_commit`] needs.
pub(crate) fn begin_commit(to: &mut Vec<u8>, number: u64) -> usize {
    to.extend_from_slice(&number.to_le_bytes());
    to.extend_from_slice(&[0; 4]);
    to.len()
}

pub(crate) fn end_commit(to: &mut [u8], begun: usize) {
    let bytes = (to.len() - begun) as u32;
    to[begun - 4..begun].copy_from_slice(&bytes.to_le_bytes());
}

/// The next commit of a group: its number and changes. `None` if the bytes are not changes.
pub(crate) fn next_commit<'a>(from: &mut Reader<'a>) -> Option<(u64, Vec<Change<'a>>)> {
    let number = from.u64()?;
    let bytes = from.u32()?;
    let mut rest = Reader(from.take(bytes as usize)?);
    let mut changes = Vec::new();
    while !rest.0.is_empty() {
        changes.push(Change::decode(&mut rest, number)?);
    }
    Some((number, changes))
}

/// The longest key.
pub const MAX_KEY_BYTES: usize = 1024;
/// The longest name of a table.
pub const MAX_TABLE_NAME_BYTES: usize = 255;

/// The name of a table, if it is one: 1 to 255 bytes of UTF-8.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=MAX_TABLE_NAME_BYTES).contains(&name.len())
}

impl TableChange {
    pub fn change(&self, new_id: u32) -> Change<'_> {
        match self {
            TableChange::Create { name } => Change::CreateTable(new_id, name.as_bytes()),
            TableChange::Drop { id } => Change::DropTable(*id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_as_they_were() {
        let changes = [
            Change::Put(1, b"key", b"value"),
            Change::Put(300, b"", b""),
            Change::Delete(2, b"key"),
            Change::DeleteRange(2, b"a", Some(b"b")),
            Change::DeleteRange(2, b"", None),
            Change::PutLong(1, b"key", Blob::checked(1 << 30, 77, 5).expect("it fits")),
            Change::CreateTable(9, b"name"),
            Change::DropTable(9),
        ];
        let mut bytes = Vec::new();
        let begun = begin_commit(&mut bytes, 5);
        for change in &changes {
            change.encode(&mut bytes);
        }
        end_commit(&mut bytes, begun);
        let mut reader = Reader(&bytes);
        assert_eq!(next_commit(&mut reader), Some((5, changes.to_vec())));
        assert!(reader.0.is_empty());
        for end in 0..bytes.len() {
            assert_eq!(
                next_commit(&mut Reader(&bytes[..end])),
                None,
                "cut at {end}"
            );
        }
    }

    /// Paper D's larger transaction has 100 records of 12 bytes: one entry of the log has to hold
    /// it.
    #[test]
    fn a_hundred_small_records_take_one_entry() {
        let mut bytes = vec![0; 8];
        let begun = begin_commit(&mut bytes, u64::MAX);
        for key in 0..100u32 {
            Change::Put(1, &key.to_be_bytes(), &[7; 8]).encode(&mut bytes);
        }
        end_commit(&mut bytes, begun);
        assert!(
            bytes.len() <= crate::disk::entry::BODY / 2,
            "{} bytes",
            bytes.len()
        );
    }
}
