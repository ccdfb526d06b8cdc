// SPDX-License-Identifier: Apache-2.0
//! Runs the load generator against a contender, and takes the counts of both sides for a window.
//!
//! The generator (`senko_load`) runs in this process, in threads on its own core. A [`Window`] has
//! its results and the other counts of the same time: the server's statistics, its device bytes by
//! the kernel's count for the process, and the device's reads by `/proc/diskstats`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use senko_load::{
    Amount, Changes, Gaps, KeyCount, Pace, Settings, Step, StepReport, Target, TlsOptions,
    reads_and_updates,
};
use senko_workload::rng::mix64;
use senko_workload::{Histogram, KeyShape, Popularity, ValueLen};

use super::bench::Bench;
use super::cleanup;
use super::contender::Server;
use super::device::DiskCounts;
use super::probe::on_core;
use super::process::{self, Io};
use super::wire::{Stats, grown};

/// Zipf's law as the papers' figures use it.
pub const ZIPF: Popularity = Popularity::Zipf {
    s: 0.99,
    scrambled: true,
};

#[derive(Clone, Debug)]
pub struct Items {
    pub keys: u64,
    pub prefix: &'static str,
    pub key: KeyShape,
    pub value: ValueLen,
}

impl Items {
    /// Items with keys and values of fixed lengths.
    pub fn fixed(keys: u64, key: usize, value: usize) -> Items {
        Items {
            keys,
            prefix: "key",
            key: KeyShape::Fixed(key),
            value: ValueLen::Fixed(value),
        }
    }

    /// Items with Facebook's ETC sizes; values are at most `cap` bytes.
    pub fn etc(keys: u64, cap: usize) -> Items {
        Items {
            keys,
            prefix: "key",
            key: KeyShape::Etc,
            value: ValueLen::Etc { cap },
        }
    }
}

#[derive(Clone, Debug)]
pub struct Load {
    pub connections: usize,
    /// Requests under way on each connection.
    pub pipeline: usize,
    /// The share of gets; the rest are sets.
    pub gets: f64,
    /// The share of all requests that are `incr`, `decr`, `append` and `prepend`; the rest are gets
    /// and sets. Items must be filled with the same setting.
    pub changes: Changes,
    /// Whether every answer is checked ([`StepReport::fault_count`]).
    pub verify: bool,
    pub popularity: Popularity,
    /// Requests a second of an open loop; `None`: closed.
    pub rate: Option<f64>,
    /// Whether a miss is followed by a set.
    pub set_on_miss: bool,
    /// The cipher suite of encrypted connections; `None` for plain connections.
    pub tls: Option<&'static str>,
    /// The number of this window among several over the same items, so that each draws different
    /// keys.
    pub round: u64,
}

impl Load {
    /// Gets in a closed loop, uniform over the keys.
    pub fn gets(connections: usize) -> Load {
        Load {
            connections,
            pipeline: 1,
            gets: 1.0,
            changes: Changes::default(),
            verify: false,
            popularity: Popularity::Uniform,
            rate: None,
            set_on_miss: false,
            tls: None,
            round: 0,
        }
    }

    /// The same with this share of gets; the rest are sets.
    pub fn mixed(self, gets: f64) -> Load {
        Load { gets, ..self }
    }

    pub fn pipelined(self, pipeline: usize) -> Load {
        Load { pipeline, ..self }
    }

    pub fn popular(self, popularity: Popularity) -> Load {
        Load { popularity, ..self }
    }

    /// The same in an open loop of so many requests a second.
    pub fn at_rate(self, rate: f64) -> Load {
        let rate = Some(rate);
        Load { rate, ..self }
    }

    /// The same, where a miss is followed by a set.
    pub fn storing_misses(self) -> Load {
        let set_on_miss = true;
        Load {
            set_on_miss,
            ..self
        }
    }

    /// The same, as round `round`.
    pub fn round(self, round: usize) -> Load {
        Load {
            round: round as u64,
            ..self
        }
    }

    /// The seed for drawing keys. It is the same for all contenders of a turn and for runs with one
    /// seed, and differs for each load and round. A window that drew the same keys as an earlier
    /// one would find them in DRAM, however uniform the load.
    fn seed(&self, seed: u64) -> u64 {
        [
            self.round,
            self.connections as u64,
            self.pipeline as u64,
            self.gets.to_bits(),
            self.rate.map_or(0, f64::to_bits),
        ]
        .into_iter()
        .fold(seed, |seed, word| mix64(seed ^ word))
    }
}

#[derive(Clone, Debug)]
pub struct Window {
    pub step: StepReport,
    /// The server's statistics at its start and at its end.
    pub stats: (Stats, Stats),
    /// The operations of the device, including those of other processes; `None` if the kernel does
    /// not report them.
    pub disk: Option<DiskCounts>,
    /// The device I/O of the server's process; `None` if the kernel does not report it.
    pub io: Option<Io>,
}

impl Window {
    pub fn rate(&self) -> f64 {
        self.step.rate()
    }

    /// Gets that found their key, a second.
    pub fn hits_per_second(&self) -> f64 {
        self.step.counts.hits as f64 / self.step.seconds()
    }

    /// Gets that found their key, and sets that stored it, a second.
    pub fn done_per_second(&self) -> f64 {
        (self.step.counts.hits + self.step.counts.stored) as f64 / self.step.seconds()
    }

    /// The share of the keys read that were found; NaN if none was read.
    pub fn found(&self) -> f64 {
        self.step.found_ratio().unwrap_or(f64::NAN)
    }

    pub fn grown(&self, name: &str) -> f64 {
        grown(&self.stats.0, &self.stats.1, name)
    }

    /// Gets a second that were answered from flash: senko's count or extstore's.
    pub fn flash_hits_per_second(&self) -> f64 {
        self.flash_hits() / self.step.seconds()
    }

    /// Gets that were answered by a read of flash. Senko's count is reduced by the gets that found
    /// the item in a write buffer, extstore's by the misses that only a read could detect.
    pub fn flash_hits(&self) -> f64 {
        // Senko has extstore's names too.
        if self.stats.1.contains_key("flash_hits") {
            return self.grown("flash_hits") - self.grown("flash_buffer_hits");
        }
        self.grown("get_extstore")
            - self.grown("miss_from_extstore")
            - self.grown("badcrc_from_extstore")
    }

    /// Processor time of the server for each request, in microseconds.
    pub fn server_us(&self) -> f64 {
        self.step.server.map_or(f64::NAN, |server| {
            self.step.us_per_request(server.time.total())
        })
    }

    /// Processor time of the load generator for each request, in microseconds.
    pub fn load_us(&self) -> f64 {
        self.step.us_per_request(self.step.own_cpu.total())
    }

    /// The share of one core that the server used, in percent.
    pub fn server_percent(&self) -> f64 {
        self.step
            .server
            .map_or(f64::NAN, |server| self.step.percent(server.time.total()))
    }

    /// The share of one core that the load generator used, in percent.
    pub fn load_percent(&self) -> f64 {
        self.step.percent(self.step.own_cpu.total())
    }

    /// Reads that reached the device for each of `commands`, by the device's counters.
    pub fn disk_reads_per(&self, commands: f64) -> f64 {
        self.disk
            .map_or(f64::NAN, |disk| disk.reads as f64 / commands)
    }

    /// Pages that the server's process read from the device for each of `commands`, by the kernel's
    /// count for the process.
    pub fn process_pages_per(&self, commands: f64) -> f64 {
        self.io.map_or(f64::NAN, |io| {
            io.read as f64 / senko_io::PAGE_SIZE as f64 / commands
        })
    }
}

/// A latency of a histogram, in microseconds.
pub fn us(latencies: &Histogram, quantile: f64) -> f64 {
    if latencies.is_empty() {
        return f64::NAN;
    }
    latencies.quantile(quantile) as f64 / 1e3
}

fn settings(
    bench: &Bench<'_>,
    server: &Server,
    items: &Items,
    load: &Load,
    step: Step,
) -> Result<Settings> {
    let pace = match load.rate {
        None => Pace::Closed,
        rate => Pace::Open {
            rate,
            gaps: Gaps::Poisson,
        },
    };
    let (address, tls) = match load.tls {
        None => (server.address, None),
        Some(cipher) => {
            let tls = TlsOptions {
                insecure: true,
                cipher: Some(cipher.to_owned()),
                ..TlsOptions::default()
            };
            (server.secure.context("the server has no TLS")?, Some(tls))
        }
    };
    Ok(Settings {
        target: Target::Tcp(address),
        tls,
        connections: load.connections,
        pipeline: load.pipeline,
        steps: vec![step],
        pace,
        mix: reads_and_updates(load.gets, load.popularity.clone())
            .map_err(|error| anyhow!("{error}"))?,
        changes: load.changes,
        verify: load.verify,
        keys: KeyCount::Keys(items.keys),
        prefix: items.prefix.to_owned(),
        key_shape: items.key,
        value_len: items.value,
        set_on_miss: load.set_on_miss,
        timeout: Duration::from_secs(60),
        server_pid: Some(server.pid()),
        seed: load.seed(bench.options.seed),
        ..Settings::default()
    })
}

/// Runs one step and takes the counts of both sides before and after it.
fn run(bench: &Bench<'_>, server: &Server, settings: &Settings) -> Result<Window> {
    ensure!(
        cleanup::is_alive(server.pid()),
        "{} is gone: it ended, or it was killed for its memory",
        server.name
    );
    let stats = server.stats()?;
    let io = process::io(server.pid()).ok();
    let disk = bench.disk_counts();
    let result = on_core(bench.load_core(), || senko_load::run(settings, &mut |_| ()))?;
    let disk = disk.and_then(|before| Some(bench.disk_counts()?.since(&before)));
    let io = io.and_then(|before| {
        let after = process::io(server.pid()).ok()?;
        Some(Io {
            read: after.read - before.read,
            written: after.written - before.written,
        })
    });
    let mut report = result.with_context(|| format!("the load on {} failed", server.name))?;
    let step = report
        .steps
        .pop()
        .context("the load generator reported no step")?;
    ensure!(
        step.counts.requests > 0,
        "{} answered no request: {}",
        server.name,
        step.errors
            .keys()
            .next()
            .map_or("no reason is known", String::as_str)
    );
    Ok(Window {
        step,
        stats: (stats, server.stats()?),
        disk,
        io,
    })
}

/// Measures `load` for `time`.
/// A server that answers nothing is an error.
pub fn measure(
    bench: &Bench<'_>,
    server: &Server,
    items: &Items,
    load: &Load,
    time: Duration,
) -> Result<Window> {
    let settings = settings(bench, server, items, load, Step::Mix(Amount::For(time)))?;
    run(bench, server, &settings)
}

/// Measures `load` for this many requests.
pub fn measure_requests(
    bench: &Bench<'_>,
    server: &Server,
    items: &Items,
    load: &Load,
    requests: u64,
) -> Result<Window> {
    let settings = settings(
        bench,
        server,
        items,
        load,
        Step::Mix(Amount::Requests(requests)),
    )?;
    run(bench, server, &settings)
}

/// Writes every item once. `rate` slows down a server that loses items if they arrive faster than
/// it can write them out.
pub fn fill(
    bench: &Bench<'_>,
    server: &Server,
    items: &Items,
    rate: Option<f64>,
) -> Result<Window> {
    let load = Load {
        rate,
        ..Load::gets(16)
    };
    fill_as(bench, server, items, &load)
}

/// Writes every item once, many sets at a time: for a server that delays sets when it has to write
/// out.
pub fn fill_fast(bench: &Bench<'_>, server: &Server, items: &Items) -> Result<Window> {
    let load = Load::gets(16).pipelined(16);
    fill_as(bench, server, items, &load)
}

/// Writes the items again that a server dropped while it was filled, in some passes over all items,
/// until nearly all are there.
pub fn mend(bench: &Bench<'_>, server: &Server, items: &Items) -> Result<()> {
    const PASSES: usize = 4;
    const ENOUGH: f64 = 0.998;
    let load = Load::gets(16)
        .popular(Popularity::Sequential)
        .storing_misses();
    for _ in 0..PASSES {
        let pass = measure_requests(bench, server, items, &load, items.keys)?;
        if pass.found() >= ENOUGH {
            break;
        }
    }
    Ok(())
}

/// Writes every item once, with the settings of `load`.
pub fn fill_as(bench: &Bench<'_>, server: &Server, items: &Items, load: &Load) -> Result<Window> {
    let settings = settings(bench, server, items, load, Step::Load)?;
    let window = run(bench, server, &settings)?;
    let counts = &window.step.counts;
    ensure!(
        counts.stored * 100 >= items.keys * 99,
        "{} stored {} of {} items: {}",
        server.name,
        counts.stored,
        items.keys,
        window
            .step
            .errors
            .keys()
            .next()
            .map_or("no reason is known", String::as_str)
    );
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_windows_draw_the_same_keys() {
        let open = Load::gets(64).at_rate(1000.0);
        let mixed = Load::gets(64).mixed(0.95);
        let mut seeds: Vec<u64> = [Load::gets(1), Load::gets(64), open, mixed]
            .into_iter()
            .flat_map(|load| (0..30).map(move |round| load.clone().round(round).seed(1)))
            .collect();
        assert_eq!(
            seeds[7],
            Load::gets(1).round(7).seed(1),
            "a run can be repeated"
        );
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 120);
    }
}
