// SPDX-License-Identifier: Apache-2.0
//! One thread: its event loop, its shards, its connections.
//!
//! A round of the loop waits for events, while other workers may read from its shards
//! (`parked.rs`). It handles each event: first requests, then device reads that ended. It runs the
//! connections with unread input in turn, and sends every connection's answers in one batch. At its
//! end it passes messages to other workers. A request for a key of its own shards never waits,
//! locks nothing and allocates nothing. Messages take one lock per round and worker, and one to
//! check for answers that other workers sent. The lock of the parked shards is taken twice a round.
//!
//! ```text
//! poll -> Accepted  -> accept::accepted -> the worker with the fewest connections
//!         Received  -> flow::received   -> Session::feed
//!         Sent      -> flow::sent
//!         Disk      -> Afar::on_disk    -> Afar::next_done -> Session::done
//!         Woken     -> mail::read_mail: newcomers, other workers' commands and answers (lend.rs looks for those that wake nobody)
//! ```

mod accounts; // the memory that connections hold
mod accept; // new connections: the limit, the distribution, and their end
mod cipher; // connections with TLS
mod conns; // the connections, with sockets or virtual
mod devices; // log lines about the state of flash devices
mod disk; // device operations that ended
mod drain; // the end: answer the received requests, then close
mod flow; // received bytes, sent answers, and the limits on both
mod intake; // memory for arriving values
mod lend; // sockets lent to other workers with a command
mod mail; // messages from other workers
mod peers; // state shared with other workers
mod prefetch; // prefetch of the memory that the round will read
mod secure; // state of a connection with TLS
mod spare; // emptied batches for later sends
mod streams; // large values on their way from flash
mod timers; // when upkeep is due
mod watching; // lines for watchers

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use senko_cache::{Done, Recovered, Shard, ShardConfig};
use senko_io::{Backend, Completion, Event, EventLoop, FlashFile, LoopConfig, Op, RecvBuf};

use crate::connection::ConnKey;
use crate::context::{Ctx, Window, Work};
use crate::hot::HotKeys;
use crate::latency::Meter;
use crate::parked::OwnShards;
use crate::route::{Mesh, Message, Outbox};
use crate::server::data_dir::{DataDir, Stopped};
use crate::shards::Shards;
use crate::shared::{ConnEntry, Cursor, Published, Shared, ThreadStats};
use crate::window::most_pieces;
pub use accept::Door;
use accept::Entrance;
use conns::Conns;
use disk::Disk;
use intake::Crowd;
use peers::Peers;
use spare::Spare;
use streams::Streams;
use timers::{TICK, Timers};

/// Heavy commands, or parts of them, in a round: some tenths of a millisecond.
const HEAVY_TURN: usize = 4;
/// The counts of hot keys are halved after this many sweeps over connections.
const HOT_SWEEPS: u64 = 60;

#[derive(Debug)]
pub struct WorkerConfig {
    pub index: usize,
    pub loop_config: LoopConfig,
    /// Bytes of unsent replies and unread requests that it may hold.
    pub pending: usize,
    /// Its shards, which may be none.
    pub shards: Vec<ShardConfig>,
    /// What a shard is like, for a worker without.
    pub like: ShardConfig,
    /// Flash files, in the order of their device numbers.
    pub files: Vec<Arc<FlashFile>>,
    pub doors: Vec<Door>,
    /// The data directory, if state must outlive the process.
    pub data_dir: Option<Arc<DataDir>>,
    pub shared: Arc<Shared>,
    /// The connection to the other workers.
    pub mesh: Arc<Mesh>,
}

/// The report of a worker once it is ready.
pub struct LoopReport {
    pub index: usize,
    pub backend: Backend,
    pub fallback: Option<String>,
    pub recovered: Vec<(usize, Recovered)>,
}

/// Why a worker can't be made.
#[derive(Debug)]
pub struct StartError {
    /// One sentence.
    pub text: String,
    /// The least bytes of memory that its shard needs, if that is the reason.
    pub least_shard: Option<u64>,
}

impl From<String> for StartError {
    fn from(text: String) -> StartError {
        StartError {
            text,
            least_shard: None,
        }
    }
}

pub struct Worker {
    index: usize,
    core: Core,
    conns: Conns,
    entrance: Entrance,
    peers: Peers,
    crowd: Crowd,
    disk: Disk,
    timers: Timers,
    /// Handshakes, and the buffer for decrypted bytes.
    ciphers: cipher::Ciphers,
    /// Connections with unread input, in turn, and those whose next command is heavy.
    run: VecDeque<ConnKey>,
    heavy: VecDeque<ConnKey>,
    /// Connections whose answers must be checked.
    dirty: Vec<ConnKey>,
    /// Connections that wait for memory.
    blocked: Vec<ConnKey>,
    streams: Streams,
    watching: Vec<ConnKey>,
    /// FLOW-4: whole turns left in this part of the round.
    turns: usize,
    spare: Spare,
    unpinned: Vec<u64>,
    mail: Vec<Message>,
    /// Hashes of keys that the round will look up.
    coming: Vec<u64>,
    /// Clock: Unix milliseconds, read once a round.
    now_ms: u64,
    /// The earliest time for the next log line about closing a slow reader.
    tell_of_slow_ms: u64,
    /// The last reported state of the shards' parts of devices.
    told: Vec<devices::Told>,
    /// Bytes that may be held for connections.
    pending: usize,
    /// Receive buffers that are withheld from the loop while many requests can't run yet.
    withheld: VecDeque<RecvBuf>,
    drain: Option<drain::Drain>,
    data_dir: Option<Arc<DataDir>>,
    recovered: Vec<(usize, Recovered)>,
}

/// The state that sessions use, separate from the connections so that both can be borrowed.
struct Core {
    me: usize,
    ev: EventLoop,
    shard: OwnShards,
    shared: Arc<Shared>,
    stats: ThreadStats,
    cursor: Cursor,
    outbox: Outbox,
    /// The work that sessions may have under way now.
    window: Window,
    work: Work,
    meter: Meter,
}

impl Core {
    /// Sets the shards' clock. The second is stored for a later server before any answer depends on
    /// it (RESTART-9).
    fn read_clock(&mut self, timers: &mut Timers) -> u64 {
        let now_ms = self.shared.clock.now_ms();
        self.shard.set_now(now_ms);
        let second = self.shard.now();
        if timers.is_new(second) {
            self.shared.note_second(second);
        }
        now_ms
    }

    #[inline]
    fn ctx<'a>(
        &'a mut self,
        at: ConnKey,
        (entry, fd): (Option<&'a ConnEntry>, u64),
    ) -> Ctx<'a, EventLoop> {
        Ctx {
            shard: &mut self.shard,
            queue: &mut self.ev,
            shared: &self.shared,
            stats: &mut self.stats,
            cursor: &mut self.cursor,
            router: &mut self.outbox,
            me: self.me,
            conn: at.0,
            fd,
            entry,
            window: self.window,
            work: &mut self.work,
        }
    }

    fn on_disk(&mut self, completion: Completion) {
        let afar = &mut self.work.afar;
        afar.on_disk(&mut self.shard, &mut self.ev, completion);
    }

    fn next_done(&mut self) -> Option<Done> {
        self.work.afar.next_done(&mut self.shard, &mut self.ev)
    }

    /// Submits and waits, while other workers may use the shard.
    fn poll(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), String> {
        let parked = (self.shared.deal.workers() > 1).then(|| &self.shared.parked[self.me]);
        if let Some(parked) = parked {
            parked.park(&mut self.shard, self.cursor.applied());
        }
        let polled = self.ev.poll(Some(timeout), events);
        if let Some(parked) = parked {
            parked.take(&mut self.shard);
        }
        polled.map_err(|e| format!("the event loop failed: {e}"))
    }
}

impl Worker {
    /// Makes loop and shard, on the thread that will run them.
    pub fn new(config: WorkerConfig) -> Result<Worker, StartError> {
        let mut ev = EventLoop::new(&config.loop_config).map_err(|e| e.to_string())?;
        for file in &config.files {
            ev.attach(Arc::clone(file));
        }
        ev.set_spin(config.shared.settings.spin);
        let now_ms = config.shared.clock.now_ms();
        let (mut own, mut recovered) = (Vec::new(), Vec::new());
        for of in config.shards {
            let number = of.shard as usize;
            let (shard, found) = open_shard(of, &config.data_dir, now_ms)?;
            own.push(shard);
            recovered.push((number, found));
        }
        let deal = config.shared.deal;
        let shards = Shards::new(own, (config.index, deal), &config.like);
        config
            .mesh
            .enter(config.index, ev.waker(), shards.item_memory());
        config.shared.note_items(&shards);
        let meter = Meter::new(config.shared.settings.watched());
        let every = config.shared.settings.hot_keys.unwrap_or(0);
        let hot = HotKeys::new(every, config.shared.settings.seed ^ config.index as u64);
        let core = Core {
            me: config.index,
            ev,
            cursor: Cursor::at(shards.flushes()),
            shard: shards.into(),
            shared: config.shared,
            stats: ThreadStats::default(),
            outbox: Outbox::new(config.index, config.mesh),
            window: Window::Wide,
            work: Work {
                hot,
                most_pieces: most_pieces(&config.loop_config.frames),
                ..Work::default()
            },
            meter,
        };
        Ok(Worker {
            index: config.index,
            core,
            conns: Conns::default(),
            entrance: Entrance::new(config.doors),
            peers: Peers::default(),
            crowd: Crowd::new(deal.shards()),
            disk: Disk::default(),
            timers: Timers::new(Instant::now()),
            ciphers: cipher::Ciphers::default(),
            run: VecDeque::new(),
            heavy: VecDeque::new(),
            dirty: Vec::new(),
            blocked: Vec::new(),
            streams: Streams::default(),
            watching: Vec::new(),
            turns: flow::TURNS,
            spare: Spare::default(),
            unpinned: Vec::new(),
            mail: Vec::new(),
            coming: Vec::with_capacity(prefetch::MOST_KEYS),
            now_ms,
            tell_of_slow_ms: 0,
            told: Vec::new(),
            withheld: VecDeque::new(),
            pending: config.pending,
            drain: None,
            data_dir: config.data_dir,
            recovered,
        })
    }

    pub fn report(&self) -> LoopReport {
        LoopReport {
            index: self.index,
            backend: self.core.ev.backend(),
            fallback: self.core.ev.fallback_reason().map(str::to_owned),
            recovered: self.recovered.clone(),
        }
    }

    /// Serves until the server is asked to stop. With a data directory, it returns what its shards
    /// saved there.
    ///
    /// # Errors
    /// One sentence, if the loop failed or a shard could not be saved.
    pub fn run(mut self) -> Result<Vec<Stopped>, String> {
        self.open_doors()?;
        let mut events = Vec::new();
        loop {
            let busy = !(self.run.is_empty()
                && self.heavy.is_empty()
                && self.dirty.is_empty()
                && !self.ciphers.are_busy()
                && self.disk.waiting().is_empty());
            let timeout = if busy {
                Duration::ZERO
            } else if self.draining() {
                drain::STEP
            } else {
                TICK
            };
            self.core.poll(timeout, &mut events)?;
            self.now_ms = self.core.read_clock(&mut self.timers);
            let now = Instant::now();
            let core = &mut self.core;
            core.meter.begin_round(&mut core.work.waited, now);
            self.pass_time(now);
            self.prefetch_events(&events);
            // Connections that wait for a turn of heavy work come before new ones.
            self.core.work.heavy = if self.heavy.is_empty() { HEAVY_TURN } else { 0 };
            self.turns = flow::TURNS;
            self.take_events(&mut events);
            self.round(now);
            if self.drained() {
                break;
            }
        }
        self.core.outbox.flush();
        self.finish_disk()?;
        self.save_shards()
    }

    /// Tells the shards how long this thread has been running. A long round was not the devices'
    /// fault, and operations that they completed meanwhile are still to be handled.
    fn pass_time(&mut self, now: Instant) {
        let patience = self.core.shared.settings.patience;
        let steady_ms = self.timers.begin_round(now, patience);
        self.core.shard.set_steady(steady_ms);
    }

    /// Requests go first, and so do answers that need no device. Only some of the ended device
    /// reads are handled: one more for each eight connections with requests, or a sixteenth of all.
    /// Hundreds of answers from flash take about a millisecond to send, and hits in DRAM should not
    /// wait for them.
    fn take_events(&mut self, events: &mut Vec<Event>) {
        let mut requests = 0;
        for event in events.drain(..) {
            match event {
                Event::Disk(completion) if completion.op == Op::Read => {
                    self.disk.ended(completion);
                }
                event => {
                    requests += usize::from(matches!(event, Event::Received { .. }));
                    self.event(event);
                }
            }
        }
        let turn = self.disk.turn(requests + self.run.len());
        self.prefetch_frames(turn);
        for _ in 0..turn {
            if let Some(completion) = self.disk.next() {
                self.event(Event::Disk(completion));
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Received { conn, data } => self.received(conn, data),
            Event::Sent {
                conn,
                batch,
                result,
            } => self.sent(conn, batch, result),
            Event::Disk(completion) => {
                self.disk.taken();
                self.core.on_disk(completion);
            }
            Event::Ended { conn, error } => self.ended(conn, error),
            Event::Accepted { listener, stream } => self.accepted(listener, stream),
            Event::AcceptFailed { error, .. } => self.accept_failed(&error),
            Event::Woken => self.read_mail(),
        }
    }

    /// The work after the events of a round that began at this time.
    fn round(&mut self, now: Instant) {
        self.core.stats.rounds += 1;
        self.run_queue();
        self.run_heavy();
        self.run_handshakes();
        let tick = self.timers.tick(now);
        self.look_for_mail(tick);
        if tick || self.disk.has_moved() {
            let core = &mut self.core;
            core.work.afar.tick(&mut core.shard, &mut core.ev);
        }
        self.feed_starved();
        if self.disk.take_frames_freed() {
            self.core.shard.frames_freed(&mut self.core.ev);
        }
        self.finish_fetches();
        let moved = self.disk.take_moved() | self.core.shard.take_pins_ended();
        if (tick || moved) && !self.blocked.is_empty() {
            let mut blocked = std::mem::take(&mut self.blocked);
            for at in blocked.drain(..) {
                if let Some(conn) = self.conns.get(at) {
                    conn.wait = None;
                    self.feed_again(at);
                }
            }
            // Connections that are still blocked have queued themselves again.
            if self.blocked.is_empty() {
                self.blocked = blocked;
            }
            self.finish_fetches();
        }
        self.resume_paused();
        if tick {
            self.free_room();
        }
        self.admit_values(tick);
        self.bound_crowd();
        self.tell_watchers();
        self.flush_dirty();
        self.hand_over(tick);
        self.enforce_bound();
        self.give_back_buffers();
        if tick {
            self.free_pinned();
        }
        if self.core.shared.deal.workers() > 1 {
            let level = self.answer_level();
            let mesh = self.core.outbox.mesh();
            mesh.holds(self.index, level);
            mesh.pins(self.index, self.core.shard.pinned());
        }
        self.reopen_doors();
        let core = &mut self.core;
        core.meter.end_round(&mut core.work.waited, &core.stats);
        if tick {
            // After the meter, so that times and counters are published as of the same round.
            self.upkeep(now);
        }
        self.core.outbox.flush();
    }

    /// One turn for each connection with unread input, as long as the round has turns (FLOW-4).
    fn run_queue(&mut self) {
        // Whatever came with the events, those that wait go on.
        self.turns = flow::TURNS;
        for _ in 0..self.run.len() {
            if self.turns == 0 {
                return;
            }
            let Some(at) = self.run.pop_front() else {
                return;
            };
            if let Some(conn) = self.conns.get(at) {
                conn.queued = false;
                self.feed_again(at);
            }
        }
    }

    /// Runs heavy commands, one at a time for each connection that waits for a turn, up to the
    /// turns of this round.
    fn run_heavy(&mut self) {
        if self.heavy.is_empty() {
            return;
        }
        self.core.work.heavy = HEAVY_TURN;
        for _ in 0..self.heavy.len() {
            if self.core.work.heavy == 0 {
                return;
            }
            let Some(at) = self.heavy.pop_front() else {
                return;
            };
            // The next one belongs to another connection.
            let left = std::mem::replace(&mut self.core.work.heavy, 1);
            if let Some(conn) = self.conns.get(at) {
                conn.queued = false;
                self.feed_again(at);
            }
            let used = 1 - self.core.work.heavy.min(1);
            self.core.work.heavy = left - used;
        }
    }

    /// Passes ended fetches to their sessions.
    fn finish_fetches(&mut self) {
        while let Some(done) = self.core.next_done() {
            let at = ConnKey(done.user >> 16);
            // A fetch of a closed connection ends here, and its frame is returned.
            let Some(conn) = self.conns.get(at) else {
                self.disk.frames_freed(true);
                continue;
            };
            conn.session.done(
                &mut self.core.ctx(at, (conn.entry.as_deref(), conn.fd)),
                done,
            );
            self.go_on(at);
        }
    }

    /// Upkeep, about ten times a second.
    fn upkeep(&mut self, now: Instant) {
        let core = &mut self.core;
        core.cursor
            .catch_up(&core.shared, &mut core.shard, &mut core.stats);
        let published = Published {
            stats: core.stats,
            cache: core.shard.stats(),
            slabs: core.shard.slab_classes(),
            disk: core.ev.disk_stats().clone(),
            times: core.meter.times().clone(),
            device_times: core.ev.device_times().to_vec(),
            hot: core.work.hot.keys(),
            reset: core.cursor.reset_seen(),
        };
        core.shared.publish(self.index, published);
        core.shared.note_items(&core.shard);
        if let Some(data_dir) = &self.data_dir {
            data_dir.note_cas(core.shard.cas());
        }
        self.tell_of_devices();
        self.free_stuck_frames();
        if let Some(sweep) = self.timers.sweep(now) {
            if sweep.is_multiple_of(HOT_SWEEPS) {
                self.core.work.hot.age();
            }
            self.kick_idle();
            self.end_stalled();
            self.end_late_handshakes();
        }
    }

    /// A read that must be repeated waits for a frame. Answers after it may hold all frames of that
    /// size. If nothing else makes progress, these answers are copied.
    fn free_stuck_frames(&mut self) {
        let still = self.disk.stands_still(self.core.ev.disk_in_flight());
        if self.core.ev.frames().usage().1 == 0 || !still {
            return;
        }
        for (_, conn) in self.conns.iter() {
            if conn.session.replies().pages() > 0 {
                conn.session.replies().spill();
                self.disk.frames_freed(true);
            }
        }
    }

    /// Values that lack frames try again. While one of them has no piece under way, no read begins
    /// (WINDOW-4).
    fn feed_starved(&mut self) {
        let Some(starved) = self.streams.take_starved() else {
            return;
        };
        for at in starved {
            self.flush(at);
        }
        let dry = self.streams.has_dry();
        self.core.shard.hold_frames(dry);
        self.disk.frames_freed(!dry);
    }

    /// Closes connections for whose values reclaim has waited for too long (STREAM-2).
    fn end_stalled(&mut self) {
        let limit_ms = u64::from(self.core.shared.settings.stall) * 1000;
        let now_ms = self.timers.steady_ms();
        let all = self.conns.iter().filter(|(_, conn)| conn.is_socket());
        let stalled: Vec<ConnKey> = all
            .filter_map(|(at, conn)| {
                conn.session
                    .replies()
                    .stalls(now_ms, limit_ms)
                    .then_some(at)
            })
            .collect();
        for at in stalled {
            self.core.stats.streams_stalled += 1;
            self.close_for(at, "error");
        }
    }

    fn kick_idle(&mut self) {
        let limit = u64::from(self.core.shared.settings.idle_timeout) * 1000;
        if limit == 0 {
            return;
        }
        let now = self.now_ms;
        let idle: Vec<ConnKey> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.is_socket() && conn.last_active + limit <= now)
            .filter(|(_, conn)| conn.session.watcher().is_none() && !conn.session.fills())
            .map(|(at, _)| at)
            .collect();
        for at in idle {
            self.core.stats.idle_kicks += 1;
            self.close_for(at, "idle_timeout");
        }
    }
}

/// A shard, restored from the data directory if there is one.
fn open_shard(
    config: ShardConfig,
    data_dir: &Option<Arc<DataDir>>,
    now_ms: u64,
) -> Result<(Shard, Recovered), StartError> {
    let restore = data_dir
        .as_ref()
        .map(|data_dir| data_dir.restore(config.shard as usize))
        .transpose()?;
    let (mut shard, recovered) =
        Shard::open(config, restore, now_ms).map_err(|error| StartError {
            text: error.to_string(),
            least_shard: error.least_memory(),
        })?;
    if let Some(data_dir) = data_dir {
        shard.begin_cas(data_dir.cas_base());
    }
    shard.serve();
    Ok((shard, recovered))
}

fn seconds(ms: u64) -> u32 {
    (ms / 1000) as u32
}
