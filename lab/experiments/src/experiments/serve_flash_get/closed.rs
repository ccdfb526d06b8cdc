// SPDX-License-Identifier: Apache-2.0
//! Closed loops at one number of connections, with the device's own rate measured before each
//! round, and the bars that compare the two.

use crate::rig::fio::Reads;
use crate::rig::series::Contender;
use crate::rig::wire::Stats;
use crate::rig::{Figure, Rounds, Series, Window, median, some};

pub(super) const FLASH: fn(&Window) -> f64 = Window::flash_hits_per_second;

#[derive(Default)]
pub(super) struct Device {
    pub(super) reads: Vec<Reads>,
    pub(super) trouble: Option<String>,
    /// Reads that reached the device for each that fio made.
    pub(super) reached: Vec<f64>,
}

impl Device {
    pub(super) fn figure(&self, what: fn(&Reads) -> f64) -> Figure {
        median(self.reads.iter().map(what).collect()).ok_or_else(|| self.why())
    }

    pub(super) fn why(&self) -> String {
        let why = self.trouble.as_deref();
        why.unwrap_or("fio was not run").to_owned()
    }
}

/// The contenders at one number of connections, and the device right before each round of them.
pub(super) struct Closed {
    pub(super) connections: usize,
    pub(super) all: Vec<Series>,
    pub(super) device: Device,
}

impl Closed {
    pub(super) fn new(connections: usize, contenders: &[(&str, &Contender)], what: &str) -> Closed {
        Closed {
            connections,
            all: Series::of(contenders, &format!("{connections} connections{what}")),
            device: Device::default(),
        }
    }

    /// GETs of a contender from flash, over the device's reads, in each round.
    pub(super) fn over_device(&self, contender: usize, of: fn(&Window) -> f64) -> Rounds {
        let series = &self.all[contender];
        let rounds = series.windows.iter().zip(&self.device.reads);
        some(rounds.map(|(window, reads)| of(window) / reads.per_second))
            .ok_or_else(|| series.figure(of).err().unwrap_or(self.device.why()))
    }
}

/// As [`Closed::over_device`], with the most connections. The number is fixed, because the largest
/// of several figures is too large by their noise.
pub(super) fn over_device(closed: &[Closed], contender: usize, of: fn(&Window) -> f64) -> Rounds {
    let most = closed.last().ok_or("no window had enough connections")?;
    most.over_device(contender, of)
}

/// GETs from flash of the first contender at its best number of connections, over a rival's at its
/// best, in each round.
pub(super) fn over_rival(closed: &[Closed], rival: usize) -> Rounds {
    let best = |contender: usize, round: usize| -> Option<f64> {
        let windows = closed
            .iter()
            .filter_map(|one| one.all[contender].windows.get(round));
        windows.map(FLASH).reduce(f64::max)
    };
    let ratios = (0..).map_while(|round| Some(best(0, round)? / best(rival, round)?));
    some(ratios).ok_or_else(|| {
        let figures = |of: usize| largest(closed.iter().map(move |one| one.all[of].figure(FLASH)));
        let missing = figures(0).and(figures(rival)).err();
        missing.unwrap_or_else(|| "no round had both".to_owned())
    })
}

/// The largest of some figures; the first error if there is none.
pub(super) fn largest(figures: impl Iterator<Item = Figure>) -> Figure {
    figures
        .reduce(|a, b| match (a, b) {
            (Ok(a), Ok(b)) => Ok(a.max(b)),
            (Ok(a), Err(_)) | (Err(_), Ok(a)) => Ok(a),
            (a, _) => a,
        })
        .unwrap_or_else(|| Err("no window had enough connections".to_owned()))
}

/// Bytes that a server wrote to its flash file, and the end of the file's name. Senko has
/// extstore's statistics too, so that its own are looked for first.
pub(super) fn written(stats: &Stats) -> Option<(f64, &'static str)> {
    let of = |name: &str, kind| Some((*stats.get(name)?, kind));
    of("flash_written_bytes", "flash").or_else(|| of("extstore_bytes_written", "ext"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When senko got extstore's statistics, fio once read a file that did not exist, and no figure
    /// was compared with the device.
    #[test]
    fn each_server_has_its_own_file() {
        let stats = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 5.0)).collect();
        let senko: Stats = stats(&["extstore_bytes_written", "flash_written_bytes"]);
        assert_eq!(written(&senko), Some((5.0, "flash")));
        assert_eq!(
            written(&stats(&["extstore_bytes_written"])),
            Some((5.0, "ext"))
        );
        assert_eq!(written(&Stats::new()), None);
    }
}
