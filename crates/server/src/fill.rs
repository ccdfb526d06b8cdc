// SPDX-License-Identifier: Apache-2.0
//! A fill: the items of another server are stored here while this one serves. `senko ctl fill` and
//! `--fill-from` begin it.
//!
//! This file knows when a fill runs and how far it is. The items come from a thread of its own
//! (`filler.rs`), which calls [`Pull`], and enter by `add` on a socket that nobody else can get.
//! That connection and the ones by which other workers run its commands have the number of the fill
//! ([`crate::session::Session::fill_as`]). A shard takes an `add` with that number only if no
//! client has changed the key since (`senko_cache`, `shard/changes.rs`).
//!
//! ```text
//!   begin -> every worker notes changes (catch_up) -> Pull: peer --mg--> items --add--> shards
//!                                                       | its end, a failure, fill stop,
//!                                                       v flush_all, a drain, a stop, no room
//!                                                     over: no worker takes items of this fill
//! ```

use std::fmt::{self, Display};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use senko_io::counted;

/// Pulls the items of a peer, from its own thread, until the job is to stop.
///
/// # Errors
/// One sentence.
pub type Pull = fn(&dyn Job) -> Result<(), String>;

/// A fill that runs, as [`Pull`] sees it.
pub trait Job {
    /// The peer's name.
    fn peer(&self) -> &str;
    /// How to reach it, in the words of the one who began the fill.
    fn how(&self) -> &str;
    /// Set when the pull is to end.
    fn stop(&self) -> &AtomicBool;
    /// Whether this server has a connection from that address: then the peer to which that address
    /// belongs is this server.
    fn is_own(&self, client: SocketAddr) -> bool;
    /// A connection to this server, by which `add` stores items of the fill.
    ///
    /// # Errors
    /// The system's.
    fn connect(&self) -> io::Result<OwnedFd>;
    /// Says how far the pull is. It returns when more may come, which takes a second at most.
    fn tell(&self, progress: Progress);
}

/// Gives a worker a connection that brings items of the fill of this number.
pub(crate) type Bring = Box<dyn Fn(OwnedFd, u64) + Send + Sync>;

/// What a fill has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items that the peer has, if it says so, and keys that it has listed.
    pub of: Option<u64>,
    pub listed: u64,
    /// Items that were stored here, and the bytes of their keys and values.
    pub items: u64,
    pub bytes: u64,
    /// Items that were not, because their keys are here or were changed here.
    pub kept: u64,
    /// Items that this server refused.
    pub refused: u64,
}

/// Why a fill is done before its end.
const FULL: &str = "full: an item more would replace a hotter one";

/// The state of fills, of which one runs at most.
#[derive(Default)]
pub(crate) struct Fill {
    /// The number of the running fill; 0: none runs.
    number: AtomicU64,
    bring: OnceLock<Bring>,
    last: Mutex<Option<Run>>,
}

/// The last fill.
#[derive(Debug)]
struct Run {
    number: u64,
    peer: String,
    began: Instant,
    /// Workers that note changes.
    ready: usize,
    stop: Arc<AtomicBool>,
    /// Whether its thread has ended.
    left: bool,
    progress: Progress,
    /// How it ended, and why, if it is over.
    over: Option<(&'static str, String)>,
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fill({})", self.number())
    }
}

impl Fill {
    /// Notes how to reach the workers, when they serve.
    pub fn serve(&self, bring: Bring) {
        let _ = self.bring.set(bring);
    }

    /// A panic under the lock leaves only numbers to show.
    fn last(&self) -> MutexGuard<'_, Option<Run>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the fill that runs; 0: none.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Notes that a fill begins; returns its number, and the flag that ends it. Otherwise says why
    /// none does.
    pub fn begin(&self, peer: &str) -> Result<(u64, Arc<AtomicBool>), String> {
        let mut last = self.last();
        if let Some(run) = last.as_ref().filter(|run| run.over.is_none()) {
            return Err(format!("a fill from {} runs already", run.peer));
        }
        if last.as_ref().is_some_and(|run| !run.left) {
            return Err("the fill before it still ends: try again".to_owned());
        }
        let number = last.as_ref().map_or(1, |run| run.number + 1);
        let stop = Arc::new(AtomicBool::new(false));
        *last = Some(Run {
            number,
            peer: peer.to_owned(),
            began: Instant::now(),
            ready: 0,
            stop: Arc::clone(&stop),
            left: false,
            progress: Progress::default(),
            over: None,
        });
        self.number.store(number, Ordering::Release);
        Ok((number, stop))
    }

    /// A connection to this server, by which `add` stores items of the fill of this number.
    pub fn connect(&self, number: u64) -> io::Result<OwnedFd> {
        let (own, other) = UnixStream::pair()?;
        other.set_nonblocking(true)?;
        match self.bring.get() {
            Some(bring) => bring(other.into(), number),
            None => return Err(io::Error::other("the server does not serve")),
        }
        Ok(own.into())
    }

    /// Ends the fill that runs, for this reason; false if none runs.
    pub fn end(&self, why: &str) -> bool {
        self.over("stopped", why)
    }

    /// There is no room for more: this fill is done.
    pub fn is_full(&self, number: u64) {
        if self.number() == number {
            self.over("done", FULL);
        }
    }

    /// The thread of the fill has ended.
    pub fn left(&self, done: &Result<(), String>) {
        // If the fill was ended before, that is why the thread did.
        match done {
            Ok(()) => self.over("done", ""),
            Err(why) => self.over("failed", why),
        };
        if let Some(run) = self.last().as_mut() {
            run.left = true;
        }
    }

    fn over(&self, how: &'static str, why: &str) -> bool {
        let mut last = self.last();
        let Some(run) = last.as_mut().filter(|run| run.over.is_none()) else {
            return false;
        };
        run.over = Some((how, why.to_owned()));
        run.stop.store(true, Ordering::Relaxed);
        self.number.store(0, Ordering::Release);
        let Progress { items, kept, .. } = run.progress;
        let text = format!(
            "the fill from {} is over after {:.1} s, {how}: {} came, {kept} were here or have changed",
            run.peer,
            run.began.elapsed().as_secs_f64(),
            counted(items, "item")
        );
        match how {
            "failed" => tracing::warn!("{text}: {why}; the server serves on"),
            _ if why.is_empty() => tracing::info!("{text}"),
            _ => tracing::info!("{text}: {why}"),
        }
        true
    }

    /// A worker's shards note changes for this fill.
    pub fn begun_at_one(&self, number: u64) {
        if let Some(run) = self.last().as_mut()
            && run.number == number
        {
            run.ready += 1;
        }
    }

    /// How many workers note changes.
    pub fn ready(&self) -> usize {
        self.last().as_ref().map_or(0, |run| run.ready)
    }

    /// How far the fill of this number is.
    pub fn tell(&self, number: u64, progress: Progress) {
        if let Some(run) = self.last().as_mut()
            && run.number == number
        {
            run.progress = progress;
        }
    }

    /// How far the last fill is; nothing, if there was none.
    pub fn progress(&self) -> Progress {
        let last = self.last();
        last.as_ref()
            .map_or(Progress::default(), |run| run.progress)
    }

    /// The rows of `status` about the last fill.
    pub fn rows(&self, row: &mut dyn FnMut(&str, &dyn Display)) {
        let last = self.last();
        let Some(run) = &*last else {
            row("fill", &"none");
            return;
        };
        let Progress {
            of,
            listed,
            items,
            bytes,
            kept,
            refused,
        } = run.progress;
        row("fill", &run.over.as_ref().map_or("running", |over| over.0));
        row("fill-from", &run.peer);
        if let Some(of) = of {
            row("fill-of", &of);
        }
        row("fill-listed", &listed);
        row("fill-items", &items);
        row("fill-bytes", &bytes);
        row("fill-kept", &kept);
        row("fill-refused", &refused);
        match (&run.over, of) {
            (Some((_, why)), _) if !why.is_empty() => row("fill-why", why),
            (None, Some(of)) if listed > 0 => {
                let took = run.began.elapsed().as_secs_f64();
                let left = took / listed as f64 * of.saturating_sub(listed) as f64;
                row("fill-seconds-left", &(left.ceil() as u64));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::shards::Deal;
    use crate::shared::Shared;

    /// A connection of a fill may end while its last commands are on their way to another worker.
    /// That worker would have stored their values as those of a client.
    #[test]
    fn an_ended_connection_of_a_fill_is_not_taken_for_a_clients() {
        let shared = Shared::new(Settings::default(), Deal::new(2, 2), 0);
        shared.name_socket(1, 7, (40, 3));
        assert_eq!(shared.socket_of(1, 7), (40, 3));
        shared.forget_socket(1, 7);
        assert_eq!(shared.socket_of(1, 7), (0, 3));
        shared.name_socket(1, 7, (41, 0));
        assert_eq!(shared.socket_of(1, 7), (41, 0));
        shared.forget_socket(1, 7);
        assert_eq!(shared.socket_of(1, 7), (0, 0));
    }
}
