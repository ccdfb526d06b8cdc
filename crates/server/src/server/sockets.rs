// SPDX-License-Identifier: Apache-2.0
//! The sockets that a server listens on. Either the server opens them, or a service manager opened
//! them before the start. One of the latter may be the admin listener.

use std::net::SocketAddr;

use senko_io::Listener;

use super::{Listening, ServerError, listen_soon};
use crate::settings::{ADMIN, Settings, TlsMode};

/// Backlog of the admin listener.
const ADMIN_BACKLOG: u32 = 64;

/// All sockets for clients. They listen from then on.
pub(super) fn listen(settings: &Settings) -> Result<Vec<Listening>, ServerError> {
    if !settings.passed.is_empty() {
        return passed(settings);
    }
    let mut all: Vec<Listening> = Vec::new();
    for address in &settings.listen {
        let mut address = *address;
        let guarded = !settings.noauth.contains(&address);
        let tls = settings.tls_mode(&address);
        // Port 0 means the same free port for all addresses.
        if address.port() == 0
            && let Some(port) = all.iter().find_map(|l| l.listener.local_port())
        {
            address.set_port(port);
        }
        match listen_soon(|| Listener::tcp(address, settings.backlog)) {
            Ok(listener) => {
                address.set_port(listener.local_port().unwrap_or(address.port()));
                let name = if address.is_ipv4() {
                    format!("tcp:{address}")
                } else {
                    format!("tcp6:{address}")
                };
                all.push(Listening {
                    listener,
                    address: Some(address),
                    name: name.into(),
                    guarded,
                    tls,
                });
            }
            // "All interfaces" means the existing ones: a machine without IPv6 still has the
            // others.
            Err(error)
                if address.is_ipv6()
                    && !all.is_empty()
                    && error.kind() != std::io::ErrorKind::AddrInUse =>
            {
                tracing::warn!("{error}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(path) = &settings.unix_socket {
        let listener = listen_soon(|| Listener::unix(path, settings.unix_mask, settings.backlog))?;
        all.push(Listening {
            listener,
            address: None,
            name: format!("unix:{}", path.display()).into(),
            guarded: true,
            tls: TlsMode::Off,
        });
    }
    Ok(all)
}

/// The passed sockets, except the admin listener's.
fn passed(settings: &Settings) -> Result<Vec<Listening>, ServerError> {
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
                guarded: true,
                tls: match (&settings.tls, address) {
                    (Some(_), Some(_)) => TlsMode::Default,
                    _ => TlsMode::Off,
                },
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
