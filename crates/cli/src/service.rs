// SPDX-License-Identifier: Apache-2.0
//! Messages of `senko serve` to the service manager that started it: systemd's notification
//! protocol.
//!
//! `NOTIFY_SOCKET` names a datagram socket; each message is lines of `NAME=value`. A start or a
//! stop of a large cache may take longer than a unit's timeout, so while either runs, this
//! repeatedly asks the manager for more time ([`Patience`]). Without the variable nothing happens.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::monotonic_us;

/// How often more time is requested, and how much.
const STEP: Duration = Duration::from_secs(5);
const MORE: Duration = Duration::from_secs(30);

/// The socket of the service manager, if there is one.
#[derive(Debug)]
pub struct Service {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

impl Service {
    /// From the process's environment.
    pub fn from_env() -> Service {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                _ => SocketAddr::from_pathname(&name),
            };
            Some((UnixDatagram::unbound().ok()?, address.ok()?))
        });
        Service { socket }
    }

    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that does not listen must not stop the server.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }

    /// Reports that the server is ready.
    pub fn ready(&self, status: &str) {
        let pid = std::process::id();
        self.tell(&format!("READY=1\nMAINPID={pid}\nSTATUS={status}"));
    }

    /// Reports that SIGHUP came; [`Service::ready`] follows. The time tells the manager that this
    /// is the answer to its own signal (`Type=notify-reload`).
    pub fn reloading(&self) {
        let now = monotonic_us();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    /// Reports that the server stops.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=finishing requests, then saving");
    }

    /// Asks for more time until the result is dropped.
    pub fn patience(&self) -> Option<Patience> {
        let (socket, address) = self.socket.as_ref()?;
        let socket = socket.try_clone().ok()?;
        let address = address.clone();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("senko-patience".into())
            .spawn(move || {
                let text = format!("EXTEND_TIMEOUT_USEC={}", MORE.as_micros());
                loop {
                    let _ = socket.send_to_addr(text.as_bytes(), &address);
                    if ended.recv_timeout(STEP) != Err(mpsc::RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })
            .ok()?;
        Some(Patience {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

/// Asks the manager for more time, until it is dropped.
#[derive(Debug)]
pub struct Patience {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Patience {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
