// SPDX-License-Identifier: Apache-2.0
//! Runs under a host. Requests arrive, wait in the interface's queues, are dispatched and complete,
//! as events in virtual time.
//!
//! ```text
//!  Arrival --> a part for each drive --> a queue of that drive --(a slot is free)--> dispatch: its pages --> Done
//!                                             `--(nothing to do)--> Idle: background work, a step at a time
//! ```
//!
//! Each drive has its own interface: its own queues, and its own slots in each. A part goes to the
//! queue with the fewest commands, as a host with a queue for each core spreads its load. The
//! request is done when its last part is.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::drive::{Drive, Load, arrival};
use crate::report::{Course, Pace, Report, Responses};
use crate::{Error, Request, Time};

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Requests, by their place in [`Running::requests`], of which this drive still has a part to
    /// do.
    waiting: VecDeque<u32>,
    under_way: u32,
}

impl Queue {
    fn commands(&self) -> usize {
        self.waiting.len() + self.under_way as usize
    }
}

/// A request that has arrived and is not done.
#[derive(Clone, Copy, Debug)]
struct Open {
    request: Request,
    arrived: Time,
    /// How many drives have not done their parts.
    parts: u32,
}

/// An event. Of two at the same time, the one added first comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next request of the trace reaches the interface.
    Arrival,
    /// A part of a request is done; has the queue and the request's place.
    Done { queue: u32, request: u32 },
    /// If nothing has happened since `quiet`, background work is due.
    Idle { quiet: u64 },
}

#[derive(Default)]
struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    entered: u64,
}

impl Events {
    fn at(&mut self, time: Time, event: Event) {
        self.heap.push(Reverse((time, self.entered, event)));
        self.entered += 1;
    }

    fn next(&mut self) -> Option<(Time, Event)> {
        self.heap
            .pop()
            .map(|Reverse((time, _, event))| (time, event))
    }
}

impl Drive {
    /// Runs all requests; returns the report.
    ///
    /// # Errors
    /// If a request does not fit, its source fails, or the drive wears out (the sentence says after
    /// which request).
    pub fn run<E: Into<Error>>(
        &mut self,
        requests: impl IntoIterator<Item = Result<Request, E>>,
        load: Load,
    ) -> Result<Report, Error> {
        let mut requests = requests.into_iter();
        if self.untimed {
            return self.run_untimed(requests, load);
        }
        let before = Report::counts_of(&self.devices);
        let mut course = Course::new(self.totals().written());
        let mut run = Running::new(load, self.queues);
        let mut end = 0;
        run.fetch(&mut requests, 0)?;
        while let Some((now, event)) = run.events.next() {
            if self.is_stopped() {
                break;
            }
            if matches!(event, Event::Idle { .. }) && run.is_over() {
                break;
            }
            end = now;
            for device in &mut self.devices {
                device.advance(now);
            }
            match event {
                Event::Arrival => {
                    let Some(request) = run.next.take() else {
                        continue;
                    };
                    self.check_request(run.number, &request)?;
                    run.happened += 1;
                    run.count_under_way();
                    self.arrive(&mut run, request, now)?;
                    if course.wants(run.number) {
                        course.add(self.totals().written());
                    }
                    run.fetch(&mut requests, now)?;
                }
                Event::Done { queue, request } => {
                    run.queues[queue as usize].under_way -= 1;
                    run.happened += 1;
                    run.part_done(request, now);
                    self.serve(&mut run, queue as usize, now)?;
                    run.fetch(&mut requests, now)?;
                    if run.queues.iter().all(|queue| queue.under_way == 0) {
                        let quiet = run.happened;
                        run.events.at(now + self.idle_after, Event::Idle { quiet });
                    }
                }
                Event::Idle { quiet } => self.idle(&mut run, quiet, now),
            }
        }
        run.responses.lasts_until(self.drain(end)?);
        let pace = Pace {
            open: matches!(load, Load::Open { .. }),
            slots: self.commands_at_once() as u64,
            most_under_way: run.most_under_way,
            under_way_at_last_arrival: run.at_last_arrival,
        };
        Ok(Report {
            pace,
            quarters: course.quarters(self.totals().written()),
            ..Report::new(&self.devices, &before, run.responses)
        })
    }

    /// Gives each drive that a request touches its part of it.
    fn arrive(&mut self, run: &mut Running, request: Request, now: Time) -> Result<(), Error> {
        let place = run.enter(Open {
            request,
            arrived: now,
            parts: 0,
        });
        let queues = run.queues.len() / self.devices.len();
        for drive in 0..self.devices.len() {
            if !self.concerns(&request, drive) {
                continue;
            }
            let own = drive * queues..(drive + 1) * queues;
            let queue = own
                .min_by_key(|queue| run.queues[*queue].commands())
                .expect("every drive has a queue");
            run.requests[place as usize].parts += 1;
            run.queues[queue].waiting.push_back(place);
            self.serve(run, queue, now)?;
        }
        Ok(())
    }

    /// Dispatches from a queue as long as it has requests and slots.
    fn serve(&mut self, run: &mut Running, queue: usize, now: Time) -> Result<(), Error> {
        let drive = queue / (run.queues.len() / self.devices.len());
        while run.queues[queue].under_way < self.slots {
            let Some(place) = run.queues[queue].waiting.pop_front() else {
                break;
            };
            let request = run.requests[place as usize].request;
            let done = self.dispatch_part(&request, drive, now);
            run.queues[queue].under_way += 1;
            let event = Event::Done {
                queue: queue as u32,
                request: place,
            };
            run.events.at(done, event);
            self.check_life_at(run.number)?;
        }
        Ok(())
    }

    fn idle(&mut self, run: &mut Running, quiet: u64, now: Time) {
        if quiet != run.happened || (run.next.is_none() && run.events.heap.is_empty()) {
            return;
        }
        let done = self
            .devices
            .iter_mut()
            .filter_map(|device| device.idle(now));
        if let Some(done) = done.max() {
            run.events.at(done.max(now + 1), Event::Idle { quiet });
        }
    }
}

/// The state of a run apart from the drives.
struct Running {
    load: Load,
    /// The queues of the first drive, then those of the second, and so on.
    queues: Vec<Queue>,
    events: Events,
    responses: Responses,
    /// Requests that have arrived and are not done; places are reused.
    requests: Vec<Open>,
    free: Vec<u32>,
    number: u64,
    done: u64,
    next: Option<Request>,
    /// Arrivals and completions so far.
    happened: u64,
    /// The most requests under way or waiting at once.
    most_under_way: u64,
    /// How many there were when the last one arrived, including it.
    at_last_arrival: u64,
}

impl Running {
    fn new(load: Load, queues: usize) -> Self {
        Self {
            load,
            queues: vec![Queue::default(); queues],
            events: Events::default(),
            responses: Responses::default(),
            requests: Vec::new(),
            free: Vec::new(),
            number: 0,
            done: 0,
            next: None,
            happened: 0,
            most_under_way: 0,
            at_last_arrival: 0,
        }
    }

    /// Counts the requests under way when a request arrives, including it.
    fn count_under_way(&mut self) {
        self.at_last_arrival = self.number - self.done;
        self.most_under_way = self.most_under_way.max(self.at_last_arrival);
    }

    fn is_over(&self) -> bool {
        self.next.is_none() && self.done == self.number
    }

    /// Keeps a request until it is done; returns its place.
    fn enter(&mut self, open: Open) -> u32 {
        if let Some(place) = self.free.pop() {
            self.requests[place as usize] = open;
            return place;
        }
        self.requests.push(open);
        (self.requests.len() - 1) as u32
    }

    /// Notes that a drive has done its part of a request; with the last part the request is done.
    fn part_done(&mut self, place: u32, now: Time) {
        let open = &mut self.requests[place as usize];
        open.parts -= 1;
        if open.parts > 0 {
            return;
        }
        let Open {
            request, arrived, ..
        } = *open;
        self.free.push(place);
        self.responses
            .record(request.op as u8, request.bytes, arrived, now);
        self.done += 1;
    }

    /// Gets the next request and adds its arrival, unless there is one already or a closed loop is
    /// full.
    fn fetch<E: Into<Error>>(
        &mut self,
        requests: &mut impl Iterator<Item = Result<Request, E>>,
        now: Time,
    ) -> Result<(), Error> {
        let under_way = self.number - self.done;
        let full =
            matches!(self.load, Load::Closed { depth } if under_way >= u64::from(depth.max(1)));
        if self.next.is_some() || full {
            return Ok(());
        }
        let Some(request) = requests.next() else {
            return Ok(());
        };
        let request = request.map_err(Into::into)?;
        self.number += 1;
        let arrival = match self.load {
            Load::Open { speed } => arrival(&request, speed, self.number)?.max(now),
            Load::Closed { .. } => now,
        };
        self.next = Some(request);
        self.events.at(arrival, Event::Arrival);
        Ok(())
    }
}
