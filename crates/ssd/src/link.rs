// SPDX-License-Identifier: Apache-2.0
//! The link between host and drive: its data rate, and the cost of a command.
//!
//! ```text
//! read   to the drive |command|   .. the flash ..   to the host |page| |page|
//! write  to the drive |command| |page| |page|   .. the buffer, the flash ..
//! ```
//!
//! On SATA both directions share one line; on PCIe each has its own. Data passes in frames, so
//! transfers of several requests interleave, and none waits while the line is idle. `drive.rs` asks
//! the link for the time of each command and page.

use serde::{Deserialize, Serialize};

use crate::bus::Bus;
use crate::{Error, Op, Time};

/// A drive's link to the host: the section `[link]` of a profile.
///
/// ```
/// use senko_ssd::link::Link;
///
/// let link = Link::Pcie { generation: 4, lanes: 4, command_ns: 1000, bytes_per_second: None };
/// let rate = link.bytes_per_second().expect("it has one");
/// assert!((7.19e9..7.21e9).contains(&rate));
/// assert_eq!(Link::None.bytes_per_second(), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Link {
    /// No link is modelled: data takes no time.
    #[default]
    None,
    /// Serial ATA, one direction at a time.
    Sata {
        /// 1, 2 or 3: 1.5, 3 or 6 Gbit/s.
        generation: u32,
        /// How long a command occupies the link, in nanoseconds.
        command_ns: Time,
        /// The same for a write, if it differs.
        write_command_ns: Option<Time>,
        /// The drive's own limit, if it is below the line's rate.
        bytes_per_second: Option<u64>,
    },
    /// PCI Express, both directions at once.
    Pcie {
        /// 1 to 6.
        generation: u32,
        /// 1, 2, 4, 8 or 16.
        lanes: u32,
        /// How long a command occupies the direction to the drive, in nanoseconds.
        command_ns: Time,
        /// The drive's own limit, if it is below the link's rate.
        bytes_per_second: Option<u64>,
    },
    /// Any other link, one direction at a time.
    Other {
        bytes_per_second: u64,
        /// How long a command occupies the link, in nanoseconds.
        command_ns: Time,
        /// The same for a write, if it differs.
        write_command_ns: Option<Time>,
    },
}

/// Bytes of a SATA frame: 8 KiB of data, four bytes of header, four of checksum, and the two words
/// that begin and end it.
const SATA_FRAME: (f64, f64) = (8192.0, 8192.0 + 16.0);
/// Bytes of a PCIe packet: the usual payload, and header, sequence number, checksum and framing.
const PCIE_PACKET: (f64, f64) = (256.0, 256.0 + 24.0);

impl Link {
    /// Bytes of data a second in one direction; `None` without a limit.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let data = match *self {
            Self::None => return None,
            Self::Sata { generation, .. } => {
                // The line carries eight bits of data as ten.
                let line = 0.75e9 * f64::from(1u32 << generation.min(31)) / 10.0;
                line * SATA_FRAME.0 / SATA_FRAME.1
            }
            Self::Pcie {
                generation, lanes, ..
            } => {
                let line = match generation {
                    1 => 2.5e9 * 0.8,
                    2 => 5e9 * 0.8,
                    // Generation 6 has another encoding, with about the same overhead.
                    _ => {
                        8e9 * f64::from(1u32 << generation.saturating_sub(3).min(31)) * 128.0
                            / 130.0
                    }
                };
                line / 8.0 * f64::from(lanes) * PCIE_PACKET.0 / PCIE_PACKET.1
            }
            Self::Other { .. } => f64::INFINITY,
        };
        Some(self.limit().map_or(data, |limit| data.min(limit as f64)))
    }

    /// The drive's own limit, in bytes a second.
    fn limit(&self) -> Option<u64> {
        match *self {
            Self::None => None,
            Self::Sata {
                bytes_per_second, ..
            }
            | Self::Pcie {
                bytes_per_second, ..
            } => bytes_per_second,
            Self::Other {
                bytes_per_second, ..
            } => Some(bytes_per_second),
        }
    }

    /// How long a command occupies the link.
    fn command_ns(&self, op: Op) -> Time {
        match *self {
            Self::None => 0,
            Self::Sata {
                write_command_ns: Some(ns),
                ..
            }
            | Self::Other {
                write_command_ns: Some(ns),
                ..
            } if op == Op::Write => ns,
            Self::Sata { command_ns, .. }
            | Self::Pcie { command_ns, .. }
            | Self::Other { command_ns, .. } => command_ns,
        }
    }

    /// Refuses impossible links.
    ///
    /// # Errors
    /// If no such link exists, or its rate is 0.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Profile(what));
        match *self {
            Self::Sata { generation, .. } if !(1..=3).contains(&generation) => refuse(format!(
                "generation in [link] is {generation}, and SATA has 1, 2 and 3"
            )),
            Self::Pcie { generation, .. } if !(1..=6).contains(&generation) => refuse(format!(
                "generation in [link] is {generation}, and must be 1 to 6"
            )),
            Self::Pcie { lanes, .. } if !matches!(lanes, 1 | 2 | 4 | 8 | 16) => refuse(format!(
                "lanes in [link] is {lanes}, and must be 1, 2, 4, 8 or 16"
            )),
            _ if self.limit() == Some(0) => {
                refuse("bytes_per_second in [link] is 0, and must be at least 1".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// How long each direction was busy, in nanoseconds. If both share a line, the first has the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkBusy {
    /// Commands and data to the drive.
    pub to_drive_ns: Time,
    /// Data to the host.
    pub to_host_ns: Time,
}

senko_io::counters! {
    LinkBusy: to_drive_ns to_host_ns
}

/// A link in time.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    link: Link,
    ns_per_byte: f64,
    /// To the drive, and to the host; only the first if they share a line.
    to_drive: Bus,
    to_host: Option<Bus>,
    busy: LinkBusy,
}

impl Wire {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link,
            ns_per_byte: link.bytes_per_second().map_or(0.0, |rate| 1e9 / rate),
            to_drive: Bus::default(),
            to_host: matches!(link, Link::Pcie { .. }).then(Bus::default),
            busy: LinkBusy::default(),
        }
    }

    /// Whether a link is modelled.
    pub(crate) fn is_limited(&self) -> bool {
        self.link != Link::None
    }

    pub(crate) fn busy(&self) -> LinkBusy {
        self.busy
    }

    /// Sends a command to the drive; returns its arrival.
    pub(crate) fn command(&mut self, op: Op, at: Time) -> Time {
        let length = self.link.command_ns(op);
        self.busy.to_drive_ns += length;
        self.to_drive.fill(at, length)
    }

    /// Sends data to the drive; returns its arrival.
    pub(crate) fn receive(&mut self, bytes: u64, at: Time) -> Time {
        let length = (bytes as f64 * self.ns_per_byte) as Time;
        self.busy.to_drive_ns += length;
        self.to_drive.fill(at, length)
    }

    /// Sends data to the host; returns its arrival.
    pub(crate) fn send(&mut self, bytes: u64, at: Time) -> Time {
        let length = (bytes as f64 * self.ns_per_byte) as Time;
        let Some(bus) = &mut self.to_host else {
            return self.receive(bytes, at);
        };
        self.busy.to_host_ns += length;
        bus.fill(at, length)
    }

    /// Says that nothing will be requested before `now` any more.
    pub(crate) fn advance(&mut self, now: Time) {
        self.to_drive.forget_before(now);
        if let Some(bus) = &mut self.to_host {
            bus.forget_before(now);
        }
    }

    /// Treats everything so far as done at time 0.
    pub(crate) fn rest(&mut self) {
        self.to_drive = Bus::default();
        self.to_host = self.to_host.take().map(|_| Bus::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcie(generation: u32, lanes: u32) -> Link {
        Link::Pcie {
            generation,
            lanes,
            command_ns: 1000,
            bytes_per_second: None,
        }
    }

    fn sata(generation: u32, bytes_per_second: Option<u64>) -> Link {
        Link::Sata {
            generation,
            command_ns: 1000,
            write_command_ns: None,
            bytes_per_second,
        }
    }

    #[test]
    fn rates_are_those_of_the_standards() {
        // Gigabytes a second of data: the line's rate, its code, its frames.
        for (link, expected) in [
            (sata(1, None), 0.1497),
            (sata(2, None), 0.2994),
            (sata(3, None), 0.5988),
            (sata(2, Some(250_000_000)), 0.25),
            (pcie(1, 1), 0.2286),
            (pcie(2, 4), 1.829),
            (pcie(3, 4), 3.601),
            (pcie(4, 4), 7.202),
            (pcie(5, 4), 14.40),
        ] {
            let rate = link.bytes_per_second().expect("a limit") / 1e9;
            assert!((rate / expected - 1.0).abs() < 1e-3, "{link:?}: {rate}");
        }
    }

    #[test]
    fn what_no_standard_has_is_refused() {
        let refused = [
            sata(0, None),
            sata(4, None),
            pcie(7, 4),
            pcie(4, 3),
            sata(2, Some(0)),
        ];
        for link in refused {
            let error = link.check().expect_err("it was taken").to_string();
            assert!(error.contains("[link]"), "{error}");
        }
        assert!(pcie(5, 4).check().is_ok() && Link::None.check().is_ok());
    }
}
