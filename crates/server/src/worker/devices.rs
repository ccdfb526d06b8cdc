// SPDX-License-Identifier: Apache-2.0
//! What becomes of a flash device is told: one line in the log for each change, however many workers use it and however many operations failed.
//!
//! Each shard finds out for itself (`senko_cache`); what is told is the worst that any of them found. A device that comes and goes is probed at
//! longer and longer intervals, which bounds the lines too.

use senko_cache::DeviceState;

use super::Worker;

impl Worker {
    /// Tells what changed since the last time.
    pub(super) fn tell_of_devices(&mut self) {
        let core = &self.core;
        for (part, health) in core.shard.devices().enumerate() {
            if self.device_states.len() <= part {
                self.device_states.push(DeviceState::Up);
            }
            if std::mem::replace(&mut self.device_states[part], health.state) == health.state {
                continue;
            }
            let device = usize::from(health.device);
            let Some(worst) = core.shared.device_changed(device, self.index, health.state) else {
                continue;
            };
            let name = core.shared.settings.flash[device].path.display();
            let why = health.trouble.map_or(String::new(), |t| t.to_string());
            match worst {
                DeviceState::Up => tracing::warn!("flash {name} is in use again"),
                DeviceState::ReadOnly => tracing::warn!(
                    "flash {name} takes no items any more: {why}; what it holds is still served, and it is tried again from time to time"
                ),
                DeviceState::Out => tracing::warn!(
                    "flash {name} is out of use: {why}; its items are misses, the server goes on without it and tries it again from time to time"
                ),
            }
        }
    }
}
