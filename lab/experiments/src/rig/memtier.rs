// SPDX-License-Identifier: Apache-2.0
//! memtier_benchmark, a load generator that is not ours.
//!
//! It keeps its own core busy in a closed loop and sends a request as soon as an answer is there.
//! With several under way it sends them in parts, about four in one write, where `senko load` sends
//! all of a connection's in one.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, anyhow, ensure};
use senko_load::cpu::ProcessCpu;

use super::contender::Server;
use super::sys;
use super::wire::grown;

/// Its program and the load.
#[derive(Clone, Copy, Debug)]
pub struct Memtier<'a> {
    pub program: &'a Path,
    /// The core that it runs on.
    pub core: usize,
    /// Keys, which it numbers itself, and bytes of a value.
    pub keys: u64,
    pub value: usize,
}

impl Memtier<'_> {
    pub fn fill(&self, server: &Server) -> Result<()> {
        let words = ["--ratio=1:0", "--key-pattern=P:P", "--requests=allkeys"];
        self.run(server, (1, 64), &words)
    }

    /// Gets random keys over `connections`, `pipeline` of them under way on each. Returns the
    /// server's processor time of a get, in microseconds.
    /// A get that finds nothing is an error.
    pub fn gets(
        &self,
        server: &Server,
        (connections, pipeline): (usize, usize),
        gets: u64,
    ) -> Result<f64> {
        let each = gets / connections as u64;
        let cpu = || ProcessCpu::read(server.pid()).map_err(|why| anyhow!(why));
        let (counts, before) = (server.stats()?, cpu()?);
        let requests = format!("--requests={each}");
        self.run(server, (connections, pipeline), &["--ratio=0:1", &requests])?;
        let time = cpu()?.since(&before).0.total();
        let found = grown(&counts, &server.stats()?, "get_hits");
        let sent = each as f64 * connections as f64;
        ensure!(
            found == sent,
            "{} found {found} of {sent} keys",
            server.name
        );
        Ok(time.as_secs_f64() * 1e6 / sent)
    }

    fn run(
        &self,
        server: &Server,
        (connections, pipeline): (usize, usize),
        words: &[&str],
    ) -> Result<()> {
        let mut command = Command::new(self.program);
        command
            .args(["--protocol=memcache_text", "--threads=1", "--key-minimum=1"])
            .arg(format!("--server={}", server.address.ip()))
            .arg(format!("--port={}", server.address.port()))
            .arg(format!("--clients={connections}"))
            .arg(format!("--pipeline={pipeline}"))
            .arg(format!("--key-maximum={}", self.keys))
            .arg(format!("--data-size={}", self.value))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        sys::prepare(&mut command, &[self.core], Vec::new());
        let output = command.output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                anyhow!("memtier_benchmark is not installed (--memtier FILE names one)")
            }
            _ => anyhow!("memtier_benchmark cannot be run: {error}"),
        })?;
        let status = output.status;
        ensure!(status.success(), "memtier_benchmark failed ({status})");
        Ok(())
    }
}
