// SPDX-License-Identifier: Apache-2.0
//! One thread of a step: an event loop, its connections, and the requests that it sends over them.
//!
//! A round: take in every answer that is there, then refill each connection that has room, then enter the kernel once with all sends.
//! So the cost of entering is shared by as many requests as answers had come. [`super::run`] starts one engine a thread;
//! [`super::connection`] makes sense of what comes in.
//!
//! Always: nothing allocates per request once buffers have their size; a connection has at most one batch on its way.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use senko_io::{
    Backend, ConnId, Event, EventLoop, LoopConfig, SendMode, connect_tcp, connect_unix,
};
use senko_workload::{Rng, ValueLen};

use super::connection::{Conn, FollowUp, Kind, Pending};
use super::cpu::{self, CpuTime};
use super::ledger::{Ledger, SetEnd};
use super::pace::Schedule;
use super::plan::{MOST_KEYS_PER_GET, Plan};
use super::request::{Set, Writer};
use super::settings::{Amount, Gather, Pace, Step, Target};
use super::source::{Cursor, Source, Want};
use super::tally::{Stretch, Tally};

/// Quiet sets before a request with an answer is put after them.
const QUIET_RUN: usize = 64;
/// Bytes of a batch after which no more requests are added to it.
const MOST_BATCH_BYTES: usize = 1 << 20;
/// The longest wait between looks at the clock for timeouts and reports.
const LONGEST_WAIT_NS: u64 = 100_000_000;
/// The first and the longest pause before connecting again.
const RETRY_NS: (u64, u64) = (10_000_000, 1_000_000_000);
const SECOND_NS: u64 = 1_000_000_000;

/// What all threads of a run share.
pub struct Shared<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Versions, where answers are compared with what was sent before.
    pub ledger: Option<&'a Ledger>,
    /// The versions that are right where there is no ledger.
    pub versions: RangeInclusive<u32>,
    /// When the run began; all times are nanoseconds since.
    pub epoch: Instant,
    /// The date at that moment, in Unix seconds.
    pub unix_at_epoch: u32,
    /// Set when a thread gives up, so that the others do too.
    pub abort: &'a AtomicBool,
}

impl Shared<'_> {
    /// Nanoseconds since the run began.
    #[inline]
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn begin_set(&self, key_id: u64, step: Step) -> Option<u32> {
        let generation = self.plan.settings.generation;
        match self.ledger {
            Some(ledger) => ledger.begin_set(key_id, (step == Step::Load).then_some(generation)),
            None => Some(generation),
        }
    }

    /// Enters how a set ended.
    #[inline]
    pub fn end_set(&self, key_id: u64, end: SetEnd, now: u64) {
        if let Some(ledger) = self.ledger {
            ledger.end_set(key_id, end, (now / SECOND_NS) as u32);
        }
    }

    /// Writes requests.
    #[inline]
    fn writer(&self) -> Writer<'_> {
        let settings = &self.plan.settings;
        Writer {
            wire: settings.wire,
            space: &self.plan.space,
            with_key: settings.verify,
        }
    }

    fn floor(&self, key_id: u64) -> u32 {
        self.ledger.map_or(0, |ledger| ledger.floor(key_id))
    }

    /// The versions that are right for an answer.
    pub fn admissible(&self, key_id: u64, floor: u32) -> RangeInclusive<u32> {
        self.ledger.map_or(self.versions.clone(), |ledger| {
            ledger.admissible(key_id, floor)
        })
    }

    /// Whether a read sent at `sent` should have missed because the item's life had ended.
    pub fn must_have_expired(&self, key_id: u64, sent: u64) -> bool {
        let life = self.plan.settings.expire;
        life > 0
            && self.ledger.is_some_and(|ledger| {
                ledger.must_have_expired(key_id, life, (sent / SECOND_NS) as u32)
            })
    }
}

/// A second of a thread, sent to whoever watches the run.
pub struct ThreadSecond {
    /// Seconds since the step's start, from 0.
    pub second: u64,
    /// What was counted in it.
    pub stretch: Stretch,
}

/// What a thread ended with.
pub struct ThreadEnd {
    /// All that it counted.
    pub tally: Tally,
    /// Processor time of this thread during the step.
    pub cpu: CpuTime,
    /// When the last answer came, in nanoseconds.
    pub ended: u64,
    /// The backend that ran.
    pub backend: Backend,
}

/// Hashes a connection's number, which is unique and needs no protection from attackers.
#[derive(Default)]
struct ConnHasher(u64);

impl Hasher for ConnHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("a connection's number is one integer")
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

/// One thread's engine.
pub struct Engine<'a> {
    shared: &'a Shared<'a>,
    step: Step,
    io: EventLoop,
    conns: Vec<Conn>,
    by_id: HashMap<ConnId, u32, BuildHasherDefault<ConnHasher>>,
    /// Connections that may be able to send.
    ready: VecDeque<u32>,
    /// Connections that are not connected.
    down: usize,
    /// Sets to be sent because of answers, over any connection.
    follow_ups: VecDeque<FollowUp>,
    /// Open loop: the last round ended with no connection that had room.
    was_full: bool,
    /// Open loop: since when there has always been one, in nanoseconds.
    room_since: u64,
    /// When a connection was last seen alive.
    alive_at: u64,
    source: Source<'a>,
    exhausted: bool,
    rng: Rng,
    schedule: Option<Schedule>,
    tally: Tally,
    last_answer: u64,
    many: Vec<u64>,
}

impl<'a> Engine<'a> {
    /// Connects `connections` connections.
    ///
    /// # Errors
    /// One sentence, if the event loop or a connection cannot be made.
    pub fn connect(
        shared: &'a Shared<'a>,
        cursor: &'a Cursor,
        step: Step,
        (step_number, thread): (usize, usize),
        connections: usize,
    ) -> Result<Engine<'a>, String> {
        let settings = &shared.plan.settings;
        // Each step and thread has its own stream of the seed.
        let stream = (step_number as u64) << 20 | (thread as u64) << 1;
        let source = Source::new(
            shared.plan,
            cursor,
            step,
            thread,
            Rng::for_stream(settings.seed, stream),
        )?;
        let io = EventLoop::new(&loop_config(shared.plan, connections))
            .map_err(|error| format!("the event loop cannot be made: {error}"))?;
        let mut engine = Engine {
            shared,
            step,
            io,
            conns: (0..connections)
                .map(|_| Conn::new(settings.wire, settings.pipeline))
                .collect(),
            by_id: HashMap::default(),
            ready: VecDeque::with_capacity(connections),
            down: connections,
            follow_ups: VecDeque::new(),
            was_full: false,
            room_since: 0,
            alive_at: shared.now(),
            source,
            exhausted: false,
            rng: Rng::for_stream(settings.seed, stream | 1),
            schedule: None,
            tally: Tally::default(),
            last_answer: 0,
            many: Vec::with_capacity(MOST_KEYS_PER_GET),
        };
        for at in 0..connections {
            engine.open(at).map_err(|error| error.to_string())?;
        }
        Ok(engine)
    }

    /// Runs the step from `start` on, in nanoseconds of the run.
    ///
    /// # Errors
    /// One sentence, if the event loop fails or the server is gone.
    pub fn run(mut self, start: u64, seconds: &Sender<ThreadSecond>) -> Result<ThreadEnd, String> {
        let settings = &self.shared.plan.settings;
        let cpu_before = cpu::of_this_thread();
        if let Pace::Open { rate, gaps } = settings.pace {
            cpu::wake_promptly();
            self.schedule = Some(Schedule::new(
                rate,
                gaps,
                settings.threads,
                start,
                self.rng.clone(),
            )?);
        } else if let Some(gather) = settings.gather.or_else(|| self.usual_gather()) {
            cpu::wake_promptly();
            self.io.set_gather(gather.answers, gather.wait);
        }
        let deadline = match self.step {
            Step::Mix(Amount::For(time)) | Step::WarmUp(time) => start + time.as_nanos() as u64,
            Step::Load | Step::ReadBack | Step::Mix(Amount::Requests(_)) => u64::MAX,
        };
        let mut events = Vec::with_capacity(4 * self.conns.len() + 64);
        let mut next_second = start + SECOND_NS;
        let mut next_look = start + LONGEST_WAIT_NS;
        loop {
            let now = self.shared.now();
            if now >= next_look {
                next_look = now + LONGEST_WAIT_NS;
                self.look_after_connections(now)?;
                while now >= next_second {
                    self.report_second((next_second - start) / SECOND_NS - 1, seconds);
                    next_second += SECOND_NS;
                }
            }
            self.send_requests(now, deadline);
            if self.is_done() {
                break;
            }
            let wait = self.longest_wait();
            self.io
                .poll(Some(Duration::from_nanos(wait)), &mut events)
                .map_err(|error| format!("the event loop failed: {error}"))?;
            let now = self.shared.now();
            for event in events.drain(..) {
                self.on_event(event, now);
            }
        }
        let cpu = cpu::of_this_thread().since(&cpu_before);
        self.tally.roll(None);
        let ended = self.last_answer.max(start);
        Ok(ThreadEnd {
            tally: self.tally,
            cpu,
            ended,
            backend: self.io.backend(),
        })
    }

    /// In a closed loop with many connections: let a few answers gather, so that one entry into the kernel serves several. The
    /// server keeps enough requests to stay busy.
    fn usual_gather(&self) -> Option<Gather> {
        let answers = (self.conns.len() / 4).min(16);
        (answers > 1).then_some(Gather {
            answers,
            wait: Duration::from_micros(50),
        })
    }

    fn report_second(&mut self, second: u64, seconds: &Sender<ThreadSecond>) {
        let mut stretch = Stretch::default();
        self.tally.roll(Some(&mut stretch));
        // Nobody may be listening any more; the totals do not depend on it.
        let _ = seconds.send(ThreadSecond { second, stretch });
    }

    // Connections.

    fn open(&mut self, at: usize) -> io::Result<()> {
        let settings = &self.shared.plan.settings;
        let stream: OwnedFd = match &settings.target {
            Target::Tcp(address) => connect_tcp(*address)?,
            Target::Unix(path) => connect_unix(path)?,
        };
        let id = self.io.adopt(stream)?;
        self.conns[at].connected(id, settings.wire, settings.pipeline);
        self.by_id.insert(id, at as u32);
        self.down -= 1;
        self.list(at);
        Ok(())
    }

    #[cold]
    fn lose(&mut self, at: usize, why: &str, timed_out: bool, now: u64) {
        let conn = &mut self.conns[at];
        let Some(id) = conn.id else { return };
        self.by_id.remove(&id);
        self.io.close(id);
        conn.fail(self.shared, &mut self.tally, why, timed_out, now);
        conn.retry = (now + RETRY_NS.0, 1);
        self.down += 1;
    }

    /// Timeouts, and connecting again.
    fn look_after_connections(&mut self, now: u64) -> Result<(), String> {
        let timeout = self.shared.plan.settings.timeout.as_nanos() as u64;
        for at in 0..self.conns.len() {
            let conn = &self.conns[at];
            if conn.id.is_some() {
                if conn
                    .pending
                    .front()
                    .is_some_and(|oldest| now.saturating_sub(oldest.sent) > timeout)
                {
                    self.lose(at, "no answer in time", true, now);
                }
            } else if now >= conn.retry.0 {
                let (_, failures) = conn.retry;
                match self.open(at) {
                    Ok(()) => self.tally.now.counts.reconnects += 1,
                    Err(error) => {
                        self.tally.error(&format!("connecting again: {error}"), 1);
                        let pause = (RETRY_NS.0 << failures.min(20)).min(RETRY_NS.1);
                        self.conns[at].retry = (now + pause, failures + 1);
                    }
                }
            }
        }
        if self.down < self.conns.len() {
            self.alive_at = now;
        } else if now - self.alive_at > timeout {
            let target = &self.shared.plan.settings.target;
            return Err(format!(
                "the server at {target} is gone: no connection for {} s",
                timeout / SECOND_NS
            ));
        }
        if self.shared.abort.load(Ordering::Relaxed) {
            return Err("stopped, because another thread failed".to_owned());
        }
        Ok(())
    }

    #[inline]
    fn list(&mut self, at: usize) {
        let conn = &mut self.conns[at];
        if !conn.listed && conn.free > 0 && conn.batch.is_some() {
            conn.listed = true;
            self.ready.push_back(at as u32);
        }
    }

    #[inline]
    fn on_event(&mut self, event: Event, now: u64) {
        match event {
            Event::Received { conn, data } => {
                let Some(&at) = self.by_id.get(&conn) else {
                    return;
                };
                let at = at as usize;
                let received = {
                    let (follow_ups, tally) = (&mut self.follow_ups, &mut self.tally);
                    self.conns[at].receive(&data, self.shared, follow_ups, tally, now)
                };
                self.last_answer = now;
                match received {
                    Ok(()) => self.list(at),
                    Err(why) => self.lose(at, &why, false, now),
                }
            }
            Event::Sent {
                conn,
                batch,
                result,
            } => {
                // A batch of a connection that was lost goes with it.
                let Some(&at) = self.by_id.get(&conn) else {
                    return;
                };
                let at = at as usize;
                match result {
                    Ok(bytes) => {
                        self.tally.now.counts.sent += bytes as u64;
                        let mut batch = batch;
                        batch.bytes.clear();
                        self.conns[at].batch = Some(batch);
                        self.list(at);
                    }
                    Err(error) => self.lose(at, &format!("sending: {error}"), false, now),
                }
            }
            Event::Ended { conn, error } => {
                let Some(&at) = self.by_id.get(&conn) else {
                    return;
                };
                let why = error.map_or("the server closed the connection".to_owned(), |error| {
                    format!("receiving: {error}")
                });
                self.lose(at as usize, &why, false, now);
            }
            Event::Accepted { .. } | Event::AcceptFailed { .. } | Event::Disk(_) | Event::Woken => {
            }
        }
    }

    // Requests.

    fn send_requests(&mut self, now: u64, deadline: u64) {
        if self.schedule.is_some() {
            self.send_what_is_due(now, deadline);
            return;
        }
        if now >= deadline {
            self.exhausted = true;
            self.follow_ups.clear();
        }
        while let Some(at) = self.next_ready() {
            self.ready.pop_front();
            self.conns[at].listed = false;
            self.fill(at);
            self.flush(at);
        }
    }

    /// The connection whose turn it is; those that were lost since they were listed are dropped.
    fn next_ready(&mut self) -> Option<usize> {
        while let Some(&at) = self.ready.front() {
            let conn = &mut self.conns[at as usize];
            if conn.batch.is_some() {
                return Some(at as usize);
            }
            conn.listed = false;
            self.ready.pop_front();
        }
        None
    }

    /// Closed loop: as many requests as the connection may have under way.
    fn fill(&mut self, at: usize) {
        let now = self.shared.now();
        let mut quiet = 0;
        while self.conns[at].free > 0 && self.batch_has_room(at) {
            let loud = if let Some(follow_up) = self.follow_ups.pop_front() {
                self.push_set(at, follow_up.key_id, now, now, follow_up.refill)
            } else if self.exhausted {
                break;
            } else if let Some(want) = self.source.want() {
                self.push(at, want, now, now)
            } else {
                self.exhausted = true;
                break;
            };
            quiet = if loud { 0 } else { quiet + 1 };
            if quiet == QUIET_RUN {
                self.push_sync(at, now);
                quiet = 0;
            }
        }
        if quiet > 0 {
            self.push_sync(at, now);
        }
    }

    fn batch_has_room(&self, at: usize) -> bool {
        self.conns[at]
            .batch
            .as_ref()
            .is_some_and(|batch| batch.bytes.len() < MOST_BATCH_BYTES)
    }

    /// Open loop: every request that is due and finds a connection with room. The connections take turns.
    fn send_what_is_due(&mut self, now: u64, deadline: u64) {
        if self.was_full {
            self.room_since = now;
        }
        while let Some(at) = self.next_ready() {
            if let Some(follow_up) = self.follow_ups.pop_front() {
                self.push_set(at, follow_up.key_id, now, now, follow_up.refill);
            } else if let Some(due) = self.take_due(now, deadline) {
                let Some(want) = self.source.want() else {
                    self.exhausted = true;
                    break;
                };
                self.push(at, want, due, now);
            } else {
                break;
            }
            self.ready.pop_front();
            self.conns[at].listed = false;
            self.flush(at);
        }
        self.was_full = self.ready.is_empty();
        if !self.exhausted
            && now > deadline.saturating_add(self.shared.plan.settings.timeout.as_nanos() as u64)
        {
            self.give_up_on_schedule(now, deadline);
        }
    }

    fn take_due(&mut self, now: u64, deadline: u64) -> Option<u64> {
        let schedule = self.schedule.as_mut().filter(|_| !self.exhausted)?;
        if schedule.next_due() >= deadline {
            self.exhausted = true;
            return None;
        }
        let due = schedule.take(now)?;
        // A request that had to wait for a connection is the server's delay; any other lateness is this program's.
        if due >= self.room_since {
            self.tally.now.late.record(now - due);
        }
        Some(due)
    }

    /// Requests that were due before the end and that the server left no room for, even after a timeout: they are counted, with
    /// the latency that they had already reached, so that an overloaded server does not look good by answering less.
    #[cold]
    fn give_up_on_schedule(&mut self, now: u64, deadline: u64) {
        while let Some(due) = self.take_due(deadline, deadline) {
            self.tally.now.counts.unsent += 1;
            self.tally.now.get.record(now - due);
        }
        self.exhausted = true;
    }

    /// Appends a request; true if it will be answered.
    #[inline]
    fn push(&mut self, at: usize, want: Want, due: u64, now: u64) -> bool {
        match want {
            Want::Read(key_id) if self.shared.plan.settings.keys_per_get > 1 => {
                self.push_get_many(at, key_id, due, now)
            }
            Want::Read(key_id) => self.push_get(at, key_id, false, due, now),
            Want::Modify(key_id) => self.push_get(at, key_id, true, due, now),
            Want::Write(key_id) => return self.push_set(at, key_id, due, now, false),
        }
        true
    }

    #[inline]
    fn push_get(&mut self, at: usize, key_id: u64, then_set: bool, due: u64, now: u64) {
        let version = self.shared.floor(key_id);
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else { return };
        self.shared.writer().get(key_id, &mut batch.bytes);
        conn.pending.push_back(Pending {
            kind: Kind::Get { then_set },
            key_id,
            version,
            due,
            sent: now,
        });
        conn.free -= 1;
    }

    fn push_get_many(&mut self, at: usize, first: u64, due: u64, now: u64) {
        self.many.clear();
        self.many.push(first);
        while self.many.len() < self.shared.plan.settings.keys_per_get
            && let Some(key_id) = self.source.another_read()
        {
            self.many.push(key_id);
        }
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else { return };
        self.shared
            .writer()
            .get_many(self.many.iter().copied(), &mut batch.bytes);
        let kind = Kind::GetMany {
            keys: self.many.len() as u32,
        };
        conn.pending.push_back(Pending {
            kind,
            key_id: first,
            version: 0,
            due,
            sent: now,
        });
        for &key_id in &self.many {
            let version = self.shared.floor(key_id);
            conn.pending.push_back(Pending {
                kind: Kind::Key,
                key_id,
                version,
                due,
                sent: now,
            });
        }
        conn.free -= 1;
    }

    fn push_set(&mut self, at: usize, key_id: u64, due: u64, now: u64, refill: bool) -> bool {
        let Some(version) = self.shared.begin_set(key_id, self.step) else {
            // More sets of this key are under way than the ledger counts; a get keeps the request and loses no proof.
            self.push_get(at, key_id, false, due, now);
            return true;
        };
        let settings = &self.shared.plan.settings;
        let quiet = settings.noreply;
        let len = self.shared.plan.value_len(key_id, version);
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else {
            return true;
        };
        let set = Set {
            key_id,
            version,
            len,
            expire: settings.expire,
            quiet,
        };
        let unix = self
            .shared
            .unix_at_epoch
            .saturating_add((now / SECOND_NS) as u32);
        self.shared.writer().set(set, unix, &mut batch.bytes);
        let kind = if quiet { Kind::QuietSet } else { Kind::Set };
        conn.pending.push_back(Pending {
            kind,
            key_id,
            version,
            due,
            sent: now,
        });
        let counts = &mut self.tally.now.counts;
        counts.sets += 1;
        counts.refills += u64::from(refill);
        if !quiet {
            conn.free -= 1;
        }
        !quiet
    }

    /// Upholds C3: what follows quiet sets and has an answer.
    fn push_sync(&mut self, at: usize, now: u64) {
        let conn = &mut self.conns[at];
        let Some(batch) = &mut conn.batch else { return };
        self.shared.writer().sync(&mut batch.bytes);
        conn.pending.push_back(Pending {
            kind: Kind::Sync,
            key_id: 0,
            version: 0,
            due: now,
            sent: now,
        });
        conn.free -= 1;
    }

    #[inline]
    fn flush(&mut self, at: usize) {
        let conn = &mut self.conns[at];
        let (Some(id), Some(batch)) =
            (conn.id, conn.batch.take_if(|batch| !batch.bytes.is_empty()))
        else {
            return;
        };
        self.io.send(id, batch, SendMode::Wait);
    }

    fn is_done(&self) -> bool {
        self.exhausted
            && self.follow_ups.is_empty()
            && self.conns.iter().all(|conn| conn.pending.is_empty())
    }

    /// How long to wait for events, in nanoseconds.
    fn longest_wait(&self) -> u64 {
        match &self.schedule {
            Some(schedule) if !self.exhausted && !self.ready.is_empty() => schedule
                .next_due()
                .saturating_sub(self.shared.now())
                .min(LONGEST_WAIT_NS),
            _ => LONGEST_WAIT_NS,
        }
    }
}

/// The sizes of a thread's event loop.
fn loop_config(plan: &Plan, connections: usize) -> LoopConfig {
    let settings = &plan.settings;
    // One answer of usual size fits a buffer; small buffers stay in the processor's cache.
    let usual = match settings.value_len {
        ValueLen::Fixed(len) => len,
        ValueLen::Uniform { max, .. } => max,
        ValueLen::Etc { .. } => 1024,
    };
    let answer = (usual + 300)
        .saturating_mul(settings.keys_per_get)
        .saturating_mul(settings.pipeline);
    let recv_buffer_bytes = answer.clamp(2048, 64 << 10).next_power_of_two();
    let recv_buffers = connections
        .next_power_of_two()
        .clamp(16, (32 << 20) / recv_buffer_bytes);
    LoopConfig {
        backend: settings.io,
        recv_buffers,
        recv_buffer_bytes,
        frames: Vec::new(),
        disk_threads: 0,
        max_connections: connections * 2 + 16,
    }
}
