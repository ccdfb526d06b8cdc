// SPDX-License-Identifier: Apache-2.0
//! The experiment's side: starts the process with an engine under its memory cap, sends requests,
//! and reads the kernel's counters around each.
//!
//! Always: the process is killed when its [`Session`] is dropped, also by a signal to the
//! experiment. If a process ends by itself, or is killed because it exceeds its memory cap, the
//! error says so; the session does not hang.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use senko_load::cpu::ProcessCpu;
use serde_json::{Map, Value};

use super::Tuning;
use super::driver::{Fill, Work, Worked};
use super::limit::DeviceReads;
use super::protocol::{Answer, Opened, Request};
use crate::rig::cgroup::MemoryCap;
use crate::rig::cleanup::{self, Guard, Undo};
use crate::rig::device::DiskCounts;
use crate::rig::process::{self, Io, Memory};
use crate::rig::{Bench, sys};

/// A process that prints nothing for this long counts as stuck.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);
/// The last lines of its stderr that are kept.
const LAST_WORDS: usize = 5;
/// The program with the rivals, in the same folder as `senko-lab`.
const RIVALS: &str = "senko-rivals";
/// How long to wait for a killed process's last words.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The program with the rivals, which is expected beside `senko-lab`.
pub fn rivals(lab: &Path) -> Result<Command> {
    let path = lab.with_file_name(RIVALS);
    ensure!(
        path.is_file(),
        "there is no {}; `cargo xtask lab` builds it (RocksDB's part needs Debian's librocksdb-dev)",
        path.display()
    );
    Ok(Command::new(path))
}

/// The program that has an engine.
fn program(lab: &Path, engine: &str) -> Result<Command> {
    if engine != super::OURS {
        return rivals(lab);
    }
    let mut command = Command::new(lab);
    command.arg("worker");
    Ok(command)
}

/// The results of a request, with the kernel's counters over its time.
#[derive(Clone, Debug)]
pub struct Step {
    pub worked: Worked,
    /// The disk's operations, including those of other processes.
    pub disk: Option<DiskCounts>,
    pub io: Io,
    pub cpu_seconds: f64,
    /// Its memory afterwards.
    pub memory: Memory,
}

impl Step {
    /// The disk's reads for each get.
    pub fn reads_per_get(&self) -> f64 {
        self.disk
            .map_or(f64::NAN, |disk| disk.reads as f64 / self.worked.gets as f64)
    }

    /// Pages of 4 KiB that the process read for each get, by the kernel's count.
    pub fn own_pages_per_get(&self) -> f64 {
        self.io.read as f64 / 4096.0 / self.worked.gets as f64
    }

    /// Bytes that the disk read for each operation.
    pub fn read_bytes_per_op(&self) -> f64 {
        let ops = (self.worked.gets + self.worked.puts) as f64;
        self.disk
            .map_or(f64::NAN, |disk| disk.read_bytes as f64 / ops)
    }

    /// Bytes that the disk wrote for each operation.
    pub fn written_bytes_per_op(&self) -> f64 {
        let ops = (self.worked.gets + self.worked.puts) as f64;
        self.disk
            .map_or(f64::NAN, |disk| disk.written_bytes as f64 / ops)
    }

    /// Processor time of an operation, in microseconds.
    pub fn cpu_us_per_op(&self) -> f64 {
        self.cpu_seconds * 1e6 / (self.worked.gets + self.worked.puts) as f64
    }
}

pub struct Session<'a> {
    bench: &'a Bench<'a>,
    engine: String,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<std::io::Result<String>>,
    words: Arc<Mutex<VecDeque<String>>>,
    cap: Option<MemoryCap>,
    guard: Option<Guard>,
}

impl<'a> Session<'a> {
    /// Starts a process for `engine` that may use `memory` bytes, page cache included, if memory
    /// can be capped. `environment` has variables for it.
    pub fn start(
        bench: &'a Bench<'a>,
        engine: &str,
        memory: u64,
        environment: &[(&str, &str)],
    ) -> Result<Session<'a>> {
        let mut command = program(&bench.options.lab, engine)?;
        let cap = bench.caps.is_ok().then(|| MemoryCap::new(memory, false));
        let cap = cap.transpose()?;
        let groups = cap
            .iter()
            .map(MemoryCap::members)
            .collect::<Result<Vec<_>>>()?;
        // glibc gives each thread its own arena, which no library with many threads and a cap on
        // memory would choose.
        command
            .env("MALLOC_ARENA_MAX", "2")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        sys::prepare(&mut command, bench.cores(), groups);
        let mut child = command
            .spawn()
            .with_context(|| format!("the process with {engine} cannot be started"))?;
        let guard = Some(cleanup::later(Undo::Kill(child.id())));
        let stdin = child.stdin.take().context("the process has no stdin")?;
        let stdout = child.stdout.take().context("the process has no stdout")?;
        let stderr = child.stderr.take().context("the process has no stderr")?;
        let (sender, lines) = channel();
        thread::Builder::new()
            .name("lab-answers".into())
            .spawn(move || {
                for line in BufReader::new(stdout).lines() {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            })
            .context("a thread cannot be started")?;
        let words = Arc::new(Mutex::new(VecDeque::new()));
        listen(stderr, Arc::clone(&words))?;
        Ok(Session {
            bench,
            engine: engine.to_owned(),
            child,
            stdin,
            lines,
            words,
            cap,
            guard,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn cap(&self) -> Option<&MemoryCap> {
        self.cap.as_ref()
    }

    pub fn memory(&self) -> Result<Memory> {
        process::memory(self.pid())
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let sent = self
            .stdin
            .write_all(line.as_bytes())
            .and_then(|()| self.stdin.flush());
        if sent.is_err() {
            bail!(self.gone());
        }
        Ok(())
    }

    /// The reason why there is no answer.
    fn gone(&mut self) -> String {
        // Its pipes are closed before its exit can be waited for.
        thread::sleep(Duration::from_millis(50));
        let ended: Option<ExitStatus> = self.child.try_wait().ok().flatten();
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let last = words
            .back()
            .map_or(String::new(), |word| format!(": {word}"));
        match ended {
            Some(status) => format!("the process with {} ended ({status}){last}", self.engine),
            None => format!("the process with {} does not answer{last}", self.engine),
        }
    }

    fn answer(&mut self, patience: Duration) -> Result<Answer> {
        match self.lines.recv_timeout(patience) {
            Ok(Ok(line)) => match serde_json::from_str(&line).with_context(|| {
                format!("{} answered what no experiment knows: {line}", self.engine)
            })? {
                Answer::Failed(why) => bail!("{}: {why}", self.engine),
                answer => Ok(answer),
            },
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {
                bail!(self.gone())
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.send(request)?;
        self.answer(PATIENCE)
    }

    /// Opens the engine in `folder`, and reads the key `first` if one is given.
    pub fn open(&mut self, folder: &Path, tuning: &Tuning, first: Option<u64>) -> Result<Opened> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let request = Request::Open {
            engine: self.engine.clone(),
            folder: folder.to_owned(),
            tuning: tuning.clone(),
            first,
        };
        match self.ask(&request)? {
            Answer::Opened(opened) => Ok(opened),
            other => bail!(unexpected(&other)),
        }
    }

    fn done(&mut self, request: &Request) -> Result<f64> {
        match self.ask(request)? {
            Answer::Done(seconds) => Ok(seconds),
            other => bail!(unexpected(&other)),
        }
    }

    /// Closes the engine cleanly.
    pub fn close(&mut self) -> Result<f64> {
        self.done(&Request::Close)
    }

    /// The engine's own statistics.
    pub fn facts(&mut self) -> Result<Map<String, Value>> {
        match self.ask(&Request::Facts)? {
            Answer::Facts(facts) => Ok(facts),
            other => bail!(unexpected(&other)),
        }
    }

    pub fn work(&mut self, work: &Work) -> Result<Step> {
        self.measured(&Request::Work(work.clone()), None)
    }

    pub fn device_reads(&mut self, reads: DeviceReads) -> Result<Step> {
        self.measured(&Request::DeviceReads(reads), None)
    }

    /// Fills the engine, and then waits until its background work is done. The counters include
    /// both, [`Worked::seconds`] only the filling.
    pub fn fill_and_settle(&mut self, fill: &Fill) -> Result<Step> {
        self.measured(&Request::Fill(fill.clone()), Some(&Request::Settle))
    }

    /// Gets and puts, and then makes all puts durable, so that the counters include what would be
    /// written later.
    pub fn work_and_sync(&mut self, work: &Work) -> Result<Step> {
        self.measured(&Request::Work(work.clone()), Some(&Request::Sync))
    }

    /// Checks that all puts that a killed writer reported are there.
    pub fn check(&mut self, request: &Request) -> Result<Step> {
        self.measured(request, None)
    }

    fn measured(&mut self, request: &Request, then: Option<&Request>) -> Result<Step> {
        let before = Before::look(self)?;
        let worked = self.worked(request)?;
        if let Some(then) = then {
            self.done(then)?;
        }
        before.step(self, worked)
    }

    fn worked(&mut self, request: &Request) -> Result<Worked> {
        match self.ask(request)? {
            Answer::Worked(worked) => Ok(*worked),
            other => bail!(unexpected(&other)),
        }
    }

    /// Lets the engine write until `enough` accepts the reported number of puts, kills it, and
    /// returns that number.
    pub fn write_and_kill(
        mut self,
        request: &Request,
        mut enough: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        self.send(request)?;
        let mut last = loop {
            match self.answer(PATIENCE)? {
                Answer::Reached(reached) if enough(reached) => break reached,
                Answer::Reached(_) => {}
                other => bail!(unexpected(&other)),
            }
        };
        self.end();
        // The last lines before it died, not read yet.
        while let Ok(Ok(line)) = self.lines.recv_timeout(LAST_WAIT) {
            if let Ok(Answer::Reached(reached)) = serde_json::from_str(&line) {
                last = reached;
            }
        }
        ensure!(
            last > 0,
            "{} wrote nothing before it was killed",
            self.engine
        );
        Ok(last)
    }

    /// Kills it and waits until it is gone.
    fn end(&mut self) {
        drop(self.guard.take());
        drop(self.child.wait());
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn unexpected(answer: &Answer) -> String {
    format!("another answer was expected than {answer:?}")
}

/// Keeps the last lines of a process's stderr.
fn listen(stderr: impl Read + Send + 'static, words: Arc<Mutex<VecDeque<String>>>) -> Result<()> {
    thread::Builder::new()
        .name("lab-stderr".into())
        .spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                if words.len() == LAST_WORDS {
                    words.pop_front();
                }
                words.push_back(line);
            }
        })
        .context("a thread cannot be started")?;
    Ok(())
}

/// The kernel's counters before a request.
struct Before {
    disk: Option<DiskCounts>,
    io: Io,
    cpu: ProcessCpu,
}

impl Before {
    fn look(session: &Session<'_>) -> Result<Before> {
        Ok(Before {
            disk: session.bench.disk_counts(),
            io: process::io(session.pid())?,
            cpu: ProcessCpu::read(session.pid()).map_err(|why| anyhow!(why))?,
        })
    }

    fn step(&self, session: &Session<'_>, worked: Worked) -> Result<Step> {
        let after = Before::look(session)?;
        let disk = match (self.disk, after.disk) {
            (Some(before), Some(after)) => Some(after.since(&before)),
            _ => None,
        };
        Ok(Step {
            worked,
            disk,
            io: Io {
                read: after.io.read.saturating_sub(self.io.read),
                written: after.io.written.saturating_sub(self.io.written),
            },
            // The I/O of threads that have ended is only in the process's sum.
            cpu_seconds: after.cpu.time.since(&self.cpu.time).total().as_secs_f64(),
            memory: session.memory()?,
        })
    }
}
