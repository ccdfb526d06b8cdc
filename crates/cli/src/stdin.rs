// SPDX-License-Identifier: Apache-2.0
//! Standard input, for the commands that read it. One that was closed (`<&-`) is an error, and so
//! is a closed standard output for those that write to it.
//!
//! Before `main` the standard library opens /dev/null in place of a closed standard stream. A read
//! then returns nothing, as if the input were empty, and a write loses what it writes. So this file
//! checks the streams before that.

#![allow(unsafe_code)]

use std::io::Stdin;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: asks for the flags of a descriptor, and takes no memory.
    let closed = |stream| unsafe { libc::fcntl(stream, libc::F_GETFD) } < 0;
    CLOSED.store(closed(libc::STDIN_FILENO), Ordering::Relaxed);
    if closed(libc::STDOUT_FILENO) {
        crate::out::set_absent();
    }
}

// SAFETY: the C library calls what is in this section, one after the other, before `main`. The
// function needs nothing of what the standard library sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// An error if a path names standard input, and standard input was closed.
pub fn check(path: &Path) -> Result<()> {
    let names = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    if names.iter().any(|name| path == Path::new(name)) {
        open()?;
    }
    Ok(())
}

/// Standard input; an error if it was closed when the process started.
pub fn open() -> Result<Stdin> {
    if CLOSED.load(Ordering::Relaxed) {
        bail!("stdin is closed, so there is nothing to read; for an empty input give < /dev/null");
    }
    Ok(std::io::stdin())
}
