// SPDX-License-Identifier: Apache-2.0
//! What a device ended: each completion goes to the part of the shard that asked for it.

use senko_io::{Completion, PAGE_SIZE, Queue};

use crate::flash::read::Stage;
use crate::flash::{TOKEN_DISCARD, TOKEN_PROBE, TOKEN_READ, TOKEN_RECLAIM, TOKEN_WRITE, untoken};
use crate::shard::Shard;

impl Shard {
    /// Takes a device completion that the queue delivered (each one goes here); ended fetches are
    /// then in [`Shard::next_done`].
    pub fn on_disk<Q: Queue>(&mut self, queue: &mut Q, completion: Completion) {
        let (kind, value) = untoken(completion.token);
        match kind {
            TOKEN_READ => {
                let n = value as u32;
                self.reads.in_flight -= 1;
                let log = self.reads.op(n).log;
                let health = &mut self.logs[log].health;
                health.end(self.steady_ms);
                let worse = health.note_read(completion.result, self.steady_ms);
                if matches!(self.reads.op(n).stage, Stage::LeftToDevice) {
                    self.reads.end(n);
                    drop(completion);
                    self.frames_freed(queue);
                } else {
                    let result = match (completion.result, completion.buf) {
                        (Ok(()), Some(buf)) => Ok(buf),
                        _ => Err(()),
                    };
                    self.reads.op(n).stage = Stage::Here(result);
                    self.reads.ready.push_back(n);
                }
                if worse {
                    self.state_changed(log);
                }
            }
            TOKEN_WRITE => {
                let log = (value >> 40) as usize;
                let pages = self.logs[log].written(value, completion.result.is_ok());
                self.admitter.written((pages * PAGE_SIZE) as u64);
                let health = &mut self.logs[log].health;
                health.end(self.steady_ms);
                let worse = health.note_write(completion.result, self.steady_ms);
                if completion.result.is_ok() {
                    self.stats.device_write_bytes += (pages * PAGE_SIZE) as u64;
                } else {
                    self.stats.flash_write_errors += 1;
                }
                if worse {
                    self.state_changed(log);
                }
                self.pump_stream(queue);
                self.retry_parked();
                self.reclaim(queue, log);
            }
            TOKEN_RECLAIM => self.reclaim_read(queue, value as usize, completion),
            TOKEN_DISCARD => {
                let (log, region) = ((value >> 40) as usize, value & ((1 << 40) - 1));
                self.logs[log].discards.end(region, self.steady_ms);
                self.shed_in_vain = false;
                self.pump_stream(queue);
                self.retry_parked();
            }
            TOKEN_PROBE => self.probe_moved(value, completion),
            _ => debug_assert!(false, "a token of this shard"),
        }
    }

    /// Items that waited for memory may find some now.
    pub(crate) fn retry_parked(&mut self) {
        while let Some(n) = self.reads.parked.pop() {
            self.reads.ready.push_back(n);
        }
    }
}
