// SPDX-License-Identifier: Apache-2.0
//! Signals: ends programs that take too long (`run.rs`), and takes Ctrl-C.

#![allow(unsafe_code)] // kill, signal: the standard library has no call for them

/// Lets SIGINT end this process and its children. A shell script starts what ends with `&` with
/// SIGINT ignored, and tests that send it to a program would wait forever.
pub fn take_interrupts() {
    // SAFETY: the default action needs no handler of ours.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// Ends a child that leads its own process group, and all of that group.
pub fn kill_group(leader: u32) {
    let Ok(leader) = i32::try_from(leader) else {
        return;
    };
    // SAFETY: the call takes numbers only. We started the group and have not waited for it, so its
    // number is not reused.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}
