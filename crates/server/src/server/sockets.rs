// SPDX-License-Identifier: Apache-2.0
//! The sockets that a server listens on. Either the server opens them, or a service manager opened
//! them before the start. One of the latter may be the admin listener.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use senko_io::Listener;

use super::report::DoorReport;
use super::security;
use super::{Listening, ServerError, listen_soon};
use crate::settings::{ADMIN, Settings, Terms, TlsMode};

/// Unix sockets ask for the password and are not encrypted.
const OF_UNIX: Terms = Terms {
    guarded: true,
    tls: TlsMode::Off,
    only: None,
};
/// Backlog of the admin listener.
const ADMIN_BACKLOG: u32 = 64;
/// Backlog of the socket of `senko ctl`.
const CTL_BACKLOG: u32 = 8;

/// Why nothing listens on an address. If another process does, what can be done.
fn refused(error: &std::io::Error, remedy: &str, address: SocketAddr) -> ServerError {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            let port = address.port();
            format!("; {remedy}, and `ss -ltnp sport = :{port}` shows who has it")
        }
        _ => String::new(),
    };
    ServerError(format!("{error}{remedy}"))
}

/// The socket of `senko ctl`.
pub(super) fn listen_for_ctl(settings: &Settings) -> Result<Option<Listener>, ServerError> {
    let listen = |path| listen_soon(|| Listener::unix(path, crate::ctl::MASK, CTL_BACKLOG));
    Ok(settings.ctl.as_deref().map(listen).transpose()?)
}

/// All sockets for clients. They listen from then on.
pub(super) fn listen(settings: &Settings) -> Result<Vec<Listening>, ServerError> {
    if !settings.passed.is_empty() {
        return passed(settings);
    }
    let mut all: Vec<Listening> = Vec::new();
    for address in &settings.listen {
        let mut address = *address;
        let terms = settings.terms(&address);
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
                    terms,
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
            Err(error) => return Err(refused(&error, "--port or --listen name another", address)),
        }
    }
    if let Some(path) = &settings.unix_socket {
        let listener = listen_soon(|| Listener::unix(path, settings.unix_mask, settings.backlog))?;
        all.push(Listening {
            listener,
            address: None,
            name: format!("unix:{}", path.display()).into(),
            terms: OF_UNIX,
        });
    }
    Ok(all)
}

/// The passed sockets, except the admin listener's. They take the place of the addresses in `-l`,
/// but not of the prefixes there: a prefix is a promise. So it counts for the passed socket with
/// its address, and one without such a socket is refused.
fn passed(settings: &Settings) -> Result<Vec<Listening>, ServerError> {
    let sockets = settings.passed.iter().filter(|(name, _)| name != ADMIN);
    let all: Vec<Listening> = sockets
        .map(|(name, listener)| {
            let address = listener.local_address();
            let shown = address.map_or_else(|| format!("unix:{name}"), |a| format!("tcp:{a}"));
            Listening {
                listener: listener.clone(),
                address,
                name: shown.into(),
                terms: address.map_or(OF_UNIX, |address| settings.terms(&address)),
            }
        })
        .collect();
    if all.is_empty() {
        return Err(ServerError(
            "the service manager passed a socket for the admin listener only, and none for clients"
                .to_owned(),
        ));
    }
    let is_passed = |address: &SocketAddr| all.iter().any(|l| l.address == Some(*address));
    let is_kept = |address: &SocketAddr| {
        // A socket of [::] also takes the clients of 0.0.0.0.
        let wide = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
        let within = address.ip() == Ipv4Addr::UNSPECIFIED
            && is_passed(&wide)
            && settings.terms(&wide) == settings.terms(address);
        is_passed(address) || within
    };
    match settings.prefixed().find(|address| !is_kept(address)) {
        None => Ok(all),
        Some(lost) => {
            let names: Vec<&str> = all.iter().map(|l| &*l.name).collect();
            Err(ServerError(format!(
                "-l has a prefix for {lost}, and the service manager passed {} instead: give the prefix to the address of a passed socket",
                names.join(" and ")
            )))
        }
    }
}

/// All sockets for clients, for the report of a start.
pub(super) fn reports(settings: &Settings, all: &[Listening]) -> Vec<DoorReport> {
    let asks = settings.auth_file.is_some() || settings.sasl_file.is_some();
    all.iter()
        .map(|l| DoorReport {
            address: l.address.map_or_else(
                || l.name.trim_start_matches("unix:").to_owned(),
                |address| address.to_string(),
            ),
            tls: l.terms.tls,
            certificate: security::shows_certificate(settings, l.terms.tls),
            password: asks && l.terms.guarded,
            only: l.terms.only.or(settings.only_protocol),
        })
        .collect()
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
        .map_err(|error| refused(&error, "--admin names another", address))
        .map_err(|error| ServerError(format!("the admin listener: {error}")))?;
    address.set_port(listener.local_port().unwrap_or(address.port()));
    Ok(Some((listener, address)))
}
