// SPDX-License-Identifier: Apache-2.0
//! Sockets that were listening before the process was started: systemd's socket activation.
//!
//! `LISTEN_FDS` is the number of sockets, from descriptor 3 on. `LISTEN_PID` is the process that
//! they are for, and `LISTEN_FDNAMES` has their names, separated by colons. `senko serve` calls
//! this once, before it opens other descriptors.

use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Listener;

/// The first passed descriptor.
const FIRST: RawFd = 3;
/// A larger number is a mistake.
const MOST: usize = 64;

/// The sockets that were passed to this process, with their names; none after the first call.
///
/// # Errors
/// One sentence: the variables are invalid, or a descriptor is not a listening stream socket.
///
/// ```
/// // Nothing was passed to this program.
/// assert!(senko_io::passed_listeners().unwrap().is_empty());
/// ```
pub fn passed_listeners() -> io::Result<Vec<(String, Listener)>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let variable = |name| std::env::var(name).unwrap_or_default();
    let ours = variable("LISTEN_PID") == std::process::id().to_string();
    if !ours || TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    let text = variable("LISTEN_FDS");
    let count = text.parse().ok().filter(|count| *count <= MOST);
    let count = count.ok_or_else(|| {
        io::Error::other(format!(
            "LISTEN_FDS is \"{text}\", and not a number up to {MOST}"
        ))
    })?;
    let names = variable("LISTEN_FDNAMES");
    let mut names = names.split(':');
    (0..count)
        .map(|n| {
            let name = names.next().unwrap_or_default().to_owned();
            let number = FIRST + n as RawFd;
            // SAFETY: the service manager passes these descriptors to this process, so nothing else
            // here owns them; `TAKEN` keeps this from happening twice.
            let passed = unsafe { OwnedFd::from_raw_fd(number) };
            let listener = TcpListener::from(passed);
            // The copy is closed on exec; the original is not.
            let listener = listener
                .try_clone()
                .and_then(|listener| Listener::inherited(listener.into()))
                .map_err(|error| {
                    let text = format!("descriptor {number} ({name}), which was passed: {error}");
                    io::Error::new(error.kind(), text)
                })?;
            Ok((name, listener))
        })
        .collect()
}
