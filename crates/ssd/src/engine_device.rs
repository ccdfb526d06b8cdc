// SPDX-License-Identifier: Apache-2.0
//! A simulated drive as a device of `senko_io`: an engine runs on it in virtual time.
//!
//! Data is kept in memory, page by page; every operation is also a request to a [`Drive`], which
//! begins at the device's virtual clock and moves it to the request's end. No thread waits: an
//! engine runs as fast as the machine can, and [`SimulatedDevice::now`] says how long it would have
//! taken on the drive. Of a batch of reads, as many are under way at once as the drive's interface
//! takes. Operations of several threads follow each other.
//!
//! Always holds: a read returns the bytes written last, or zeros if none were written. A worn-out
//! drive fails writes with `EIO` and still reads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use senko_io::{Device, IoError, PAGE_SIZE, ReadRequest, Tag};

use crate::drive::Drive;
use crate::report::{Before, Report, Responses};
use crate::{Error, Op, Request, Time};

/// Linux's error numbers.
const EIO: i32 = 5;
const EINVAL: i32 = 22;

pub struct SimulatedDevice {
    pages: u64,
    state: Mutex<State>,
}

struct State {
    drive: Drive,
    before: Before,
    responses: Responses,
    now: Time,
    data: HashMap<u64, Box<[u8]>>,
}

impl State {
    /// Does a request that arrived at `arrived` from `at` on; returns its end.
    fn submit(&mut self, request: &Request, arrived: Time, at: Time) -> Result<Time, IoError> {
        match self.drive.submit(request, at) {
            Ok(done) => {
                self.responses
                    .record(request.op as u8, request.bytes, arrived, done);
                Ok(done)
            }
            Err(Error::WornOut(_)) if request.op == Op::Read => Ok(at),
            Err(Error::WornOut(_)) => Err(IoError::Os(EIO)),
            Err(_) => Err(IoError::Os(EINVAL)),
        }
    }

    /// Does a request that arrives now, and moves the clock to its end.
    fn submit_now(&mut self, request: &Request) -> Result<(), IoError> {
        self.now = self.submit(request, self.now, self.now)?;
        Ok(())
    }

    fn copy_out(&self, page: u64, buf: &mut [u8]) {
        for (nth, bytes) in buf.chunks_mut(PAGE_SIZE).enumerate() {
            match self.data.get(&(page + nth as u64)) {
                Some(data) => bytes.copy_from_slice(data),
                None => bytes.fill(0),
            }
        }
    }
}

impl SimulatedDevice {
    /// A device on this drive, whose clock stands at 0.
    pub fn new(drive: Drive) -> Self {
        Self {
            pages: drive.capacity_bytes() / PAGE_SIZE as u64,
            state: Mutex::new(State {
                before: Report::counts_of(drive.devices()),
                drive,
                responses: Responses::default(),
                now: 0,
                data: HashMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Time {
        self.lock().now
    }

    pub fn report(&self) -> Report {
        let state = self.lock();
        Report::new(
            state.drive.devices(),
            &state.before,
            state.responses.clone(),
        )
    }

    /// Does a request of any number of bytes, without data, and moves the clock to its end. So an
    /// access can be smaller than the pages of [`Device`], and large ones need no memory. Pages
    /// that were written only in this way read as zeros.
    ///
    /// # Errors
    /// `EINVAL` if the request is beyond the drive's end; `EIO` if the drive is worn out and the
    /// request a write.
    ///
    /// # Examples
    /// ```
    /// use senko_ssd::{Op, device::Parts, drive::Drive};
    /// use senko_ssd::{engine_device::SimulatedDevice, profile::Profile};
    ///
    /// let drive = Drive::new(&Profile::find("x25-m").unwrap(), &Parts::default()).unwrap();
    /// let device = SimulatedDevice::new(drive);
    /// device.account(Op::Write, 512, 512).unwrap();
    /// assert!(device.now() > 0);
    /// ```
    pub fn account(&self, op: Op, offset: u64, bytes: u64) -> Result<(), IoError> {
        self.lock().submit_now(&Request::new(op, offset, bytes))
    }

    /// A request for whole pages; refused if it is not one.
    fn request(&self, op: Op, page: u64, bytes: u64) -> Result<Request, IoError> {
        let end = page.checked_add(bytes / PAGE_SIZE as u64);
        if !bytes.is_multiple_of(PAGE_SIZE as u64) || end.is_none_or(|end| end > self.pages) {
            return Err(IoError::Os(EINVAL));
        }
        Ok(Request::new(op, page * PAGE_SIZE as u64, bytes))
    }
}

impl Device for SimulatedDevice {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(&self, page: u64, buf: &mut [u8], _: Tag) -> Result<(), IoError> {
        let request = self.request(Op::Read, page, buf.len() as u64)?;
        let mut state = self.lock();
        state.submit_now(&request)?;
        state.copy_out(page, buf);
        Ok(())
    }

    fn write(&self, page: u64, buf: &[u8], _: Tag) -> Result<(), IoError> {
        let request = self.request(Op::Write, page, buf.len() as u64)?;
        let mut state = self.lock();
        state.submit_now(&request)?;
        for (page, bytes) in (page..).zip(buf.chunks(PAGE_SIZE)) {
            state.data.insert(page, bytes.into());
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<(), IoError> {
        self.lock().submit_now(&Request::flush(0))
    }

    fn discard(&self, page: u64, pages: u64, _: Tag) -> Result<(), IoError> {
        let bytes = pages.saturating_mul(PAGE_SIZE as u64);
        let request = self.request(Op::Trim, page, bytes)?;
        let mut state = self.lock();
        state.submit_now(&request)?;
        for page in page..page + pages {
            state.data.remove(&page);
        }
        Ok(())
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>], _: Tag) -> Result<(), IoError> {
        let state = &mut *self.lock();
        let (begin, mut end, mut first) = (state.now, state.now, Ok(()));
        let at_once = state.drive.commands_at_once();
        let mut under_way = BinaryHeap::new();
        for read in requests {
            let request = self.request(Op::Read, read.page, read.buf.len() as u64);
            let full = under_way.len() >= at_once;
            let first_end = under_way.peek().map(|Reverse(done)| *done);
            let at = first_end.filter(|_| full).unwrap_or(begin);
            let done = request.and_then(|request| state.submit(&request, begin, at));
            if let Ok(done) = done {
                if full {
                    under_way.pop();
                }
                under_way.push(Reverse(done));
                end = end.max(done);
                state.copy_out(read.page, read.buf);
            }
            read.result = done.map(|_| ());
            first = first.and(read.result);
        }
        state.now = end;
        first
    }
}
