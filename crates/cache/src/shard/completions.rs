// SPDX-License-Identifier: Apache-2.0
//! Completions of a device: passes each to the part of the shard that asked for it.

use senko_io::{Completion, PAGE_SIZE, Queue};

use crate::flash::{
    TOKEN_DISCARD, TOKEN_PROBE, TOKEN_READ, TOKEN_RECLAIM, TOKEN_UPLOAD, TOKEN_WRITE, token_shard,
    untoken,
};
use crate::shard::Shard;

impl Shard {
    /// The number of the shard that asked for this.
    pub fn of_completion(completion: &Completion) -> usize {
        usize::from(token_shard(completion.token))
    }

    /// Takes a device completion from the queue; the caller must pass each one here. Ended fetches
    /// are then in [`Shard::next_done`].
    pub fn on_disk<Q: Queue>(&mut self, queue: &mut Q, completion: Completion) {
        let (kind, value) = untoken(completion.token);
        match kind {
            TOKEN_READ => {
                let (log, left, worse) = self.flash.read_ended(value as u32, completion);
                if left {
                    self.flash.frames_freed(queue);
                }
                if worse {
                    self.state_changed(log);
                }
            }
            TOKEN_WRITE => {
                let written = completion.result.is_ok();
                let (log, pages, worse) = self.flash.write_ended(value, completion.result);
                if written {
                    self.stats.device_write_bytes += (pages * PAGE_SIZE) as u64;
                } else {
                    self.stats.flash_write_errors += 1;
                }
                if worse {
                    self.state_changed(log);
                }
                self.pump_stream(queue);
                self.flash.retry_parked();
                self.reclaim(queue, log);
            }
            TOKEN_UPLOAD => {
                let written = completion.result.is_ok();
                let (log, bytes, worse) =
                    self.flash.upload_written(queue, value, completion.result);
                if written {
                    self.stats.device_write_bytes += bytes as u64;
                } else {
                    self.stats.flash_write_errors += 1;
                }
                if worse {
                    self.state_changed(log);
                }
                self.reclaim(queue, log);
            }
            TOKEN_RECLAIM => self.reclaim_read(queue, value as usize, completion),
            TOKEN_DISCARD => {
                self.flash.discard_ended(value);
                self.shed_in_vain = false;
                self.pump_stream(queue);
                self.flash.retry_parked();
            }
            TOKEN_PROBE => {
                self.stats.device_returns += u64::from(self.flash.probe_moved(value, completion));
            }
            _ => debug_assert!(false, "a token of this shard"),
        }
    }
}
