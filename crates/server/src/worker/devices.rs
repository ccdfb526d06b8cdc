// SPDX-License-Identifier: Apache-2.0
//! Log lines about flash devices: one for each change of a device's state, however many workers use
//! the device and however many operations failed.
//!
//! Each shard detects a device's state on its own (`senko_cache`). A line reports the worst state
//! found by any of them. A device that comes and goes is probed at longer and longer intervals,
//! which bounds the lines too. Pauses change no state; each worker has a line a minute for them at
//! most.

use senko_cache::{DeviceHealth, DeviceState, Pauses};

use super::Worker;
use crate::shared::Shared;

/// The least interval between a worker's lines about pauses of one device, in milliseconds.
const PAUSE_LINES_MS: u64 = 60_000;

/// The last reported state of one part of a device.
#[derive(Debug, Default)]
pub(super) struct Told {
    state: DeviceState,
    pauses: Pauses,
    next_pauses_ms: u64,
}

impl Worker {
    /// Reports changes since the last call.
    pub(super) fn tell_of_devices(&mut self) {
        let shared = &self.core.shared;
        for (part, (shard, health)) in self.core.shard.devices().enumerate() {
            if self.told.len() <= part {
                self.told.push(Told::default());
            }
            let told = &mut self.told[part];
            told.tell_of_pauses(shared, health, self.timers.steady_ms());
            told.tell_of_state(shared, health, shard);
        }
    }
}

impl Told {
    fn tell_of_state(&mut self, shared: &Shared, health: DeviceHealth, shard: usize) {
        if std::mem::replace(&mut self.state, health.state) == health.state {
            return;
        }
        let device = usize::from(health.device);
        let Some(worst) = shared.device_changed(device, shard, health.state) else {
            return;
        };
        let name = shared.settings.flash[device].path.display();
        let why = health.trouble.map_or(String::new(), |t| t.to_string());
        match worst {
            DeviceState::Up => tracing::warn!("flash {name} is in use again"),
            DeviceState::ReadOnly => tracing::warn!(
                "flash {name} accepts no items any more: {why}; its items are still served, and writes are tried again from time to time"
            ),
            DeviceState::Out => tracing::warn!(
                "flash {name} is out of use: {why}; its items are misses, the server goes on without it and tries it again from time to time"
            ),
        }
    }

    fn tell_of_pauses(&mut self, shared: &Shared, health: DeviceHealth, now_ms: u64) {
        let now = health.pauses;
        if now.count < self.pauses.count || now.ms < self.pauses.ms {
            // The statistics were reset.
            self.pauses = Pauses::default();
        }
        if now.count == self.pauses.count || now_ms < self.next_pauses_ms {
            return;
        }
        let (count, ms) = (now.count - self.pauses.count, now.ms - self.pauses.ms);
        self.pauses = now;
        self.next_pauses_ms = now_ms + PAUSE_LINES_MS;
        let name = shared.settings.flash[usize::from(health.device)]
            .path
            .display();
        let pauses = if count == 1 { "once" } else { "some times" };
        tracing::warn!(
            "flash {name} paused {pauses}: for {ms} ms it ended nothing of what it was asked for"
        );
    }
}
