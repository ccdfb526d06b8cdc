// SPDX-License-Identifier: Apache-2.0
//! Emptied batches, kept for later sends.
//!
//! Always holds: all of them together keep at most [`SPARE_BYTES`]. A send of a few bytes may use a
//! batch with much room, so what a batch takes is its capacity, wherever it is.

use senko_io::SendBatch;

const SPARE_BATCHES: usize = 64;
/// Memory that they keep together.
pub(super) const SPARE_BYTES: usize = 1 << 20;

/// The batches. They are boxed, because the loop takes and returns them boxed.
#[derive(Debug, Default)]
pub(super) struct Spare {
    #[allow(clippy::vec_box)]
    batches: Vec<Box<SendBatch>>,
    memory: usize,
}

impl Spare {
    pub fn take(&mut self) -> Box<SendBatch> {
        let Some(batch) = self.batches.pop() else {
            return Box::default();
        };
        self.memory -= batch.memory();
        batch
    }

    /// Keeps an empty batch, if there is room.
    pub fn put(&mut self, batch: Box<SendBatch>) {
        let memory = self.memory + batch.memory();
        if self.batches.len() < SPARE_BATCHES && memory <= SPARE_BYTES {
            self.memory = memory;
            self.batches.push(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 batches of 64 KiB each were kept, 4 MiB that no part of the plan had.
    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let mut spare = Spare::default();
        for _ in 0..100 {
            spare.put(Box::new(SendBatch::from(Vec::with_capacity(64 << 10))));
        }
        assert!(spare.memory <= SPARE_BYTES && spare.batches.len() >= 15);
        let kept = spare.batches.len();
        for _ in 0..kept {
            assert!(spare.take().bytes.capacity() > 0);
        }
        assert_eq!(spare.memory, 0);
        assert_eq!(spare.take().bytes.capacity(), 0);
    }
}
