// SPDX-License-Identifier: Apache-2.0
//! `watch`: connections that receive a line for each event in the server.
//!
//! ```text
//! a command, an eviction, a newcomer ── tell ──▶ Lines of each watcher ── take ──▶ its session's answers
//!            (any worker)                    (bounded)              (its own worker, each round)
//! ```
//!
//! The worker that sees an event makes the line and appends it to the buffer of every watcher that
//! asked for such lines. The worker of the watcher's connection moves the buffer to the
//! connection's answers, as far as these are sent. The lines have memcached's form. `gid` numbers
//! them, since lines of different workers may arrive out of order.
//!
//! Always holds:
//! - WATCH-1. No thread waits for a watcher. If a buffer is full, its lines are dropped and
//!   counted, and a later line says how many (`skipped=`).
//! - WATCH-2. A watcher's buffer takes at most [`BUFFER`] bytes, which count as its connection's.
//!   There are at most [`MOST_WATCHERS`].
//! - WATCH-3. Without watchers, an event costs one load.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lookups of keys.
pub const FETCHERS: u8 = 1;
/// Stored and refused values.
pub const MUTATIONS: u8 = 1 << 1;
/// Items that leave DRAM for good.
pub const EVICTIONS: u8 = 1 << 2;
/// Opened and closed connections.
pub const CONNEVENTS: u8 = 1 << 3;
/// Deleted items.
pub const DELETIONS: u8 = 1 << 4;

/// WATCH-2: most bytes of lines that wait for a watcher.
pub const BUFFER: usize = 64 << 10;
/// WATCH-2: as many as memcached has.
pub const MOST_WATCHERS: usize = 20;

/// Bytes of the longest line that reports dropped lines.
const SKIPPED_LINE: usize = 32;

/// The topics in a `watch` line; `None` if memcached does not have one of them. Topics of its proxy
/// and of its internals are accepted, but have no lines. A line without topics means lookups.
pub fn topics<'a>(names: impl Iterator<Item = &'a [u8]>) -> Option<u8> {
    let mut topics = None;
    for name in names {
        let topic = match name {
            b"fetchers" => FETCHERS,
            b"mutations" => MUTATIONS,
            b"evictions" => EVICTIONS,
            b"connevents" => CONNEVENTS,
            b"deletions" => DELETIONS,
            b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => 0,
            _ => return None,
        };
        topics = Some(topics.unwrap_or(0) | topic);
    }
    Some(topics.unwrap_or(FETCHERS))
}

/// All watchers, and the counts of their lines.
#[derive(Debug, Default)]
pub struct Watchers {
    /// The union of the topics that any of them watches.
    asked: AtomicU8,
    gid: AtomicU64,
    list: Mutex<Vec<Arc<Watcher>>>,
    made: AtomicU64,
    lost: AtomicU64,
    skipped: AtomicU64,
    sent: AtomicU64,
}

#[derive(Debug)]
pub struct Watcher {
    topics: u8,
    lines: Mutex<Lines>,
}

/// Lines that wait for a watcher.
#[derive(Debug)]
struct Lines {
    bytes: Vec<u8>,
    /// Dropped lines that the watcher was not told of yet.
    skipped: u64,
}

/// The counts of watchers in `stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Lines that were made.
    pub made: u64,
    /// Events for which no line could be made.
    pub lost: u64,
    /// Dropped lines, counted for each watcher.
    pub skipped: u64,
    /// Bytes sent to watchers' connections.
    pub sent: u64,
    pub watchers: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// Whether anybody watches this topic.
    #[inline]
    pub fn wants(&self, topic: u8) -> bool {
        self.asked.load(Ordering::Relaxed) & topic != 0
    }

    /// A new watcher; `None` if there are [`MOST_WATCHERS`].
    pub fn add(&self, topics: u8) -> Option<Arc<Watcher>> {
        let mut list = lock(&self.list);
        if list.len() >= MOST_WATCHERS {
            return None;
        }
        let watcher = Arc::new(Watcher {
            topics,
            lines: Mutex::new(Lines {
                bytes: Vec::with_capacity(BUFFER),
                skipped: 0,
            }),
        });
        list.push(Arc::clone(&watcher));
        self.asked.fetch_or(topics, Ordering::Relaxed);
        Some(watcher)
    }

    pub fn remove(&self, gone: &Arc<Watcher>) {
        let mut list = lock(&self.list);
        list.retain(|watcher| !Arc::ptr_eq(watcher, gone));
        let asked = list.iter().fold(0, |all, watcher| all | watcher.topics);
        self.asked.store(asked, Ordering::Relaxed);
    }

    /// Sends an event at `now_ms` (Unix milliseconds) to all watchers of its topic.
    pub fn tell(&self, topic: u8, now_ms: u64, event: &[u8]) {
        if !self.wants(topic) {
            return;
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        let gid = self.gid.fetch_add(1, Ordering::Relaxed) + 1;
        let (seconds, micros) = (now_ms / 1000, now_ms % 1000 * 1000);
        let mut line = format!("ts={seconds}.{micros} gid={gid} ").into_bytes();
        line.extend_from_slice(event);
        line.push(b'\n');
        for watcher in lock(&self.list).iter() {
            if watcher.topics & topic != 0 && !watcher.push(&line) {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Counts events of which only the number is known.
    pub fn note_lost(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
    }

    /// Counts bytes sent to a watcher's connection.
    pub fn note_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The counts for `stats`.
    pub fn counts(&self) -> WatchCounts {
        WatchCounts {
            made: self.made.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            watchers: lock(&self.list).len(),
        }
    }

    /// `stats reset`: zeroes the counts.
    pub fn reset(&self) {
        for count in [&self.made, &self.lost, &self.skipped, &self.sent] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl Watcher {
    /// Appends a line; false if there is no room for it (WATCH-1).
    fn push(&self, line: &[u8]) -> bool {
        let mut lines = lock(&self.lines);
        let fits = lines.bytes.len() + SKIPPED_LINE + line.len() <= BUFFER;
        if fits {
            lines.tell_skipped();
            lines.bytes.extend_from_slice(line);
        } else {
            lines.skipped += 1;
        }
        fits
    }

    /// Takes whole lines of at most `most` bytes in total; `most` is larger than any line.
    pub fn take(&self, most: usize) -> Vec<u8> {
        let mut lines = lock(&self.lines);
        let len = lines.bytes.len().min(most);
        let end = memchr::memrchr(b'\n', &lines.bytes[..len]).map_or(0, |at| at + 1);
        let taken: Vec<u8> = lines.bytes.drain(..end).collect();
        if lines.bytes.is_empty() {
            lines.tell_skipped();
        }
        taken
    }
}

impl Lines {
    /// Appends how many lines were dropped, if any were. There is room for [`SKIPPED_LINE`] bytes.
    fn tell_skipped(&mut self) {
        if self.skipped > 0 {
            let line = format!("skipped={}\n", self.skipped);
            self.bytes.extend_from_slice(line.as_bytes());
            self.skipped = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_memcacheds() {
        let of = |line: &'static str| topics(line.split_ascii_whitespace().map(str::as_bytes));
        assert_eq!(of(""), Some(FETCHERS));
        assert_eq!(of("evictions deletions"), Some(EVICTIONS | DELETIONS));
        assert_eq!(of("proxyreqs"), Some(0));
        assert_eq!(of("fetchers nothing"), None);
    }

    #[test]
    fn a_slow_watcher_loses_lines_and_is_told_how_many() {
        let watchers = Watchers::default();
        let slow = watchers.add(MUTATIONS).expect("there is room");
        let other = watchers.add(FETCHERS).expect("there is room");
        assert!(
            watchers.wants(MUTATIONS) && watchers.wants(FETCHERS) && !watchers.wants(DELETIONS)
        );
        let event = [b'x'; 1000];
        for _ in 0..100 {
            watchers.tell(MUTATIONS, 1_700_000_000_007, &event);
        }
        watchers.tell(DELETIONS, 0, &event);
        let counts = watchers.counts();
        assert_eq!((counts.made, counts.watchers), (100, 2));
        assert!(counts.skipped > 0, "{counts:?}");
        assert!(other.take(BUFFER).is_empty());
        let mut text = Vec::new();
        loop {
            let part = slow.take(3000);
            if part.is_empty() {
                break;
            }
            assert!(part.len() <= 3000 && part.ends_with(b"\n"));
            text.extend_from_slice(&part);
        }
        let text = String::from_utf8(text).expect("lines are text");
        let told: Vec<&str> = text.lines().collect();
        assert!(
            told[0].starts_with("ts=1700000000.7000 gid=1 xxx"),
            "{}",
            told[0]
        );
        let last = told.last().and_then(|line| line.strip_prefix("skipped="));
        let skipped: u64 = last.and_then(|n| n.parse().ok()).expect("it is told");
        assert_eq!(skipped, counts.skipped);
        assert_eq!(
            told.len() as u64 - 1 + skipped,
            100,
            "each is told or counted"
        );
        // More lines follow.
        watchers.tell(MUTATIONS, 0, b"more");
        assert_eq!(slow.take(BUFFER), b"ts=0.0 gid=101 more\n");
        watchers.remove(&slow);
        assert!(!watchers.wants(MUTATIONS) && watchers.wants(FETCHERS));
    }

    #[test]
    fn watchers_are_few() {
        let watchers = Watchers::default();
        let all: Vec<_> = (0..MOST_WATCHERS).map(|_| watchers.add(0)).collect();
        assert!(all.iter().all(Option::is_some) && watchers.add(0).is_none());
    }
}
