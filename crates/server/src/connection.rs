// SPDX-License-Identifier: Apache-2.0
//! Names of connections between workers, and a socket that moves to another worker.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::settings::{Dialect, Terms, TlsMode};

/// Bits of a slot number in a [`ConnKey`]: four million connections.
const SLOT_BITS: u32 = 22;
pub(crate) const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// Bits of a generation. Together with the slot number they are the 48 bits that a session has for
/// the connection in a fetch's number.
pub(crate) const GENERATION_BITS: u32 = 26;

/// A connection's name within its worker: slot and generation, below 2^48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnKey(pub u64);

impl ConnKey {
    pub(crate) fn new(generation: u32, slot: usize) -> ConnKey {
        ConnKey(u64::from(generation) << SLOT_BITS | slot as u64)
    }
    pub(crate) fn slot(self) -> usize {
        (self.0 & SLOT_MASK) as usize
    }
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> SLOT_BITS) as u32
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteConn {
    pub worker: usize,
    pub conn: ConnKey,
}

/// A socket on its way to its worker.
#[derive(Debug)]
pub struct Newcomer {
    pub(crate) stream: OwnedFd,
    pub(crate) door: Arc<str>,
    pub(crate) terms: Terms,
    /// The number of the fill whose items it brings; 0: it is a client's.
    pub(crate) fill: u64,
}

impl Newcomer {
    /// A connection of this process that brings items of the fill of this number.
    pub(crate) fn of_fill(stream: OwnedFd, fill: u64) -> Newcomer {
        Newcomer {
            stream,
            door: "unix:fill".into(),
            terms: Terms {
                guarded: false,
                tls: TlsMode::Off,
                only: Some(Dialect::Ascii),
            },
            fill,
        }
    }
}
