// SPDX-License-Identifier: Apache-2.0
//! When planes and buses are busy.
//!
//! An operation gets its time when it is issued. The plane executes operations in the order of
//! issue, and a bus gives an operation the first gap that is long enough. So a transfer that waits
//! for a busy plane does not delay transfers to other planes on the same bus.
//!
//! ```text
//! read     plane |--- cell read ---|     .. wait for the bus ..     |--- transfer ---|
//! program  bus   |--- transfer ---|  plane  |--- cell program ---|
//! erase    plane |--- erase ---|
//! ```
//!
//! A background erase uses idle time of its plane first. It is a debt, paid in the idle time before
//! the plane's later operations.

use crate::Time;
use crate::bus::Bus;
use crate::nand::Timing;

#[derive(Clone, Copy, Debug, Default)]
struct Plane {
    /// When all operations issued to it are done.
    free: Time,
    /// Background work that it still has to do.
    debt: Time,
}

/// Total busy time of all planes and buses, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    pub read_ns: Time,
    pub program_ns: Time,
    /// Erasing blocks, including in the background.
    pub erase_ns: Time,
    pub bus_ns: Time,
}

senko_io::counters! {
    Busy: read_ns program_ns erase_ns bus_ns
}

/// The state of every plane and bus over time.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    timing: Timing,
    /// How long a page is on the bus.
    transfer: Time,
    planes: Vec<Plane>,
    buses: Vec<Bus>,
    busy: Busy,
}

impl Timeline {
    pub(crate) fn new(timing: Timing, page_bytes: u64, planes: u32, channels: u32) -> Self {
        Self {
            timing,
            transfer: timing.command_ns + (page_bytes as f64 * timing.bus_ns_per_byte) as Time,
            planes: vec![Plane::default(); planes as usize],
            buses: vec![Bus::default(); channels as usize],
            busy: Busy::default(),
        }
    }

    pub(crate) fn busy(&self) -> Busy {
        self.busy
    }

    /// Says that nothing will be issued before `now` any more.
    pub(crate) fn advance(&mut self, now: Time) {
        for bus in &mut self.buses {
            bus.forget_before(now);
        }
    }

    /// Treats everything issued so far as done at time 0.
    pub(crate) fn rest(&mut self) {
        self.planes.fill(Plane::default());
        self.buses.fill(Bus::default());
    }

    /// When the plane can begin an operation that is issued at `at`.
    fn begin(&mut self, plane: u32, at: Time) -> Time {
        let plane = &mut self.planes[plane as usize];
        if at > plane.free {
            plane.debt = plane.debt.saturating_sub(at - plane.free);
            plane.free = at;
        }
        plane.free
    }

    /// Reads a page, from cells that take `cell_ns` if these are not the usual ones.
    pub(crate) fn read(
        &mut self,
        plane: u32,
        channel: u32,
        at: Time,
        cell_ns: Option<Time>,
    ) -> Time {
        let cell_ns = cell_ns.unwrap_or(self.timing.read_ns);
        self.busy.read_ns += cell_ns;
        self.busy.bus_ns += self.transfer;
        let cell = self.begin(plane, at) + cell_ns;
        let end = self.buses[channel as usize].take(cell, self.transfer) + self.transfer;
        self.planes[plane as usize].free = end;
        end
    }

    /// Programs a page, into cells that take `cell_ns` if these are not the usual ones.
    pub(crate) fn program(
        &mut self,
        plane: u32,
        channel: u32,
        at: Time,
        cell_ns: Option<Time>,
    ) -> Time {
        let cell_ns = cell_ns.unwrap_or(self.timing.program_ns);
        self.busy.program_ns += cell_ns;
        self.busy.bus_ns += self.transfer;
        let begin = self.begin(plane, at);
        let cell = self.buses[channel as usize].take(begin, self.transfer) + self.transfer;
        let end = cell + cell_ns;
        self.planes[plane as usize].free = end;
        end
    }

    /// A read and a program within one plane, with nothing on the bus.
    pub(crate) fn copy_back(&mut self, plane: u32, at: Time) -> Time {
        self.busy.read_ns += self.timing.read_ns;
        self.busy.program_ns += self.timing.program_ns;
        let end = self.begin(plane, at) + self.timing.read_ns + self.timing.program_ns;
        self.planes[plane as usize].free = end;
        end
    }

    pub(crate) fn erase(&mut self, plane: u32, at: Time) -> Time {
        self.busy.erase_ns += self.timing.erase_ns;
        let begin = self.begin(plane, at);
        let plane = &mut self.planes[plane as usize];
        // The part of the last erase that found no idle time is due before the next one.
        let owed = std::mem::take(&mut plane.debt);
        if self.timing.background_erase {
            plane.debt = self.timing.erase_ns;
            plane.free = begin + owed;
            begin
        } else {
            plane.free = begin + self.timing.erase_ns;
            plane.free
        }
    }

    /// When all operations issued to the plane are done.
    pub(crate) fn free_at(&self, plane: u32) -> Time {
        self.planes[plane as usize].free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(background_erase: bool) -> Timeline {
        let timing = Timing {
            read_ns: 25_000,
            program_ns: 200_000,
            erase_ns: 1_500_000,
            command_ns: 0,
            bus_ns_per_byte: 10.0,
            controller_ns: 0,
            ram_ns: 0,
            background_erase,
            copy_back: true,
        };
        Timeline::new(timing, 1000, 2, 1)
    }

    #[test]
    fn planes_overlap_and_share_the_bus() {
        let mut time = timeline(false);
        assert_eq!(time.program(0, 0, 0, None), 210_000);
        // Only its transfer waits.
        assert_eq!(time.program(1, 0, 0, None), 220_000);
        // The plane is busy to 210,000.
        assert_eq!(time.read(0, 0, 0, None), 245_000);
        let busy = Busy {
            read_ns: 25_000,
            program_ns: 400_000,
            erase_ns: 0,
            bus_ns: 30_000,
        };
        assert_eq!(time.busy(), busy);
    }

    #[test]
    fn idle_time_pays_for_a_background_erase() {
        let mut time = timeline(true);
        assert_eq!(time.erase(0, 0), 0);
        assert_eq!(time.program(0, 0, 1_000_000, None), 1_210_000);
        // Of the last erase, 1,000,000 were paid, and 500,000 are due when the next erase comes.
        time.erase(0, 1_210_000);
        assert_eq!(time.free_at(0), 1_710_000);
    }
}
