// SPDX-License-Identifier: Apache-2.0
//! Was the machine calm? The same small work before and after a run: arithmetic on each core, and
//! reads of a file one at a time.
//!
//! If others use the machine, or if its device is fast in some minutes and slow in others, ratios
//! mean little. Then the run is reported as `noisy`.

use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use senko_io::{AlignedBuf, Device, Engine, FileOptions, FlashFile, PAGE_SIZE, Purpose, Tag};
use senko_workload::Rng;

use super::sys;
use crate::Outcome;

/// Time of one probe.
const TIME: Duration = Duration::from_millis(300);
/// Pages of the file that is read.
const PAGES: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Calm {
    /// Rounds of arithmetic a second, on each of the two cores.
    pub rounds: [f64; 2],
    pub reads: f64,
}

/// The probes and their resources.
pub struct Probe {
    file: FlashFile,
    cores: [usize; 2],
}

const TAG: Tag = Tag {
    engine: Engine::Lab,
    purpose: Purpose::Lookup,
};

impl Probe {
    /// Writes the file that is read.
    pub fn new(path: &Path, cores: [usize; 2]) -> Result<Probe> {
        let options = FileOptions {
            bytes: (PAGES * PAGE_SIZE) as u64,
            ..FileOptions::default()
        };
        let file = FlashFile::open(path, &options)?;
        let mut chunk = AlignedBuf::new(256);
        let mut rng = Rng::new(1);
        for page in (0..PAGES as u64).step_by(256) {
            for word in chunk.chunks_exact_mut(8) {
                word.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            Device::write(&file, page, &chunk, TAG)
                .map_err(|error| anyhow!("the probe's file cannot be written: {error}"))?;
        }
        Device::flush(&file, TAG)
            .map_err(|error| anyhow!("the probe's file cannot be flushed: {error}"))?;
        Ok(Probe { file, cores })
    }

    pub fn look(&self) -> Result<Calm> {
        let mut rounds = [0.0; 2];
        for (core, rounds) in self.cores.iter().zip(&mut rounds) {
            *rounds = on_core(*core, arithmetic)?;
        }
        let reads = on_core(self.cores[0], || self.read())??;
        Ok(Calm { rounds, reads })
    }

    fn read(&self) -> Result<f64> {
        let mut page = AlignedBuf::new(1);
        let mut rng = Rng::new(2);
        let (start, mut count) = (Instant::now(), 0.0);
        while start.elapsed() < TIME {
            let at = rng.below(PAGES as u64);
            Device::read(&self.file, at, &mut page, TAG)
                .map_err(|error| anyhow!("the probe's file cannot be read: {error}"))?;
            count += 1.0;
        }
        Ok(count / start.elapsed().as_secs_f64())
    }
}

impl Calm {
    /// Compares two probes in the outcome.
    pub fn compare(&self, after: &Calm, outcome: &mut Outcome) {
        for (before, after) in self.rounds.iter().zip(after.rounds) {
            outcome.probe(*before, after);
        }
        outcome.probe(self.reads, after.reads);
        let pair = |before: f64, after: f64| serde_json::json!([before.round(), after.round()]);
        outcome.setting(
            "probe_rounds_a_second_first_core",
            pair(self.rounds[0], after.rounds[0]),
        );
        outcome.setting(
            "probe_rounds_a_second_second_core",
            pair(self.rounds[1], after.rounds[1]),
        );
        outcome.setting("probe_reads_a_second", pair(self.reads, after.reads));
    }
}

/// Rounds of 1,000 dependent multiplications a second.
fn arithmetic() -> f64 {
    let (start, mut count, mut x) = (Instant::now(), 0.0, 1_u64);
    while start.elapsed() < TIME {
        for _ in 0..1000 {
            x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1);
        }
        count += 1.0;
    }
    count / start.elapsed().as_secs_f64()
}

/// Runs `work` in its own thread on `core`.
pub fn on_core<T: Send>(core: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let pinned = move || {
            sys::pin(&[core])
                .with_context(|| format!("this process may not run on core {core}"))?;
            Ok(work())
        };
        let thread = thread::Builder::new()
            .name("lab-pinned".into())
            .spawn_scoped(scope, pinned);
        thread
            .context("a thread cannot be started")?
            .join()
            .map_err(|_| anyhow!("a thread of the experiment panicked"))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_where_it_is_put() {
        let core = *sys::cores().unwrap().last().unwrap();
        assert_eq!(on_core(core, || sys::cores().unwrap()).unwrap(), [core]);
        assert!(on_core(libc::CPU_SETSIZE as usize - 1, || ()).is_err());
    }

    #[test]
    fn probes_count() {
        let path = std::env::temp_dir().join(format!("senko-probe-{}", std::process::id()));
        let core = sys::cores().unwrap()[0];
        let calm = Probe::new(&path, [core, core]).and_then(|probe| probe.look());
        std::fs::remove_file(&path).unwrap();
        let calm = calm.unwrap();
        assert!(calm.reads > 0.0 && calm.rounds[0] > 0.0);
        let mut outcome = Outcome::new();
        calm.compare(&calm, &mut outcome);
        assert_eq!(outcome.noisy(), Some(false));
    }
}
