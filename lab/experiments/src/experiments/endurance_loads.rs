// SPDX-License-Identifier: Apache-2.0
//! The loads of the endurance experiments: real traces as page writes and reads of a 1 GiB drive,
//! generated ones, and mixes of phases.
//!
//! Addresses are taken modulo the drive, devices are ignored, and partial pages count as whole
//! ones, as in the endurance paper's simulator. A load is held in memory, 4 bytes a page.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use senko_ssd::device::Device;
use senko_ssd::ftl;
use senko_ssd::profile::Profile;
use senko_ssd::source::Workload;
use senko_ssd::trace::{Fold, Range, TraceSpec};
use senko_ssd::{Op, Request};

use crate::{Options, Outcome, Progress, Scale};

/// A page access: the page, and this bit for a write.
const WRITE: u32 = 1 << 31;

pub struct Load {
    pub name: String,
    /// Page accesses.
    accesses: Vec<u32>,
}

/// Real traces: name, file, and whether the quick run has it.
const TRACES: [(&str, &str, bool); 11] = [
    ("Financial1", "Financial1_first10k.spc", true),
    ("MSN-FS", "MSN-FS_150k.disksim_ms", false),
    ("TPC-C", "MS-TPCC_7k.disksim_ns", true),
    ("hm_0", "MSR-Cambridge_hm_0_1000.csv", false),
    ("hm_1", "MSR-Cambridge_hm_1_5000.disksim_ns", true),
    ("MSR-writes", "MSR-Cambridge_writes_33k.disksim_ns", false),
    ("cloudphysics", "cloudphysics_114k.vscsi", false),
    ("FIU", "FIU_cheetah_10k.fiu", true),
    ("YCSB-ext4", "YCSB_ext4.blkparse", false),
    ("YCSB-A", "YCSB-A-RocksDB_writes_87k.disksim_ns", false),
    ("fio", "fio_v2.iolog", false),
];

/// Generated loads: name, specification, and whether the quick run has it.
const GENERATED: [(&str, &str, bool); 3] = [
    ("uniform", "uniform:count=60000,pages=65536", false),
    ("zipf", "zipf:count=200000,pages=131072", false),
    (
        "hot-cold",
        "hotcold:count=200000,pages=65536,r=0.8,f=0.02,scatter=1",
        true,
    ),
];

/// Mixes of phases: loads by their names, one after the other, each limited to this many accesses.
const MIXES: [(&str, &[&str]); 3] = [
    ("mix-1", &["cloudphysics", "Financial1", "TPC-C", "hm_1"]),
    ("mix-2", &["MSR-writes", "hot-cold", "FIU", "Financial1"]),
    ("mix-3", &["hm_1", "uniform", "Financial1", "zipf", "hm_1"]),
];
const QUICK_MIXES: [(&str, &[&str]); 1] = [("mix", &["Financial1", "hot-cold", "hm_1", "TPC-C"])];
const QUICK_LAYERS: [&str; 3] = ["bast", "fast", "page"];
const PHASE: usize = 100_000;

/// Bytes that loads are folded into.
const CAPACITY: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// A trace or a generated load, its addresses modulo the drive.
pub fn folded(source: &str) -> Result<Workload> {
    Ok(Workload {
        fold: Fold {
            range: Range::Modulo,
            ..Fold::default()
        },
        ..Workload::named(source, &TraceSpec::default())?
    })
}

/// A request to the only device, in the only stream, that is due at once.
pub fn request(op: Op, offset: u64, bytes: u64) -> Request {
    Request {
        time: 0,
        device: 0,
        op,
        offset,
        bytes,
        stream: 0,
    }
}

fn read(name: &str, source: &str) -> Result<Load> {
    let mut accesses = Vec::new();
    for request in folded(source)?.requests(CAPACITY)? {
        let request = request?;
        let bit = match request.op {
            Op::Write => WRITE,
            Op::Read => 0,
            Op::Trim | Op::Flush => continue,
        };
        let pages = request.offset / PAGE..(request.offset + request.bytes).div_ceil(PAGE);
        accesses.extend(pages.map(|page| page as u32 | bit));
    }
    Ok(Load {
        name: name.to_owned(),
        accesses,
    })
}

/// The drive, and the loads and layers of a scale.
pub struct Plan {
    pub profile: Profile,
    pub loads: Vec<Load>,
    pub layers: Vec<&'static str>,
}

impl Plan {
    /// `None` if there are no traces; then these figures are missing.
    pub fn new(options: &Options, keys: &[String], outcome: &mut Outcome) -> Result<Option<Plan>> {
        if !options.traces.join("block").exists() {
            for key in keys {
                let folder = options.traces.display();
                outcome.miss(key, format!("there are no traces in {folder}"));
            }
            return Ok(None);
        }
        let profile = Profile::find("paper-1gb")?;
        let layers = ftl::ALL.iter().map(|entry| entry.name);
        let layers: Vec<_> = layers
            .filter(|name| options.scale == Scale::Full || QUICK_LAYERS.contains(name))
            .collect();
        outcome.setting("profile", profile.name.as_str());
        outcome.setting("buffer_bytes", profile.buffer_bytes);
        outcome.setting("layers", layers.join(", "));
        Ok(Some(Plan {
            loads: all(&options.traces, options.scale, outcome)?,
            profile,
            layers,
        }))
    }
}

/// All loads of a scale. Loads without their trace are gaps in `outcome`.
fn all(traces: &Path, scale: Scale, outcome: &mut Outcome) -> Result<Vec<Load>> {
    let wanted = |quick: bool| scale == Scale::Full || quick;
    let mut loads = Vec::new();
    for (name, file, quick) in TRACES {
        let path = traces.join("block").join(file);
        if !wanted(quick) {
            continue;
        }
        if path.exists() {
            loads.push(read(name, &path.to_string_lossy())?);
        } else {
            outcome.miss(
                format!("load.{name}"),
                format!("there is no {}", path.display()),
            );
        }
    }
    for (name, text, quick) in GENERATED {
        if wanted(quick) {
            loads.push(read(name, text)?);
        }
    }
    let mixes = match scale {
        Scale::Full => &MIXES[..],
        Scale::Quick => &QUICK_MIXES,
    };
    for &(name, parts) in mixes {
        let found: Vec<&Load> = parts
            .iter()
            .filter_map(|part| loads.iter().find(|load| load.name == *part))
            .collect();
        if found.len() == parts.len() {
            let pieces = found
                .iter()
                .flat_map(|load| load.accesses.iter().take(PHASE));
            let accesses = pieces.copied().collect();
            loads.push(Load {
                name: name.to_owned(),
                accesses,
            });
        } else {
            outcome.miss(
                format!("load.{name}"),
                format!(
                    "it is made of {}, not all of which are here",
                    parts.join(", ")
                ),
            );
        }
    }
    outcome.setting(
        "folding",
        "addresses modulo 1 GiB, devices dropped, whole pages, trims and flushes left out",
    );
    Ok(loads)
}

impl Load {
    pub(super) fn len(&self) -> usize {
        self.accesses.len()
    }

    /// Runs it through a drive once, one access after the other from `at` on. Returns the end of
    /// the last one, and the sum of all response times.
    pub fn run(&self, device: &mut Device, at: u64) -> (u64, u64) {
        let (mut now, mut sum) = (at, 0);
        for access in &self.accesses {
            let page = access & !WRITE;
            let done = if access & WRITE != 0 {
                device.write(page, true, 0, now)
            } else {
                device.read(page, now)
            };
            sum += done - now;
            now = done;
        }
        (now, sum)
    }
}

/// Does `work` for each of `jobs` on all cores; returns the results in the order of the jobs.
pub fn parallel<J: Sync, R: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<R> + Sync,
    progress: &dyn Progress,
    what: &str,
) -> Result<Vec<R>> {
    let total = jobs.len() as u64;
    progress.step(0, total, what);
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<R>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            let (sender, next, results, work) = (sender.clone(), &next, &results, &work);
            scope.spawn(move || {
                while let Some((at, job)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(at).map(|job| (at, job))
                } {
                    let result = work(job);
                    results.lock().expect("no worker panicked with the lock")[at] = Some(result);
                    // The receiver lives as long as the scope.
                    let _ = sender.send(());
                }
            });
        }
        drop(sender);
        for count in 1.. {
            if receiver.recv().is_err() {
                break;
            }
            progress.step(count, total, what);
        }
    });
    let results = results.into_inner().expect("every worker is done");
    let each = results.into_iter();
    each.map(|result| result.expect("each job was done"))
        .collect()
}
