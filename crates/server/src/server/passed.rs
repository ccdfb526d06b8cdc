// SPDX-License-Identifier: Apache-2.0
//! The sockets that a service manager opened before the server was started, and the admin
//! listener's, which may be one of them. `server.rs` asks for both before it opens any other.

use std::net::SocketAddr;

use senko_io::Listener;

use super::{Listening, ServerError, listen_soon};
use crate::settings::{ADMIN, Settings};

/// Connections that wait to be accepted by the admin thread.
const ADMIN_BACKLOG: u32 = 64;

/// The sockets that were passed, but for the admin listener's.
pub(super) fn passed(settings: &Settings) -> Result<Vec<Listening>, ServerError> {
    let all: Vec<Listening> = settings
        .passed
        .iter()
        .filter(|(name, _)| name != ADMIN)
        .map(|(name, listener)| {
            let address = listener.local_address();
            let shown = address.map_or_else(|| format!("unix:{name}"), |a| format!("tcp:{a}"));
            Listening {
                listener: listener.clone(),
                address,
                name: shown.into(),
            }
        })
        .collect();
    match all.is_empty() {
        true => Err(ServerError(
            "the service manager passed a socket for the admin listener only, and none for clients"
                .to_owned(),
        )),
        false => Ok(all),
    }
}

/// The admin listener, and its address with the port that it got.
pub(super) fn listen_for_admin(
    settings: &Settings,
) -> Result<Option<(Listener, SocketAddr)>, ServerError> {
    let passed = settings.passed.iter().find(|(name, _)| name == ADMIN);
    if let Some((_, listener)) = passed
        && let Some(address) = listener.local_address()
    {
        return Ok(Some((listener.clone(), address)));
    }
    let Some(mut address) = settings.admin else {
        return Ok(None);
    };
    let listener = listen_soon(|| Listener::tcp(address, ADMIN_BACKLOG))
        .map_err(|error| ServerError(format!("the admin listener: {error}")))?;
    address.set_port(listener.local_port().unwrap_or(address.port()));
    Ok(Some((listener, address)))
}
