// SPDX-License-Identifier: Apache-2.0
//! One thread: its event loop, its shard, its connections.
//!
//! A round of the loop: wait for events; take each; run the connections that have unread input in turn; hand messages to other
//! workers; send every connection's answers in one batch. Nothing in a round waits, locks or allocates for a request
//! whose key this shard owns (messages between workers lock once a round and worker, and do allocate).
//!
//! ```text
//! poll -> Accepted  -> hand to the worker with the fewest connections
//!         Received  -> flow::received -> Session::feed
//!         Sent      -> flow::sent
//!         Disk      -> Shard::on_disk -> Shard::next_done -> Session::done
//!         Woken     -> messages from other workers: newcomers, their commands, their answers
//! ```

mod accept; // newcomers: the limit, the spreading, leaving
mod conns; // the connections, sockets and virtual ones
mod drain; // the end: answer what was received, then close
mod flow; // bytes in, answers out, and the limits on both

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use senko_cache::{Shard, ShardConfig};
use senko_io::{Backend, Event, EventLoop, FlashFile, Listener, LoopConfig, SendBatch, Waker};

use crate::route::{Mesh, Message};
use crate::server::Control;
use crate::session::Ctx;
use crate::shared::{Cursor, Published, Shared, ThreadStats};
use conns::{ConnKey, Conns};

/// Longest wait for events: how late a tick, a delayed flush or another worker's counters may be.
const TICK: Duration = Duration::from_millis(100);

/// What a worker is made from.
#[derive(Debug)]
pub struct WorkerConfig {
    /// Its number, and its shard's.
    pub index: usize,
    /// Its loop.
    pub loop_config: LoopConfig,
    /// Bytes of unsent replies and unread requests that it holds.
    pub pending: usize,
    /// Its shard.
    pub shard: ShardConfig,
    /// Flash files, in the order of their device numbers.
    pub files: Vec<Arc<FlashFile>>,
    /// What it accepts on.
    pub listeners: Vec<(Listener, String)>,
    /// What all workers see.
    pub shared: Arc<Shared>,
}

/// One worker.
pub struct Worker {
    index: usize,
    core: Core,
    conns: Conns,
    listeners: Vec<(Listener, String)>,
    /// Sockets above the connection limit, where they wait instead of being refused.
    waiting: VecDeque<OwnedFd>,
    /// Connections with unread input, in turn.
    run: VecDeque<ConnKey>,
    /// Connections whose answers are to be looked at.
    dirty: Vec<ConnKey>,
    /// Connections that wait for memory.
    blocked: Vec<ConnKey>,
    spare: Vec<Box<SendBatch>>,
    unpinned: Vec<u64>,
    /// Frames may have been returned since the shard was told.
    frames_freed: bool,
    /// Clock: Unix milliseconds, read once a round.
    now_ms: u64,
    next_tick_ms: u64,
    next_sweep_ms: u64,
    /// Bytes held for connections, and how many may be.
    held: usize,
    pending: usize,
    /// Bytes of item memory that slow batches refer to, and how many may be before they are copied.
    slow_pinned: usize,
    most_pinned: usize,
    closed_for_memory: u64,
}

/// What sessions work on, apart from the connections so that both can be borrowed.
struct Core {
    ev: EventLoop,
    shard: Shard,
    shared: Arc<Shared>,
    stats: ThreadStats,
    cursor: Cursor,
}

impl Core {
    fn ctx(&mut self) -> Ctx<'_, EventLoop> {
        todo!()
    }
}

impl Worker {
    /// Makes loop and shard, on the thread that will run them.
    ///
    /// # Errors
    /// One sentence.
    pub fn new(config: WorkerConfig) -> Result<Worker, String> {
        let mut ev = EventLoop::new(&config.loop_config).map_err(|e| e.to_string())?;
        for file in &config.files {
            ev.attach(Arc::clone(file));
        }
        let most_pinned = config.shard.memory / 8;
        let mut shard = Shard::new(config.shard).map_err(|e| e.to_string())?;
        let now_ms = clock(&config.shared);
        shard.set_now(now_ms);
        let core = Core { ev, shard, shared: config.shared, stats: ThreadStats::default(), cursor: Cursor::default() };
        Ok(Worker {
            index: config.index,
            core,
            conns: Conns::default(),
            listeners: config.listeners,
            waiting: VecDeque::new(),
            run: VecDeque::new(),
            dirty: Vec::new(),
            blocked: Vec::new(),
            spare: Vec::new(),
            unpinned: Vec::new(),
            frames_freed: false,
            now_ms,
            next_tick_ms: 0,
            next_sweep_ms: 0,
            held: 0,
            pending: config.pending,
            slow_pinned: 0,
            most_pinned,
            closed_for_memory: 0,
        })
    }

    /// Wakes the worker from another thread.
    pub fn waker(&self) -> Waker {
        self.core.ev.waker()
    }

    /// The backend of its loop.
    pub fn backend(&self) -> Backend {
        self.core.ev.backend()
    }

    /// Why it fell back to posix.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.core.ev.fallback_reason()
    }

    /// Serves until the server is asked to stop.
    ///
    /// # Errors
    /// One sentence, when the loop broke.
    pub fn run(mut self, mesh: &Arc<Mesh>, control: &Control) -> Result<(), String> {
        self.listen()?;
        let mut events = Vec::new();
        let mut drain = None;
        loop {
            let timeout = if self.run.is_empty() && self.dirty.is_empty() { TICK } else { Duration::ZERO };
            self.core.ev.poll(Some(timeout), &mut events).map_err(|e| format!("the event loop failed: {e}"))?;
            self.now_ms = clock(&self.core.shared);
            self.core.shard.set_now(self.now_ms);
            for event in events.drain(..) {
                self.event(event);
            }
            self.round();
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Received { conn, data } => self.received(conn, &data),
            Event::Sent { conn, batch, result } => self.sent(conn, batch, result),
            Event::Disk(completion) => {
                self.disk_moved = true;
                self.core.shard.on_disk(&mut self.core.ev, completion);
            }
            Event::Ended { conn, error } => self.ended(conn, error),
            Event::Accepted { listener, stream } => self.accepted(listener, stream),
            Event::AcceptFailed { listener, error } => self.accept_failed(listener, &error),
            Event::Woken => self.woken = true,
        }
    }
}

/// Unix milliseconds: the system's clock, or the one that a test drives.
fn clock(shared: &Shared) -> u64 {
    match &shared.settings.clock {
        Some(clock) => clock.load(Ordering::Acquire),
        None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
    }
}
