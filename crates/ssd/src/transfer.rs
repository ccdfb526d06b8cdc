// SPDX-License-Identifier: Apache-2.0
//! The direct transfer engine of the cache server paper (B, sections 3 and 5) as a queueing model:
//! its answers a second, and their response times.
//!
//! Idea: requests are issued in the order of their arrival, each to the drive (RAID 0) and channel
//! of its page. A drive takes `depth` commands (NCQ), all drives together `window`. The engine
//! accepts the drives' answers in the order of issue, and passes each through a serial stage
//! (interrupt, driver, the call that starts the next transfer). Only after that is the command's
//! place free.
//!
//! ```text
//!            issue in order           drives                           serial stage
//! requests --(window, depth)--> [channel][channel]...[channel]  --in order of issue--> |||| --> answer
//! ```
//!
//! The paper measured six figures and explains them in words; the model's four times and depths
//! ([`Model::PAPER`]) were fitted to the six. Two properties are fixed, not fitted. A drive has
//! eight channels, like the controller of the paper's drives, and a channel's time is exponentially
//! distributed. In the model, with one drive its command queue is the limit, with four the serial
//! stage. The paper supposes that all four command queues are then full (section 5.2). The model
//! does not bear that out: it has 971 us with full queues, where the paper measured 502. So its
//! window is smaller than all queues. The response time grows with the commands queued before a
//! request. With a faster or parallel serial stage the drives are the limit again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use senko_workload::{Histogram, Rng};
use serde::Serialize;

use crate::{Error, Time};

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Model {
    /// Drives in RAID 0.
    pub drives: u32,
    /// Channels of a drive, each of which serves one read at a time.
    pub channels: u32,
    /// Mean time of a read on its channel, in nanoseconds; exponentially distributed.
    pub channel_ns: f64,
    /// The serial stage, for each answer; constant.
    pub serial_ns: f64,
    /// Commands that a drive queues.
    pub depth: u32,
    /// Most commands under way in the engine, over all drives.
    pub window: u32,
    /// Serial stages side by side: 1 in the paper.
    pub lanes: u32,
    /// Whether answers are taken in the order of issue, as in the paper, or as they come.
    pub in_order: bool,
}

impl Model {
    /// The engine of the paper with one drive: the fit to its figures 7 and 8.
    pub const PAPER: Model = Model {
        drives: 1,
        channels: 8,
        channel_ns: 88_000.0,
        serial_ns: 14_200.0,
        depth: 19,
        window: 30,
        lanes: 1,
        in_order: true,
    };

    /// Refuses engines that would never answer.
    ///
    /// # Errors
    /// If a part is missing or a time is invalid.
    pub fn check(&self) -> Result<(), Error> {
        let counts = [
            ("drives", self.drives),
            ("channels", self.channels),
            ("depth", self.depth),
            ("window", self.window),
            ("lanes", self.lanes),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(Error::Spec(format!(
                "an engine with 0 {name} never answers"
            )));
        }
        let channels = u64::from(self.drives) * u64::from(self.channels);
        if channels > MOST_CHANNELS {
            return Err(Error::Spec(format!(
                "{} drives of {} channels: at most {MOST_CHANNELS} channels can be simulated",
                self.drives, self.channels
            )));
        }
        is_time("channel_ns", self.channel_ns)?;
        is_time("serial_ns", self.serial_ns)
    }
}

/// Channels of all drives, at most.
const MOST_CHANNELS: u64 = 1 << 16;
/// The longest time of a step, a quarter of an hour: more is a slip of the pen.
const LONGEST_NS: f64 = 1e12;
/// Clients, and requests that wait, at most.
const MOST_WAITING: usize = 1 << 24;

fn is_time(name: &str, time: f64) -> Result<(), Error> {
    if (0.0..=LONGEST_NS).contains(&time) {
        return Ok(());
    }
    Err(Error::Spec(format!(
        "{name} is {time:e}, and must be from 0 to {LONGEST_NS:e}"
    )))
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Arrivals {
    /// There is always a next request, as in the paper, whose load never pauses. A response time
    /// starts when the request is the next to be issued.
    Saturated,
    /// This many clients, each of which sends its next request this long after its answer.
    Closed {
        clients: u32,
        /// From an answer to the next request, in nanoseconds.
        think_ns: f64,
    },
    /// At random (Poisson), in bursts of a fixed size.
    Open { rate: f64, burst: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub qps: f64,
    pub mean_us: f64,
    pub deviation_us: f64,
    pub p50_us: f64,
    /// 99 % are at most this.
    pub p99_us: f64,
    /// The share of the time in which the serial stage is busy.
    pub serial_busy: f64,
    /// The share of the time in which a channel is busy, on average.
    pub channels_busy: f64,
    pub under_way: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    ChannelDone(usize),
    SerialDone(u64),
}

struct Command {
    arrived: Time,
    drive: usize,
    read: bool,
}

struct Engine<'a> {
    model: &'a Model,
    rng: Rng,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    entered: u64,
    arrived: VecDeque<Time>,
    /// Commands from `first` on, in the order of issue; `None` once answered.
    commands: VecDeque<Option<Command>>,
    first: u64,
    /// In order: the command that the serial stage takes next.
    next_answer: u64,
    /// Out of order: the commands whose read is done.
    ready: VecDeque<u64>,
    on_drive: Vec<u32>,
    /// The commands of each channel, of which the first is being read.
    channels: Vec<VecDeque<u64>>,
    under_way: u32,
    lanes_busy: u32,
    last_issue: Time,
}

impl Engine<'_> {
    fn at(&mut self, time: Time, event: Event) {
        self.events.push(Reverse((time, self.entered, event)));
        self.entered += 1;
    }

    fn exponential(&mut self, mean: f64) -> Time {
        (-(1.0 - self.rng.next_f64()).ln() * mean) as Time
    }

    /// Issues as many as there is room for. The drive of a waiting request is drawn first, so it
    /// blocks the requests after it, as in a single queue.
    fn issue(&mut self, now: Time, saturated: bool, held: &mut Option<usize>) {
        while self.under_way < self.model.window && (saturated || !self.arrived.is_empty()) {
            let drives = u64::from(self.model.drives);
            let drive = held
                .take()
                .unwrap_or_else(|| self.rng.below(drives) as usize);
            if self.on_drive[drive] == self.model.depth {
                *held = Some(drive);
                return;
            }
            let arrived = self.arrived.pop_front().unwrap_or(self.last_issue);
            self.last_issue = now;
            let within = self.rng.below(u64::from(self.model.channels)) as usize;
            let channel = drive * self.model.channels as usize + within;
            let number = self.first + self.commands.len() as u64;
            self.commands.push_back(Some(Command {
                arrived,
                drive,
                read: false,
            }));
            self.on_drive[drive] += 1;
            self.under_way += 1;
            self.channels[channel].push_back(number);
            if self.channels[channel].len() == 1 {
                self.read(channel, now);
            }
        }
    }

    /// Begins to read a channel's first command.
    fn read(&mut self, channel: usize, now: Time) {
        let time = self.exponential(self.model.channel_ns);
        self.at(now.saturating_add(time), Event::ChannelDone(channel));
    }

    fn command(&mut self, number: u64) -> Option<&mut Command> {
        self.commands
            .get_mut((number - self.first) as usize)
            .and_then(Option::as_mut)
    }

    /// Gives finished reads to idle serial stages.
    fn take_answers(&mut self, now: Time) {
        while self.lanes_busy < self.model.lanes {
            let number = if self.model.in_order {
                let next = self.next_answer;
                if !self.command(next).is_some_and(|command| command.read) {
                    return;
                }
                self.next_answer += 1;
                next
            } else {
                let Some(next) = self.ready.pop_front() else {
                    return;
                };
                next
            };
            self.lanes_busy += 1;
            self.at(
                now.saturating_add(self.model.serial_ns as Time),
                Event::SerialDone(number),
            );
        }
    }

    /// Ends a command; returns its arrival.
    fn answer(&mut self, number: u64) -> Time {
        let index = (number - self.first) as usize;
        let command = self.commands[index]
            .take()
            .expect("a command is answered once");
        while self.commands.front().is_some_and(Option::is_none) {
            self.commands.pop_front();
            self.first += 1;
        }
        self.on_drive[command.drive] -= 1;
        self.under_way -= 1;
        self.lanes_busy -= 1;
        command.arrived
    }
}

/// Answers between two calls that report progress.
const WATCHED_EVERY: u64 = 1 << 12;

/// Runs the model for `answers` answers, after a tenth as many to warm up.
///
/// # Errors
/// If the model never answers or the load never sends a request.
pub fn simulate(model: &Model, load: Arrivals, answers: u64, seed: u64) -> Result<Outcome, Error> {
    simulate_while(model, load, answers, seed, |_| true)
}

/// As [`simulate`], while `goes_on` returns true; it gets the share that is done, 0 to 1. The
/// outcome covers the answers up to then.
pub fn simulate_while(
    model: &Model,
    load: Arrivals,
    answers: u64,
    seed: u64,
    mut goes_on: impl FnMut(f64) -> bool,
) -> Result<Outcome, Error> {
    model.check()?;
    let all_channels = (model.drives * model.channels) as usize;
    let mut engine = Engine {
        model,
        rng: Rng::new(seed),
        events: BinaryHeap::new(),
        entered: 0,
        arrived: VecDeque::new(),
        commands: VecDeque::new(),
        first: 0,
        next_answer: 0,
        ready: VecDeque::new(),
        on_drive: vec![0; model.drives as usize],
        channels: vec![VecDeque::new(); all_channels],
        under_way: 0,
        lanes_busy: 0,
        last_issue: 0,
    };
    let saturated = load == Arrivals::Saturated;
    match load {
        Arrivals::Saturated => {}
        Arrivals::Closed { clients: 0, .. } => {
            return Err(Error::Spec("0 clients never ask".to_owned()));
        }
        Arrivals::Closed { clients, think_ns } => {
            is_time("think_ns", think_ns)?;
            if clients as usize > MOST_WAITING {
                return Err(Error::Spec(format!(
                    "{clients} clients: at most {MOST_WAITING} can be simulated"
                )));
            }
            (0..clients).for_each(|_| engine.at(0, Event::Arrival));
        }
        Arrivals::Open { rate, burst } => {
            if !rate.is_finite() || rate <= 0.0 || burst == 0 {
                return Err(Error::Spec(format!(
                    "{rate} requests a second in bursts of {burst}"
                )));
            }
            engine.at(0, Event::Arrival);
        }
    }
    let mut held = None;
    engine.issue(0, saturated, &mut held);
    let warm_up = answers / 10;
    let all = answers.saturating_add(warm_up);
    // Later requests are not answered before the end.
    let mut to_come = all.saturating_add(u64::from(model.window));
    let mut tally = Tally::default();
    let mut done = 0;
    while done < all {
        let Some(Reverse((now, _, event))) = engine.events.pop() else {
            break;
        };
        if now == Time::MAX {
            return Err(Error::Spec(
                "the load lasts for more than 500 years: simulate fewer answers, or a higher rate"
                    .to_owned(),
            ));
        }
        tally.pass(now, &engine);
        match event {
            Event::Arrival => {
                let burst = if let Arrivals::Open { burst, .. } = load {
                    u64::from(burst).min(to_come)
                } else {
                    1
                };
                if engine.arrived.len() as u64 + burst > MOST_WAITING as u64 {
                    return Err(Error::Spec(format!(
                        "more than {MOST_WAITING} requests wait: they come faster than the engine answers"
                    )));
                }
                engine.arrived.extend((0..burst).map(|_| now));
                if let Arrivals::Open { rate, burst: size } = load {
                    to_come -= burst;
                    let gap = engine.exponential(1e9 * f64::from(size) / rate);
                    if to_come > 0 {
                        engine.at(now.saturating_add(gap), Event::Arrival);
                    }
                }
            }
            Event::ChannelDone(channel) => {
                let number = engine.channels[channel].pop_front();
                let number = number.expect("a channel that is done was reading");
                engine.ready.extend((!model.in_order).then_some(number));
                engine.command(number).expect("it is under way").read = true;
                if !engine.channels[channel].is_empty() {
                    engine.read(channel, now);
                }
                engine.take_answers(now);
            }
            Event::SerialDone(number) => {
                let arrived = engine.answer(number);
                done += 1;
                if done == warm_up {
                    tally = Tally {
                        begin: now,
                        last: now,
                        ..Tally::default()
                    };
                } else {
                    tally.record(now - arrived);
                }
                if done % WATCHED_EVERY == 0 && !goes_on(done as f64 / all as f64) {
                    break;
                }
                if let Arrivals::Closed { think_ns, .. } = load {
                    engine.at(now.saturating_add(think_ns as Time), Event::Arrival);
                }
                engine.take_answers(now);
            }
        }
        engine.issue(now, saturated, &mut held);
    }
    Ok(tally.outcome(model))
}

#[derive(Default)]
struct Tally {
    begin: Time,
    last: Time,
    responses: Histogram,
    squares: f64,
    lanes: f64,
    channels: f64,
    under_way: f64,
}

impl Tally {
    /// Advances time to `now` with the engine unchanged.
    fn pass(&mut self, now: Time, engine: &Engine<'_>) {
        let passed = (now - self.last) as f64;
        let busy = engine.channels.iter().filter(|queue| !queue.is_empty());
        self.channels += passed * busy.count() as f64;
        self.lanes += passed * f64::from(engine.lanes_busy);
        self.under_way += passed * f64::from(engine.under_way);
        self.last = now;
    }

    fn record(&mut self, response: Time) {
        self.responses.record(response);
        self.squares += (response as f64).powi(2);
    }

    fn outcome(&self, model: &Model) -> Outcome {
        let count = self.responses.len() as f64;
        let time = (self.last - self.begin) as f64;
        let mean = self.responses.mean();
        let channels = f64::from(model.drives) * f64::from(model.channels);
        Outcome {
            qps: count / time * 1e9,
            mean_us: mean / 1e3,
            deviation_us: (self.squares / count - mean * mean).max(0.0).sqrt() / 1e3,
            p50_us: self.responses.quantile(0.5) as f64 / 1e3,
            p99_us: self.responses.quantile(0.99) as f64 / 1e3,
            serial_busy: self.lanes / time / f64::from(model.lanes),
            channels_busy: self.channels / time / channels,
            under_way: self.under_way / time,
        }
    }
}
