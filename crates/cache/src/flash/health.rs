// SPDX-License-Identifier: Apache-2.0
//! The state of the device under a log, and the operations that it may still get.
//!
//! ```text
//!      4 failed writes in a row          16 failed reads in a row, or the device is gone,
//!                                        or nothing that it was asked for ends for 2 s
//!  Up -------------------------> ReadOnly ----------> Out <------------------- Up
//!   ^  (note_write)                 |  (note_read, watch)|
//!   '-------- probe passed ---------'--------------------'   (probe_ended)
//! ```
//!
//! A log that is read-only accepts no items and answers reads. A log that is out of use hides its
//! slots, so they are misses. Its device only gets probes. A probe writes the free pages ahead of
//! the log's head and reads one back. It starts after all earlier operations of the device have
//! ended. The intervals between probes double from [`FIRST_WAIT_MS`] to [`LONGEST_WAIT_MS`]. They
//! start again at the first value after the device was well for as long. So a device that comes and
//! goes costs little and writes few log lines.
//!
//! Always holds: HEALTH-1: nothing is submitted for a log that is out of use, except its probe and,
//! at the end of the process, the contents of its write buffers. HEALTH-2: when the log is back, a
//! slot names the same record as before. While the log was out of use, its head and tail did not
//! move, and every command that met a slot of the log removed that slot.

use senko_io::IoError;

/// After this many failed writes in a row, a log accepts no more items.
const WRITES_TO_REST: u32 = 4;
/// After this many failed reads in a row, a log is out of use. Bad sectors alone do not cause that,
/// because an item that can't be read is dropped.
const READS_TO_LEAVE: u32 = 16;
/// How long eviction waits for a device that completes nothing.
pub(crate) const STALLED_MS: u64 = 1000;
/// How long a device may hold operations without completing any. SSDs pause for some hundred
/// milliseconds, and a busy machine adds to that.
pub(crate) const SILENT_MS: u64 = 2000;
/// If a device completes nothing for this long, that is a pause, which is counted and logged. It is
/// longer than any round of the event loop (`Shard::set_steady`), so a process that was stopped
/// does not blame its devices.
const PAUSE_MS: u64 = 300;
/// How long a device may hold one read while it completes others.
pub(crate) const LOST_READ_MS: u64 = 10_000;
const FIRST_WAIT_MS: u64 = 500;
const LONGEST_WAIT_MS: u64 = 60_000;

/// The use of a part of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceState {
    /// Reads and writes.
    #[default]
    Up,
    /// Only reads: writes fail.
    ReadOnly,
    Out,
}

/// Why a device is not in full use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTrouble {
    /// Writes failed, including the last one.
    Writes(IoError),
    /// Reads failed, including the last one.
    Reads(IoError),
    /// No operation ended for too long.
    Stalled,
}

impl std::fmt::Display for DeviceTrouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceTrouble::Writes(error) => write!(f, "writes fail ({error})"),
            DeviceTrouble::Reads(error) => write!(f, "reads fail ({error})"),
            DeviceTrouble::Stalled => write!(f, "it does not answer"),
        }
    }
}

/// The progress of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// No probe is under way.
    Idle,
    /// Free pages are being written.
    Writing,
    /// They were written; one of them will be read.
    Written,
    /// The page is being read.
    Reading,
}

/// The state of one log's device.
#[derive(Debug)]
pub(crate) struct Health {
    state: DeviceState,
    trouble: Option<DeviceTrouble>,
    /// Operations at the device.
    in_flight: u32,
    /// When the device last ended an operation, or got the first one.
    moved_ms: u64,
    write_errors: u32,
    read_errors: u32,
    pub(super) probe: Probe,
    probe_at_ms: u64,
    wait_ms: u64,
    up_since_ms: u64,
    pub(super) pauses: Pauses,
}

/// Stretches in which a device held operations and completed none of them, [`PAUSE_MS`] or longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// The number of pauses.
    pub count: u64,
    /// Their total duration.
    pub ms: u64,
}

impl Health {
    pub fn new() -> Health {
        Health {
            state: DeviceState::Up,
            trouble: None,
            in_flight: 0,
            moved_ms: 0,
            write_errors: 0,
            read_errors: 0,
            probe: Probe::Idle,
            probe_at_ms: 0,
            wait_ms: FIRST_WAIT_MS,
            up_since_ms: 0,
            pauses: Pauses::default(),
        }
    }

    pub fn state(&self) -> DeviceState {
        self.state
    }
    pub fn pauses(&self) -> Pauses {
        self.pauses
    }
    pub fn trouble(&self) -> Option<DeviceTrouble> {
        self.trouble
    }
    pub fn is_out(&self) -> bool {
        self.state == DeviceState::Out
    }
    /// Whether items may be written.
    pub fn takes_items(&self) -> bool {
        self.state == DeviceState::Up
    }
    /// Whether the device has an operation.
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0
    }

    /// Notes that an operation is submitted.
    #[inline]
    pub fn begin(&mut self, now_ms: u64) {
        if self.in_flight == 0 {
            self.moved_ms = now_ms;
        }
        self.in_flight += 1;
    }
    /// Notes that an operation ended, with or without success.
    #[inline]
    pub fn end(&mut self, now_ms: u64) {
        debug_assert!(self.in_flight > 0);
        self.in_flight = self.in_flight.saturating_sub(1);
        let silent = now_ms.saturating_sub(self.moved_ms);
        if silent >= PAUSE_MS {
            self.pauses.count += 1;
            self.pauses.ms += silent;
        }
        self.moved_ms = now_ms;
    }
    /// Whether the device has operations and ended none of them for longer than `ms`.
    pub fn is_silent(&self, now_ms: u64, ms: u64) -> bool {
        self.in_flight > 0 && now_ms.saturating_sub(self.moved_ms) > ms
    }
    /// Whether the device has operations and ended none of them recently.
    pub fn stalls(&self, now_ms: u64) -> bool {
        self.is_silent(now_ms, SILENT_MS)
    }

    /// Counts the result of a write of items; true if the state changed.
    pub fn note_write(&mut self, result: Result<(), IoError>, now_ms: u64) -> bool {
        let Err(error) = result else {
            self.write_errors = 0;
            return false;
        };
        self.write_errors += 1;
        let trouble = DeviceTrouble::Writes(error);
        if is_gone(error) {
            return self.worsen(DeviceState::Out, trouble, now_ms);
        }
        self.write_errors >= WRITES_TO_REST && self.worsen(DeviceState::ReadOnly, trouble, now_ms)
    }

    /// Counts the result of a read of an item; true if the state changed.
    #[inline]
    pub fn note_read(&mut self, result: Result<(), IoError>, now_ms: u64) -> bool {
        match result {
            Ok(()) => {
                self.read_errors = 0;
                false
            }
            Err(error) => self.read_failed(error, now_ms),
        }
    }

    #[cold]
    fn read_failed(&mut self, error: IoError, now_ms: u64) -> bool {
        self.read_errors += 1;
        (self.read_errors >= READS_TO_LEAVE || is_gone(error))
            && self.worsen(DeviceState::Out, DeviceTrouble::Reads(error), now_ms)
    }

    /// Notes that the device does not answer; true if the state changed.
    pub fn note_stall(&mut self, now_ms: u64) -> bool {
        self.worsen(DeviceState::Out, DeviceTrouble::Stalled, now_ms)
    }

    fn worsen(&mut self, to: DeviceState, trouble: DeviceTrouble, now_ms: u64) -> bool {
        if to <= self.state {
            return false;
        }
        if self.state == DeviceState::Up {
            let well = now_ms.saturating_sub(self.up_since_ms) >= LONGEST_WAIT_MS;
            self.wait_ms = if well { FIRST_WAIT_MS } else { self.wait_ms };
            self.wait(now_ms);
        }
        (self.state, self.trouble) = (to, Some(trouble));
        true
    }

    fn wait(&mut self, now_ms: u64) {
        self.probe_at_ms = now_ms + self.wait_ms;
        self.wait_ms = (self.wait_ms * 2).min(LONGEST_WAIT_MS);
    }

    pub fn probe_due(&self, now_ms: u64) -> bool {
        self.state != DeviceState::Up
            && matches!(self.probe, Probe::Idle | Probe::Written)
            && self.in_flight == 0
            && now_ms >= self.probe_at_ms
    }

    /// Takes the result of a probe.
    pub fn probe_ended(&mut self, passed: bool, now_ms: u64) {
        self.probe = Probe::Idle;
        if passed {
            (self.state, self.trouble) = (DeviceState::Up, None);
            (self.write_errors, self.read_errors) = (0, 0);
            self.up_since_ms = now_ms;
        } else {
            self.wait(now_ms);
        }
    }
}

/// Errors that every further operation of the device will get too.
fn is_gone(error: IoError) -> bool {
    // ENXIO, ENODEV, ENOMEDIUM; the numbers are the same on every Linux.
    matches!(error, IoError::Os(6 | 19 | 123))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIO: Result<(), IoError> = Err(IoError::Os(5));

    #[test]
    fn some_errors_among_successes_change_nothing() {
        let mut health = Health::new();
        for n in 0..1000 {
            let result = if n % 3 == 0 { Ok(()) } else { EIO };
            assert!(!health.note_write(result, n) && !health.note_read(result, n));
        }
        assert_eq!(health.state(), DeviceState::Up);
    }

    #[test]
    fn writes_rest_before_reads_and_probes_wait_longer_each_time() {
        let mut health = Health::new();
        assert_eq!((0..4).filter(|_| health.note_write(EIO, 0)).count(), 1);
        assert_eq!(health.state(), DeviceState::ReadOnly);
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..10 {
            let from = now;
            while !health.probe_due(now) {
                now += 100;
            }
            waits.push(now - from);
            health.probe_ended(false, now);
        }
        assert!(waits.is_sorted() && waits[9] == 60_000, "{waits:?}");
        assert_eq!((0..16).filter(|_| health.note_read(EIO, now)).count(), 1);
        assert_eq!(health.state(), DeviceState::Out);
        health.probe_ended(true, now);
        assert_eq!(health.state(), DeviceState::Up);
        // A device that fails again soon waits longer. After a while the waits start again.
        assert_eq!((0..4).filter(|_| health.note_write(EIO, now)).count(), 1);
        assert!(!health.probe_due(now + 59_000));
        health.probe_ended(true, now);
        now += 100_000;
        assert_eq!((0..4).filter(|_| health.note_write(EIO, now)).count(), 1);
        assert!(health.probe_due(now + FIRST_WAIT_MS));
    }

    #[test]
    fn a_device_that_ends_something_now_and_then_does_not_stall() {
        let mut health = Health::new();
        health.begin(5000);
        for n in 0..10 {
            assert!(!health.stalls(5900 + n * 900));
            health.begin(5900 + n * 900);
            health.end(5900 + n * 900);
        }
        assert!(health.is_busy(), "the first operation is still there");
        assert!(health.stalls(20_000));
        assert!(
            health.note_stall(20_000) && !health.probe_due(90_000),
            "busy"
        );
        health.end(90_000);
        assert!(health.probe_due(90_000) && !health.stalls(190_000));
    }

    #[test]
    fn pauses_are_counted_once_however_much_waited() {
        let mut health = Health::new();
        // The device got nothing in the first second, so that is not a pause.
        for n in 0..8 {
            health.begin(1000 + n);
        }
        for _ in 0..8 {
            health.end(1500);
        }
        assert_eq!(health.pauses, Pauses { count: 1, ms: 500 });
        health.begin(3000);
        health.end(3000 + PAUSE_MS - 1);
        assert_eq!(health.pauses.count, 1);
    }

    #[test]
    fn a_device_that_is_gone_is_out_at_once() {
        let mut health = Health::new();
        assert!(health.note_read(Err(IoError::Os(19)), 0));
        assert_eq!(health.state(), DeviceState::Out);
    }

    /// The server's log names the problem of a device in the system's own words.
    #[test]
    fn a_trouble_says_what_fails_and_why() {
        let full = IoError::Short { want: 8, got: 3 };
        let said = "writes fail (3 of 8 bytes were transferred)";
        assert_eq!(DeviceTrouble::Writes(full).to_string(), said);
        let said = "reads fail (3 of 8 bytes were transferred)";
        assert_eq!(DeviceTrouble::Reads(full).to_string(), said);
        assert_eq!(DeviceTrouble::Stalled.to_string(), "it does not answer");
    }
}
