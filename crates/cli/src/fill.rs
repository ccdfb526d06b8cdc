// SPDX-License-Identifier: Apache-2.0
//! How a server is filled from another: `senko ctl fill` and `--fill-from` say how to reach the
//! peer, and the server calls [`pull`]. The items come by [`senko_load::transfer`]; whether they
//! are stored is up to the server (`crates/server/src/fill.rs`).

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use senko_load::transfer::{self, Filled, Peer};
use senko_load::{Login, Target, TlsOptions};
use senko_server::fill::{Job, Progress};
use serde::{Deserialize, Serialize};

/// Bytes a second, if nobody asks for others.
pub const DEFAULT_RATE: u64 = 32 << 20;
/// How long the peer may send or take nothing.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How to reach a peer, as it goes through the server's hands.
#[derive(Clone, Serialize, Deserialize)]
struct How {
    rate: u64,
    login: Option<Login>,
    tls: Option<TlsOptions>,
}

/// The words by which the server gives [`pull`] what it needs. The server may have another working
/// directory, so paths become absolute.
pub fn how(rate: u64, login: Option<Login>, tls: Option<TlsOptions>) -> Result<String> {
    let mut tls = tls;
    let paths = tls
        .iter_mut()
        .flat_map(|tls| [&mut tls.ca, &mut tls.cert, &mut tls.key]);
    for path in paths.flatten() {
        *path = std::path::absolute(&*path)
            .with_context(|| format!("cannot tell where \"{}\" is", path.display()))?;
    }
    Ok(serde_json::to_string(&How { rate, login, tls })?)
}

/// Checks the name of a peer, which is looked up when the fill begins.
pub fn check_peer(peer: &str) -> Result<()> {
    if peer.is_empty() || peer.contains(char::is_whitespace) || peer.contains('/') {
        bail!("\"{peer}\" is no peer to fill from: write HOST or HOST:PORT");
    }
    Ok(())
}

/// Pulls a peer's items into this process's server.
pub fn pull(job: &dyn Job) -> Result<(), String> {
    let how: How = serde_json::from_str(job.how()).map_err(|error| error.to_string())?;
    let peer = Peer {
        target: job.peer().parse::<Target>()?,
        tls: how.tls,
        login: how.login,
        timeout: TIMEOUT,
    };
    let allowed = |address: SocketAddr| match job.is_own(address) {
        true => Err(format!("{} is this server itself", job.peer())),
        false => Ok(()),
    };
    let mut told = Progress::default();
    let done = transfer::fill(
        &peer,
        how.rate,
        job.stop(),
        &allowed,
        &|| job.connect(),
        &mut |filled| {
            told = progress(filled);
            job.tell(told);
        },
    );
    let filled = done.map_err(|error| error.to_string())?;
    job.tell(progress(&filled));
    // What was refused is lost to a cache that is said to be full.
    match filled.stored.reason() {
        Some(reason) if filled.stored.items == 0 && filled.stored.refused > 0 => {
            Err(format!("no item was taken: {reason}"))
        }
        _ => Ok(()),
    }
}

fn progress(filled: &Filled) -> Progress {
    Progress {
        of: filled.of,
        listed: filled.read.listed,
        items: filled.stored.items,
        bytes: filled.stored.bytes,
        kept: filled.stored.kept,
        refused: filled.stored.refused,
    }
}
