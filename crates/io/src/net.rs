// SPDX-License-Identifier: Apache-2.0
//! Listening and connecting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A bound, listening, non-blocking socket; `Send`, `Clone` shares it between loops.
#[derive(Clone, Debug)]
pub struct Listener {}

impl Listener {
    /// Listens on TCP with SO_REUSEADDR. Port 0: any free one ([`Listener::local_port`]).
    pub fn tcp(_address: SocketAddr, _backlog: u32) -> io::Result<Listener> {
        todo!()
    }
    /// Listens on a Unix socket, replacing a stale one; `mask` is the access mask in octal as memcached's `-a`. The path is removed on the last drop.
    pub fn unix(_path: &Path, _mask: u32, _backlog: u32) -> io::Result<Listener> {
        todo!()
    }
    /// The TCP port bound.
    pub fn local_port(&self) -> Option<u16> {
        todo!()
    }
}

/// Connects (blocking), then sets the socket non-blocking with TCP_NODELAY, ready for [`crate::EventLoop::adopt`].
pub fn connect_tcp(_address: SocketAddr) -> io::Result<OwnedFd> {
    todo!()
}

/// Connects to a Unix socket, as [`connect_tcp`].
pub fn connect_unix(_path: &Path) -> io::Result<OwnedFd> {
    todo!()
}
