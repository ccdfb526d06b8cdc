// SPDX-License-Identifier: Apache-2.0
//! The socket by which the operator asks a running server (`--ctl PATH`, `senko ctl`), on its own
//! thread.
//!
//! A request is one line: `status`, `top`, `set OPTION VALUE`, `fill PEER HOW`, `fill stop`, or
//! `drain SECONDS`. The answer is lines, whose first word says what they are. Then the connection
//! is closed.
//!
//! | line | meaning |
//! |---|---|
//! | `= NAME VALUE` | a row of `status` or `top` |
//! | `- TEXT` | what happens now; the end will be told |
//! | `ok TEXT` | what was done |
//! | `no TEXT` | why nothing was done |
//!
//! ```text
//!   serving -- drain --> draining: newcomers are turned away, `/healthz` says so
//!                           | all connections have ended, or the time is over
//!                           v
//!                        the stop that SIGTERM brings
//! ```
//!
//! Always holds:
//! - CTL-1. Only the server's user may connect (and root): the socket has mode 0600 from its
//!   beginning.
//! - CTL-2. Clients of this socket hold bounded memory: [`MOST_CONNECTIONS`] with a line of
//!   [`MOST_LINE`] bytes. The oldest one is closed to make room.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use senko_cache::{AdmissionRule, Budget, CacheStats};
use senko_io::{ConnId, Event, EventLoop, Listener, Op, SendBatch, SendMode, counted};

use crate::filler;
use crate::operator::OperatorThread;
use crate::protocol::push_uri;
use crate::server::report::ServerError;
use crate::shared::{Shared, Shutdown, ThreadStats};
use crate::tuning::Tuned;

/// The access mask of the socket (CTL-1).
pub(crate) const MASK: u32 = 0o600;
const MOST_CONNECTIONS: usize = 8;
const MOST_LINE: usize = 8 << 10;
/// How often a drain looks at the connections.
const LOOK: Duration = Duration::from_millis(50);
/// Longest wait of the loop when nothing is drained.
const IDLE: Duration = Duration::from_secs(3600);

/// Begins the stop of the server.
pub(crate) type Stop = Box<dyn Fn() + Send>;

/// Starts the thread for a server that serves.
///
/// # Errors
/// One sentence, if the system refuses a thread or a loop.
pub(crate) fn start(
    listener: Listener,
    shared: Arc<Shared>,
    stop: Stop,
) -> Result<OperatorThread, ServerError> {
    let clients = (listener, MOST_CONNECTIONS);
    OperatorThread::start("ctl", "ctl socket", clients, move |ev, end| {
        let mut ctl = Loop {
            ev,
            shared,
            stop,
            conns: VecDeque::new(),
            drain: None,
        };
        ctl.run(end)
    })
}

struct Conn {
    id: ConnId,
    line: Vec<u8>,
    answered: bool,
}

/// A drain that was asked for.
struct Drain {
    /// Who asked for it. This connection ends with the server.
    conn: ConnId,
    /// Whether the server was told to stop.
    over: bool,
    began: Instant,
    time: Duration,
}

struct Loop {
    ev: EventLoop,
    shared: Arc<Shared>,
    stop: Stop,
    /// Connections, oldest first.
    conns: VecDeque<Conn>,
    drain: Option<Drain>,
}

impl Loop {
    fn run(&mut self, end: &AtomicBool) -> io::Result<()> {
        let mut events = Vec::new();
        while !end.load(Ordering::Acquire) {
            let drains = self.drain.as_ref().is_some_and(|drain| !drain.over);
            let wait = if drains { LOOK } else { IDLE };
            self.ev.poll(Some(wait), &mut events)?;
            for event in events.drain(..) {
                self.event(event);
            }
            self.look_at_drain();
        }
        Ok(())
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Accepted { stream, .. } => {
                let mut others = self.conns.iter().filter(|conn| !self.drains_for(conn.id));
                if let Some(oldest) = others.next().map(|conn| conn.id)
                    && self.conns.len() >= MOST_CONNECTIONS
                {
                    self.close(oldest);
                }
                if let Ok(id) = self.ev.adopt(stream) {
                    self.conns.push_back(Conn {
                        id,
                        line: Vec::new(),
                        answered: false,
                    });
                }
            }
            Event::Received { conn, data } => self.received(conn, &data),
            // A client that has ended its side may still wait for its answer.
            Event::Ended { conn, error } => {
                let mut all = self.conns.iter();
                let answered = all.any(|other| other.id == conn && other.answered);
                if error.is_some() || !answered {
                    self.close(conn);
                }
            }
            Event::Sent { conn, .. } => {
                if !self.drains_for(conn) {
                    self.close(conn);
                }
            }
            Event::AcceptFailed { error, .. } => {
                tracing::warn!("the ctl socket cannot accept: {error}");
            }
            Event::Disk(_) | Event::Woken => {}
        }
    }

    fn drains_for(&self, conn: ConnId) -> bool {
        (self.drain.as_ref()).is_some_and(|drain| drain.conn == conn)
    }

    fn received(&mut self, id: ConnId, data: &[u8]) {
        let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == id) else {
            return;
        };
        if conn.answered {
            return;
        }
        conn.line.extend_from_slice(data);
        let end = conn.line.iter().position(|byte| *byte == b'\n');
        let answer = match end {
            None if conn.line.len() <= MOST_LINE => return,
            None => "no a request is one short line\n".to_owned(),
            Some(end) => {
                conn.answered = true;
                let line = String::from_utf8_lossy(&conn.line[..end]).into_owned();
                self.answer(id, line.trim())
            }
        };
        if let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == id) {
            (conn.answered, conn.line) = (true, Vec::new());
        }
        self.say(id, answer);
    }

    fn answer(&mut self, id: ConnId, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["status"] => status(&self.shared),
            ["top"] => top(&self.shared),
            ["set", option, value] => told(set(&self.shared, option, value)),
            ["fill", "stop"] => told(match self.shared.fill.end("senko ctl fill stop") {
                true => Ok("the fill has ended; what it has brought stays".to_owned()),
                false => Err("no fill runs".to_owned()),
            }),
            ["fill", peer, ..] => {
                // How to reach it may have spaces.
                let how = line.split_once(peer).map_or("", |(_, how)| how.trim());
                told(filler::begin(&self.shared, peer, how))
            }
            ["drain", seconds] => match seconds.parse() {
                Ok(seconds) => self.begin_drain(id, Duration::from_secs(seconds)),
                Err(_) => format!("no {seconds} is not a number of seconds\n"),
            },
            _ => "no there is no such command: status, top, set OPTION VALUE, fill PEER, fill stop and drain SECONDS are\n"
                .to_owned(),
        }
    }

    fn begin_drain(&mut self, id: ConnId, time: Duration) -> String {
        if self.drain.is_some() || self.shared.is_draining() {
            return "no the server drains already\n".to_owned();
        }
        if self.shared.shutdown() != Shutdown::No {
            return "no the server stops already\n".to_owned();
        }
        self.shared.begin_draining();
        self.drain = Some(Drain {
            conn: id,
            over: false,
            began: Instant::now(),
            time,
        });
        let open = self.shared.conn_counts.current.load(Ordering::Relaxed);
        let open = counted(open, "connection");
        let seconds = time.as_secs();
        tracing::info!("ctl: draining, with {open}, for at most {seconds} s");
        format!("- no connection is accepted any more; {open} may end within {seconds} s\n")
    }

    /// Ends a drain whose time has come.
    fn look_at_drain(&mut self) {
        let Some(drain) = self.drain.as_mut().filter(|drain| !drain.over) else {
            return;
        };
        let open = self.shared.conn_counts.current.load(Ordering::Relaxed);
        let took = drain.began.elapsed();
        let stops = self.shared.shutdown() != Shutdown::No;
        if open > 0 && took < drain.time && !stops {
            return;
        }
        let conn = drain.conn;
        drain.over = true;
        let took = took.as_secs_f64();
        let text = match (open, stops) {
            (0, _) => format!("no connection is open after {took:.1} s; the server stops"),
            (_, true) => format!(
                "the server was told to stop after {took:.1} s, with {} open",
                counted(open, "connection")
            ),
            (_, false) => format!(
                "{} did not end within {took:.1} s; what they asked for is answered, and the server stops",
                counted(open, "connection")
            ),
        };
        tracing::info!("ctl: {text}");
        self.say(conn, format!("ok {text}\n"));
        if !stops {
            (self.stop)();
        }
    }

    fn say(&mut self, id: ConnId, text: String) {
        if self.conns.iter().any(|conn| conn.id == id) {
            let batch = Box::new(SendBatch::from(text.into_bytes()));
            self.ev.send(id, batch, SendMode::Wait);
        }
    }

    fn close(&mut self, id: ConnId) {
        self.conns.retain(|conn| conn.id != id);
        self.ev.close(id);
    }
}

/// The answer to a command that was done, or not.
fn told(done: Result<String, String>) -> String {
    match done {
        Ok(text) => {
            tracing::info!("ctl: {text}");
            format!("ok {text}\n")
        }
        Err(text) => format!("no {text}\n"),
    }
}

/// Sets an option; returns what was done, or why nothing was.
fn set(shared: &Shared, option: &str, value: &str) -> Result<String, String> {
    let number = || {
        let read = value.parse::<u64>();
        read.map_err(|_| format!("{option} takes a whole number, not {value}"))
    };
    match option {
        "verbosity" => match number()? {
            level @ 0..=3 => {
                let before = shared.verbosity();
                shared.set_verbosity(level as u32);
                Ok(format!("verbosity is {level}; it was {before}"))
            }
            level => Err(format!("verbosity is 0 to 3, not {level}")),
        },
        "item-memory" => {
            let bytes = number()?;
            match shared.limit_dram(bytes) {
                Ok(()) => Ok(format!(
                    "items in DRAM have {bytes} bytes; more of them leave as others need the room"
                )),
                Err((least, most)) => Err(format!(
                    "item-memory is {least} to {most} bytes in this server, not {bytes}"
                )),
            }
        }
        "flash-write-budget" | "admission" | "promote-after" => tune(shared, option, value),
        _ => Err(format!(
            "{option} does not change while the server runs: verbosity, item-memory, flash-write-budget, admission and \
             promote-after do"
        )),
    }
}

/// Sets how items go to flash and come back. A budget comes as bytes a second, a slash, and the
/// bytes of a burst.
fn tune(shared: &Shared, option: &str, value: &str) -> Result<String, String> {
    let settings = &shared.settings;
    if settings.flash.is_empty() {
        return Err(format!(
            "{option} has no effect in this server: it has no flash"
        ));
    }
    let tuning = &shared.tuning;
    match option {
        "flash-write-budget" => {
            let numbers = value
                .split_once('/')
                .map(|(rate, burst)| (rate.parse().unwrap_or(0), burst.parse().unwrap_or(0)));
            let budget = match numbers {
                None if value == "none" => None,
                Some((bytes_per_second @ 1.., burst @ 1..)) => Some(Budget {
                    bytes_per_second,
                    burst,
                }),
                _ => {
                    return Err(format!(
                        "{option} is none, or 1 byte a second or more, not {value}"
                    ));
                }
            };
            let before = tuning.change(|now| now.admission.budget = budget);
            let after = tuning.now();
            Ok(format!(
                "{option} is {}; it was {}",
                rate(&after),
                rate(&before)
            ))
        }
        "admission" if settings.no_evict => Err(
            "admission has no effect in this server: with -M every item goes to flash".to_owned(),
        ),
        "admission" => {
            let wrong = || {
                format!(
                    "admission is all, fetched, random:P with P from 1 to 100, or bytes:SIZE, not {value}"
                )
            };
            let number = |text: &str| text.parse().map_err(|_| wrong());
            let rule = match value.split_once(':').unwrap_or((value, "")) {
                ("all", "") => AdmissionRule::All,
                ("fetched", "") => AdmissionRule::Fetched,
                ("random", percent) => match number(percent)? {
                    percent @ 1..=100 => AdmissionRule::Random(percent as u8),
                    _ => return Err(wrong()),
                },
                ("bytes", most) => match number(most)? {
                    0 => return Err(wrong()),
                    most => AdmissionRule::Bytes(most),
                },
                _ => return Err(wrong()),
            };
            let before = tuning.change(|now| now.admission.rule = rule);
            Ok(format!("admission is {value}; it was {}", before.rule()))
        }
        _ => match value.parse() {
            Ok(hits @ 1..=3) => {
                let before = tuning.change(|now| now.promote_after = hits).promote_after;
                Ok(format!("promote-after is {hits}; it was {before}"))
            }
            _ => Err(format!("promote-after is 1 to 3 hits, not {value}")),
        },
    }
}

/// A budget in words.
fn rate(tuned: &Tuned) -> String {
    match tuned.budget() {
        0 => "none".to_owned(),
        bytes => format!("{bytes} bytes a second"),
    }
}

/// The rows of `status`.
fn status(shared: &Shared) -> String {
    let (mut stats, mut cache) = (ThreadStats::default(), CacheStats::default());
    shared.for_others(usize::MAX, |any| {
        stats.add(&any.stats);
        cache.add(&any.cache);
    });
    let settings = &shared.settings;
    let state = match shared.is_draining() || shared.shutdown() != Shutdown::No {
        true => "draining",
        false => "serving",
    };
    let mut text = String::new();
    let mut row = |name: &str, value: &dyn fmt::Display| {
        let _ = writeln!(text, "= {name} {value}");
    };
    row("state", &state);
    row("version", &env!("CARGO_PKG_VERSION"));
    row("pid", &std::process::id());
    let now = (shared.clock.now_ms() / 1000) as u32;
    row("uptime", &now.saturating_sub(shared.started));
    row("threads", &settings.threads);
    row("verbosity", &shared.verbosity());
    let counts = &shared.conn_counts;
    row("connections", &counts.current.load(Ordering::Relaxed));
    row("max-connections", &settings.max_connections);
    row("memory", &settings.memory);
    row("item-memory", &cache.dram_limit);
    row("dram-items", &cache.dram_items);
    row("dram-bytes", &cache.dram_bytes);
    row("gets", &(stats.get_hits + stats.get_misses));
    row("get-hits", &stats.get_hits);
    row("flash-hits", &cache.flash_hits);
    row("sets", &stats.cmd_set);
    row("evictions", &cache.evictions);
    shared.fill.rows(&mut row);
    if !settings.flash.is_empty() {
        row("flash-items", &cache.flash_items);
        row("flash-bytes", &cache.flash_bytes);
        row("flash-capacity", &cache.flash_capacity);
        row("flash-written-bytes", &cache.device_write_bytes);
        row("flash-drops-budget", &cache.drops_budget);
        row("flash-drops-busy", &cache.drops_busy);
        let tuned = shared.tuning.now();
        match tuned.budget() {
            0 => row("flash-write-budget", &"none"),
            bytes => row("flash-write-budget", &bytes),
        }
        row("admission", &tuned.rule());
        row("promote-after", &tuned.promote_after);
        let states = shared.device_states();
        for (spec, state) in settings.flash.iter().zip(states) {
            let state = format!("{state:?}").to_lowercase();
            row(
                "flash-device",
                &format_args!("{state} {}", spec.path.display()),
            );
        }
    }
    text
}

/// The rows of `top`: those of `status`, reads of flash, and the hottest keys, URI-encoded.
fn top(shared: &Shared) -> String {
    let mut text = status(shared);
    if !shared.settings.flash.is_empty() {
        let mut reads = 0;
        shared.for_others(usize::MAX, |any| reads += any.disk.total(Op::Read).ops);
        let _ = writeln!(text, "= flash-reads {reads}");
    }
    for (key, lookups) in shared.hottest() {
        let mut shown = Vec::new();
        push_uri(&mut shown, &key);
        let shown = String::from_utf8_lossy(&shown);
        let _ = writeln!(text, "= hot-key {lookups} {shown}");
    }
    text
}
