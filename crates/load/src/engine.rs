// SPDX-License-Identifier: Apache-2.0
//! One thread of a step: an event loop, its connections, and their rounds.
//!
//! A round takes every available answer, refills each connection that has room, and then enters the
//! kernel once with all sends. So the requests of a round share the cost of entering.
//! [`crate::run`] starts one engine per thread; [`crate::connection`] interprets the received
//! bytes.
//!
//! Always holds: no request allocates memory once buffers have their size, and a connection has at
//! most one batch on its way.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use senko_io::{Backend, ConnId, Event, EventLoop, LoopConfig};
use senko_workload::{Rng, ValueLen};

use crate::connection::{Conn, FollowUp, record_waits};
use crate::cpu::{self, CpuTime};
use crate::pace::Schedule;
use crate::plan::{MOST_KEYS_PER_GET, Plan};
use crate::settings::{Amount, Gather, Pace, Step};
use crate::shared::{SECOND_NS, Shared};
use crate::source::{Cursor, Source};
use crate::tally::{Stretch, Tally};

mod connections; // opened, lost, opened again
mod requests; // the sending half of a round

/// The longest wait between checks of the clock for timeouts and reports.
const LONGEST_WAIT_NS: u64 = 100_000_000;
/// How long after the step's end requests that are due may still be sent, and answers are waited
/// for. A stalled server can't make a run longer than that.
const LATE_SENDS_NS: u64 = 100_000_000;
const LATE_ANSWERS_NS: u64 = 1_000_000_000;
/// How long answers are waited for when the run is ended early.
const LAST_ANSWERS_NS: u64 = 200_000_000;

/// One second of a thread, sent to the observer of the run.
pub struct ThreadSecond {
    /// Seconds since the step's start, from 0.
    pub second: u64,
    pub stretch: Stretch,
}

/// The results of a thread.
pub struct ThreadEnd {
    pub tally: Tally,
    /// Processor time of this thread during the step.
    pub cpu: CpuTime,
    /// The time of the last answer, or of the step's end if that was later, in nanoseconds.
    pub ended: u64,
    /// Open loop: when the last request was due, and when it was sent.
    pub last: (u64, u64),
    pub backend: Backend,
    /// Why the thread could not continue.
    pub broken: Option<String>,
    /// TLS: version and cipher suite of the newest connection.
    pub suite: Option<String>,
}

/// Hashes a connection's number, which is unique and not chosen by attackers.
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

/// Decides, in a closed loop, whether answers gather before the thread is woken.
///
/// Idea: if this thread's processor is the bottleneck, a wake-up for every few answers costs a
/// tenth of its time. So answers gather, while a busy server works on other requests. If the thread
/// has spare time, it takes each answer at once. A wait would delay requests to a server that
/// answers slowly (from flash), and lower its rate.
struct Thrift {
    gather: Gather,
    on: bool,
    /// Processor time and time at the last check.
    last: (CpuTime, u64),
}

impl Thrift {
    /// Shares of its processor, in percent: gathering starts above the first and ends below the
    /// second.
    const LIMITS: (u64, u64) = (55, 30);

    /// `None` if there are too few connections for answers to gather.
    fn new(connections: usize, cpu: CpuTime, now: u64) -> Option<Thrift> {
        let answers = (connections / 2).min(32);
        let gather = Gather {
            answers,
            wait: Duration::from_micros(100),
        };
        (answers > 1).then_some(Thrift {
            gather,
            on: false,
            last: (cpu, now),
        })
    }

    fn look(&mut self, io: &mut EventLoop, now: u64) {
        let cpu = cpu::of_this_thread();
        let used = cpu.since(&self.last.0).total().as_nanos() as u64;
        let percent = used * 100 / now.saturating_sub(self.last.1).max(1);
        self.last = (cpu, now);
        let on = percent
            > if self.on {
                Self::LIMITS.1
            } else {
                Self::LIMITS.0
            };
        if on != self.on {
            self.on = on;
            io.set_gather(if on { self.gather.answers } else { 1 }, self.gather.wait);
        }
    }
}

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
    /// Open loop: the last round ended without a connection that had room.
    was_full: bool,
    /// Open loop: since when there has always been one, in nanoseconds.
    room_since: u64,
    /// When a connection was last seen alive.
    alive_at: u64,
    /// How often connecting has failed since then.
    failed_tries: usize,
    source: Source<'a>,
    exhausted: bool,
    rng: Rng,
    schedule: Option<Schedule>,
    tally: Tally,
    last_answer: u64,
    /// Open loop: when the last request was due, and when it was sent.
    last_sent: (u64, u64),
    many: Vec<u64>,
    /// Answers decrypted by TLS.
    plain: Vec<u8>,
    suite: Option<String>,
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
        // Each step and thread has its own random stream of the seed.
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
            failed_tries: 0,
            source,
            exhausted: false,
            rng: Rng::for_stream(settings.seed, stream | 1),
            schedule: None,
            tally: Tally::default(),
            last_answer: 0,
            last_sent: (0, 0),
            many: Vec::with_capacity(MOST_KEYS_PER_GET),
            plain: Vec::new(),
            suite: None,
        };
        for at in 0..connections {
            engine.open(at)?;
        }
        Ok(engine)
    }

    /// Runs the step from `start` on, in nanoseconds of the run. If the event loop fails or the
    /// server is gone, the result says so, and has the counts until then.
    ///
    /// # Errors
    /// One sentence, if the pace is invalid.
    pub fn run(mut self, start: u64, seconds: &Sender<ThreadSecond>) -> Result<ThreadEnd, String> {
        let settings = &self.shared.plan.settings;
        let cpu_before = cpu::of_this_thread();
        cpu::wake_promptly();
        let mut thrift = None;
        if let Some(gather) = settings.gather {
            self.io.set_gather(gather.answers, gather.wait);
        } else if settings.pace == Pace::Closed {
            thrift = Thrift::new(self.conns.len(), cpu_before, start);
        }
        if let Pace::Open { rate, gaps } = settings.pace {
            let rng = self.rng.clone();
            self.schedule = Some(Schedule::new(rate, gaps, settings.threads, start, rng)?);
        }
        let time = match self.step {
            Step::Mix(Amount::For(time)) | Step::WarmUp(time) => Some(time.as_nanos() as u64),
            Step::Load | Step::ReadBack | Step::Mix(Amount::Requests(_)) => None,
        };
        // When requests end, and when the wait for answers ends.
        let mut deadline = time.map_or(u64::MAX, |time| start.saturating_add(time));
        let mut end = deadline.saturating_add(LATE_ANSWERS_NS);
        let mut broken = None;
        let mut early = false;
        let mut events = Vec::with_capacity(4 * self.conns.len() + 64);
        let mut next_second = start + SECOND_NS;
        let mut next_look = start + LONGEST_WAIT_NS;
        loop {
            let now = self.shared.now();
            if now >= next_look {
                next_look = now + LONGEST_WAIT_NS;
                if let Err(why) = self.look_after_connections(now, deadline) {
                    broken = Some(why);
                    self.shared.abort.store(true, Ordering::Relaxed);
                    break;
                }
                if let Some(thrift) = &mut thrift {
                    thrift.look(&mut self.io, now);
                }
                while now >= next_second {
                    self.report_second((next_second - start) / SECOND_NS - 1, seconds);
                    next_second += SECOND_NS;
                }
            }
            if !early && self.shared.ends_early() {
                early = true;
                self.exhausted = true;
                self.follow_ups.clear();
                deadline = deadline.min(now);
                end = end.min(now + LAST_ANSWERS_NS);
            }
            self.send_requests(now, deadline);
            if self.is_done() || now >= end {
                break;
            }
            let wait = self.longest_wait().min(end - now);
            let polled = self.io.poll(Some(Duration::from_nanos(wait)), &mut events);
            if let Err(error) = polled {
                broken = Some(format!("the event loop failed: {error}"));
                self.shared.abort.store(true, Ordering::Relaxed);
                break;
            }
            let now = self.shared.now();
            for event in events.drain(..) {
                self.on_event(event, now);
            }
        }
        let cpu = cpu::of_this_thread().since(&cpu_before);
        let now = self.shared.now();
        if broken.is_none() && self.is_alone(now) {
            broken = Some(self.gone(now));
        }
        let unanswered = self.give_up_on_answers(now);
        self.tally.roll(None);
        // A stalled server is charged for the whole time, not only up to its last answer.
        let over = match (time, early || broken.is_some() || unanswered > 0) {
            (_, true) => now.min(deadline),
            (Some(_), false) => deadline,
            (None, false) => start,
        };
        Ok(ThreadEnd {
            tally: self.tally,
            cpu,
            ended: self.last_answer.max(over).max(start),
            last: self.last_sent,
            backend: self.io.backend(),
            broken,
            suite: self.suite,
        })
    }

    /// Fails the requests that are still under way at the end; returns their number.
    fn give_up_on_answers(&mut self, now: u64) -> u64 {
        let before = self.tally.now.counts.failed;
        for conn in &mut self.conns {
            if conn.pending.is_empty() {
                continue;
            }
            // Otherwise a server would look better the fewer of its last requests it answers.
            record_waits(&conn.pending, now, &mut self.tally.now);
            let why = "no answer before the end of the run";
            conn.fail(self.shared, &mut self.tally, why, false, now);
        }
        let unanswered = self.tally.now.counts.failed - before;
        self.tally.now.counts.unanswered += unanswered;
        unanswered
    }

    fn report_second(&mut self, second: u64, seconds: &Sender<ThreadSecond>) {
        let mut stretch = Stretch::default();
        self.tally.roll(Some(&mut stretch));
        // The observer may be gone; the totals do not depend on it.
        let _ = seconds.send(ThreadSecond { second, stretch });
    }

    #[inline]
    fn on_event(&mut self, event: Event, now: u64) {
        match event {
            Event::Received { conn, data } => {
                let Some(&at) = self.by_id.get(&conn) else {
                    return;
                };
                let at = at as usize;
                let opened = self.decipher(at, &data);
                let received = {
                    let (follow_ups, tally) = (&mut self.follow_ups, &mut self.tally);
                    tally.now.counts.received += data.len() as u64;
                    let plain = match self.conns[at].link {
                        Some(_) => &self.plain[..],
                        None => &data[..],
                    };
                    self.conns[at].receive(plain, self.shared, follow_ups, tally, now)
                };
                let received = received.and(opened);
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
                // A batch of a lost connection is dropped with it.
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
}

impl Engine<'_> {
    /// With TLS: the decrypted answers in the received bytes, in `plain`.
    ///
    /// # Errors
    /// Why nothing more comes; earlier answers are in `plain`.
    #[inline]
    fn decipher(&mut self, at: usize, received: &[u8]) -> Result<(), String> {
        let Some(link) = &mut self.conns[at].link else {
            return Ok(());
        };
        let began = self.shared.now();
        self.plain.clear();
        let opened = link.open(received, &mut self.plain);
        self.tally.now.counts.cipher_ns += self.shared.now() - began;
        match opened? {
            true => Ok(()),
            false => Err("the server closed the connection".to_owned()),
        }
    }
}

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
