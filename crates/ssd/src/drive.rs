// SPDX-License-Identifier: Apache-2.0
//! One drive, or several as RAID 0, and how requests are cut into pages.
//!
//! RAID 0 cuts a request into one part for each drive that it touches. A dispatched part issues all
//! of its pages at once. The flash's timeline (`nand/timeline.rs`) returns when each is done; the
//! part is done with its last page. The command and the data pass the drive's link (`link.rs`),
//! which may be slower than the flash. `drive/timed.rs` decides when a part is dispatched.

mod prepare; // fills drives before a run
mod timed; // runs as events in virtual time
mod untimed; // runs without times

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::{Device, Parts};
use crate::profile::Profile;
use crate::{Error, Op, Request, Time};

/// Drives of RAID 0, at most: each takes its own RAM to simulate.
const MOST_DRIVES: u32 = 256;
/// Pages that preparation writes between two questions whether to continue.
const FILLED_AT_ONCE: u64 = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// At the times in the trace, divided by `speed`.
    Open {
        /// 2 means twice as fast.
        speed: f64,
    },
    /// So that this many are always under way; times are ignored.
    Closed { depth: u32 },
}

/// Arrivals are not later than 146 years after the first: times beyond could not be added up.
const LATEST: Time = 1 << 62;

/// When an open load sends a request.
fn arrival(request: &Request, speed: f64, number: u64) -> Result<Time, Error> {
    let arrival = (request.time as f64 / speed) as Time;
    if arrival > LATEST {
        return Err(Error::Request(format!(
            "request {number} comes more than 146 years after the first: a rate, a speed or the unit of a trace's times may be wrong"
        )));
    }
    Ok(arrival)
}

/// One drive, or several as RAID 0, and the host's queues.
pub struct Drive {
    devices: Vec<Device>,
    page_bytes: u64,
    /// The logarithm of the page size if this is a power of two, since divisions are slow.
    page_shift: Option<u32>,
    capacity_bytes: u64,
    untimed: bool,
    /// Pages of a stripe on one drive.
    stripe_pages: u64,
    controller_ns: Time,
    /// Commands under way at once in each queue.
    slots: u32,
    /// Queues of all drives.
    queues: usize,
    /// Runs end when this is set.
    stop: Option<&'static AtomicBool>,
    /// After being idle for this long, the drives do background work.
    idle_after: Time,
    seed: u64,
    /// Whether runs end with a flush.
    drains: bool,
}

impl Drive {
    /// One erased drive.
    ///
    /// # Errors
    /// If its parts don't exist or don't fit together.
    pub fn new(profile: &Profile, parts: &Parts) -> Result<Self, Error> {
        Self::raid0(profile, parts, 1, profile.geometry.block_bytes())
    }

    /// Several erased drives as RAID 0.
    ///
    /// # Errors
    /// If a drive can't be made, there is none, or the stripe is not a multiple of a page.
    pub fn raid0(
        profile: &Profile,
        parts: &Parts,
        drives: u32,
        stripe_bytes: u64,
    ) -> Result<Self, Error> {
        let page_bytes = u64::from(profile.geometry.page_bytes);
        if drives == 0 {
            return Err(Error::Profile("RAID 0 of no drive".to_owned()));
        }
        if drives > MOST_DRIVES {
            return Err(Error::Profile(format!(
                "RAID 0 of {drives} drives: at most {MOST_DRIVES} can be simulated"
            )));
        }
        if stripe_bytes == 0 || !stripe_bytes.is_multiple_of(page_bytes) {
            return Err(Error::Profile(format!(
                "a stripe of {stripe_bytes} bytes is not a multiple of the page's {page_bytes}"
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
        let (queues, slots) = profile.interface.queues_and_depth();
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
            queues: queues as usize * drives as usize,
            stop: None,
            idle_after: 1_000_000,
            seed: parts.seed,
            drains: false,
        })
    }

    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub fn devices_mut(&mut self) -> &mut [Device] {
        &mut self.devices
    }

    /// Commands that the interfaces of all drives take at once.
    pub fn commands_at_once(&self) -> usize {
        self.slots as usize * self.queues
    }

    /// Makes runs end as soon as `stop` is set, with the report of what was done until then. The
    /// drive must not be used afterwards.
    pub fn stop_when(&mut self, stop: &'static AtomicBool) {
        self.stop = Some(stop);
    }

    /// Makes runs write what the write buffer holds after their last request. That takes time and
    /// counts on the flash, but is no request: it has no response time.
    pub fn drain_at_end(&mut self) {
        self.drains = true;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Treats everything issued so far as done and restarts time at 0, as between two runs on the
    /// same drives.
    ///
    /// ```
    /// use senko_ssd::device::Parts;
    /// use senko_ssd::drive::{Drive, Load};
    /// use senko_ssd::profile::Profile;
    /// use senko_ssd::{Error, Op, Request};
    ///
    /// let mut drive = Drive::new(&Profile::find("x25-m")?, &Parts::default())?;
    /// let write = Request::new(Op::Write, 0, 4096);
    /// let mut seconds = || -> Result<f64, Error> {
    ///     drive.rest();
    ///     let report = drive.run([Ok::<_, Error>(write)], Load::Closed { depth: 1 })?;
    ///     Ok(report.seconds)
    /// };
    /// assert_eq!(seconds()?, seconds()?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rest(&mut self) {
        self.devices.iter_mut().for_each(Device::rest);
    }

    /// The size that the host sees, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

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

    /// How many bytes of a page a request covers.
    #[inline]
    fn bytes_in(&self, request: &Request, page: u64) -> u64 {
        let begin = page * self.page_bytes;
        let end = request.offset + request.bytes;
        (begin + self.page_bytes).min(end) - begin.max(request.offset)
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

    /// Does all of a request's pages; returns when the last one is done.
    fn dispatch(&mut self, request: &Request, at: Time) -> Time {
        let drives = 0..self.devices.len();
        let done = drives.map(|drive| self.dispatch_part(request, drive, at));
        done.max().unwrap_or(at)
    }

    /// Does those pages of a request that lie on one drive; returns when the last one is done.
    fn dispatch_part(&mut self, request: &Request, drive: usize, at: Time) -> Time {
        let at = self.devices[drive].wire_mut().command(request.op, at) + self.controller_ns;
        if request.op == Op::Flush {
            return self.devices[drive].flush(at);
        }
        let (first, past) = self.pages_of(request);
        if self.devices.len() == 1 {
            return self.dispatch_pages(request, drive, first..past, at);
        }
        let mut done = at;
        for stripe in self.stripes_on(drive, first, past) {
            let begin = stripe * self.stripe_pages;
            let pages = first.max(begin)..past.min(begin + self.stripe_pages);
            done = done.max(self.dispatch_pages(request, drive, pages, at));
        }
        done
    }

    /// The stripes of one drive with some of the pages from `first` to before `past`.
    fn stripes_on(&self, drive: usize, first: u64, past: u64) -> impl Iterator<Item = u64> + use<> {
        let drives = self.devices.len() as u64;
        let from = first / self.stripe_pages;
        let skip = (drive as u64 + drives - from % drives) % drives;
        let end = past.div_ceil(self.stripe_pages);
        (from + skip..end).step_by(drives as usize)
    }

    /// Whether a request goes to a drive: it has pages there, or none at all, like a flush.
    fn concerns(&self, request: &Request, drive: usize) -> bool {
        if request.bytes == 0 || self.devices.len() == 1 {
            return true;
        }
        let (first, past) = self.pages_of(request);
        self.stripes_on(drive, first, past).next().is_some()
    }

    /// Does a run of pages, all on one drive.
    fn dispatch_pages(
        &mut self,
        request: &Request,
        drive: usize,
        pages: Range<u64>,
        at: Time,
    ) -> Time {
        let mut done = at;
        for page in pages {
            let (_, lpn) = self.place(page);
            let whole = self.is_whole(request, page);
            let bytes = self.bytes_in(request, page);
            let device = &mut self.devices[drive];
            let page_done = match request.op {
                Op::Write => {
                    let at = device.wire_mut().receive(bytes, at);
                    device.write(lpn, whole, request.stream, at)
                }
                Op::Read => {
                    let read = device.read(lpn, at);
                    device.wire_mut().send(bytes, read)
                }
                // A page is forgotten only if all of it is.
                Op::Trim if whole => device.trim(lpn, at),
                Op::Trim | Op::Flush => at,
            };
            done = done.max(page_done);
        }
        done
    }

    /// Does one request from `at` on, with nothing waiting before it; returns when it is done.
    /// Later requests must not begin earlier.
    ///
    /// # Errors
    /// If it does not fit, or the drive is worn out.
    pub fn submit(&mut self, request: &Request, at: Time) -> Result<Time, Error> {
        self.check_request(1, request)?;
        for device in &mut self.devices {
            device.advance(at);
        }
        let done = self.dispatch(request, at);
        self.check_life().map(|()| done)
    }

    /// Ends a run at `end`: writes what the write buffers hold, if that was asked for. Returns when
    /// that is done.
    fn drain(&mut self, end: Time) -> Result<Time, Error> {
        let done = match self.drains && !self.is_stopped() {
            true => self.submit(&Request::flush(end), end)?,
            false => 0,
        };
        self.devices.iter().for_each(Device::assert_conservation);
        Ok(done)
    }

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

    /// The counts of all drives since they were new.
    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for device in &self.devices {
            totals.host_pages += device.counts().host_writes;
            totals.programs += device.nand().counts().all_programs();
            totals.erases += device.nand().counts().all_erases();
        }
        totals
    }
}

/// Counts of all drives at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    host_pages: u64,
    programs: u64,
    erases: u64,
}

impl Totals {
    /// The host's pages and the flash's programs.
    fn written(self) -> (u64, u64) {
        (self.host_pages, self.programs)
    }
}
