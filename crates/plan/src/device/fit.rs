// SPDX-License-Identifier: Apache-2.0
//! A profile fitted to a measurement, so that the simulator has a drive that is about as fast.
//!
//! Five figures of the measurement set five times of the profile; the rest is a template's. Each
//! round measures the simulated drive in the same way as the real one, and adds to each time what
//! its figure lacks.
//!
//! | figure | time of the profile |
//! |---|---|
//! | a random read of 4 KiB | the flash's read |
//! | random reads of 4 KiB a second, the most of all depths | a command on the link |
//! | a read of 4 MiB in order | a byte on the link |
//! | a random write of 4 KiB | a write command on the link |
//! | a write of 4 MiB in order | the flash's program |
//!
//! Where channels, dies or queues would limit the link, they become faster, more or deeper. What
//! the host cannot see stays the template's: capacity, spare room, cells, buffers. A drive of log
//! blocks gets BAST with its usual options.

use anyhow::{Context, Result};
use senko_ssd::Time;
use senko_ssd::device::Parts;
use senko_ssd::drive::Drive;
use senko_ssd::engine_device::SimulatedDevice;
use senko_ssd::link::Link;
use senko_ssd::profile::{Interface, Profile};

use super::{Depth, LARGEST, Mapping, Measured, PAGE, SimulatedTarget, measure};

/// Rounds of the fit.
const ROUNDS: usize = 12;
/// A plane keeps this many blocks when dies are added.
const LEAST_BLOCKS: u32 = 64;
/// Bytes of the simulated drive that a round measures over.
const OVER: u64 = 64 << 20;

/// The figures that a fit keeps to, as nanoseconds of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// A random read of 4 KiB.
    pub read_ns: f64,
    /// The same at the depth with the most reads a second: a second over their number.
    pub read_at_depth_ns: f64,
    /// A read of 4 MiB in order.
    pub long_read_ns: f64,
    /// A random write of 4 KiB.
    pub write_ns: f64,
    /// A write of 4 MiB in order.
    pub long_write_ns: f64,
}

impl Figures {
    /// Those of a measurement; `None` if it was of too small a target.
    pub fn of(measured: &Measured) -> Option<Self> {
        let sized = |bytes| measured.sizes.iter().find(|size| size.bytes == bytes);
        let (short, long) = (sized(PAGE)?, sized(LARGEST)?);
        let rates = measured.depths.iter().map(|depth| depth.reads_per_second);
        Some(Self {
            read_ns: short.read_random_ns,
            read_at_depth_ns: 1e9 / rates.fold(1.0, f64::max),
            long_read_ns: long.read_in_order_ns,
            write_ns: short.write_random_ns,
            long_write_ns: long.write_in_order_ns,
        })
    }

    /// With their names.
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("random read of 4 KiB", self.read_ns),
            ("the same, many under way", self.read_at_depth_ns),
            ("read of 4 MiB in order", self.long_read_ns),
            ("random write of 4 KiB", self.write_ns),
            ("write of 4 MiB in order", self.long_write_ns),
        ]
    }

    /// The largest factor by which a figure is off.
    fn distance(&self, from: &Self) -> f64 {
        let pairs = self.named().into_iter().zip(from.named());
        pairs
            .map(|((_, a), (_, b))| off_by(a, b))
            .fold(1.0, f64::max)
    }
}

/// The factor between two times, 1 or more.
pub fn off_by(one: f64, other: f64) -> f64 {
    let (one, other) = (one.max(1.0), other.max(1.0));
    (one / other).max(other / one)
}

/// A profile that was fitted.
#[derive(Clone, Debug)]
pub struct Fit {
    pub profile: Profile,
    /// What it is fitted to.
    pub wanted: Figures,
    /// What a simulated drive of this profile gives.
    pub found: Figures,
}

/// The times that a fit changes.
#[derive(Clone, Copy, Debug)]
struct Times {
    read: f64,
    program: f64,
    command: f64,
    write_command: f64,
    byte: f64,
}

impl Times {
    fn of(profile: &Profile) -> Self {
        let rate = profile.link.bytes_per_second().unwrap_or(1e10);
        Self {
            read: profile.timing.read_ns as f64,
            program: profile.timing.program_ns as f64,
            command: 1000.0,
            write_command: 1000.0,
            byte: 1e9 / rate,
        }
    }

    fn set(&self, profile: &mut Profile) {
        let whole = |ns: f64| ns.round().max(1.0) as Time;
        profile.timing.read_ns = whole(self.read);
        profile.timing.program_ns = whole(self.program);
        // The channels carry at least twice what the link does.
        let channels = f64::from(profile.geometry.channels);
        let bus = profile.timing.bus_ns_per_byte;
        profile.timing.bus_ns_per_byte = bus.min(self.byte * channels / 2.0);
        profile.link = Link::Other {
            bytes_per_second: (1e9 / self.byte).round().max(1.0) as u64,
            command_ns: whole(self.command),
            write_command_ns: Some(whole(self.write_command)),
        };
    }

    /// Nearer to the wanted figures, after those of a drive with these times were found.
    fn nearer(&self, wanted: &Figures, found: &Figures) -> Self {
        let add = |time: f64, lacks: f64| (time + lacks).clamp(time / 4.0, time * 4.0 + 1000.0);
        let command = add(
            self.command,
            wanted.read_at_depth_ns - found.read_at_depth_ns,
        );
        Self {
            // What the command takes, the flash must not take too.
            read: add(
                self.read,
                wanted.read_ns - found.read_ns - (command - self.command),
            ),
            command,
            write_command: add(self.write_command, wanted.write_ns - found.write_ns),
            byte: (self.byte * wanted.long_read_ns / found.long_read_ns).clamp(1e-3, 1e6),
            program: (self.program * wanted.long_write_ns / found.long_write_ns)
                .clamp(self.program / 2.0, self.program * 2.0)
                .max(1.0),
        }
    }
}

/// Fits a profile to a measurement, from a template.
///
/// # Errors
/// If the target was too small, or the template cannot be simulated.
pub fn fit(measured: &Measured, template: &Profile) -> Result<Fit> {
    let wanted = Figures::of(measured).context("the target is too small to fit a profile to it")?;
    let mut profile = template.clone();
    if measured.verdict.mapping == Mapping::LogBlocks && !profile.ftl.starts_with("bast") {
        profile.ftl = "bast".to_owned();
    }
    widen(&mut profile, &wanted);
    let most = |best: &Depth, depth: &Depth| depth.reads_per_second > best.reads_per_second;
    let depths = measured.depths.iter().copied();
    let deepest = depths.reduce(|best, depth| if most(&best, &depth) { depth } else { best });
    profile.interface = deeper(
        profile.interface,
        deepest.map_or(1, |best| best.depth as u32),
    );
    let mut times = Times::of(&profile);
    let mut best: Option<Fit> = None;
    for _ in 0..ROUNDS {
        times.set(&mut profile);
        let found = simulated(&profile)?;
        let distance = found.distance(&wanted);
        if best
            .as_ref()
            .is_none_or(|best| distance < best.found.distance(&wanted))
        {
            best = Some(Fit {
                profile: profile.clone(),
                wanted,
                found,
            });
        }
        if distance < 1.01 {
            break;
        }
        times = times.nearer(&wanted, &found);
    }
    best.context("no round was made")
}

/// Gives the flash as many dies as the figures need, each with fewer blocks. By Little's law, the
/// time of one read over its part of the time of many is how many are under way at once. Random
/// reads need twice as many dies, because some of them meet at one.
fn widen(profile: &mut Profile, wanted: &Figures) {
    let in_order_ns = wanted.long_read_ns / (LARGEST / PAGE) as f64;
    let page_ns = in_order_ns.min(wanted.read_at_depth_ns / 2.0);
    let needed = wanted.read_ns / page_ns.max(1.0);
    let shape = &mut profile.geometry;
    while needed > f64::from(shape.channels * shape.dies * shape.planes)
        && shape.blocks.is_multiple_of(2)
        && shape.blocks > LEAST_BLOCKS
    {
        shape.dies *= 2;
        shape.blocks /= 2;
    }
}

/// An interface that takes this many requests at once.
fn deeper(interface: Interface, depth: u32) -> Interface {
    let most = match interface {
        Interface::Single => 1,
        Interface::Ncq { depth } => depth,
        Interface::Nvme { queues, depth } => queues * depth,
    };
    match most < depth {
        true => Interface::Nvme { queues: 1, depth },
        false => interface,
    }
}

/// The figures of a simulated drive.
fn simulated(profile: &Profile) -> Result<Figures> {
    let drive = Drive::new(profile, &Parts::default())?;
    let mut target = SimulatedTarget::new(SimulatedDevice::new(drive), OVER);
    let measured = measure(&mut target, 1, &())?;
    Figures::of(&measured).context("the simulated drive is too small")
}

impl Fit {
    /// The figures of the simulated drive that are off by a larger factor than this: the name, the
    /// time that was measured, the one that was found.
    pub fn off(&self, factor: f64) -> Vec<(&'static str, f64, f64)> {
        let all = self.wanted.named().into_iter().zip(self.found.named());
        all.map(|((name, wanted), (_, found))| (name, wanted, found))
            .filter(|(_, wanted, found)| off_by(*wanted, *found) > factor)
            .collect()
    }
}
