// SPDX-License-Identifier: Apache-2.0
//! Where chapter 4.2's structures run: on a file, with the machine's clock, and on simulated
//! drives, with their own.

use std::time::Instant;

use anyhow::Result;
use senko_io::{Device, FileOptions, FlashFile};
use senko_ssd::device::Parts;
use senko_ssd::drive::Drive;
use senko_ssd::engine_device::SimulatedDevice;
use senko_ssd::precondition::Precondition;
use senko_ssd::profile::Profile;

use crate::rig::scratch::Scratch;
use crate::rig::{Steps, cleanup};
use crate::{Options, Outcome, Progress};

/// A simulated drive, and its contents before the run.
#[derive(Clone, Copy, Debug)]
pub struct Simulated {
    /// Its name in results: lower case, no blanks.
    pub name: &'static str,
    pub profile: &'static str,
    /// Its contents.
    pub before: Precondition,
}

/// The thesis's drive as it was measured: erased before the run.
pub const X25M: Simulated = Simulated {
    name: "x25m",
    profile: "x25-m",
    before: Precondition::InOrder { percent: 0.0 },
};

/// The same drive after everything was written in order and as much again at random, so that it
/// collects garbage.
pub const X25M_FULL: Simulated = Simulated {
    name: "x25m_full",
    before: Precondition::Random { times: 1.0 },
    ..X25M
};

/// A drive with log blocks, like the thesis's USB stick.
pub const STICK: Simulated = Simulated {
    name: "usb_stick",
    profile: "usb-stick",
    ..X25M
};

/// Where an experiment of chapter 4.2 runs: on a file and on these drives.
pub struct Beds<'a> {
    /// The folder of the file.
    pub scratch: &'a Scratch,
    /// Shows the progress of the experiment.
    pub progress: &'a dyn Progress,
    pub drives: &'a [Simulated],
    /// The seed of keys and drives.
    pub seed: u64,
}

impl Beds<'_> {
    /// This many steps on each bed.
    pub fn steps(&self, each: usize) -> Steps<'_> {
        Steps::new(self.progress, (each * (self.drives.len() + 1)) as u64)
    }

    /// The file, followed by the drives.
    pub fn all(&self) -> impl Iterator<Item = Option<Simulated>> {
        let drives = self.drives.iter().copied().map(Some);
        std::iter::once(None).chain(drives)
    }

    /// A bed: a drive, or else a file of this name with this many bytes.
    pub fn bed(&self, on: Option<Simulated>, name: &str, bytes: u64) -> Result<Bed> {
        match on {
            Some(drive) => Bed::simulated(drive, self.seed),
            None => Bed::file(self.scratch, name, bytes),
        }
    }
}

/// Runs an experiment of chapter 4.2 on a file and on these drives.
pub fn run_on(
    options: &Options,
    progress: &dyn Progress,
    outcome: &mut Outcome,
    drives: &[Simulated],
    measure: impl FnOnce(&Beds<'_>, &mut Outcome) -> Result<()>,
) -> Result<()> {
    cleanup::on_signals();
    let scratch = Scratch::new(&options.scratch)?;
    let beds = Beds {
        scratch: &scratch,
        progress,
        drives,
        seed: options.seed,
    };
    measure(&beds, outcome)
}

/// The device of a bed.
enum Kind {
    File(FlashFile, Instant),
    Simulated(Box<SimulatedDevice>),
}

/// A device with a clock.
pub struct Bed {
    /// Its name in results.
    pub name: &'static str,
    kind: Kind,
}

impl Bed {
    /// A new file of `bytes` that reads as zeros, with the machine's clock.
    pub fn file(scratch: &Scratch, name: &str, bytes: u64) -> Result<Bed> {
        scratch.need(bytes)?;
        let options = FileOptions {
            bytes,
            ..FileOptions::default()
        };
        let file = FlashFile::open(&scratch.path(name), &options)?;
        Ok(Bed {
            name: "file",
            kind: Kind::File(file, Instant::now()),
        })
    }

    /// A simulated drive, with its own clock.
    pub fn simulated(of: Simulated, seed: u64) -> Result<Bed> {
        let parts = Parts {
            seed,
            ..Parts::default()
        };
        let mut drive = Drive::new(&Profile::find(of.profile)?, &parts)?;
        drive.prepare(of.before, |_, _| true)?;
        Ok(Bed {
            name: of.name,
            kind: Kind::Simulated(Box::new(SimulatedDevice::new(drive))),
        })
    }

    pub fn device(&self) -> &dyn Device {
        match &self.kind {
            Kind::File(file, _) => file,
            Kind::Simulated(device) => &**device,
        }
    }

    /// Its clock, in microseconds.
    pub fn now_us(&self) -> f64 {
        match &self.kind {
            Kind::File(_, start) => start.elapsed().as_secs_f64() * 1e6,
            Kind::Simulated(device) => device.now() as f64 / 1e3,
        }
    }
}

/// The mean of the last values.
pub struct Recent {
    times: Vec<f64>,
    at: usize,
    full: bool,
}

impl Recent {
    /// The mean of the last `count` values.
    pub fn new(count: usize) -> Recent {
        Recent {
            times: vec![0.0; count],
            at: 0,
            full: false,
        }
    }

    /// Adds a value; returns the mean of the last ones, if there are enough.
    pub fn add(&mut self, time: f64) -> Option<f64> {
        self.times[self.at] = time;
        self.at = (self.at + 1) % self.times.len();
        self.full |= self.at == 0;
        self.full
            .then(|| self.times.iter().sum::<f64>() / self.times.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_last_is_known_once_there_are_so_many() {
        let mut recent = Recent::new(3);
        assert_eq!((recent.add(1.0), recent.add(2.0)), (None, None));
        assert_eq!((recent.add(3.0), recent.add(7.0)), (Some(2.0), Some(4.0)));
    }
}
