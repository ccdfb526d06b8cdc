// SPDX-License-Identifier: Apache-2.0
//! The load generator and checker of `senko load`, for this server or any other with memcached's
//! protocol, and the client of `senko dump` and `senko restore` ([`transfer`]). It uses nothing of
//! the server.
//!
//! ```text
//!   settings -> plan -> engine (one a thread): source, pace -> request -> EventLoop -> server
//!                          ^                                                  |
//!                          +-- tally <- check, ledger, tracks <- connection <- reply
//!   report <- merged tallies, processor time of both sides
//! ```
//!
//! [`run`] does everything: it makes a plan, runs the steps one after the other (load, read-back,
//! warm-up, mix), and returns a [`Report`]. It prints nothing.
//!
//! What always holds:
//! - Keys, lengths and bytes depend only on the settings, so runs in different processes agree.
//! - No request allocates memory, except in rustls.
//! - Every answer is counted, as a hit, a miss, a stored set, or a failure.

#![deny(unsafe_code)]

pub mod changes; // commands that change a value, and the values that they leave
pub mod check; // checks whether a value is correct
pub mod connection; // matches requests under way with their answers
pub mod cpu; // processor time of both sides
pub mod engine; // one thread: event loop, connections, rounds
pub mod ledger; // the correct versions
mod login; // logs a connection in
pub mod pace; // the schedule of an open loop
pub mod plan; // the settings bound to numbers: keys, order, lengths
pub mod reply; // bytes to answers
pub mod report; // the results, as a table for people
pub mod request; // requests to bytes
pub mod settings; // the settings of a run
pub mod shared; // the state that all threads share: plan, versions, clock
pub mod source; // the next requests
pub mod tally; // what was counted
pub mod tls; // encrypts requests and decrypts answers
pub mod tracks; // how many changes a value may have
pub mod transfer; // a server's items into a dump, and back

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cpu::ProcessCpu;
use engine::{Engine, ThreadEnd, ThreadSecond};
use ledger::Ledger;
use plan::Plan;
use shared::Shared;
use source::Cursor;
use tally::Tally;
use tracks::Tracks;

pub use changes::{Change, Changes, Requests};
pub use check::{Fault, FaultKind};
pub use report::{Asked, REACHED, Report, ServerCpu, StepReport};
pub use settings::{
    Amount, Gaps, Gather, KeyCount, Login, Pace, Part, Settings, Step, Target, Wire,
    reads_and_updates,
};
pub use tally::{Counts, Stretch};
pub use tls::TlsOptions;

/// Why a run could not start or finish, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

/// A second of a step, over all threads, for progress and series.
pub struct Second {
    pub step: Step,
    /// Seconds since the step's start, from 0; this second starts there.
    pub second: u64,
    /// The share of the step that is done, 0 to 1.
    pub done: f64,
    pub stretch: Stretch,
}

/// Observes the progress of a run.
pub trait Watch {
    /// The connections are there, and a step begins.
    fn begins(&mut self, _: Step) {}
    /// A second of a step is over.
    fn second(&mut self, second: &Second);
}

impl<F: FnMut(&Second)> Watch for F {
    fn second(&mut self, second: &Second) {
        self(second);
    }
}

/// Runs the steps of `settings`; `watch` is called once a second.
///
/// # Errors
/// If the settings contradict each other, the server cannot be reached, or it dies on the way.
/// Wrong answers are not an error of this function: they are in the report.
pub fn run(settings: &Settings, watch: &mut dyn FnMut(&Second)) -> Result<Report, LoadError> {
    let mut watch = |second: &Second| watch(second);
    let report = run_until(settings, &AtomicBool::new(false), &mut watch)?;
    match report.broken {
        Some(why) => Err(LoadError(why)),
        None => Ok(report),
    }
}

/// Checks the settings without a server, as [`run`] does before it connects.
///
/// # Errors
/// One sentence, if the settings contradict each other.
pub fn check(settings: &Settings) -> Result<(), LoadError> {
    Plan::new(settings).map(drop).map_err(LoadError)
}

/// As [`run`], but the measurements are kept: when `stop` is set the run ends within a second, and
/// a server that dies ends it too. The report says so ([`Report::stopped`], [`Report::broken`]).
///
/// # Errors
/// If the settings contradict each other, or the server cannot be reached at the start.
pub fn run_until(
    settings: &Settings,
    stop: &AtomicBool,
    watch: &mut dyn Watch,
) -> Result<Report, LoadError> {
    let plan = Plan::new(settings).map_err(LoadError)?;
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |since| since.as_secs() as u32);
    let ledger = plan
        .needs_ledger()
        .then(|| Ledger::new(plan.most_keys, unix, settings.expire > 0));
    if let Some(ledger) = &ledger
        && settings.generation_known
    {
        ledger.assume(plan.keys, settings.generation);
    }
    let tracks = (ledger.is_some() && !settings.changes.is_none())
        .then(|| Tracks::new(plan.classes.changed_below(plan.most_keys)));
    let abort = AtomicBool::new(false);
    let generation = settings.generation;
    let mut shared = Shared {
        plan: &plan,
        ledger: ledger.as_ref(),
        tracks: tracks.as_ref(),
        versions: if settings.generation_known {
            generation..=generation
        } else {
            0..=u32::MAX
        },
        epoch: Instant::now(),
        unix_at_epoch: unix,
        abort: &abort,
        stop,
    };
    let mut report = Report::new(&plan);
    let mut newest = plan.keys;
    for (number, step) in settings.steps.iter().enumerate() {
        let cursor = Cursor::new(&plan, *step, newest);
        let ran = run_step(&shared, &cursor, number, *step, watch);
        let (mut end, tally) = match ran {
            Ok(ran) => ran,
            // The server went away between two steps.
            Err(why) if number > 0 => {
                report.broken = Some(why);
                break;
            }
            Err(why) => return Err(LoadError(why)),
        };
        report.broken = end.broken.take();
        report.stopped = stop.load(Ordering::Relaxed);
        newest = cursor.newest();
        if *step == Step::Load {
            // From here on the versions are known, unless a set failed: then the server may still
            // have an older one.
            let counts = &tally.total.counts;
            let oldest = if counts.stored == plan.keys {
                generation
            } else {
                0
            };
            shared.versions = oldest..=generation;
        }
        report.add(*step, end, tally);
        if report.broken.is_some() || report.stopped {
            break;
        }
    }
    Ok(report)
}

/// The end of a step, besides its counts.
pub(crate) struct StepEnd {
    elapsed: Duration,
    own_cpu: cpu::CpuTime,
    server: Option<ServerCpu>,
    backend: senko_io::Backend,
    /// Open loop: the times from the start until the last request was due, and until it was sent.
    last: Option<(Duration, Duration)>,
    broken: Option<String>,
    /// TLS: version and cipher suite.
    suite: Option<String>,
}

fn run_step(
    shared: &Shared<'_>,
    cursor: &Cursor,
    number: usize,
    step: Step,
    watch: &mut dyn Watch,
) -> Result<(StepEnd, Tally), String> {
    let settings = &shared.plan.settings;
    thread::scope(|scope| {
        let (seconds_to, seconds) = mpsc::channel();
        let (connected_to, connected) = mpsc::channel();
        let mut starters = Vec::new();
        let mut threads = Vec::new();
        for thread in 0..settings.threads {
            // Connections are distributed as evenly as possible.
            let connections = settings.connections / settings.threads
                + usize::from(thread < settings.connections % settings.threads);
            let (start_to, start) = mpsc::channel();
            starters.push(start_to);
            let (seconds_to, connected_to) = (seconds_to.clone(), connected_to.clone());
            let builder = thread::Builder::new().name(format!("load-{thread}"));
            let spawned = builder.spawn_scoped(scope, move || {
                let place = (number, thread);
                run_thread(
                    shared,
                    cursor,
                    step,
                    place,
                    connections,
                    &connected_to,
                    &start,
                    &seconds_to,
                )
            });
            threads.push(spawned.map_err(|error| format!("a thread cannot be started: {error}"))?);
        }
        drop((seconds_to, connected_to));
        for result in connected.iter().take(settings.threads) {
            result?;
        }
        let server_before = settings.server_pid.map(ProcessCpu::read).transpose()?;
        let start = shared.now();
        for starter in &starters {
            // A thread that is gone has an error, which is handled below.
            let _ = starter.send(start);
        }
        watch.begins(step);
        watch_seconds(shared, cursor, step, start, &seconds, watch);
        let mut tally = Tally::default();
        let mut own_cpu = cpu::CpuTime::default();
        let mut ended = start;
        let mut last = (start, start);
        let mut backend = senko_io::Backend::Uring;
        let mut broken = None;
        let mut suite = None;
        for thread in threads {
            let end = thread
                .join()
                .map_err(|_| "a thread of the load generator panicked".to_owned())??;
            tally.merge(end.tally);
            own_cpu.add(&end.cpu);
            ended = ended.max(end.ended);
            last = last.max(end.last);
            backend = end.backend;
            broken = broken.or(end.broken);
            suite = suite.or(end.suite);
        }
        let elapsed = Duration::from_nanos(ended - start);
        let server = match (settings.server_pid, server_before) {
            (Some(pid), Some(before)) => match ProcessCpu::read(pid) {
                Ok(after) => {
                    let (time, busiest) = after.since(&before);
                    Some(ServerCpu { time, busiest })
                }
                Err(why) => {
                    broken.get_or_insert(why);
                    None
                }
            },
            _ => None,
        };
        let since = |at: u64| Duration::from_nanos(at - start);
        let last = (settings.pace != Pace::Closed).then(|| (since(last.0), since(last.1)));
        Ok((
            StepEnd {
                elapsed,
                own_cpu,
                server,
                backend,
                last,
                broken,
                suite,
            },
            tally,
        ))
    })
}

#[allow(clippy::too_many_arguments)]
fn run_thread(
    shared: &Shared<'_>,
    cursor: &Cursor,
    step: Step,
    place: (usize, usize),
    connections: usize,
    connected: &Sender<Result<(), String>>,
    start: &Receiver<u64>,
    seconds: &Sender<ThreadSecond>,
) -> Result<ThreadEnd, String> {
    let engine = Engine::connect(shared, cursor, step, place, connections);
    let _ = connected.send(engine.as_ref().map(|_| ()).map_err(Clone::clone));
    let engine = engine?;
    let start = start
        .recv()
        .map_err(|_| "stopped before the start".to_owned())?;
    let ended = engine.run(start, seconds);
    if ended.is_err() {
        shared.abort.store(true, Ordering::Relaxed);
    }
    ended
}

/// Adds up the threads' seconds, and passes each on when all threads have sent theirs, until the
/// threads have ended.
fn watch_seconds(
    shared: &Shared<'_>,
    cursor: &Cursor,
    step: Step,
    start: u64,
    from: &Receiver<ThreadSecond>,
    watch: &mut dyn Watch,
) {
    let mut open: BTreeMap<u64, (usize, Stretch)> = BTreeMap::new();
    while let Ok(ThreadSecond { second, stretch }) = from.recv() {
        let (told, sum) = open.entry(second).or_default();
        *told += 1;
        sum.add(&stretch);
        if *told == shared.plan.settings.threads
            && let Some((_, stretch)) = open.remove(&second)
        {
            let done = match step {
                Step::Mix(Amount::For(time)) | Step::WarmUp(time) => {
                    (shared.now() - start) as f64 / time.as_nanos().max(1) as f64
                }
                Step::Load | Step::Mix(Amount::Requests(_)) => cursor.share(0),
                Step::ReadBack => cursor.share(shared.plan.places.start),
            };
            watch.second(&Second {
                step,
                second,
                done: done.min(1.0),
                stretch,
            });
        }
    }
}
