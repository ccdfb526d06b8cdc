// SPDX-License-Identifier: Apache-2.0
//! Watches devices: detects a device that stalls, and a device that works again.
//!
//! `health.rs` decides the state of a device; `shard/outage.rs` reacts to it.

use senko_io::{Completion, PAGE_SIZE, Purpose, Queue, Tag};

use super::health::Probe;
use super::{Flash, TOKEN_PROBE, token};

/// How often devices are checked, in milliseconds.
const WATCH_MS: u64 = 100;

impl Flash {
    /// Whether devices must be checked now. If so, the next check is due [`WATCH_MS`] later.
    pub fn watch_due(&mut self) -> bool {
        let due = self.steady_ms >= self.next_watch_ms;
        if due {
            self.next_watch_ms = self.steady_ms + WATCH_MS;
        }
        due
    }

    /// Whether a log's device has completed nothing for too long, and its state became worse for
    /// that.
    pub fn stalls(&mut self, n: usize) -> bool {
        let (health, now) = (&mut self.logs[n].health, self.steady_ms);
        health.stalls(now) && health.note_stall(now)
    }

    /// Probes the device of a log that is out of use, if that is due.
    pub fn probe_if_due<Q: Queue>(&mut self, queue: &mut Q, n: usize) {
        let log = &self.logs[n];
        if log.health().probe_due(self.steady_ms) && !log.is_streaming() {
            self.probe(queue, n);
        }
    }

    fn probe<Q: Queue>(&mut self, queue: &mut Q, n: usize) {
        let now = self.steady_ms;
        let log = &mut self.logs[n];
        if log.health.probe == Probe::Idle && log.write_probe(queue, now) {
            log.health.probe = Probe::Writing;
            return;
        }
        let frame = queue.frame(1).or_else(|| self.reclaim_frames.take(1));
        let Some(frame) = frame else { return }; // at the next look
        // Without a page to write, a read must suffice. Reclaim makes pages when the log is in use
        // again.
        let wrote = log.health.probe == Probe::Written;
        log.health.probe = Probe::Reading;
        log.health.begin(now);
        queue.read(
            log.device(),
            log.probe_page(),
            1,
            frame,
            Tag::cache(Purpose::Meta),
            token(TOKEN_PROBE, self.shard, n as u64 | u64::from(wrote) << 32),
        );
    }

    /// Handles the end of a part of a probe. Returns whether the device is back in use.
    pub fn probe_moved(&mut self, value: u64, completion: Completion) -> bool {
        let (n, wrote) = (value as u32 as usize, value >> 32 != 0);
        let now = self.steady_ms;
        let log = &mut self.logs[n];
        log.health.end(now);
        let passed = match log.health.probe {
            Probe::Writing => {
                log.probe_written();
                if completion.result.is_ok() {
                    log.health.probe = Probe::Written;
                    return false; // the next check reads
                }
                false
            }
            _ => {
                // A device that accepts writes but returns other data is not well.
                let whole = |page: &[u8]| !wrote || page[..PAGE_SIZE].iter().all(|&b| b == 0);
                completion.result.is_ok() && completion.buf.is_some_and(|page| whole(&page))
            }
        };
        log.health.probe_ended(passed, now);
        if passed {
            log.hide(false);
        }
        passed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use senko_io::{FramePool, IoError, Op};

    use super::*;
    use crate::flash::admission::Admitter;
    use crate::flash::log::Log;
    use crate::{Admission, AdmissionRule, DeviceSlice};

    fn flash() -> Flash {
        let slice = DeviceSlice {
            device: 0,
            first_page: 0,
            pages: 4096,
        };
        let admission = Admission {
            rule: AdmissionRule::All,
            budget: None,
        };
        Flash::new(
            0,
            vec![Log::new((0, 0), slice, 0, 64, 16, 4)],
            FramePool::new(&[(1, 1)]),
            0,
            Admitter::new(admission, 1),
        )
    }

    /// A device that returned other data than the probe's zeroes was once taken back into use, and
    /// a device that returned the zeroes was not.
    #[test]
    fn a_probe_passes_if_what_it_wrote_comes_back_or_if_it_could_only_read() {
        let mut flash = flash();
        let frames = FramePool::new(&[(1, 2)]);
        let wrote = 1_u64 << 32;
        for (value, byte, result, passes) in [
            (wrote, 7, Ok(()), false),
            (wrote, 0, Ok(()), true),
            (0, 7, Ok(()), true),
            (0, 0, Err(IoError::Os(5)), false),
        ] {
            flash.logs[0].health.probe = Probe::Reading;
            flash.logs[0].health.begin(0);
            let mut frame = frames.take(1).unwrap();
            frame.fill(byte);
            let completion = Completion {
                token: token(TOKEN_PROBE, 0, value),
                op: Op::Read,
                result,
                buf: Some(frame),
            };
            let passed = flash.probe_moved(value, completion);
            assert_eq!(passed, passes, "{value} {byte} {result:?}");
        }
    }
}
