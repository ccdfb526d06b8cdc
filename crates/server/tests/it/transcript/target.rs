// SPDX-License-Identifier: Apache-2.0
//! The servers that transcripts are played against: Debian's memcached as a child process, and
//! senko in this process with a clock that the test drives.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::ClientConfig;
use senko_server::server::{RunningServer, Server};
use senko_server::settings::{
    Admission, AdmissionRule, BackendChoice, FlashSpec, PolicyKind, Settings, TlsMode,
};

use crate::rig::{Rig, RigSettings};
use crate::serve::client::{DEVICE_PATIENCE, PATIENCE};
use crate::tls::client::{ALL, Authority};
use crate::tls::proxy::through;

/// Memory and flash of a senko that keeps items on flash: small enough that a few megabytes of
/// other items push them out of DRAM.
const FLASH_MEMORY: u64 = 24 << 20;
const FLASH_BYTES: u64 = 128 << 20;

/// A server, and how it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Debian's memcached, the reference.
    Memcached { tls: bool },
    /// Senko, with or without flash, with or without TLS.
    Senko {
        io: BackendChoice,
        flash: bool,
        tls: bool,
    },
    /// Sessions over this many shards, which get all bytes in pieces of this length.
    Sessions { shards: usize, piece: usize },
}

/// The reason why there is no server.
#[derive(Debug)]
pub enum NoTarget {
    /// The machine lacks something that it needs.
    Missing(String),
    /// It should have started.
    Failed(String),
}

/// A running server.
pub enum Target {
    Memcached {
        child: Child,
        port: u16,
        tls: Option<Trusted>,
    },
    Senko {
        server: Option<Box<RunningServer>>,
        port: u16,
        clock: Arc<AtomicU64>,
        flash: Option<PathBuf>,
        filler: u64,
        tls: Option<Trusted>,
        /// Without TLS: megabytes of other items do not need it.
        aside: SocketAddr,
    },
    Sessions {
        rig: Rc<RefCell<Rig>>,
        piece: usize,
    },
}

/// A connection to a server.
pub enum Stream {
    Socket(TcpStream),
    /// A session of a rig, by its number there.
    Session {
        rig: Rc<RefCell<Rig>>,
        id: u64,
        piece: usize,
    },
}

/// A server's certificate, and clients that trust it.
pub struct Trusted {
    authority: Authority,
    clients: Arc<ClientConfig>,
}

impl Trusted {
    fn new() -> Trusted {
        let authority = Authority::new();
        let clients = authority.client(ALL, None);
        Trusted { authority, clients }
    }
}

impl Target {
    /// Starts a server with memcached's `options`.
    pub fn start(kind: Kind, options: &[String]) -> Result<Target, NoTarget> {
        let options: Vec<String> = options.iter().map(|word| spelled_out(word)).collect();
        let options = &options;
        match kind {
            Kind::Memcached { tls } => start_memcached(tls.then(Trusted::new), options),
            Kind::Senko { io, flash, tls } => {
                start_senko(io, flash, tls.then(Trusted::new), options)
            }
            Kind::Sessions { shards, piece } => {
                let mut rig_settings = RigSettings {
                    shards,
                    memory: 32 << 20,
                    ..RigSettings::default()
                };
                apply(&mut rig_settings.settings, options).map_err(NoTarget::Failed)?;
                let rig = Rc::new(RefCell::new(Rig::new(&rig_settings)));
                Ok(Target::Sessions { rig, piece })
            }
        }
    }

    pub fn is_reference(&self) -> bool {
        matches!(self, Target::Memcached { .. })
    }

    /// A connection.
    pub fn open(&self) -> std::io::Result<Stream> {
        let Target::Sessions { rig, piece } = self else {
            return self.connect().map(Stream::Socket);
        };
        let (id, rig, piece) = (rig.borrow_mut().connect(), Rc::clone(rig), *piece);
        Ok(Stream::Session { rig, id, piece })
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let (Target::Memcached { port, tls, .. } | Target::Senko { port, tls, .. }) = self else {
            return Err(std::io::ErrorKind::Unsupported.into());
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        match tls {
            Some(tls) => through(address, &tls.clients),
            None => TcpStream::connect(address),
        }
    }

    /// Whether it still runs (a transcript may shut it down).
    pub fn alive(&mut self) -> bool {
        match self {
            Target::Memcached { child, .. } => matches!(child.try_wait(), Ok(None)),
            Target::Senko { server, .. } => {
                server.as_ref().is_some_and(|s| !s.control().draining())
            }
            // Each case has its own.
            Target::Sessions { .. } => false,
        }
    }

    /// Lets time pass: real time, or the test clock's.
    pub fn sleep(&self, seconds: f64) {
        match self {
            Target::Memcached { .. } => std::thread::sleep(Duration::from_secs_f64(seconds)),
            Target::Senko { clock, .. } => {
                clock.fetch_add((seconds * 1000.0) as u64, Ordering::SeqCst);
            }
            Target::Sessions { rig, .. } => rig.borrow_mut().advance_ms((seconds * 1000.0) as u64),
        }
    }

    /// Empties the cache between cases.
    pub fn flush(&self) -> Result<(), String> {
        let mut stream = self.connect().map_err(|e| e.to_string())?;
        ask(&mut stream, b"flush_all\r\n", b"\r\n").map(drop)
    }

    /// Moves the items in DRAM to flash, by storing other items until DRAM has only those. Items
    /// leave DRAM within their size class, so the other items have the sizes of those to move.
    pub fn demote(&mut self) -> Result<(), String> {
        let Target::Senko {
            flash: Some(_),
            aside,
            ..
        } = self
        else {
            return Ok(());
        };
        let mut stream = TcpStream::connect(*aside).map_err(|e| e.to_string())?;
        let (mut fewest, mut until) = (usize::MAX, Instant::now());
        loop {
            let lines = resident(&mut stream)?;
            if lines.is_empty() {
                return Ok(());
            }
            if lines.len() < fewest {
                // As long as items leave, it may take as long as it takes.
                (fewest, until) = (lines.len(), Instant::now() + PATIENCE);
            }
            if Instant::now() > until {
                return Err(format!("these items stayed in DRAM: {lines:?}"));
            }
            // One size at a time: memory moves between classes, so that others leave meanwhile.
            let size = lines
                .iter()
                .filter_map(|l| l.rsplit_once("size=")?.1.split(' ').next()?.parse().ok())
                .min();
            self.fill(&mut stream, size.ok_or("a line without size")?)?;
            // The server's own work is due every 100 ms of its clock.
            self.sleep(0.11);
        }
    }

    /// Stores items of about `size` bytes each, more than its memory for items in all. Their keys
    /// are short, so that there are other small items too. Their sizes vary a little, since `size`
    /// may be the last of its class.
    fn fill(&mut self, stream: &mut TcpStream, size: usize) -> Result<(), String> {
        let Target::Senko { filler, .. } = self else {
            return Ok(());
        };
        let overhead = match size.saturating_sub(FILLER_OVERHEAD) {
            0..=PACKED => FILLER_OVERHEAD,
            _ => LARGE_FILLER_OVERHEAD,
        };
        let value = vec![b'.'; size.saturating_sub(overhead + 4) + 8];
        let count = ((2 << 20) / (size + 1)).clamp(4, 20_000);
        let mut batch = Vec::new();
        for _ in 0..count {
            *filler += 1;
            let value = &value[(*filler % 3 * 4) as usize..];
            let _ = write!(
                batch,
                "set ~{:05x} 0 0 {} noreply\r\n",
                *filler % 0x10_0000,
                value.len()
            );
            batch.extend_from_slice(value);
            batch.extend_from_slice(b"\r\n");
            if batch.len() > 1 << 20 {
                stream.write_all(&batch).map_err(|e| e.to_string())?;
                batch.clear();
            }
        }
        batch.extend_from_slice(b"mn\r\n");
        ask(stream, &batch, b"MN\r\n").map(drop)
    }
}

/// The size of a filler item besides its value: headers and key.
const FILLER_OVERHEAD: usize = 42;
/// The same for a value of more than [`PACKED`] bytes: its complete answer is stored.
const LARGE_FILLER_OVERHEAD: usize = 76;
const PACKED: usize = senko_cache::PACKED_VALUE as usize;

impl Drop for Target {
    fn drop(&mut self) {
        match self {
            Target::Memcached { child, .. } => {
                drop(child.kill());
                drop(child.wait());
            }
            Target::Senko { server, flash, .. } => {
                if let Some(server) = server.take() {
                    server.shutdown();
                    if let Err(e) = server.join()
                        && !std::thread::panicking()
                    {
                        panic!("the server ended badly: {e}");
                    }
                }
                if let Some(path) = flash {
                    drop(std::fs::remove_file(path));
                }
            }
            Target::Sessions { .. } => {}
        }
    }
}

/// The server's list of items in DRAM that are not the filler's, a line each.
fn resident(stream: &mut TcpStream) -> Result<Vec<String>, String> {
    let dump = ask(stream, b"lru_crawler metadump dram\r\n", b"END\r\n")?;
    let dump = String::from_utf8_lossy(&dump);
    let other =
        |l: &&str| l.starts_with("key=") && !l.starts_with("key=%7E") && !l.starts_with("key=~");
    Ok(dump.lines().filter(other).map(str::to_owned).collect())
}

/// Sends, and reads until the answer ends with `end`.
fn ask(stream: &mut TcpStream, request: &[u8], end: &[u8]) -> Result<Vec<u8>, String> {
    stream
        .set_read_timeout(Some(PATIENCE))
        .map_err(|e| e.to_string())?;
    stream
        .write_all(request)
        .map_err(|e| format!("cannot send: {e}"))?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !answer.ends_with(end) {
        let n = stream
            .read(&mut buffer)
            .map_err(|e| format!("no answer to the test's own request: {e}"))?;
        if n == 0 {
            return Err("the server closed the test's own connection".to_owned());
        }
        answer.extend_from_slice(&buffer[..n]);
    }
    Ok(answer)
}

fn start_memcached(tls: Option<Trusted>, options: &[String]) -> Result<Target, NoTarget> {
    let port = free_port().map_err(|e| NoTarget::Failed(e.to_string()))?;
    let mut command = Command::new("memcached");
    command.args([
        "-l",
        "127.0.0.1",
        "-U",
        "0",
        "-m",
        "64",
        "-p",
        &port.to_string(),
    ]);
    // As root it must be told which user to become; otherwise it must not be.
    if is_root() {
        command.args(["-u", "root"]);
    }
    if let Some(tls) = &tls {
        let files = tls.authority.settings();
        let (chain, key) = (files.chain.display(), files.key.display());
        let words = format!("ssl_chain_cert={chain},ssl_key={key}");
        command.args(["-Z", "-o", &words]);
    }
    command
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command
        .spawn()
        .map_err(|e| NoTarget::Missing(format!("memcached cannot be run: {e}")))?;
    let mut target = Target::Memcached { child, port, tls };
    let until = Instant::now() + PATIENCE;
    while target.connect().is_err() {
        if !target.alive() || Instant::now() > until {
            return Err(NoTarget::Failed(format!(
                "memcached {options:?} did not start"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(target)
}

/// Whether this process runs as root, determined by the owner of its own entry in /proc.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

fn start_senko(
    io: BackendChoice,
    flash: bool,
    tls: Option<Trusted>,
    options: &[String],
) -> Result<Target, NoTarget> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64);
    let clock = Arc::new(AtomicU64::new(now));
    let path = flash.then(flash_path);
    let aside = SocketAddr::from(([127, 0, 0, 2], 0));
    let mut settings = Settings {
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), aside],
        tls_modes: match tls {
            Some(_) => vec![(aside, TlsMode::Off)],
            None => Vec::new(),
        },
        memory: if flash { FLASH_MEMORY } else { 256 << 20 },
        max_connections: 64,
        flash: path
            .iter()
            .map(|p| FlashSpec {
                path: p.clone(),
                bytes: FLASH_BYTES,
            })
            .collect(),
        patience: DEVICE_PATIENCE,
        admission: Admission {
            rule: AdmissionRule::All,
            budget: None,
        },
        // The other policy keeps items that were read, however much else is stored: `demote` would
        // have to read the others, too.
        policy: PolicyKind::Lru,
        io,
        tls: tls.as_ref().map(|tls| tls.authority.settings()),
        clock: Some(Arc::clone(&clock)),
        ..Settings::default()
    };
    apply(&mut settings, options).map_err(NoTarget::Failed)?;
    let server = match Server::start(settings) {
        Ok(server) => server,
        Err(e) if io == BackendChoice::Uring && e.to_string().contains("io_uring") => {
            return Err(NoTarget::Missing(e.to_string()));
        }
        Err(e) => return Err(NoTarget::Failed(e.to_string())),
    };
    let port = server
        .local_port()
        .ok_or_else(|| NoTarget::Failed("the server has no port".to_owned()))?;
    Ok(Target::Senko {
        server: Some(Box::new(server)),
        port,
        clock,
        flash: path,
        filler: 0,
        tls,
        aside: SocketAddr::from(([127, 0, 0, 2], port)),
    })
}

/// `USERS` stands for the password file of the transcripts.
fn spelled_out(word: &str) -> String {
    match word {
        "USERS" => concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/transcripts/auth/users"
        )
        .to_owned(),
        _ => word.to_owned(),
    }
}

/// memcached's options that transcripts use.
fn apply(settings: &mut Settings, options: &[String]) -> Result<(), String> {
    let mut words = options.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-A" => settings.allow_shutdown = true,
            "-C" => settings.no_cas = true,
            "-F" => settings.no_flush_all = true,
            "-M" => settings.no_evict = true,
            "-Y" => settings.auth_file = words.next().map(PathBuf::from),
            "-X" => settings.no_dump = true,
            "-W" => settings.no_watch = true,
            // A thread that senko does not have.
            "-o" if words.next().is_some_and(|o| o == "no_lru_maintainer") => {}
            "-I" => match words
                .next()
                .and_then(|n| n.strip_suffix('m'))
                .and_then(|n| n.parse::<usize>().ok())
            {
                Some(megabytes) => settings.max_item = megabytes << 20,
                None => return Err("-I takes a number and m".to_owned()),
            },
            _ => return Err(format!("the runner does not know the option {word:?}")),
        }
    }
    Ok(())
}

/// Each server has its own file, if possible in the build's directory for temporary files: /tmp may
/// be a tmpfs, which does not support O_DIRECT.
fn flash_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("senko-transcript-{}-{number}.flash", std::process::id());
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = built.join(&name);
    if std::fs::write(&path, b"").is_ok() {
        path
    } else {
        std::env::temp_dir().join(name)
    }
}

/// A port that was free a moment ago.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}
