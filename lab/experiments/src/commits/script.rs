// SPDX-License-Identifier: Apache-2.0
//! Transactions whose gets, puts and scans are known before, so that every contender does the same.
//!
//! The DBM reads and writes within one transaction. The rivals read outside of theirs, which asks
//! less of them, and put together what a transaction puts.

use senko_workload::Rng;

/// Bytes of a value at most.
pub const MOST_BYTES: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Get = 0,
    Put = 1,
    /// Reads records in order, from the key on.
    Scan = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub key: u32,
    /// Of bytes to put, or of records to scan.
    pub number: u16,
    pub what: What,
    pub ends: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    operations: Vec<Operation>,
    transactions: u64,
}

impl Script {
    /// Adds an operation to the transaction that has not ended.
    pub fn add(&mut self, what: What, key: u32, number: usize) {
        self.operations.push(Operation {
            key,
            number: number as u16,
            what,
            ends: false,
        });
    }

    pub fn get(&mut self, key: u32) {
        self.add(What::Get, key, 0);
    }

    pub fn put(&mut self, key: u32, bytes: usize) {
        self.add(What::Put, key, bytes);
    }

    /// Ends a transaction, which has at least one operation.
    pub fn end(&mut self) {
        if let Some(last) = self.operations.last_mut()
            && !last.ends
        {
            last.ends = true;
            self.transactions += 1;
        }
    }

    /// Puts of these keys, a thousand in a transaction.
    pub fn fill(keys: impl Iterator<Item = (u32, usize)>) -> Script {
        let mut script = Script::default();
        for (nth, (key, bytes)) in keys.enumerate() {
            script.put(key, bytes);
            if nth % 1000 == 999 {
                script.end();
            }
        }
        script.end();
        script
    }

    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    pub fn each_transaction(&self) -> impl Iterator<Item = &[Operation]> {
        self.operations.split_inclusive(|operation| operation.ends)
    }

    /// As `rival.c` reads them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.operations.len() * 8);
        for operation in &self.operations {
            bytes.extend_from_slice(&operation.key.to_le_bytes());
            bytes.extend_from_slice(&operation.number.to_le_bytes());
            bytes.extend_from_slice(&[operation.what as u8, u8::from(operation.ends)]);
        }
        bytes
    }
}

/// A number of TPC-C's non-uniform law (clause 2.1.6) from `first` to `last`.
pub fn uneven(rng: &mut Rng, most: u64, first: u64, last: u64) -> u64 {
    let one = rng.below(most + 1);
    let other = first + rng.below(last - first + 1);
    (one | other) % (last - first + 1) + first
}
