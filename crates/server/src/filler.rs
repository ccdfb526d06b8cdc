// SPDX-License-Identifier: Apache-2.0
//! The thread of a fill: it waits until all shards note changes, and then has the items pulled.
//! `ctl.rs` begins it for `senko ctl fill`, and `server.rs` for `--fill-from`.
//!
//! Always holds:
//! - FILL-3. The peer is read only when all shards note changes. So a change that is not noted was
//!   made before the peer was asked for anything.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fill::{Job, Progress, Pull};
use crate::shared::{Shared, Shutdown};

/// How often the thread looks whether all workers note changes.
const LOOK: Duration = Duration::from_millis(10);

/// Begins a fill; `how` is for [`Pull`]. Says what will happen, or why nothing will.
pub(crate) fn begin(shared: &Arc<Shared>, peer: &str, how: &str) -> Result<String, String> {
    let Some(pull) = shared.settings.pull else {
        return Err("this server cannot be filled".to_owned());
    };
    let (number, stop) = shared.fill.begin(peer)?;
    // A drain or a stop that came before did not see it.
    if shared.is_draining() || shared.shutdown() != Shutdown::No {
        shared.fill.end("the server stops");
    }
    let filler = Filler {
        shared: Arc::clone(shared),
        number,
        peer: peer.to_owned(),
        how: how.to_owned(),
        stop,
    };
    let thread = std::thread::Builder::new().name("senko-fill".into());
    if let Err(error) = thread.spawn(move || filler.run(pull)) {
        let why = format!("cannot start a thread: {error}");
        shared.fill.left(&Err(why.clone()));
        return Err(why);
    }
    Ok(format!(
        "the fill from {peer} has begun; status says how far it is"
    ))
}

struct Filler {
    shared: Arc<Shared>,
    number: u64,
    peer: String,
    how: String,
    stop: Arc<AtomicBool>,
}

impl Filler {
    fn run(&self, pull: Pull) {
        let done = match self.all_note_changes() {
            true => pull(self),
            false => Ok(()),
        };
        self.shared.fill.left(&done);
    }

    /// Waits until all workers note changes (FILL-3); false if the fill ends before.
    fn all_note_changes(&self) -> bool {
        while !self.stop.load(Ordering::Relaxed) {
            if self.shared.fill.ready() == self.shared.deal.workers() {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }
}

impl Job for Filler {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn how(&self) -> &str {
        &self.how
    }

    fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn is_own(&self, client: SocketAddr) -> bool {
        let of = |name: &str| {
            let address = name.split_once(':').map(|(_, address)| address)?;
            address.parse::<SocketAddr>().ok()
        };
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        let all = self.shared.connections(0, usize::MAX);
        let mut all = all.iter().filter_map(|(_, row)| of(&row.addr));
        all.any(|address| canonical(address) == canonical(client))
    }

    fn connect(&self) -> io::Result<OwnedFd> {
        // Counted before its worker has it, which discounts it at its end.
        let counts = &self.shared.conn_counts;
        counts.current.fetch_add(1, Ordering::Relaxed);
        let socket = self.shared.fill.connect(self.number);
        match &socket {
            Ok(_) => counts.total.fetch_add(1, Ordering::Relaxed) as usize,
            Err(_) => counts.current.fetch_sub(1, Ordering::Relaxed),
        };
        socket
    }

    fn tell(&self, progress: Progress) {
        self.shared.fill.tell(self.number, progress);
    }
}
