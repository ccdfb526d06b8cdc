// SPDX-License-Identifier: Apache-2.0
//! nginx, which sends parts of a file that it reads with direct I/O, in its own threads.
//!
//! One process on one core, as a server under test has it. Clients ask for ranges of one file over
//! connections that stay open.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use senko_load::cpu::ProcessCpu;
use senko_workload::Rng;

use super::cleanup::{self, Guard, Undo};
use super::probe::on_core;
use super::scratch::Scratch;
use super::sys;

/// How long it may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Nginx {
    address: SocketAddr,
    child: Child,
    _guard: Guard,
}

/// Clients that read random parts of a file.
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'a> {
    /// A file of the scratch folder, and its bytes.
    pub file: (&'a str, u64),
    /// Bytes of a part.
    pub part: u64,
    pub connections: u64,
    pub time: Duration,
    pub core: usize,
    pub seed: u64,
}

/// What it calls itself.
pub fn version() -> Result<String> {
    let output = Command::new("nginx").arg("-v").output();
    let output = output.context("nginx is not installed")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let name = text.rsplit(' ').next().unwrap_or_default();
    Ok(name.trim().to_owned())
}

impl Nginx {
    /// Starts it on a core, for the files of the scratch folder.
    pub fn start(scratch: &Scratch, core: usize) -> Result<Nginx> {
        // It can't choose a port itself.
        let free = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let path = |name: &str| -> PathBuf { scratch.path(name) };
        let (log, pid, root) = (path("nginx.log"), path("nginx.pid"), scratch.folder());
        let text = format!(
            "daemon off; master_process off; error_log {} error; pid {};\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log off; sendfile on; directio 4k; aio threads; output_buffers 1 1m;\n\
             keepalive_requests 1000000000;\n\
             server {{ listen {free}; root {}; }} }}\n",
            log.display(),
            pid.display(),
            root.display(),
        );
        let settings = path("nginx.conf");
        fs::write(&settings, text)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&settings);
        let out = File::create(path("nginx.out"))?;
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        sys::prepare(&mut command, &[core], Vec::new());
        let child = command.spawn().context("nginx cannot be started")?;
        let mut nginx = Nginx {
            address: free,
            _guard: cleanup::later(Undo::Kill(child.id())),
            child,
        };
        nginx.wait(&path("nginx.out"))?;
        Ok(nginx)
    }

    fn wait(&mut self, out: &Path) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read_to_string(out).unwrap_or_default();
                bail!("nginx ended ({status}): {}", said.trim());
            }
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("nginx did not answer within {} s", PATIENCE.as_secs());
    }

    /// Its processor time for each byte that it sent, in seconds.
    pub fn cpu_per_byte(&self, of: Ranges<'_>) -> Result<f64> {
        let cpu = || ProcessCpu::read(self.child.id()).map_err(|why| anyhow!(why));
        let before = cpu()?;
        let sent = on_core(of.core, || self.read(of))??;
        let time = cpu()?.since(&before).0.total();
        ensure!(sent > 0, "nginx sent nothing");
        Ok(time.as_secs_f64() / sent as f64)
    }

    /// Reads until the time is over; returns the bytes.
    fn read(&self, of: Ranges<'_>) -> Result<u64> {
        thread::scope(|scope| {
            let client = |nth| scope.spawn(move || self.read_on_one(of, of.seed + nth));
            let clients: Vec<_> = (0..of.connections).map(client).collect();
            let sums = clients.into_iter().map(|client| {
                let sum = client.join();
                sum.map_err(|_| anyhow!("a client panicked"))?
            });
            sums.sum()
        })
    }

    fn read_on_one(&self, of: Ranges<'_>, seed: u64) -> Result<u64> {
        let mut stream = BufReader::new(TcpStream::connect(self.address)?);
        stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        let (mut random, mut buffer) = (Rng::new(seed), vec![0; of.part as usize]);
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < of.time {
            let from = random.below(of.file.1 / of.part) * of.part;
            let request = format!(
                "GET /{} HTTP/1.1\r\nHost: lab\r\nRange: bytes={from}-{}\r\n\r\n",
                of.file.0,
                from + of.part - 1
            );
            stream.get_mut().write_all(request.as_bytes())?;
            let mut line = String::new();
            stream.read_line(&mut line)?;
            ensure!(line.starts_with("HTTP/1.1 206"), "nginx answered {line:?}");
            while line != "\r\n" {
                line.clear();
                ensure!(
                    stream.read_line(&mut line)? > 0,
                    "nginx closed a connection"
                );
            }
            stream.read_exact(&mut buffer)?;
            bytes += of.part;
        }
        Ok(bytes)
    }
}
