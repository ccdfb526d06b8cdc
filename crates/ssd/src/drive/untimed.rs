// SPDX-License-Identifier: Apache-2.0
//! Runs in write-amplification mode: no events and no queues, every request in the order of the
//! trace.
//!
//! Writes of whole pages gather in a batch for each drive and go to it together
//! ([`Device::write_many`](crate::device::Device::write_many)). All other requests wait until the
//! batches are written, so each drive sees its pages in the trace's order. There is no idle time,
//! so no background work is done.

use crate::drive::{Drive, Load, arrival};
use crate::geometry::Lpn;
use crate::report::{Course, Report, Responses};
use crate::{Error, Op, Request};

const BATCH: usize = 1024;

/// Whole pages that wait to be written to one drive, all of the same stream.
#[derive(Clone, Debug, Default)]
struct Batch {
    lpns: Vec<Lpn>,
    stream: u16,
}

impl Drive {
    /// Does all requests, one after the other, in no time; returns the report.
    pub(super) fn run_untimed<E: Into<Error>>(
        &mut self,
        requests: impl Iterator<Item = Result<Request, E>>,
        load: Load,
    ) -> Result<Report, Error> {
        let before = Report::counts_of(&self.devices);
        let mut course = Course::new(self.totals().written());
        let mut batches = vec![Batch::default(); self.devices.len()];
        let mut number = 0;
        let (mut counts, mut bytes) = ([0; 4], [0; 4]);
        let (mut first, mut last) = (None, 0);
        for request in requests {
            if self.is_stopped() {
                break;
            }
            let request = request.map_err(Into::into)?;
            number += 1;
            self.check_request(number, &request)?;
            counts[request.op as usize] += 1;
            bytes[request.op as usize] += request.bytes;
            if let Load::Open { speed } = load {
                let arrival = arrival(&request, speed, number)?;
                last = arrival.max(last);
                first.get_or_insert(arrival);
            }
            if request.op == Op::Write {
                self.gather(&request, &mut batches, number)?;
            } else {
                self.write_batches(&mut batches, number)?;
                self.dispatch(&request, 0);
            }
            if course.wants(number) {
                course.add(self.totals().written());
            }
        }
        self.write_batches(&mut batches, number)?;
        self.drain(0)?;
        let responses = Responses::in_no_time(counts, bytes, first, last);
        Ok(Report {
            quarters: course.quarters(self.totals().written()),
            ..Report::new(&self.devices, &before, responses)
        })
    }

    /// Writes the pages from `from` to before `to` once, in order.
    pub(super) fn fill_untimed(&mut self, from: u64, to: u64) -> Result<(), Error> {
        let bytes = (to - from) * self.page_bytes;
        let all = Request::new(Op::Write, from * self.page_bytes, bytes);
        let mut batches = vec![Batch::default(); self.devices.len()];
        self.gather(&all, &mut batches, 0)?;
        self.write_batches(&mut batches, 0)
    }

    pub(super) fn overwrite_untimed(
        &mut self,
        pages: impl Iterator<Item = u64>,
    ) -> Result<(), Error> {
        let mut batches = vec![Batch::default(); self.devices.len()];
        for page in pages {
            let (drive, lpn) = self.place(page);
            let batch = &mut batches[drive];
            batch.lpns.push(lpn);
            if batch.lpns.len() == BATCH {
                self.devices[drive].write_many(&batch.lpns, 0);
                batch.lpns.clear();
                self.check_life()?;
            }
        }
        self.write_batches(&mut batches, 0)
    }

    #[inline]
    fn gather(
        &mut self,
        request: &Request,
        batches: &mut [Batch],
        number: u64,
    ) -> Result<(), Error> {
        let (first, past) = self.pages_of(request);
        for page in first..past {
            let (drive, lpn) = self.place(page);
            let whole = self.is_whole(request, page);
            let batch = &mut batches[drive];
            if !whole || batch.stream != request.stream || batch.lpns.len() == BATCH {
                self.devices[drive].write_many(&batch.lpns, batch.stream);
                batch.lpns.clear();
                batch.stream = request.stream;
                self.check_life_at(number)?;
            }
            if whole {
                batch.lpns.push(lpn);
            } else {
                self.devices[drive].write(lpn, false, request.stream, 0);
            }
        }
        Ok(())
    }

    fn write_batches(&mut self, batches: &mut [Batch], number: u64) -> Result<(), Error> {
        for (device, batch) in self.devices.iter_mut().zip(batches) {
            device.write_many(&batch.lpns, batch.stream);
            batch.lpns.clear();
        }
        self.check_life_at(number)
    }
}
