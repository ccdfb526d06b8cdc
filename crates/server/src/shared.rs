// SPDX-License-Identifier: Apache-2.0
//! State that all workers share: settings, published statistics, the connection table, and requests
//! for every shard (flush, reset, shutdown, memory limit).
//!
//! Requests neither lock nor write this state, except for the per-prefix counters while
//! `stats detail` is on.
//!
//! **flush_all.** A flush that was acknowledged on one connection must hold for every later command
//! on any connection. [`Shared::flush`] raises a generation before the reply is made. A session
//! compares it with the generation that its shard last applied ([`Cursor::flush`]). It does so
//! before it runs a command, and before it completes a waiting command. The raise (under a lock, a
//! release) and the load (acquire) act on one word, so a later load sees the raise. A client that
//! learns of the acknowledgement and then sends a command passes the kernel's socket locks in
//! between, which order the two on every machine. The same check precedes each store, so a value
//! that arrives after a flush is stored after it. A flush runs only when its connection has no
//! command under way on another shard. So no value sent before the flush is stored after it.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use senko_cache::{CacheStats, DeviceState, ServerWords, SlabClassStats};
use senko_io::{DeviceTimes, DiskStats, Times};

use crate::auth::Auth;
use crate::clock::Clock;
use crate::fill::Fill;
use crate::hot;
use crate::intake::Intake;
use crate::parked::{Applied, Parked};
use crate::protocol::push_key;
use crate::seldom::Seldom;
use crate::settings::Settings;
use crate::shards::{Deal, Shards};
use crate::tls::Tls;
use crate::tuning::Tuning;
use crate::watch::Watchers;

/// The supported version of the memcached protocols. Clients parse it as numbers, so it comes
/// first.
pub const PROTOCOL_VERSION: &str = "1.6.45";

macro_rules! thread_stats {
    ($($name:ident)*) => {
        /// Counters of one worker, with memcached's names. They are plain integers: the worker's
        /// thread counts and publishes them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ThreadStats { $(pub $name: u64,)* }

        senko_io::counters! { ThreadStats: $($name)* }
    };
}

thread_stats! {
    cmd_get cmd_set cmd_touch cmd_meta get_hits get_misses
    delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits
    cas_misses cas_hits cas_badval touch_hits touch_misses
    store_too_large store_no_memory
    bytes_read bytes_written conn_yields idle_kicks
    forwarded sent_for_others read_across read_afar retries slow_readers_closed
    streams stream_bytes streams_broken streams_stalled
    rounds whole_turns heavy_turns conns_held values_given_up auth_cmds auth_errors
    ssl_handshake_errors ssl_proto_errors ssl_new_sessions
    tls_handshakes tls_handshake_steps tls_handshake_rounds
}

/// The statistics that a worker publishes about ten times a second.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Command counters.
    pub stats: ThreadStats,
    /// The shard's counters.
    pub cache: CacheStats,
    /// The shard's slab classes.
    pub slabs: Vec<SlabClassStats>,
    /// The counts of its devices.
    pub disk: DiskStats,
    /// Latencies of requests, by [`crate::latency`]'s series; empty if nobody watches.
    pub times: Vec<Times>,
    /// Latencies of its devices' operations.
    pub device_times: Vec<DeviceTimes>,
    /// Its hot keys, with their lookups.
    pub hot: Vec<(Vec<u8>, u64)>,
    /// The reset generation to which these counters belong.
    pub reset: u64,
}

/// A row of `stats conns`.
#[derive(Debug)]
pub struct ConnEntry {
    /// The peer, in memcached's form: `tcp:127.0.0.1:59744`, `unix:/path`.
    pub addr: String,
    /// The local address; empty for a listening socket.
    pub listen_addr: String,
    /// Unix seconds of the last command.
    pub last_command: AtomicU32,
    state: AtomicU8,
}

/// The activity of a connection, for `stats conns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnState {
    /// Between commands, or in the middle of a line.
    #[default]
    Command,
    /// In the middle of a value.
    Value,
    /// In the middle of the value of a refused command.
    Swallowed,
    Watching,
}

impl ConnEntry {
    /// The row of a new connection or listening socket at `second` (Unix time).
    pub fn new(addr: String, listen_addr: String, second: u32) -> ConnEntry {
        ConnEntry {
            addr,
            listen_addr,
            last_command: AtomicU32::new(second),
            state: AtomicU8::default(),
        }
    }
    pub(crate) fn set_state(&self, state: ConnState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }
    pub(crate) fn state(&self) -> ConnState {
        [
            ConnState::Command,
            ConnState::Value,
            ConnState::Swallowed,
            ConnState::Watching,
        ][usize::from(self.state.load(Ordering::Relaxed))]
    }
}

/// How the server was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Not at all.
    No,
    /// At once.
    Now,
    /// After connections have been answered.
    Graceful,
}

/// Counters of connections, which change only on accept and close.
#[derive(Debug, Default)]
pub struct ConnCounts {
    /// Open now.
    pub current: AtomicUsize,
    /// Opened since the start.
    pub total: AtomicU64,
    /// Refused at the limit.
    pub rejected: AtomicU64,
    /// Times that accepting stopped at the limit.
    pub listen_disabled: AtomicU64,
    /// Microseconds for which accepting was stopped.
    pub listen_disabled_us: AtomicU64,
    /// 0 while accepting is stopped.
    pub accepting: AtomicU8,
}

/// Counters of one key prefix (`stats detail`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prefix {
    pub get: u64,
    pub hit: u64,
    /// Hits that needed a flash read.
    pub flash: u64,
    pub set: u64,
    pub del: u64,
}

/// The effect of a command on a key, for `stats detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    Get { hit: bool, flash: bool },
    Set,
    Delete,
}

/// Most prefixes that are counted, so that clients cannot fill memory with them.
const MAX_PREFIXES: usize = 10_000;

/// `stats detail`: requests by key prefix.
#[derive(Debug)]
pub(crate) struct PrefixStats {
    on: AtomicU8,
    delimiter: u8,
    table: Mutex<BTreeMap<Vec<u8>, Prefix>>,
}

/// The state that all workers share.
#[derive(Debug)]
pub struct Shared {
    pub settings: Settings,
    /// How shards are dealt to workers.
    pub deal: Deal,
    /// The place of each worker's shards while it waits.
    pub parked: Vec<Parked>,
    /// The memory that arriving values hold, by shard.
    pub(crate) intakes: Vec<Intake>,
    /// Unix seconds of the start.
    pub started: u32,
    pub auth: Auth,
    /// The certificate; `None`: TLS is off.
    pub tls: Option<Tls>,
    /// The clock of all workers.
    pub clock: Clock,
    /// Where flushes are stored before they are acknowledged, if they must outlive the process.
    words: Option<Arc<ServerWords>>,
    /// Held while raising or planning a flush.
    flush_order: Mutex<()>,
    /// Held while noting the time.
    second: Mutex<()>,
    pub conn_counts: ConnCounts,
    /// Lines about wrong passwords.
    pub(crate) wrong_passwords: Seldom,
    /// Lines about connections that TLS has ended.
    pub(crate) broken_ciphers: Seldom,
    /// Lines about `refresh_certs`, and about those that were refused.
    pub(crate) refreshes: Seldom,
    pub(crate) refused_refreshes: Seldom,
    flush_generation: AtomicU64,
    /// Unix seconds at which a delayed flush is due; 0: none.
    flush_due: AtomicU32,
    flushes: AtomicU64,
    reset_generation: AtomicU64,
    dram_limit: AtomicU64,
    /// The bounds of a shard's part of it, which are the same for all.
    dram_bounds: OnceLock<RangeInclusive<usize>>,
    shutdown: AtomicU8,
    /// How items go to flash and come back.
    pub(crate) tuning: Tuning,
    /// Whether new connections are turned away, before a stop.
    draining: AtomicBool,
    verbosity: Mutex<u8>,
    published: Vec<Mutex<Published>>,
    /// The use of each flash device by each shard; the first index is the device.
    devices: Mutex<Vec<Vec<DeviceState>>>,
    conns: Mutex<BTreeMap<u64, Arc<ConnEntry>>>,
    /// The socket of a connection and the fill whose items it brings, by worker and the
    /// connection's number there.
    sockets: Mutex<BTreeMap<(usize, u64), (u64, u64)>>,
    pub(crate) fill: Fill,
    pub watchers: Watchers,
    pub(crate) prefixes: PrefixStats,
}

/// The most restricted use of a device by any shard.
fn worst(states: &[DeviceState]) -> DeviceState {
    states.iter().copied().max().unwrap_or_default()
}

/// A poisoned lock only means that a thread panicked while it held plain counters. They are still
/// usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The state of a server with these shards and workers that starts at `started` (Unix seconds).
    pub fn new(settings: Settings, deal: Deal, started: u32) -> Shared {
        let (shards, workers) = (deal.shards(), deal.workers());
        let prefixes = PrefixStats {
            on: AtomicU8::new(u8::from(settings.prefix_delimiter.is_some())),
            delimiter: settings.prefix_delimiter.unwrap_or(b':'),
            table: Mutex::default(),
        };
        Shared {
            deal,
            parked: (0..workers).map(|_| Parked::default()).collect(),
            intakes: (0..shards).map(|_| Intake::default()).collect(),
            devices: Mutex::new(vec![vec![DeviceState::Up; shards]; settings.flash.len()]),
            started,
            auth: Auth::default(),
            tls: None,
            clock: Clock::start(settings.clock.clone(), 0),
            words: None,
            flush_order: Mutex::new(()),
            second: Mutex::new(()),
            conn_counts: ConnCounts {
                accepting: AtomicU8::new(1),
                ..ConnCounts::default()
            },
            wrong_passwords: Seldom::default(),
            broken_ciphers: Seldom::default(),
            refreshes: Seldom::default(),
            refused_refreshes: Seldom::default(),
            flush_generation: AtomicU64::new(0),
            flush_due: AtomicU32::new(0),
            flushes: AtomicU64::new(0),
            reset_generation: AtomicU64::new(0),
            dram_limit: AtomicU64::new(0),
            dram_bounds: OnceLock::new(),
            shutdown: AtomicU8::new(0),
            tuning: Tuning::of(&settings),
            draining: AtomicBool::new(false),
            verbosity: Mutex::new(settings.verbosity),
            published: (0..workers).map(|_| Mutex::default()).collect(),
            conns: Mutex::default(),
            sockets: Mutex::default(),
            fill: Fill::default(),
            watchers: Watchers::default(),
            prefixes,
            settings,
        }
    }

    /// Continues from what a previous server has stored, and stores flushes and time there.
    #[must_use]
    pub fn going_on(mut self, words: Arc<ServerWords>, second: u32) -> Shared {
        self.flush_generation = AtomicU64::new(words.flushes());
        self.flush_due = AtomicU32::new(words.flush_due());
        self.clock = Clock::start(self.settings.clock.clone(), second);
        self.words = Some(words);
        self
    }

    /// Requires passwords.
    #[must_use]
    pub fn guarded(mut self, auth: Auth) -> Shared {
        self.auth = auth;
        self
    }

    /// Turns TLS on.
    #[must_use]
    pub fn ciphered(mut self, tls: Option<Tls>) -> Shared {
        self.tls = tls;
        self
    }

    /// The answer to `version`.
    pub fn version(&self) -> String {
        if self.settings.drop_in {
            PROTOCOL_VERSION.to_owned()
        } else {
            format!("{PROTOCOL_VERSION}-senko-{}", env!("CARGO_PKG_VERSION"))
        }
    }

    // ---- flush ----

    /// Flushes: everything stored before this call is gone from every shard, for every command that
    /// starts after it. A delayed flush that was waiting is replaced, as in memcached.
    pub fn flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let _order = lock(&self.flush_order);
        self.raise_flush();
    }
    /// Plans a flush at `due` (Unix seconds, not 0); replaces one that was waiting.
    pub fn flush_at(&self, due: u32) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let _order = lock(&self.flush_order);
        if let Some(words) = &self.words {
            words.set_flush_due(due);
        }
        self.flush_due.store(due, Ordering::Release);
        self.fill.end(FLUSHED);
    }
    /// Executes the flush planned for `due` now, unless another thread was first.
    fn flush_is_due(&self, due: u32) {
        let _order = lock(&self.flush_order);
        if self.flush_due.load(Ordering::Acquire) == due {
            self.raise_flush();
        }
    }
    /// Raises the generation, then forgets a planned flush. A kill between the two leads to a
    /// second flush, not to a missing one. Call it under the lock.
    fn raise_flush(&self) {
        let generation = self.flush_generation.load(Ordering::Acquire) + 1;
        if let Some(words) = &self.words {
            words.set_flushes(generation);
            words.set_flush_due(0);
        }
        self.flush_generation.store(generation, Ordering::Release);
        self.flush_due.store(0, Ordering::Release);
        // After the raise: a fill that begins later begins at shards that have flushed.
        self.fill.end(FLUSHED);
    }
    /// Number of the latest flush that was acknowledged.
    pub fn flush_generation(&self) -> u64 {
        self.flush_generation.load(Ordering::Acquire)
    }
    /// Whether these are all flushes that are due at this second, and all resets.
    #[inline]
    pub(crate) fn is_all(&self, applied: Applied, now: u32) -> bool {
        let due = self.flush_due.load(Ordering::Acquire);
        (due == 0 || now < due)
            && self.flush_generation() == applied.flushes
            && self.reset_generation() == applied.resets
    }
    /// Stores the time for a later server.
    pub fn note_second(&self, second: u32) {
        if let Some(words) = &self.words
            && words.second() < second
        {
            // If two workers store the time, the later second must stay (RESTART-9).
            let _alone = lock(&self.second);
            words.set_second(second.max(words.second()));
        }
    }
    /// Flush commands since the start or the last reset.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    // ---- shutdown, verbosity, memory ----

    /// Asks every worker to stop.
    pub fn request_shutdown(&self, how: Shutdown) {
        self.fill.end("the server stops");
        let code = match how {
            Shutdown::No => 0,
            Shutdown::Now => 1,
            Shutdown::Graceful => 2,
        };
        // A stop at once stays one: a worker may not have seen it yet.
        let stays = |before| (before != 1).then_some(code);
        let (set, fetch) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.shutdown.fetch_update(set, fetch, stays);
    }
    /// Whether the server was asked to stop.
    pub fn shutdown(&self) -> Shutdown {
        match self.shutdown.load(Ordering::Acquire) {
            0 => Shutdown::No,
            1 => Shutdown::Now,
            _ => Shutdown::Graceful,
        }
    }
    /// From now on new connections are turned away. Nothing ends that but the server's end.
    pub(crate) fn begin_draining(&self) {
        self.fill.end("the server drains");
        self.draining.store(true, Ordering::Relaxed);
    }
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
    /// The verbosity, 0 to 3.
    pub fn verbosity(&self) -> u8 {
        *lock(&self.verbosity)
    }
    pub(crate) fn set_verbosity(&self, level: u32) {
        let level = level.min(3) as u8;
        // Held over the call, so that the log follows the last of two commands.
        let mut now = lock(&self.verbosity);
        *now = level;
        if let Some(tell) = self.settings.on_verbosity {
            tell(level);
        }
    }
    /// Bytes of DRAM that all shards together may use for items, as `cache_memlimit` set it; 0: not
    /// set. Workers compare it with the value that they applied, and call
    /// [`Shards::set_dram_limit`] with their part.
    pub fn dram_limit(&self) -> u64 {
        self.dram_limit.load(Ordering::Relaxed)
    }
    /// Sets it, for workers to see; otherwise returns the least and the most that it can be.
    pub(crate) fn limit_dram(&self, bytes: u64) -> Result<(), (u64, u64)> {
        let shards = self.deal.shards() as u64;
        let each = (bytes / shards) as usize;
        match self.dram_bounds.get() {
            Some(bounds) if bounds.contains(&each) => {
                self.dram_limit.store(bytes, Ordering::Relaxed);
                Ok(())
            }
            bounds => {
                let bounds = bounds.map_or((0, 0), |b| (*b.start() as u64, *b.end() as u64));
                Err((bounds.0 * shards, bounds.1 * shards))
            }
        }
    }
    /// Notes how much memory these shards have for items. Every worker does so before any serves.
    pub fn note_items(&self, shards: &Shards) {
        for (number, shard) in shards.own() {
            self.intakes[number].set_items(shard.items_memory());
            // The first one sets it for all.
            let _ = self.dram_bounds.set(shard.dram_bounds());
        }
    }
    /// The largest limit.
    pub(crate) fn most_dram(&self) -> u64 {
        let most = self.dram_bounds.get().map_or(0, |bounds| *bounds.end());
        (most * self.deal.shards()) as u64
    }

    /// Sets a shard's use of a flash device. Returns the use by the server as a whole, if that
    /// changed.
    pub(crate) fn device_changed(
        &self,
        device: usize,
        shard: usize,
        state: DeviceState,
    ) -> Option<DeviceState> {
        let mut devices = lock(&self.devices);
        let states = &mut devices[device];
        let before = worst(states);
        states[shard] = state;
        let now = worst(states);
        (now != before).then_some(now)
    }
    /// The number of flash devices in such a state.
    pub(crate) fn devices_in(&self, state: DeviceState) -> usize {
        let devices = lock(&self.devices);
        devices.iter().filter(|of| worst(of) == state).count()
    }

    /// The use of each flash device by the server as a whole, in the order of the settings.
    pub(crate) fn device_states(&self) -> Vec<DeviceState> {
        lock(&self.devices).iter().map(|of| worst(of)).collect()
    }

    // ---- statistics ----

    /// Publishes a worker's counters. `published.reset` must be the value of
    /// [`Shared::reset_generation`] before they were last zeroed; counters from before a reset are
    /// not published.
    pub fn publish(&self, worker: usize, published: Published) {
        let mut place = lock(&self.published[worker]);
        if published.reset >= place.reset {
            *place = published;
        }
    }
    /// Publishes a worker's own counters now, because another worker is about to add them up. The
    /// devices' counters stay as last published.
    pub(crate) fn publish_counters(
        &self,
        worker: usize,
        stats: &ThreadStats,
        shards: &Shards,
        reset: u64,
    ) {
        let mut place = lock(&self.published[worker]);
        if reset >= place.reset {
            (place.stats, place.cache, place.slabs) =
                (*stats, shards.stats(), shards.slab_classes());
        }
    }
    /// Calls `each` with every worker's counters except those of `except`.
    pub(crate) fn for_others(&self, except: usize, mut each: impl FnMut(&Published)) {
        for (worker, published) in self.published.iter().enumerate() {
            if worker != except {
                each(&lock(published));
            }
        }
    }
    /// How often `stats reset` was requested. When it changes, a worker zeroes its [`ThreadStats`]
    /// and its shard's counters.
    pub fn reset_generation(&self) -> u64 {
        self.reset_generation.load(Ordering::Acquire)
    }
    /// `stats reset`: the published counters are zero at once, the workers' own counters as soon as
    /// they see it.
    pub(crate) fn reset(&self) {
        let generation = self.reset_generation.fetch_add(1, Ordering::AcqRel) + 1;
        for published in &self.published {
            let mut place = lock(published);
            place.stats = ThreadStats::default();
            let cache = &mut place.cache;
            *cache = gauges_only(cache);
            place.reset = generation;
        }
        self.flushes.store(0, Ordering::Relaxed);
        self.conn_counts.total.store(0, Ordering::Relaxed);
        self.conn_counts.rejected.store(0, Ordering::Relaxed);
        self.conn_counts.listen_disabled.store(0, Ordering::Relaxed);
        self.conn_counts
            .listen_disabled_us
            .store(0, Ordering::Relaxed);
        lock(&self.prefixes.table).clear();
        self.watchers.reset();
    }

    /// The hottest keys of all workers.
    pub(crate) fn hottest(&self) -> Vec<(Vec<u8>, u64)> {
        let mut all = Vec::new();
        self.for_others(usize::MAX, |any| all.extend_from_slice(&any.hot));
        hot::hottest(all)
    }

    // ---- connections ----

    /// Adds a connection to the table of `stats conns`; `id` is unique among open connections (the
    /// file descriptor, or worker and slot).
    pub fn register(&self, id: u64, entry: Arc<ConnEntry>) {
        lock(&self.conns).insert(id, entry);
    }
    /// Removes it.
    pub fn unregister(&self, id: u64) {
        lock(&self.conns).remove(&id);
    }
    /// Stores the socket of a worker's connection: other workers know only its number.
    pub(crate) fn name_socket(&self, worker: usize, conn: u64, socket: (u64, u64)) {
        lock(&self.sockets).insert((worker, conn), socket);
    }
    /// A connection of a fill stays known as one until its number is used again. Its last commands
    /// may still be on their way to another worker, which must not take them for a client's.
    pub(crate) fn forget_socket(&self, worker: usize, conn: u64) {
        let mut sockets = lock(&self.sockets);
        match sockets.remove(&(worker, conn)) {
            None | Some((_, 0)) => {}
            Some((_, fill)) => drop(sockets.insert((worker, conn), (0, fill))),
        }
    }
    /// The socket and the fill; 0: the connection is gone.
    pub(crate) fn socket_of(&self, worker: usize, conn: u64) -> (u64, u64) {
        let socket = lock(&self.sockets).get(&(worker, conn)).copied();
        socket.unwrap_or_default()
    }
    /// At most `most` rows, by number from `from` on.
    pub(crate) fn connections(&self, from: u64, most: usize) -> Vec<(u64, Arc<ConnEntry>)> {
        lock(&self.conns)
            .range(from..)
            .take(most)
            .map(|(id, entry)| (*id, Arc::clone(entry)))
            .collect()
    }
}

/// Why a flush ends a fill.
const FLUSHED: &str = "flush_all: what the peer has may be older";

fn gauges_only(stats: &CacheStats) -> CacheStats {
    let mut gauges = CacheStats::default();
    gauges.dram_items = stats.dram_items;
    gauges.dram_bytes = stats.dram_bytes;
    gauges.dram_limit = stats.dram_limit;
    gauges.flash_items = stats.flash_items;
    gauges.sorted_now = stats.sorted_now;
    gauges.flash_bytes = stats.flash_bytes;
    gauges.flash_capacity = stats.flash_capacity;
    gauges.index_bytes = stats.index_bytes;
    gauges
}

/// How far a worker's shards have executed the requests that concern every shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    flush: u64,
    reset: u64,
    dram_limit: u64,
    tuned: u64,
    fill: u64,
}

impl Cursor {
    /// The cursor of shards that have applied this many flushes.
    pub fn at(flushes: u64) -> Cursor {
        Cursor {
            flush: flushes,
            ..Cursor::default()
        }
    }

    /// Applies a flush that these shards have not seen yet; true if there was one. Otherwise it
    /// costs two loads.
    #[inline]
    pub fn flush(&mut self, shared: &Shared, shards: &mut Shards) -> bool {
        let due = shared.flush_due.load(Ordering::Acquire);
        if due != 0 && shards.now() >= due {
            // The first worker to get here raises the generation for all.
            shared.flush_is_due(due);
        }
        let generation = shared.flush_generation.load(Ordering::Acquire);
        if generation == self.flush {
            return false;
        }
        self.flush = generation;
        shards.flush(generation);
        true
    }

    /// Applies a `stats reset` that this worker has not seen yet. A worker calls it before it
    /// counts a command: else it would zero, a little later, what it counted after the reset's
    /// answer.
    #[inline]
    pub fn reset(&mut self, shared: &Shared, shards: &mut Shards, stats: &mut ThreadStats) {
        let reset = shared.reset_generation();
        if reset != self.reset {
            self.reset = reset;
            *stats = ThreadStats::default();
            shards.reset_stats();
        }
    }

    /// Sets the memory limit of all shards; false if it is out of bounds.
    pub(crate) fn limit_memory(
        &mut self,
        shared: &Shared,
        shards: &mut Shards,
        bytes: u64,
    ) -> bool {
        let each = (bytes / shared.deal.shards() as u64) as usize;
        let taken = shared.limit_dram(bytes).is_ok();
        if taken {
            shards.set_dram_limit(each);
            // If another worker restores the limit before, it is news for this shard.
            self.dram_limit = bytes;
        }
        taken
    }

    /// Applies everything pending: flushes, `stats reset`, `cache_memlimit`, another tuning of
    /// flash, the beginning and the end of a fill. The worker calls it about ten times a second,
    /// and before it publishes.
    pub fn catch_up(&mut self, shared: &Shared, shards: &mut Shards, stats: &mut ThreadStats) {
        // Loaded first, so that a flush before the fill began is not applied after that.
        let fill = shared.fill.number();
        self.flush(shared, shards);
        if fill != self.fill {
            self.fill = fill;
            shards.turn_to_fill(fill);
            shared.fill.begun_at_one(fill);
        }
        self.reset(shared, shards, stats);
        let limit = shared.dram_limit();
        if limit != self.dram_limit {
            self.dram_limit = limit;
            shards.set_dram_limit((limit / shared.deal.shards() as u64) as usize);
        }
        if let Some((tuned, changes)) = shared.tuning.after(self.tuned) {
            self.tuned = changes;
            shards.tune(tuned.share(shared.deal.shards()), tuned.promote_after);
        }
    }

    /// What its shards have applied.
    pub fn applied(&self) -> Applied {
        Applied {
            flushes: self.flush,
            resets: self.reset,
        }
    }

    /// The reset generation of the counters: the value for [`Published::reset`].
    pub fn reset_seen(&self) -> u64 {
        self.reset
    }
}

impl PrefixStats {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed) != 0
    }
    pub(crate) fn set(&self, on: bool) {
        self.on.store(u8::from(on), Ordering::Relaxed);
    }
    /// Counts a command by its key's prefix. Keys without the delimiter are not counted, as in
    /// memcached.
    pub(crate) fn record(&self, key: &[u8], touched: Touched) {
        let Some(end) = memchr::memchr(self.delimiter, key) else {
            return;
        };
        let mut table = lock(&self.table);
        if table.len() >= MAX_PREFIXES && !table.contains_key(&key[..end]) {
            return;
        }
        let prefix = table.entry(key[..end].to_vec()).or_default();
        match touched {
            Touched::Get { hit, flash } => {
                prefix.get += 1;
                prefix.hit += u64::from(hit);
                prefix.flash += u64::from(flash);
            }
            Touched::Set => prefix.set += 1,
            Touched::Delete => prefix.del += 1,
        }
    }
    /// The prefixes with the most gets, in descending order.
    pub(crate) fn top(&self, most: usize) -> Vec<(Vec<u8>, Prefix)> {
        let table = lock(&self.table);
        let mut all: Vec<(&Vec<u8>, &Prefix)> = table.iter().collect();
        all.sort_by_key(|(_, prefix)| std::cmp::Reverse(prefix.get));
        all.truncate(most);
        all.into_iter().map(|(n, p)| (n.clone(), *p)).collect()
    }
    /// The answer of `stats detail dump`. Appends the rows of at most `most` prefixes after
    /// `after`. Returns the last one if there may be more.
    pub(crate) fn dump(
        &self,
        after: Option<&[u8]>,
        most: usize,
        out: &mut Vec<u8>,
    ) -> Option<Vec<u8>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let table = lock(&self.table);
        let mut last = None;
        let mut rows = 0;
        for (name, p) in table.range::<[u8], _>((from, Bound::Unbounded)).take(most) {
            out.extend_from_slice(b"PREFIX ");
            push_key(out, name);
            let counts = format!(
                " get {} hit {} set {} del {}\r\n",
                p.get, p.hit, p.set, p.del
            );
            out.extend_from_slice(counts.as_bytes());
            rows += 1;
            last = Some(name);
        }
        last.filter(|_| rows == most).cloned()
    }
}
