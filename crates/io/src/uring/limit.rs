// SPDX-License-Identifier: Apache-2.0
//! RLIMIT_MEMLOCK: rings and registered buffers of all processes of a user count against it.
//!
//! The kernel still counts a ring that was closed a moment ago, even of an ended process, until it
//! has removed the ring in the background. So after a refusal a few more tries are worthwhile, but
//! only if the limit itself is large enough.

use std::time::Duration;

const CAP_IPC_LOCK: u32 = 14;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Bytes that this process's user may lock; `None` if there is no limit.
pub(super) fn lockable() -> Option<u64> {
    if has_ipc_lock() {
        return None;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes the structure, which lives on this stack.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0 {
        return Some(0);
    }
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Whether the thread has the capability that lifts the limit.
fn has_ipc_lock() -> bool {
    let header = [CAPABILITY_VERSION_3, 0];
    // Effective, permitted and inheritable sets, for capabilities 0 to 31 and 32 to 63.
    let mut sets = [0u32; 6];
    // SAFETY: the kernel reads the header and writes two times three words, all on this stack.
    let done = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    done == 0 && sets[0] & 1 << CAP_IPC_LOCK != 0
}

/// The waits between tries to lock `bytes`: several if the limit would allow them, otherwise none.
pub(super) fn patience(bytes: u64) -> impl Iterator<Item = Duration> {
    let tries = if lockable().is_none_or(|limit| limit >= 4 * bytes) {
        50
    } else {
        0
    };
    std::iter::repeat_n(Duration::from_millis(10), tries)
}
