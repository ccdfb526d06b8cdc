// SPDX-License-Identifier: Apache-2.0
//! Clients that burden a server during the measured load. They read slowly, stop in the middle of a
//! request or of a handshake, connect and disconnect rapidly, or never read the metrics they
//! request.
//!
//! One thread holds all of their sockets and blocks on none. Connections that the server closes are
//! opened again, so the burden stays the same during a window.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use senko_load::TlsOptions;
use senko_load::tls::TlsClient;

use super::contender::Server;
use super::sys;

/// Interval between two passes over the sockets.
const TICK: Duration = Duration::from_millis(50);
/// Passes between two checks for sockets that the server closed.
const LOOK: u32 = 20;
/// The most that a slow reader reads in one pass.
const SIP: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Requests much, and reads a little now and then.
    SlowReader,
    HalfValue,
    HalfLine,
    HalfHello,
    WholeHello,
    /// Requests metrics from the admin listener, and never reads.
    Scraper,
}

/// Percentage of the crowd.
const PARTS: [(Kind, usize); 5] = [
    (Kind::SlowReader, 25),
    (Kind::HalfValue, 20),
    (Kind::HalfLine, 15),
    (Kind::HalfHello, 20),
    (Kind::WholeHello, 20),
];
/// Scrapers, in addition to the crowd: the admin listener accepts only a few connections.
const SCRAPERS: usize = 8;

/// The server to burden, and how much.
#[derive(Clone, Debug)]
pub struct Burden {
    plain: SocketAddr,
    secure: SocketAddr,
    /// A server without an admin listener has no scrapers.
    admin: Option<SocketAddr>,
    hello: Vec<u8>,
    /// A key that the server has.
    key: String,
    /// Connections that stay.
    connections: usize,
    /// Connections a second that are opened, send a little, and are closed.
    storm: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections that stay open.
    pub opened: u64,
    /// How many of them were opened again because the server had closed them.
    pub again: u64,
    pub stormed: u64,
    /// Connections that the kernel or the server refused.
    pub refused: u64,
}

impl Burden {
    /// For a server that has TLS, with `key` among its items. Scrapers use `admin`, if the server
    /// has such a listener.
    pub fn new(
        server: &Server,
        admin: Option<SocketAddr>,
        key: &str,
        connections: usize,
        storm: usize,
    ) -> Result<Burden> {
        let secure = server.secure.context("the server has no TLS")?;
        let options = TlsOptions {
            insecure: true,
            ..TlsOptions::default()
        };
        let hello = TlsClient::new(&options, secure.ip())
            .and_then(|client| client.hello())
            .map_err(|why| anyhow!(why))?;
        Ok(Burden {
            plain: server.address,
            secure,
            admin,
            hello,
            key: key.to_owned(),
            connections,
            storm,
        })
    }

    /// Burdens the server until `over`; `there` is set once all connections are open. The calling
    /// thread lowers its priority, since the measured load runs on the same core.
    pub fn carry(&self, there: &AtomicBool, over: &AtomicBool) -> Counts {
        sys::step_back();
        let mut counts = Counts::default();
        let kinds = PARTS
            .iter()
            .flat_map(|&(kind, part)| vec![kind; self.connections * part / 100]);
        let scrapers = vec![Kind::Scraper; self.admin.map_or(0, |_| SCRAPERS)];
        let mut clients: Vec<(Kind, Option<TcpStream>)> = kinds
            .chain(scrapers)
            .map(|kind| (kind, self.open(kind, &mut counts)))
            .collect();
        there.store(true, Ordering::Relaxed);
        let mut due = Instant::now();
        for tick in 1_u32.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            for number in 0..self.storm / 20 {
                self.storm(number, &mut counts);
            }
            if tick % LOOK == 0 {
                for (kind, client) in &mut clients {
                    if !client.as_mut().is_some_and(|socket| stays(*kind, socket)) {
                        *client = self.open(*kind, &mut counts);
                        counts.again += u64::from(client.is_some());
                    }
                }
            }
            due += TICK;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        counts
    }

    fn connect(address: SocketAddr, counts: &mut Counts) -> Option<TcpStream> {
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        counts.refused += u64::from(socket.is_err());
        socket.ok()
    }

    fn open(&self, kind: Kind, counts: &mut Counts) -> Option<TcpStream> {
        let address = match kind {
            Kind::SlowReader | Kind::HalfValue | Kind::HalfLine => self.plain,
            Kind::HalfHello | Kind::WholeHello => self.secure,
            Kind::Scraper => self.admin?,
        };
        let mut socket = Self::connect(address, counts)?;
        counts.opened += 1;
        let hello = &self.hello;
        let text = match kind {
            Kind::SlowReader => format!("get {}\r\n", self.key).repeat(500).into_bytes(),
            Kind::HalfValue => {
                let mut text = format!("set half{} 0 0 100000\r\n", counts.opened).into_bytes();
                text.resize(text.len() + 50_000, b'v');
                text
            }
            Kind::HalfLine => b"get ke".to_vec(),
            Kind::HalfHello => hello[..hello.len() / 2].to_vec(),
            Kind::WholeHello => hello.clone(),
            Kind::Scraper => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        };
        // Writes as much as the socket takes; the rest leaves the request incomplete just as well.
        let _ = socket.write(&text);
        Some(socket)
    }

    /// A connection that sends a little and closes, without reading.
    fn storm(&self, number: usize, counts: &mut Counts) {
        let secure = number % 2 == 1;
        let address = if secure { self.secure } else { self.plain };
        if let Some(mut socket) = Self::connect(address, counts) {
            let text = match secure {
                true => &self.hello[..],
                false => b"get none\r\n",
            };
            let _ = socket.write(text);
            counts.stormed += 1;
        }
    }
}

/// Whether the server has kept the connection open; a slow reader reads a little.
fn stays(kind: Kind, socket: &mut TcpStream) -> bool {
    let mut sip = [0; SIP];
    let got = match kind {
        Kind::SlowReader => socket.read(&mut sip),
        _ => socket.peek(&mut sip[..1]),
    };
    match got {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
