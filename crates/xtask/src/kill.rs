// SPDX-License-Identifier: Apache-2.0
//! Ends programs that take too long, for `run.rs`.

#![allow(unsafe_code)] // kill: the standard library has no call for a group

/// Ends a child that leads its own process group, and all of that group.
pub fn kill_group(leader: u32) {
    let Ok(leader) = i32::try_from(leader) else {
        return;
    };
    // SAFETY: the call takes numbers only. We started the group and have not waited for it, so its
    // number is not reused.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}
