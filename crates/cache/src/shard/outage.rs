// SPDX-License-Identifier: Apache-2.0
//! A device goes out of use and comes back: what waited for it ends as a miss, nothing new is asked
//! of it, probes find out when it is well.
//!
//! `health.rs` says when; this file does what follows. The kernel gives no operation back before it
//! has ended, so the frame of a read that was given up stays away until then: only its caller goes
//! on. With several devices the frames of one that never answers are gone for the others; a read
//! that waits for a frame all that time ends as a miss too, so nobody hangs.
//!
//! Always holds: a read that is given up drops its slot, so that a key which was answered as absent
//! does not come back with its device.

use senko_io::{Completion, DeviceId, PAGE_SIZE, Purpose, Queue, Tag};

use crate::flash::health::{DeviceState, DeviceTrouble, LOST_READ_MS, Pauses, Probe, SILENT_MS};
use crate::flash::read::Stage;
use crate::flash::{TOKEN_PROBE, token};
use crate::shard::Shard;

/// How often devices are looked at.
const WATCH_MS: u64 = 100;

/// How a part of a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// The device.
    pub device: DeviceId,
    /// What it is used for.
    pub state: DeviceState,
    /// Why not for everything.
    pub trouble: Option<DeviceTrouble>,
    /// How often it paused, since the statistics were reset.
    pub pauses: Pauses,
}

impl Shard {
    /// How this shard's parts of devices do.
    pub fn devices(&self) -> impl Iterator<Item = DeviceHealth> {
        self.logs.iter().map(|log| DeviceHealth {
            device: log.device(),
            state: log.health.state(),
            trouble: log.health.trouble(),
            pauses: log.health.pauses,
        })
    }

    /// Sets the time that deadlines of the device go by: milliseconds in which this shard's owner
    /// was running, from any start. Unlike the clock it never steps. An owner that was itself held
    /// up passes less than the time that went by, and so blames no device.
    pub fn set_steady(&mut self, ms: u64) {
        self.steady_ms = self.steady_ms.max(ms);
    }
    /// That time.
    pub fn steady_ms(&self) -> u64 {
        self.steady_ms
    }

    /// Looks for devices that do not answer, and probes those that are to come back. Cheap; called
    /// by every tick.
    pub(crate) fn watch_devices<Q: Queue>(&mut self, queue: &mut Q) {
        if self.steady_ms < self.next_watch_ms {
            return;
        }
        self.next_watch_ms = self.steady_ms + WATCH_MS;
        let now = self.steady_ms;
        for n in 0..self.logs.len() {
            if self.logs[n].health.stalls(now) && self.logs[n].health.note_stall(now) {
                self.state_changed(n);
            }
            if self.logs[n].health.probe_due(now) && !self.logs[n].is_streaming() {
                self.probe(queue, n);
            }
        }
        if self.reads.in_flight > 0 || !self.reads.waiting.is_empty() {
            self.give_up_old_reads();
        }
    }

    /// A log's device changed its state for the worse.
    pub(crate) fn state_changed(&mut self, n: usize) {
        match self.logs[n].health.state() {
            DeviceState::Up => {}
            DeviceState::ReadOnly => {
                self.stats.device_write_pauses += 1;
                self.cancel_copy(n);
                if self.keeps_all() {
                    self.cancel_stream(n);
                }
            }
            DeviceState::Out => {
                self.stats.device_outages += 1;
                self.logs[n].hide(true);
                self.cancel_stream(n);
                self.cancel_copy(n);
                for op in 0..self.reads.len() {
                    if self.reads.op(op).log == n {
                        self.give_up(op);
                    }
                }
            }
        }
    }

    /// Ends reads that have been with a device for too long, and those that wait for a frame which
    /// a device out of use may hold.
    fn give_up_old_reads(&mut self) {
        let now = self.steady_ms;
        let frames_held = self
            .logs
            .iter()
            .any(|log| log.health.is_out() && log.health.is_busy());
        for n in 0..self.reads.len() {
            let op = self.reads.op(n);
            let age = now.saturating_sub(op.since_ms);
            let late = match op.stage {
                Stage::Reading => age > LOST_READ_MS,
                Stage::Waiting => frames_held && age > SILENT_MS,
                _ => false,
            };
            if late {
                self.give_up(n);
            }
        }
    }

    /// Ends a read that is with the device or waits for a frame, as one that found nothing.
    fn give_up(&mut self, n: u32) {
        match self.reads.op(n).stage {
            Stage::Waiting => {
                self.reads.waiting.retain(|&other| other != n);
                self.reads.op(n).stage = Stage::GivenUp;
                self.reads.ready.push_back(n);
            }
            // Its number is with the device: another takes over what it was for.
            Stage::Reading => {
                let heir = self.reads.leave_to_device(n);
                self.reads.ready.push_back(heir);
            }
            _ => {}
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
        let log = &mut self.logs[n];
        // Without a page to write, reading must do: reclaim makes pages when the log is in use
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
            token(TOKEN_PROBE, n as u64 | u64::from(wrote) << 32),
        );
    }

    /// A part of a probe ended.
    pub(crate) fn probe_moved(&mut self, value: u64, completion: Completion) {
        let (n, wrote) = (value as u32 as usize, value >> 32 != 0);
        let now = self.steady_ms;
        let log = &mut self.logs[n];
        log.health.end(now);
        let passed = match log.health.probe {
            Probe::Writing => {
                log.probe_written();
                if completion.result.is_ok() {
                    log.health.probe = Probe::Written;
                    return; // the next look reads
                }
                false
            }
            _ => {
                // A device that takes writes and gives back something else is not well.
                let whole = |page: &[u8]| !wrote || page[..PAGE_SIZE].iter().all(|&b| b == 0);
                completion.result.is_ok() && completion.buf.is_some_and(|page| whole(&page))
            }
        };
        log.health.probe_ended(passed, now);
        if passed {
            log.hide(false);
            self.stats.device_returns += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use senko_io::{FramePool, IoError, Op};

    use super::*;
    use crate::{Admission, AdmissionRule, DeviceSlice, HashSeed, PolicyKind, ShardConfig};

    /// A device that took the zeroes of a probe and gave back something else was in use again, and
    /// one that gave zeroes back was not.
    #[test]
    fn a_probe_passes_if_what_it_wrote_comes_back_or_if_it_could_only_read() {
        let mut shard = Shard::new(ShardConfig {
            memory: 4 << 20,
            max_item: 64 << 10,
            flash: vec![DeviceSlice {
                device: 0,
                first_page: 0,
                pages: 4096,
            }],
            region: 256 << 10,
            policy: PolicyKind::Lru,
            admission: Admission {
                rule: AdmissionRule::All,
                budget: None,
            },
            promote_after: 3,
            reinsert: true,
            no_evict: false,
            shard: 0,
            shards: 1,
            seed: 1,
            hash_seed: HashSeed::default(),
        })
        .unwrap();
        let frames = FramePool::new(&[(1, 2)]);
        let wrote = 1_u64 << 32;
        for (value, byte, result, passes) in [
            (wrote, 7, Ok(()), false),
            (wrote, 0, Ok(()), true),
            (0, 7, Ok(()), true),
            (0, 0, Err(IoError::Os(5)), false),
        ] {
            let before = shard.stats.device_returns;
            shard.logs[0].health.probe = Probe::Reading;
            shard.logs[0].health.begin(0);
            let mut frame = frames.take(1).unwrap();
            frame.fill(byte);
            let completion = Completion {
                token: token(TOKEN_PROBE, value),
                op: Op::Read,
                result,
                buf: Some(frame),
            };
            shard.probe_moved(value, completion);
            let returns = shard.stats.device_returns - before;
            assert_eq!(returns == 1, passes, "{value} {byte} {result:?}");
        }
    }
}
