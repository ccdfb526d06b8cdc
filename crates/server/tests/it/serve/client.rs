// SPDX-License-Identifier: Apache-2.0
//! A server in this process with a clock that the test drives, and connections to it that check
//! their answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use senko_server::server::{RunningServer, Server};
use senko_server::settings::{BackendChoice, FlashSpec, Settings};

/// A folder that is removed.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("senko-serve-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl std::ops::Deref for Scratch {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How long a client waits for bytes: a test must not fail because the machine or its disk is busy,
/// and a hang is noticed soon enough. Two minutes were too short once, beside tests that filled
/// disk and network.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// As `Settings::patience`, for tests in which no device may be taken out of use.
pub const DEVICE_PATIENCE: u32 = 20;

/// A server with 64 MiB of memory, 256 MiB of flash and a clock that stands still unless driven.
pub struct Place {
    pub folder: Scratch,
    pub clock: Arc<AtomicU64>,
    settings: Settings,
    server: Option<RunningServer>,
}

/// Runs a test on io_uring (if available) and on posix.
pub fn on_both(threads: usize, test: impl Fn(Place)) {
    for io in [BackendChoice::Auto, BackendChoice::Posix] {
        test(Place::start(io, threads));
    }
}

impl Place {
    pub fn start(io: BackendChoice, threads: usize) -> Place {
        let folder = Scratch::new();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64;
        let clock = Arc::new(AtomicU64::new(now));
        let settings = Settings {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            memory: 64 << 20,
            threads,
            io,
            flash: vec![FlashSpec {
                path: folder.join("flash"),
                bytes: 256 << 20,
            }],
            clock: Some(Arc::clone(&clock)),
            patience: DEVICE_PATIENCE,
            // The assignment of keys is the same in each run.
            draw_hash_seed: false,
            ..Settings::default()
        };
        let server = Some(Server::start(settings.clone()).unwrap());
        Place {
            folder,
            clock,
            settings,
            server,
        }
    }

    /// The same with other settings.
    pub fn restart(mut self, change: impl FnOnce(&mut Settings)) -> Place {
        self.stop();
        change(&mut self.settings);
        self.server = Some(Server::start(self.settings.clone()).unwrap());
        self
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn server(&self) -> &RunningServer {
        self.server.as_ref().unwrap()
    }

    pub fn port(&self) -> u16 {
        self.server().local_port().unwrap()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port())
    }

    /// Waits until this many connections are open, besides the one used for the query.
    pub fn wait_for_connections(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        let wanted = format!("STAT curr_connections {}\r\n", count + 1);
        loop {
            let mut client = self.connect();
            client.send(b"stats\r\n");
            let stats = String::from_utf8(client.until(b"\r\n")).unwrap();
            // At the limit the querying connection is refused.
            let stats = if stats.starts_with("ERROR") {
                stats
            } else {
                stats + &client.text("", "END\r\n")
            };
            if stats.contains(&wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{stats}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until this many connections are open, including the querying one.
    pub fn wait_for_connections_on(&self, client: &mut Client, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while client.stat("curr_connections") != count as u64 {
            assert!(Instant::now() < deadline, "not {count} connections");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops it and checks that it stopped without an error.
    pub fn end(&mut self) {
        self.stop();
    }

    /// Stops it; returns the error of the stop.
    pub fn end_badly(&mut self) -> String {
        let server = self.server.take().unwrap();
        server.shutdown();
        server.join().unwrap_err().to_string()
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
            server.join().unwrap();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(server) = self.server.take() {
                server.control().abort();
            }
        } else {
            self.stop();
        }
    }
}

/// A change of settings, and a part of the reason for which they are then refused.
pub type Refusal<'a> = (&'a dyn Fn(&mut Settings), &'a str);

/// A socket on which a test reads and writes.
pub fn open(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The counters of `stats`, all of the same moment.
pub struct Stats(pub String);

impl Stats {
    pub fn get(&self, name: &str) -> u64 {
        let start = format!("STAT {name} ");
        let line = self.0.lines().find_map(|line| line.strip_prefix(&start));
        let line = line.unwrap_or_else(|| panic!("no {name} in {}", self.0));
        line.parse().unwrap()
    }
}

/// A connection over a stream, which may be encrypted.
pub struct Client<S = TcpStream> {
    pub stream: S,
    /// Read, but not yet consumed.
    ahead: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Client<S> {
        Client {
            stream,
            ahead: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    fn read_more(&mut self) -> usize {
        let mut buf = [0; 64 << 10];
        let n = self.stream.read(&mut buf).unwrap_or_else(|e| {
            panic!(
                "{e}, after {:?}",
                String::from_utf8_lossy(&self.ahead[..self.ahead.len().min(300)])
            )
        });
        self.ahead.extend_from_slice(&buf[..n]);
        n
    }

    /// Reads exactly these bytes.
    pub fn expect(&mut self, wanted: &[u8]) {
        while self.ahead.len() < wanted.len() {
            assert!(
                self.read_more() > 0,
                "the connection ended before {:?}",
                String::from_utf8_lossy(&wanted[..wanted.len().min(60)])
            );
        }
        if &self.ahead[..wanted.len()] != wanted {
            let at = self
                .ahead
                .iter()
                .zip(wanted)
                .position(|(a, b)| a != b)
                .unwrap();
            let show = |bytes: &[u8]| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(40)..bytes.len().min(at + 60)])
                    .into_owned()
            };
            panic!(
                "at byte {at}: {:?} instead of {:?}",
                show(&self.ahead),
                show(wanted)
            );
        }
        self.ahead.drain(..wanted.len());
    }

    /// Reads this many bytes.
    pub fn exactly(&mut self, len: usize) -> Vec<u8> {
        while self.ahead.len() < len {
            assert!(self.read_more() > 0, "the connection ended");
        }
        self.ahead.drain(..len).collect()
    }

    /// Reads up to and including this end.
    pub fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut from = 0;
        loop {
            if let Some(at) = self.ahead[from..].windows(end.len()).position(|w| w == end) {
                return self.ahead.drain(..from + at + end.len()).collect();
            }
            from = self.ahead.len().saturating_sub(end.len() - 1);
            assert!(
                self.read_more() > 0,
                "the connection ended: {:?}",
                String::from_utf8_lossy(&self.ahead)
            );
        }
    }

    pub fn ask(&mut self, request: &str, answer: &str) {
        self.send(request.as_bytes());
        self.expect(answer.as_bytes());
    }

    pub fn text(&mut self, request: &str, end: &str) -> String {
        self.send(request.as_bytes());
        String::from_utf8(self.until(end.as_bytes())).unwrap()
    }

    pub fn stats(&mut self) -> Stats {
        Stats(self.text("stats\r\n", "END\r\n"))
    }

    /// A number of `stats`.
    pub fn stat(&mut self, name: &str) -> u64 {
        self.stats().get(name)
    }

    pub fn store(&mut self, key: &str, value: &[u8]) {
        self.send(format!("set {key} 0 0 {}\r\n", value.len()));
        self.send(value);
        self.ask("\r\n", "STORED\r\n");
    }

    /// Reads the answer to a `get`, which has this value.
    pub fn expect_value(&mut self, key: &str, value: &[u8]) {
        self.expect(format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes());
        self.expect(value);
        self.expect(b"\r\nEND\r\n");
    }

    pub fn get(&mut self, key: &str, value: &[u8]) {
        self.send(format!("get {key}\r\n"));
        self.expect_value(key, value);
    }
}

impl Client {
    pub fn connect(port: u16) -> Client {
        Client::to(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    pub fn to(address: SocketAddr) -> Client {
        Client::over(open(address).unwrap())
    }

    /// Another connection to the same address.
    pub fn again(&self) -> Client {
        Client::to(self.stream.peer_addr().unwrap())
    }

    pub fn second_handle(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Reads to the end of the connection, orderly or not.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut buf = [0; 64 << 10];
        loop {
            match self.stream.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => self.ahead.extend_from_slice(&buf[..n]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error}"),
            }
        }
        std::mem::take(&mut self.ahead)
    }

    /// As [`Client::expect`]; false if the connection ended after a part of these bytes.
    pub fn expect_or_end(&mut self, wanted: &[u8]) -> bool {
        let mut buf = [0; 64 << 10];
        while self.ahead.len() < wanted.len() {
            let n = self.stream.read(&mut buf).unwrap_or(0);
            self.ahead.extend_from_slice(&buf[..n]);
            if n == 0 {
                assert!(
                    wanted.starts_with(&self.ahead),
                    "a wrong byte before the end"
                );
                return false;
            }
        }
        self.expect(wanted);
        true
    }

    /// Sends a request to a server that may stop: false if it stopped before the whole answer.
    ///
    /// # Panics
    /// If the answer is wrong.
    pub fn try_ask(&mut self, request: &[u8], answer: &[u8]) -> bool {
        if self.stream.write_all(request).is_err() {
            return false;
        }
        let mut got = vec![0; answer.len()];
        match self.stream.read_exact(&mut got) {
            Ok(()) => assert_eq!(got, answer),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "no answer");
                return false;
            }
        }
        true
    }

    /// Sends much and reads as much at the same time, as a client with two threads does.
    pub fn send_while_reading(&mut self, request: &[u8], wanted: &[u8]) {
        let mut sender = self.second_handle();
        std::thread::scope(|scope| {
            scope.spawn(move || sender.write_all(request).unwrap());
            self.expect(wanted);
        });
    }

    /// Closes the connection so that the peer sees a reset.
    pub fn reset(self) {
        let at_once = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        // SAFETY: the kernel reads a `linger`, which lives on this stack, of an open socket.
        let done = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const at_once).cast(),
                size_of::<libc::linger>() as libc::socklen_t,
            )
        };
        assert_eq!(done, 0);
    }
}
