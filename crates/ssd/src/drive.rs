// SPDX-License-Identifier: Apache-2.0
//! Drives under a host: requests arrive, wait in the interface's queues, are dispatched, and complete, as events in virtual time.
//!
//! ```text
//!  Arrival --> queue --(a slot is free)--> dispatch: pages, on one drive or on RAID 0 --> Done --> the slot is free
//!                                             `--(nothing to do)--> Idle: background work, a step at a time
//! ```
//!
//! A dispatched request issues all of its pages at once; the flash's timeline (`nand/timeline.rs`) says when each is done, and the last says when the request is.

// Runs without times.
mod untimed;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::device::{Device, Parts};
use crate::profile::{Interface, Profile};
use crate::report::{Report, Responses};
use crate::{Error, Op, Request, Time};

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// At the times that they name, divided by `speed`.
    Open {
        /// 2 is twice as fast.
        speed: f64,
    },
    /// So that always this many are under way; times are ignored.
    Closed {
        /// How many.
        depth: u32,
    },
}

/// One drive, or several as RAID 0, and the host's queues.
pub struct Drive {
    devices: Vec<Device>,
    page_bytes: u64,
    /// Where pages are a power of two: its logarithm, since divisions are slow.
    page_shift: Option<u32>,
    capacity_bytes: u64,
    untimed: bool,
    /// Pages of a stripe on one drive.
    stripe_pages: u64,
    controller_ns: Time,
    slots: u32,
    queues: Vec<VecDeque<Waiting>>,
    /// Without anything to do for this long, the drives do background work.
    idle_after: Time,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    arrived: Time,
}

/// What happens next. Of two at one time, the one that was entered first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next request of the trace reaches the interface.
    Arrival,
    /// A request is done.
    Done { queue: u32, op: u8, arrived: Time },
    /// If nothing has happened since `quiet`, background work is done.
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
    /// One erased drive.
    ///
    /// # Errors
    /// If its parts don't exist or don't fit each other.
    pub fn new(profile: &Profile, parts: &Parts) -> Result<Self, Error> {
        Self::raid0(profile, parts, 1, profile.geometry.block_bytes())
    }

    /// Several erased drives as RAID 0.
    ///
    /// # Errors
    /// If a drive can't be made, there is none, or the stripe is no multiple of a page.
    pub fn raid0(
        profile: &Profile,
        parts: &Parts,
        drives: u32,
        stripe_bytes: u64,
    ) -> Result<Self, Error> {
        let page_bytes = u64::from(profile.geometry.page_bytes);
        if drives == 0 {
            return Err(Error::profile("RAID 0 of no drive"));
        }
        if stripe_bytes == 0 || !stripe_bytes.is_multiple_of(page_bytes) {
            return Err(Error::profile(format!(
                "a stripe of {stripe_bytes} bytes is no multiple of the page's {page_bytes}"
            )));
        }
        let devices = (0..drives)
            .map(|drive| {
                let seed = parts.seed.wrapping_add(u64::from(drive));
                Device::new(
                    profile,
                    &Parts {
                        seed,
                        ..parts.clone()
                    },
                )
            })
            .collect::<Result<Vec<_>, _>>()?;
        let (queues, slots) = match profile.interface {
            Interface::Single => (1, 1),
            Interface::Ncq { depth } => (1, depth * drives),
            Interface::Nvme { queues, depth } => (queues, depth),
        };
        let stripe_pages = stripe_bytes / page_bytes;
        let pages = u64::from(devices[0].logical_pages());
        let capacity = match u64::from(drives) {
            1 => pages,
            drives => pages / stripe_pages * stripe_pages * drives,
        };
        Ok(Self {
            devices,
            page_bytes,
            page_shift: page_bytes
                .is_power_of_two()
                .then(|| page_bytes.trailing_zeros()),
            capacity_bytes: capacity * page_bytes,
            untimed: parts.untimed,
            stripe_pages,
            controller_ns: if parts.untimed {
                0
            } else {
                profile.timing.controller_ns
            },
            slots,
            queues: vec![VecDeque::new(); queues as usize],
            idle_after: 1_000_000,
        })
    }

    /// The drives.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The drives, to set how they fail.
    pub fn devices_mut(&mut self) -> &mut [Device] {
        &mut self.devices
    }

    /// What the host sees, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The page in which a byte lies.
    #[inline]
    fn page_at(&self, byte: u64) -> u64 {
        match self.page_shift {
            Some(shift) => byte >> shift,
            None => byte / self.page_bytes,
        }
    }

    /// The first page that a request touches, and the one past the last.
    #[inline]
    fn pages_of(&self, request: &Request) -> (u64, u64) {
        let past = request.offset + request.bytes;
        (
            self.page_at(request.offset),
            self.page_at(past + self.page_bytes - 1),
        )
    }

    /// Whether a request covers all of a page.
    #[inline]
    fn is_whole(&self, request: &Request, page: u64) -> bool {
        let begin = page * self.page_bytes;
        let end = request.offset + request.bytes;
        begin >= request.offset && begin + self.page_bytes <= end
    }

    /// The drive and page of a page of the whole.
    fn place(&self, page: u64) -> (usize, u32) {
        if self.devices.len() == 1 {
            return (0, page as u32);
        }
        let drives = self.devices.len() as u64;
        let (stripe, within) = (page / self.stripe_pages, page % self.stripe_pages);
        let page = stripe / drives * self.stripe_pages + within;
        ((stripe % drives) as usize, page as u32)
    }

    /// Writes the first `share` of the pages once, in order, in no time. Nothing of it is in later reports.
    ///
    /// # Errors
    /// If the drive wears out.
    pub fn precondition(&mut self, share: f64) -> Result<(), Error> {
        let pages = (self.capacity_bytes() / self.page_bytes) as f64 * share.clamp(0.0, 1.0);
        if self.untimed {
            self.fill_untimed(pages as u64)?;
        } else {
            for page in 0..pages as u64 {
                let (drive, lpn) = self.place(page);
                self.devices[drive].write(lpn, true, 0, 0);
            }
        }
        for device in &mut self.devices {
            device.flush(0);
            device.nand_mut().rest();
        }
        self.check_life()
    }

    fn check_life(&self) -> Result<(), Error> {
        match self
            .devices
            .iter()
            .find_map(|device| device.nand().worn_out())
        {
            Some(why) => Err(Error::WornOut(why.to_owned())),
            None => Ok(()),
        }
    }

    fn check_life_at(&self, request: u64) -> Result<(), Error> {
        self.check_life()
            .map_err(|error| Error::WornOut(format!("{error}, at request {request}")))
    }

    /// Does all of a request's pages; when the last is done.
    fn dispatch(&mut self, request: &Request, at: Time) -> Time {
        let at = at + self.controller_ns;
        if request.op == Op::Flush {
            let done = self.devices.iter_mut().map(|device| device.flush(at));
            return done.max().unwrap_or(at);
        }
        let mut done = at;
        let (first, past) = self.pages_of(request);
        for page in first..past {
            let (drive, lpn) = self.place(page);
            let whole = self.is_whole(request, page);
            let device = &mut self.devices[drive];
            let page_done = match request.op {
                Op::Write => device.write(lpn, whole, request.stream, at),
                Op::Read => device.read(lpn, at),
                // A page is forgotten only if all of it is.
                Op::Trim if whole => device.trim(lpn, at),
                Op::Trim | Op::Flush => at,
            };
            done = done.max(page_done);
        }
        done
    }

    /// Does one request from `at` on, with nothing waiting before it; when it is done.
    ///
    /// # Errors
    /// If it does not fit, or the drive is worn out.
    pub fn submit(&mut self, request: &Request, at: Time) -> Result<Time, Error> {
        self.check_request(1, request)?;
        let done = self.dispatch(request, at);
        self.check_life().map(|()| done)
    }

    /// Refuses what does not fit.
    fn check_request(&self, number: u64, request: &Request) -> Result<(), Error> {
        let capacity = self.capacity_bytes();
        match request.offset.checked_add(request.bytes) {
            Some(end) if end <= capacity => Ok(()),
            _ => Err(Error::Request(format!(
                "request {number} is for {} bytes at {}, and the drive has {capacity}: fold the addresses, or take a larger drive",
                request.bytes, request.offset
            ))),
        }
    }

    /// Runs all requests; what came of it.
    ///
    /// # Errors
    /// If a request does not fit, its source fails, or the drive wears out (the sentence says after which request).
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
        let mut run = Running {
            events: Events::default(),
            in_flight: vec![0; self.queues.len()],
            responses: Responses::default(),
            number: 0,
            done: 0,
            next: None,
            load,
            happened: 0,
        };
        run.fetch(&mut requests, 0)?;
        while let Some((now, event)) = run.events.next() {
            for device in &mut self.devices {
                device.nand_mut().advance(now);
            }
            match event {
                Event::Arrival => {
                    let Some(request) = run.next.take() else {
                        continue;
                    };
                    self.check_request(run.number, &request)?;
                    let queue = request.device as usize % self.queues.len();
                    self.queues[queue].push_back(Waiting {
                        request,
                        arrived: now,
                    });
                    run.happened += 1;
                    self.serve(&mut run, queue, now)?;
                    run.fetch(&mut requests, now)?;
                }
                Event::Done { queue, op, arrived } => {
                    run.responses.record(op, arrived, now);
                    run.in_flight[queue as usize] -= 1;
                    run.done += 1;
                    run.happened += 1;
                    self.serve(&mut run, queue as usize, now)?;
                    run.fetch(&mut requests, now)?;
                    if run.in_flight.iter().all(|count| *count == 0) {
                        let quiet = run.happened;
                        run.events.at(now + self.idle_after, Event::Idle { quiet });
                    }
                }
                Event::Idle { quiet } => self.idle(&mut run, quiet, now),
            }
        }
        for device in &self.devices {
            device.assert_conservation();
        }
        Ok(Report::new(&self.devices, &before, run.responses))
    }

    /// Dispatches as long as there are requests and slots.
    fn serve(&mut self, run: &mut Running, queue: usize, now: Time) -> Result<(), Error> {
        while run.in_flight[queue] < self.slots {
            let Some(waiting) = self.queues[queue].pop_front() else {
                break;
            };
            let done = self.dispatch(&waiting.request, now);
            run.in_flight[queue] += 1;
            let event = Event::Done {
                queue: queue as u32,
                op: waiting.request.op as u8,
                arrived: waiting.arrived,
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

/// What a run keeps beside the drives.
struct Running {
    events: Events,
    in_flight: Vec<u32>,
    responses: Responses,
    /// Requests fetched so far.
    number: u64,
    /// Requests completed so far.
    done: u64,
    /// The request that arrives next.
    next: Option<Request>,
    load: Load,
    /// Arrivals and completions so far.
    happened: u64,
}

impl Running {
    /// Gets the next request and enters its arrival, unless one is entered already or a closed loop is full.
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
            Load::Open { speed } => ((request.time as f64 / speed) as Time).max(now),
            Load::Closed { .. } => now,
        };
        self.next = Some(request);
        self.events.at(arrival, Event::Arrival);
        Ok(())
    }
}
