// SPDX-License-Identifier: Apache-2.0
//! Takes a device out of use, and back into use. Reads that waited for it end as misses, nothing
//! new is asked of it, and probes find out when it is well.
//!
//! `flash/health.rs` decides when; this file reacts. The kernel gives no operation back before the
//! operation has ended. So the frame of a read that was given up stays away until then, and only
//! the read's caller continues. With several devices, the others lack the frames of a device that
//! never answers. A read that waits for a frame all that time also ends as a miss, so no client
//! hangs.
//!
//! Always holds: a read that is given up drops its slot. So a key that was answered as absent does
//! not come back with its device.

use senko_io::{DeviceId, Queue};

use crate::flash::health::{DeviceState, DeviceTrouble, Pauses};
use crate::shard::Shard;

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
        self.flash.logs().iter().map(|log| DeviceHealth {
            device: log.device(),
            state: log.health().state(),
            trouble: log.health().trouble(),
            pauses: log.health().pauses(),
        })
    }

    /// Sets the time that deadlines of the device go by: milliseconds in which this shard's owner
    /// was running, from any start. Unlike the clock it never steps. An owner that was itself held
    /// up passes less than the time that went by, and so blames no device.
    pub fn set_steady(&mut self, ms: u64) {
        self.flash.set_steady(ms);
    }
    /// That time.
    pub fn steady_ms(&self) -> u64 {
        self.flash.steady_ms()
    }

    /// Looks for devices that do not answer, and probes those that are to come back. Cheap; called
    /// by every tick.
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

    /// A log's device changed its state for the worse.
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
                self.flash.cancel_copy(n);
                self.flash.give_up_reads_of(n);
            }
        }
    }
}
