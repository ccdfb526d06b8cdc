// SPDX-License-Identifier: Apache-2.0
//! The time since boot, which never jumps and continues while the machine sleeps, and the number of
//! this boot.

use std::sync::OnceLock;
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

/// A number that the kernel draws at each boot; `None` if it does not tell.
pub(crate) fn this_boot() -> Option<u128> {
    static BOOT: OnceLock<Option<u128>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_boot_has_one_number() {
        assert_eq!(super::this_boot(), super::this_boot());
        assert_ne!(super::this_boot(), Some(0));
    }
}
