// SPDX-License-Identifier: Apache-2.0
//! From a server into another, as items come. A server that is filled calls [`fill`], in a thread
//! of its own.
//!
//! Items are stored by `add`, which leaves alone what is there. That they do not replace what was
//! deleted meanwhile is up to the server behind the socket. Values whose keys it has are not read:
//! so a fill that is begun again soon is where the one before was. The bytes a second are bounded:
//! after each batch of items the thread sleeps until the average is the bound again. Senko's items
//! in DRAM come before those on flash, and memcached's by the time of their last access.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::restore::Adding;
use super::{Dumped, Peer, Restored, Source, TransferError};

/// How long the own server may take for a batch: it may wait for its flash.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a fill has done so far.
#[derive(Clone, Debug, Default)]
pub struct Filled {
    /// Items that the peer has, if it says so.
    pub of: Option<u64>,
    pub read: Dumped,
    pub stored: Restored,
}

/// Stores the items of a peer by way of the socket that `to` gives, at most `rate` bytes a second
/// on average (0: no bound). `allowed` is asked first, with the address from which the peer is
/// read. `watch` sees how far it is.
///
/// # Errors
/// If the peer or the own server fails, or `stop` is set. What came until then is stored.
pub fn fill(
    peer: &Peer,
    rate: u64,
    stop: &AtomicBool,
    allowed: &dyn Fn(SocketAddr) -> Result<(), String>,
    to: &dyn Fn() -> std::io::Result<OwnedFd>,
    watch: &mut dyn FnMut(&Filled),
) -> Result<Filled, TransferError> {
    let mut source = Source::connect(peer, stop)?;
    source.hottest_first();
    source.limit(rate);
    if let Some(address) = source.local_address() {
        allowed(address).map_err(TransferError::Server)?;
    }
    let mut adding = Adding::over(to()?, PATIENCE, stop)?;
    let mut filled = Filled {
        of: source.items(),
        ..Filled::default()
    };
    watch(&filled);
    let done = source.pour(b"", &mut adding, &mut |read, adding| {
        adding.settle()?;
        filled.read = *read;
        filled.stored.clone_from(&adding.restored);
        watch(&filled);
        Ok(())
    });
    filled.read = done?;
    filled.stored = adding.restored;
    Ok(filled)
}
