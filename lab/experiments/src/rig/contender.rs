// SPDX-License-Identifier: Apache-2.0
//! A server under test: started on its cores under its memory cap, ready when it answers, killed
//! when it is dropped.
//!
//! Senko and memcached are started in the same way: with any free port, which the server writes to
//! a file (`MEMCACHED_PORT_FILENAME`).

use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::certificate::Certificate;
use super::cgroup::MemoryCap;
use super::cleanup::{self, Guard, Undo};
use super::scratch::Scratch;
use super::sys;
use super::wire::{Client, Stats};

/// How long a server may take to answer: it may have to reserve a large file first.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cap on a contender's memory.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// Bytes, page cache included.
    pub bytes: u64,
    pub may_swap: bool,
}

/// A server to start.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in tables.
    pub name: String,
    program: PathBuf,
    args: Vec<OsString>,
    cores: Vec<usize>,
    cap: Option<Cap>,
    files: Vec<PathBuf>,
    secure: Option<SocketAddr>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Its name in tables.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens with TLS, if it does.
    pub secure: Option<SocketAddr>,
    /// Its command line.
    pub command: String,
    child: Child,
    guard: Option<Guard>,
    cap: Option<MemoryCap>,
    files: Vec<PathBuf>,
}

impl Spec {
    /// A senko with `memory` bytes and nothing on flash.
    pub fn senko(name: &str, program: &Path, core: usize, memory: u64) -> Spec {
        let mut spec = Spec::new(name, program, core);
        spec.args(["serve", "-l", "127.0.0.1", "-p", "0", "-m"]);
        spec.arg(format!("{}m", memory >> 20));
        spec
    }

    /// Without a flash file.
    pub fn dram_only(mut self) -> Spec {
        self.arg("--no-flash");
        self
    }

    /// With a flash file of this many bytes, which is removed with the server.
    pub fn flash(mut self, path: &Path, bytes: u64) -> Spec {
        let mut value = path.as_os_str().to_owned();
        value.push(format!(":{}m", bytes >> 20));
        self.arg("--flash");
        self.arg(value);
        self.files.push(path.to_owned());
        self
    }

    /// A memcached with `memory` bytes for items and one worker.
    pub fn memcached(name: &str, program: &Path, core: usize, memory: u64) -> Spec {
        let mut spec = Spec::new(name, program, core);
        spec.args(["-l", "127.0.0.1", "-p", "-1", "-t", "1", "-c", "2048", "-m"]);
        spec.arg((memory >> 20).to_string());
        if sys::is_root() {
            spec.args(["-u", "root"]);
        }
        spec
    }

    /// With extstore: a file of this many bytes and 32 I/O threads. `sizes` are the options for its
    /// pages and buffers, which must come first.
    pub fn extstore(mut self, path: &Path, bytes: u64, sizes: &str) -> Spec {
        let mut value = OsString::from(format!("ext_threads=32{sizes},ext_path="));
        value.push(path);
        value.push(format!(":{}m", bytes >> 20));
        self.arg("-o");
        self.arg(value);
        self.files.push(path.to_owned());
        self
    }

    /// The minimal sendfile server (`lab/experiments/examples/sendfile.rs`), with a file of this
    /// many bytes.
    pub fn sendfile(name: &str, program: &Path, core: usize, path: &Path, bytes: u64) -> Spec {
        let mut spec = Spec::new(name, program, core);
        spec.arg(path);
        spec.arg(bytes.to_string());
        spec.files.push(path.to_owned());
        spec
    }

    /// The minimal server on senko's event loop (`lab/experiments/examples/floor.rs`), which reads
    /// random pages of the first `pages` of a file and sends `value` bytes of each.
    pub fn floor(
        name: &str,
        program: &Path,
        core: usize,
        (file, pages): (&Path, u64),
        value: usize,
    ) -> Spec {
        let mut spec = Spec::new(name, program, core);
        spec.arg("0");
        spec.arg(file);
        spec.args([&pages.to_string(), &value.to_string()]);
        spec
    }

    fn new(name: &str, program: &Path, core: usize) -> Spec {
        Spec {
            name: name.to_owned(),
            program: program.to_owned(),
            args: Vec::new(),
            cores: vec![core],
            cap: None,
            files: Vec::new(),
            secure: None,
        }
    }

    /// With a second address, 127.0.0.2, whose connections are encrypted.
    pub fn tls(mut self, certificate: &Certificate) -> Result<Spec, String> {
        let free = TcpListener::bind(("127.0.0.2", 0)).and_then(|listener| listener.local_addr());
        let secure = free.map_err(|error| format!("there is no free port: {error}"))?;
        // One option has all addresses.
        if let Some(at) = self.args.iter().position(|arg| arg == "-l") {
            self.args[at + 1] = format!("notls:127.0.0.1,{secure}").into();
        }
        let Certificate { chain, key } = certificate;
        if self.program == Path::new("memcached") {
            let (chain, key) = (chain.display(), key.display());
            self.args(["-Z", "-o"]);
            self.arg(format!("ssl_chain_cert={chain},ssl_key={key}"));
        } else {
            self.arg("--tls-chain-cert");
            self.arg(chain);
            self.arg("--tls-key");
            self.arg(key);
        }
        self.secure = Some(secure);
        Ok(self)
    }

    fn arg(&mut self, arg: impl Into<OsString>) {
        self.args.push(arg.into());
    }

    fn args<const N: usize>(&mut self, args: [&str; N]) {
        self.args.extend(args.map(OsString::from));
    }

    pub fn with(mut self, args: &[&str]) -> Spec {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    pub fn on(mut self, cores: &[usize]) -> Spec {
        self.cores = cores.to_vec();
        self
    }

    pub fn capped(mut self, cap: Option<Cap>) -> Spec {
        self.cap = cap;
        self
    }

    /// Starts it and waits until it answers.
    /// If it ends at once, the error has its last output.
    pub fn start(&self, scratch: &Scratch) -> Result<Server> {
        let cap = self
            .cap
            .map(|cap| MemoryCap::new(cap.bytes, cap.may_swap))
            .transpose()?;
        let groups = cap
            .iter()
            .map(MemoryCap::members)
            .collect::<Result<Vec<_>>>()?;
        let port_file = scratch.path(&format!("{}.port", self.name));
        let log = scratch.path(&format!("{}.log", self.name));
        drop(fs::remove_file(&port_file));
        let out =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env("MEMCACHED_PORT_FILENAME", &port_file);
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        sys::prepare(&mut command, &self.cores, groups);
        let mut words = vec![
            self.program
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        ];
        words.extend(self.args.iter().map(|arg| {
            arg.to_string_lossy()
                .replace(&*scratch.folder().to_string_lossy(), "")
        }));
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!("{} is not installed", self.program.display()),
            _ => anyhow!("{} cannot be started: {error}", self.program.display()),
        })?;
        let mut server = Server {
            name: self.name.clone(),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            secure: self.secure,
            command: words.join(" "),
            guard: Some(cleanup::later(Undo::Kill(child.id()))),
            child,
            cap,
            files: self.files.clone(),
        };
        server.wait(&port_file).with_context(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let last = text
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("it said nothing");
            format!("{} did not start: {}", self.name, last.trim())
        })?;
        Ok(server)
    }
}

impl Server {
    fn wait(&mut self, port_file: &Path) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status})");
            }
            let port = fs::read_to_string(port_file)
                .ok()
                .and_then(|text| port_of(&text));
            if let Some(port) = port {
                self.address.set_port(port);
                if Client::connect(self.address)
                    .and_then(|mut client| client.command("version"))
                    .is_ok()
                {
                    return Ok(());
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("it did not answer within {} s", PATIENCE.as_secs());
    }

    /// Ends its process with a signal, and returns how long that took. Its files stay, for a
    /// successor that is started with the same command.
    /// If it does not end in a while, it is killed, and its files are removed; that is an error.
    pub fn end(mut self, signal: i32) -> Result<Duration> {
        let start = Instant::now();
        sys::signal(self.pid(), signal);
        while self.child.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                bail!(
                    "{} did not end within {} s of signal {signal}",
                    self.name,
                    PATIENCE.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(1));
        }
        let took = start.elapsed();
        if let Some(guard) = self.guard.take() {
            guard.forget();
        }
        self.files.clear();
        Ok(took)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn cap(&self) -> Option<&MemoryCap> {
        self.cap.as_ref()
    }

    pub fn stats(&self) -> Result<Stats> {
        Client::connect(self.address)
            .and_then(|mut client| client.stats("stats"))
            .with_context(|| format!("{} gave no statistics", self.name))
    }

    pub fn stat(&self, name: &str) -> Result<f64> {
        let stats = self.stats()?;
        let number = stats.get(name).copied();
        number.with_context(|| format!("{}'s statistics have no {name}", self.name))
    }

    pub fn reset_stats(&self) -> Result<()> {
        let answer =
            Client::connect(self.address).and_then(|mut client| client.command("stats reset"));
        match answer
            .with_context(|| format!("{} did not reset its statistics", self.name))?
            .as_str()
        {
            "RESET" => Ok(()),
            other => bail!("{} answered \"{other}\" to stats reset", self.name),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.take());
        drop(self.child.wait());
        for file in &self.files {
            drop(fs::remove_file(file));
        }
    }
}

/// The TCP port in a port file: `TCP INET: 46699`. The file appears complete: both servers rename
/// it into place.
fn port_of(text: &str) -> Option<u16> {
    text.lines()
        .find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_files() {
        assert_eq!(port_of("TCP INET: 46699\n"), Some(46699));
        assert_eq!(port_of("UDP INET: 1\nTCP INET6: 2\nTCP INET: 3\n"), Some(3));
        assert_eq!(port_of(""), None);
    }

    #[test]
    fn a_second_address_has_tls() {
        let certificate = Certificate {
            chain: "/d/c".into(),
            key: "/d/k".into(),
        };
        let of = |spec: Spec| {
            let spec = spec.tls(&certificate).expect("a free port");
            let secure = spec.secure.expect("it was asked for");
            let words: Vec<_> = spec.args.iter().map(|a| a.to_string_lossy()).collect();
            words.join(" ").replace(&secure.to_string(), "S")
        };
        assert_eq!(
            of(Spec::senko("s", Path::new("/x/senko"), 0, 64 << 20)),
            "serve -l notls:127.0.0.1,S -p 0 -m 64m --tls-chain-cert /d/c --tls-key /d/k"
        );
        let line = of(Spec::memcached("m", Path::new("memcached"), 0, 64 << 20));
        assert!(line.starts_with("-l notls:127.0.0.1,S -p -1 "), "{line}");
        assert!(
            line.ends_with("-Z -o ssl_chain_cert=/d/c,ssl_key=/d/k"),
            "{line}"
        );
    }

    #[test]
    fn command_lines() {
        let spec =
            Spec::senko("s", Path::new("/x/senko"), 0, 64 << 20).flash(Path::new("/d/f"), 1 << 30);
        assert_eq!(
            spec.args
                .iter()
                .map(|a| a.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" "),
            "serve -l 127.0.0.1 -p 0 -m 64m --flash /d/f:1024m"
        );
        let spec = Spec::memcached("e", Path::new("memcached"), 0, 100 << 20).extstore(
            Path::new("/d/e"),
            2 << 30,
            ",ext_page_size=8",
        );
        let line = spec
            .args
            .iter()
            .map(|a| a.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ");
        assert!(
            line.contains("-m 100")
                && line.ends_with("-o ext_threads=32,ext_page_size=8,ext_path=/d/e:2048m"),
            "{line}"
        );
    }
}
