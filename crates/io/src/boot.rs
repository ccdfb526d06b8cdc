// SPDX-License-Identifier: Apache-2.0
//! The time since boot. It never jumps, and continues while the machine sleeps.

use std::time::Duration;

/// The time since boot, including sleep.
pub fn since_boot() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `timespec`, which lives on this stack. The call fails only for
    // clocks that it does not know, and leaves 0 then.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
