// SPDX-License-Identifier: Apache-2.0
//! Takes a device out of use, and back into use. Reads that waited for it end as misses, it gets no
//! new operations, and probes detect when it is well again.
//!
//! `flash/health.rs` decides when; this file reacts. The kernel gives no operation back before the
//! operation has ended. So if a read was given up, its caller continues, but its frame stays in use
//! until then. If a device never answers, its frames are missing for the other devices. A read that
//! waits for a frame all that time also ends as a miss, so no client hangs.
//!
//! Always holds: a read that is given up drops its slot. So a key that was answered as absent does
//! not reappear with its device.

use senko_io::{DeviceId, Queue};

use crate::flash::health::{DeviceState, DeviceTrouble, Pauses};
use crate::shard::Shard;

/// The state of a part of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    pub device: DeviceId,
    /// What it is used for.
    pub state: DeviceState,
    /// Why it is not fully used.
    pub trouble: Option<DeviceTrouble>,
    /// How often it paused, since the statistics were reset.
    pub pauses: Pauses,
}

impl Shard {
    /// The state of this shard's parts of devices.
    pub fn devices(&self) -> impl Iterator<Item = DeviceHealth> {
        self.flash.logs().iter().map(|log| DeviceHealth {
            device: log.device(),
            state: log.health().state(),
            trouble: log.health().trouble(),
            pauses: log.health().pauses(),
        })
    }

    /// Sets the clock for deadlines of devices: milliseconds in which this shard's owner was
    /// running, from any start. Unlike the wall clock it never jumps. An owner that was itself held
    /// up passes less than the elapsed time, and so blames no device.
    pub fn set_steady(&mut self, ms: u64) {
        self.flash.set_steady(ms);
    }
    /// Notes whether a device holds frames of this shard's queue for reads of other shards' flash
    /// ([`Shard::read_afar`]) that were given up. Then a read that waits for a frame does not wait
    /// for long.
    pub fn set_frames_lost(&mut self, lost: bool) {
        self.flash.set_frames_lost(lost);
    }
    /// The clock for deadlines of devices.
    pub fn steady_ms(&self) -> u64 {
        self.flash.steady_ms()
    }

    /// Detects devices that do not answer, and probes devices that are out of use. It is cheap;
    /// every tick calls it.
    pub(crate) fn watch_devices<Q: Queue>(&mut self, queue: &mut Q) {
        if !self.flash.watch_due() {
            return;
        }
        for n in 0..self.flash.logs().len() {
            if self.flash.stalls(n) {
                self.state_changed(n);
            }
            self.flash.probe_if_due(queue, n);
        }
        self.flash.give_up_old_reads();
    }

    /// Reacts to a log's device whose state became worse.
    pub(crate) fn state_changed(&mut self, n: usize) {
        match self.flash.log(n).health().state() {
            DeviceState::Up => {}
            DeviceState::ReadOnly => {
                self.stats.device_write_pauses += 1;
                self.flash.cancel_copy(n);
                if self.keeps_all() {
                    self.cancel_stream(n);
                }
            }
            DeviceState::Out => {
                self.stats.device_outages += 1;
                self.flash.log_mut(n).hide(true);
                self.cancel_stream(n);
                self.flash.fail_uploads(n, true);
                self.flash.cancel_copy(n);
                self.flash.give_up_reads_of(n);
            }
        }
    }
}
