// SPDX-License-Identifier: Apache-2.0
//! The machine as an experiment on servers sees it: two cores, a scratch folder on a disk, the
//! disk's counters, the programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::cgroup::MemoryCap;
use super::contender::{Cap, Server, Spec};
use super::device::{BlockDevice, DiskCounts};
use super::probe::{Calm, Probe};
use super::scratch::Scratch;
use super::{cleanup, sys};
use crate::{Options, Outcome, Progress, Reason};

/// A contender's memory cap exceeds the memory that it is told to use by this part: a quarter. With
/// less, a server that keeps its own limit could be killed. The rest serves as page cache, which
/// favours servers that use it.
const CAP_SLACK: u64 = 4;

/// An experiment that is given a bench.
pub type OnBench = fn(&Bench<'_>, &dyn Progress, &mut Outcome) -> Result<()>;

pub struct Bench<'a> {
    pub options: &'a Options,
    /// The folder for large files.
    pub scratch: Scratch,
    /// The disk that has the folder, or why it is not known.
    pub device: Result<BlockDevice, String>,
    /// Whether memory can be capped, or why not.
    pub caps: Result<(), String>,
    /// memcached's version, or why it is missing.
    pub memcached: Result<String, String>,
    cores: Vec<usize>,
    probe: Probe,
    calm: Calm,
}

impl<'a> Bench<'a> {
    /// Looks at the machine, and takes the first noise probe.
    /// It needs a writable folder.
    pub fn open(options: &'a Options) -> Result<Bench<'a>> {
        cleanup::on_signals();
        let cores = sys::cores().context("the kernel does not say which cores may be used")?;
        let (Some(&first), Some(&last)) = (cores.first(), cores.last()) else {
            bail!("the kernel says that no core may be used");
        };
        let scratch = Scratch::new(&options.scratch)?;
        let device = BlockDevice::of(scratch.folder());
        let probe = Probe::new(&scratch.path("probe"), [first, last])?;
        let calm = probe.look()?;
        Ok(Bench {
            options,
            device,
            caps: MemoryCap::new(64 << 20, false).map(drop).reason(),
            memcached: memcached_version(&options.memcached),
            scratch,
            cores,
            probe,
            calm,
        })
    }

    /// The core that contenders run on.
    pub fn server_core(&self) -> usize {
        self.cores[0]
    }

    /// The core of the load generator: the last one. So a server with two workers has its own cores
    /// on a larger machine.
    pub fn load_core(&self) -> usize {
        self.cores[self.cores.len() - 1]
    }

    /// All cores of this process.
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// As [`Options::scaled`].
    pub fn scaled<T>(&self, quick: T, full: T) -> T {
        self.options.scaled(quick, full)
    }

    pub fn disk_counts(&self) -> Option<DiskCounts> {
        self.device.as_ref().ok()?.counts().ok()
    }

    /// The cap of a contender that is told to use `memory` bytes; none if memory can't be capped.
    pub fn cap(&self, memory: u64) -> Option<Cap> {
        self.caps.as_ref().ok().map(|()| Cap {
            bytes: memory + memory / CAP_SLACK,
            may_swap: false,
        })
    }

    /// A senko on the server's core, with `memory` bytes, capped.
    pub fn senko(&self, name: &str, memory: u64) -> Spec {
        Spec::senko(name, &self.options.program, self.server_core(), memory)
            .capped(self.cap(memory))
    }

    /// The same with a flash file of this many bytes.
    pub fn on_flash(&self, name: &str, memory: u64, bytes: u64) -> Spec {
        let path = self.scratch.path(&format!("{name}.flash"));
        self.senko(name, memory).flash(&path, bytes)
    }

    /// Starts a server, and notes its command.
    pub fn start(&self, spec: &Spec, outcome: &mut Outcome) -> Result<Server> {
        let server = spec.start(&self.scratch)?;
        outcome.setting(format!("command_{}", server.name), server.command.clone());
        Ok(server)
    }

    /// The minimal sendfile server on the server's core, under a cap of `memory` bytes, with a file
    /// of `bytes` bytes.
    pub fn sendfile(&self, name: &str, memory: u64, bytes: u64) -> Result<Spec, String> {
        let program = self.example("sendfile")?;
        let path = self.scratch.path(&format!("{name}.flash"));
        let spec = Spec::sendfile(name, &program, self.server_core(), &path, bytes);
        Ok(spec.capped(self.cap(memory)))
    }

    /// The minimal server on senko's event loop on the server's core: it answers with `value` bytes
    /// of random pages of another server's flash file, of its first `pages`.
    pub fn floor(&self, name: &str, of: (&Path, u64), value: usize) -> Result<Spec, String> {
        let program = self.example("floor")?;
        Ok(Spec::floor(name, &program, self.server_core(), of, value))
    }

    /// An example of this crate, which `cargo xtask lab run` builds.
    fn example(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.options.program.with_file_name("examples");
        let program = folder.join(name);
        match program.exists() {
            true => Ok(program),
            false => Err(format!(
                "not built: cargo build --release -p senko_lab --example {name}"
            )),
        }
    }

    /// A memcached all in DRAM on the server's core, with `memory` bytes for items.
    pub fn memcached(&self, name: &str, memory: u64) -> Result<Spec, String> {
        self.memcached.clone()?;
        let program = &self.options.memcached;
        let spec = Spec::memcached(name, program, self.server_core(), memory);
        Ok(spec.capped(self.cap(memory)))
    }

    /// A memcached with extstore on the server's core, told to use `memory` bytes, with a file of
    /// `flash` bytes.
    ///
    /// It gets the settings that suit it best here: short sleeps, and short intervals for its
    /// background threads, which write to flash or move pages of DRAM between size classes. Without
    /// them it drops most of the load.
    /// Without a cap there is none: the page cache would serve its file.
    pub fn extstore(&self, name: &str, memory: u64, flash: u64) -> Result<Spec, String> {
        const SMALL: u64 = 256 << 20;
        const BUFFERS: u64 = 16 << 20;
        self.caps.clone()?;
        let path = self.scratch.path(&format!("{name}.ext"));
        // By default its pages are 64 MiB and its write buffers 4 MiB, which is too much for small
        // memories.
        let sizes = match memory {
            0..0x1000_0000 => ",ext_page_size=8,ext_wbuf_size=2",
            0x1000_0000..0x4000_0000 => ",ext_page_size=16",
            _ => "",
        };
        // `-m` does not include its buffers. If the slack of the cap is too small for them, they
        // are subtracted.
        let items = if memory < SMALL {
            memory.saturating_sub(BUFFERS)
        } else {
            memory
        };
        let spec = self
            .memcached(name, items)?
            .with(&["-o", "ext_max_sleep=1000,slab_automove_window=3"]);
        Ok(spec.extstore(&path, flash, sizes).capped(self.cap(memory)))
    }

    /// Runs an experiment between the first noise probe and the second.
    pub fn run(
        options: &Options,
        progress: &dyn Progress,
        outcome: &mut Outcome,
        run: OnBench,
        capped: bool,
    ) -> Result<()> {
        let bench = Bench::open(options)?;
        ensure!(
            !capped || bench.cores.len() > 1,
            "the server and its load need a core each, and this process may use one core only"
        );
        run(&bench, progress, outcome)?;
        progress.step(1, 1, "last probe");
        if capped {
            bench.note_caps(outcome);
        }
        bench.finish(outcome)
    }

    /// Adds to the outcome what holds for all experiments on the machine, and takes the second
    /// noise probe.
    pub fn finish(&self, outcome: &mut Outcome) -> Result<()> {
        match &self.device {
            Ok(device) => outcome.device = device.describe(),
            Err(why) => outcome.miss(
                "device_reads",
                format!("the kernel's disk statistics are not available: {why}"),
            ),
        }
        self.calm.compare(&self.probe.look()?, outcome);
        Ok(())
    }

    /// Adds to the outcome what holds for all experiments whose contenders have a cap on memory and
    /// a core of their own.
    pub fn note_caps(&self, outcome: &mut Outcome) {
        let capped = match &self.caps {
            Ok(()) => json!(format!(
                "each server's memory is capped by cgroup at {} % of what it is told to use",
                100 + 100 / CAP_SLACK
            )),
            Err(why) => json!(format!("none: {why}")),
        };
        outcome.setting("memory_cap", capped);
        outcome.setting("memcached", json!(self.memcached.as_ref().ok()));
        outcome.setting("server_core", self.server_core());
        outcome.setting("load_core", self.load_core());
    }
}

/// The version that a memcached tells, with the newest one if that is another.
fn memcached_version(program: &Path) -> Result<String, String> {
    const NEWEST: &str = "memcached 1.6.45";
    let absent = "memcached is not installed (Debian package memcached)";
    let output = Command::new(program)
        .arg("-V")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| absent.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() && !text.is_empty() {
        true if text == NEWEST => Ok(text),
        true => Ok(format!("{text} ({NEWEST} is newer)")),
        false => Err("memcached -V failed".to_owned()),
    }
}
