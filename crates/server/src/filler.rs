// SPDX-License-Identifier: Apache-2.0
//! The thread of a fill, which has the items pulled. `ctl.rs` begins it for `senko ctl fill`, and
//! `server.rs` for `--fill-from`.
//!
//! Always holds:
//! - FILL-3. A fill has begun, and the peer is read, only when all shards note changes. So a change
//!   that is not noted was made before the peer was asked for anything, and before anyone was told
//!   that the fill has begun.
//!
//! The hottest items come first. So a fill ends when items are lost for want of room ([`Losses`]):
//! what would come is colder than what would leave. Where the devices or the write budget are
//! behind, it waits.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fill::{Job, Progress, Pull};
use crate::shared::{Shared, Shutdown};

/// How often it is looked whether all workers note changes, which they begin within a tenth of a
/// second, and how long they may take.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(30);
/// Items that may be lost before the cache counts as full.
const MOST_LOST: u64 = 64;
/// How long it waits for flash that is behind, and how often at most for so many bytes. Workers
/// publish their counts ten times a second.
const BEHIND: Duration = Duration::from_millis(150);
const MOST_WAITS: usize = 7;
const BYTES: u64 = 1 << 20;

/// Items that were lost since the start, as the workers' counts say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Losses {
    /// For want of room in DRAM, where there is no flash that takes them, or on flash.
    room: u64,
    /// Because the devices or the budget were behind.
    behind: u64,
}

impl Losses {
    fn of(shared: &Shared) -> Losses {
        let mut all = Losses::default();
        shared.for_others(usize::MAX, |any| {
            let cache = &any.cache;
            let behind = cache.drops_busy + cache.drops_budget;
            // What left DRAM for nowhere has one of these causes, or none.
            let others = behind + cache.drops_size;
            all.room += cache.evictions.saturating_sub(others) + cache.reclaim_drops;
            all.behind += behind;
        });
        all
    }
}

/// Begins a fill; `how` is for [`Pull`]. Waits until all workers note changes. Says what will
/// happen, or why nothing will.
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
        seen: Mutex::new((Losses::of(shared), 0)),
    };
    if let Err(why) = filler.all_note_changes() {
        shared.fill.left(&Err(why.to_owned()));
        return Err(format!("the fill from {peer} has not begun: {why}"));
    }
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
    /// The room that was lacking when it began, what was behind when it last looked, and the bytes
    /// that had come by then.
    seen: Mutex<(Losses, u64)>,
}

impl Filler {
    fn run(&self, pull: Pull) {
        self.shared.fill.left(&pull(self));
    }

    /// Waits until all workers note changes (FILL-3).
    fn all_note_changes(&self) -> Result<(), &'static str> {
        let began = Instant::now();
        while self.shared.fill.ready() < self.shared.deal.workers() {
            if self.stop.load(Ordering::Relaxed) {
                return Err("it was ended before");
            }
            if began.elapsed() > PATIENCE {
                return Err("a worker does not come to it");
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Ends the fill if the cache is full, and waits if flash is behind.
    fn keep_to_the_room(&self, bytes: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, looked) = &mut *seen;
        for _ in 0..MOST_WAITS {
            let now = Losses::of(&self.shared);
            // Counts that are lower begin anew after a reset.
            seen.room = seen.room.min(now.room);
            if now.room - seen.room > MOST_LOST {
                self.shared.fill.is_full(self.number);
                return;
            }
            if bytes.saturating_sub(*looked) < BYTES {
                return;
            }
            let waits = now.behind > seen.behind;
            seen.behind = now.behind;
            if !waits || self.stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(BEHIND);
        }
        *looked = bytes;
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
        self.keep_to_the_room(progress.bytes);
    }
}
